/*
 * ck_hash_wide.h -- XXH3-128 compiled for wide CPUs.  Private to ck_hash.c and its test.
 *
 * libxxhash is built for the oldest CPU of its architecture; its own header, compiled for
 * AVX2, is three times as fast and gives the same bits.
 */
#ifndef CK_HASH_WIDE_H
#define CK_HASH_WIDE_H

#include "libckpt/base/ck_hash.h"

struct ck_hash_wide {
	struct ck_hash128 (*hash)(const void *p, size_t n, uint64_t seed);
	/* 'state' is an XXH3_state_t. */
	void (*update)(void *state, const void *p, size_t n);
};

/* NULL if the CPU or the operating system does not support AVX2, or it is no x86-64. */
const struct ck_hash_wide *ck_hash_avx2(void);

#endif
