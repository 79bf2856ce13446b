/*
 * kn_tv.h -- vectors of KN_W floats for the texts kn_tv_*.h.
 *
 * KN_W is 4, 8 or 16 and KN_TARGET the attribute that allows such registers.  Element-wise work
 * has the same bits for every width; sums run in 16 lanes, lane i holding elements i, i + 16, ...,
 * which are KN_NV vectors, joined by halves at the end.  That is the whole reason why the width
 * cannot be seen in results.
 */
#ifndef KN_TV_H
#define KN_TV_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/train/kn_tops.h"

#ifndef KN_W
#define KN_W 4
#define KN_TARGET
#endif
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

#define KN_NV (16 / KN_W)
#define FN KN_TARGET static inline
#define IN KN_TARGET static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

typedef float vf __attribute__((vector_size(4 * KN_W)));
typedef int32_t vi __attribute__((vector_size(4 * KN_W)));
typedef uint32_t vu __attribute__((vector_size(4 * KN_W)));
typedef float vf_any __attribute__((vector_size(4 * KN_W), aligned(4), may_alias));
typedef float vh_any __attribute__((vector_size(2 * KN_W), aligned(4), may_alias));
typedef double vd __attribute__((vector_size(4 * KN_W)));

IN vf v_set(float x)
{
	return x - (vf){ 0 };
}

IN vf v_load(const float *p)
{
	return *(const vf_any *)p;
}

/* The first 'left' elements, 'fill' after them. */
IN vf v_load_some(const float *p, size_t left, float fill)
{
	float t[KN_W];

	if (left >= KN_W)
		return v_load(p);
	for (size_t i = 0; i < KN_W; i++)
		t[i] = i < left ? p[i] : fill;
	return v_load(t);
}

IN void v_store(float *p, vf v)
{
	*(vf_any *)p = v;
}

IN void v_store_some(float *p, vf v, size_t left)
{
	float t[KN_W];

	if (left >= KN_W) {
		v_store(p, v);
		return;
	}
	v_store(t, v);
	for (size_t i = 0; i < left; i++)
		p[i] = t[i];
}

/* a where the mask is set, else b */
IN vf v_pick(vi mask, vf a, vf b)
{
	return (vf)(((vi)a & mask) | ((vi)b & ~mask));
}

IN vf v_max(vf a, vf b)
{
	return v_pick(a > b, a, b);
}

IN vf v_sqrt(vf x)
{
#if defined(__x86_64__) && defined(__GNUC__)
#if KN_W == 16
	return (vf)_mm512_sqrt_ps((__m512)x);
#elif KN_W == 8
	return (vf)_mm256_sqrt_ps((__m256)x);
#else
	return (vf)_mm_sqrt_ps((__m128)x);
#endif
#else
	float t[KN_W];

	v_store(t, x);
	for (size_t i = 0; i < KN_W; i++)
		t[i] = sqrtf(t[i]);
	return v_load(t);
#endif
}

/* Rounded to bf16: the upper 16 bits, to nearest even.  NaN becomes 0x7fc0, as kn.h says. */
IN vf v_round_bf16(vf x)
{
	const vu u = (vu)x;
	const vu r = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;

	return v_pick(x != x, (vf)((vu){ 0 } + 0x7fc00000u), (vf)r);
}

/*
 * Rounded to binary16.  Normal numbers lose 13 bits; below 2^-14 the step is 2^-24, to which an
 * addition of 0.75 rounds, as 0.75 has that step in fp32.  65520 and more become infinite.
 */
IN vf v_round_f16(vf x)
{
	const vu sign = (vu)x & 0x80000000u, abs = (vu)x & 0x7fffffffu;
	const vf a = (vf)abs, normal = (vf)((abs + 0xfff + ((abs >> 13) & 1)) & ~0x1fffu);
	const vf tiny = (a + v_set(0.75f)) - v_set(0.75f);
	vf r = v_pick(a < v_set(0x1p-14f), tiny, normal);

	r = v_pick(a >= v_set(65520), v_set(INFINITY), r);
	r = v_pick(a != a, a, r);
	return (vf)((vu)r | sign);
}

IN vf v_round(vf x, enum kn_type type)
{
	if (type == KN_BF16)
		return v_round_bf16(x);
	if (type == KN_F16)
		return v_round_f16(x);
	return x;
}

/*
 * exp(x), within 2 units of the last place; 0 below -87.3, exp(88) above 88; NaN stays.
 * n = round(x / ln 2) falls out of the addition of 1.5 2^23, whose low bits then hold n.
 * exp(x - n ln 2) is a polynomial (the coefficients are those of Cephes' expf).
 */
IN vf v_exp(vf x)
{
	const vf magic = v_set(12582912.0f), low = v_set(-87.3f);
	const vi gone = x < low;
	vf n, r, p, y;
	vi e;

	x = v_pick(gone, low, x);
	x = v_pick(x > v_set(88.0f), v_set(88.0f), x);
	n = x * v_set(1.44269504088896341f) + magic;
	e = (vi)n - (vi)magic;
	n -= magic;
	r = x - n * v_set(0.693359375f);
	r = r + n * v_set(2.12194440e-4f);
	p = v_set(1.9875691500e-4f);
	p = p * r + v_set(1.3981999507e-3f);
	p = p * r + v_set(8.3334519073e-3f);
	p = p * r + v_set(4.1665795894e-2f);
	p = p * r + v_set(1.6666665459e-1f);
	p = p * r + v_set(5.0000001201e-1f);
	y = p * r * r + r + v_set(1);
	y = y * (vf)((vu)(e + 127) << 23);
	return v_pick(gone, (vf){ 0 }, y);
}

/* 16 lanes of sums, as a tree of halves. */
IN float v_sum(const vf acc[KN_NV])
{
	float t[16];

	UNROLL
	for (size_t j = 0; j < KN_NV; j++)
		v_store(t + j * KN_W, acc[j]);
	for (size_t half = 8; half; half /= 2)
		for (size_t i = 0; i < half; i++)
			t[i] += t[i + half];
	return t[0];
}

#endif
