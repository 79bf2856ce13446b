/* fk_flat.c -- kn_cuda.h on a CPU: arrays without rows, sums, the optimizer, random numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/include/kn_cuda.h"
#include "kernels/include/kn_cuda_random.h"
#include "tests/gpusim/fk_kernels.h"

bool fk_is_type(enum kn_type type)
{
	return type == KN_F32 || type == KN_BF16 || type == KN_F16;
}

float *fk_wide(const void *x, enum kn_type type, size_t n)
{
	float *y = fk_room(n * sizeof(*y));

	kn_cast(y, KN_F32, x, type, n, NULL);
	return y;
}

void fk_narrow(void *y, enum kn_type type, float *x, size_t n)
{
	kn_cast(y, type, x, KN_F32, n, NULL);
	free(x);
}

void fk_put_grad(void *grad, enum kn_type type, float *sum, size_t n, unsigned flags)
{
	if (flags & KN_CU_ADD) {
		float *was = fk_wide(grad, type, n);

		for (size_t i = 0; i < n; i++)
			sum[i] = was[i] + sum[i];
		free(was);
	}
	fk_narrow(grad, type, sum, n);
}

/* ---- element-wise ---- */

struct flat {
	void *y;
	const void *x;
	enum kn_type y_type, x_type;
	float s;
	size_t n;
};

static void run_cast(const void *args)
{
	const struct flat *a = args;

	kn_cast(a->y, a->y_type, a->x, a->x_type, a->n, NULL);
}

int kn_cu_cast(void *dst, enum kn_type dst_type, const void *src, enum kn_type src_type, size_t n,
	       struct CUstream_st *stream)
{
	const struct flat a = { dst, src, dst_type, src_type, 0, n };
	const struct fk_use use[] = {
		FK_W(dst, n * kn_type_size(dst_type)), FK_R(src, n * kn_type_size(src_type)),
	};

	if (!fk_is_type(dst_type) || !fk_is_type(src_type))
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_cast, &a, sizeof(a), use, FK_LEN(use));
}

static void run_add(const void *args)
{
	const struct flat *a = args;
	float *y = fk_wide(a->y, a->y_type, a->n), *x = fk_wide(a->x, a->x_type, a->n);

	kn_add(y, y, x, a->n, a->y_type);
	fk_narrow(a->y, a->y_type, y, a->n);
	free(x);
}

int kn_cu_add(void *y, enum kn_type y_type, const void *x, enum kn_type x_type, size_t n,
	      struct CUstream_st *stream)
{
	const struct flat a = { y, x, y_type, x_type, 0, n };
	const struct fk_use use[] = {
		FK_W(y, n * kn_type_size(y_type)), FK_R(x, n * kn_type_size(x_type)),
	};

	if (!fk_is_type(y_type) || !fk_is_type(x_type))
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_add, &a, sizeof(a), use, FK_LEN(use));
}

struct pieces {
	struct flat flat;
	size_t pieces, stride;
	bool more;
};

/* Pairs of neighbours, then pairs of those; an odd last one goes up. */
static float tree_of(float *v, size_t n)
{
	for (; n > 1; n = (n + 1) / 2)
		for (size_t k = 0; k < (n + 1) / 2; k++)
			v[k] = 2 * k + 1 < n ? v[2 * k] + v[2 * k + 1] : v[2 * k];
	return v[0];
}

static void run_add_pieces(const void *args)
{
	const struct pieces *a = args;
	const struct flat *f = &a->flat;
	float *y = fk_wide(f->y, f->y_type, f->n), *v = fk_room(a->pieces * sizeof(*v));
	float *x = fk_wide(f->x, f->x_type, (a->pieces - 1) * a->stride + f->n);

	for (size_t i = 0; i < f->n; i++) {
		for (size_t p = 0; p < a->pieces; p++)
			v[p] = x[p * a->stride + i];
		y[i] = a->more ? y[i] + tree_of(v, a->pieces) : tree_of(v, a->pieces);
	}
	fk_narrow(f->y, f->y_type, y, f->n);
	free(x);
	free(v);
}

