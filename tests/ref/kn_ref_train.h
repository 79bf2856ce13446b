/*
 * kn_ref_train.h -- the plain laws of kn_train.h, in double and in the order of the textbook:
 * what the fast kernels are compared with.  Shapes as there; rows lie close together, nothing is
 * rounded, nothing is optimised.
 */
#ifndef KN_REF_TRAIN_H
#define KN_REF_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/include/kn_train.h"

void kn_ref_gemm(unsigned flags, size_t m, size_t n, size_t k, const double *a, size_t lda,
		 const double *b, size_t ldb, double *c, size_t ldc);

void kn_ref_rmsnorm(double *y, double *rstd, const double *x, const double *w, size_t rows,
		    size_t n, double eps);
/* dw is added to. */
void kn_ref_rmsnorm_back(double *dx, double *dw, const double *dy, const double *x,
			 const double *w, size_t rows, size_t n, double eps);
void kn_ref_rope(double *x, const double *cos, const double *sin, size_t rows, size_t first,
		 size_t period, size_t heads, size_t d, double sign);
void kn_ref_swiglu(double *y, const double *g, const double *u, size_t n);
void kn_ref_swiglu_back(double *dg, double *du, const double *dy, const double *g,
			const double *u, size_t n);

/* q, o [t, group d], k, v [t, d]. */
void kn_ref_attn(double *o, const double *q, const double *k, const double *v, size_t t,
		 size_t group, size_t d, double scale);
void kn_ref_attn_back(double *dq, double *dk, double *dv, const double *go, const double *q,
		      const double *k, const double *v, size_t t, size_t group, size_t d,
		      double scale);

/* dlogits may be NULL. */
void kn_ref_xent(double *dlogits, double *loss, const double *logits, const int32_t *target,
		 size_t rows, size_t n, double factor);

/* The rules differ in rounding only, so there is one law. */
void kn_ref_adam(const struct kn_adam *how, double *p, double *m, double *v, const double *grad,
		 size_t n);

#endif
