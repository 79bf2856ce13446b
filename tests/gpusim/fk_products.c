/* fk_products.c -- kn_cuda_gemm.h and kn_cuda_attn.h on a CPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/include/kn_cuda_attn.h"
#include "kernels/include/kn_cuda_fp8.h"
#include "kernels/include/kn_cuda_gemm.h"
#include "tests/gpusim/fk_kernels.h"

/* ---- products ---- */

#define SHAPES 64

struct kn_cu_gemm {
	void *work;
	size_t bytes, n;
	struct kn_cu_mm seen[SHAPES];
};

int kn_cu_gemm_new(struct kn_cu_gemm **g_out, void *work, size_t bytes)
{
	const struct fk_use use = FK_W(work, bytes);

	fk_look("kn_cu_gemm_new", &use);
	*g_out = fk_room(sizeof(**g_out));
	memset(*g_out, 0, sizeof(**g_out));
	(*g_out)->work = work;
	(*g_out)->bytes = bytes;
	return 0;
}

void kn_cu_gemm_free(struct kn_cu_gemm *g)
{
	free(g);
}

struct mm {
	struct kn_cu_mm s;
	float alpha;
	const void *a, *b, *c;
	void *d;
};

static void run_mm(const void *args)
{
	const struct mm *m = args;
	const struct kn_cu_mm *s = &m->s;
	const bool ta = s->flags & KN_GEMM_TA, tb = s->flags & KN_GEMM_TB;
	const size_t ar = ta ? s->k : s->m, ac = ta ? s->m : s->k;
	const size_t br = tb ? s->n : s->k, bc = tb ? s->k : s->n;
	float *a = fk_columns(m->a, s->type, ar, s->lda, 0, ac);
	float *b = fk_columns(m->b, s->type, br, s->ldb, 0, bc);
	float *d = fk_room(s->m * s->n * sizeof(*d));

	kn_gemm(s->flags & (KN_GEMM_TA | KN_GEMM_TB), s->m, s->n, s->k, a, ac, b, bc, d, s->n);
	if (m->alpha != 1)
		kn_scale(d, d, m->alpha, s->m * s->n);
	if (m->c) {
		float *c = fk_columns(m->c, s->out, s->m, s->ldc, 0, s->n);

		kn_add(d, d, c, s->m * s->n, KN_F32);
		free(c);
	}
	fk_put_columns(m->d, s->out, s->m, s->ldd, 0, s->n, d);
	free(a);
	free(b);
}

static void note(struct kn_cu_gemm *g, const struct kn_cu_mm *mm)
{
	for (size_t i = 0; i < g->n; i++)
		if (!memcmp(&g->seen[i], mm, sizeof(*mm)))
			return;
	if (g->n < SHAPES)
		g->seen[g->n++] = *mm;
}

int kn_cu_gemm_run(struct kn_cu_gemm *g, const struct kn_cu_mm *mm, float alpha, const void *a,
		   const void *b, const void *c, void *d, struct CUstream_st *stream)
{
	const struct mm m = { *mm, alpha, a, b, c, d };
	const bool ta = mm->flags & KN_GEMM_TA, tb = mm->flags & KN_GEMM_TB;
	const bool add = mm->flags & KN_GEMM_ADD;
	const struct fk_use use[] = {
		FK_R(a, fk_span(mm->type, ta ? mm->k : mm->m, mm->lda, ta ? mm->m : mm->k)),
		FK_R(b, fk_span(mm->type, tb ? mm->n : mm->k, mm->ldb, tb ? mm->k : mm->n)),
		FK_R(c, fk_span(mm->out, mm->m, mm->ldc, mm->n)),
		FK_W(d, fk_span(mm->out, mm->m, mm->ldd, mm->n)), FK_W(g->work, g->bytes),
	};

	if (!fk_is_type(mm->type) || (mm->out != mm->type && mm->out != KN_F32) || add != !!c ||
	    (c == d && c && mm->out != KN_F32))
		return KN_CU_GEMM_LIB;
	note(g, mm);
	return fk_launch(stream, __func__, run_mm, &m, sizeof(m), use, FK_LEN(use));
}

struct mm8 {
	struct kn_cu_mm8 s;
	const uint8_t *a, *b;
	const struct kn_cu_fp8_scale *as, *bs;
	const void *c;
	void *d;
};