int kn_cu_add_pieces(void *dst, enum kn_type dst_type, const void *src, enum kn_type src_type,
		     size_t pieces, size_t stride, size_t n, unsigned flags,
		     struct CUstream_st *stream)
{
	const struct pieces a = { { dst, src, dst_type, src_type, 0, n }, pieces, stride,
				  flags & KN_CU_ADD };
	const struct fk_use use[] = {
		FK_W(dst, n * kn_type_size(dst_type)),
		FK_R(src, ((pieces - 1) * stride + n) * kn_type_size(src_type)),
	};

	if (!fk_is_type(dst_type) || !fk_is_type(src_type) || !pieces)
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_add_pieces, &a, sizeof(a), use, FK_LEN(use));
}

static void run_scale(const void *args)
{
	const struct flat *a = args;
	float *y = fk_wide(a->y, a->y_type, a->n);

	kn_scale(y, y, a->s, a->n);
	fk_narrow(a->y, a->y_type, y, a->n);
}

int kn_cu_scale(void *y, enum kn_type type, float s, size_t n, struct CUstream_st *stream)
{
	const struct flat a = { y, NULL, type, type, s, n };
	const struct fk_use use = FK_W(y, n * kn_type_size(type));

	if (!fk_is_type(type))
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_scale, &a, sizeof(a), &use, 1);
}

static void run_fill(const void *args)
{
	const struct flat *a = args;
	float *y = fk_room(a->n * sizeof(*y));

	for (size_t i = 0; i < a->n; i++)
		y[i] = a->s;
	fk_narrow(a->y, a->y_type, y, a->n);
}

int kn_cu_fill(void *y, enum kn_type type, float value, size_t n, struct CUstream_st *stream)
{
	const struct flat a = { y, NULL, type, type, value, n };
	const struct fk_use use = FK_W(y, n * kn_type_size(type));

	if (!fk_is_type(type))
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_fill, &a, sizeof(a), &use, 1);
}

static void run_not_finite(const void *args)
{
	const struct flat *a = args;
	float *x = fk_wide(a->x, a->x_type, a->n);

	if (!kn_all_finite(x, a->n))
		*(uint32_t *)a->y = 1;
	free(x);
}

int kn_cu_not_finite(uint32_t *flag, const void *x, enum kn_type type, size_t n,
		     struct CUstream_st *stream)
{
	const struct flat a = { flag, x, type, type, 0, n };
	const struct fk_use use[] = {
		FK_W(flag, sizeof(*flag)), FK_R(x, n * kn_type_size(type)),
	};

	if (!fk_is_type(type))
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_not_finite, &a, sizeof(a), use, FK_LEN(use));
}

/* ---- sums ---- */

struct sum {
	double *out;
	const float *f;
	const double *d;
	size_t n;
	bool add;
};

static void run_sum(const void *args)
{
	const struct sum *a = args;
	double sum = 0;

	for (size_t i = 0; i < a->n; i++)
		sum += a->f ? (double)a->f[i] : a->d[i];
	*a->out = a->add ? *a->out + sum : sum;
}

int kn_cu_sum_f32(double *out, const float *x, size_t n, unsigned flags,
		  struct CUstream_st *stream)
{
	const struct sum a = { out, x, NULL, n, flags & KN_CU_ADD };
	const struct fk_use use[] = { FK_W(out, sizeof(*out)), FK_R(x, n * sizeof(*x)) };

	return fk_launch(stream, __func__, run_sum, &a, sizeof(a), use, FK_LEN(use));
}

int kn_cu_sum_f64(double *out, const double *x, size_t n, unsigned flags,
		  struct CUstream_st *stream)
{
	const struct sum a = { out, NULL, x, n, flags & KN_CU_ADD };
	const struct fk_use use[] = { FK_W(out, sizeof(*out)), FK_R(x, n * sizeof(*x)) };

	return fk_launch(stream, __func__, run_sum, &a, sizeof(a), use, FK_LEN(use));
}

struct sumsq {
	double *out;
	const void *x;
	enum kn_type type;
	size_t n, chunk;
};

static void run_sumsq(const void *args)
{
	const struct sumsq *a = args;
	float *x = fk_wide(a->x, a->type, a->n);

	kn_sumsq(a->out, x, a->n, a->chunk);
	free(x);
}

int kn_cu_sumsq(double *out, const void *x, enum kn_type type, size_t n, size_t chunk,
		struct CUstream_st *stream)
{
	const struct sumsq a = { out, x, type, n, chunk };
	const struct fk_use use[] = {
		FK_W(out, (chunk ? (n + chunk - 1) / chunk : 0) * sizeof(*out)),
		FK_R(x, n * kn_type_size(type)),
	};

