/*
 * kn_fp8.h -- numbers of 8 bits and their scales: the law that kernels on GPUs keep, in C.
 *
 * E4M3 (largest 448, no infinity) and E5M2 (largest 57344) as OCP's OFP8 has them.  A tensor x is
 * stored as y[i] = round(x[i] scale) with scale = largest / max |x|, rounded to nearest even and
 * cut off at the largest; who multiplies with y multiplies the result by the inverse, 1 / scale.
 *
 * What is not finite stays so: with a NaN in x every y is NaN, and with an infinity the scale is 0,
 * its inverse is infinite, and every product is NaN.
 */
#ifndef KN_FP8_H
#define KN_FP8_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define KN_FP8_FN __host__ __device__ static inline
#else
#define KN_FP8_FN static inline
#endif

enum kn_fp8 { KN_E4M3 = 1, KN_E5M2 };

#define KN_FP8_NAN 0x7f
#define KN_FP8_LEAST 1e-12f	/* a tensor whose numbers are all below it has the scale of this */

/* 'amax' is the largest |x|, or NaN. */
KN_FP8_FN float kn_fp8_scale(float amax, enum kn_fp8 to)
{
	return (to == KN_E4M3 ? 448.f : 57344.f) / (amax < KN_FP8_LEAST ? KN_FP8_LEAST : amax);
}

/* Rounded to nearest even, cut off at the largest; NaN is KN_FP8_NAN. */
KN_FP8_FN uint8_t kn_fp8_from(float x, enum kn_fp8 to)
{
	const unsigned m = to == KN_E4M3 ? 3 : 2, bias = to == KN_E4M3 ? 7 : 15, cut = 23 - m;
	const float most = to == KN_E4M3 ? 448.f : 57344.f;
	const float least = to == KN_E4M3 ? 0x1p-6f : 0x1p-14f;	/* normal */
	const float magic = to == KN_E4M3 ? 0x1p14f : 0x1p7f;	/* its unit is that below 'least' */
	uint32_t u, v, sign;
	float a;

	if (x != x)
		return KN_FP8_NAN;
	memcpy(&u, &x, sizeof(u));
	sign = u >> 24 & 0x80;
	u &= 0x7fffffff;
	memcpy(&a, &u, sizeof(a));
	if (a >= most)
		return (uint8_t)(sign | (to == KN_E4M3 ? 0x7e : 0x7b));
	if (a < least) {
		a += magic;
		memcpy(&u, &a, sizeof(u));
		memcpy(&v, &magic, sizeof(v));
		return (uint8_t)(sign | (u - v));
	}
	u += (1u << (cut - 1)) - 1 + (u >> cut & 1);
	return (uint8_t)(sign | ((u >> cut) - ((127 - bias) << m)));
}

KN_FP8_FN float kn_fp8_wide(uint8_t y, enum kn_fp8 of)
{
	const int m = of == KN_E4M3 ? 3 : 2, bias = of == KN_E4M3 ? 7 : 15;
	const int e = (y & 0x7f) >> m, f = y & ((1 << m) - 1);
	float a;

	if (of == KN_E4M3 ? (y & 0x7f) == 0x7f : e == 31)
		a = of == KN_E5M2 && !f ? INFINITY : NAN;
	else
		a = ldexpf((float)(e ? (1 << m) + f : f), (e ? e : 1) - bias - m);
	return y & 0x80 ? -a : a;
}

#endif
