/*
 * test_cuda_kernels.c -- the kernels of kn_cuda.h against the laws in double, on a GPU.
 *
 * If this is wrong, training on a GPU computes something else than the CPU, or other bits the next
 * time.  Every case runs twice and must have the same bits; nothing beside an array may be
 * written; sizes are those that hurt, pointers are off by some elements in every other case.
 *
 *	test_cuda_kernels [--bench]	--bench: and a table of bandwidths
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/include/kn_cuda.h"
#include "tests/gpu/tg_gpu.h"
#include "tests/gpu/tg_kernels.h"
#include "tests/ref/kn_ref_train.h"

static const enum kn_type types[] = { KN_F32, KN_BF16, KN_F16 };
static const char *const type_names[] = { "f32", "bf16", "f16" };

static size_t bytes_of(size_t n, enum kn_type type)
{
	return n * kn_type_size(type);
}

/* Half of the cases aligned, the others off by 1 to 7 elements. */
static size_t shift_of(unsigned i)
{
	return i & 1 ? i / 2 % 7 + 1 : 0;
}

/* Sums over rows: 16-bit roundings cancel, those of fp32 sums are the order's. */
static double dw_units(enum kn_type type, enum kn_type gt)
{
	return tg_coarser(type, gt) == KN_F32 ? 16 : 2;
}

/* Old gradients for KN_CU_ADD, or nothing. */
static void *gradient(const struct tg_array *old, unsigned flags, size_t shift)
{
	return flags & KN_CU_ADD ? tg_up(old, shift) :
				   tg_room(bytes_of(old->n, old->type),
					   shift * kn_type_size(old->type));
}

/* ---------------------------------------------------------------- norm */

struct shape {
	size_t rows, n;
};

static const struct shape shapes[] = {
	{ 1, 1 }, { 3, 1 }, { 2, 2 }, { 5, 3 }, { 7, 5 }, { 4, 7 }, { 3, 8 }, { 9, 12 }, { 6, 16 },
	{ 33, 24 }, { 7, 31 }, { 5, 33 }, { 70, 40 }, { 12, 64 }, { 300, 72 }, { 5, 100 },
	{ 1030, 8 }, { 17, 128 }, { 3, 171 }, { 600, 256 }, { 3, 257 }, { 9, 264 }, { 4, 1000 },
	{ 260, 1024 }, { 3, 2047 }, { 6, 4096 }, { 5, 4104 }, { 3, 5120 }, { 3, 8192 }, { 2, 8200 },
	{ 3, 16384 }, { 4, 16392 }, { 2, 20001 }, { 3, 32768 }, { 2, 32776 }, { 2, 40001 },
};
#define NSHAPE (sizeof(shapes) / sizeof(shapes[0]))

static void one_norm(unsigned i, size_t rows, size_t n, int t)
{
	const enum kn_type type = types[t];
	const size_t shift = shift_of(i);
	struct tg_array x = tg_random(rows * n, 1.5, type), w = tg_random(n, 1, type);
	double *y = tg_alloc(rows * n * sizeof(*y)), *rstd = tg_alloc(rows * sizeof(*rstd));
	const int in_place = i % 3 == 0;

	tg_case("%zu x %zu %s, off by %zu%s", rows, n, type_names[t], shift,
		in_place ? ", in place" : "");
	for (int turn = 0; turn < 2; turn++) {
		void *dx, *dw, *dy, *dr;

		tg_reset();
		dx = tg_up(&x, shift);
		dw = tg_up(&w, shift);
		dy = in_place ? dx : tg_room(bytes_of(x.n, type), shift * kn_type_size(type));
		dr = tg_room(rows * sizeof(float), 4);
		TG(kn_cu_rmsnorm(dy, dr, dx, dw, rows, n, 1e-5f, type, NULL));
		tg_out(turn, 0, dy, bytes_of(x.n, type));
		tg_out(turn, 1, dr, rows * sizeof(float));
	}
	kn_ref_rmsnorm(y, rstd, x.d, w.d, rows, n, (double)1e-5f);
	tg_near(0, "y", y, x.n, type, type, type == KN_F32 ? 8 : 1.5, 1e-3);
	tg_near(1, "rstd", rstd, rows, KN_F32, KN_F32, 8, 1e-3);
	tg_free(&x);
	tg_free(&w);
	free(y);
	free(rstd);
}

