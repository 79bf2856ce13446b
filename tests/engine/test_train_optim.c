/*
 * test_train_optim.c -- Adam, sums of squares, random numbers and dropout by counter.
 *
 * If this is wrong, optimizer states differ from those of torch and DeepSpeed, or a model that is
 * made from a seed is another one on another machine.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/te_numbers.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/ref/kn_ref_train.h"

static uint64_t seed = 2000;

/* ---------------------------------------------------------------- Adam */

struct states {
	struct te_array p, m, v;
};

static struct states states_new(size_t n, uint64_t from)
{
	struct states s = { .p = te_random(n, 1, KN_F32, &from), .m = te_zeros(n),
			    .v = te_zeros(n) };

	return s;
}

static void states_free(struct states *s)
{
	te_free(&s->p);
	te_free(&s->m);
	te_free(&s->v);
}

/* Five updates; element 0 never has a gradient. */
static void five(struct kn_adam how, struct states *s, uint16_t *copy, enum kn_type type,
		 uint64_t from)
{
	const size_t n = s->p.n;

	for (how.step = 1; how.step <= 5; how.step++) {
		struct te_array g = te_random(n, 0.5, KN_F32, &from);

		if (n)
			g.f[0] = 0;
		if (n)
			g.d[0] = 0;
		kn_adam(&how, s->p.f, s->m.f, s->v.f, g.f, n, copy, type);
		kn_ref_adam(&how, s->p.d, s->m.d, s->v.d, g.d, n);
		te_free(&g);
	}
}

static void one_adam(struct kn_adam how, size_t n, enum kn_type type)
{
	uint16_t *copy = t_alloc(n * sizeof(*copy)), *want = t_alloc(n * sizeof(*want));
	struct states first = states_new(n, 77);

	five(how, &first, copy, type, 88);
	kn_cast(want, type, first.p.f, KN_F32, n, NULL);
	assert_memory_equal(copy, want, n * sizeof(*copy));
	assert_true(te_error(&first.p, 1e-3) < 1e-6);
	assert_true(te_error(&first.m, 1e-3) < 1e-6);
	assert_true(te_error(&first.v, 1e-3) < 1e-6);
	for (size_t m = 0; m < te_nmasks; m++) {
		struct states s = states_new(n, 77);

		kn_cpu_mask(te_masks[m]);
		five(how, &s, NULL, KN_BF16, 88);
		kn_cpu_mask(KN_CPU_ALL);
		assert_memory_equal(s.p.f, first.p.f, n * sizeof(float));
		assert_memory_equal(s.m.f, first.m.f, n * sizeof(float));
		assert_memory_equal(s.v.f, first.v.f, n * sizeof(float));
		states_free(&s);
	}
	states_free(&first);
	free(copy);
	free(want);
}

static void adam_is_the_law_by_each_rule(void **state)
{
	static const size_t n[] = { 0, 1, 15, 16, 17, 1023, 1024, 1025, 2500 };

	(void)state;
	for (size_t i = 0; i < 9 * 12; i++) {
		const struct kn_adam how = {
			.rule = (enum kn_adam_rule)(1 + i % 3), .decoupled = i / 3 % 2,
			.bias_correction = i / 6 % 2, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95,
			.eps = 1e-8, .decay = i % 5 ? 0.1 : 0, .grad_scale = i % 7 ? 0.25f : 1,
		};

		one_adam(how, n[i / 12], i & 1 ? KN_F16 : KN_BF16);
	}
}

