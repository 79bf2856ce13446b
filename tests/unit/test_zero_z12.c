/*
 * test_zero_z12.c -- flat groups of stages 1 and 2 and of BF16_Optimizer.
 *
 * If this is wrong, padding of an old checkpoint is read as weights, parameters get each
 * other's values under round robin, or DeepSpeed refuses (or misreads) a written step.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "libckpt/include/ckpt_zero.h"

#define MAX_WORLD 9
#define MAX_PARAM 6

static struct ckpt_zero_cut make_cut(uint64_t numel, uint32_t world, uint32_t factor)
{
	struct ckpt_zero_cut cut;

	assert_int_equal(ckpt_z12_cut(numel, world, factor, &cut), 0);
	return cut;
}

/* Compares a row of numbers, one per rank, with what ckpt_zero.h says. */
static void expect_row(uint64_t (*fn)(enum ckpt_z12_rule, const struct ckpt_zero_cut *,
				      uint32_t),
		       enum ckpt_z12_rule rule, uint64_t numel, uint32_t world,
		       const uint64_t *want)
{
	const struct ckpt_zero_cut cut = make_cut(numel, world, 2);

	for (uint32_t rank = 0; rank < world; rank++) {
		const uint64_t got = fn(rule, &cut, rank);

		if (got != want[rank])
			fail_msg("rule %d numel %d world %u rank %u: %d, want %d",
				 (int)rule, (int)numel, world, rank, (int)got,
				 (int)want[rank]);
	}
}

#define ROW(...) ((const uint64_t[]){ __VA_ARGS__ })

/* Lengths and paddings found in folders that the named versions wrote. */
static void lengths_are_those_of_real_shards(void **state)
{
	(void)state;
	/* 0.12.6, 0.15.4 */
	expect_row(ckpt_z12_saved_numel, CKPT_Z12_LAST_RANK, 38, 8,
		   ROW(6, 6, 6, 6, 6, 6, 6, 2));
	/* 0.14.5 */
	expect_row(ckpt_z12_saved_numel, CKPT_Z12_LAST_RANK, 10, 4, ROW(4, 4, 4, 2));
	/* 0.5.10, 0.6.7 */
	expect_row(ckpt_z12_saved_numel, CKPT_Z12_LEFTOVER, 1149, 2, ROW(576, 575));
	expect_row(ckpt_z12_saved_numel, CKPT_Z12_LEFTOVER, 1294, 2, ROW(648, 648));
	expect_row(ckpt_z12_saved_numel, CKPT_Z12_LEFTOVER, 1952, 3, ROW(652, 652, 651));
	/* 0.16.9 and later */
	expect_row(ckpt_z12_saved_numel, CKPT_Z12_CLAMP, 38, 8,
		   ROW(6, 6, 6, 6, 6, 6, 2, 0));
	expect_row(ckpt_z12_group_padding, CKPT_Z12_CLAMP, 10, 8,
		   ROW(0, 0, 0, 0, 0, 2, 2, 2));
	expect_row(ckpt_z12_group_padding, CKPT_Z12_LAST_RANK, 38, 8,
		   ROW(0, 0, 0, 0, 0, 0, 0, 10));
	expect_row(ckpt_z12_group_padding, CKPT_Z12_KEPT, 38, 8,
		   ROW(0, 0, 0, 0, 0, 0, 0, 10));
	expect_row(ckpt_z12_saved_numel, CKPT_Z12_KEPT, 10, 4, ROW(4, 4, 4, 4));
	expect_row(ckpt_z12_group_padding, CKPT_Z12_LEFTOVER, 38, 8,
		   ROW(0, 0, 0, 0, 0, 0, 0, 2));
}

/* len(t[:stop]) of Python for len(t) = len. */
static int64_t py_slice(int64_t len, int64_t stop)
{
	if (stop < 0)
		stop += len;
	return stop < 0 ? 0 : stop > len ? len : stop;
}

