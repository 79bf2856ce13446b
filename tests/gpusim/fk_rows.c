/* fk_rows.c -- kn_cuda.h on a CPU: embedding, norms, heads, biases, activation, loss. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/include/kn_cuda.h"
#include "tests/gpusim/fk_kernels.h"

float *fk_columns(const void *x, enum kn_type type, size_t rows, size_t ld, size_t at, size_t n)
{
	const size_t es = kn_type_size(type);
	float *y = fk_room(rows * n * sizeof(*y));

	for (size_t r = 0; r < rows; r++)
		kn_cast(y + r * n, KN_F32, (const uint8_t *)x + (r * ld + at) * es, type, n, NULL);
	return y;
}

void fk_put_columns(void *y, enum kn_type type, size_t rows, size_t ld, size_t at, size_t n,
		    float *x)
{
	const size_t es = kn_type_size(type);

	for (size_t r = 0; r < rows; r++)
		kn_cast((uint8_t *)y + (r * ld + at) * es, type, x + r * n, KN_F32, n, NULL);
	free(x);
}

size_t fk_span(enum kn_type type, size_t rows, size_t ld, size_t n)
{
	return rows && n ? ((rows - 1) * ld + n) * kn_type_size(type) : 0;
}

static float *zeros(size_t n)
{
	float *y = fk_room(n * sizeof(*y));

	memset(y, 0, n * sizeof(*y));
	return y;
}

/* ---- embedding ---- */

struct embed {
	uint8_t *y;
	const uint8_t *table;
	const int32_t *ids;
	size_t rows, bytes;	/* of a row */
};

static void run_embed(const void *args)
{
	const struct embed *a = args;

	for (size_t r = 0; r < a->rows; r++) {
		const struct fk_use use = FK_R(a->table + (size_t)a->ids[r] * a->bytes, a->bytes);

		if (a->ids[r] < 0)
			fk_die("kn_cu_embed: row %zu has id %d", r, (int)a->ids[r]);
		fk_look("kn_cu_embed", &use);
		memcpy(a->y + r * a->bytes, use.p, a->bytes);
	}
}

int kn_cu_embed(void *y, const void *table, const int32_t *ids, size_t rows, size_t n,
		enum kn_type type, struct CUstream_st *stream)
{
	const struct embed a = { y, table, ids, rows, n * kn_type_size(type) };
	const struct fk_use use[] = {
		FK_W(y, rows * a.bytes), FK_R(table, rows ? fk_device_left(table) : 0),
		FK_R(ids, rows * sizeof(*ids)),
	};

	if (!fk_is_type(type))
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_embed, &a, sizeof(a), use, FK_LEN(use));
}

struct embed_back {
	uint8_t *dtable;
	enum kn_type grad_type, type;
	const uint8_t *dy;
	const int32_t *id, *begin, *at;
	size_t nid, n;
	unsigned flags;
};

static void run_embed_back(const void *args)
{
	const struct embed_back *a = args;
	const size_t row = a->n * kn_type_size(a->type);
	const size_t to = a->n * kn_type_size(a->grad_type);

	for (size_t u = 0; u < a->nid; u++) {
		const struct fk_use use = FK_W(a->dtable + (size_t)a->id[u] * to, to);
		float *sum = zeros(a->n);

		fk_look("kn_cu_embed_back", &use);
		for (int32_t i = a->begin[u]; i < a->begin[u + 1]; i++) {
			const struct fk_use dy = FK_R(a->dy + (size_t)a->at[i] * row, row);
			float *x;

			fk_look("kn_cu_embed_back", &dy);
			x = fk_wide(dy.p, a->type, a->n);
			kn_add(sum, sum, x, a->n, KN_F32);
			free(x);
		}
		fk_put_grad((void *)use.p, a->grad_type, sum, a->n, a->flags);
	}
}

/* The length of a table is unknown: rows are checked when it is done. */
int kn_cu_embed_back(void *dtable, enum kn_type grad_type, const void *dy, const int32_t *id,
		     const int32_t *begin, const int32_t *at, size_t nid, size_t n,
		     enum kn_type type, unsigned flags, struct CUstream_st *stream)
{
	const struct embed_back a = { dtable, grad_type, type, dy, id, begin, at, nid, n, flags };
	const struct fk_use use[] = {
		FK_W(dtable, nid ? fk_device_left(dtable) : 0),
		FK_R(dy, nid ? n * kn_type_size(type) : 0), FK_R(id, nid * sizeof(*id)),
		FK_R(begin, (nid + 1) * sizeof(*begin)), FK_R(at, nid * sizeof(*at)),
	};

