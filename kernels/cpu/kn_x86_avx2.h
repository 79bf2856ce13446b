/*
 * kn_x86_avx2.h -- kernels for AVX2, and those that need F16C besides.
 *
 * Included by kn_cpu.c only.  Tails go to the definitions in kernels/ref.  How many
 * inputs overflow is counted on the input: an f32 becomes infinite in bf16 from
 * 0x7f7f8000 on (largest bf16 and a half), in f16 from 0x477ff000 (65520) on.
 */
#ifndef KN_X86_AVX2_H
#define KN_X86_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/include/kn_ref.h"

#define KN_AVX2 __attribute__((target("avx2,popcnt")))
#define KN_F16C_FN __attribute__((target("avx2,popcnt,f16c")))

KN_AVX2 static inline __m256i avx2_load(const uint8_t *p)
{
	return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

KN_AVX2 static inline void avx2_store(uint8_t *p, __m256i v)
{
	_mm256_storeu_si256((__m256i *)(void *)p, v);
}

KN_AVX2 static inline __m128i sse_load(const uint8_t *p)
{
	return _mm_loadu_si128((const __m128i *)(const void *)p);
}

KN_AVX2 static inline void sse_store(uint8_t *p, __m128i v)
{
	_mm_storeu_si128((__m128i *)(void *)p, v);
}

/* How many of 8 f32, given as bits, are finite and at least 'limit'. */
KN_AVX2 static inline unsigned avx2_count(__m256i u, int limit)
{
	const __m256i abs = _mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff));
	const __m256i big = _mm256_cmpgt_epi32(abs, _mm256_set1_epi32(limit - 1));
	const __m256i inf = _mm256_cmpgt_epi32(abs, _mm256_set1_epi32(0x7f7fffff));
	const __m256i over = _mm256_andnot_si256(inf, big);

	return (unsigned)_mm_popcnt_u32(
		(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(over)));
}

/* 8 f32 as bits -> 8 bf16 in the low halves of 32 bits. */
KN_AVX2 static inline __m256i avx2_round_bf16(__m256i u)
{
	const __m256i abs = _mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff));
	const __m256i nan = _mm256_cmpgt_epi32(abs, _mm256_set1_epi32(0x7f800000));
	const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16),
					     _mm256_set1_epi32(1));
	const __m256i up = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
	const __m256i r = _mm256_srli_epi32(_mm256_add_epi32(u, up), 16);

	return _mm256_blendv_epi8(r, _mm256_set1_epi32(0x7fc0), nan);
}

/* Two times 8 halves of 32 bits -> 16 of 16 bits, in order. */
KN_AVX2 static inline __m256i avx2_pack(__m256i a, __m256i b)
{
	return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
}

KN_AVX2 static inline void avx2_bf16_to_f32(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= 8; n -= 8, s += 16, d += 32)
		avx2_store(d, _mm256_slli_epi32(_mm256_cvtepu16_epi32(sse_load(s)), 16));
	kn_ref_bf16_to_f32(d, s, n);
}

KN_AVX2 static inline void avx2_f32_to_f64(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= 4; n -= 4, s += 16, d += 32) {
		const __m128 v = _mm_castsi128_ps(sse_load(s));

		avx2_store(d, _mm256_castpd_si256(_mm256_cvtps_pd(v)));
	}
	kn_ref_f32_to_f64(d, s, n);
}

KN_AVX2 static inline void avx2_f32_to_bf16(void *dst, const void *src, size_t n,
					    uint64_t *overflow)
{
	uint8_t *d = dst;
	const uint8_t *s = src;
	uint64_t over = 0;

	for (; n >= 16; n -= 16, s += 64, d += 32) {
		const __m256i a = avx2_load(s), b = avx2_load(s + 32);

		avx2_store(d, avx2_pack(avx2_round_bf16(a), avx2_round_bf16(b)));
		over += avx2_count(a, 0x7f7f8000) + avx2_count(b, 0x7f7f8000);
	}
	kn_ref_f32_to_bf16(d, s, n, &over);
	if (overflow)
		*overflow += over;
}

KN_AVX2 static inline void avx2_f64_to_f32(void *dst, const void *src, size_t n,
					   uint64_t *overflow)
{
	const __m256d limit = _mm256_set1_pd(0x1.ffffffp127);
	const __m256d inf = _mm256_set1_pd(__builtin_inf());
	const __m256d sign = _mm256_set1_pd(-0.0);
	uint8_t *d = dst;
	const uint8_t *s = src;
	uint64_t over = 0;

	for (; n >= 4; n -= 4, s += 32, d += 16) {
		const __m256d v = _mm256_castsi256_pd(avx2_load(s));
		const __m256d abs = _mm256_andnot_pd(sign, v);
		const __m256d is_over =
			_mm256_and_pd(_mm256_cmp_pd(abs, limit, _CMP_GE_OQ),
				      _mm256_cmp_pd(abs, inf, _CMP_LT_OQ));

		sse_store(d, _mm_castps_si128(_mm256_cvtpd_ps(v)));
		over += (unsigned)_mm_popcnt_u32((unsigned)_mm256_movemask_pd(is_over));
	}
	kn_ref_f64_to_f32(d, s, n, &over);
	if (overflow)
		*overflow += over;
}