/* The writers as they were, in signed arithmetic: a list is aligned, cut, and sliced. */
static void every_rule_is_what_its_writer_did(void **state)
{
	(void)state;
	for (uint32_t factor = 1; factor <= 2; factor++)
	for (int64_t world = 1; world <= MAX_WORLD; world++)
	for (int64_t numel = 0; numel < 200; numel++) {
		const struct ckpt_zero_cut cut =
			make_cut((uint64_t)numel, (uint32_t)world, factor);
		int64_t flat = numel, part, short_pad;

		while (flat % (world * factor))
			flat++;
		part = flat / world;
		for (short_pad = 0; (numel + short_pad) % world; )
			short_pad++;
		assert_int_equal(cut.part, part);
		assert_int_equal(flat, ckpt_z12_flat_numel((uint64_t)numel,
							   (uint32_t)world, factor));
		for (int64_t r = 0; r < world; r++) {
			const int64_t all = r == world - 1 ? flat - numel : 0;
			const int64_t few = r == world - 1 ? short_pad : 0;
			int64_t real = 0;

			for (int64_t i = r * part; i < (r + 1) * part; i++)
				real += i < numel;
#define EXPECT(rule, len, pad)                                                         \
	assert_int_equal(ckpt_z12_saved_numel(rule, &cut, (uint32_t)r), len);          \
	assert_int_equal(ckpt_z12_group_padding(rule, &cut, (uint32_t)r), pad)
			EXPECT(CKPT_Z12_CLAMP, real, part - real);
			EXPECT(CKPT_Z12_LAST_RANK, py_slice(part, part - all), all);
			EXPECT(CKPT_Z12_LEFTOVER, py_slice(part, part - few), few);
			EXPECT(CKPT_Z12_KEPT, part, all);
#undef EXPECT
		}
	}
}

/* What a reader relies on: rank by rank, the first numel elements are the real ones. */
static void no_rule_loses_a_real_element(void **state)
{
	(void)state;
	for (int rule = CKPT_Z12_LEFTOVER; rule <= CKPT_Z12_KEPT; rule++)
	for (uint32_t factor = 1; factor <= 2; factor++)
	for (uint32_t world = 1; world <= MAX_WORLD; world++)
	for (uint64_t numel = 0; numel < 200; numel++) {
		const struct ckpt_zero_cut cut = make_cut(numel, world, factor);
		uint64_t sum = 0;

		for (uint32_t rank = 0; rank < world; rank++) {
			const uint64_t len = ckpt_z12_saved_numel(
				(enum ckpt_z12_rule)rule, &cut, rank);

			/* What lies before this shard is all there, if any of it counts. */
			if (ckpt_zero_valid_numel(&cut, rank))
				assert_int_equal(sum, rank * cut.part);
			assert_true(len >= ckpt_zero_valid_numel(&cut, rank));
			sum += len;
		}
		assert_in_range(sum, numel, cut.part * world);
	}
}

static void a_rank_or_rule_that_is_not_there_has_nothing(void **state)
{
	const struct ckpt_zero_cut cut = make_cut(38, 8, 2);

	(void)state;
	for (int rule = CKPT_Z12_LEFTOVER; rule <= CKPT_Z12_KEPT; rule++) {
		assert_int_equal(ckpt_z12_saved_numel((enum ckpt_z12_rule)rule, &cut, 8), 0);
		assert_int_equal(
			ckpt_z12_group_padding((enum ckpt_z12_rule)rule, &cut, 8), 0);
		assert_int_equal(ckpt_z12_saved_numel((enum ckpt_z12_rule)rule, &cut,
						      UINT32_MAX), 0);
	}
	assert_int_equal(ckpt_z12_saved_numel((enum ckpt_z12_rule)0, &cut, 0), 0);
	assert_int_equal(ckpt_z12_saved_numel((enum ckpt_z12_rule)9, &cut, 0), 0);
	assert_int_equal(ckpt_z12_group_padding((enum ckpt_z12_rule)9, &cut, 7), 0);
}

static void versions_change_rule_where_deepspeed_did(void **state)
{
	(void)state;
	assert_int_equal(ckpt_z12_align_factor(0, 5, 1), 1);
	assert_int_equal(ckpt_z12_align_factor(0, 5, 2), 2);
	assert_int_equal(ckpt_z12_align_factor(0, 5, 10), 2);
	assert_int_equal(ckpt_z12_align_factor(0, 4, 9), 1);
	assert_int_equal(ckpt_z12_align_factor(0, 6, 0), 2);
	assert_int_equal(ckpt_z12_align_factor(1, 0, 0), 2);
	assert_int_equal(ckpt_z12_rule(0, 6, 7), CKPT_Z12_LEFTOVER);
	assert_int_equal(ckpt_z12_rule(0, 7, 0), CKPT_Z12_LAST_RANK);
	assert_int_equal(ckpt_z12_rule(0, 16, 3), CKPT_Z12_LAST_RANK);
	assert_int_equal(ckpt_z12_rule(0, 16, 4), CKPT_Z12_CLAMP);
	assert_int_equal(ckpt_z12_rule(0, 17, 0), CKPT_Z12_CLAMP);
	assert_int_equal(ckpt_z12_rule(1, 0, 0), CKPT_Z12_CLAMP);
}