static void norms(void)
{
	tg_begin("rmsnorm");
	for (unsigned i = 0; i < NSHAPE * 6; i++)
		one_norm(i + i / NSHAPE, shapes[i % NSHAPE].rows, shapes[i % NSHAPE].n,
			 (int)(i / NSHAPE % 3));
	TG(kn_cu_rmsnorm(NULL, NULL, NULL, NULL, 0, 8, 1e-5f, KN_F32, NULL));
	tg_check(kn_cu_rmsnorm(NULL, NULL, NULL, NULL, 1, 8, 1e-5f, KN_F64, NULL) != 0,
		 "f64 was taken");
}

static void one_norm_back(unsigned i, size_t rows, size_t n, int t)
{
	const enum kn_type type = types[t], gt = types[i / 2 % 3];
	const unsigned flags = i / 3 & 1 ? KN_CU_ADD : 0;
	const int with_add = i / 2 & 1, place = (int)(i % 5);
	const size_t shift = shift_of(i), all = rows * n;
	struct tg_array x = tg_random(all, 1.5, type), w = tg_random(n, 1, type);
	struct tg_array dy = tg_random(all, 1, type), add = tg_random(all, 1, type);
	struct tg_array old = tg_random(n, 1, gt), rs = tg_zeros(rows, KN_F32);
	double *dx = tg_alloc(all * sizeof(*dx)), *dw = tg_alloc(n * sizeof(*dw));
	double *y = tg_alloc(all * sizeof(*y)), *rstd = tg_alloc(rows * sizeof(*rstd));
	double most = 0;	/* what of short rows is left of two numbers of this size */

	tg_case("%zu x %zu %s, gradient %s%s, off by %zu, add %d, place %d", rows, n,
		type_names[t], type_names[i / 2 % 3], flags ? " added" : "", shift, with_add,
		place);
	kn_ref_rmsnorm(y, rstd, x.d, w.d, rows, n, (double)1e-5f);
	for (size_t r = 0; r < rows; r++) {
		rs.f[r] = (float)rstd[r];
		most = rstd[r] > most ? rstd[r] : most;
	}
	tg_settle(&rs);
	for (int turn = 0; turn < 2; turn++) {
		void *vx, *vg, *va, *vw, *vr, *vo, *vd, *work;

		tg_reset();
		vx = tg_up(&x, shift);
		vg = tg_up(&dy, shift);
		va = with_add ? tg_up(&add, shift) : NULL;
		vw = tg_up(&w, shift);
		vr = tg_up(&rs, 0);
		vo = place == 0 ? vg : place == 1 && va ? va :
			tg_room(bytes_of(all, type), shift * kn_type_size(type));
		vd = gradient(&old, flags, shift);
		work = tg_room(kn_cu_rmsnorm_back_work(rows, n), 0);
		TG(kn_cu_rmsnorm_back(vo, vd, gt, vg, vx, vr, vw, va, rows, n, type, flags, work,
				      NULL));
		tg_out(turn, 0, vo, bytes_of(all, type));
		tg_out(turn, 1, vd, bytes_of(n, gt));
	}
	for (size_t k = 0; k < n; k++)
		dw[k] = flags ? old.d[k] : 0;
	kn_ref_rmsnorm_back(dx, dw, dy.d, x.d, w.d, rows, n, (double)1e-5f);
	for (size_t k = 0; with_add && k < all; k++)
		dx[k] += add.d[k];
	tg_near(0, "dx", dx, all, type, type, type == KN_F32 ? 16 : 3, most);
	tg_near(1, "dw", dw, n, gt, tg_coarser(type, gt), dw_units(type, gt), 1);
	tg_free(&x);
	tg_free(&w);
	tg_free(&dy);
	tg_free(&add);
	tg_free(&old);
	tg_free(&rs);
	free(dx);
	free(dw);
	free(y);
	free(rstd);
}

static void norms_back(void)
{
	tg_begin("rmsnorm_back");
	for (unsigned i = 0; i < NSHAPE * 9; i++)
		one_norm_back(i + i / NSHAPE, shapes[i % NSHAPE].rows, shapes[i % NSHAPE].n,
			      (int)(i / NSHAPE % 3));
}

/* ---------------------------------------------------------------- sums of rows, bias */

