/*
 * test_train_kernels.c -- training kernels against their laws, under every feature mask.
 *
 * If this is wrong, training differs from machine to machine, or a tail of a row is skipped.
 * Each case has random sizes, among them those that hurt; every mask must give the same bits, and
 * the bits must be near the law in double: a few units of the last place of the type, relative to
 * the largest element.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/te_numbers.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/ref/kn_ref_train.h"

static uint64_t seed = 1;

static const enum kn_type types[] = { KN_F32, KN_BF16, KN_F16 };
static const size_t sizes[] = { 1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 24, 31, 33, 48, 63, 64, 100,
				129, 171 };
#define NSIZE (sizeof(sizes) / sizeof(sizes[0]))

/* Sizes in turn, so that each meets others. */
static size_t size_at(size_t i, size_t stride)
{
	return sizes[i * stride % NSIZE];
}

static double worst[8];

/* In units at the largest element, or at 'floor' where that is larger. */
static void near_at(int what, const struct te_array *a, enum kn_type type, double units,
		    double floor)
{
	const double e = te_error(a, floor) / te_unit(type);

	if (e > worst[what])
		worst[what] = e;
	if (!(e <= units))
		print_error("%g units of type %d are off, %g are allowed\n", e, (int)type, units);
	assert_true(e <= units);
}

static void near(int what, const struct te_array *a, enum kn_type type, double units)
{
	near_at(what, a, type, units, 1e-3);
}

/* Runs 'call' under each mask; 'out' must have the bits of the first each time. */
typedef void (*call_fn)(void *arg);

static void under_masks(call_fn call, void *arg, const struct te_array *const *out)
{
	float *first[4] = { NULL };

	for (size_t m = 0; m < te_nmasks; m++) {
		kn_cpu_mask(te_masks[m]);
		call(arg);
		kn_cpu_mask(KN_CPU_ALL);
		for (size_t i = 0; out[i]; i++) {
			const size_t bytes = out[i]->n * sizeof(float);

			if (!m) {
				first[i] = t_alloc(bytes);
				memcpy(first[i], out[i]->f, bytes);
			}
			assert_memory_equal(first[i], out[i]->f, bytes);
		}
	}
	for (size_t i = 0; i < 4; i++)
		free(first[i]);
}

/* ---------------------------------------------------------------- matrices */

typedef void (*gemm_fn)(unsigned flags, size_t m, size_t n, size_t k, const float *a, size_t lda,
			const float *b, size_t ldb, float *c, size_t ldc);

static const gemm_fn gemms[] = { kn_gemm, kn_gemm_own, kn_gemm_bf16 };
enum { LIBRARY, OWN, BF16, NGEMM };

struct gemm {
	unsigned flags;
	size_t m, n, k;
	struct te_array a, b, c, before;
	int which;
};

static void call_gemm(void *arg)
{
	struct gemm *g = arg;
	const size_t lda = g->flags & KN_GEMM_TA ? g->m : g->k;
	const size_t ldb = g->flags & KN_GEMM_TB ? g->k : g->n;

	memcpy(g->c.f, g->before.f, g->c.n * sizeof(float));
	gemms[g->which](g->flags, g->m, g->n, g->k, g->a.f, lda, g->b.f, ldb, g->c.f, g->n);
}

static void one_gemm(unsigned flags, size_t m, size_t n, size_t k, int which)
{
	struct gemm g = { .flags = flags, .m = m, .n = n, .k = k, .which = which };
	const enum kn_type type = which == BF16 ? KN_BF16 : KN_F32;
	const struct te_array *out[] = { &g.c, NULL };

	g.a = te_random(m * k, 1, type, &seed);
	g.b = te_random(k * n, 1, type, &seed);
	g.before = te_random(m * n, 1, KN_F32, &seed);
	g.c = te_copy(&g.before);
	under_masks(call_gemm, &g, out);
	kn_ref_gemm(flags, m, n, k, g.a.d, flags & KN_GEMM_TA ? m : k, g.b.d,
		    flags & KN_GEMM_TB ? k : n, g.c.d, n);
	near(0, &g.c, KN_F32, 4 + 2 * sqrt((double)k));
	te_free(&g.a);
	te_free(&g.b);
	te_free(&g.c);
	te_free(&g.before);
}

