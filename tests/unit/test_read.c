/*
 * Elements of a state from its extents. If this fails, a tensor stored big-endian, lazily
 * negated, transposed or in slices is converted into other numbers without a word.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "kernels/include/kn.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/run/ck_read.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/zip/ck_zip.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_raw.h"

#define RAW ((size_t)3 << 20)

static struct t_raw raw;
static struct ckpt_limits limits;
static uint64_t serial;

static uint32_t state_over(const uint64_t *shape, uint32_t ndim, enum ckpt_dtype dtype,
			   const struct ck_extent *e, size_t n)
{
	char *name = t_fmt("t%d", (int)serial++);
	const uint32_t s = t_state(&raw, name, shape, ndim, dtype, e, n);

	free(name);
	return s;
}

static int read_as(uint32_t state, uint64_t first, uint64_t count, enum ckpt_dtype dtype,
		   void *dst, struct ckpt_err *err)
{
	uint8_t *scratch = t_alloc(CK_READ_SCRATCH);
	struct ck_reader *r;
	int rc;

	assert_int_equal(ck_reader_new(&raw.ix, &limits, 1 << 20, &r, NULL), 0);
	rc = ck_reader_read(r, &raw.ix.state[state], first, count, dtype, dst, scratch, NULL, err);
	ck_reader_free(r);
	free(scratch);
	return rc;
}

/* Read it whole and in uneven pieces: both must be 'want'. */
static void check(uint32_t state, enum ckpt_dtype dtype, uint64_t numel, const void *want)
{
	const uint64_t es = ckpt_dtype_bits(dtype) / 8;
	uint8_t *got = t_alloc(numel * es + 1);
	uint64_t seed = 12345 + numel;

	memset(got, 0xee, numel * es + 1);
	assert_int_equal(read_as(state, 0, numel, dtype, got, NULL), 0);
	assert_memory_equal(got, want, numel * es);
	assert_int_equal(got[numel * es], 0xee);
	memset(got, 0xee, numel * es);
	for (uint64_t at = 0; at < numel;) {
		uint64_t n = 1 + t_random(&seed) % (numel / 3 + 1);

		n = n < numel - at ? n : numel - at;
		assert_int_equal(read_as(state, at, n, dtype, got + at * es, NULL), 0);
		at += n;
	}
	assert_memory_equal(got, want, numel * es);
	free(got);
}

static void plain_bytes_come_as_they_are(void **state)
{
	const uint64_t shape[] = { 3, 50000 };
	const struct ck_extent e[] = {
		t_extent(&raw, 0, 70001, 12, CKPT_F32),
		t_extent(&raw, 70001, 0, 0, CKPT_F32),
		t_extent(&raw, 70001, 79999, 500001, CKPT_F32),
	};
	uint8_t *want = t_alloc(150000 * 4);

	(void)state;
	memcpy(want, raw.bytes + 12, 70001 * 4);
	memcpy(want + 70001 * 4, raw.bytes + 500001, 79999 * 4);
	check(state_over(shape, 2, CKPT_F32, e, 3), CKPT_F32, 150000, want);
	free(want);
}

