/*
 * Slices of a tensor as a stream.  If this fails, `zckpt cat` prints other elements than were
 * asked for, or reads beyond a tensor.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/select/ck_slice.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_convert.h"
#include "tests/lib/ops/t_raw.h"

#define MOST 4

/* Elements of one dimension, found one by one as Python's documentation says. */
struct line {
	uint64_t at[64], n;
	bool keeps;
};

#define PART 64

static struct line random_line(uint64_t *seed, uint64_t dim, char text[PART])
{
	size_t end = 0;
	struct line l = { .keeps = true };
	const int64_t n = (int64_t)dim;
	int64_t v[3], step;
	bool given[3];

	if (dim && t_random(seed) % 4 == 0) {
		const int64_t i = (int64_t)(t_random(seed) % (2 * dim)) - n;

		snprintf(text, PART, "%" PRId64, i);
		l.at[l.n++] = (uint64_t)(i < 0 ? i + n : i);
		l.keeps = false;
		return l;
	}
	for (int i = 0; i < 3; i++) {
		given[i] = t_random(seed) % 3;
		v[i] = (int64_t)(t_random(seed) % 14) - 7;
	}
	if (!v[2])
		v[2] = 1;
	step = given[2] ? v[2] : 1;
	if (given[0])
		end += (size_t)snprintf(text, PART, "%" PRId64, v[0]);
	end += (size_t)snprintf(text + end, PART - end, ":");
	if (given[1])
		end += (size_t)snprintf(text + end, PART - end, "%" PRId64, v[1]);
	if (given[2])
		snprintf(text + end, PART - end, ":%" PRId64, v[2]);
	for (int i = 0; i < 2; i++)
		v[i] += v[i] < 0 ? n : 0;
	/* from the start on, what lies in the dimension and before the stop */
	for (int64_t i = step > 0 ? (given[0] ? v[0] : 0) : (given[0] && v[0] < n ? v[0] : n - 1);
	     i > -100 && i < 100; i += step) {
		if (step > 0 && i < 0) {
			i = -step;	/* a start before the first element is the first */
			continue;
		}
		if (given[1] && (step > 0 ? i >= v[1] : i <= v[1]))
			break;
		if (i >= 0 && i < n)
			l.at[l.n++] = (uint64_t)i;
	}
	return l;
}

/* Walks what the slice says; the places of its elements. */
static uint64_t walk(const struct ck_slice *s, uint64_t *out)
{
	uint64_t index[CK_SLICE_DIMS] = { 0 }, n = 0;
	uint32_t k;

	if (!s->numel)
		return 0;
	do {
		uint64_t at = s->first;

		for (uint32_t i = 0; i < s->nsteps; i++)
			at += index[i] * (uint64_t)s->stride[i];
		out[n++] = at;
		for (k = s->nsteps; k > 0; k--) {
			if (++index[k - 1] < s->count[k - 1])
				break;
			index[k - 1] = 0;
		}
	} while (k);
	return n;
}

static void random_slices_against_a_list(void **state)
{
	uint64_t seed = 4711, *got = t_alloc(10000 * 8), *want = t_alloc(10000 * 8);

	(void)state;
	for (int round = 0; round < 20000; round++) {
		const uint32_t ndim = (uint32_t)(t_random(&seed) % (MOST + 1));
		uint64_t shape[MOST], n = 1, left = 0;
		char text[256] = "", part[PART];
		struct ck_slice s;

		want[0] = 0;
		for (uint32_t i = 0; i < ndim; i++) {
			const uint32_t given = ndim - (uint32_t)(round % 2);
			struct line l = { .keeps = true };
			uint64_t *more = t_alloc(10000 * 8), m = 0;

			shape[i] = t_random(&seed) % 7;
			if (i < given) {
				l = random_line(&seed, shape[i], part);
				snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s",
					 i ? ", " : "", part);
			} else {
				while (l.n < shape[i]) {
					l.at[l.n] = l.n;
					l.n++;
				}
			}
			for (uint64_t a = 0; a < n; a++)
				for (uint64_t b = 0; b < l.n; b++)
					more[m++] = want[a] * shape[i] + l.at[b];
			memcpy(want, more, m * 8);
			n = m;
			left += l.keeps;
			free(more);
		}
		assert_int_equal(ck_slice_parse(text, shape, ndim, "t", &s, NULL), 0);
		assert_int_equal(s.numel, n);
		assert_int_equal(s.ndim, left);
		assert_int_equal(walk(&s, got), n);
		assert_memory_equal(got, want, n * 8);
	}
	free(got);
	free(want);
}