static void matrix_products(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 8 * 40; i++)
		one_gemm(i % 8, size_at(i, 7), size_at(i, 3), size_at(i, 11) + (i % 5 ? 0 : 300),
			 i & 8 ? OWN : LIBRARY);
	one_gemm(0, 3, 5, 0, LIBRARY);
	one_gemm(KN_GEMM_ADD, 3, 5, 0, OWN);
	one_gemm(0, 0, 0, 0, LIBRARY);
	one_gemm(KN_GEMM_TB, 200, 70, 520, OWN);
	one_gemm(KN_GEMM_TA, 200, 70, 520, OWN);
}

/* Also with more rows and more depth than a block has. */
static void matrix_products_of_bf16(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 8 * 20; i++)
		one_gemm(i % 8, size_at(i, 7), size_at(i, 3), size_at(i, 11) + (i % 5 ? 0 : 300),
			 BF16);
	for (unsigned flags = 0; flags < 8; flags++)
		one_gemm(flags, 500, 37, 1025, BF16);
	one_gemm(0, 3, 5, 0, BF16);
	one_gemm(KN_GEMM_ADD, 3, 5, 0, BF16);
	one_gemm(0, 0, 0, 0, BF16);
}

/* Rows of a larger matrix: what is beside them is unchanged. */
static void matrix_products_keep_to_their_columns(void **state)
{
	struct te_array a = te_random(7 * 9, 1, KN_BF16, &seed);
	struct te_array b = te_random(9 * 11, 1, KN_BF16, &seed);

	(void)state;
	for (int which = 0; which < NGEMM; which++) {
		struct te_array c = te_zeros(7 * 20);

		for (size_t i = 0; i < c.n; i++)
			c.f[i] = 5;
		gemms[which](0, 7, 11, 9, a.f, 9, b.f, 11, c.f + 4, 20);
		for (size_t i = 0; i < c.n; i++)
			assert_true(i % 20 >= 4 && i % 20 < 15 ? c.f[i] != 5 : c.f[i] == 5);
		te_free(&c);
	}
	te_free(&a);
	te_free(&b);
}

/* ---------------------------------------------------------------- norm */

struct norm {
	size_t rows, n;
	enum kn_type type;
	int add;
	struct te_array x, w, y, rstd, dy, dx, dw, more;
};

static void call_norm(void *arg)
{
	struct norm *c = arg;

	kn_rmsnorm(c->y.f, c->rstd.f, c->x.f, c->w.f, c->rows, c->n, 1e-5f, c->type);
	memset(c->dw.f, 0, c->n * sizeof(float));
	kn_rmsnorm_back(c->dx.f, c->dw.f, c->dy.f, c->x.f, c->rstd.f, c->w.f,
			c->add ? c->more.f : NULL, c->rows, c->n, c->type);
}

static void norms(void **state)
{
	(void)state;
	for (size_t i = 0; i < 120; i++) {
		struct norm c = { .rows = size_at(i, 3) % 9, .n = size_at(i, 1), .add = i & 1,
				  .type = types[i % 3] };
		const struct te_array *out[] = { &c.y, &c.dx, &c.dw, NULL };
		const size_t all = c.rows * c.n;

		c.x = te_random(all, 2, c.type, &seed);
		c.w = te_random(c.n, 1, c.type, &seed);
		c.dy = te_random(all, 1, c.type, &seed);
		c.more = te_random(all, 1, c.type, &seed);
		c.y = te_zeros(all);
		c.dx = te_zeros(all);
		c.dw = te_zeros(c.n);
		c.rstd = te_zeros(c.rows);
		under_masks(call_norm, &c, out);
		kn_ref_rmsnorm(c.y.d, c.rstd.d, c.x.d, c.w.d, c.rows, c.n, (double)1e-5f);
		kn_ref_rmsnorm_back(c.dx.d, c.dw.d, c.dy.d, c.x.d, c.w.d, c.rows, c.n,
				    (double)1e-5f);
		for (size_t j = 0; c.add && j < all; j++)
			c.dx.d[j] += c.more.d[j];
		near(1, &c.y, c.type, 4);
		near(1, &c.dw, c.type, 4);
		/* one element has nowhere to go: its gradient is what rounding leaves */
		if (c.n > 2)
			near(1, &c.dx, c.type, 8);
		te_free(&c.x);
		te_free(&c.w);
		te_free(&c.dy);
		te_free(&c.more);
		te_free(&c.y);
		te_free(&c.dx);
		te_free(&c.dw);
		te_free(&c.rstd);
	}
}

/* ---------------------------------------------------------------- rotation, activation, loss */

struct turn {
	size_t rows, heads, d, first;
	enum kn_type type;
	float sign;
	struct te_array x, before, cos, sin;
};