static void runs_are_picked_out_whatever_lies_between(void **state)
{
	/* count, runs, stride in bytes: columns of wide and narrow matrices, overlaps, repeats */
	static const uint64_t shape_of[][3] = {
		{ 7, 1000, 64 }, { 1, 5000, 4 }, { 1, 5000, 8 }, { 3, 400, 5000 },
		{ 1, 30, 90000 }, { 100, 2000, 400 }, { 100, 200, 4 }, { 5, 300, 0 },
		{ 70000, 8, 290000 }, { 20000, 20, 100000 }, { 60000, 3, 100 }, { 9, 1, 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(shape_of) / sizeof(shape_of[0]); i++) {
		const uint64_t count = shape_of[i][0], runs = shape_of[i][1];
		const uint64_t stride = shape_of[i][2], numel = count * runs;
		struct ck_extent e = t_extent(&raw, 0, count, 8, CKPT_F32);
		uint8_t *want = t_alloc(numel * 4);

		e.runs = runs;
		e.src_stride = stride;
		for (uint64_t k = 0; k < runs; k++)
			memcpy(want + k * count * 4, raw.bytes + 8 + k * stride, count * 4);
		check(state_over(&numel, 1, CKPT_F32, &e, 1), CKPT_F32, numel, want);
		/* The same by way of the scratch. */
		e.flags = CKPT_EXTENT_SWAPPED;
		kn_bswap32(want, want, numel);
		check(state_over(&numel, 1, CKPT_F32, &e, 1), CKPT_F32, numel, want);
		free(want);
	}
}

static void flags_are_undone(void **state)
{
	static const struct {
		enum ckpt_dtype dtype;
		uint8_t flags;
		size_t part;		/* bytes whose order is reversed */
	} of[] = {
		{ CKPT_F32, CKPT_EXTENT_SWAPPED, 4 }, { CKPT_BF16, CKPT_EXTENT_SWAPPED, 2 },
		{ CKPT_I64, CKPT_EXTENT_SWAPPED, 8 }, { CKPT_U8, CKPT_EXTENT_SWAPPED, 1 },
		{ CKPT_C64, CKPT_EXTENT_SWAPPED, 4 }, { CKPT_C128, CKPT_EXTENT_SWAPPED, 8 },
		{ CKPT_F64, CKPT_EXTENT_NEG, 8 }, { CKPT_F16, CKPT_EXTENT_NEG, 2 },
		{ CKPT_C64, CKPT_EXTENT_CONJ, 4 }, { CKPT_C128, CKPT_EXTENT_CONJ, 8 },
		{ CKPT_C32, CKPT_EXTENT_CONJ | CKPT_EXTENT_SWAPPED, 2 },
		{ CKPT_C64, CKPT_EXTENT_CONJ | CKPT_EXTENT_NEG | CKPT_EXTENT_SWAPPED, 4 },
	};
	const uint64_t numel = 40001;

	(void)state;
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		const size_t es = ckpt_dtype_bits(of[i].dtype) / 8, part = of[i].part;
		const bool is_complex = es == 2 * part;
		struct ck_extent e = t_extent(&raw, 0, numel, 40, of[i].dtype);
		uint8_t *want = t_alloc(numel * es);

		e.flags = of[i].flags;
		for (size_t k = 0; k < numel * es; k++) {
			const bool swap = of[i].flags & CKPT_EXTENT_SWAPPED;

			want[k] = raw.bytes[40 + (swap ? k / part * part + part - 1 - k % part :
						  k)];
			if (k % part == part - 1 && (of[i].flags & CKPT_EXTENT_NEG))
				want[k] ^= 0x80;
			if (is_complex && k % es == es - 1 && (of[i].flags & CKPT_EXTENT_CONJ))
				want[k] ^= 0x80;
		}
		check(state_over(&numel, 1, of[i].dtype, &e, 1), of[i].dtype, numel, want);
		free(want);
	}
}

static void views_of_random_shapes_are_gathered(void **state)
{
	uint64_t seed = 99;

	(void)state;
	for (int round = 0; round < 200; round++) {
		const uint32_t ndim = (uint32_t)(t_random(&seed) % 5);
		const size_t es = (size_t)1 << t_random(&seed) % 4;
		const enum ckpt_dtype dtype = es == 1 ? CKPT_U8 : es == 2 ? CKPT_BF16 :
					      es == 4 ? CKPT_F32 : CKPT_F64;
		uint64_t shape[5], stride[5], idx[5] = { 0 }, numel = 1;
		struct ck_extent e = t_extent(&raw, 0, 0, 8, dtype);
		uint8_t *want;

		for (uint32_t d = 0; d < ndim; d++) {
			shape[d] = t_random(&seed) % 9 + (round % 7 != 0);
			stride[d] = t_random(&seed) % 4 ? t_random(&seed) % 50 :
				    t_random(&seed) % 2;
			numel *= shape[d];
		}
		want = t_alloc(numel * es + 1);
		for (uint64_t i = 0; i < numel; i++) {
			uint64_t at = 0;

			for (uint32_t d = 0; d < ndim; d++)
				at += idx[d] * stride[d];
			memcpy(want + i * es, raw.bytes + 8 + at * es, es);
			for (uint32_t d = ndim; d-- > 0;) {
				if (++idx[d] < shape[d])
					break;
				idx[d] = 0;
			}
		}
		e.count = numel;
		e.flags = CKPT_EXTENT_GATHER;
		assert_int_equal(ck_index_add_view(&raw.ix, shape, stride, ndim, &e.view, NULL), 0);
		check(state_over(shape, ndim, dtype, &e, 1), dtype, numel, want);
		free(want);
	}
}

