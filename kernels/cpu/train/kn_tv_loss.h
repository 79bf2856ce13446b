/* kn_tv_loss.h -- softmax of attention, and cross-entropy; see kn_train.h for the laws. */
#ifndef KN_TV_LOSS_H
#define KN_TV_LOSS_H

#include "kernels/cpu/train/kn_tv.h"

FN float tv_row_max(const float *x, size_t n)
{
	vf top = v_set(-INFINITY);
	float t[KN_W];

	for (size_t i = 0; i < n; i += KN_W)
		top = v_max(v_load_some(x + i, n - i, -INFINITY), top);
	v_store(t, top);
	for (size_t i = 1; i < KN_W; i++)
		t[0] = t[i] > t[0] ? t[i] : t[0];
	return t[0];
}

/* x[i] = exp(x[i] - top); returns their sum. */
FN float tv_row_exp(float *x, size_t n, float top)
{
	vf acc[KN_NV] = { { 0 } };

	for (size_t i = 0; i < n; i += 16) {
		UNROLL
		for (size_t j = 0; j < KN_NV; j++) {
			const size_t at = i + j * KN_W;
			vf e;

			if (at >= n)
				break;
			e = v_exp(v_load_some(x + at, n - at, -INFINITY) - v_set(top));
			acc[j] += e;
			v_store_some(x + at, e, n - at);
		}
	}
	return v_sum(acc);
}

FN void tv_row_times(float *x, size_t n, float by, enum kn_type type)
{
	for (size_t i = 0; i < n; i += KN_W)
		v_store_some(x + i, v_round(v_load_some(x + i, n - i, 0) * v_set(by), type),
			     n - i);
}

FN void tv_softmax(float *s, size_t n, float scale, float *stat, enum kn_type type)
{
	tv_row_times(s, n, scale, type);
	stat[0] = tv_row_max(s, n);
	stat[1] = 1 / tv_row_exp(s, n, stat[0]);
	tv_row_times(s, n, stat[1], type);
}

FN void tv_softmax_again(float *s, size_t n, float scale, const float *stat, enum kn_type type)
{
	const vf by = v_set(scale), top = v_set(stat[0]), inv = v_set(stat[1]);

	for (size_t i = 0; i < n; i += KN_W) {
		const vf x = v_round(v_load_some(s + i, n - i, 0) * by, type);

		v_store_some(s + i, v_round(v_exp(x - top) * inv, type), n - i);
	}
}

FN void tv_softmax_back(float *dp, const float *p, size_t n, float scale, enum kn_type type)
{
	vf acc[KN_NV] = { { 0 } }, inner;

	for (size_t i = 0; i < n; i += 16) {
		UNROLL
		for (size_t j = 0; j < KN_NV; j++) {
			const size_t at = i + j * KN_W;

			if (at >= n)
				break;
			acc[j] += v_load_some(dp + at, n - at, 0) * v_load_some(p + at, n - at, 0);
		}
	}
	inner = v_set(v_sum(acc));
	for (size_t i = 0; i < n; i += KN_W) {
		const vf q = v_load_some(p + i, n - i, 0);
		const vf d = v_round(q * (v_load_some(dp + i, n - i, 0) - inner), type);

		v_store_some(dp + i, v_round(d * v_set(scale), type), n - i);
	}
}

FN float tv_xent(float *l, size_t target, size_t n, const float *factor, enum kn_type type)
{
	const float at = l[target], top = tv_row_max(l, n), sum = tv_row_exp(l, n, top);
	const float p = l[target] * (1 / sum);

	if (factor) {
		const vf inv = v_set(1 / sum), by = v_set(*factor);
		float hit = (p - 1) * *factor;

		for (size_t i = 0; i < n; i += KN_W)
			v_store_some(l + i, v_round(v_load_some(l + i, n - i, 0) * inv * by, type),
				     n - i);
		l[target] = v_round(v_set(hit), type)[0];
	}
	return (float)(kn_log((double)sum) + (double)top - (double)at);
}

#endif