KN_F16C_FN static inline void f16c_f16_to_f32(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= 8; n -= 8, s += 16, d += 32)
		avx2_store(d, _mm256_castps_si256(_mm256_cvtph_ps(sse_load(s))));
	kn_ref_f16_to_f32(d, s, n);
}

KN_F16C_FN static inline void f16c_f32_to_f16(void *dst, const void *src, size_t n,
					      uint64_t *overflow)
{
	uint8_t *d = dst;
	const uint8_t *s = src;
	uint64_t over = 0;

	for (; n >= 8; n -= 8, s += 32, d += 16) {
		const __m256i u = avx2_load(s);

		sse_store(d, _mm256_cvtps_ph(_mm256_castsi256_ps(u),
					     _MM_FROUND_TO_NEAREST_INT));
		over += avx2_count(u, 0x477ff000);
	}
	kn_ref_f32_to_f16(d, s, n, &over);
	if (overflow)
		*overflow += over;
}

KN_F16C_FN static inline void f16c_f16_to_bf16(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= 16; n -= 16, s += 32, d += 32) {
		const __m256 a = _mm256_cvtph_ps(sse_load(s));
		const __m256 b = _mm256_cvtph_ps(sse_load(s + 16));

		avx2_store(d, avx2_pack(avx2_round_bf16(_mm256_castps_si256(a)),
					avx2_round_bf16(_mm256_castps_si256(b))));
	}
	kn_ref_f16_to_bf16(d, s, n);
}

KN_F16C_FN static inline void f16c_bf16_to_f16(void *dst, const void *src, size_t n,
					       uint64_t *overflow)
{
	uint8_t *d = dst;
	const uint8_t *s = src;
	uint64_t over = 0;

	for (; n >= 8; n -= 8, s += 16, d += 16) {
		const __m256i u =
			_mm256_slli_epi32(_mm256_cvtepu16_epi32(sse_load(s)), 16);

		sse_store(d, _mm256_cvtps_ph(_mm256_castsi256_ps(u),
					     _MM_FROUND_TO_NEAREST_INT));
		over += avx2_count(u, 0x477ff000);
	}
	kn_ref_bf16_to_f16(d, s, n, &over);
	if (overflow)
		*overflow += over;
}

/* Shuffles that reverse elements of 2, 4 and 8 bytes within 16. */
static const uint8_t kn_x86_rev[3][16] = {
	{ 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14 },
	{ 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12 },
	{ 7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8 },
};

/* 'n' elements of 'size' bytes through the shuffle 'rev', the tail through 'tail'. */
KN_AVX2 static inline void avx2_swap(void *dst, const void *src, size_t size, size_t n,
				     const uint8_t rev[16],
				     void (*tail)(void *, const void *, size_t))
{
	const __m256i order = _mm256_broadcastsi128_si256(sse_load(rev));
	const size_t step = 32 / size;
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= step; n -= step, s += 32, d += 32)
		avx2_store(d, _mm256_shuffle_epi8(avx2_load(s), order));
	tail(d, s, n);
}

KN_AVX2 static inline void avx2_bswap16(void *dst, const void *src, size_t n)
{
	avx2_swap(dst, src, 2, n, kn_x86_rev[0], kn_ref_bswap16);
}

KN_AVX2 static inline void avx2_bswap32(void *dst, const void *src, size_t n)
{
	avx2_swap(dst, src, 4, n, kn_x86_rev[1], kn_ref_bswap32);
}

KN_AVX2 static inline void avx2_bswap64(void *dst, const void *src, size_t n)
{
	avx2_swap(dst, src, 8, n, kn_x86_rev[2], kn_ref_bswap64);
}

KN_AVX2 static inline void avx2_xor(void *dst, const void *src, const uint8_t pattern[16],
				    size_t nbytes)
{
	const __m256i x = _mm256_broadcastsi128_si256(sse_load(pattern));
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; nbytes >= 32; nbytes -= 32, s += 32, d += 32)
		avx2_store(d, _mm256_xor_si256(avx2_load(s), x));
	kn_ref_xor(d, s, pattern, nbytes);
}

KN_AVX2 static inline size_t avx2_mismatch(const void *a, const void *b, size_t nbytes)
{
	const uint8_t *x = a, *y = b;
	size_t left = nbytes;

	for (; left >= 32; left -= 32, x += 32, y += 32) {
		const __m256i eq = _mm256_cmpeq_epi8(avx2_load(x), avx2_load(y));
		const unsigned same = (unsigned)_mm256_movemask_epi8(eq);

		if (same != UINT32_MAX)
			return nbytes - left + (unsigned)__builtin_ctz(~same);
	}
	return nbytes - left + kn_ref_mismatch(x, y, left);
}

#endif
