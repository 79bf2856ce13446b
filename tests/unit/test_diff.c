/*
 * Two checkpoints compared.  If this fails, `zckpt diff` calls two states equal that are not, or
 * sends somebody after a difference that is none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_convert.h"
#include "tests/lib/ops/t_raw.h"

static char *dir;

static char *in_dir(const char *name)
{
	return t_fmt("%s/%s", dir, name);
}

/* Compares the two files; 'code' is what must come of it. */
static void diff_files(const char *first, const char *second, const struct ckpt_diff_opts *opts,
		       int code, struct ckpt_diff_result *out)
{
	char *pa = in_dir(first), *pb = in_dir(second);
	struct ckpt *a = t_convert_open(pa), *b = t_convert_open(pb);
	struct ckpt_err err = { 0 };

	assert_int_equal(-ckpt_diff(a, b, opts, out, &err), code);
	assert_int_equal(err.code, code);
	free(pa);
	free(pb);
	/* rows lend shapes and names of states, so those that are looked at come with numbers */
	for (uint64_t i = 0; !code && i < out->nrows; i++)
		out->rows[i].shape_a = out->rows[i].shape_b = NULL;
	for (uint64_t i = 0; !code && i < out->nrows; i++)
		out->rows[i].state_a = out->rows[i].state_b = NULL;
	ckpt_close(a);
	ckpt_close(b);
}

static void write_one(const char *name, const char *dtype, uint64_t n, const void *bytes)
{
	const struct t_part parts[] = { { "t", dtype, n, 0, bytes }, { 0 } };
	char *path = in_dir(name);

	t_convert_source(path, parts);
	free(path);
}

static struct ckpt_diff_row diff_one(const char *dtype_a, const void *a, const char *dtype_b,
				     const void *b, uint64_t n, const struct ckpt_diff_opts *opts)
{
	struct ckpt_diff_result r;
	struct ckpt_diff_row row;

	write_one("a.safetensors", dtype_a, n, a);
	write_one("b.safetensors", dtype_b, n, b);
	diff_files("a.safetensors", "b.safetensors", opts, 0, &r);
	assert_int_equal(r.nrows, 1);
	row = r.rows[0];
	row.name = NULL;
	row.ulps = NULL;
	assert_int_equal(r.ndiffering, row.what >= CKPT_DIFF_DTYPE);
	ckpt_diff_free(&r);
	return row;
}

/* More than two units and a tail; the numbers are those of a plain loop, at any thread count. */
static void large_arrays_against_a_loop(void **state)
{
	enum { N = 1300007 };
	float *a = t_alloc(N * sizeof(*a)), *b = t_alloc(N * sizeof(*b));
	struct ckpt_run_opts run = { .size = sizeof(run) };
	struct ckpt_diff_opts opts = { .size = sizeof(opts), .run = &run };
	long double dd = 0, aa = 0, bb = 0, rel;
	uint64_t seed = 9, differ = 0, first = 0, max_at = 0, nan_b = 0, nan_both = 0;
	double max = 0, once = 0;

	(void)state;
	for (size_t i = 0; i < N; i++) {
		a[i] = (float)(int32_t)t_random(&seed) * 1e-9f;
		b[i] = i % 1000 > 700 && i > 600000 ? a[i] * (1 + (float)(i % 7) * 1e-6f) : a[i];
	}
	a[900000] = b[900000] = NAN;
	b[700001] = NAN;
	for (size_t i = 0; i < N; i++) {
		const double d = fabs((double)a[i] - (double)b[i]);

		if (memcmp(&a[i], &b[i], 4) && !differ++)
			first = i;
		nan_b += isnan(b[i]) && !isnan(a[i]);
		nan_both += isnan(b[i]) && isnan(a[i]);
		if (isnan(d))
			continue;
		dd += (long double)d * d;
		aa += (long double)a[i] * a[i];
		bb += (long double)b[i] * b[i];
		if (d > max) {
			max = d;
			max_at = i;
		}
	}
	rel = sqrtl(dd) / sqrtl(aa > bb ? aa : bb);
	for (run.threads = 1; run.threads <= 4; run.threads++) {
		const struct ckpt_diff_row row = diff_one("F32", a, "F32", b, N, &opts);

		assert_int_equal(row.what, CKPT_DIFF_VALUES);
		assert_int_equal(row.numel, N);
		assert_int_equal(row.differ, differ);
		assert_int_equal(row.beyond, differ);
		assert_int_equal(row.first, first);
		assert_int_equal(row.nan_a, 0);
		assert_int_equal(row.nan_b, nan_b);
		assert_int_equal(row.nan_both, nan_both);
		assert_true(row.max_abs == max);
		assert_int_equal(row.max_at, max_at);
		assert_true(fabsl(row.rel_l2 - rel) <= 1e-9L * rel);
		assert_true(fabsl(row.rms - sqrtl(dd / N)) <= 1e-9L * row.rms);
		if (run.threads > 1)
			assert_true(row.rel_l2 == once);	/* to the bit */
		once = row.rel_l2;
	}
	run.threads = 3;
	run.mem_limit = 1;
	assert_true(diff_one("F32", a, "F32", b, N, &opts).rel_l2 == once);
	free(a);
	free(b);
}

