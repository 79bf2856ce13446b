/*
 * test_train_laws.c -- each gradient law against differences of its forward law, in double.
 *
 * If this is wrong, everything is compared with a wrong gradient.  For random x, direction u and
 * weights g of the outputs, (g . y(x + e u) - g . y(x - e u)) / 2e is g . y'(x) u, which the
 * backward law gives as its result's product with u.
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
#include "tests/ref/kn_ref_train.h"

#define STEP 1e-5
#define NEAR 1e-8

static uint64_t seed = 1000;

/* Inputs in[0..nin), the outputs' weights, and the gradients that the law gives. */
struct law {
	size_t nin;
	struct te_array in[3], grad[3], weight;
	size_t a, b, c;		/* sizes, by law */
	int32_t target[8];
	/* weighted sum of the outputs */
	double (*value)(const struct law *l);
	void (*gradient)(struct law *l);
};

static void check(struct law *l, const char *name)
{
	l->gradient(l);
	for (size_t i = 0; i < l->nin; i++) {
		struct te_array u = te_random(l->in[i].n, 1, KN_F32, &seed);
		const double want = te_dot(l->grad[i].d, u.d, u.n);
		double up, down, got;

		for (size_t j = 0; j < u.n; j++)
			l->in[i].d[j] += STEP * u.d[j];
		up = l->value(l);
		for (size_t j = 0; j < u.n; j++)
			l->in[i].d[j] -= 2 * STEP * u.d[j];
		down = l->value(l);
		for (size_t j = 0; j < u.n; j++)
			l->in[i].d[j] += STEP * u.d[j];
		got = (up - down) / (2 * STEP);
		if (!(fabs(got - want) <= NEAR * (1 + fabs(want))))
			fail_msg("%s, input %zu: differences %.12g, law %.12g", name, i, got, want);
		assert_true(want != 0);
		te_free(&u);
	}
	for (size_t i = 0; i < l->nin; i++) {
		te_free(&l->in[i]);
		te_free(&l->grad[i]);
	}
	te_free(&l->weight);
}

static void make(struct law *l, size_t i, size_t n)
{
	l->in[i] = te_random(n, 1, KN_F32, &seed);
	l->grad[i] = te_zeros(n);
	l->nin = i + 1;
}

/* ---------------------------------------------------------------- norm: a rows of b */

static double norm_value(const struct law *l)
{
	struct te_array y = te_zeros(l->a * l->b), rstd = te_zeros(l->a);
	double sum;

	kn_ref_rmsnorm(y.d, rstd.d, l->in[0].d, l->in[1].d, l->a, l->b, 1e-3);
	sum = te_dot(y.d, l->weight.d, y.n);
	te_free(&y);
	te_free(&rstd);
	return sum;
}

static void norm_gradient(struct law *l)
{
	kn_ref_rmsnorm_back(l->grad[0].d, l->grad[1].d, l->weight.d, l->in[0].d, l->in[1].d, l->a,
			    l->b, 1e-3);
}

static void norm(void **state)
{
	(void)state;
	for (size_t n = 1; n < 40; n += 6) {
		struct law l = { .a = 3, .b = n, .value = norm_value, .gradient = norm_gradient };

		make(&l, 0, 3 * n);
		make(&l, 1, n);
		l.weight = te_random(3 * n, 1, KN_F32, &seed);
		check(&l, "norm");
	}
}

/* ---------------------------------------------------------------- activation: a elements */

static double act_value(const struct law *l)
{
	struct te_array y = te_zeros(l->a);
	double sum;

	kn_ref_swiglu(y.d, l->in[0].d, l->in[1].d, l->a);
	sum = te_dot(y.d, l->weight.d, y.n);
	te_free(&y);
	return sum;
}

static void act_gradient(struct law *l)
{
	kn_ref_swiglu_back(l->grad[0].d, l->grad[1].d, l->weight.d, l->in[0].d, l->in[1].d, l->a);
}

static void activation(void **state)
{
	struct law l = { .a = 50, .value = act_value, .gradient = act_gradient };

	(void)state;
	make(&l, 0, 50);
	make(&l, 1, 50);
	l.weight = te_random(50, 1, KN_F32, &seed);
	check(&l, "swiglu");
}

/* ---------------------------------------------------------------- attention: t a, group b, d c */

static double attn_value(const struct law *l)
{
	struct te_array o = te_zeros(l->a * l->b * l->c);
	double sum;

	kn_ref_attn(o.d, l->in[0].d, l->in[1].d, l->in[2].d, l->a, l->b, l->c, 0.4);
	sum = te_dot(o.d, l->weight.d, o.n);
	te_free(&o);
	return sum;
}

static void attn_gradient(struct law *l)
{
	kn_ref_attn_back(l->grad[0].d, l->grad[1].d, l->grad[2].d, l->weight.d, l->in[0].d,
			 l->in[1].d, l->in[2].d, l->a, l->b, l->c, 0.4);
}

static void attention(void **state)
{
	(void)state;
	for (size_t t = 2; t < 12; t += 3) {
		struct law l = { .a = t, .b = 1 + t % 3, .c = 2 + t % 5, .value = attn_value,
				 .gradient = attn_gradient };

		make(&l, 0, l.a * l.b * l.c);
		make(&l, 1, l.a * l.c);
		make(&l, 2, l.a * l.c);
		l.weight = te_random(l.in[0].n, 1, KN_F32, &seed);
		check(&l, "attention");
	}
}

/* ---------------------------------------------------------------- loss: a rows of b */

static double loss_value(const struct law *l)
{
	double loss[8], sum = 0;

	kn_ref_xent(NULL, loss, l->in[0].d, l->target, l->a, l->b, 0);
	for (size_t r = 0; r < l->a; r++)
		sum += loss[r] * 0.7;
	return sum;
}

static void loss_gradient(struct law *l)
{
	double loss[8];

	kn_ref_xent(l->grad[0].d, loss, l->in[0].d, l->target, l->a, l->b, 0.7);
}

static void loss(void **state)
{
	struct law l = { .a = 5, .b = 9, .value = loss_value, .gradient = loss_gradient,
			 .target = { 0, 8, -1, 4, 4 } };

	(void)state;
	make(&l, 0, 45);
	l.weight = te_zeros(1);
	check(&l, "cross-entropy");
}

/* ---------------------------------------------------------------- what needs no differences */

/* A rotation's transpose is its inverse: R' R x = x, and lengths stay. */
static void rotation_turns_back(void **state)
{
	struct te_array x = te_random(4 * 3 * 10, 1, KN_F32, &seed), y = te_copy(&x);
	double cos_at[5 * 5], sin_at[5 * 5];

	(void)state;
	for (size_t i = 0; i < 25; i++) {
		cos_at[i] = cos((double)i);
		sin_at[i] = sin((double)i);
	}
	kn_ref_rope(y.d, cos_at, sin_at, 4, 3, 5, 3, 10, 1);
	assert_true(fabs(te_dot(y.d, y.d, y.n) - te_dot(x.d, x.d, x.n)) < 1e-12 * 120);
	assert_true(fabs(y.d[0] - x.d[0]) > 1e-3);
	kn_ref_rope(y.d, cos_at, sin_at, 4, 3, 5, 3, 10, -1);
	for (size_t i = 0; i < x.n; i++)
		assert_true(fabs(y.d[i] - x.d[i]) < 1e-14 * 10);
	te_free(&x);
	te_free(&y);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(norm),
		cmocka_unit_test(activation),
		cmocka_unit_test(attention),
		cmocka_unit_test(loss),
		cmocka_unit_test(rotation_turns_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