/* Five updates by torch 2.11.0 (foreach=False), lr 0.01, betas 0.9, 0.95, decay 0.1. */
static void adam_is_torchs(void **state)
{
	static const float want[2][3][4] = {
		{ { 0x1.cc8bc8p-2f, -0x1.31a0f8p+0f, 0x1.7e1578p+1f, -0x1.659c24p-5f },
		  { 0x1.0d30fp-3f, -0x1.f734b8p-4f, 0x0p+0f, 0x1.5f5adap-2f },
		  { 0x1.ae9ff6p-6f, 0x1.4d92d8p-6f, 0x0p+0f, 0x1.f731d8p-3f } },
		{ { 0x1.ce33f4p-2f, -0x1.33339p+0f, 0x1.7999dcp+1f, -0x1.6624b6p-5f },
		  { 0x1.354e4p-3f, -0x1.62959ap-3f, 0x1.f37feap-4f, 0x1.5e8670p-2f },
		  { 0x1.11f976p-5f, 0x1.4b6e9cp-5f, 0x1.48ec12p-6f, 0x1.f649c4p-3f } },
	};

	(void)state;
	for (int decoupled = 0; decoupled < 2; decoupled++) {
		struct kn_adam how = { .rule = KN_ADAM_TORCH, .decoupled = decoupled,
				       .bias_correction = 1, .lr = 1e-2, .beta1 = 0.9,
				       .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .grad_scale = 1 };
		float p[4] = { 0.5f, -1.25f, 3, 1e-3f }, m[4] = { 0 }, v[4] = { 0 };

		for (how.step = 1; how.step <= 5; how.step++) {
			const float k = (float)how.step;
			const float g[4] = { (float)(0.1 * (double)k), -0.3f, 0, 2 / k };

			kn_adam(&how, p, m, v, g, 4, NULL, KN_F32);
		}
		for (size_t i = 0; i < 4; i++) {
			assert_true(fabsf(p[i] - want[!decoupled][0][i]) <= 4e-7f * fabsf(p[i]));
			assert_true(fabsf(m[i] - want[!decoupled][1][i]) <= 4e-7f * fabsf(m[i]));
			assert_true(fabsf(v[i] - want[!decoupled][2][i]) <= 4e-7f * fabsf(v[i]));
		}
	}
}

/*
 * Five updates of 40 elements by DeepSpeedCPUAdam of DeepSpeed 0.19.8 on a CPU with AVX-512, lr
 * 0.01, betas 0.9, 0.95, decay 0.1: elements 0 to 3, 15, 16, 33, 39.  It fuses products and sums.
 */
static void adam_is_deepspeeds_on_a_cpu(void **state)
{
	static const size_t at[8] = { 0, 1, 2, 3, 15, 16, 33, 39 };
	static const float want[2][3][8] = {
		{
		  { -0x1.ee5c7cp-1f, -0x1.1a5dp-2f, 0x1.f0484ap-2f, -0x1.a37beep-1f,
		    0x1.e4e428p-10f, 0x1.749f5ap-1f, -0x1.946ab6p-1f, -0x1.a9933p-2f },
		  { -0x1.8d7c2ap-7f, -0x1.fb8788p-6f, 0x1.6265eap-4f, -0x1.e2c53ap-7f,
		    0x1.0ffa66p-7f, 0x1.2028c8p-6f, 0x1.06582p-7f, -0x1.b2e7fcp-5f },
		  { 0x1.e54e1ap-7f, 0x1.5e1f04p-6f, 0x1.7160bp-6f, 0x1.517e6p-6f,
		    0x1.49f238p-6f, 0x1.2807eap-6f, 0x1.d36c0ap-7f, 0x1.9371d6p-6f },
		},
		{
		  { -0x1.f0c018p-1f, -0x1.1b7492p-2f, 0x1.f5a036p-2f, -0x1.a50a3cp-1f,
		    0x1.fe98bap-10f, 0x1.7733p-1f, -0x1.9702cap-1f, -0x1.ad99fcp-2f },
		  { 0x1.cad5fp-6f, -0x1.43531ep-6f, 0x1.0ff5f8p-4f, 0x1.31aecep-6f,
		    0x1.068cp-7f, -0x1.9482c4p-7f, 0x1.4e40ap-5f, -0x1.26ee16p-5f },
		  { 0x1.e167f2p-7f, 0x1.52cee2p-6f, 0x1.339b1ap-6f, 0x1.5aaba6p-6f,
		    0x1.490554p-6f, 0x1.235c74p-6f, 0x1.ff87a8p-7f, 0x1.757b7ap-6f },
		},
	};

	(void)state;
	for (int decoupled = 0; decoupled < 2; decoupled++) {
		struct kn_adam how = { .rule = KN_ADAM_CPU, .decoupled = decoupled,
				       .bias_correction = 1, .lr = 1e-2, .beta1 = 0.9,
				       .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .grad_scale = 1 };
		float p[40], m[40] = { 0 }, v[40] = { 0 }, g[40];

		for (unsigned i = 0; i < 40; i++)
			p[i] = (float)(i * 37 % 101 / 50.0 - 1);
		for (how.step = 1; how.step <= 5; how.step++) {
			const unsigned k = (unsigned)how.step * 17;

			for (unsigned i = 0; i < 40; i++)
				g[i] = (float)(((i * 53 + k) % 97 / 48.0 - 1) / 2);
			kn_adam(&how, p, m, v, g, 40, NULL, KN_F32);
		}
		for (size_t i = 0; i < 8; i++) {
			assert_true(fabsf(p[at[i]] - want[decoupled][0][i]) <= 2.4e-7f);
			assert_true(fabsf(m[at[i]] - want[decoupled][1][i]) <= 5e-8f);
			assert_true(fabsf(v[at[i]] - want[decoupled][2][i]) <= 4e-7f * v[at[i]]);
		}
	}
}