	if (!fk_is_type(type) || !fk_is_type(grad_type))
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_embed_back, &a, sizeof(a), use, FK_LEN(use));
}

/* ---- norm ---- */

struct norm {
	void *y;
	float *rstd;
	const void *x, *w;
	size_t rows, n;
	float eps;
	enum kn_type type;
};

static void run_norm(const void *args)
{
	const struct norm *a = args;
	float *x = fk_wide(a->x, a->type, a->rows * a->n), *w = fk_wide(a->w, a->type, a->n);
	float *rstd = fk_room(a->rows * sizeof(*rstd));

	kn_rmsnorm(x, rstd, x, w, a->rows, a->n, a->eps, a->type);
	if (a->rstd)
		memcpy(a->rstd, rstd, a->rows * sizeof(*rstd));
	fk_narrow(a->y, a->type, x, a->rows * a->n);
	free(rstd);
	free(w);
}

int kn_cu_rmsnorm(void *y, float *rstd, const void *x, const void *w, size_t rows, size_t n,
		  float eps, enum kn_type type, struct CUstream_st *stream)
{
	const struct norm a = { y, rstd, x, w, rows, n, eps, type };
	const size_t es = kn_type_size(type);
	const struct fk_use use[] = {
		FK_W(y, rows * n * es), FK_W(rstd, rows * sizeof(*rstd)), FK_R(x, rows * n * es),
		FK_R(w, n * es),
	};

	if (!fk_is_type(type))
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_norm, &a, sizeof(a), use, FK_LEN(use));
}

/* Room for sums of parts, as much as there may be on a GPU. */
size_t kn_cu_rmsnorm_back_work(size_t rows, size_t n)
{
	return (rows < 256 ? rows : 256) * n * sizeof(float);
}

struct norm_back {
	void *dx, *dw;
	const void *dy, *x, *w, *add;
	const float *rstd;
	size_t rows, n;
	enum kn_type type, grad_type;
	unsigned flags;
};

static void run_norm_back(const void *args)
{
	const struct norm_back *a = args;
	const size_t n = a->rows * a->n;
	float *dy = fk_wide(a->dy, a->type, n), *x = fk_wide(a->x, a->type, n);
	float *w = fk_wide(a->w, a->type, a->n), *dw = zeros(a->n);
	float *add = a->add ? fk_wide(a->add, a->type, n) : NULL;

	kn_rmsnorm_back(dy, dw, dy, x, a->rstd, w, add, a->rows, a->n, a->type);
	fk_narrow(a->dx, a->type, dy, n);
	fk_put_grad(a->dw, a->grad_type, dw, a->n, a->flags);
	free(x);
	free(w);
	free(add);
}

int kn_cu_rmsnorm_back(void *dx, void *dw, enum kn_type grad_type, const void *dy, const void *x,
		       const float *rstd, const void *w, const void *add, size_t rows, size_t n,
		       enum kn_type type, unsigned flags, void *work, struct CUstream_st *stream)
{
	const struct norm_back a = { dx, dw, dy, x, w, add, rstd, rows, n, type, grad_type, flags };
	const size_t bytes = rows * n * kn_type_size(type);
	const struct fk_use use[] = {
		FK_W(dx, bytes), FK_W(dw, n * kn_type_size(grad_type)), FK_R(dy, bytes),
		FK_R(x, bytes), FK_R(rstd, rows * sizeof(*rstd)), FK_R(w, n * kn_type_size(type)),
		FK_R(add, bytes), FK_W(work, kn_cu_rmsnorm_back_work(rows, n)),
	};

	if (!fk_is_type(type) || !fk_is_type(grad_type))
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_norm_back, &a, sizeof(a), use, FK_LEN(use));
}

/* ---- heads ---- */

struct qk {
	struct kn_cu_qk s;
	void *q, *k;		/* out; on the way back in */
	const void *qkv, *wq, *wk;
	const float *cos, *sin;
	void *dqkv, *dwq, *dwk;
	enum kn_type grad_type;
	unsigned flags;
};

