/*
 * test_kernels_cast.c -- what a conversion must give, told without bit tricks.
 *
 * If this is wrong, converted weights differ from what the training framework computes
 * with in their last digit, or a weight too large for f16 becomes infinite unnoticed.
 *
 * The oracle knows the 16-bit formats only as lists of values that rise with the pattern:
 * the nearest is found by search, a tie goes to the even pattern.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/include/kn.h"
#include "kernels/include/kn_ref.h"

/* value[i] is the number with pattern i; value[inf] is where the next one would be. */
struct list {
	double value[0x8000];
	unsigned inf;
};

static struct list f16_list, bf16_list;

static void fill_list(struct list *l, unsigned mant_bits, int bias, unsigned inf)
{
	for (unsigned i = 0; i <= inf; i++) {
		const unsigned exp = i >> mant_bits;
		const unsigned mant = i & ((1u << mant_bits) - 1);
		const double m = exp ? mant + (double)(1u << mant_bits) : mant;

		l->value[i] = ldexp(m, (int)(exp ? exp : 1) - bias - (int)mant_bits);
	}
	l->inf = inf;
}

static int make_lists(void **state)
{
	(void)state;
	fill_list(&f16_list, 10, 15, 0x7c00);
	fill_list(&bf16_list, 7, 127, 0x7f80);
	return 0;
}

/* The pattern of a number that is not NaN; '*over' counts finite ones that overflow. */
static unsigned nearest(const struct list *l, double x, uint64_t *over)
{
	const unsigned sign = signbit(x) ? 0x8000 : 0;
	const double a = fabs(x);
	unsigned low = 0, high = l->inf;
	double mid;

	if (a >= l->value[high]) {
		*over += !isinf(a);
		return sign | l->inf;
	}
	while (high - low > 1) {
		const unsigned m = (low + high) / 2;

		if (l->value[m] <= a)
			low = m;
		else
			high = m;
	}
	mid = (l->value[low] + l->value[high]) / 2;	/* exact: few bits */
	if (a > mid || (a == mid && (low & 1)))
		low = high;
	*over += low == l->inf;
	return sign | low;
}

static double f32_of(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static uint64_t bits_of(double x)
{
	uint64_t u;

	memcpy(&u, &x, sizeof(u));
	return u;
}

static int is_nan32(uint32_t u)
{
	return (u & 0x7fffffff) > 0x7f800000;
}

/* Every upper half, each with lower halves around the borders of rounding. */
#define NLOW 15
#define NF32 (65536u * NLOW)

static uint32_t f32_pattern(uint32_t i)
{
	static const uint16_t low[NLOW] = {
		0,	0x0001, 0x0fff, 0x1000, 0x1001, 0x1fff, 0x2000, 0x2001,
		0x2fff, 0x3000, 0x3001, 0x7fff, 0x8000, 0x8001, 0xffff,
	};

	return i / NLOW << 16 | low[i % NLOW];
}

static uint32_t *all_f32(void)
{
	uint32_t *src = malloc(NF32 * sizeof(*src));

	assert_non_null(src);
	for (uint32_t i = 0; i < NF32; i++)
		src[i] = f32_pattern(i);
	return src;
}

static void f32_to_16_bits_is_the_nearest_number(void **state)
{
	uint32_t *src = all_f32();
	uint16_t *half = malloc(NF32 * 2), *brain = malloc(NF32 * 2);
	uint64_t over_h = 0, over_b = 0, want_h = 0, want_b = 0;

	(void)state;
	assert_true(half && brain);
	kn_ref_f32_to_f16(half, src, NF32, &over_h);
	kn_ref_f32_to_bf16(brain, src, NF32, &over_b);
	for (uint32_t i = 0; i < NF32; i++) {
		const uint32_t u = src[i];
		unsigned h = (u >> 16 & 0x8000) | 0x7e00 | (u >> 13 & 0x3ff);
		unsigned b = 0x7fc0;

		if (!is_nan32(u)) {
			h = nearest(&f16_list, f32_of(u), &want_h);
			b = nearest(&bf16_list, f32_of(u), &want_b);
		}
		if (half[i] != h || brain[i] != b)
			fail_msg("f32 %08x: f16 %04x want %04x, bf16 %04x want %04x", u,
				 half[i], h, brain[i], b);
	}
	assert_int_equal(over_h, want_h);
	assert_int_equal(over_b, want_b);
	assert_true(want_h > 0 && want_b > 0);
	free(src);
	free(half);
	free(brain);
}

static void every_16_bit_pattern_widens_to_its_value(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 65536; i++) {
		const uint16_t p = (uint16_t)i;
		const double sign = i & 0x8000 ? -1 : 1;
		const unsigned m = i & 0x7fff;
		uint32_t h, b;

		kn_ref_f16_to_f32(&h, &p, 1);
		kn_ref_bf16_to_f32(&b, &p, 1);
		assert_int_equal(b, i << 16);
		if (m < 0x7c00)
			assert_int_equal(bits_of(f32_of(h)),
					 bits_of(sign * f16_list.value[m]));
		else if (m == 0x7c00)
			assert_int_equal(h, (i & 0x8000) << 16 | 0x7f800000);
		else
			assert_int_equal(h, (i & 0x8000) << 16 | 0x7fc00000 |
						    (i & 0x3ff) << 13);
		if (m < 0x7f80)
			assert_int_equal(bits_of(f32_of(b)),
					 bits_of(sign * bf16_list.value[m]));
	}
}