static void round_robin_deals_parameters_in_turn_and_back(void **state)
{
	(void)state;
	for (uint32_t world = 1; world <= 12; world++)
		for (uint32_t n = 0; n <= 40; n++) {
			uint32_t k = 0;

			for (uint32_t j = 0; j < world; j++)
				for (uint32_t i = j; i < n; i += world, k++) {
					assert_int_equal(
						ckpt_z12_rr_original(n, world, k), i);
					assert_int_equal(
						ckpt_z12_rr_stored(n, world, i), k);
				}
			assert_int_equal(k, n);
			assert_int_equal(ckpt_z12_rr_original(n, world, n), n);
			assert_int_equal(ckpt_z12_rr_stored(n, world, n + 3), n + 3);
		}
	assert_int_equal(ckpt_z12_rr_stored(7, 0, 3), 3);
	assert_int_equal(ckpt_z12_rr_original(7, 0, 3), 3);
}

static void round_robin_holds_at_the_largest_counts(void **state)
{
	static const uint32_t worlds[] = { 1, 3, 4095, 4096 };
	const uint32_t n = UINT32_MAX;

	(void)state;
	for (unsigned w = 0; w < 4; w++)
		for (uint32_t i = 0; i < n - 99991 * 512; i += 99991 * 512) {
			const uint32_t k = ckpt_z12_rr_stored(n, worlds[w], i);

			assert_true(k < n);
			assert_int_equal(ckpt_z12_rr_original(n, worlds[w], k), i);
		}
}

static void gap_unit_is_16_bytes_of_the_model_dtype(void **state)
{
	(void)state;
	assert_int_equal(ckpt_z12_gap_unit(1), 16);
	assert_int_equal(ckpt_z12_gap_unit(2), 8);
	assert_int_equal(ckpt_z12_gap_unit(4), 4);
	assert_int_equal(ckpt_z12_gap_unit(8), 2);
	assert_int_equal(ckpt_z12_gap_unit(16), 1);
	assert_int_equal(ckpt_z12_gap_unit(0), 0);
	assert_int_equal(ckpt_z12_gap_unit(3), 0);
	assert_int_equal(ckpt_z12_gap_unit(32), 0);
}

/* All lists of up to MAX_PARAM parameters with sizes 0, 1, 3, 8 (4^6 lists). */
static uint32_t list_of(unsigned code, uint32_t n, uint64_t numel[MAX_PARAM])
{
	static const uint64_t size[4] = { 0, 1, 3, 8 };

	for (uint32_t j = 0; j < n; j++, code /= 4)
		numel[j] = size[code % 4];
	return code;	/* 0 while the list is not exhausted */
}

#define FOR_ALL_LISTS(n, code, numel)                                                  \
	for (uint32_t n = 0; n <= MAX_PARAM; n++)                                      \
		for (unsigned code = 0; list_of(code, n, numel) == 0; code++)

static void every_parameter_begins_aligned_and_no_gap_is_too_long(void **state)
{
	uint64_t numel[MAX_PARAM], off[MAX_PARAM], gap[MAX_PARAM], total;

	(void)state;
	FOR_ALL_LISTS(n, code, numel)
		for (uint32_t unit = 1; unit <= 16; unit *= 2) {
			uint64_t at = 0;

			assert_int_equal(ckpt_z12_offsets(numel, n, unit, off, gap, &total), 0);
			for (uint32_t j = 0; j < n; j++) {
				assert_int_equal(off[j], at);
				assert_int_equal(off[j] % unit, 0);
				assert_true(gap[j] < unit);
				at += numel[j] + gap[j];
			}
			if (n)
				assert_int_equal(gap[n - 1], 0);
			assert_int_equal(total, at);
			at = total + 1;
			assert_int_equal(ckpt_z12_offsets(numel, n, unit, NULL, NULL, &at), 0);
			assert_int_equal(at, total);
		}
}