/* ---------------------------------------------------------------- sums */

static void sums_of_squares_are_by_chunk(void **state)
{
	static const size_t n[] = { 0, 1, 16, 99, 100, 101, 1000, 1037 };

	(void)state;
	for (size_t i = 0; i < 8 * te_nmasks; i++) {
		struct te_array x = te_random(n[i % 8], 3, KN_F32, &seed);
		double first[11], got[11] = { 0 }, shifted[11] = { 0 };

		kn_sumsq(first, x.f, x.n, 100);
		kn_cpu_mask(te_masks[i / 8]);
		kn_sumsq(got, x.f, x.n, 100);
		/* a rank that begins at the third chunk finds the same sums */
		if (x.n > 200)
			kn_sumsq(shifted, x.f + 200, x.n - 200, 100);
		kn_cpu_mask(KN_CPU_ALL);
		for (size_t c = 0; c * 100 < x.n; c++) {
			const size_t left = x.n - c * 100;
			const double want = te_dot(x.d + c * 100, x.d + c * 100,
						   left < 100 ? left : 100);

			assert_true(got[c] == first[c]);
			assert_true(fabs(got[c] - want) <= 1e-13 * want);
			assert_true(c < 2 || got[c] == shifted[c - 2]);
		}
		te_free(&x);
	}
}

static void tree_sums(void **state)
{
	double none[1] = { 5 }, one[1] = { 5 }, five[5] = { 1, 2, 3, 4, 5 };
	double order[3] = { 0x1p53, 1, 1 }, pairs[4] = { 0x1p53, 0, 1, 1 };

	(void)state;
	assert_true(kn_tree_sum(none, 0) == 0);
	assert_true(kn_tree_sum(one, 1) == 5);
	assert_true(kn_tree_sum(five, 5) == 15);
	assert_true(kn_tree_sum(order, 3) == 0x1p53);		/* (2^53 + 1) + 1 */
	assert_true(kn_tree_sum(pairs, 4) == 0x1p53 + 2);	/* (2^53 + 0) + (1 + 1) */
}