static void call_turn(void *arg)
{
	struct turn *c = arg;

	memcpy(c->x.f, c->before.f, c->x.n * sizeof(float));
	kn_rope(c->x.f, c->cos.f, c->sin.f, c->rows, c->first, 11, c->heads, c->d, c->sign,
		c->type);
}

static void rotations(void **state)
{
	(void)state;
	for (size_t i = 0; i < 60; i++) {
		struct turn c = { .rows = 1 + i % 13, .heads = 1 + i % 3, .d = 2 * size_at(i, 1),
				  .first = i % 7, .type = types[i % 3], .sign = i & 1 ? -1 : 1 };
		const struct te_array *out[] = { &c.x, NULL };

		c.before = te_random(c.rows * c.heads * c.d, 1, c.type, &seed);
		c.x = te_copy(&c.before);
		c.cos = te_random(11 * c.d / 2, 1, c.type, &seed);
		c.sin = te_random(11 * c.d / 2, 1, c.type, &seed);
		under_masks(call_turn, &c, out);
		kn_ref_rope(c.x.d, c.cos.d, c.sin.d, c.rows, c.first, 11, c.heads, c.d,
			    (double)c.sign);
		near(2, &c.x, c.type, 2);
		te_free(&c.x);
		te_free(&c.before);
		te_free(&c.cos);
		te_free(&c.sin);
	}
}

struct act {
	size_t n;
	enum kn_type type;
	struct te_array g, u, y, dy, dg, du;
};

static void call_act(void *arg)
{
	struct act *c = arg;

	kn_swiglu(c->y.f, c->g.f, c->u.f, c->n, c->type);
	kn_swiglu_back(c->dg.f, c->du.f, c->dy.f, c->g.f, c->u.f, c->n, c->type);
}

static void activations(void **state)
{
	(void)state;
	for (size_t i = 0; i < 90; i++) {
		struct act c = { .n = size_at(i, 1), .type = types[i % 3] };
		const struct te_array *out[] = { &c.y, &c.dg, &c.du, NULL };

		c.g = te_random(c.n, i % 4 ? 2 : 60, c.type, &seed);
		c.u = te_random(c.n, 1, c.type, &seed);
		c.dy = te_random(c.n, 1, c.type, &seed);
		c.y = te_zeros(c.n);
		c.dg = te_zeros(c.n);
		c.du = te_zeros(c.n);
		under_masks(call_act, &c, out);
		kn_ref_swiglu(c.y.d, c.g.d, c.u.d, c.n);
		kn_ref_swiglu_back(c.dg.d, c.du.d, c.dy.d, c.g.d, c.u.d, c.n);
		near(3, &c.y, c.type, 4);
		/* 1 + g (1 - s) cancels near its zero: units of what was subtracted */
		near(3, &c.dg, c.type, i % 4 ? 8 : 64);
		near(3, &c.du, c.type, 4);
		te_free(&c.g);
		te_free(&c.u);
		te_free(&c.dy);
		te_free(&c.y);
		te_free(&c.dg);
		te_free(&c.du);
	}
}

struct loss {
	size_t rows, n;
	enum kn_type type;
	float factor;
	struct te_array l, before, loss;
	int32_t *target;
};

static void call_loss(void *arg)
{
	struct loss *c = arg;

	memcpy(c->l.f, c->before.f, c->l.n * sizeof(float));
	kn_xent(c->l.f, c->loss.f, c->target, c->rows, c->n, &c->factor, c->type);
}

static void losses(void **state)
{
	(void)state;
	for (size_t i = 0; i < 90; i++) {
		struct loss c = { .rows = 1 + i % 7, .n = size_at(i, 1), .type = types[i % 3],
				  .factor = i & 1 ? 128 : 0.02f };
		const struct te_array *out[] = { &c.l, &c.loss, NULL };
		struct te_array alone;

		c.before = te_random(c.rows * c.n, i % 4 ? 3 : 40, c.type, &seed);
		c.l = te_copy(&c.before);
		c.loss = te_zeros(c.rows);
		c.target = t_alloc(c.rows * sizeof(*c.target));
		for (size_t r = 0; r < c.rows; r++)
			c.target[r] = r == 2 ? -1 : (int32_t)((r * 31 + i) % c.n);
		under_masks(call_loss, &c, out);
		kn_ref_xent(c.l.d, c.loss.d, c.before.d, c.target, c.rows, c.n, (double)c.factor);
		near(4, &c.l, c.type, 8);
		/* a difference of logits, in units of those */
		near_at(4, &c.loss, KN_F32, 4, i % 4 ? 3 : 40);
		/* without a gradient the losses are the same */
		alone = te_copy(&c.loss);
		memcpy(c.l.f, c.before.f, c.l.n * sizeof(float));
		kn_xent(c.l.f, alone.f, c.target, c.rows, c.n, NULL, c.type);
		assert_memory_equal(alone.f, c.loss.f, c.rows * sizeof(float));
		te_free(&alone);
		te_free(&c.before);
		te_free(&c.l);
		te_free(&c.loss);
		free(c.target);
	}
}