static void one_rows(unsigned i, size_t rows, size_t n, int t)
{
	const enum kn_type type = types[t], gt = types[i / 2 % 3];
	const unsigned flags = i / 3 & 1 ? KN_CU_ADD : 0;
	const size_t shift = shift_of(i), ld = n + (i % 4 == 3 ? 3 : i % 4 * 8);
	struct tg_array x = tg_random(rows * ld, 1, type), b = tg_random(n, 1, type);
	struct tg_array old = tg_random(n, 1, gt);
	double *y = tg_alloc(rows * ld * sizeof(*y)), *sum = tg_alloc(n * sizeof(*sum));

	tg_case("%zu x %zu of %zu %s, gradient %s%s, off by %zu", rows, n, ld, type_names[t],
		type_names[i / 2 % 3], flags ? " added" : "", shift);
	for (int turn = 0; turn < 2; turn++) {
		void *vx, *vb, *vs, *work;

		tg_reset();
		vx = tg_up(&x, shift);
		vb = tg_up(&b, shift);
		vs = gradient(&old, flags, shift);
		work = tg_room(kn_cu_sum_rows_work(rows, n), 0);
		TG(kn_cu_sum_rows(vs, gt, vx, ld, rows, n, type, flags, work, NULL));
		TG(kn_cu_add_bias(vx, ld, vb, rows, n, type, NULL));
		tg_out(turn, 0, vx, bytes_of(x.n, type));
		tg_out(turn, 1, vs, bytes_of(n, gt));
	}
	for (size_t k = 0; k < n; k++)
		sum[k] = flags ? old.d[k] : 0;
	for (size_t r = 0; r < rows; r++) {
		for (size_t k = 0; k < ld; k++)
			y[r * ld + k] = x.d[r * ld + k] + (k < n ? b.d[k] : 0);
		for (size_t k = 0; k < n; k++)
			sum[k] += x.d[r * ld + k];
	}
	tg_near(0, "y", y, x.n, type, type, 1, 1e-3);
	tg_near(1, "sum", sum, n, gt, gt, gt == KN_F32 ? 8 : 0.6, 1);
	tg_free(&x);
	tg_free(&b);
	tg_free(&old);
	free(y);
	free(sum);
}

static void rows_and_bias(void)
{
	tg_begin("sum_rows, add_bias");
	for (unsigned i = 0; i < NSHAPE * 6; i++)
		one_rows(i + i / NSHAPE, shapes[i % NSHAPE].rows, shapes[i % NSHAPE].n,
			 (int)(i / NSHAPE % 3));
	for (unsigned i = 0; i < 12; i++)
		one_rows(i, 1000 + 37 * i, 20 + i, (int)(i % 3));
}

/* ---------------------------------------------------------------- heads */

static void rope_tables(struct tg_array *cos_out, struct tg_array *sin_out, size_t tokens, size_t d)
{
	const size_t half = d / 2;

	*cos_out = tg_zeros(tokens * half, KN_F32);
	*sin_out = tg_zeros(tokens * half, KN_F32);
	for (size_t t = 0; t < tokens; t++) {
		for (size_t k = 0; k < half; k++) {
			const double a = (double)t * pow(10000, -2.0 * (double)k / (double)d);

			cos_out->f[t * half + k] = (float)cos(a);
			sin_out->f[t * half + k] = (float)sin(a);
		}
	}
	tg_settle(cos_out);
	tg_settle(sin_out);
}

struct heads {
	struct kn_cu_qk s;
	int norm, t, in_place;
	unsigned flags;
	size_t shift;
	enum kn_type gt;
	struct tg_array qkv, wq, wk, cos, sin, dq, dk, oldq, oldk;
};

/* Query (first 0) or key heads of 'from', rows ld apart, close together. */
static void pick(double *to, const double *from, size_t rows, size_t ld, size_t first, size_t count)
{
	for (size_t r = 0; r < rows; r++)
		memcpy(to + r * count, from + r * ld + first, count * sizeof(*to));
}

/* Back to where they were. */
static void place(double *to, const double *from, size_t rows, size_t ld, size_t first,
		  size_t count)
{
	for (size_t r = 0; r < rows; r++)
		memcpy(to + r * ld + first, from + r * count, count * sizeof(*to));
}