static void steps_become_few(void **state)
{
	static const uint64_t shape[] = { 5, 6, 7 };
	struct ck_slice s;

	(void)state;
	assert_int_equal(ck_slice_parse(NULL, shape, 3, "t", &s, NULL), 0);
	assert_true(s.nsteps == 1 && s.count[0] == 210 && s.stride[0] == 1);
	assert_int_equal(ck_slice_parse("2:4", shape, 3, "t", &s, NULL), 0);
	assert_true(s.nsteps == 1 && s.count[0] == 84 && s.first == 84);
	assert_int_equal(ck_slice_parse("..., 3", shape, 3, "t", &s, NULL), 0);
	assert_true(s.nsteps == 1 && s.count[0] == 30 && s.stride[0] == 7 && s.first == 3);
	assert_int_equal(ck_slice_parse("::-1", shape, 3, "t", &s, NULL), 0);
	assert_true(s.nsteps == 2 && s.stride[0] == -42 && s.count[1] == 42);
	assert_int_equal(ck_slice_parse("::9223372036854775807", shape, 3, "t", &s, NULL), 0);
	assert_true(s.shape[0] == 1);
	assert_int_equal(ck_slice_parse("::-9223372036854775807", shape, 3, "t", &s, NULL), 0);
	assert_true(s.shape[0] == 1 && s.first == 168);
}

struct taken {
	uint8_t *p;
	size_t n, calls, stop_at;
};

static int take(void *arg, const void *bytes, size_t n, struct ckpt_err *err)
{
	struct taken *t = arg;

	(void)err;
	if (++t->calls == t->stop_at)
		return -77;
	t->p = t_grow(t->p, t->n + n + 1);
	memcpy(t->p + t->n, bytes, n);
	t->n += n;
	t->p[t->n] = 0;
	return 0;
}

/* Over more than a window: near and far strides, forwards and backwards. */
static void large_slices_against_the_whole(void **state)
{
	enum { ROWS = 700, COLS = 1500 };
	static const struct {
		const char *slice;
		int64_t r0, rn, rs, c0, cn, cs;
	} cases[] = {
		{ NULL, 0, ROWS, 1, 0, COLS, 1 },
		{ "::2", 0, ROWS / 2, 2, 0, COLS, 1 },
		{ ":, 7", 0, ROWS, 1, 7, 1, 1 },
		{ "::-1, ::-1", ROWS - 1, ROWS, -1, COLS - 1, COLS, -1 },
		{ "5:600, 1:1400:3", 5, 595, 1, 1, 467, 3 },
		{ "::-3, ::-700", ROWS - 1, 234, -3, COLS - 1, 3, -700 },
		{ "-1", ROWS - 1, 1, 1, 0, COLS, 1 },
	};
	const struct t_part parts[] = { { "w", "F32", ROWS, COLS, NULL }, { 0 } };
	char *dir = t_dir_new(), *path = t_fmt("%s/a.safetensors", dir);
	struct ckpt_run_opts run = { .size = sizeof(run), .mem_limit = 1 };
	struct ckpt_cat_opts opts = { .size = sizeof(opts), .form = CKPT_CAT_RAW, .run = &run };
	struct taken whole = { 0 };
	struct ckpt *ck;

	(void)state;
	t_convert_source(path, parts);
	ck = t_convert_open(path);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ckpt_cat_info info;
		struct taken got = { 0 };
		size_t at = 0;

		opts.slice = cases[i].slice;
		assert_int_equal(ckpt_cat(ck, 0, &opts, take, i ? &got : &whole, &info, NULL), 0);
		assert_int_equal(info.numel, cases[i].rn * cases[i].cn);
		if (!i)
			continue;
		assert_int_equal(got.n, info.numel * 4);
		for (int64_t r = 0; r < cases[i].rn; r++)
			for (int64_t c = 0; c < cases[i].cn; c++, at += 4)
				if (memcmp(got.p + at, whole.p +
					   4 * ((cases[i].r0 + r * cases[i].rs) * COLS +
						cases[i].c0 + c * cases[i].cs), 4))
					fail_msg("[%s]: row %" PRId64 ", column %" PRId64,
						 cases[i].slice, r, c);
		free(got.p);
	}
	assert_int_equal(whole.n, ROWS * COLS * 4);
	free(whole.p);
	ckpt_close(ck);
	t_dir_remove(dir);
	free(path);
	free(dir);
}