static float *wide8(const uint8_t *x, enum kn_fp8 of, size_t n)
{
	float *y = fk_room(n * sizeof(*y));

	for (size_t i = 0; i < n; i++)
		y[i] = kn_fp8_wide(x[i], of);
	return y;
}

static void run_mm8(const void *args)
{
	const struct mm8 *m = args;
	const struct kn_cu_mm8 *s = &m->s;
	float *a = wide8(m->a, s->a, s->m * s->k), *b = wide8(m->b, s->b, s->n * s->k);
	float *d = fk_room(s->m * s->n * sizeof(*d));

	kn_gemm(KN_GEMM_TB, s->m, s->n, s->k, a, s->k, b, s->k, d, s->n);
	kn_scale(d, d, m->as->inverse * m->bs->inverse, s->m * s->n);
	if (m->c) {
		float *c = fk_columns(m->c, s->out, s->m, s->ldc, 0, s->n);

		kn_add(d, d, c, s->m * s->n, KN_F32);
		free(c);
	}
	fk_put_columns(m->d, s->out, s->m, s->ldd, 0, s->n, d);
	free(a);
	free(b);
}

int kn_cu_gemm_run8(struct kn_cu_gemm *g, const struct kn_cu_mm8 *mm, const void *a,
		    const struct kn_cu_fp8_scale *as, const void *b,
		    const struct kn_cu_fp8_scale *bs, const void *c, void *d,
		    struct CUstream_st *stream)
{
	const struct mm8 m = { *mm, a, b, as, bs, c, d };
	const struct fk_use use[] = {
		FK_R(a, mm->m * mm->k), FK_R(b, mm->n * mm->k),
		FK_R(&as->inverse, sizeof(as->inverse)), FK_R(&bs->inverse, sizeof(bs->inverse)),
		FK_R(c, fk_span(mm->out, mm->m, mm->ldc, mm->n)),
		FK_W(d, fk_span(mm->out, mm->m, mm->ldd, mm->n)), FK_W(g->work, g->bytes),
	};

	if (!kn_cu_gemm_fits8(mm, c, d) || (mm->a == KN_E5M2 && mm->b == KN_E5M2) ||
	    !fk_is_type(mm->out) || !(mm->flags & KN_GEMM_ADD) != !c ||
	    (c == d && c && mm->out != KN_F32) || (uintptr_t)a % 16 || (uintptr_t)b % 16)
		return KN_CU_GEMM_LIB;
	return fk_launch(stream, __func__, run_mm8, &m, sizeof(m), use, FK_LEN(use));
}

int kn_cu_gemm_tune(struct kn_cu_gemm *g, const struct kn_cu_mm *mm, unsigned tries, const void *a,
		    const void *b, const void *c, void *d, struct CUstream_st *stream,
		    double *seconds_out)
{
	const double since = fk_now();
	int rc = kn_cu_gemm_run(g, mm, 1, a, b, c, d, stream);

	(void)tries;
	cudaStreamSynchronize(stream);
	if (!rc && seconds_out)
		*seconds_out = fk_now() - since;
	return rc;
}

/* There is nothing to choose. */
size_t kn_cu_gemm_write(const struct kn_cu_gemm *g, char *text, size_t bytes)
{
	(void)g;
	if (bytes)
		*text = 0;
	return 1;
}

int kn_cu_gemm_read(struct kn_cu_gemm *g, const char *text)
{
	(void)g;
	return *text ? KN_CU_GEMM_LIB : 0;
}

size_t kn_cu_gemm_count(const struct kn_cu_gemm *g)
{
	return g->n;
}

const char *kn_cu_gemm_why(const struct kn_cu_gemm *g)
{
	(void)g;
	return "the fake GPU refuses this product";
}

/* ---- attention ---- */

struct kn_cu_attn {
	struct kn_cu_attn_shape s;
};

int kn_cu_attn_new(struct kn_cu_attn **a_out, const struct kn_cu_attn_shape *shape,
		   enum kn_cu_attn_way way, unsigned flags, char *why, size_t size)
{
	(void)flags;
	if (why && size)
		*why = 0;
	if (way == KN_CU_ATTN_CUDNN || !fk_is_type(shape->type) || !shape->kv ||
	    shape->heads % shape->kv || shape->d % 2 || shape->d > KN_CU_ATTN_MAX_D) {
		if (why && size)
			snprintf(why, size, "the fake GPU has no such attention");
		return KN_CU_ATTN_LIB;
	}
	*a_out = fk_room(sizeof(**a_out));
	(*a_out)->s = *shape;
	return 0;
}