/* Each row by its position; one call for a document would do, one for a row is simpler. */
static void rope(const struct qk *a, float *x, size_t heads, float sign)
{
	const struct kn_cu_qk *s = &a->s;

	for (size_t r = 0; r < s->rows; r++)
		kn_rope(x + r * heads * s->d, a->cos, a->sin, 1,
			r % s->tokens - (s->starts ? (size_t)s->starts[r] : 0), s->tokens, heads,
			s->d, sign, s->type);
}

/* Heads of q or of k: normed and turned. */
static void turn(const struct qk *a, void *out, size_t ld, size_t at, size_t heads, const void *w)
{
	const struct kn_cu_qk *s = &a->s;
	float *x = fk_columns(a->qkv, s->type, s->rows, s->ld, at, heads * s->d);

	if (w) {
		float *wide = fk_wide(w, s->type, s->d);
		float *rstd = fk_room(s->rows * heads * sizeof(*rstd));

		kn_rmsnorm(x, rstd, x, wide, s->rows * heads, s->d, s->eps, s->type);
		free(wide);
		free(rstd);
	}
	rope(a, x, heads, 1);
	fk_put_columns(out, s->type, s->rows, ld, 0, heads * s->d, x);
}

static void run_qk(const void *args)
{
	const struct qk *a = args;

	turn(a, a->q, a->s.ldq, 0, a->s.heads, a->wq);
	turn(a, a->k, a->s.ldk, a->s.heads * a->s.d, a->s.kv_heads, a->wk);
}

static bool is_shape(const struct kn_cu_qk *s)
{
	return fk_is_type(s->type) && s->d % 2 == 0 && s->tokens &&
	       s->ld >= (s->heads + 2 * s->kv_heads) * s->d && s->ldq >= s->heads * s->d &&
	       s->ldk >= s->kv_heads * s->d;
}

int kn_cu_qk(const struct kn_cu_qk *shape, void *q, void *k, const void *qkv, const void *wq,
	     const void *wk, const float *cos, const float *sin, struct CUstream_st *stream)
{
	const struct qk a = {
		.s = *shape, .q = q, .k = k, .qkv = qkv, .wq = wq, .wk = wk, .cos = cos,
		.sin = sin,
	};
	const struct kn_cu_qk *s = shape;
	const size_t dq = s->heads * s->d, dk = s->kv_heads * s->d;
	const size_t w = s->d * kn_type_size(s->type);
	const size_t angles = (s->rows < s->tokens ? s->rows : s->tokens) * s->d / 2 * sizeof(*cos);
	const struct fk_use use[] = {
		FK_W(q, fk_span(s->type, s->rows, s->ldq, dq)),
		FK_W(k, fk_span(s->type, s->rows, s->ldk, dk)),
		FK_R(qkv, fk_span(s->type, s->rows, s->ld, dq + dk)), FK_R(wq, w), FK_R(wk, w),
		FK_R(cos, angles), FK_R(sin, angles), FK_R(s->starts, s->rows * sizeof(int32_t)),
	};

	if (!is_shape(s) || !wq != !wk)
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_qk, &a, sizeof(a), use, FK_LEN(use));
}

size_t kn_cu_qk_back_work(const struct kn_cu_qk *s)
{
	return (s->rows < 256 ? s->rows : 256) * 2 * s->d * sizeof(float);
}

static void turn_back(const struct qk *a, const void *from, size_t ld, size_t at, size_t heads,
		      const void *w, void *dw)
{
	const struct kn_cu_qk *s = &a->s;
	const size_t rows = s->rows * heads;
	float *dy = fk_columns(from, s->type, s->rows, ld, 0, heads * s->d);

	rope(a, dy, heads, -1);
	if (w) {
		float *x = fk_columns(a->qkv, s->type, s->rows, s->ld, at, heads * s->d);
		float *y = fk_room(rows * s->d * sizeof(*y)), *sum = zeros(s->d);
		float *wide = fk_wide(w, s->type, s->d), *rstd = fk_room(rows * sizeof(*rstd));

		kn_rmsnorm(y, rstd, x, wide, rows, s->d, s->eps, s->type);
		kn_rmsnorm_back(dy, sum, dy, x, rstd, wide, NULL, rows, s->d, s->type);
		fk_put_grad(dw, a->grad_type, sum, s->d, a->flags);
		free(x);
		free(y);
		free(wide);
		free(rstd);
	}
	fk_put_columns(a->dqkv, s->type, s->rows, s->ld, at, heads * s->d, dy);
}

