/* fk_kernels.h -- what the kernels of the fake GPU share: numbers of any type as fp32 and back. */
#ifndef FK_KERNELS_H
#define FK_KERNELS_H

#include "kernels/include/kn_train.h"
#include "tests/gpusim/fk.h"

bool fk_is_type(enum kn_type type);
/* 'n' numbers as fp32, to be freed. */
float *fk_wide(const void *x, enum kn_type type, size_t n);
/* Rounds them to 'y' and frees x. */
void fk_narrow(void *y, enum kn_type type, float *x, size_t n);
/* The same for a gradient, which with KN_CU_ADD is added to; 'sum' is freed. */
void fk_put_grad(void *grad, enum kn_type type, float *sum, size_t n, unsigned flags);
/* Columns [at, at + n) of 'rows' rows 'ld' apart, as fp32 side by side; and back, freeing x. */
float *fk_columns(const void *x, enum kn_type type, size_t rows, size_t ld, size_t at, size_t n);
void fk_put_columns(void *y, enum kn_type type, size_t rows, size_t ld, size_t at, size_t n,
		    float *x);
/* Bytes from the first to the last of them. */
size_t fk_span(enum kn_type type, size_t rows, size_t ld, size_t n);

#endif
