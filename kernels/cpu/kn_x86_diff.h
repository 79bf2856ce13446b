/*
 * kn_x86_diff.h -- kn_diff() for AVX2: blocks of 32- and 16-bit floats that are all finite.
 *
 * Included by kn_cpu.c only.  Everything else (NaN and infinities, tails, other types, elements
 * of several numbers) goes to the definition, block by block.  Sums use the same eight lanes in
 * the same order, so the bits are those of the definition.
 *
 * Patterns are looked at as 32-bit integers; those of 16 bits are in the low halves.  Without
 * their signs they are below 2^31, so the distance of two of them fits 32 bits.
 */
#ifndef KN_X86_DIFF_H
#define KN_X86_DIFF_H

#include <string.h>

#include "kernels/cpu/kn_ops.h"
#include "kernels/cpu/kn_x86_avx2.h"

#define KN_DIFF_WAYS 4	/* histograms that take turns, so that no count waits for the one before */

struct avx2_diff {
	const struct kn_diff_how *how;
	struct kn_diff_lanes *lanes;
	struct kn_diff *out;
	uint32_t steps[KN_DIFF_WAYS][33];
	__m256i most;		/* largest distances in steps */
};

KN_AVX2 static inline int avx2_all_finite(const float *x)
{
	const __m256i top = _mm256_set1_epi32(0x7f800000);
	__m256i odd = _mm256_setzero_si256();

	for (size_t i = 0; i < KN_DIFF_BLOCK; i += 8) {
		const __m256i v = avx2_load((const uint8_t *)(x + i));

		odd = _mm256_or_si256(odd, _mm256_cmpeq_epi32(_mm256_and_si256(v, top), top));
	}
	return _mm256_testz_si256(odd, odd);
}

KN_AVX2 static inline void avx2_add_lanes(double lane[8], __m256d lo, __m256d hi)
{
	_mm256_storeu_pd(lane, _mm256_add_pd(_mm256_loadu_pd(lane), lo));
	_mm256_storeu_pd(lane + 4, _mm256_add_pd(_mm256_loadu_pd(lane + 4), hi));
}

/* The bytes are equal: what is left are norms. */
KN_AVX2 static inline void avx2_same(struct avx2_diff *d, const float *x)
{
	__m256d lo = _mm256_setzero_pd(), hi = lo;

	for (size_t i = 0; i < KN_DIFF_BLOCK; i += 8) {
		const __m256d u = _mm256_cvtps_pd(_mm_loadu_ps(x + i));
		const __m256d v = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4));

		lo = _mm256_add_pd(lo, _mm256_mul_pd(u, u));
		hi = _mm256_add_pd(hi, _mm256_mul_pd(v, v));
	}
	d->out->steps[0] += KN_DIFF_BLOCK;
	avx2_add_lanes(d->lanes->aa, lo, hi);
	avx2_add_lanes(d->lanes->bb, lo, hi);
}

/* How many numbers lie between; 'sign' is the top bit of the type. */
KN_AVX2 static inline __m256i avx2_steps(__m256i p, __m256i q, __m256i sign)
{
	const __m256i a = _mm256_andnot_si256(sign, p), b = _mm256_andnot_si256(sign, q);
	const __m256i apart = _mm256_and_si256(_mm256_xor_si256(p, q), sign);
	const __m256i same = _mm256_cmpeq_epi32(apart, _mm256_setzero_si256());

	return _mm256_blendv_epi8(_mm256_add_epi32(a, b),
				  _mm256_abs_epi32(_mm256_sub_epi32(a, b)), same);
}

/* Elements 'at' and on whose bits in 'mask' are set. */
static inline void avx2_count_at(unsigned mask, uint64_t at, uint64_t *count, uint64_t *first,
				 uint64_t *last)
{
	if (!mask)
		return;
	if (!*count)
		*first = at + (unsigned)__builtin_ctz(mask);
	*last = at + 31 - (unsigned)__builtin_clz(mask);
	*count += (unsigned)__builtin_popcount(mask);
}