static void run_qk_back(const void *args)
{
	const struct qk *a = args;

	turn_back(a, a->q, a->s.ldq, 0, a->s.heads, a->wq, a->dwq);
	turn_back(a, a->k, a->s.ldk, a->s.heads * a->s.d, a->s.kv_heads, a->wk, a->dwk);
}

int kn_cu_qk_back(const struct kn_cu_qk *shape, void *dqkv, void *dwq, void *dwk,
		  enum kn_type grad_type, const void *dq, const void *dk, const void *qkv,
		  const void *wq, const void *wk, const float *cos, const float *sin,
		  unsigned flags, void *work, struct CUstream_st *stream)
{
	const struct qk a = { *shape, (void *)dq, (void *)dk, qkv, wq, wk, cos, sin, dqkv, dwq, dwk,
			      grad_type, flags };
	const struct kn_cu_qk *s = shape;
	const size_t nq = s->heads * s->d, nk = s->kv_heads * s->d;
	const size_t w = s->d * kn_type_size(s->type), dw = s->d * kn_type_size(grad_type);
	const size_t angles = (s->rows < s->tokens ? s->rows : s->tokens) * s->d / 2 * sizeof(*cos);
	const struct fk_use use[] = {
		FK_W(dqkv, fk_span(s->type, s->rows, s->ld, nq + nk)), FK_W(dwq, dw), FK_W(dwk, dw),
		FK_R(dq, fk_span(s->type, s->rows, s->ldq, nq)),
		FK_R(dk, fk_span(s->type, s->rows, s->ldk, nk)),
		FK_R(qkv, fk_span(s->type, s->rows, s->ld, nq + nk)), FK_R(wq, w), FK_R(wk, w),
		FK_R(cos, angles), FK_R(sin, angles), FK_W(work, kn_cu_qk_back_work(s)),
		FK_R(s->starts, s->rows * sizeof(int32_t)),
	};

	if (!is_shape(s) || !wq != !wk || !fk_is_type(grad_type))
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_qk_back, &a, sizeof(a), use, FK_LEN(use));
}

/* ---- bias ---- */

struct bias {
	void *y;
	const void *b;
	size_t rows, ld, n;
	enum kn_type type, grad_type;
	unsigned flags;
};

static void run_add_bias(const void *args)
{
	const struct bias *a = args;
	float *y = fk_columns(a->y, a->type, a->rows, a->ld, 0, a->n);
	float *b = fk_wide(a->b, a->type, a->n);

	kn_add_bias(y, b, a->rows, a->n, a->type);
	fk_put_columns(a->y, a->type, a->rows, a->ld, 0, a->n, y);
	free(b);
}

int kn_cu_add_bias(void *y, size_t ld, const void *b, size_t rows, size_t n, enum kn_type type,
		   struct CUstream_st *stream)
{
	const struct bias a = { y, b, rows, ld, n, type, type, 0 };
	const struct fk_use use[] = {
		FK_W(y, fk_span(type, rows, ld, n)), FK_R(b, n * kn_type_size(type)),
	};

	if (!fk_is_type(type))
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_add_bias, &a, sizeof(a), use, FK_LEN(use));
}

size_t kn_cu_sum_rows_work(size_t rows, size_t n)
{
	return (rows < 128 ? rows : 128) * n * sizeof(float);
}

static void run_sum_rows(const void *args)
{
	const struct bias *a = args;
	float *x = fk_columns(a->b, a->type, a->rows, a->ld, 0, a->n), *sum = zeros(a->n);

	kn_sum_rows(sum, x, a->rows, a->n);
	fk_put_grad(a->y, a->grad_type, sum, a->n, a->flags);
	free(x);
}

int kn_cu_sum_rows(void *sum, enum kn_type grad_type, const void *x, size_t ld, size_t rows,
		   size_t n, enum kn_type type, unsigned flags, void *work,
		   struct CUstream_st *stream)
{
	const struct bias a = { sum, x, rows, ld, n, type, grad_type, flags };
	const struct fk_use use[] = {
		FK_W(sum, n * kn_type_size(grad_type)), FK_R(x, fk_span(type, rows, ld, n)),
		FK_W(work, kn_cu_sum_rows_work(rows, n)),
	};

	if (!fk_is_type(type) || !fk_is_type(grad_type))
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_sum_rows, &a, sizeof(a), use, FK_LEN(use));
}

/* ---- activation ---- */