static void heads_forward(struct heads *h)
{
	const struct kn_cu_qk *s = &h->s;
	const size_t nq = s->heads * s->d, nk = s->kv_heads * s->d;

	for (int turn = 0; turn < 2; turn++) {
		void *q, *k, *in, *wq, *wk, *c, *n;

		tg_reset();
		in = tg_up(&h->qkv, h->shift);
		wq = h->norm ? tg_up(&h->wq, h->shift) : NULL;
		wk = h->norm ? tg_up(&h->wk, h->shift) : NULL;
		c = tg_up(&h->cos, 0);
		n = tg_up(&h->sin, 0);
		q = tg_up(&h->dq, h->shift);
		k = tg_up(&h->dk, h->shift);
		TG(kn_cu_qk(s, q, k, in, wq, wk, c, n, NULL));
		tg_out(turn, 0, q, bytes_of(h->dq.n, s->type));
		tg_out(turn, 1, k, bytes_of(h->dk.n, s->type));
	}
	for (int key = 0; key < 2; key++) {
		const size_t heads = key ? s->kv_heads : s->heads, n = key ? nk : nq;
		const size_t ld = key ? s->ldk : s->ldq;
		const struct tg_array *was = key ? &h->dk : &h->dq;
		double *x = tg_alloc(s->rows * n * sizeof(*x));
		double *rstd = tg_alloc(s->rows * heads * sizeof(*rstd));
		double *want = tg_alloc(was->n * sizeof(*want));

		pick(x, h->qkv.d, s->rows, s->ld, key ? nq : 0, n);
		if (h->norm)
			kn_ref_rmsnorm(x, rstd, x, key ? h->wk.d : h->wq.d, s->rows * heads, s->d,
				       (double)s->eps);
		kn_ref_rope(x, h->cos.d, h->sin.d, s->rows, 0, s->tokens, heads, s->d, 1);
		/* bytes between rows are unchanged */
		memcpy(want, was->d, was->n * sizeof(*want));
		place(want, x, s->rows, ld, 0, n);
		tg_near(key, key ? "k" : "q", want, was->n, s->type, s->type,
			s->type == KN_F32 ? 8 : 3, 1e-2);
		free(x);
		free(rstd);
		free(want);
	}
}

static void heads_back_run(struct heads *h, const struct tg_array *dqkv)
{
	const struct kn_cu_qk *s = &h->s;
	const size_t size = kn_type_size(s->type);

	for (int turn = 0; turn < 2; turn++) {
		char *out, *dq, *dk;
		void *in = NULL, *wq = NULL, *wk = NULL, *c, *n, *gq = NULL, *gk = NULL, *w = NULL;

		tg_reset();
		out = tg_up(dqkv, h->shift);
		dq = h->in_place ? out : tg_up(&h->dq, h->shift);
		dk = h->in_place ? out + s->heads * s->d * size : tg_up(&h->dk, h->shift);
		c = tg_up(&h->cos, 0);
		n = tg_up(&h->sin, 0);
		if (h->norm) {
			in = tg_up(&h->qkv, h->shift);
			wq = tg_up(&h->wq, h->shift);
			wk = tg_up(&h->wk, h->shift);
			gq = gradient(&h->oldq, h->flags, h->shift);
			gk = gradient(&h->oldk, h->flags, h->shift);
			w = tg_room(kn_cu_qk_back_work(s), 0);
		}
		TG(kn_cu_qk_back(s, out, gq, gk, h->gt, dq, dk, in, wq, wk, c, n, h->flags, w,
				 NULL));
		tg_out(turn, 0, out, bytes_of(dqkv->n, s->type));
		if (!h->norm)
			continue;
		tg_out(turn, 1, gq, bytes_of(s->d, h->gt));
		tg_out(turn, 2, gk, bytes_of(s->d, h->gt));
	}
}

static void heads_backward(struct heads *h)
{
	const struct kn_cu_qk *s = &h->s;
	const size_t nq = s->heads * s->d, nk = s->kv_heads * s->d;
	struct tg_array dqkv = tg_random(s->rows * s->ld, 1, s->type);
	double *want = tg_alloc(dqkv.n * sizeof(*want));

	if (h->in_place) {
		h->s.ldq = h->s.ldk = s->ld;
		tg_free(&h->dq);
		tg_free(&h->dk);
		h->dq = tg_random(s->rows * s->ld, 1, s->type);
		h->dk = tg_zeros(0, s->type);
		memcpy(dqkv.f, h->dq.f, dqkv.n * sizeof(float));
		tg_settle(&dqkv);
	}
	heads_back_run(h, &dqkv);
	memcpy(want, dqkv.d, dqkv.n * sizeof(*want));
	for (int key = 0; key < 2; key++) {
		const size_t heads = key ? s->kv_heads : s->heads, n = key ? nk : nq;
		const struct tg_array *old = key ? &h->oldk : &h->oldq;
		double *x = tg_alloc(s->rows * n * sizeof(*x));
		double *dy = tg_alloc(s->rows * n * sizeof(*dy));
		double *dw = tg_alloc(s->d * sizeof(*dw));

		pick(x, h->qkv.d, s->rows, s->ld, key ? nq : 0, n);
		if (h->in_place)
			pick(dy, dqkv.d, s->rows, s->ld, key ? nq : 0, n);
		else
			pick(dy, key ? h->dk.d : h->dq.d, s->rows, key ? s->ldk : s->ldq, 0, n);
		kn_ref_rope(dy, h->cos.d, h->sin.d, s->rows, 0, s->tokens, heads, s->d, -1);
		for (size_t k = 0; k < s->d; k++)
			dw[k] = h->flags ? old->d[k] : 0;
		if (h->norm)
			kn_ref_rmsnorm_back(dy, dw, dy, x, key ? h->wk.d : h->wq.d,
					    s->rows * heads, s->d, (double)s->eps);
		place(want, dy, s->rows, s->ld, key ? nq : 0, n);
		if (h->norm)
			tg_near(1 + key, key ? "dwk" : "dwq", dw, s->d, h->gt,
				tg_coarser(s->type, h->gt), dw_units(s->type, h->gt), 1);
		free(x);
		free(dy);
		free(dw);
	}
	tg_near(0, "dqkv", want, dqkv.n, s->type, s->type, s->type == KN_F32 ? 32 : 6, 1e-2);
	tg_free(&dqkv);
	free(want);
}

