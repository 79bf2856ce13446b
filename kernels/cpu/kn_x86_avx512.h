/*
 * kn_x86_avx512.h -- kernels for AVX-512 (F, BW, DQ, VL).
 *
 * Included by kn_cpu.c only.  A tail is one more round with a mask: masked-out lanes are
 * neither read nor written.  Overflow is counted on the input, as for AVX2.
 */
#ifndef KN_X86_AVX512_H
#define KN_X86_AVX512_H

#include <immintrin.h>

#include "kernels/cpu/kn_x86_avx2.h"	/* kn_x86_rev */

#define KN_AVX512_FN \
	__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,popcnt,f16c")))

/* The first 'n' of 64, 32, 16 or 8 lanes; a mask narrower than 64 keeps the low bits. */
static inline uint64_t lanes(size_t n)
{
	return n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

KN_AVX512_FN static inline unsigned avx512_count(__m512i u, int limit)
{
	const __m512i abs = _mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff));
	const __mmask16 big = _mm512_cmpge_epi32_mask(abs, _mm512_set1_epi32(limit));
	const __mmask16 over = _mm512_mask_cmplt_epi32_mask(
		big, abs, _mm512_set1_epi32(0x7f800000));

	return (unsigned)_mm_popcnt_u32(over);
}

KN_AVX512_FN static inline __m256i avx512_round_bf16(__m512i u)
{
	const __m512i abs = _mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff));
	const __mmask16 nan =
		_mm512_cmpgt_epi32_mask(abs, _mm512_set1_epi32(0x7f800000));
	const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16),
					     _mm512_set1_epi32(1));
	const __m512i up = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
	const __m512i r = _mm512_srli_epi32(_mm512_add_epi32(u, up), 16);

	return _mm512_cvtepi32_epi16(
		_mm512_mask_mov_epi32(r, nan, _mm512_set1_epi32(0x7fc0)));
}

KN_AVX512_FN static inline __m512i avx512_bf16_bits(__m256i v)
{
	return _mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16);
}

KN_AVX512_FN static inline void avx512_bf16_to_f32(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= 16; n -= 16, s += 32, d += 64) {
		const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)s);

		_mm512_storeu_si512(d, avx512_bf16_bits(v));
	}
	if (n) {
		const __mmask16 m = (__mmask16)lanes(n);

		_mm512_mask_storeu_epi32(
			d, m, avx512_bf16_bits(_mm256_maskz_loadu_epi16(m, s)));
	}
}

KN_AVX512_FN static inline void avx512_f16_to_f32(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= 16; n -= 16, s += 32, d += 64) {
		const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)s);

		_mm512_storeu_ps(d, _mm512_cvtph_ps(v));
	}
	if (n) {
		const __mmask16 m = (__mmask16)lanes(n);

		_mm512_mask_storeu_ps(d, m,
				      _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, s)));
	}
}

KN_AVX512_FN static inline void avx512_f32_to_f64(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= 8; n -= 8, s += 32, d += 64) {
		const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)s);

		_mm512_storeu_pd(d, _mm512_cvtps_pd(_mm256_castsi256_ps(v)));
	}
	if (n) {
		const __mmask8 m = (__mmask8)lanes(n);

		_mm512_mask_storeu_pd(d, m,
				      _mm512_cvtps_pd(_mm256_maskz_loadu_ps(m, s)));
	}
}

KN_AVX512_FN static inline void avx512_f16_to_bf16(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n; s += 32, d += 32) {
		const __mmask16 m = (__mmask16)lanes(n);
		const __m512 v = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, s));

		_mm256_mask_storeu_epi16(d, m,
					 avx512_round_bf16(_mm512_castps_si512(v)));
		n -= n < 16 ? n : 16;
	}
}

KN_AVX512_FN static inline void avx512_bf16_to_f16(void *dst, const void *src, size_t n,
						   uint64_t *overflow)
{
	uint8_t *d = dst;
	const uint8_t *s = src;
	uint64_t over = 0;

	for (; n; s += 32, d += 32) {
		const __mmask16 m = (__mmask16)lanes(n);
		const __m512i u = avx512_bf16_bits(_mm256_maskz_loadu_epi16(m, s));

		_mm256_mask_storeu_epi16(d, m,
					 _mm512_cvtps_ph(_mm512_castsi512_ps(u),
							 _MM_FROUND_TO_NEAREST_INT));
		over += avx512_count(u, 0x477ff000);
		n -= n < 16 ? n : 16;
	}
	if (overflow)
		*overflow += over;
}

KN_AVX512_FN static inline void avx512_f32_to_bf16(void *dst, const void *src, size_t n,
						   uint64_t *overflow)
{
	uint8_t *d = dst;
	const uint8_t *s = src;
	uint64_t over = 0;

	for (; n >= 16; n -= 16, s += 64, d += 32) {
		const __m512i u = _mm512_loadu_si512(s);

		_mm256_storeu_si256((__m256i *)(void *)d, avx512_round_bf16(u));
		over += avx512_count(u, 0x7f7f8000);
	}
	if (n) {
		const __mmask16 m = (__mmask16)lanes(n);
		const __m512i u = _mm512_maskz_loadu_epi32(m, s);

		_mm256_mask_storeu_epi16(d, m, avx512_round_bf16(u));
		over += avx512_count(u, 0x7f7f8000);
	}
	if (overflow)
		*overflow += over;
}