struct swiglu {
	void *y, *dgu;
	const void *dy, *gu;
	size_t rows, n;
	enum kn_type type;
};

static void run_swiglu(const void *args)
{
	const struct swiglu *a = args;
	float *g = fk_columns(a->gu, a->type, a->rows, 2 * a->n, 0, a->n);
	float *u = fk_columns(a->gu, a->type, a->rows, 2 * a->n, a->n, a->n);

	kn_swiglu(g, g, u, a->rows * a->n, a->type);
	fk_narrow(a->y, a->type, g, a->rows * a->n);
	free(u);
}

int kn_cu_swiglu(void *y, const void *gu, size_t rows, size_t n, enum kn_type type,
		 struct CUstream_st *stream)
{
	const struct swiglu a = { y, NULL, NULL, gu, rows, n, type };
	const size_t bytes = rows * n * kn_type_size(type);
	const struct fk_use use[] = { FK_W(y, bytes), FK_R(gu, 2 * bytes) };

	if (!fk_is_type(type))
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_swiglu, &a, sizeof(a), use, FK_LEN(use));
}

static void run_swiglu_back(const void *args)
{
	const struct swiglu *a = args;
	const size_t all = a->rows * a->n;
	float *g = fk_columns(a->gu, a->type, a->rows, 2 * a->n, 0, a->n);
	float *u = fk_columns(a->gu, a->type, a->rows, 2 * a->n, a->n, a->n);
	float *dy = fk_wide(a->dy, a->type, all), *y = fk_room(all * sizeof(*y));

	kn_swiglu(y, g, u, all, a->type);
	kn_swiglu_back(g, u, dy, g, u, all, a->type);
	if (a->y)
		fk_narrow(a->y, a->type, y, all);
	else
		free(y);
	fk_put_columns(a->dgu, a->type, a->rows, 2 * a->n, 0, a->n, g);
	fk_put_columns(a->dgu, a->type, a->rows, 2 * a->n, a->n, a->n, u);
	free(dy);
}

int kn_cu_swiglu_back(void *dgu, void *y, const void *dy, const void *gu, size_t rows, size_t n,
		      enum kn_type type, struct CUstream_st *stream)
{
	const struct swiglu a = { y, dgu, dy, gu, rows, n, type };
	const size_t bytes = rows * n * kn_type_size(type);
	const struct fk_use use[] = {
		FK_W(dgu, 2 * bytes), FK_W(y, bytes), FK_R(dy, bytes), FK_R(gu, 2 * bytes),
	};

	if (!fk_is_type(type))
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_swiglu_back, &a, sizeof(a), use, FK_LEN(use));
}

/* ---- loss ---- */

struct xent {
	uint8_t *logits;
	float *loss;
	const int32_t *target;
	size_t rows, n;
	float factor;
	bool back;
	enum kn_type type;
};

static bool is_number(const float *l, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!(l[i] < INFINITY))
			return false;
	return true;
}

static void run_xent(const void *args)
{
	const struct xent *a = args;
	const size_t row = a->n * kn_type_size(a->type);

	for (size_t r = 0; r < a->rows; r++) {
		float *l = fk_wide(a->logits + r * row, a->type, a->n);
		const bool good = a->target[r] < 0 ||
				  ((size_t)a->target[r] < a->n && is_number(l, a->n));

		if (good)
			kn_xent(l, a->loss + r, a->target + r, 1, a->n,
				a->back ? &a->factor : NULL, a->type);
		else
			a->loss[r] = NAN;
		for (size_t i = 0; i < a->n && !good; i++)
			l[i] = NAN;
		if (a->back)
			fk_narrow(a->logits + r * row, a->type, l, a->n);
		else
			free(l);
	}
}

int kn_cu_xent(void *logits, float *loss, const int32_t *target, size_t rows, size_t n,
	       const float *factor, enum kn_type type, struct CUstream_st *stream)
{
	const struct xent a = { logits, loss, target, rows, n, factor ? *factor : 0,
				factor != NULL, type };
	const struct fk_use use[] = {
		{ logits, rows * n * kn_type_size(type), factor != NULL },
		FK_W(loss, rows * sizeof(*loss)), FK_R(target, rows * sizeof(*target)),
	};

	if (!fk_is_type(type))
		return cudaErrorInvalidValue;
	return fk_launch(stream, __func__, run_xent, &a, sizeof(a), use, FK_LEN(use));
}