static void one_heads(unsigned i, size_t rows, size_t d, size_t kv_heads, size_t group)
{
	struct heads h = { .norm = i % 3 != 0, .t = (int)(i / 2 % 3), .in_place = i / 4 & 1,
			   .flags = i / 3 & 1 ? KN_CU_ADD : 0, .shift = shift_of(i / 3),
			   .gt = types[i % 3] };
	struct kn_cu_qk *s = &h.s;

	s->rows = rows;
	s->tokens = i % 4 ? rows / 2 + 1 : rows;
	s->heads = kv_heads * group;
	s->kv_heads = kv_heads;
	s->d = d;
	s->ld = (s->heads + 2 * kv_heads) * d + (i % 5 == 0 ? 8 : i % 5 == 1 ? 3 : 0);
	s->ldq = s->heads * d + (i % 7 == 0 ? 8 : 0);
	s->ldk = kv_heads * d + (i % 7 == 1 ? 16 : 0);
	s->eps = 1e-6f;
	s->type = types[h.t];
	h.qkv = tg_random(rows * s->ld, 1.5, s->type);
	h.wq = tg_random(d, 1, s->type);
	h.wk = tg_random(d, 1, s->type);
	h.dq = tg_random(rows * s->ldq, 1, s->type);
	h.dk = tg_random(rows * s->ldk, 1, s->type);
	h.oldq = tg_random(d, 1, h.gt);
	h.oldk = tg_random(d, 1, h.gt);
	rope_tables(&h.cos, &h.sin, s->tokens, d);
	tg_case("%zu rows of %zu, %zu + 2 x %zu heads of %zu, %s, norm %d, in place %d, ld %zu "
		"%zu %zu, off by %zu", rows, s->tokens, s->heads, kv_heads, d, type_names[h.t],
		h.norm, h.in_place, s->ld, s->ldq, s->ldk, h.shift);
	heads_forward(&h);
	heads_backward(&h);
	tg_free(&h.qkv);
	tg_free(&h.wq);
	tg_free(&h.wk);
	tg_free(&h.dq);
	tg_free(&h.dk);
	tg_free(&h.oldq);
	tg_free(&h.oldk);
	tg_free(&h.cos);
	tg_free(&h.sin);
}

static void heads(void)
{
	static const size_t ds[] = { 2, 6, 16, 24, 32, 48, 64, 80, 96, 128, 256, 320, 512 };
	static const size_t rows[] = { 1, 2, 7, 33 }, kvs[] = { 1, 2, 3 };
	static const size_t groups[] = { 1, 2, 4, 7 };
	struct kn_cu_qk odd = { 1, 1, 1, 1, 3, 9, 3, 3, 1e-6f, KN_F32, NULL };

	tg_begin("qk, qk_back");
	for (unsigned i = 0; i < 13 * 18; i++)
		one_heads(i, rows[i / 5 % 4], ds[i % 13], kvs[i / 4 % 3], groups[i / 3 % 4]);
	for (unsigned i = 0; i < 18; i++)
		one_heads(i, 1100 + 30 * i, i & 1 ? 16 : 6, 1, 1 + i % 2);
	for (unsigned i = 0; i < 6; i++)
		one_heads(i, 1040, i & 1 ? 128 : 64, 2, 4);
	tg_check(kn_cu_qk(&odd, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) != 0,
		 "an odd d was taken");
}

int main(int argc, char **argv)
{
	tg_open((size_t)256 << 20);
	norms();
	norms_back();
	rows_and_bias();
	heads();
	tg_test_more_kernels();
	if (argc > 1 && !strcmp(argv[1], "--bench"))
		tg_bench_kernels();
	return tg_close();
}