static void every_16_bit_pattern_survives_f32_and_f64(void **state)
{
	static const enum kn_type half[2] = { KN_F16, KN_BF16 };
	static const enum kn_type wide[2] = { KN_F32, KN_F64 };
	static uint16_t src[65536], back[65536];
	static uint64_t mid[65536];

	(void)state;
	for (uint32_t i = 0; i < 65536; i++)
		src[i] = (uint16_t)i;
	for (unsigned k = 0; k < 4; k++) {
		const enum kn_type h = half[k & 1], w = wide[k >> 1];
		const unsigned inf = h == KN_F16 ? 0x7c00 : 0x7f80;
		uint64_t over = 0;

		assert_int_equal(kn_cast(mid, w, src, h, 65536, &over), 0);
		assert_int_equal(kn_cast(back, h, mid, w, 65536, &over), 0);
		assert_int_equal(over, 0);
		for (uint32_t i = 0; i < 65536; i++)
			if ((i & 0x7fff) <= inf)
				assert_int_equal(back[i], i);
			else
				assert_int_equal(back[i], h == KN_F16 ? i | 0x200 : 0x7fc0);
	}
}

static void between_the_16_bit_types_is_the_nearest_number(void **state)
{
	uint64_t over = 0, want = 0, none = 0;

	(void)state;
	for (uint32_t i = 0; i < 65536; i++) {
		const uint16_t p = (uint16_t)i;
		const unsigned m = i & 0x7fff;
		const double sign = i & 0x8000 ? -1.0 : 1.0;
		uint16_t h, b;

		kn_ref_bf16_to_f16(&h, &p, 1, &over);
		kn_ref_f16_to_bf16(&b, &p, 1);
		if (m < 0x7f80)
			assert_int_equal(h, nearest(&f16_list, sign * bf16_list.value[m],
						    &want));
		else
			assert_int_equal(h, (i & 0x8000) | 0x7c00 |
					 (m > 0x7f80 ? 0x200 | (i & 0x7f) << 3 : 0));
		if (m < 0x7c00)
			assert_int_equal(b, nearest(&bf16_list, sign * f16_list.value[m],
						    &none));
		else
			assert_int_equal(b, m > 0x7c00 ? 0x7fc0 : (i & 0x8000) | 0x7f80);
	}
	assert_int_equal(over, want);
	assert_true(want > 0);
	assert_int_equal(none, 0);
}

