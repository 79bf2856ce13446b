/*
 * kn_ref_rows.c -- the laws of matrices, norms, rotation, activation and loss.  Each gradient is
 * derived in place; tests compare it with differences of the forward law.
 */
#include <math.h>

#include "tests/ref/kn_ref_train.h"

void kn_ref_gemm(unsigned flags, size_t m, size_t n, size_t k, const double *a, size_t lda,
		 const double *b, size_t ldb, double *c, size_t ldc)
{
	for (size_t i = 0; i < m; i++) {
		for (size_t j = 0; j < n; j++) {
			double sum = 0;

			for (size_t l = 0; l < k; l++)
				sum += (flags & KN_GEMM_TA ? a[l * lda + i] : a[i * lda + l]) *
				       (flags & KN_GEMM_TB ? b[j * ldb + l] : b[l * ldb + j]);
			c[i * ldc + j] = flags & KN_GEMM_ADD ? c[i * ldc + j] + sum : sum;
		}
	}
}

void kn_ref_rmsnorm(double *y, double *rstd, const double *x, const double *w, size_t rows,
		    size_t n, double eps)
{
	for (size_t r = 0; r < rows; r++) {
		double sum = 0;

		for (size_t i = 0; i < n; i++)
			sum += x[r * n + i] * x[r * n + i];
		rstd[r] = 1 / sqrt(sum / (double)n + eps);
		for (size_t i = 0; i < n; i++)
			y[r * n + i] = w[i] * x[r * n + i] * rstd[r];
	}
}

/*
 * y_i = w_i x_i s with s = (mean(x^2) + eps)^(-1/2), so ds/dx_j = -s^3 x_j / n, and
 * dx_j = s (e_j - x_j s mean_i(e_i x_i s)) with e_i = dy_i w_i.
 */
void kn_ref_rmsnorm_back(double *dx, double *dw, const double *dy, const double *x,
			 const double *w, size_t rows, size_t n, double eps)
{
	for (size_t r = 0; r < rows; r++) {
		const double *xr = x + r * n, *g = dy + r * n;
		double sum = 0, dot = 0, s;

		for (size_t i = 0; i < n; i++)
			sum += xr[i] * xr[i];
		s = 1 / sqrt(sum / (double)n + eps);
		for (size_t i = 0; i < n; i++) {
			dot += g[i] * w[i] * xr[i] * s;
			dw[i] += g[i] * xr[i] * s;
		}
		for (size_t i = 0; i < n; i++)
			dx[r * n + i] = s * (g[i] * w[i] - xr[i] * s * dot / (double)n);
	}
}

void kn_ref_rope(double *x, const double *cos, const double *sin, size_t rows, size_t first,
		 size_t period, size_t heads, size_t d, double sign)
{
	const size_t half = d / 2;

	for (size_t r = 0; r < rows; r++) {
		const size_t at = (first + r) % period * half;

		for (size_t a = 0; a < heads; a++) {
			double *v = x + (r * heads + a) * d;

			for (size_t k = 0; k < half; k++) {
				const double lo = v[k], hi = v[k + half];

				v[k] = lo * cos[at + k] - hi * sign * sin[at + k];
				v[k + half] = hi * cos[at + k] + lo * sign * sin[at + k];
			}
		}
	}
}

void kn_ref_swiglu(double *y, const double *g, const double *u, size_t n)
{
	for (size_t i = 0; i < n; i++)
		y[i] = g[i] / (1 + exp(-g[i])) * u[i];
}

/* d(g s)/dg = s + g s (1 - s) with s = 1 / (1 + exp(-g)). */
void kn_ref_swiglu_back(double *dg, double *du, const double *dy, const double *g,
			const double *u, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const double s = 1 / (1 + exp(-g[i]));
		const double up = u[i];

		du[i] = dy[i] * g[i] * s;
		dg[i] = dy[i] * up * s * (1 + g[i] * (1 - s));
	}
}

void kn_ref_xent(double *dlogits, double *loss, const double *logits, const int32_t *target,
		 size_t rows, size_t n, double factor)
{
	for (size_t r = 0; r < rows; r++) {
		const double *l = logits + r * n;
		double top = -INFINITY, sum = 0;

		for (size_t i = 0; i < n; i++)
			top = l[i] > top ? l[i] : top;
		for (size_t i = 0; i < n; i++)
			sum += exp(l[i] - top);
		loss[r] = target[r] < 0 ? 0 : top + log(sum) - l[target[r]];
		for (size_t i = 0; dlogits && i < n; i++) {
			const double hit = (int64_t)i == target[r];

			dlogits[r * n + i] = target[r] < 0 ? 0 :
				(exp(l[i] - top) / sum - hit) * factor;
		}
	}
}