static void two_extents_may_share_a_view(void **state)
{
	const uint64_t shape[] = { 4, 3 }, stride[] = { 1, 4 }, numel = 24;
	struct ck_extent e[2] = {
		t_extent(&raw, 0, 12, 0, CKPT_F32), t_extent(&raw, 12, 12, 4096, CKPT_F32),
	};
	uint8_t want[24 * 4], got[24 * 4];
	uint32_t view;

	(void)state;
	assert_int_equal(ck_index_add_view(&raw.ix, shape, stride, 2, &view, NULL), 0);
	for (int i = 0; i < 2; i++) {
		e[i].flags = CKPT_EXTENT_GATHER;
		e[i].view = view;
		for (int k = 0; k < 12; k++)
			memcpy(want + i * 48 + k * 4,
			       raw.bytes + e[i].off + (size_t)(k / 3 + k % 3 * 4) * 4, 4);
	}
	assert_int_equal(read_as(state_over(&numel, 1, CKPT_F32, e, 2), 0, 24, CKPT_F32, got, NULL),
			 0);
	assert_memory_equal(got, want, sizeof(want));
}

static void a_view_too_large_or_beyond_the_file_is_refused(void **state)
{
	const uint64_t shape[] = { 1000, 1000 }, far[] = { RAW, 1 }, zero[] = { 0, 0 };
	const uint64_t numel = 1000000;
	struct ck_extent e = t_extent(&raw, 0, numel, 0, CKPT_U8);
	struct ckpt_err err = { 0 };
	uint8_t p[16];

	(void)state;
	e.flags = CKPT_EXTENT_GATHER;
	assert_int_equal(ck_index_add_view(&raw.ix, shape, far, 2, &e.view, NULL), 0);
	assert_int_equal(read_as(state_over(&numel, 1, CKPT_U8, &e, 1), 0, 16, CKPT_U8, p, &err),
			 -CKPT_E_LIMIT);
	assert_int_equal(ck_index_add_view(&raw.ix, shape, zero, 2, &e.view, NULL), 0);
	e.off = RAW;
	ck_err_clear(&err);
	assert_int_equal(read_as(state_over(&numel, 1, CKPT_U8, &e, 1), 0, 16, CKPT_U8, p, &err),
			 -CKPT_E_TRUNCATED);
	e.off = 0;	/* strides whose sum, or whose product, passes 64 bits */
	for (int k = 0; k < 2; k++) {
		const uint64_t wide[] = { UINT64_MAX / 999, k ? UINT64_MAX / 2 : UINT64_MAX / 999 };

		assert_int_equal(ck_index_add_view(&raw.ix, shape, wide, 2, &e.view, NULL), 0);
		ck_err_clear(&err);
		assert_int_equal(read_as(state_over(&numel, 1, CKPT_U8, &e, 1), 0, 16, CKPT_U8, p,
					 &err), -CKPT_E_LIMIT);
		assert_string_equal(err.msg, "the size of a view exceeds 64 bits");
	}
	assert_int_equal(ck_index_add_view(&raw.ix, shape, zero, 2, &e.view, NULL), 0);
	limits.gather_bytes = 999999;
	assert_int_equal(read_as(state_over(&numel, 1, CKPT_U8, &e, 1), 0, 16, CKPT_U8, p, NULL),
			 -CKPT_E_LIMIT);
	limits.gather_bytes = 1000000;
	assert_int_equal(read_as(state_over(&numel, 1, CKPT_U8, &e, 1), 0, 16, CKPT_U8, p, NULL),
			 0);
	assert_int_equal(p[15], raw.bytes[0]);
	ck_limits_fill(NULL, &limits);
}

/* A deflate stream of one stored block, and its source. */
static uint32_t member_over(const uint8_t *p, uint16_t n, bool good_crc)
{
	uint8_t *packed = t_alloc((size_t)n + 5);
	struct ck_member m = { .name = "m", .packed = (uint64_t)n + 5, .bytes = n };
	char *path = t_fmt("%s/deflated%d", raw.dir, (int)serial++);
	struct ck_src *src;
	uint32_t member;

	packed[0] = 1;
	packed[1] = (uint8_t)n;
	packed[2] = (uint8_t)(n >> 8);
	packed[3] = (uint8_t)~packed[1];
	packed[4] = (uint8_t)~packed[2];
	memcpy(packed + 5, p, n);
	t_file_write(path, packed, (size_t)n + 5);
	free(packed);
	m.crc = ck_zip_crc32(0, p, n) ^ !good_crc;
	assert_int_equal(ck_src_open(raw.pool, path, &src, NULL), 0);
	assert_int_equal(ck_index_add_source(&raw.ix, path, src, -1, &m.source, NULL), 0);
	assert_int_equal(ck_index_add_member(&raw.ix, &m, &member, NULL), 0);
	free(path);
	return member;
}