/* One number of f64 into both 16-bit types and f32. */
static void check_f64(double x)
{
	uint64_t over[3] = { 0, 0, 0 }, want[3] = { 0, 0, 0 };
	const float f = (float)x;
	uint16_t h, b;
	uint32_t s, want_s;

	memcpy(&want_s, &f, sizeof(want_s));
	kn_ref_f64_to_f16(&h, &x, 1, &over[0]);
	kn_ref_f64_to_bf16(&b, &x, 1, &over[1]);
	kn_ref_f64_to_f32(&s, &x, 1, &over[2]);
	assert_int_equal(h, nearest(&f16_list, x, &want[0]));
	assert_int_equal(b, nearest(&bf16_list, x, &want[1]));
	assert_int_equal(s, want_s);
	want[2] = isinf(f) && !isinf(x);
	assert_memory_equal(over, want, sizeof(want));
}

/* Every 16-bit number, every middle between two, and the f64 next to each of these. */
static void f64_to_16_bits_rounds_once(void **state)
{
	const struct list *lists[2] = { &f16_list, &bf16_list };

	(void)state;
	for (unsigned k = 0; k < 2; k++)
		for (unsigned i = 0; i < lists[k]->inf; i++) {
			const double v = lists[k]->value[i];
			const double mid = (v + lists[k]->value[i + 1]) / 2;

			check_f64(v);
			check_f64(-v);
			check_f64(mid);
			check_f64(-mid);
			check_f64(nextafter(mid, 0));
			check_f64(nextafter(mid, INFINITY));
			check_f64(nextafter(v, INFINITY));
		}
	check_f64(INFINITY);
	check_f64(-INFINITY);
	check_f64(1e300);
	check_f64(-1e-310);
	check_f64(5e-324);
	/* By way of f32 this would be a tie, and go to 1. */
	check_f64(1 + 0x1p-8 + 0x1p-40);
	check_f64(1 + 0x1p-11 + 0x1p-40);
}

static void f64_to_f32_and_back_follows_the_language(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < NF32; i += 7) {
		const uint32_t u = f32_pattern(i);
		const double x = f32_of(u);
		const double next = f32_of(u + 1);
		uint64_t wide;
		uint32_t s;

		if (is_nan32(u))
			continue;
		kn_ref_f32_to_f64(&wide, &u, 1);
		assert_int_equal(wide, bits_of(x));
		kn_ref_f64_to_f32(&s, &x, 1, NULL);
		assert_int_equal(s, u);
		if (isinf(x) || isinf(next) || isnan(next))
			continue;
		check_f64((x + next) / 2);
		check_f64(nextafter((x + next) / 2, next));
		check_f64(nextafter((x + next) / 2, x));
	}
	check_f64(0x1.ffffffp127);	/* half a step beyond the largest f32 */
	check_f64(0x1.fffffefffffffp127);
}

static void nan_stays_nan_and_keeps_what_fits(void **state)
{
	static const uint64_t in[3] = { 0x7ff0000000000001, 0xfff8000000000000,
					0xfff123456789abcd };
	static const uint32_t s[3] = { 0x7fc00000, 0xffc00000, 0xffc91a2b };
	static const uint16_t h[3] = { 0x7e00, 0xfe00, 0xfe48 };
	uint64_t over = 0;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		uint32_t r32;
		uint16_t r16;
		uint64_t r64;

		kn_ref_f64_to_f32(&r32, &in[i], 1, &over);
		assert_int_equal(r32, s[i]);
		kn_ref_f64_to_f16(&r16, &in[i], 1, &over);
		assert_int_equal(r16, h[i]);
		kn_ref_f64_to_bf16(&r16, &in[i], 1, &over);
		assert_int_equal(r16, 0x7fc0);
		r32 = s[i] & ~0x400000u;	/* signalling */
		if (!is_nan32(r32))
			r32 |= 1;
		kn_ref_f32_to_f64(&r64, &r32, 1);
		assert_int_equal(r64, ((uint64_t)(r32 >> 31) << 63) | 0x7ff8000000000000 |
				      (uint64_t)(r32 & 0x7fffff) << 29);
	}
	assert_int_equal(over, 0);
}

