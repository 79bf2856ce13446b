/*
 * kn_tv_optim.h -- Adam in three orders of operations, and sums of squares.
 *
 * The orders are those of torch 2.11 (torch/optim/adam.py, one tensor at a time), of DeepSpeed's
 * csrc/adam/multi_tensor_adam.cu and of its csrc/adam/cpu_adam_impl.cpp, without fused products
 * and sums.  Scalars are made in double and rounded once, as there.
 */
#ifndef KN_TV_OPTIM_H
#define KN_TV_OPTIM_H

#include "kernels/cpu/train/kn_tv.h"

struct tv_adam {
	vf scale, b1, b2, r1, r2, eps, decay, keep;
	vf a, b;	/* by rule: see below */
	vf lr;
};

FN struct tv_adam tv_adam_set(const struct kn_adam *how)
{
	const double c1 = how->bias_correction ? 1 - kn_power(how->beta1, how->step) : 1;
	const double c2 = how->bias_correction ? 1 - kn_power(how->beta2, how->step) : 1;
	struct tv_adam s = {
		.scale = v_set(how->grad_scale), .b1 = v_set((float)how->beta1),
		.b2 = v_set((float)how->beta2), .r1 = v_set((float)(1 - how->beta1)),
		.r2 = v_set((float)(1 - how->beta2)), .eps = v_set((float)how->eps),
		.decay = v_set((float)how->decay), .lr = v_set((float)how->lr),
		.keep = v_set((float)(1 - how->lr * how->decay)),
	};

	switch (how->rule) {
	case KN_ADAM_TORCH:
		s.a = v_set((float)(how->lr / c1));
		s.b = v_set((float)sqrt(c2));
		break;
	case KN_ADAM_FUSED:
		s.a = v_set((float)c1);
		s.b = v_set((float)c2);
		break;
	case KN_ADAM_CPU:
		s.a = v_set((float)(how->lr / c1));
		s.b = v_set((float)(1 / sqrt(c2)));
		s.keep = v_set((float)(how->lr * how->decay));
		break;
	}
	return s;
}

FN void tv_adam_torch(const struct tv_adam *s, int decoupled, vf *p, vf *m, vf *v, vf g)
{
	if (decoupled)
		*p = *p * s->keep;
	else
		g = g + *p * s->decay;
	*m = *m + s->r1 * (g - *m);
	*v = *v * s->b2 + s->r2 * g * g;
	*p = *p - s->a * *m / (v_sqrt(*v) / s->b + s->eps);
}

FN void tv_adam_fused(const struct tv_adam *s, int decoupled, vf *p, vf *m, vf *v, vf g)
{
	vf update;

	if (!decoupled)
		g = g + s->decay * *p;
	*m = s->b1 * *m + s->r1 * g;
	*v = s->b2 * *v + s->r2 * g * g;
	update = *m / s->a / (v_sqrt(*v / s->b) + s->eps);
	if (decoupled)
		update = update + s->decay * *p;
	*p = *p - s->lr * update;
}

FN void tv_adam_cpu(const struct tv_adam *s, int decoupled, vf *p, vf *m, vf *v, vf g)
{
	if (!decoupled)
		g = *p * s->decay + g;
	*m = *m * s->b1 + g * s->r1;
	*v = *v * s->b2 + g * g * s->r2;
	if (decoupled)
		*p = *p - *p * s->keep;
	*p = *p - s->a * (*m / (v_sqrt(*v) * s->b + s->eps));
}

FN void tv_adam(const struct kn_adam *how, float *p, float *m, float *v, const float *grad,
		size_t n)
{
	const struct tv_adam s = tv_adam_set(how);

	for (size_t i = 0; i < n; i += KN_W) {
		const vf g = v_load_some(grad + i, n - i, 0) * s.scale;
		vf vp = v_load_some(p + i, n - i, 0), vm = v_load_some(m + i, n - i, 0);
		vf vv = v_load_some(v + i, n - i, 0);

		if (how->rule == KN_ADAM_TORCH)
			tv_adam_torch(&s, how->decoupled, &vp, &vm, &vv, g);
		else if (how->rule == KN_ADAM_FUSED)
			tv_adam_fused(&s, how->decoupled, &vp, &vm, &vv, g);
		else
			tv_adam_cpu(&s, how->decoupled, &vp, &vm, &vv, g);
		v_store_some(p + i, vp, n - i);
		v_store_some(m + i, vm, n - i);
		v_store_some(v + i, vv, n - i);
	}
}

/* In double, 16 lanes. */
FN double tv_sumsq(const float *x, size_t n)
{
	vd acc[2 * KN_NV] = { { 0 } };
	double t[16];

	for (size_t i = 0; i < n; i += 16) {
		float some[16];
		const float *p = x + i;

		if (n - i < 16) {
			for (size_t j = 0; j < 16; j++)
				some[j] = j < n - i ? p[j] : 0;
			p = some;
		}
		UNROLL
		for (size_t j = 0; j < 2 * KN_NV; j++) {
			const vd d = __builtin_convertvector(*(const vh_any *)(p + j * (KN_W / 2)),
							     vd);

			acc[j] += d * d;
		}
	}
	memcpy(t, acc, sizeof(t));
	for (size_t half = 8; half; half /= 2)
		for (size_t i = 0; i < half; i++)
			t[i] += t[i + half];
	return t[0];
}

FN int tv_all_finite(const float *x, size_t n)
{
	vi bad = { 0 };

	for (size_t i = 0; i < n; i += KN_W) {
		const vu u = (vu)v_load_some(x + i, n - i, 0) & 0x7f800000u;

		bad |= u == 0x7f800000u;
	}
	for (size_t i = 0; i < KN_W; i++)
		if (bad[i])
			return 0;
	return 1;
}

#endif