static void offsets_beyond_the_domain_are_refused(void **state)
{
	uint64_t numel[3] = { CKPT_ZERO_MAX_NUMEL - 1, 1, 0 }, total = 7;

	(void)state;
	assert_int_equal(ckpt_z12_offsets(numel, 3, 0, NULL, NULL, &total), -1);
	assert_int_equal(ckpt_z12_offsets(numel, 3, 1, NULL, NULL, &total), 0);
	assert_int_equal(total, CKPT_ZERO_MAX_NUMEL);
	assert_int_equal(ckpt_z12_offsets(numel, 3, 8, NULL, NULL, &total), -1);
	numel[2] = 1;
	assert_int_equal(ckpt_z12_offsets(numel, 3, 1, NULL, NULL, &total), -1);
	numel[0] = UINT64_MAX;
	assert_int_equal(ckpt_z12_offsets(numel, 3, 1, NULL, NULL, &total), -1);
	numel[0] = CKPT_ZERO_MAX_NUMEL - 3;
	assert_int_equal(ckpt_z12_offsets(numel, 2, 8, NULL, NULL, &total), -1);
	assert_int_equal(total, CKPT_ZERO_MAX_NUMEL);
}

/* Slot by slot: the pieces of all ranks, one after the other, are the flat buffer. */
static void pieces_name_every_slot_of_every_rank(void **state)
{
	uint64_t numel[MAX_PARAM], off[MAX_PARAM], total;

	(void)state;
	FOR_ALL_LISTS(n, code, numel)
	for (uint32_t unit = 1; unit <= 8; unit += 7)
	for (uint32_t world = 1; world <= MAX_WORLD; world += 2) {
		struct ckpt_zero_cut cut;
		uint64_t at = 0;
		uint32_t j = 0;		/* the parameter or gap that 'at' is in */

		assert_int_equal(ckpt_z12_offsets(numel, n, unit, off, NULL, &total), 0);
		cut = make_cut(total, world, 2);
		for (uint32_t rank = 0; rank < world; rank++) {
			struct ckpt_z12_pieces it;
			struct ckpt_zero_piece p;

			assert_int_equal(ckpt_z12_pieces_init(&it, numel, off, n, total,
							      rank * cut.part,
							      cut.part), 0);
			while (ckpt_z12_pieces_next(&it, &p)) {
				assert_true(p.numel > 0 && p.offset == at);
				for (uint64_t i = 0; i < p.numel; i++, at++) {
					while (j + 1 < n && off[j + 1] <= at)
						j++;
					if (at >= total) {
						assert_int_equal(p.kind, CKPT_ZERO_PAD);
						continue;
					}
					assert_int_equal(p.param, j);
					if (at - off[j] >= numel[j]) {
						assert_int_equal(p.kind, CKPT_ZERO_GAP);
						continue;
					}
					assert_int_equal(p.kind, CKPT_ZERO_PARAM);
					assert_int_equal(p.elem + i, at - off[j]);
				}
			}
			assert_int_equal(at, (rank + 1) * cut.part);
		}
	}
}

static void pieces_of_the_worked_example(void **state)
{
	static const uint64_t numel[3] = { 5, 16, 3 };
	uint64_t off[3], gap[3], total;
	struct ckpt_z12_pieces it;
	struct ckpt_zero_piece p;

	(void)state;
	assert_int_equal(ckpt_z12_offsets(numel, 3, 8, off, gap, &total), 0);
	assert_int_equal(total, 27);
	assert_int_equal(gap[0], 3);
	assert_int_equal(ckpt_z12_pieces_init(&it, numel, off, 3, total, 14, 14), 0);
	assert_int_equal(ckpt_z12_pieces_next(&it, &p), 1);
	assert_true(p.kind == CKPT_ZERO_PARAM && p.param == 1 && p.elem == 6 &&
		    p.numel == 10);
	assert_int_equal(ckpt_z12_pieces_next(&it, &p), 1);
	assert_true(p.kind == CKPT_ZERO_PARAM && p.param == 2 && p.elem == 0 &&
		    p.numel == 3);
	assert_int_equal(ckpt_z12_pieces_next(&it, &p), 1);
	assert_true(p.kind == CKPT_ZERO_PAD && p.offset == 27 && p.numel == 1);
	assert_int_equal(ckpt_z12_pieces_next(&it, &p), 0);
	assert_int_equal(ckpt_z12_pieces_init(&it, numel, off, 3, total, UINT64_MAX, 2), -1);
	assert_int_equal(ckpt_z12_pieces_init(&it, numel, off, 3, total, 1, UINT64_MAX), -1);
}

