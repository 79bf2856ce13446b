/* kn_ref_adam.c -- the law of Adam and AdamW. */
#include <math.h>

#include "tests/ref/kn_ref_train.h"

void kn_ref_adam(const struct kn_adam *how, double *p, double *m, double *v, const double *grad,
		 size_t n)
{
	const double c1 = how->bias_correction ? 1 - pow(how->beta1, (double)how->step) : 1;
	const double c2 = how->bias_correction ? 1 - pow(how->beta2, (double)how->step) : 1;

	for (size_t i = 0; i < n; i++) {
		double g = grad[i] * (double)how->grad_scale;

		if (how->decoupled)
			p[i] -= how->lr * how->decay * p[i];
		else
			g += how->decay * p[i];
		m[i] = how->beta1 * m[i] + (1 - how->beta1) * g;
		v[i] = how->beta2 * v[i] + (1 - how->beta2) * g * g;
		p[i] -= how->lr * (m[i] / c1) / (sqrt(v[i] / c2) + how->eps);
	}
}
