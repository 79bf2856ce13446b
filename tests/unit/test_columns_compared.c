/*
 * Blocks of columns that are compared while files are read as a whole. If this fails, verify --full
 * compares an element with another one, or passes over a damaged row.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/include/kn.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/tensor/ck_block.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/verify/ck_copy_check.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_raw.h"

#define ROWS 50
#define COLUMNS 24
#define ELEMS (ROWS * COLUMNS)
#define RAW ((size_t)16 << 10)

static struct t_raw raw;
static struct ckpt ck;
static uint64_t read_elements, claimed;

static int set_up(void **state)
{
	(void)state;
	t_raw_make(&raw, RAW);
	memset(&ck, 0, sizeof(ck));
	ck_limits_fill(NULL, &ck.limits);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	ck_findings_release(&ck.findings);
	t_raw_free(&raw);
	return 0;
}

/* Parts of as many columns, one after the other from byte 'off' on. */
static void put(const char *state, enum ckpt_dtype dtype, uint64_t off, uint64_t parts,
		uint32_t tensor)
{
	const uint64_t shape[] = { ROWS, COLUMNS }, size[] = { ROWS, COLUMNS / parts };
	const uint64_t bytes = size[0] * size[1] * (ckpt_dtype_bits(dtype) / 8);
	struct ck_tiles tiles;

	ck_tiles_init(&tiles, 0);
	assert_int_equal(ck_tiles_begin(&tiles, "t", shape, 2, NULL), 0);
	for (uint64_t k = 0; k < parts; k++) {
		const uint64_t offset[] = { 0, k * size[1] };
		const struct ck_extent e = t_extent(&raw, 0, 0, off + k * bytes, dtype);

		assert_int_equal(ck_tiles_add(&tiles, &(struct ck_block){ offset, size }, 0,
					      size[0] * size[1], &e, NULL), 0);
	}
	assert_int_equal(ck_tiles_put(&tiles, &raw.ix, tensor, state, dtype, NULL), 0);
	assert_int_equal(raw.ix.state[raw.ix.nstates - 1].nweaves, 1);
	ck_tiles_release(&tiles);
}

/* Where element (row, column) is. */
static uint8_t *at(uint64_t off, uint64_t parts, size_t es, uint64_t row, uint64_t column)
{
	const uint64_t wide = COLUMNS / parts;

	return raw.bytes + off + ((column / wide * ROWS + row) * wide + column % wide) * es;
}

static int claim(void *arg, uint32_t source, uint64_t off, const void *p, uint64_t n,
		 struct ckpt_err *err)
{
	(void)arg;
	(void)source;
	(void)err;
	assert_memory_equal(p, raw.bytes + off, n);
	claimed += n;
	return 0;
}

/* The whole file, in pieces of odd lengths. */
static void compare(bool claims)
{
	struct ck_copy_check_counts counts;
	struct ck_copy_check *w;
	uint64_t off = 0, passed = 0, from, to;

	t_raw_put(&raw);
	ck.ix = raw.ix;
	claimed = 0;
	assert_int_equal(ck_copy_check_new(&ck, 1, true, &w, NULL), 0);
	if (claims)
		assert_int_equal(ck_copy_check_claim(w, claim, NULL, NULL), 0);
	while (ck_copy_check_free_run(w, raw.source, off, RAW, &from, &to)) {
		off = to - from > 333 ? from + 333 : to;
		passed += off - from;
		assert_int_equal(ck_copy_check_bytes(w, 0, raw.source, from, raw.bytes + from,
						     off - from, NULL), 0);
	}
	assert_int_equal(passed + claimed, RAW);	/* each byte is read once */
	ck_copy_check_report(w, &counts);
	read_elements = counts.elements + counts.copies;
	ck_copy_check_free(w);
}

static void a_copy_in_other_columns_is_compared_by_element(void **state)
{
	const uint64_t shape[] = { ROWS, COLUMNS };
	char want[32];
	uint32_t t;

	(void)state;
	assert_int_equal(ck_index_add_tensor(&raw.ix, "t", shape, 2, CKPT_ROLE_PLAIN, &t, NULL), 0);
	put("weight", CKPT_BF16, 100, 2, t);
	put("weight", CKPT_BF16, 8000, 3, t);
	for (uint64_t i = 0; i < ELEMS; i++)
		memcpy(at(8000, 3, 2, i / COLUMNS, i % COLUMNS), at(100, 2, 2, i / COLUMNS,
								    i % COLUMNS), 2);
	compare(false);
	assert_int_equal(read_elements, ELEMS);
	assert_int_equal(ck.findings.n, 0);
	at(8000, 3, 2, 37, 17)[1] ^= 1;
	compare(false);
	assert_int_equal(ck.findings.n, 1);
	snprintf(want, sizeof(want), "element %d of", 37 * COLUMNS + 17);
	assert_non_null(strstr(ck.findings.list[0].text, want));
}

static void a_weight_is_compared_with_its_master_once(void **state)
{
	const uint64_t shape[] = { ROWS, COLUMNS };
	char want[32];
	uint32_t t;

	(void)state;
	assert_int_equal(ck_index_add_tensor(&raw.ix, "t", shape, 2, CKPT_ROLE_TRAINABLE, &t, NULL),
			 0);
	put("master", CKPT_F32, 4, 4, t);
	put("weight", CKPT_BF16, 9002, 6, t);
	for (uint64_t i = 0; i < ELEMS; i++)
		kn_cast(at(9002, 6, 2, i / COLUMNS, i % COLUMNS), KN_BF16,
			at(4, 4, 4, i / COLUMNS, i % COLUMNS), KN_F32, 1, NULL);
	compare(true);
	assert_int_equal(read_elements, ELEMS);
	assert_int_equal(claimed, ELEMS * 2);
	assert_int_equal(ck.findings.n, 0);
	memset(at(4, 4, 4, 12, 20), 0, 4);
	memset(at(9002, 6, 2, 12, 20), 0x3f, 2);
	compare(true);
	assert_int_equal(ck.findings.n, 1);
	snprintf(want, sizeof(want), "element %d:", 12 * COLUMNS + 20);
	assert_non_null(strstr(ck.findings.list[0].text, want));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
		T(a_copy_in_other_columns_is_compared_by_element),
		T(a_weight_is_compared_with_its_master_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