/* ---------------------------------------------------------------- attention */

struct attn {
	struct kn_attn s;
	struct te_array q, k, v, o, stat, go, dq, dk, dv;
	float *work;
};

static void call_attn(void *arg)
{
	struct attn *c = arg;

	kn_attn(&c->s, c->o.f, c->stat.f, c->q.f, c->k.f, c->v.f, c->work);
	kn_attn_back(&c->s, c->dq.f, c->dk.f, c->dv.f, c->go.f, c->stat.f, c->q.f, c->k.f, c->v.f,
		     c->work);
}

static void attention(void **state)
{
	(void)state;
	for (size_t i = 0; i < 45; i++) {
		const size_t t = size_at(i, 1), group = 1 + i % 4, d = 2 * size_at(i, 7) % 70 + 2;
		struct attn c = { .s = { .t = t, .group = group, .d = d, .ldq = group * d, .ldk = d,
					 .scale = (float)(1 / sqrt((double)d)),
					 .type = types[i % 3] } };
		const struct te_array *out[] = { &c.o, &c.dq, &c.dk, &c.dv, NULL };

		c.q = te_random(t * group * d, 1.5, c.s.type, &seed);
		c.k = te_random(t * d, 1.5, c.s.type, &seed);
		c.v = te_random(t * d, 1, c.s.type, &seed);
		c.go = te_random(t * group * d, 1, c.s.type, &seed);
		c.o = te_zeros(c.q.n);
		c.dq = te_zeros(c.q.n);
		c.dk = te_zeros(c.k.n);
		c.dv = te_zeros(c.k.n);
		c.stat = te_zeros(group * t * 2);
		c.work = t_alloc(kn_attn_work(&c.s) * sizeof(float));
		under_masks(call_attn, &c, out);
		kn_ref_attn(c.o.d, c.q.d, c.k.d, c.v.d, t, group, d, (double)c.s.scale);
		kn_ref_attn_back(c.dq.d, c.dk.d, c.dv.d, c.go.d, c.q.d, c.k.d, c.v.d, t, group, d,
				 (double)c.s.scale);
		near(5, &c.o, c.s.type, 16);
		near(5, &c.dv, c.s.type, 16);
		if (t > 1) {
			near(5, &c.dq, c.s.type, 24);
			near(5, &c.dk, c.s.type, 24);
		}
		te_free(&c.q);
		te_free(&c.k);
		te_free(&c.v);
		te_free(&c.go);
		te_free(&c.o);
		te_free(&c.dq);
		te_free(&c.dk);
		te_free(&c.dv);
		te_free(&c.stat);
		free(c.work);
	}
}

/* ---------------------------------------------------------------- small ones */

struct small {
	size_t n;
	enum kn_type type;
	struct te_array a, b, y, z, sum;
};

static void call_small(void *arg)
{
	struct small *c = arg;

	kn_add(c->y.f, c->a.f, c->b.f, c->n, c->type);
	kn_scale(c->z.f, c->a.f, 0.37f, c->n);
	memset(c->sum.f, 0, c->n * sizeof(float));
	kn_sum_rows(c->sum.f, c->a.f, 1, c->n);
	kn_sum_rows(c->sum.f, c->b.f, 1, c->n);
	kn_add_bias(c->z.f, c->b.f, 1, c->n, KN_F32);
}

