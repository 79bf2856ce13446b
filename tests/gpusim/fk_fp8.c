/* fk_fp8.c -- kn_cuda_fp8.h on a CPU, but its product (fk_products.c). */
#include <math.h>
#include <stdlib.h>

#include "kernels/include/kn_cuda.h"
#include "kernels/include/kn_cuda_fp8.h"
#include "tests/gpusim/fk_kernels.h"

struct tensor {
	struct kn_cu_fp8_scale *s;
	const void *x;
	uint8_t *y, *yt;
	enum kn_type type;
	enum kn_fp8 to;
	size_t ld, rows, n;
};

/* NaN stays. */
static void run_amax(const void *args)
{
	const struct tensor *t = args;
	float *x = fk_columns(t->x, t->type, t->rows, t->ld, 0, t->n), most = t->s->amax;

	for (size_t i = 0; i < t->rows * t->n; i++)
		if (isnan(x[i]) || fabsf(x[i]) > most)
			most = fabsf(x[i]);
	t->s->amax = most;
	free(x);
}

int kn_cu_fp8_amax(struct kn_cu_fp8_scale *s, const void *x, enum kn_type type, size_t ld,
		   size_t rows, size_t n, struct CUstream_st *stream)
{
	const struct tensor t = { .s = s, .x = x, .type = type, .ld = ld, .rows = rows, .n = n };
	const struct fk_use use[] = {
		FK_R(x, fk_span(type, rows, ld, n)), FK_W(&s->amax, sizeof(s->amax)),
	};

	if (!fk_is_type(type))
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_amax, &t, sizeof(t), use, FK_LEN(use));
}

/* ---- kernels of kn_cuda.h, and the largest of what they make ---- */

static int then_amax(int rc, struct kn_cu_fp8_scale *s, const void *x, size_t rows, size_t n,
		     enum kn_type type, struct CUstream_st *stream)
{
	return rc || !s ? rc : kn_cu_fp8_amax(s, x, type, n, rows, n, stream);
}

int kn_cu_rmsnorm_amax(void *y, float *rstd, const void *x, const void *w, size_t rows, size_t n,
		       float eps, enum kn_type type, struct kn_cu_fp8_scale *s,
		       struct CUstream_st *stream)
{
	return then_amax(kn_cu_rmsnorm(y, rstd, x, w, rows, n, eps, type, stream), s, y, rows, n,
			 type, stream);
}

int kn_cu_rmsnorm_back_amax(void *dx, void *dw, enum kn_type grad_type, const void *dy,
			    const void *x, const float *rstd, const void *w, const void *add,
			    size_t rows, size_t n, enum kn_type type, unsigned flags, void *work,
			    struct kn_cu_fp8_scale *s, struct CUstream_st *stream)
{
	return then_amax(kn_cu_rmsnorm_back(dx, dw, grad_type, dy, x, rstd, w, add, rows, n, type,
					    flags, work, stream), s, dx, rows, n, type, stream);
}

int kn_cu_swiglu_amax(void *y, const void *gu, size_t rows, size_t n, enum kn_type type,
		      struct kn_cu_fp8_scale *s, struct CUstream_st *stream)
{
	return then_amax(kn_cu_swiglu(y, gu, rows, n, type, stream), s, y, rows, n, type, stream);
}

int kn_cu_swiglu_back_amax(void *dgu, void *y, const void *dy, const void *gu, size_t rows,
			   size_t n, enum kn_type type, struct kn_cu_fp8_scale *s,
			   struct CUstream_st *stream)
{
	return then_amax(kn_cu_swiglu_back(dgu, y, dy, gu, rows, n, type, stream), s, dgu, rows,
			 2 * n, type, stream);
}

/* ---- copies ---- */

static void run_cast(const void *args)
{
	const struct tensor *t = args;
	float *x = fk_columns(t->x, t->type, t->rows, t->ld, 0, t->n);
	const float by = kn_fp8_scale(t->s->amax, t->to);

	t->s->inverse = 1 / by;
	for (size_t r = 0; r < t->rows; r++)
		for (size_t i = 0; i < t->n; i++) {
			const uint8_t y = kn_fp8_from(x[r * t->n + i] * by, t->to);

			if (t->y)
				t->y[r * t->n + i] = y;
			if (t->yt)
				t->yt[i * t->rows + r] = y;
		}
	free(x);
}

int kn_cu_fp8_cast(void *y, void *yt, struct kn_cu_fp8_scale *s, enum kn_fp8 to, const void *x,
		   enum kn_type type, size_t ld, size_t rows, size_t n, struct CUstream_st *stream)
{
	const struct tensor t = { s, x, y, yt, type, to, ld, rows, n };
	const struct fk_use use[] = {
		FK_R(x, fk_span(type, rows, ld, n)), FK_R(&s->amax, sizeof(s->amax)),
		FK_W(&s->inverse, sizeof(s->inverse)), FK_W(y, rows * n), FK_W(yt, rows * n),
	};

	if (!fk_is_type(type) || (to != KN_E4M3 && to != KN_E5M2))
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_cast, &t, sizeof(t), use, FK_LEN(use));
}

bool kn_cu_gemm_fits8(const struct kn_cu_mm8 *mm, const void *c, const void *d)
{
	const size_t e = kn_type_size(mm->out);
	const bool add = mm->flags & KN_GEMM_ADD;

	return mm->k && mm->n % 16 == 0 && mm->k % 16 == 0 && mm->ldd * e % 16 == 0 &&
	       !((uintptr_t)d & 15) && (!add || (mm->ldc * e % 16 == 0 && !((uintptr_t)c & 15)));
}
