/*
 * Two arrays compared.  If this fails, `zckpt diff` misses an element that differs, or tells
 * distances that are not there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/include/kn.h"
#include "kernels/include/kn_ref.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_raw.h"

static const struct kn_diff_how plain = { .parts = 1 };

static const enum kn_num all_types[] = {
	KN_NUM_F64, KN_NUM_F32, KN_NUM_F16, KN_NUM_BF16, KN_NUM_F8_E4M3, KN_NUM_F8_E5M2,
	KN_NUM_F8_E4M3FNUZ, KN_NUM_F8_E5M2FNUZ, KN_NUM_F8_E8M0, KN_NUM_I8, KN_NUM_I16,
	KN_NUM_I32, KN_NUM_I64, KN_NUM_U8, KN_NUM_U16, KN_NUM_U32, KN_NUM_U64,
};
#define NTYPES (sizeof(all_types) / sizeof(all_types[0]))

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* How many values of the type lie between x and y: from the sorted list of all of them. */
static uint64_t rank_distance(const double *list, size_t n, double x, double y)
{
	const double *p = bsearch(&x, list, n, sizeof(x), by_value);
	const double *q = bsearch(&y, list, n, sizeof(y), by_value);

	assert_non_null(p);
	assert_non_null(q);
	return (uint64_t)(p < q ? q - p : p - q);
}

/* Sorted, each value once: -0 and 0 are one. */
static size_t list_values(enum kn_num type, double *list)
{
	const unsigned patterns = 1u << (8 * kn_num_size(type));
	size_t n = 0, kept = 0;

	for (unsigned i = 0; i < patterns; i++) {
		const double v = kn_num_value(type, &i);

		if (!isnan(v))
			list[n++] = v;
	}
	qsort(list, n, sizeof(*list), by_value);
	for (size_t i = 0; i < n; i++)
		if (!kept || by_value(&list[kept - 1], &list[i]))
			list[kept++] = list[i];
	return kept;
}

static void steps_of_short_types_count_values(void **state)
{
	static const enum kn_num types[] = {
		KN_NUM_F16, KN_NUM_BF16, KN_NUM_F8_E4M3, KN_NUM_F8_E5M2, KN_NUM_F8_E4M3FNUZ,
		KN_NUM_F8_E5M2FNUZ, KN_NUM_F8_E8M0, KN_NUM_I8, KN_NUM_I16, KN_NUM_U8, KN_NUM_U16,
	};
	double *list = t_alloc(65536 * sizeof(*list));
	uint64_t seed = 77;

	(void)state;
	for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
		const size_t n = list_values(types[t], list);

		for (int i = 0; i < 100000; i++) {
			const uint64_t a = t_random(&seed), b = t_random(&seed);
			const double x = kn_num_value(types[t], &a), y = kn_num_value(types[t], &b);
			struct kn_diff d;

			assert_int_equal(kn_diff(types[t], &plain, &a, &b, 1, &d), 0);
			if (isnan(x) || isnan(y)) {
				assert_int_equal(d.nan_a + 2 * d.nan_b + 3 * d.nan_both,
						 isnan(x) + 2 * isnan(y));
				continue;
			}
			assert_int_equal(d.max_steps, rank_distance(list, n, x, y));
			assert_int_equal(d.differ, !!memcmp(&a, &b, kn_num_size(types[t])));
		}
	}
	free(list);
}