static const char *header_of(const struct taken *t)
{
	assert_true(t->n >= 64 && !memcmp(t->p, "\x93NUMPY\x01\x00", 8));
	assert_int_equal((10u + t->p[8] + 256u * t->p[9]) % 64, 0);
	return (const char *)t->p + 10;
}

static void headers_of_all_types(void **state)
{
	static const struct {
		const char *dtype, *npy;
		int is_bits;
	} cases[] = {
		{ "F64", "<f8", 0 }, { "F32", "<f4", 0 }, { "F16", "<f2", 0 }, { "BF16", "<u2", 1 },
		{ "I8", "|i1", 0 },  { "I16", "<i2", 0 }, { "I32", "<i4", 0 }, { "I64", "<i8", 0 },
		{ "U8", "|u1", 0 },  { "U16", "<u2", 0 }, { "U32", "<u4", 0 }, { "U64", "<u8", 0 },
		{ "BOOL", "|b1", 0 }, { "C64", "<c8", 0 }, { "F8_E4M3", "|u1", 1 },
		{ "F8_E8M0", "|u1", 1 },
	};
	char *dir = t_dir_new(), *path = t_fmt("%s/a.safetensors", dir);

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct t_part parts[] = { { "w", cases[i].dtype, 3, 0, NULL }, { 0 } };
		struct ckpt_cat_info info;
		struct taken t = { 0 };
		struct ckpt *ck;
		char *want = t_fmt("{'descr': '%s', 'fortran_order': False, 'shape': (3,), } ",
				   cases[i].npy);

		t_convert_source(path, parts);
		ck = t_convert_open(path);
		assert_int_equal(ckpt_cat(ck, 0, NULL, take, &t, &info, NULL), 0);
		assert_string_equal(info.npy, cases[i].npy);
		assert_int_equal(info.is_bits, cases[i].is_bits);
		assert_memory_equal(header_of(&t), want, strlen(want));
		assert_int_equal(t.p[127], '\n');
		assert_int_equal(t.n, 128 + 3 * t_st_itemsize(cases[i].dtype));
		free(t.p);
		free(want);
		ckpt_close(ck);
	}
	t_dir_remove(dir);
	free(path);
	free(dir);
}

static void wrong_calls_and_who_stops(void **state)
{
	const struct t_part parts[] = {
		{ "w", "F32", 300, 1000, NULL }, { 0 },
	};
	struct ckpt_cat_opts opts = { .size = sizeof(opts) };
	const volatile int cancel = 1;
	const struct ckpt_run_opts canceled = { .size = sizeof(canceled), .cancel = &cancel };
	char *dir = t_dir_new(), *path = t_fmt("%s/a.safetensors", dir);
	struct taken t = { .stop_at = 2 };
	struct ckpt *ck;

	(void)state;
	t_convert_source(path, parts);
	ck = t_convert_open(path);
	assert_int_equal(ckpt_cat(ck, 0, &opts, take, &t, NULL, NULL), -77);
	assert_int_equal(ckpt_cat(ck, 9, &opts, take, &t, NULL, NULL), -CKPT_E_USAGE);
	assert_int_equal(ckpt_cat(ck, 0, &opts, NULL, &t, NULL, NULL), -CKPT_E_USAGE);
	opts.state = "master";
	assert_int_equal(ckpt_cat(ck, 0, &opts, take, &t, NULL, NULL), -CKPT_E_USAGE);
	opts.state = NULL;
	opts.dtype = CKPT_I8;
	assert_int_equal(ckpt_cat(ck, 0, &opts, take, &t, NULL, NULL), -CKPT_E_USAGE);
	opts.dtype = 0;
	opts.form = (enum ckpt_cat_form)3;
	assert_int_equal(ckpt_cat(ck, 0, &opts, take, &t, NULL, NULL), -CKPT_E_USAGE);
	opts.form = CKPT_CAT_NPY;
	opts.run = &canceled;
	assert_int_equal(ckpt_cat(ck, 0, &opts, take, &t, NULL, NULL), -CKPT_E_CANCELED);
	free(t.p);
	ckpt_close(ck);
	t_dir_remove(dir);
	free(path);
	free(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_slices_against_a_list),
		cmocka_unit_test(steps_become_few),
		cmocka_unit_test(large_slices_against_the_whole),
		cmocka_unit_test(headers_of_all_types),
		cmocka_unit_test(wrong_calls_and_who_stops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