static void infinite_and_nan_are_found_anywhere(void **state)
{
	static const float bad[] = { INFINITY, -INFINITY, NAN };

	(void)state;
	for (size_t i = 0; i < 40 * 3 * te_nmasks; i++) {
		struct te_array x = te_random(1 + i % 40, 1, KN_F32, &seed);

		kn_cpu_mask(te_masks[i / 120]);
		x.f[0] = 3.4e38f;
		assert_true(kn_all_finite(x.f, x.n));
		x.f[i * 7 % x.n] = bad[i / 40 % 3];
		assert_false(kn_all_finite(x.f, x.n));
		kn_cpu_mask(KN_CPU_ALL);
		te_free(&x);
	}
	assert_true(kn_all_finite(NULL, 0));
}

/* ---------------------------------------------------------------- randomness */

/* The paper's known answer: counter 0, key 0. */
static void bits_are_philox(void **state)
{
	uint64_t two[2], ones[2];

	(void)state;
	kn_random_bits(two, 2, 0, 0, 0);
	assert_true(two[0] == 0xe169c58d6627e8d5u && two[1] == 0x9b00dbd8bc57ac4cu);
	/* counter and key of ones need a block number above 2^63, beyond elements: halves differ */
	kn_random_bits(ones, 2, UINT64_MAX, UINT64_MAX, 0);
	assert_true(ones[0] != two[0] && ones[0] != ones[1]);
}

static void any_piece_has_the_bits_of_the_whole(void **state)
{
	float whole[100], piece[100];

	(void)state;
	kn_random_normal(whole, 100, 42, 7, 1000, 0, 0.02);
	for (uint64_t first = 0; first < 100; first += 13) {
		kn_random_normal(piece, 100 - first, 42, 7, 1000 + first, 0, 0.02);
		assert_memory_equal(piece, whole + first, (100 - first) * sizeof(float));
	}
	kn_random_normal(piece, 100, 42, 8, 1000, 0, 0.02);
	assert_memory_not_equal(piece, whole, sizeof(whole));
	kn_random_normal(piece, 100, 43, 7, 1000, 0, 0.02);
	assert_memory_not_equal(piece, whole, sizeof(whole));
}

/* The distribution of each number's normal value is the uniform number it was made of. */
static void numbers_are_normal(void **state)
{
	enum { N = 200000 };
	float *z = t_alloc(N * sizeof(*z));
	uint64_t *u = t_alloc(N * sizeof(*u));
	double sum = 0, squares = 0, fourth = 0;

	(void)state;
	kn_random_normal(z, N, 3, 0, 0, 0, 1);
	kn_random_bits(u, N, 3, 0, 0);
	for (size_t i = 0; i < N; i++) {
		const double p = ((double)(u[i] >> 12) + 0.5) * 0x1p-52, x = (double)z[i];
		const double tail = p < 0.5 ? p : 1 - p;

		assert_true(fabs(0.5 * erfc(fabs(x) / sqrt(2.0)) - tail) <=
			    1e-6 * tail * (1 + x * x));
		sum += x;
		squares += x * x;
		fourth += x * x * x * x;
	}
	assert_true(fabs(sum / N) < 0.01);
	assert_true(fabs(squares / N - 1) < 0.02);
	assert_true(fabs(fourth / N - 3) < 0.1);
	free(z);
	free(u);
}

static void logarithm(void **state)
{
	uint64_t u[1000];

	(void)state;
	kn_random_bits(u, 1000, 5, 0, 0);
	for (size_t i = 0; i < 1000; i++) {
		uint64_t b = u[i] >> 1;
		double x, want;

		if (i % 3 == 0)
			b = 0x3ff0000000000000u + (b >> 12) - (b & 0xfffff);
		memcpy(&x, &b, sizeof(x));
		if (!isfinite(x) || x <= 0)
			continue;
		want = log(x);
		assert_true(fabs(kn_log(x) - want) <= 0x1p-51 * fabs(want));
	}
	assert_true(kn_log(1) == 0);
	assert_true(kn_log(0) == -(double)INFINITY && kn_log((double)INFINITY) == (double)INFINITY);
	assert_true(isnan(kn_log(-1)) && isnan(kn_log((double)NAN)));
	assert_true(fabs(kn_log(0x1p-1074) - log(0x1p-1074)) < 1e-12);
}