KN_AVX512_FN static inline void avx512_f32_to_f16(void *dst, const void *src, size_t n,
						  uint64_t *overflow)
{
	uint8_t *d = dst;
	const uint8_t *s = src;
	uint64_t over = 0;

	for (; n >= 16; n -= 16, s += 64, d += 32) {
		const __m512i u = _mm512_loadu_si512(s);

		_mm256_storeu_si256((__m256i *)(void *)d,
				    _mm512_cvtps_ph(_mm512_castsi512_ps(u),
						    _MM_FROUND_TO_NEAREST_INT));
		over += avx512_count(u, 0x477ff000);
	}
	if (n) {
		const __mmask16 m = (__mmask16)lanes(n);
		const __m512i u = _mm512_maskz_loadu_epi32(m, s);

		_mm256_mask_storeu_epi16(d, m,
					 _mm512_cvtps_ph(_mm512_castsi512_ps(u),
							 _MM_FROUND_TO_NEAREST_INT));
		over += avx512_count(u, 0x477ff000);
	}
	if (overflow)
		*overflow += over;
}

KN_AVX512_FN static inline void avx512_f64_to_f32(void *dst, const void *src, size_t n,
						  uint64_t *overflow)
{
	const __m512d limit = _mm512_set1_pd(0x1.ffffffp127);
	const __m512d inf = _mm512_set1_pd(__builtin_inf());
	uint8_t *d = dst;
	const uint8_t *s = src;
	uint64_t over = 0;

	for (; n; s += 64, d += 32) {
		const __mmask8 m = (__mmask8)lanes(n);
		const __m512d v = _mm512_maskz_loadu_pd(m, s);
		const __m512d abs = _mm512_abs_pd(v);
		const __mmask8 big = _mm512_cmp_pd_mask(abs, limit, _CMP_GE_OQ);

		_mm256_mask_storeu_ps(d, m, _mm512_cvtpd_ps(v));
		over += (unsigned)_mm_popcnt_u32(
			_mm512_mask_cmp_pd_mask(big, abs, inf, _CMP_LT_OQ));
		n -= n < 8 ? n : 8;
	}
	if (overflow)
		*overflow += over;
}

KN_AVX512_FN static inline void avx512_shuffle(uint8_t *d, const uint8_t *s,
					       const uint8_t rev[16], size_t nbytes)
{
	const __m512i order = _mm512_broadcast_i32x4(
		_mm_loadu_si128((const __m128i *)(const void *)rev));

	for (; nbytes >= 64; nbytes -= 64, s += 64, d += 64)
		_mm512_storeu_si512(d,
				    _mm512_shuffle_epi8(_mm512_loadu_si512(s), order));
	if (nbytes) {
		const __mmask64 m = lanes(nbytes);

		_mm512_mask_storeu_epi8(
			d, m, _mm512_shuffle_epi8(_mm512_maskz_loadu_epi8(m, s), order));
	}
}

KN_AVX512_FN static inline void avx512_bswap16(void *dst, const void *src, size_t n)
{
	avx512_shuffle(dst, src, kn_x86_rev[0], 2 * n);
}

KN_AVX512_FN static inline void avx512_bswap32(void *dst, const void *src, size_t n)
{
	avx512_shuffle(dst, src, kn_x86_rev[1], 4 * n);
}

KN_AVX512_FN static inline void avx512_bswap64(void *dst, const void *src, size_t n)
{
	avx512_shuffle(dst, src, kn_x86_rev[2], 8 * n);
}

KN_AVX512_FN static inline void avx512_xor(void *dst, const void *src,
					   const uint8_t pattern[16], size_t nbytes)
{
	const __m512i x = _mm512_broadcast_i32x4(
		_mm_loadu_si128((const __m128i *)(const void *)pattern));
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; nbytes >= 64; nbytes -= 64, s += 64, d += 64)
		_mm512_storeu_si512(d, _mm512_xor_si512(_mm512_loadu_si512(s), x));
	if (nbytes) {
		const __mmask64 m = lanes(nbytes);

		_mm512_mask_storeu_epi8(
			d, m, _mm512_xor_si512(_mm512_maskz_loadu_epi8(m, s), x));
	}
}

KN_AVX512_FN static inline size_t avx512_mismatch(const void *a, const void *b, size_t nbytes)
{
	const uint8_t *x = a, *y = b;
	size_t i;

	for (i = 0; i < nbytes; i += 64) {
		const __mmask64 m = lanes(nbytes - i);
		const __m512i v = _mm512_maskz_loadu_epi8(m, x + i);
		const __m512i w = _mm512_maskz_loadu_epi8(m, y + i);
		const __mmask64 differ = _mm512_cmpneq_epi8_mask(v, w);

		if (differ)
			return i + (unsigned)__builtin_ctzll(differ);
	}
	return nbytes;
}

#endif
