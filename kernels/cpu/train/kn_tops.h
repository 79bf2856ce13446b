/*
 * kn_tops.h -- one set of training kernels, and how the set in use is found.
 *
 * The sets are one text, kn_tv*.h, compiled for 4, 8 and 16 lanes (kn_tops_4.c and so on).
 */
#ifndef KN_TOPS_H
#define KN_TOPS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/include/kn_train.h"

struct kn_tops {
	void (*round)(float *y, size_t n, enum kn_type type);
	void (*add)(float *y, const float *a, const float *b, size_t n, enum kn_type type);
	void (*scale)(float *y, const float *x, float s, size_t n);
	void (*rmsnorm)(float *y, float *rstd, const float *x, const float *w, size_t rows,
			size_t n, float eps, enum kn_type type);
	void (*rmsnorm_back)(float *dx, float *dw, const float *dy, const float *x,
			     const float *rstd, const float *w, const float *add, size_t rows,
			     size_t n, enum kn_type type);
	/* cos and sin of one row, lo and hi halves of one head */
	void (*rope)(float *lo, float *hi, const float *cos, const float *sin, size_t half,
		     float sign, enum kn_type type);
	void (*swiglu)(float *y, const float *g, const float *u, size_t n, enum kn_type type);
	void (*swiglu_back)(float *dg, float *du, const float *dy, const float *g, const float *u,
			    size_t n, enum kn_type type);
	/* s[0..n) becomes p; stat[0] = maximum of R(scale s), stat[1] = 1 / sum */
	void (*softmax)(float *s, size_t n, float scale, float *stat, enum kn_type type);
	/* the same with stat known */
	void (*softmax_again)(float *s, size_t n, float scale, const float *stat,
			      enum kn_type type);
	/* dp[0..n) becomes p (dp - sum(p dp)) scale */
	void (*softmax_back)(float *dp, const float *p, size_t n, float scale,
			     enum kn_type type);
	/* one row; the target is at or above 0 */
	float (*xent)(float *l, size_t target, size_t n, const float *factor, enum kn_type type);
	void (*adam)(const struct kn_adam *how, float *p, float *m, float *v, const float *grad,
		     size_t n);
	double (*sumsq)(const float *x, size_t n);
	int (*all_finite)(const float *x, size_t n);
	/* c [m, n] += a b over k <= KN_GEMM_K; b is packed in panels, see kn_gemm.c */
	void (*gemm_tile)(size_t m, size_t n, size_t k, const float *a, const float *b, float *c,
			  size_t ldc);
};

/* The sets; the wide ones exist on x86-64 only. */
extern const struct kn_tops kn_tops_4, kn_tops_8, kn_tops_16;

/* The set that kn_cpu_mask() and the machine allow. */
const struct kn_tops *kn_tops_get(void);

/* beta^step with the same bits on every machine. */
double kn_power(double beta, uint64_t step);

/* Tiles of the own matrix product: rows of A and columns of B in a panel, and the depth. */
#define KN_GEMM_MR 6u
#define KN_GEMM_NR 32u
#define KN_GEMM_K 256u

#endif