	if (!fk_is_type(type) || !chunk || chunk % 16)
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_sumsq, &a, sizeof(a), use, FK_LEN(use));
}

struct tree {
	double *out, *v, *work;
	size_t n;
};

static void run_tree(const void *args)
{
	const struct tree *a = args;

	*a->out = kn_tree_sum(a->v, a->n);
}

size_t kn_cu_tree_sum_work(size_t n)
{
	return (n + 1) / 2;
}

int kn_cu_tree_sum(double *out, double *v, size_t n, double *work, struct CUstream_st *stream)
{
	const struct tree a = { out, v, work, n };
	const struct fk_use use[] = {
		FK_W(out, sizeof(*out)), FK_W(v, n * sizeof(*v)),
		FK_W(work, kn_cu_tree_sum_work(n) * sizeof(*work)),
	};

	return fk_launch(stream, __func__, run_tree, &a, sizeof(a), use, FK_LEN(use));
}

/* ---- optimizer ---- */

struct adam {
	struct kn_adam how;
	float *p, *m, *v;
	const void *grad;
	enum kn_type grad_type, copy_type;
	size_t n;
	void *copy;
};

static void run_adam(const void *args)
{
	const struct adam *a = args;
	float *grad = fk_wide(a->grad, a->grad_type, a->n);

	kn_adam(&a->how, a->p, a->m, a->v, grad, a->n, a->copy, a->copy_type);
	free(grad);
}

int kn_cu_adam(const struct kn_adam *how, float *p, float *m, float *v, const void *grad,
	       enum kn_type grad_type, size_t n, void *copy, enum kn_type copy_type,
	       struct CUstream_st *stream)
{
	const struct adam a = { *how, p, m, v, grad, grad_type, copy_type, n, copy };
	const struct fk_use use[] = {
		FK_W(p, n * sizeof(*p)), FK_W(m, n * sizeof(*m)), FK_W(v, n * sizeof(*v)),
		FK_R(grad, n * kn_type_size(grad_type)), FK_W(copy, n * kn_type_size(copy_type)),
	};

	if (!fk_is_type(grad_type) || (copy && !fk_is_type(copy_type)))
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_adam, &a, sizeof(a), use, FK_LEN(use));
}

/* ---- random numbers ---- */

struct normal {
	float *out;
	size_t n;
	uint64_t seed, stream, first;
	double mean, std;
};

static void run_normal(const void *args)
{
	const struct normal *a = args;

	kn_random_normal(a->out, a->n, a->seed, a->stream, a->first, a->mean, a->std);
}

int kn_cu_random_normal(float *out, size_t n, uint64_t seed, uint64_t stream, uint64_t first,
			double mean, double std, struct CUstream_st *on)
{
	const struct normal a = { out, n, seed, stream, first, mean, std };
	const struct fk_use use = FK_W(out, n * sizeof(*out));

	return fk_launch(on, __func__, run_normal, &a, sizeof(a), &use, 1);
}

struct drop {
	void *out;
	const void *x, *add;
	size_t rows, n;
	struct kn_dropout how;
	enum kn_type type;
};

static void run_dropout(const void *args)
{
	const struct drop *a = args;
	const size_t all = a->rows * a->n;
	float *x = fk_wide(a->x, a->type, all);
	float *add = a->add ? fk_wide(a->add, a->type, all) : NULL;

	kn_dropout(x, x, add, 0, a->rows, a->n, &a->how, a->type);
	kn_cast(a->out, a->type, x, KN_F32, all, NULL);
	free(x);
	free(add);
}

int kn_cu_dropout(void *out, const void *x, const void *add, size_t rows, size_t n,
		  const struct kn_dropout *d, enum kn_type type, struct CUstream_st *on)
{
	const struct drop a = { out, x, add, rows, n, *d, type };
	const size_t bytes = rows * n * kn_type_size(type);
	const struct fk_use use[] = {
		FK_R(x, bytes), FK_R(add, add ? bytes : 0), FK_W(out, bytes),
	};

	if (!fk_is_type(type))
		return cudaErrorInvalidValue;
	return fk_launch(on, __func__, run_dropout, &a, sizeof(a), use, FK_LEN(use));
}
