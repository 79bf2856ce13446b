/* kn_ref_attn.c -- the law of causal attention: one row of scores at a time. */
#include <math.h>
#include <string.h>

#include "tests/ref/kn_ref_train.h"

static double dot(const double *a, const double *b, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

/* Maximum and sum of exponentials of row i, of which p(j) = exp(s(j) - top) / sum follows. */
static void row_sum(const double *q, const double *k, size_t i, size_t d, double scale,
		    double *top, double *sum)
{
	*top = -INFINITY;
	*sum = 0;
	for (size_t j = 0; j <= i; j++) {
		const double s = dot(q, k + j * d, d) * scale;

		*top = s > *top ? s : *top;
	}
	for (size_t j = 0; j <= i; j++)
		*sum += exp(dot(q, k + j * d, d) * scale - *top);
}

void kn_ref_attn(double *o, const double *q, const double *k, const double *v, size_t t,
		 size_t group, size_t d, double scale)
{
	for (size_t i = 0; i < t; i++) {
		for (size_t a = 0; a < group; a++) {
			const double *qi = q + (i * group + a) * d;
			double *oi = o + (i * group + a) * d;
			double top, sum;

			row_sum(qi, k, i, d, scale, &top, &sum);
			memset(oi, 0, d * sizeof(*oi));
			for (size_t j = 0; j <= i; j++) {
				const double p = exp(dot(qi, k + j * d, d) * scale - top) / sum;

				for (size_t c = 0; c < d; c++)
					oi[c] += p * v[j * d + c];
			}
		}
	}
}

/*
 * dv_j += p_ij g_i;  dp_ij = g_i . v_j;  ds_ij = p_ij (dp_ij - sum_l p_il dp_il);
 * dq_i = scale sum_j ds_ij k_j;  dk_j += scale ds_ij q_i.  The inner sum is g_i . o_i.
 */
void kn_ref_attn_back(double *dq, double *dk, double *dv, const double *go, const double *q,
		      const double *k, const double *v, size_t t, size_t group, size_t d,
		      double scale)
{
	memset(dq, 0, t * group * d * sizeof(*dq));
	memset(dk, 0, t * d * sizeof(*dk));
	memset(dv, 0, t * d * sizeof(*dv));
	for (size_t row = 0; row < t * group; row++) {
		const size_t i = row / group;
		const double *qi = q + row * d, *g = go + row * d;
		double top, sum, inner = 0;

		row_sum(qi, k, i, d, scale, &top, &sum);
		for (size_t j = 0; j <= i; j++)
			inner += exp(dot(qi, k + j * d, d) * scale - top) / sum *
				 dot(g, v + j * d, d);
		for (size_t j = 0; j <= i; j++) {
			const double p = exp(dot(qi, k + j * d, d) * scale - top) / sum;
			const double ds = p * (dot(g, v + j * d, d) - inner) * scale;

			for (size_t c = 0; c < d; c++) {
				dv[j * d + c] += p * g[c];
				dq[row * d + c] += ds * k[j * d + c];
				dk[j * d + c] += ds * qi[c];
			}
		}
	}
}