static void types_that_differ_meet_in_the_wider(void **state)
{
	static const float f32[] = { 1, -2, 0.5f, 3 };
	static const uint16_t bf16[] = { 0x3f80, 0xc000, 0x3f00, 0x4040 };
	static const uint16_t f16[] = { 0x3c00, 0xc000, 0x3800, 0x4200 };
	static const double f64[] = { 1, -2, 0.5, 3 };
	static const uint8_t e4m3[] = { 0x38, 0xc0, 0x30, 0x44 };
	static const int32_t i32[] = { 1, -2, 7, 3 };
	static const int64_t i64[] = { 1, -2, 7, ((int64_t)1 << 53) + 1 };
	static const struct {
		const char *ta;
		const void *a;
		const char *tb;
		const void *b;
		enum ckpt_dtype as;
		uint64_t differ;
	} cases[] = {
		{ "F32", f32, "BF16", bf16, CKPT_F32, 0 },
		{ "BF16", bf16, "F16", f16, CKPT_F32, 0 },
		{ "F16", f16, "F64", f64, CKPT_F64, 0 },    { "F64", f64, "F32", f32, CKPT_F64, 0 },
		{ "F8_E4M3", e4m3, "BF16", bf16, CKPT_F64, 0 },
		{ "I32", i32, "F32", f32, CKPT_F64, 1 },    { "I64", i64, "I32", i32, CKPT_F64, 1 },
	};
	const struct ckpt_diff_opts loose = { .size = sizeof(loose), .flags = CKPT_DIFF_TOLERANCE };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ckpt_diff_row row = diff_one(cases[i].ta, cases[i].a, cases[i].tb,
						    cases[i].b, 4, NULL);

		assert_int_equal(row.dtype, cases[i].as);
		assert_int_equal(row.differ, cases[i].differ);
		assert_int_equal(row.what, cases[i].differ ? CKPT_DIFF_VALUES : CKPT_DIFF_DTYPE);
		row = diff_one(cases[i].ta, cases[i].a, cases[i].tb, cases[i].b, 4, &loose);
		assert_int_equal(row.what, cases[i].differ ? CKPT_DIFF_VALUES : CKPT_DIFF_SAME);
	}
}

/* Where a double could hide a difference there is no distance rather than a wrong one. */
static void sixty_four_bits_are_not_rounded(void **state)
{
	static const int64_t a[] = { ((int64_t)1 << 53) + 1, 2 };
	static const double b[] = { 9007199254740992.0, 2 };
	struct ckpt_diff_row row = diff_one("I64", a, "F64", b, 2, NULL);

	(void)state;
	assert_int_equal(row.what, CKPT_DIFF_TYPES);
	assert_int_equal(row.dtype, 0);
	assert_int_equal(diff_one("I64", a, "U64", a, 2, NULL).what, CKPT_DIFF_TYPES);
	assert_int_equal(diff_one("I64", a, "I64", b, 2, NULL).differ, 2);
	assert_string_equal(diff_one("I64", a, "I64", b, 2, NULL).first_a, "9007199254740993");
}