/* The mapping as DeepSpeed walks it, against the pieces, which share no code with it. */
static void slice_mappings_agree_with_the_pieces(void **state)
{
	uint64_t numel[MAX_PARAM], off[MAX_PARAM], total;

	(void)state;
	FOR_ALL_LISTS(n, code, numel)
	for (uint32_t world = 1; world <= MAX_WORLD; world += 2) {
		struct ckpt_zero_cut cut;

		assert_int_equal(ckpt_z12_offsets(numel, n, 1, off, NULL, &total), 0);
		cut = make_cut(total, world, 2);
		for (uint32_t rank = 0; rank < world; rank++) {
			uint64_t start[MAX_PARAM] = { 0 }, len[MAX_PARAM] = { 0 };
			struct ckpt_z12_pieces it;
			struct ckpt_zero_piece p;

			assert_int_equal(ckpt_z12_pieces_init(&it, numel, off, n, total,
							      rank * cut.part,
							      cut.part), 0);
			while (ckpt_z12_pieces_next(&it, &p))
				if (p.kind == CKPT_ZERO_PARAM) {
					start[p.param] = p.offset - rank * cut.part;
					len[p.param] = p.numel;
				}
			for (uint32_t j = 0; j < n; j++) {
				uint64_t s = 0, c = 0;
				const int in = ckpt_z12_slice(off[j], numel[j], cut.part,
							      rank, &s, &c);

				assert_int_equal(c, len[j]);
				if (len[j])
					assert_int_equal(s, start[j]);
				/* Without elements: an entry strictly inside only. */
				if (!numel[j])
					assert_int_equal(in, off[j] > rank * cut.part &&
							 off[j] < (rank + 1) * cut.part);
				else
					assert_int_equal(in, len[j] != 0);
			}
		}
	}
}

static void slices_at_the_end_of_64_bits_do_not_wrap(void **state)
{
	const uint64_t part = (UINT64_C(1) << 63) + 1;
	uint64_t start = 7, numel = 7;

	(void)state;
	assert_int_equal(ckpt_z12_slice(UINT64_MAX, 1, part, 2, &start, &numel), 0);
	assert_int_equal(ckpt_z12_slice(5, UINT64_MAX, part, 2, &start, &numel), 0);
	assert_int_equal(start, 7);
	assert_int_equal(ckpt_z12_slice(5, UINT64_MAX, part, 1, &start, &numel), 1);
	assert_int_equal(start, 0);
	assert_int_equal(ckpt_z12_slice(100, 200, 126, 1, &start, &numel), 1);
	assert_int_equal(start, 0);
	assert_int_equal(numel, 126);
	assert_int_equal(ckpt_z12_slice(100, 200, 126, 2, &start, &numel), 1);
	assert_int_equal(numel, 48);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lengths_are_those_of_real_shards),
		cmocka_unit_test(every_rule_is_what_its_writer_did),
		cmocka_unit_test(no_rule_loses_a_real_element),
		cmocka_unit_test(a_rank_or_rule_that_is_not_there_has_nothing),
		cmocka_unit_test(versions_change_rule_where_deepspeed_did),
		cmocka_unit_test(round_robin_deals_parameters_in_turn_and_back),
		cmocka_unit_test(round_robin_holds_at_the_largest_counts),
		cmocka_unit_test(gap_unit_is_16_bytes_of_the_model_dtype),
		cmocka_unit_test(every_parameter_begins_aligned_and_no_gap_is_too_long),
		cmocka_unit_test(offsets_beyond_the_domain_are_refused),
		cmocka_unit_test(pieces_name_every_slot_of_every_rank),
		cmocka_unit_test(pieces_of_the_worked_example),
		cmocka_unit_test(slice_mappings_agree_with_the_pieces),
		cmocka_unit_test(slices_at_the_end_of_64_bits_do_not_wrap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