static void deflated_members_are_inflated_and_checked(void **state)
{
	const uint64_t numel = 5000, shape[] = { 50, 100 }, stride[] = { 1, 50 };
	const uint32_t good = member_over(raw.bytes, 40000, true);
	const uint32_t bad = member_over(raw.bytes, 40000, false);
	struct ck_extent e = t_extent(&raw, 0, numel, 1000, CKPT_F32);
	struct ckpt_err err = { 0 };
	uint8_t want[5000 * 4], *got = t_alloc(5000 * 4);

	(void)state;
	e.flags = CKPT_EXTENT_DEFLATED;
	e.member = good;
	e.source = raw.ix.member[good].source;
	check(state_over(&numel, 1, CKPT_F32, &e, 1), CKPT_F32, numel, raw.bytes + 1000);
	e.flags |= CKPT_EXTENT_GATHER;
	assert_int_equal(ck_index_add_view(&raw.ix, shape, stride, 2, &e.view, NULL), 0);
	for (size_t i = 0; i < numel; i++)
		memcpy(want + i * 4, raw.bytes + 1000 + (i / 100 + i % 100 * 50) * 4, 4);
	check(state_over(&numel, 1, CKPT_F32, &e, 1), CKPT_F32, numel, want);
	e.flags = CKPT_EXTENT_DEFLATED;
	e.off = 30000;
	assert_int_equal(read_as(state_over(&numel, 1, CKPT_F32, &e, 1), 0, numel, CKPT_F32, got,
				 &err), -CKPT_E_CORRUPT);
	e.off = 0;
	e.member = bad;
	ck_err_clear(&err);
	assert_int_equal(read_as(state_over(&numel, 1, CKPT_F32, &e, 1), 0, numel, CKPT_F32, got,
				 &err), -CKPT_E_CORRUPT);
	assert_non_null(strstr(err.msg, "CRC-32"));
	limits.inflate_bytes = 39999;
	e.member = good;
	assert_int_equal(read_as(state_over(&numel, 1, CKPT_F32, &e, 1), 0, 1, CKPT_F32, got, NULL),
			 -CKPT_E_LIMIT);
	ck_limits_fill(NULL, &limits);
	free(got);
}

/*
 * More members than places to keep them (260), and more bytes than may be kept: what was used
 * longest ago goes, and comes again with the same bytes.
 */
static void members_that_are_not_kept_are_made_again(void **state)
{
	enum { MEMBERS = 300, ELEMS = 100 };
	static const uint64_t keep[] = { 0, 5000, 1 << 20 };
	const uint64_t numel = ELEMS;
	uint32_t s[MEMBERS];
	uint8_t *scratch = t_alloc(CK_READ_SCRATCH), got[ELEMS];

	(void)state;
	for (int i = 0; i < MEMBERS; i++) {
		struct ck_extent e = t_extent(&raw, 0, numel, 0, CKPT_U8);

		e.flags = CKPT_EXTENT_DEFLATED;
		e.member = member_over(raw.bytes + 7 * i, ELEMS, true);
		e.source = raw.ix.member[e.member].source;
		s[i] = state_over(&numel, 1, CKPT_U8, &e, 1);
	}
	for (size_t k = 0; k < CK_ARRAY_LEN(keep); k++) {
		struct ck_reader *r;

		assert_int_equal(ck_reader_new(&raw.ix, &limits, keep[k], &r, NULL), 0);
		for (int turn = 0; turn < 2 * MEMBERS; turn++) {
			const int i = turn * 101 % MEMBERS;

			assert_int_equal(ck_reader_read(r, &raw.ix.state[s[i]], 0, numel, CKPT_U8,
							got, scratch, NULL, NULL), 0);
			assert_memory_equal(got, raw.bytes + 7 * i, ELEMS);
		}
		ck_reader_free(r);
	}
	free(scratch);
}