static void first_differences_as_text(void **state)
{
	static const struct {
		const char *dtype;
		uint8_t a[16], b[16];
		const char *text_a, *text_b;
	} cases[] = {
		{ "F32", { 0xcd, 0xcc, 0xcc, 0x3d }, { 0, 0, 0, 0x80 }, "0.1", "-0" },
		{ "BF16", { 0xcd, 0x3d }, { 0xc0, 0x7f }, "0.1", "nan" },
		{ "F16", { 0x00, 0x7c }, { 0x01, 0x00 }, "inf", "6e-08" },
		{ "F64", { 0x9a, 0x99, 0x99, 0x99, 0x99, 0x99, 0xb9, 0x3f }, { 1 }, "0.1",
		  "5e-324" },
		{ "I8", { 0x80 }, { 0x7f }, "-128", "127" },
		{ "U8", { 0x80 }, { 0x7f }, "128", "127" },
		{ "I16", { 0, 0x80 }, { 1 }, "-32768", "1" },
		{ "U32", { 0xff, 0xff, 0xff, 0xff }, { 0 }, "4294967295", "0" },
		{ "U64", { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff }, { 0 },
		  "18446744073709551615", "0" },
		{ "BOOL", { 1 }, { 0 }, "true", "false" },
		{ "F8_E5M2", { 0x3c }, { 0xfc }, "1", "-inf" },
		{ "F8_E8M0", { 0x80 }, { 0xff }, "2", "nan" },
		{ "C64", { 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0 }, { 0 }, "1-2j", "0+0j" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct ckpt_diff_row row = diff_one(cases[i].dtype, cases[i].a,
							  cases[i].dtype, cases[i].b, 1, NULL);

		assert_string_equal(row.first_a, cases[i].text_a);
		assert_string_equal(row.first_b, cases[i].text_b);
		assert_int_equal(row.differ, 1);
	}
}

/* Equal bits, -0 and 0, NaN and NaN: with a tolerance and without. */
static void zeros_and_nan(void **state)
{
	static const uint32_t a[] = { 0, 0x7fc00000, 0x3f800000 };
	static const uint32_t b[] = { 0x80000000, 0x7fc00001, 0x3f800000 };
	static const uint32_t c[] = { 0, 0x3f800000, 0x3f800000 };
	struct ckpt_diff_opts opts = { .size = sizeof(opts) };
	struct ckpt_diff_row row = diff_one("F32", a, "F32", b, 3, &opts);
	struct ckpt_diff_result r;

	(void)state;
	assert_true(row.what == CKPT_DIFF_VALUES && row.differ == 2 && row.beyond == 2);
	assert_true(row.max_abs == 0 && row.rel_l2 == 0 && row.nan_both == 1);
	opts.flags = CKPT_DIFF_TOLERANCE;
	row = diff_one("F32", a, "F32", b, 3, &opts);
	assert_true(row.what == CKPT_DIFF_WITHIN && row.differ == 2 && !row.beyond);
	opts.abs_tolerance = 1e30;
	row = diff_one("F32", a, "F32", c, 3, &opts);
	assert_true(row.what == CKPT_DIFF_VALUES && row.beyond == 1 && row.nan_a == 1);
	assert_true(row.first == 1);
	opts.abs_tolerance = -1;
	diff_files("a.safetensors", "b.safetensors", &opts, CKPT_E_USAGE, &r);
	opts.abs_tolerance = (double)NAN;
	diff_files("a.safetensors", "b.safetensors", &opts, CKPT_E_USAGE, &r);
}

/* Names, shapes and the order of severity. */
static void the_worst_comes_first(void **state)
{
	static const float x[] = { 1, 2, 3, 4 }, slight[] = { 1, 2, 3, 4.001f };
	static const float much[] = { 1, 2, 3, 9 }, broken[] = { 1, NAN, 3, 4 };
	const struct t_part one[] = {
		{ "equal", "F32", 4, 0, x },  { "slight", "F32", 4, 0, x },
		{ "much", "F32", 4, 0, x },   { "broken", "F32", 4, 0, x },
		{ "mine", "F32", 4, 0, x },   { "shape", "F32", 4, 0, x },
		{ "types", "F32", 4, 0, x },  { "empty", "F32", 0, 0, x },
		{ 0 },
	}, two[] = {
		{ "equal", "F32", 4, 0, x },  { "slight", "F32", 4, 0, slight },
		{ "much", "F32", 4, 0, much }, { "broken", "F32", 4, 0, broken },
		{ "theirs", "F32", 4, 0, x }, { "shape", "F32", 2, 2, x },
		{ "types", "I64", 4, 0, NULL }, { "empty", "F32", 0, 0, x },
		{ 0 },
	};
	static const char *const order[] = {
		"shape", "types", "theirs", "mine", "broken", "much", "slight", "empty", "equal",
	};
	const char *const some[] = { "*e*", NULL }, *const none[] = { "nothing", NULL };
	struct ckpt_select select = { .size = sizeof(select) };
	struct ckpt_diff_opts opts = { .size = sizeof(opts), .select = &select };
	struct ckpt_diff_result r;
	char *pa = in_dir("one.safetensors"), *pb = in_dir("two.safetensors");

	(void)state;
	t_convert_source(pa, one);
	t_convert_source(pb, two);
	diff_files("one.safetensors", "two.safetensors", NULL, 0, &r);
	assert_int_equal(r.nrows, 9);
	for (int i = 0; i < 9; i++)
		assert_string_equal(r.rows[i].name, order[i]);
	assert_int_equal(r.ndiffering, 7);
	assert_true(r.rows[4].ulps[0] == 3 && r.rows[5].ulps[0] == 3);
	ckpt_diff_free(&r);
	select.include = some;
	diff_files("one.safetensors", "two.safetensors", &opts, 0, &r);
	assert_int_equal(r.nrows, 7);
	ckpt_diff_free(&r);
	select.include = none;
	diff_files("one.safetensors", "two.safetensors", &opts, CKPT_E_USAGE, &r);
	select.include = NULL;
	select.only = CKPT_ONLY_TRAINABLE;
	diff_files("one.safetensors", "two.safetensors", &opts, CKPT_E_USAGE, &r);
	/* the same file is not read */
	diff_files("one.safetensors", "one.safetensors", NULL, 0, &r);
	assert_int_equal(r.read_bytes, 0);
	assert_int_equal(r.ndiffering, 0);
	assert_int_equal(r.rows[0].flags, CKPT_DIFF_ONE_SOURCE);
	ckpt_diff_free(&r);
	free(pa);
	free(pb);
}

static void states_by_name(void **state)
{
	static const float x[] = { 1, 2 };
	const char *const good[] = { "weight", NULL }, *const pair[] = { "weight=weight", NULL };
	const char *const bad[] = { "master", NULL }, *const half[] = { "weight=master", NULL };
	const char *const empty[] = { NULL };
	struct ckpt_diff_opts opts = { .size = sizeof(opts) };
	struct ckpt_diff_result r;

	(void)state;
	write_one("a.safetensors", "F32", 2, x);
	write_one("b.safetensors", "F32", 2, x);
	opts.states = good;
	diff_files("a.safetensors", "b.safetensors", &opts, 0, &r);
	/* and a few bytes of each file, which say whether it has checksums */
	assert_true(r.nrows == 1 && r.nstates == 1 && r.read_bytes >= 16 &&
		    r.read_bytes <= 24);
	ckpt_diff_free(&r);
	opts.states = pair;
	diff_files("a.safetensors", "b.safetensors", &opts, 0, &r);
	assert_int_equal(r.nstates, 1);
	ckpt_diff_free(&r);
	opts.states = bad;
	diff_files("a.safetensors", "b.safetensors", &opts, CKPT_E_USAGE, &r);
	opts.states = half;
	diff_files("a.safetensors", "b.safetensors", &opts, CKPT_E_USAGE, &r);
	opts.states = empty;
	diff_files("a.safetensors", "b.safetensors", &opts, CKPT_E_USAGE, &r);
}

static int cancel_flag = 1;

static void it_can_be_canceled(void **state)
{
	static const float x[] = { 1, 2 };
	const struct ckpt_run_opts run = { .size = sizeof(run), .cancel = &cancel_flag };
	const struct ckpt_diff_opts opts = { .size = sizeof(opts), .run = &run };
	struct ckpt_diff_result r;

	(void)state;
	write_one("a.safetensors", "F32", 2, x);
	write_one("b.safetensors", "F32", 2, x);
	diff_files("a.safetensors", "b.safetensors", &opts, CKPT_E_CANCELED, &r);
}

static int make_dir(void **state)
{
	(void)state;
	dir = t_dir_new();
	return 0;
}

static int remove_dir(void **state)
{
	(void)state;
	t_dir_remove(dir);
	free(dir);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(large_arrays_against_a_loop),
		cmocka_unit_test(types_that_differ_meet_in_the_wider),
		cmocka_unit_test(sixty_four_bits_are_not_rounded),
		cmocka_unit_test(first_differences_as_text),
		cmocka_unit_test(zeros_and_nan),
		cmocka_unit_test(the_worst_comes_first),
		cmocka_unit_test(states_by_name),
		cmocka_unit_test(it_can_be_canceled),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
