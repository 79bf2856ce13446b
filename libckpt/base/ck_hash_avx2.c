/*
 * ck_hash_avx2.c -- see ck_hash_wide.h.  The whole of xxHash is compiled here a second time,
 * for AVX2 and without exported names; what it includes comes first, so that the target
 * is set for xxHash and for nothing else.
 */
#include "libckpt/base/ck_hash_wide.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

#define XXH_INLINE_ALL
#define XXH_VECTOR 2	/* XXH_AVX2 */
#include <xxhash.h>

static struct ck_hash128 hash(const void *p, size_t n, uint64_t seed)
{
	const XXH128_hash_t h = XXH3_128bits_withSeed(p, n, seed);

	return (struct ck_hash128){ .lo = h.low64, .hi = h.high64 };
}

static void update(void *state, const void *p, size_t n)
{
	XXH3_128bits_update(state, p, n);
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const struct ck_hash_wide *ck_hash_avx2(void)
{
	static const struct ck_hash_wide wide = { hash, update };

	return __builtin_cpu_supports("avx2") ? &wide : NULL;
}

#else

const struct ck_hash_wide *ck_hash_avx2(void)
{
	return NULL;
}

#endif