/* ---------------------------------------------------------------- dropout */

/* Element k of (sample, position), by the words of kn_random_bits(). */
static bool is_dropped(const struct kn_dropout *d, uint64_t sample, uint64_t position, size_t k)
{
	uint64_t u[2];

	kn_random_bits(u, 2, d->seed, sample, 2 * (position << 32 | k / 8));
	return (u[k / 4 % 2] >> 16 * (k % 4) & 0xffff) < d->below;
}

/* Rows from 'first' on, in any blocks, in place or not, added or not: the law of each element. */
static void one_dropout(double p, size_t first, size_t rows, size_t n, uint32_t tokens,
			enum kn_type type)
{
	const struct kn_dropout d = { .seed = seed, .sample = (1ull << 32) - 3, .tokens = tokens,
				      .below = kn_dropout_below(p) };
	const float scale = 65536.0f / (float)(65536 - d.below);
	uint64_t from = seed++;
	struct te_array x = te_random(rows * n, 1, type, &from), add = te_random(rows * n, 1, type,
										 &from);
	float *plain = t_alloc((rows * n + 1) * sizeof(float)), *sum = t_alloc((rows * n + 1) *
									     sizeof(float));
	size_t dropped = 0;

	kn_dropout(plain, x.f, NULL, first, rows, n, &d, type);
	memcpy(sum, add.f, rows * n * sizeof(float));
	for (size_t r = 0; r < rows; r++)	/* a row at a time, into what is added to */
		kn_dropout(sum + r * n, x.f + r * n, sum + r * n, first + r, 1, n, &d, type);
	for (size_t i = 0; i < rows * n; i++) {
		const size_t row = first + i / n;
		const bool gone = is_dropped(&d, d.sample + row / tokens, row % tokens, i % n);
		float want[2] = { gone ? 0 : x.f[i] * scale, add.f[i] };

		want[1] += want[0];
		kn_round(want, 2, type);
		assert_true(plain[i] == want[0]);
		assert_true(sum[i] == want[1]);
		dropped += gone;
	}
	/* six deviations */
	if (rows * n > 1000)
		assert_true(fabs((double)dropped - p * (double)(rows * n)) <
			    6 * sqrt(p * (1 - p) * (double)(rows * n)));
	kn_dropout(x.f, x.f, NULL, first, rows, n, &d, type);
	assert_memory_equal(x.f, plain, rows * n * sizeof(float));
	te_free(&x);
	te_free(&add);
	free(plain);
	free(sum);
}

static void what_is_dropped_depends_on_its_place_alone(void **state)
{
	(void)state;
	one_dropout(0.05, 0, 40, 96, 7, KN_F32);
	one_dropout(0.5, 13, 33, 129, 5, KN_BF16);
	one_dropout(0.9, 1, 6, 333, 1, KN_F16);
	one_dropout(0.25, 3, 5, 1, 2, KN_F32);
	one_dropout(0.25, 3, 0, 8, 2, KN_F32);
	assert_int_equal(kn_dropout_below(0), 0);
	assert_int_equal(kn_dropout_below(0.5), 32768);
	assert_int_equal(kn_dropout_below(0.9999999), 65535);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(adam_is_the_law_by_each_rule),
		cmocka_unit_test(adam_is_torchs),
		cmocka_unit_test(adam_is_deepspeeds_on_a_cpu),
		cmocka_unit_test(sums_of_squares_are_by_chunk),
		cmocka_unit_test(tree_sums),
		cmocka_unit_test(infinite_and_nan_are_found_anywhere),
		cmocka_unit_test(bits_are_philox),
		cmocka_unit_test(any_piece_has_the_bits_of_the_whole),
		cmocka_unit_test(numbers_are_normal),
		cmocka_unit_test(logarithm),
		cmocka_unit_test(what_is_dropped_depends_on_its_place_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
