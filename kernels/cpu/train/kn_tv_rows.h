/* kn_tv_rows.h -- norms, rotation, activation, element-wise work; see kn_train.h for the laws. */
#ifndef KN_TV_ROWS_H
#define KN_TV_ROWS_H

#include "kernels/cpu/train/kn_tv.h"

FN void tv_round(float *y, size_t n, enum kn_type type)
{
	for (size_t i = 0; i < n; i += KN_W)
		v_store_some(y + i, v_round(v_load_some(y + i, n - i, 0), type), n - i);
}

FN void tv_add(float *y, const float *a, const float *b, size_t n, enum kn_type type)
{
	for (size_t i = 0; i < n; i += KN_W) {
		const vf s = v_load_some(a + i, n - i, 0) + v_load_some(b + i, n - i, 0);

		v_store_some(y + i, v_round(s, type), n - i);
	}
}

FN void tv_scale(float *y, const float *x, float s, size_t n)
{
	for (size_t i = 0; i < n; i += KN_W)
		v_store_some(y + i, v_load_some(x + i, n - i, 0) * v_set(s), n - i);
}

FN void tv_rmsnorm(float *y, float *rstd, const float *x, const float *w, size_t rows, size_t n,
		   float eps, enum kn_type type)
{
	for (size_t r = 0; r < rows; r++, x += n, y += n) {
		vf acc[KN_NV] = { { 0 } }, s;

		for (size_t i = 0; i < n; i += 16) {
			UNROLL
			for (size_t j = 0; j < KN_NV; j++) {
				const size_t at = i + j * KN_W;
				vf v;

				if (at >= n)
					break;
				v = v_load_some(x + at, n - at, 0);
				acc[j] += v * v;
			}
		}
		rstd[r] = 1 / sqrtf(v_sum(acc) / (float)n + eps);
		s = v_set(rstd[r]);
		for (size_t i = 0; i < n; i += KN_W) {
			const vf t = v_round(v_load_some(x + i, n - i, 0) * s, type);
			const vf v = v_round(v_load_some(w + i, n - i, 0) * t, type);

			v_store_some(y + i, v, n - i);
		}
	}
}

FN void tv_rmsnorm_back(float *dx, float *dw, const float *dy, const float *x, const float *rstd,
			const float *w, const float *add, size_t rows, size_t n,
			enum kn_type type)
{
	for (size_t r = 0; r < rows; r++, x += n, dy += n, dx += n, add += add ? n : 0) {
		const vf s = v_set(rstd[r]);
		vf acc[KN_NV] = { { 0 } }, mean;

		for (size_t i = 0; i < n; i += 16) {
			UNROLL
			for (size_t j = 0; j < KN_NV; j++) {
				const size_t at = i + j * KN_W;
				vf xs, g, e;

				if (at >= n)
					break;
				xs = v_load_some(x + at, n - at, 0) * s;
				g = v_load_some(dy + at, n - at, 0);
				e = v_round(g * v_load_some(w + at, n - at, 0), type);
				acc[j] += e * xs;
				v_store_some(dw + at, v_load_some(dw + at, n - at, 0) +
					     g * v_round(xs, type), n - at);
			}
		}
		mean = v_set(v_sum(acc) / (float)n);
		for (size_t i = 0; i < n; i += KN_W) {
			const vf xs = v_load_some(x + i, n - i, 0) * s;
			const vf e = v_round(v_load_some(dy + i, n - i, 0) *
					     v_load_some(w + i, n - i, 0), type);
			vf d = v_round(s * (e - xs * mean), type);

			if (add)
				d = v_round(v_load_some(add + i, n - i, 0) + d, type);
			v_store_some(dx + i, d, n - i);
		}
	}
}

FN void tv_rope(float *lo, float *hi, const float *cos, const float *sin, size_t half, float sign,
		enum kn_type type)
{
	for (size_t i = 0; i < half; i += KN_W) {
		const vf c = v_load_some(cos + i, half - i, 0);
		const vf s = v_load_some(sin + i, half - i, 0) * v_set(sign);
		const vf a = v_load_some(lo + i, half - i, 0), b = v_load_some(hi + i, half - i, 0);
		const vf y = v_round(a * c, type) - v_round(b * s, type);
		const vf z = v_round(b * c, type) + v_round(a * s, type);

		v_store_some(lo + i, v_round(y, type), half - i);
		v_store_some(hi + i, v_round(z, type), half - i);
	}
}

IN vf v_sigmoid(vf g)
{
	return v_set(1) / (v_set(1) + v_exp(-g));
}

FN void tv_swiglu(float *y, const float *g, const float *u, size_t n, enum kn_type type)
{
	for (size_t i = 0; i < n; i += KN_W) {
		const vf a = v_load_some(g + i, n - i, 0), b = v_load_some(u + i, n - i, 0);

		v_store_some(y + i, v_round(v_round(a * v_sigmoid(a), type) * b, type), n - i);
	}
}

FN void tv_swiglu_back(float *dg, float *du, const float *dy, const float *g, const float *u,
		       size_t n, enum kn_type type)
{
	for (size_t i = 0; i < n; i += KN_W) {
		const vf a = v_load_some(g + i, n - i, 0), b = v_load_some(u + i, n - i, 0);
		const vf d = v_load_some(dy + i, n - i, 0), s = v_sigmoid(a), one = v_set(1);
		const vf slope = s * (one + a * (one - s));

		v_store_some(du + i, v_round(d * v_round(a * s, type), type), n - i);
		v_store_some(dg + i, v_round(v_round(d * b, type) * slope, type), n - i);
	}
}

#endif