KN_AVX2 static inline void avx2_histogram(struct avx2_diff *d, __m256i steps)
{
	uint32_t s[8];

	d->most = _mm256_max_epu32(d->most, steps);
	avx2_store((uint8_t *)s, steps);
	for (size_t k = 0; k < 8; k++)
		d->steps[k % KN_DIFF_WAYS][s[k] ? 32 - __builtin_clz(s[k]) : 0]++;
}

/* Four distances, of elements 'at' and on; the first largest one counts. */
KN_AVX2 static inline void avx2_largest(struct kn_diff *out, __m256d gap, uint64_t at)
{
	double g[4];

	if (!_mm256_movemask_pd(_mm256_cmp_pd(gap, _mm256_set1_pd(out->max_abs), _CMP_GT_OQ)))
		return;
	_mm256_storeu_pd(g, gap);
	for (size_t k = 0; k < 4; k++)
		if (g[k] > out->max_abs) {
			out->max_abs = g[k];
			out->max_at = at + k;
		}
}

/* Which of four are beyond the tolerance. */
KN_AVX2 static inline unsigned avx2_beyond(const struct kn_diff_how *how, __m256d u, __m256d v,
					   __m256d gap)
{
	const __m256d sign = _mm256_set1_pd(-0.0);
	const __m256d large = _mm256_max_pd(_mm256_andnot_pd(sign, u), _mm256_andnot_pd(sign, v));
	const __m256d may = _mm256_add_pd(_mm256_set1_pd(how->abs),
					  _mm256_mul_pd(_mm256_set1_pd(how->rel), large));
	const __m256d is = _mm256_cmp_pd(gap, _mm256_setzero_pd(), _CMP_NEQ_OQ);

	return (unsigned)_mm256_movemask_pd(
		_mm256_and_pd(is, _mm256_cmp_pd(gap, may, _CMP_NLE_UQ)));
}

/* Eight elements: x and y are their values, p and q their patterns; 's' are the block's sums. */
KN_AVX2 static inline void avx2_eight(struct avx2_diff *d, const float *x, const float *y,
				      __m256i p, __m256i q, __m256i sign, uint64_t at, __m256d s[6])
{
	const __m256d minus = _mm256_set1_pd(-0.0);
	const unsigned equal = (unsigned)_mm256_movemask_ps(
		_mm256_castsi256_ps(_mm256_cmpeq_epi32(p, q)));
	struct kn_diff *out = d->out;
	unsigned beyond = 0;

	for (size_t k = 0; k < 2; k++) {
		const __m256d u = _mm256_cvtps_pd(_mm_loadu_ps(x + 4 * k));
		const __m256d v = _mm256_cvtps_pd(_mm_loadu_ps(y + 4 * k));
		const __m256d gap = _mm256_andnot_pd(minus, _mm256_sub_pd(u, v));

		s[k] = _mm256_add_pd(s[k], _mm256_mul_pd(gap, gap));
		s[2 + k] = _mm256_add_pd(s[2 + k], _mm256_mul_pd(u, u));
		s[4 + k] = _mm256_add_pd(s[4 + k], _mm256_mul_pd(v, v));
		avx2_largest(out, gap, at + 4 * k);
		beyond |= avx2_beyond(d->how, u, v, gap) << 4 * k;
	}
	avx2_count_at(equal ^ 0xff, at, &out->differ, &out->first, &out->last);
	avx2_count_at(beyond, at, &out->beyond, &out->first_beyond, &out->last_beyond);
	avx2_histogram(d, avx2_steps(p, q, sign));
}

/* A block that differs; 'size' is that of the patterns at 'a' and 'b'. */
KN_AVX2 static inline void avx2_other(struct avx2_diff *d, const uint8_t *a, const uint8_t *b,
				      size_t size, const float *x, const float *y, uint64_t at)
{
	const __m256i sign = _mm256_set1_epi32(size == 2 ? 0x8000 : (int)0x80000000u);
	__m256d s[6];

	for (size_t k = 0; k < 6; k++)
		s[k] = _mm256_setzero_pd();
	for (size_t i = 0; i < KN_DIFF_BLOCK; i += 8) {
		const uint8_t *f = a + i * size, *g = b + i * size;
		const __m256i p = size == 2 ? _mm256_cvtepu16_epi32(sse_load(f)) : avx2_load(f);
		const __m256i q = size == 2 ? _mm256_cvtepu16_epi32(sse_load(g)) : avx2_load(g);

		avx2_eight(d, x + i, y + i, p, q, sign, at + i, s);
	}
	avx2_add_lanes(d->lanes->dd, s[0], s[1]);
	avx2_add_lanes(d->lanes->aa, s[2], s[3]);
	avx2_add_lanes(d->lanes->bb, s[4], s[5]);
}