static void sums_and_scales(void **state)
{
	(void)state;
	for (size_t i = 0; i < 60; i++) {
		struct small c = { .n = size_at(i, 1), .type = types[i % 3] };
		const struct te_array *out[] = { &c.y, &c.z, &c.sum, NULL };

		c.a = te_random(c.n, 1, c.type, &seed);
		c.b = te_random(c.n, 1, c.type, &seed);
		c.y = te_zeros(c.n);
		c.z = te_zeros(c.n);
		c.sum = te_zeros(c.n);
		under_masks(call_small, &c, out);
		for (size_t j = 0; j < c.n; j++) {
			c.y.d[j] = c.sum.d[j] = c.a.d[j] + c.b.d[j];
			c.z.d[j] = (double)0.37f * c.a.d[j] + c.b.d[j];
		}
		near(6, &c.y, c.type, 1);
		near(6, &c.z, KN_F32, 2);
		near(6, &c.sum, KN_F32, 1);
		te_free(&c.a);
		te_free(&c.b);
		te_free(&c.y);
		te_free(&c.z);
		te_free(&c.sum);
	}
}

/* kn_round() is the cast of kn.h there and back, for every upper half and the borders below. */
static void rounding_is_the_cast(void **state)
{
	static const uint32_t low[] = { 0,	1,	0x0fff, 0x1000, 0x1001,
					0x7fff, 0x8000, 0x8001, 0xffff };
	const size_t nlow = sizeof(low) / sizeof(low[0]), n = 65536 * nlow;
	float *x = t_alloc(n * sizeof(*x)), *y = t_alloc(n * sizeof(*y)), *z = t_alloc(n * 4);
	uint16_t *h = t_alloc(n * sizeof(*h));

	(void)state;
	for (size_t i = 0; i < n; i++) {
		const uint32_t u = (uint32_t)(i / nlow) << 16 | low[i % nlow];

		memcpy(&x[i], &u, 4);
	}
	for (size_t m = 0; m < te_nmasks * 2; m++) {
		const enum kn_type type = m & 1 ? KN_F16 : KN_BF16;

		kn_cpu_mask(te_masks[m / 2]);
		memcpy(y, x, n * sizeof(*y));
		kn_round(y, n, type);
		kn_cpu_mask(KN_CPU_ALL);
		kn_cast(h, type, x, KN_F32, n, NULL);
		kn_cast(z, KN_F32, h, type, n, NULL);
		for (size_t i = 0; i < n; i++)
			if (memcmp(&y[i], &z[i], 4) && !(isnan(y[i]) && isnan(z[i])))
				fail_msg("%a becomes %a as type %d, the cast gives %a",
					 (double)x[i], (double)y[i], (int)type, (double)z[i]);
	}
	free(x);
	free(y);
	free(z);
	free(h);
}

static void embeddings(void **state)
{
	const int32_t ids[] = { 3, 0, 3, 3, 1 };
	struct te_array table = te_random(5 * 70, 1, KN_F32, &seed);
	struct te_array y = te_zeros(5 * 70), sum = te_zeros(5 * 70);

	(void)state;
	kn_embed(y.f, table.f, ids, 5, 70);
	for (size_t r = 0; r < 5; r++)
		assert_memory_equal(y.f + r * 70, table.f + ids[r] * 70, 70 * sizeof(float));
	kn_embed_back(sum.f, y.f, ids, 5, 70, 0, 64);
	kn_embed_back(sum.f, y.f, ids, 5, 70, 64, 6);
	for (size_t i = 0; i < 70; i++) {
		assert_true(sum.f[i] == table.f[i] && sum.f[70 + i] == table.f[70 + i]);
		assert_true(sum.f[140 + i] == 0 && sum.f[280 + i] == 0);
		assert_true(sum.f[210 + i] == 2 * table.f[210 + i] + table.f[210 + i]);
	}
	te_free(&table);
	te_free(&y);
	te_free(&sum);
}

static void say_worst(void **state)
{
	static const char *const what[] = { "gemm", "rmsnorm", "rope", "swiglu", "cross-entropy",
					    "attention", "sums" };

	(void)state;
	printf("matrix products by %s, of bf16 by %s; worst errors in units of the last place:\n",
	       kn_gemm_name(), kn_gemm_bf16_name());
	for (size_t i = 0; i < 7; i++) {
		printf("  %-14s %.2f\n", what[i], worst[i]);
		assert_true(worst[i] > 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(matrix_products),
		cmocka_unit_test(matrix_products_keep_to_their_columns),
		cmocka_unit_test(norms),
		cmocka_unit_test(rotations),
		cmocka_unit_test(activations),
		cmocka_unit_test(losses),
		cmocka_unit_test(attention),
		cmocka_unit_test(sums_and_scales),
		cmocka_unit_test(rounding_is_the_cast),
		cmocka_unit_test(embeddings),
		cmocka_unit_test(matrix_products_of_bf16),
		cmocka_unit_test(say_worst),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