static void known_values_of_eight_bits(void **state)
{
	static const struct {
		enum kn_num type;
		uint8_t bits;
		double value;
	} known[] = {
		{ KN_NUM_F8_E4M3, 0x7e, 448 },	     { KN_NUM_F8_E4M3, 0x01, 0x1p-9 },
		{ KN_NUM_F8_E4M3, 0xb8, -1 },	     { KN_NUM_F8_E5M2, 0x7b, 57344 },
		{ KN_NUM_F8_E5M2, 0x01, 0x1p-16 },   { KN_NUM_F8_E5M2, 0xfc, -(double)INFINITY },
		{ KN_NUM_F8_E4M3FNUZ, 0x7f, 240 },   { KN_NUM_F8_E4M3FNUZ, 0x01, 0x1p-10 },
		{ KN_NUM_F8_E5M2FNUZ, 0x7f, 57344 }, { KN_NUM_F8_E5M2FNUZ, 0x01, 0x1p-17 },
		{ KN_NUM_F8_E8M0, 0x00, 0x1p-127 },  { KN_NUM_F8_E8M0, 0xfe, 0x1p127 },
	};
	static const struct {
		enum kn_num type;
		uint8_t bits;
	} nans[] = {
		{ KN_NUM_F8_E4M3, 0x7f }, { KN_NUM_F8_E4M3, 0xff }, { KN_NUM_F8_E5M2, 0x7d },
		{ KN_NUM_F8_E4M3FNUZ, 0x80 }, { KN_NUM_F8_E5M2FNUZ, 0x80 },
		{ KN_NUM_F8_E8M0, 0xff },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		assert_true(kn_num_value(known[i].type, &known[i].bits) == known[i].value);
	for (size_t i = 0; i < sizeof(nans) / sizeof(nans[0]); i++)
		assert_true(isnan(kn_num_value(nans[i].type, &nans[i].bits)));
}

static void steps_of_long_types(void **state)
{
	uint64_t seed = 5;

	(void)state;
	for (int i = 0; i < 2000; i++) {
		const int e = (int)(t_random(&seed) % 160) - 200;
		const float f = ldexpf((float)(int64_t)t_random(&seed), e);
		const double x = ldexp((double)(int64_t)t_random(&seed), 2 * e);
		float g = f;
		double y = x;
		const unsigned far = (unsigned)(t_random(&seed) % 40);
		struct kn_diff d;

		for (unsigned k = 0; k < far; k++) {
			g = nextafterf(g, -1e30f);
			y = nextafter(y, 1e300);
		}
		kn_diff(KN_NUM_F32, &plain, &f, &g, 1, &d);
		assert_int_equal(d.max_steps, far);
		assert_true(d.max_abs == fabs((double)f - (double)g));
		assert_int_equal(d.steps[far ? 64 - __builtin_clzll(far) : 0], 1);
		kn_diff(KN_NUM_F64, &plain, &x, &y, 1, &d);
		assert_int_equal(d.max_steps, far);
	}
}

static void ends_of_integers(void **state)
{
	const int64_t a[] = { INT64_MIN, INT64_MAX, -1, 5 }, b[] = { INT64_MAX, INT64_MIN, 1, 5 };
	const uint64_t c[] = { 0, UINT64_MAX, 7 }, e[] = { UINT64_MAX, 0, 9 };
	struct kn_diff d;

	(void)state;
	kn_diff(KN_NUM_I64, &plain, a, b, 4, &d);
	assert_int_equal(d.differ, 3);
	assert_true(d.max_steps == UINT64_MAX && d.max_at == 0 && d.steps[64] == 2);
	assert_true(d.steps[2] == 1 && d.steps[0] == 1);
	kn_diff(KN_NUM_U64, &plain, c, e, 3, &d);
	assert_true(d.max_steps == UINT64_MAX && d.differ == 3 && d.steps[2] == 1);
}

/* What kn.h says of zeros, NaN and infinity, one by one. */
static void zeros_nan_infinity(void **state)
{
	const float nan1 = nanf("1"), nan2 = nanf("2"), inf = INFINITY;
	const float a[] = { 0.0f, nan1, nan1, 1, inf, inf, -inf, 1, nan1 };
	const float b[] = { -0.0f, nan2, 1, nan1, inf, 1, inf, 1, nan1 };
	const struct kn_diff_how loose = { .parts = 1, .abs = 1e30, .rel = 1 };
	struct kn_diff d;

	(void)state;
	kn_diff(KN_NUM_F32, &loose, a, b, 9, &d);
	assert_int_equal(d.differ, 6);
	assert_int_equal(d.first, 0);
	assert_int_equal(d.beyond, 4);
	assert_int_equal(d.first_beyond, 2);
	assert_int_equal(d.nan_a, 1);
	assert_int_equal(d.nan_b, 1);
	assert_int_equal(d.nan_both, 2);
	assert_true(isinf(d.max_abs) && d.max_at == 5);
	assert_true(d.sum_dd == 0 && d.sum_aa == 1 && d.sum_bb == 1);
	assert_int_equal(d.steps[0], 5);
}

static void tolerances(void **state)
{
	const double a[] = { 1, 100, -1e-9, 1e308 }, b[] = { 1.5, 101, 1e-9, -1e308 };
	struct kn_diff_how how = { .parts = 1, .abs = 0.5 };
	struct kn_diff d;

	(void)state;
	kn_diff(KN_NUM_F64, &how, a, b, 3, &d);
	assert_true(d.differ == 3 && d.beyond == 1 && d.first_beyond == 1);
	how = (struct kn_diff_how){ .parts = 1, .rel = 0.01 };
	kn_diff(KN_NUM_F64, &how, a, b, 3, &d);
	assert_true(d.beyond == 2 && d.first_beyond == 0);	/* 1 <= 0.01 * 101 */
	how.abs = 1e308;
	kn_diff(KN_NUM_F64, &how, a, b, 4, &d);
	assert_true(d.beyond == 1 && d.first_beyond == 3);	/* the distance overflows */
}

static void a_complex_number_counts_once(void **state)
{
	const float a[] = { 1, 2, 3, 4, 5, 6 }, b[] = { 1, 2, 4, 5, 5, 7 };
	const struct kn_diff_how how = { .parts = 2 };
	struct kn_diff d;

	(void)state;
	kn_diff(KN_NUM_F32, &how, a, b, 6, &d);
	assert_true(d.differ == 2 && d.beyond == 2 && d.first == 1 && d.max_at == 1);
	assert_int_equal(d.steps[0], 3);
}

static void bytes_have_counts_only(void **state)
{
	const uint8_t a[] = { 1, 2, 3, 4, 5, 6, 7, 8 }, b[] = { 1, 2, 3, 4, 9, 9, 7, 0 };
	const struct kn_diff_how four = { .parts = 4 };
	struct kn_diff d;

	(void)state;
	kn_diff(KN_NUM_BYTE, &plain, a, b, 8, &d);
	assert_true(d.differ == 3 && d.first == 4 && d.last == 7 && d.beyond == 3);
	kn_diff(KN_NUM_BYTE, &four, a, b, 8, &d);
	assert_true(d.differ == 1 && d.first == 1 && d.max_abs == 0);
}

/* Everything but the sums, element by element and as plainly as can be. */
static void count_plainly(enum kn_num type, const uint8_t *a, const uint8_t *b, size_t n,
			  struct kn_diff *w, long double sums[3])
{
	const size_t size = kn_num_size(type);

	memset(w, 0, sizeof(*w));
	memset(sums, 0, 3 * sizeof(*sums));
	for (size_t i = 0; i < n; i++, a += size, b += size) {
		const long double x = kn_num_value(type, a), y = kn_num_value(type, b);
		const int same = !memcmp(a, b, size);
		struct kn_diff one;

		kn_diff(type, &plain, a, b, 1, &one);
		if (!same && !w->differ++)
			w->first = i;
		if (one.beyond && !w->beyond++)
			w->first_beyond = i;
		w->nan_a += isnan(x) && !isnan(y);
		w->nan_b += !isnan(x) && isnan(y);
		w->nan_both += isnan(x) && isnan(y);
		if (one.max_abs > w->max_abs) {
			w->max_abs = one.max_abs;
			w->max_at = i;
		}
		w->max_steps = one.max_steps > w->max_steps ? one.max_steps : w->max_steps;
		for (int k = 0; k < KN_DIFF_BUCKETS; k++)
			w->steps[k] += one.steps[k];
		if (isfinite(x) && isfinite(y)) {
			sums[0] += (x - y) * (x - y);
			sums[1] += x * x;
			sums[2] += y * y;
		}
	}
}

static void check_sum(double got, long double want)
{
	if (want > 1e300L || want < 1e-290L)	/* squares beyond the range of a double */
		return;
	assert_true(fabsl((long double)got - want) <= 1e-12L * want);
}

/* Random bits of all types: NaN, infinities and subnormals among them, long runs of equals. */
static void arrays_against_single_elements(void **state)
{
	enum { N = 5000 };
	uint8_t *a = t_alloc(N * 8), *b = t_alloc(N * 8);
	uint64_t seed = 31;

	(void)state;
	for (size_t t = 0; t < NTYPES; t++) {
		const size_t size = kn_num_size(all_types[t]);

		for (int round = 0; round < 20; round++) {
			const size_t n = round < 3 ? (size_t)round : t_random(&seed) % N;
			struct kn_diff got, want;
			long double sums[3];

			for (size_t i = 0; i < n * size; i++)
				a[i] = (uint8_t)(t_random(&seed) >> 40);
			memcpy(b, a, n * size);
			for (unsigned k = 0; n && k < t_random(&seed) % 50; k++)
				b[t_random(&seed) % (n * size)] ^= (uint8_t)(1u << k % 8);
			kn_diff(all_types[t], &plain, a, b, n, &got);
			count_plainly(all_types[t], a, b, n, &want, sums);
			assert_int_equal(got.differ, want.differ);
			assert_int_equal(got.first, want.first);
			assert_int_equal(got.beyond, want.beyond);
			assert_int_equal(got.first_beyond, want.first_beyond);
			assert_int_equal(got.nan_a, want.nan_a);
			assert_int_equal(got.nan_b, want.nan_b);
			assert_int_equal(got.nan_both, want.nan_both);
			assert_true(got.max_abs == want.max_abs);
			assert_int_equal(got.max_at, want.max_at);
			assert_int_equal(got.max_steps, want.max_steps);
			assert_memory_equal(got.steps, want.steps, sizeof(want.steps));
			if (all_types[t] != KN_NUM_I64 && all_types[t] != KN_NUM_U64)
				check_sum(got.sum_dd, sums[0]);
			check_sum(got.sum_aa, sums[1]);
			check_sum(got.sum_bb, sums[2]);
		}
	}
	free(a);
	free(b);
}

/* One array pair under each mask: every byte of the result is that of the definition. */
static void check_variants(enum kn_num type, const struct kn_diff_how *how, const uint8_t *a,
			   const uint8_t *b, size_t n)
{
	struct kn_diff want, got;

	assert_int_equal(kn_ref_diff(type, how, a, b, n, &want), 0);
	for (unsigned mask = 0; mask <= KN_CPU_ALL; mask++) {
		kn_cpu_mask(mask);
		memset(&got, 0xa5, sizeof(got));
		assert_int_equal(kn_diff(type, how, a, b, n, &got), 0);
		if (memcmp(&got, &want, sizeof(got)))
			fail_msg("type %d, %zu elements, %s: differ %llu %llu, beyond %llu %llu, "
				 "max %g %g", (int)type, n, kn_cpu_variant(),
				 (unsigned long long)got.differ, (unsigned long long)want.differ,
				 (unsigned long long)got.beyond, (unsigned long long)want.beyond,
				 got.max_abs, want.max_abs);
	}
	kn_cpu_mask(KN_CPU_ALL);
}

/* Bytes of 'size' numbers in which NaN and infinities are rare enough to leave blocks without. */
static void fill_numbers(uint8_t *p, size_t size, size_t n, unsigned odd, uint64_t *seed)
{
	for (size_t i = 0; i < n; i++, p += size) {
		uint64_t v = t_random(seed);

		/* exponents near the middle, but for one number in 'odd' */
		if (!odd || t_random(seed) % odd)
			v &= ~((uint64_t)0x40 << (8 * size - 8));
		memcpy(p, &v, size);
	}
}

static void every_variant_gives_the_bits_of_the_definition(void **state)
{
	static const struct kn_diff_how hows[] = {
		{ .parts = 1 }, { .parts = 1, .abs = 1e-3, .rel = 1e-2 },
		{ .parts = 1, .rel = (double)INFINITY }, { .parts = 2, .abs = 1e-30 },
	};
	enum { N = 256 * 5 + 77 };
	static const size_t lengths[] = { 0, 1, 255, 256, 257, 512, 1024, 1280, N };
	uint64_t seed = 4711;

	(void)state;
	for (size_t t = 0; t < NTYPES; t++) {
		const size_t size = kn_num_size(all_types[t]);

		for (int round = 0; round < 60; round++) {
			const size_t n = lengths[(size_t)round % 9];
			const size_t shift = (size_t)round % 5;
			/* to the byte, so that a sanitizer sees one too much */
			uint8_t *a = t_alloc(n * size + shift), *b = t_alloc(n * size + shift);
			const unsigned change = (unsigned[]){ 1, 2, 30, 300 }[round % 4];

			fill_numbers(a + shift, size, n, round % 3 ? 0 : 400, &seed);
			memcpy(b, a, n * size + shift);
			for (size_t i = 0; i < n * size; i++)
				if (t_random(&seed) % (change * size) == 0)
					b[shift + i] ^= (uint8_t)(t_random(&seed) >> (round & 7));
			check_variants(all_types[t], &hows[round % 4], a + shift, b + shift, n);
			free(a);
			free(b);
		}
	}
}

/* Zeros of both signs, subnormals, the largest numbers, and one NaN or infinity in a block. */
static void blocks_at_the_edges_of_a_type(void **state)
{
	static const uint32_t edge[] = { 0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x00800000,
					 0x7f7fffff, 0xff7fffff, 0x3f800000, 0xbf800000 };
	uint32_t a[512], b[512];
	uint16_t c[512], d[512];

	(void)state;
	for (size_t k = 0; k < 100; k++) {
		for (size_t i = 0; i < 512; i++) {
			a[i] = edge[(i + k) % 10];
			b[i] = edge[(i * 7 + k / 10) % 10];
			c[i] = (uint16_t)(a[i] >> 16);
			d[i] = (uint16_t)(b[i] >> 16);
		}
		if (k % 3 == 0)
			a[k] = k & 1 ? 0x7fc00000 : 0x7f800000;
		if (k % 4 == 0)
			d[300 + k] = k & 1 ? 0x7fc1 : 0xff80;
		check_variants(KN_NUM_F32, &plain, (uint8_t *)a, (uint8_t *)b, 512);
		check_variants(KN_NUM_BF16, &plain, (uint8_t *)c, (uint8_t *)d, 512);
		check_variants(KN_NUM_F16, &plain, (uint8_t *)c, (uint8_t *)d, 512);
	}
}

static void wrong_arguments(void **state)
{
	const struct kn_diff_how none = { .parts = 0 };
	struct kn_diff d;

	(void)state;
	assert_int_equal(kn_diff((enum kn_num)0, &plain, "", "", 0, &d), -1);
	assert_int_equal(kn_diff((enum kn_num)99, &plain, "", "", 0, &d), -1);
	assert_int_equal(kn_diff(KN_NUM_F32, &none, "", "", 0, &d), -1);
	assert_int_equal(kn_num_size((enum kn_num)0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_of_short_types_count_values),
		cmocka_unit_test(known_values_of_eight_bits),
		cmocka_unit_test(steps_of_long_types),
		cmocka_unit_test(ends_of_integers),
		cmocka_unit_test(zeros_nan_infinity),
		cmocka_unit_test(tolerances),
		cmocka_unit_test(a_complex_number_counts_once),
		cmocka_unit_test(bytes_have_counts_only),
		cmocka_unit_test(arrays_against_single_elements),
		cmocka_unit_test(every_variant_gives_the_bits_of_the_definition),
		cmocka_unit_test(blocks_at_the_edges_of_a_type),
		cmocka_unit_test(wrong_arguments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