void kn_cu_attn_free(struct kn_cu_attn *a)
{
	free(a);
}

size_t kn_cu_attn_work(const struct kn_cu_attn *a)
{
	return a->s.b * a->s.t * a->s.heads * sizeof(float);
}

const char *kn_cu_attn_name(const struct kn_cu_attn *a)
{
	(void)a;
	return "fake";
}

const char *kn_cu_attn_text(int rc)
{
	return rc > 0 ? cudaGetErrorString((cudaError_t)rc) : "the fake GPU has no such attention";
}

struct attn {
	struct kn_cu_attn_shape s;
	uint8_t *o, *dq, *dk, *dv;
	const uint8_t *q, *k, *v, *dout;
	float *lse;
	const float *lse_in;
};

/* One key/value head of one row of tokens: heads side by side, as kn_attn() takes them. */
struct one {
	struct kn_attn shape;
	size_t row, es, at_q, at_k;
	float *q, *k, *v, *stat, *work;
};

static void open_one(struct one *x, const struct attn *a, size_t row, size_t g)
{
	const struct kn_cu_attn_shape *s = &a->s;
	const size_t group = s->heads / s->kv, nq = group * s->d;

	x->shape = (struct kn_attn){
				     .t = s->t, .group = group, .d = s->d, .ldq = nq, .ldk = s->d,
				     .lds = s->t,
				     .scale = s->scale, .type = s->type };
	x->es = kn_type_size(s->type);
	x->row = row * s->t;
	x->at_q = g * nq;
	x->at_k = g * s->d;
	x->q = fk_columns(a->q + x->row * s->ldq * x->es, s->type, s->t, s->ldq, x->at_q, nq);
	x->k = fk_columns(a->k + x->row * s->ldk * x->es, s->type, s->t, s->ldk, x->at_k, s->d);
	x->v = fk_columns(a->v + x->row * s->ldv * x->es, s->type, s->t, s->ldv, x->at_k, s->d);
	x->stat = fk_room(2 * group * s->t * sizeof(float));
	x->work = fk_room(kn_attn_work(&x->shape) * sizeof(float));
}

static void close_one(struct one *x)
{
	free(x->q);
	free(x->k);
	free(x->v);
	free(x->stat);
	free(x->work);
}

static float *lse_of(const struct attn *a, const float *lse, size_t row, size_t head)
{
	return (float *)lse + (row * a->s.heads + head) * a->s.t;
}

/* The end of the document that begins at token 'i' of a row. */
static size_t document_end(const struct kn_cu_attn_shape *s, size_t row, size_t i)
{
	size_t end = i + 1;

	if (!s->starts)
		return s->t;
	while (end < s->t && s->starts[row * s->t + end] == (int32_t)i)
		end++;
	return end;
}

static void one_forward(const struct attn *a, size_t row, size_t g)
{
	const struct kn_cu_attn_shape *s = &a->s;
	const size_t group = s->heads / s->kv, nq = group * s->d;
	float *o = fk_room(s->t * nq * sizeof(*o));
	struct one x;

	open_one(&x, a, row, g);
	for (size_t i = 0; i < s->t; i += x.shape.t) {
		x.shape.t = document_end(s, row, i) - i;
		kn_attn(&x.shape, o + i * nq, x.stat + 2 * i, x.q + i * nq, x.k + i * s->d,
			x.v + i * s->d, x.work);
	}
	for (size_t h = 0; a->lse && h < group; h++)
		for (size_t i = 0; i < s->t; i++) {
			const float *stat = x.stat + 2 * (h * s->t + i);

			lse_of(a, a->lse, row, g * group + h)[i] = stat[0] - logf(stat[1]);
		}
	fk_put_columns(a->o + x.row * s->ldo * x.es, s->type, s->t, s->ldo, x.at_q, nq, o);
	close_one(&x);
}

static void run_forward(const void *args)
{
	const struct attn *a = args;

	for (size_t row = 0; row < a->s.b; row++)
		for (size_t g = 0; g < a->s.kv; g++)
			one_forward(a, row, g);
}

