/*
 * Plans. If this fails, a byte of a file belongs to no unit or to two, or a changed plan
 * continues a killed run of another one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "libckpt/base/ck_hash.h"
#include "libckpt/format/ck_plan.h"
#include "tests/lib/ops/t_raw.h"

static struct t_raw raw;

static int set_up(void **state)
{
	(void)state;
	t_raw_make(&raw, 4096);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	t_raw_free(&raw);
	return 0;
}

static void units_tile_every_file_and_slices_begin_at_blocks(void **state)
{
	struct ck_plan plan = CK_PLAN_INIT;
	uint64_t seed = 4711, at = 0;
	uint32_t file = 0;

	(void)state;
	for (int f = 0; f < 6; f++) {
		assert_int_equal(ck_plan_file(&plan, "f", NULL), 0);
		for (int s = 0; s < 40; s++) {
			const uint64_t r = t_random(&seed);
			const uint64_t big = CK_UNIT_BYTES * (r >> 8 & 3) + (r >> 10 & 1);
			const uint64_t n = r % 5 == 0 ? big :
					   r % 5 == 1 ? CK_UNIT_BYTES / 3 : r % 1000;

			assert_int_equal(ck_plan_zero(&plan, n, NULL), 0);
		}
	}
	assert_int_equal(ck_plan_file(&plan, "empty", NULL), 0);
	assert_int_equal(ck_plan_finish(&plan, NULL), 0);
	for (uint64_t i = 0; i < plan.nunits; i++) {
		const struct ck_unit *u = &plan.unit[i];
		const struct ck_seg *s = &plan.seg[u->seg];

		if (u->file != file) {
			assert_int_equal(at, plan.file[file].bytes);
			assert_int_equal(u->file, ++file);
			at = 0;
		}
		assert_int_equal(u->off, at);
		assert_int_equal(s->off + u->skip, u->off);
		assert_int_equal(u->skip % CK_DIGEST_BLOCK, 0);
		assert_in_range(u->bytes, 1, CK_UNIT_BYTES);
		assert_in_range(u->seg, plan.file[file].seg,
				plan.file[file].seg + plan.file[file].nsegs - 1);
		at += u->bytes;
	}
	assert_int_equal(at, plan.file[file].bytes);
	assert_int_equal(file, 5);
	ck_plan_release(&plan);
}

static struct ck_hash128 hash_of(int what, uint32_t nparts)
{
	const uint64_t shape[] = { 64 };
	const struct ck_extent e = t_extent(&raw, 0, 64, 0, CKPT_F32);
	struct ck_plan plan = CK_PLAN_INIT;
	struct ck_hash128 h;
	uint32_t s;

	if (!raw.ix.nstates)
		t_state(&raw, "t", shape, 1, CKPT_F32, &e, 1);
	s = 0;
	assert_int_equal(ck_plan_file(&plan, what == 1 ? "g" : "f", NULL), 0);
	assert_int_equal(ck_plan_literal(&plan, what == 2 ? "abd" : "abc", 3, NULL), 0);
	assert_int_equal(ck_plan_state(&plan, &raw.ix, s, what == 3 ? CKPT_BF16 : CKPT_F32,
				       what == 4, 32, CK_NONE, NULL), 0);
	if (what == 5)
		assert_int_equal(ck_plan_zero(&plan, 1, NULL), 0);
	if (what == 6)
		assert_int_equal(ck_plan_file(&plan, "empty", NULL), 0);
	assert_int_equal(ck_plan_copy(&plan, what == 7 ? "p" : "q", 0, 9, NULL), 0);
	assert_int_equal(ck_plan_finish(&plan, NULL), 0);
	assert_int_equal(ck_plan_hash(&plan, nparts, &h, NULL), 0);
	ck_plan_release(&plan);
	return h;
}

static void every_change_of_a_plan_changes_its_hash(void **state)
{
	struct ck_hash128 h[9];

	(void)state;
	for (int i = 0; i < 8; i++)
		h[i] = hash_of(i, 1);
	h[8] = hash_of(0, 2);
	for (int i = 0; i < 9; i++)
		for (int k = 0; k < i; k++)
			assert_false(ck_hash128_equal(h[i], h[k]));
	assert_true(ck_hash128_equal(h[0], hash_of(0, 1)));
}

static void literals_are_copied_and_small_elements_are_not_cut(void **state)
{
	const uint64_t shape[] = { 8 };
	const struct ck_extent e = t_extent(&raw, 0, 8, 0, CKPT_F4);
	const uint32_t s = t_state(&raw, "packed", shape, 1, CKPT_F4, &e, 1);
	struct ck_plan plan = CK_PLAN_INIT;
	char text[] = "abc";

	(void)state;
	assert_int_equal(ck_plan_file(&plan, "f", NULL), 0);
	assert_int_equal(ck_plan_literal(&plan, text, 3, NULL), 0);
	assert_int_equal(ck_plan_literal(&plan, NULL, 0, NULL), 0);
	memset(text, 0, sizeof(text));
	assert_memory_equal(plan.seg[0].text, "abc", 3);
	assert_int_equal(plan.nsegs, 1);
	assert_int_equal(ck_plan_state(&plan, &raw.ix, s, CKPT_F4, 2, 4, CK_NONE, NULL),
			 -CKPT_E_UNSUPPORTED);
	assert_int_equal(ck_plan_state(&plan, &raw.ix, s, CKPT_F4, 0, 8, CK_NONE, NULL), 0);
	assert_int_equal(ck_plan_bytes(&plan), 7);
	assert_int_equal(ck_plan_zero(&plan, INT64_MAX, NULL), -CKPT_E_LIMIT);
	assert_int_equal(ck_plan_bytes(&plan), 7);
	ck_plan_release(&plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(units_tile_every_file_and_slices_begin_at_blocks,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(every_change_of_a_plan_changes_its_hash, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(literals_are_copied_and_small_elements_are_not_cut,
						set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