static void every_pair_of_types_is_the_direct_function(void **state)
{
	static const enum kn_type type[4] = { KN_F64, KN_F32, KN_F16, KN_BF16 };
	const size_t n = 2000;
	uint8_t *src = malloc(8 * n), *got = malloc(8 * n), *via = malloc(8 * n);

	(void)state;
	assert_true(src && got && via);
	for (unsigned s = 0; s < 4; s++)
		for (unsigned d = 0; d < 4; d++) {
			const size_t size = kn_type_size(type[d]);
			uint64_t over = 5;

			/* Numbers around 1: exact in f64, so f64 is a sound detour. */
			for (size_t i = 0; i < n; i++) {
				const double x = ldexp((double)i - 997, -9);

				assert_int_equal(kn_cast(src + i * kn_type_size(type[s]),
							 type[s], &x, KN_F64, 1, NULL), 0);
			}
			assert_int_equal(kn_cast(got, type[d], src, type[s], n, &over), 0);
			for (size_t i = 0; i < n; i++) {
				double x;

				assert_int_equal(kn_cast(&x, KN_F64,
							 src + i * kn_type_size(type[s]),
							 type[s], 1, NULL), 0);
				assert_int_equal(kn_cast(via + i * size, type[d], &x,
							 KN_F64, 1, NULL), 0);
			}
			assert_memory_equal(got, via, n * size);
			assert_int_equal(over, 5);
		}
	free(src);
	free(got);
	free(via);
}

static void overflow_is_added_and_types_are_checked(void **state)
{
	static const float big[5] = { 65519, 65520, -1e9f, INFINITY, 3e38f };
	static const float huge[3] = { 0x1.fep127f, 0x1.fffffep127f, -INFINITY };
	uint64_t over = 10;
	uint16_t out[5];

	(void)state;
	assert_int_equal(kn_cast(out, KN_F16, big, KN_F32, 5, &over), 0);
	assert_int_equal(over, 13);
	assert_int_equal(out[0], 0x7bff);
	assert_int_equal(out[1], 0x7c00);
	assert_int_equal(out[2], 0xfc00);
	assert_int_equal(kn_cast(out, KN_BF16, huge, KN_F32, 3, &over), 0);
	assert_int_equal(over, 14);
	assert_int_equal(kn_cast(out, (enum kn_type)0, big, KN_F32, 5, &over), -1);
	assert_int_equal(kn_cast(out, (enum kn_type)5, big, KN_F32, 5, &over), -1);
	assert_int_equal(kn_cast(out, KN_F16, big, (enum kn_type)9, 5, &over), -1);
	assert_int_equal(kn_cast(NULL, KN_F16, NULL, KN_F32, 0, NULL), 0);
	assert_int_equal(kn_type_size((enum kn_type)7), 0);
	assert_int_equal(over, 14);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(f32_to_16_bits_is_the_nearest_number),
		cmocka_unit_test(every_16_bit_pattern_widens_to_its_value),
		cmocka_unit_test(every_16_bit_pattern_survives_f32_and_f64),
		cmocka_unit_test(between_the_16_bit_types_is_the_nearest_number),
		cmocka_unit_test(f64_to_16_bits_rounds_once),
		cmocka_unit_test(f64_to_f32_and_back_follows_the_language),
		cmocka_unit_test(nan_stays_nan_and_keeps_what_fits),
		cmocka_unit_test(every_pair_of_types_is_the_direct_function),
		cmocka_unit_test(overflow_is_added_and_types_are_checked),
	};

	return cmocka_run_group_tests(tests, make_lists, NULL) ? 1 : 0;
}