/* With the sum in the exponent, p = exp(s - lse). */
static void one_back(const struct attn *a, size_t row, size_t g)
{
	const struct kn_cu_attn_shape *s = &a->s;
	const size_t group = s->heads / s->kv, nq = group * s->d;
	float *dq = fk_room(s->t * nq * sizeof(*dq)), *dk = fk_room(s->t * s->d * sizeof(*dk));
	float *dv = fk_room(s->t * s->d * sizeof(*dv)), *go;
	struct one x;

	open_one(&x, a, row, g);
	go = fk_columns(a->dout + x.row * s->lddo * x.es, s->type, s->t, s->lddo, x.at_q, nq);
	for (size_t h = 0; h < group; h++)
		for (size_t i = 0; i < s->t; i++) {
			float *stat = x.stat + 2 * (h * s->t + i);

			stat[0] = lse_of(a, a->lse_in, row, g * group + h)[i];
			stat[1] = 1;
		}
	for (size_t i = 0; i < s->t; i += x.shape.t) {
		x.shape.t = document_end(s, row, i) - i;
		kn_attn_back(&x.shape, dq + i * nq, dk + i * s->d, dv + i * s->d, go + i * nq,
			     x.stat + 2 * i, x.q + i * nq, x.k + i * s->d, x.v + i * s->d, x.work);
	}
	fk_put_columns(a->dq + x.row * s->lddq * x.es, s->type, s->t, s->lddq, x.at_q, nq, dq);
	fk_put_columns(a->dk + x.row * s->lddk * x.es, s->type, s->t, s->lddk, x.at_k, s->d, dk);
	fk_put_columns(a->dv + x.row * s->lddv * x.es, s->type, s->t, s->lddv, x.at_k, s->d, dv);
	free(go);
	close_one(&x);
}

static void run_back(const void *args)
{
	const struct attn *a = args;

	for (size_t row = 0; row < a->s.b; row++)
		for (size_t g = 0; g < a->s.kv; g++)
			one_back(a, row, g);
}

static size_t span(const struct kn_cu_attn_shape *s, size_t heads, size_t ld)
{
	return fk_span(s->type, s->b * s->t, ld, heads * s->d);
}

static size_t starts_bytes(const struct kn_cu_attn_shape *s)
{
	return s->b * s->t * sizeof(*s->starts);
}

static size_t lse_bytes(const struct kn_cu_attn_shape *s)
{
	return s->b * s->heads * s->t * sizeof(float);
}

int kn_cu_attn_forward(const struct kn_cu_attn *a, void *o, float *lse, const void *q,
		       const void *k, const void *v, void *work, struct CUstream_st *stream)
{
	const struct kn_cu_attn_shape *s = &a->s;
	const struct attn x = { .s = *s, .o = o, .q = q, .k = k, .v = v, .lse = lse };
	const struct fk_use use[] = {
		FK_W(o, span(s, s->heads, s->ldo)), FK_W(lse, lse_bytes(s)),
		FK_R(q, span(s, s->heads, s->ldq)), FK_R(k, span(s, s->kv, s->ldk)),
		FK_R(v, span(s, s->kv, s->ldv)), FK_R(s->starts, starts_bytes(s)),
		FK_W(work, kn_cu_attn_work(a)),
	};

	return fk_launch(stream, __func__, run_forward, &x, sizeof(x), use, FK_LEN(use));
}

int kn_cu_attn_back(const struct kn_cu_attn *a, void *dq, void *dk, void *dv, const void *dout,
		    const void *q, const void *k, const void *v, const void *o, const float *lse,
		    void *work, struct CUstream_st *stream)
{
	const struct kn_cu_attn_shape *s = &a->s;
	const struct attn x = { .s = *s, .dq = dq, .dk = dk, .dv = dv, .q = q, .k = k, .v = v,
				.dout = dout, .lse_in = lse };
	const struct fk_use use[] = {
		FK_W(dq, span(s, s->heads, s->lddq)), FK_W(dk, span(s, s->kv, s->lddk)),
		FK_W(dv, span(s, s->kv, s->lddv)), FK_R(dout, span(s, s->heads, s->lddo)),
		FK_R(q, span(s, s->heads, s->ldq)), FK_R(k, span(s, s->kv, s->ldk)),
		FK_R(v, span(s, s->kv, s->ldv)), FK_R(o, span(s, s->heads, s->ldo)),
		FK_R(lse, lse_bytes(s)), FK_R(s->starts, starts_bytes(s)),
		FK_W(work, kn_cu_attn_work(a)),
	};

	return fk_launch(stream, __func__, run_back, &x, sizeof(x), use, FK_LEN(use));
}