static void a_derived_state_is_rounded_by_way_of_its_own_type(void **state)
{
	const uint64_t numel = 100003;
	const struct ck_extent e = t_extent(&raw, 0, numel, 3, CKPT_F32);
	const uint32_t master = state_over(&numel, 1, CKPT_F32, &e, 1);
	uint8_t *half = t_alloc(numel * 2), *whole = t_alloc(numel * 4);
	uint32_t weight;

	(void)state;
	assert_int_equal(ck_index_state_derive(&raw.ix, master, "derived", CKPT_BF16, NULL), 0);
	weight = ck_index_state_find(&raw.ix, raw.ix.state[master].tensor, "derived");
	kn_f32_to_bf16(half, raw.bytes + 3, numel);
	check(weight, CKPT_BF16, numel, half);
	kn_bf16_to_f32(whole, half, numel);
	check(weight, CKPT_F32, numel, whole);
	check(master, CKPT_F32, numel, raw.bytes + 3);
	kn_cast(whole, KN_F16, raw.bytes + 3, KN_F32, numel, NULL);
	check(master, CKPT_F16, numel, whole);
	free(half);
	free(whole);
}

static void elements_of_less_than_a_byte_are_read_whole(void **state)
{
	const uint64_t four = 1001 * 2, six = 4 * 300;
	const struct ck_extent e4 = t_extent(&raw, 0, four, 77, CKPT_F4);
	const struct ck_extent e6 = t_extent(&raw, 0, six, 99, CKPT_F6_E2M3);
	const uint32_t s4 = state_over(&four, 1, CKPT_F4, &e4, 1);
	const uint32_t s6 = state_over(&six, 1, CKPT_F6_E2M3, &e6, 1);
	uint8_t got[1001];

	(void)state;
	assert_int_equal(read_as(s4, 0, 1001, CKPT_F4, got, NULL), 0);
	assert_memory_equal(got, raw.bytes + 77, 1001);
	assert_int_equal(read_as(s6, 100, 800, CKPT_F6_E2M3, got, NULL), 0);
	assert_memory_equal(got, raw.bytes + 199, 800);
	assert_int_equal(read_as(s6, 100, 801, CKPT_F6_E2M3, got, NULL), -CKPT_E_USAGE);
	assert_int_equal(read_as(s4, 0, 1, CKPT_F32, got, NULL), -CKPT_E_USAGE);
}

static void wrong_ranges_casts_and_flags_are_refused(void **state)
{
	const uint64_t numel = 10;
	struct ck_extent e = t_extent(&raw, 0, numel, RAW - 20, CKPT_I32);
	struct ckpt_err err = { 0 };
	const uint32_t s = state_over(&numel, 1, CKPT_I32, &e, 1);
	uint8_t got[80];

	(void)state;
	assert_int_equal(read_as(s, 5, 6, CKPT_I32, got, &err), -CKPT_E_USAGE);
	assert_int_equal(read_as(s, UINT64_MAX, 2, CKPT_I32, got, NULL), -CKPT_E_USAGE);
	assert_int_equal(read_as(s, 0, 10, CKPT_F32, got, NULL), -CKPT_E_USAGE);
	assert_int_equal(read_as(s, 0, 5, CKPT_I32, got, NULL), 0);
	assert_int_equal(read_as(s, 0, 10, CKPT_I32, got, NULL), -CKPT_E_TRUNCATED);
	assert_int_equal(read_as(s, 10, 0, CKPT_I32, got, NULL), 0);
	e.off = 0;
	e.flags = CKPT_EXTENT_NEG;
	assert_int_equal(read_as(state_over(&numel, 1, CKPT_I32, &e, 1), 0, 1, CKPT_I32, got, NULL),
			 -CKPT_E_UNSUPPORTED);
}

static int set_up(void **state)
{
	(void)state;
	t_raw_make(&raw, RAW);
	ck_limits_fill(NULL, &limits);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	t_raw_free(&raw);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_bytes_come_as_they_are),
		cmocka_unit_test(runs_are_picked_out_whatever_lies_between),
		cmocka_unit_test(flags_are_undone),
		cmocka_unit_test(views_of_random_shapes_are_gathered),
		cmocka_unit_test(two_extents_may_share_a_view),
		cmocka_unit_test(a_view_too_large_or_beyond_the_file_is_refused),
		cmocka_unit_test(deflated_members_are_inflated_and_checked),
		cmocka_unit_test(members_that_are_not_kept_are_made_again),
		cmocka_unit_test(a_derived_state_is_rounded_by_way_of_its_own_type),
		cmocka_unit_test(elements_of_less_than_a_byte_are_read_whole),
		cmocka_unit_test(wrong_ranges_casts_and_flags_are_refused),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
