/*
 * kn_ops.h -- one set of kernel variants, and how the set in use is found.
 */
#ifndef KN_OPS_H
#define KN_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/include/kn.h"

typedef void (*kn_widen_fn)(void *dst, const void *src, size_t n);
typedef void (*kn_narrow_fn)(void *dst, const void *src, size_t n, uint64_t *overflow);

/* All functions of a set are there; a set may borrow from a lesser one. */
struct kn_ops {
	const char *name;
	unsigned needs;		/* KN_CPU_* */
	kn_widen_fn bf16_to_f32;
	kn_widen_fn f16_to_f32;
	kn_widen_fn f32_to_f64;
	kn_widen_fn f16_to_bf16;
	kn_narrow_fn f32_to_bf16;
	kn_narrow_fn f32_to_f16;
	kn_narrow_fn f64_to_f32;
	kn_narrow_fn bf16_to_f16;
	kn_widen_fn bswap16;
	kn_widen_fn bswap32;
	kn_widen_fn bswap64;
	void (*xor16)(void *dst, const void *src, const uint8_t pattern[16],
		      size_t nbytes);
	size_t (*mismatch)(const void *a, const void *b, size_t nbytes);
	int (*diff)(enum kn_num type, const struct kn_diff_how *how, const void *a, const void *b,
		    size_t n, struct kn_diff *out);
};

/* The set in use; chosen on the first call, static. */
const struct kn_ops *kn_ops_get(void);

#endif