KN_AVX2 static inline void avx2_diff_end(struct avx2_diff *d)
{
	uint32_t most[8];

	avx2_store((uint8_t *)most, d->most);
	for (size_t k = 0; k < 8; k++)
		if (most[k] > d->out->max_steps)
			d->out->max_steps = most[k];
	for (size_t w = 0; w < KN_DIFF_WAYS; w++)
		for (size_t k = 0; k < 33; k++)
			d->out->steps[k] += d->steps[w][k];
	kn_ref_diff_join(d->lanes, d->out);
}

/* 'widen' makes floats of the type; NULL where it is f32.  At most 2^32 elements at a time. */
KN_AVX2 static inline void avx2_diff_run(enum kn_num type, size_t size, kn_widen_fn widen,
					 const struct kn_diff_how *how, const uint8_t *a,
					 const uint8_t *b, size_t n, struct kn_diff *out)
{
	struct kn_diff_lanes lanes = { { 0 }, { 0 }, { 0 } };
	struct avx2_diff d = { .how = how, .lanes = &lanes, .out = out,
			       .most = _mm256_setzero_si256() };
	float x[KN_DIFF_BLOCK], y[KN_DIFF_BLOCK];

	memset(out, 0, sizeof(*out));
	for (size_t at = 0; at < n; at += KN_DIFF_BLOCK, a += KN_DIFF_BLOCK * size,
				    b += KN_DIFF_BLOCK * size) {
		const size_t m = n - at < KN_DIFF_BLOCK ? n - at : KN_DIFF_BLOCK;
		const int same = !memcmp(a, b, m * size);

		if (m == KN_DIFF_BLOCK && widen) {
			widen(x, a, m);
			if (!same)
				widen(y, b, m);
		} else if (m == KN_DIFF_BLOCK) {
			memcpy(x, a, sizeof(x));
			if (!same)
				memcpy(y, b, sizeof(y));
		}
		if (m < KN_DIFF_BLOCK || !avx2_all_finite(x) || (!same && !avx2_all_finite(y)))
			kn_ref_diff_block(type, how, a, b, at, m, &lanes, out);
		else if (same)
			avx2_same(&d, x);
		else
			avx2_other(&d, a, b, size, x, y, at);
	}
	avx2_diff_end(&d);
}

/* The counts of a histogram have 32 bits. */
#define KN_DIFF_MOST ((uint64_t)1 << 32)

KN_AVX2 static inline int avx2_diff(enum kn_num type, const struct kn_diff_how *how,
				    const void *a, const void *b, size_t n, struct kn_diff *out)
{
	if (how->parts != 1 || n > KN_DIFF_MOST || (type != KN_NUM_F32 && type != KN_NUM_BF16))
		return kn_ref_diff(type, how, a, b, n, out);
	if (type == KN_NUM_F32)
		avx2_diff_run(type, 4, NULL, how, a, b, n, out);
	else
		avx2_diff_run(type, 2, avx2_bf16_to_f32, how, a, b, n, out);
	return 0;
}

KN_F16C_FN static inline int f16c_diff(enum kn_num type, const struct kn_diff_how *how,
				       const void *a, const void *b, size_t n,
				       struct kn_diff *out)
{
	if (how->parts != 1 || n > KN_DIFF_MOST || type != KN_NUM_F16)
		return avx2_diff(type, how, a, b, n, out);
	avx2_diff_run(type, 2, f16c_f16_to_f32, how, a, b, n, out);
	return 0;
}

#endif
