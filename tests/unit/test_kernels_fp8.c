/*
 * test_kernels_fp8.c -- the law of 8-bit numbers (kernels/include/kn_fp8.h): all of them, what is
 * between two of them, the ends, and scales.
 *
 * If this is wrong, kernels on GPUs that keep the law do not compute what fp8 training does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "kernels/include/kn_fp8.h"

/* Codes 0 .. 'most' are the numbers from 0 up. */
static const struct type {
	enum kn_fp8 type;
	uint8_t most;
	float largest, least;	/* the smallest above 0 */
} types[] = { { KN_E4M3, 0x7e, 448, 0x1p-9f }, { KN_E5M2, 0x7b, 57344, 0x1p-16f } };

static void all_numbers(void **state)
{
	(void)state;
	for (int t = 0; t < 2; t++) {
		const struct type *x = &types[t];

		assert_true(kn_fp8_wide(0, x->type) == 0 && kn_fp8_wide(1, x->type) == x->least);
		assert_true(kn_fp8_wide(x->most, x->type) == x->largest);
		for (unsigned c = 0; c <= x->most; c++) {
			const float v = kn_fp8_wide((uint8_t)c, x->type);

			assert_int_equal(kn_fp8_from(v, x->type), c);
			assert_int_equal(kn_fp8_from(-v, x->type), c | 0x80);
			assert_true(kn_fp8_wide((uint8_t)(c | 0x80), x->type) == -v);
			assert_true(!c || v > kn_fp8_wide((uint8_t)(c - 1), x->type));
		}
	}
	assert_true(isnan(kn_fp8_wide(0x7f, KN_E4M3)) && isnan(kn_fp8_wide(0xff, KN_E4M3)));
	assert_true(isinf(kn_fp8_wide(0x7c, KN_E5M2)) && kn_fp8_wide(0xfc, KN_E5M2) < 0);
	assert_true(isnan(kn_fp8_wide(0x7d, KN_E5M2)) && isnan(kn_fp8_wide(0x7f, KN_E5M2)));
}

/* Half-way between two numbers is that of the even code; a bit off it is the nearer. */
static void between_two(void **state)
{
	(void)state;
	for (int t = 0; t < 2; t++)
		for (unsigned c = 0; c < types[t].most; c++) {
			const enum kn_fp8 type = types[t].type;
			const float a = kn_fp8_wide((uint8_t)c, type);
			const float b = kn_fp8_wide((uint8_t)(c + 1), type), half = (a + b) / 2;

			assert_int_equal(kn_fp8_from(half, type), c & 1 ? c + 1 : c);
			assert_int_equal(kn_fp8_from(nextafterf(half, 0), type), c);
			assert_int_equal(kn_fp8_from(nextafterf(half, b), type), c + 1);
			assert_int_equal(kn_fp8_from(-nextafterf(half, b), type), (c + 1) | 0x80);
		}
}

static void the_ends(void **state)
{
	(void)state;
	for (int t = 0; t < 2; t++) {
		const struct type *x = &types[t];

		assert_int_equal(kn_fp8_from(nextafterf(x->largest, INFINITY), x->type), x->most);
		assert_int_equal(kn_fp8_from(INFINITY, x->type), x->most);
		assert_int_equal(kn_fp8_from(-1e30f, x->type), x->most | 0x80);
		assert_int_equal(kn_fp8_from(NAN, x->type), KN_FP8_NAN);
		assert_int_equal(kn_fp8_from(-NAN, x->type), KN_FP8_NAN);
		assert_int_equal(kn_fp8_from(1e-30f, x->type), 0);
		assert_int_equal(kn_fp8_from(-0.f, x->type), 0x80);
	}
}

static void scales(void **state)
{
	(void)state;
	for (int t = 0; t < 2; t++) {
		const struct type *x = &types[t];

		assert_true(kn_fp8_scale(x->largest, x->type) == 1);
		assert_true(kn_fp8_scale(2, x->type) == x->largest / 2);
		/* Zeros and the smallest numbers have a scale; infinities end as NaN. */
		assert_true(isfinite(kn_fp8_scale(0, x->type)));
		assert_true(kn_fp8_scale(0x1p-140f, x->type) == kn_fp8_scale(0, x->type));
		assert_true(kn_fp8_scale(INFINITY, x->type) == 0);
		assert_int_equal(kn_fp8_from(INFINITY * kn_fp8_scale(INFINITY, x->type), x->type),
				 KN_FP8_NAN);
		assert_true(isnan(kn_fp8_scale(NAN, x->type)));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_numbers),
		cmocka_unit_test(between_two),
		cmocka_unit_test(the_ends),
		cmocka_unit_test(scales),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
