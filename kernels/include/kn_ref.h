/*
 * kn_ref.h -- the plain definitions of kn.h: what every variant is compared with.
 * Same arguments, same contracts, no dispatch.
 */
#ifndef KN_REF_H
#define KN_REF_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/include/kn.h"

void kn_ref_bf16_to_f32(void *dst, const void *src, size_t n);
void kn_ref_f16_to_f32(void *dst, const void *src, size_t n);
void kn_ref_f32_to_f64(void *dst, const void *src, size_t n);
void kn_ref_f16_to_bf16(void *dst, const void *src, size_t n);
void kn_ref_f32_to_bf16(void *dst, const void *src, size_t n, uint64_t *overflow);
void kn_ref_f32_to_f16(void *dst, const void *src, size_t n, uint64_t *overflow);
void kn_ref_f64_to_f32(void *dst, const void *src, size_t n, uint64_t *overflow);
void kn_ref_f64_to_bf16(void *dst, const void *src, size_t n, uint64_t *overflow);
void kn_ref_f64_to_f16(void *dst, const void *src, size_t n, uint64_t *overflow);
void kn_ref_bf16_to_f16(void *dst, const void *src, size_t n, uint64_t *overflow);

void kn_ref_bswap16(void *dst, const void *src, size_t n);
void kn_ref_bswap32(void *dst, const void *src, size_t n);
void kn_ref_bswap64(void *dst, const void *src, size_t n);

/* Each 16 bytes are xored with 'pattern', a tail with as many of its first bytes. */
void kn_ref_xor(void *dst, const void *src, const uint8_t pattern[16], size_t nbytes);

size_t kn_ref_mismatch(const void *a, const void *b, size_t nbytes);

void kn_ref_gather(void *dst, ptrdiff_t dst_stride, const void *src,
		   ptrdiff_t src_stride, size_t size, size_t run, size_t nrun);

/* Sums by index modulo 8, and how many elements go into them in one go. */
struct kn_diff_lanes {
	double dd[8], aa[8], bb[8];
};
#define KN_DIFF_BLOCK 256u

/* 'n' elements, at most a block, of which the first has number 'at'; not of BYTE. */
void kn_ref_diff_block(enum kn_num type, const struct kn_diff_how *how, const void *a,
		       const void *b, uint64_t at, size_t n, struct kn_diff_lanes *lanes,
		       struct kn_diff *out);
void kn_ref_diff_join(const struct kn_diff_lanes *lanes, struct kn_diff *out);
int kn_ref_diff(enum kn_num type, const struct kn_diff_how *how, const void *a, const void *b,
		size_t n, struct kn_diff *out);

#endif
