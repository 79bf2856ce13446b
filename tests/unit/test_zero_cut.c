/*
 * test_zero_cut.c -- ranges of a cut, and moves between cuts.
 *
 * If this is wrong, a resharded run goes on with optimizer state that is shifted by a few
 * elements, slightly worse and without a message; or a converted weight holds padding.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "libckpt/include/ckpt_zero.h"

#define MAX_WORLD 9
#define MAX_NUMEL 70
#define SLOTS (MAX_WORLD * (MAX_NUMEL + 2))
#define BIG CKPT_ZERO_MAX_NUMEL

/* The cuts of one element count under which everything below must hold: stage 3, and
   stages 1 and 2 with both factors. */
static struct ckpt_zero_cut make_cut(unsigned kind, uint64_t numel, uint32_t world)
{
	struct ckpt_zero_cut cut;

	if (kind == 0)
		assert_int_equal(ckpt_z3_cut(numel, world, &cut), 0);
	else
		assert_int_equal(ckpt_z12_cut(numel, world, kind, &cut), 0);
	return cut;
}

#define FOR_ALL_CUTS(kind, world, numel)                                               \
	for (unsigned kind = 0; kind < 3; kind++)                                      \
		for (uint32_t world = 1; world <= MAX_WORLD; world++)                  \
			for (uint64_t numel = 0; numel <= MAX_NUMEL; numel++)

static void every_element_has_exactly_one_owner(void **state)
{
	(void)state;
	FOR_ALL_CUTS(kind, world, numel) {
		const struct ckpt_zero_cut cut = make_cut(kind, numel, world);
		uint64_t sum = 0, rank_at = 0;

		for (uint32_t rank = 0; rank < world; rank++) {
			const uint64_t valid = ckpt_zero_valid_numel(&cut, rank);

			/* Counted by hand, slot by slot. */
			for (uint64_t i = 0; i < cut.part; i++, rank_at++) {
				uint32_t r = 99;
				uint64_t o = 99;
				const int rc = ckpt_zero_locate(&cut, rank_at, &r, &o);

				assert_int_equal(rc, rank_at < numel ? 0 : -1);
				assert_int_equal(rank_at < numel, i < valid);
				if (!rc) {
					assert_int_equal(r, rank);
					assert_int_equal(o, i);
				}
			}
			sum += valid;
		}
		assert_int_equal(sum, numel);
		assert_int_equal(ckpt_zero_valid_numel(&cut, world), 0);
	}
}

static void slots_map_back_to_the_elements_they_hold(void **state)
{
	(void)state;
	for (unsigned kind = 0; kind < 3; kind++)
	for (uint32_t world = 1; world <= MAX_WORLD; world++)
	for (uint64_t numel = 0; numel <= 24; numel++) {
		const struct ckpt_zero_cut cut = make_cut(kind, numel, world);

		for (uint32_t rank = 0; rank < world; rank++)
		for (uint64_t off = 0; off <= cut.part; off++)
		for (uint64_t n = 0; n <= cut.part - off; n++) {
			uint64_t global = 99, valid = 99, want = 0;

			assert_int_equal(ckpt_zero_global(&cut, rank, off, n, &global,
							  &valid), 0);
			for (uint64_t i = 0; i < n; i++)
				want += rank * cut.part + off + i < numel;
			assert_int_equal(valid, want);
			assert_true(global <= numel);
			if (valid)
				assert_int_equal(global, rank * cut.part + off);
		}
	}
}

static void slots_outside_the_partition_are_refused(void **state)
{
	const struct ckpt_zero_cut cut = make_cut(2, 1003, 8);
	uint64_t global = 7, valid = 7;

	(void)state;
	assert_int_equal(ckpt_zero_global(&cut, 8, 0, 1, &global, &valid), -1);
	assert_int_equal(ckpt_zero_global(&cut, 0, 127, 0, &global, &valid), -1);
	assert_int_equal(ckpt_zero_global(&cut, 0, 100, 27, &global, &valid), -1);
	assert_int_equal(ckpt_zero_global(&cut, 0, 1, UINT64_MAX, &global, &valid), -1);
	assert_int_equal(global, 7);
	assert_int_equal(valid, 7);
	assert_int_equal(ckpt_zero_global(&cut, 7, 100, 26, &global, &valid), 0);
	assert_int_equal(global, 982);
	assert_int_equal(valid, 21);
}

static void runs_cover_a_range_once_and_in_order(void **state)
{
	(void)state;
	for (unsigned kind = 0; kind < 3; kind++)
	for (uint32_t world = 1; world <= MAX_WORLD; world++)
	for (uint64_t numel = 0; numel <= 24; numel++) {
		const struct ckpt_zero_cut cut = make_cut(kind, numel, world);

		for (uint64_t begin = 0; begin <= numel; begin++)
		for (uint64_t n = 0; n <= numel - begin; n++) {
			struct ckpt_zero_runs it;
			struct ckpt_zero_run run;
			uint64_t at = begin;
			uint32_t count = 0, last = 0;

			assert_int_equal(ckpt_zero_runs_init(&it, &cut, begin, n), 0);
			while (ckpt_zero_runs_next(&it, &run)) {
				assert_int_equal(run.global, at);
				assert_int_equal(run.rank * cut.part + run.offset, at);
				assert_in_range(run.numel, 1, cut.part - run.offset);
				if (count)	/* maximal: no rank comes twice */
					assert_int_equal(run.rank, last + 1);
				last = run.rank;
				at += run.numel;
				assert_in_range(++count, 1, world);
			}
			assert_int_equal(at, begin + n);
			assert_int_equal(ckpt_zero_runs_next(&it, &run), 0);
		}
	}
}

static void ranges_outside_a_cut_are_refused(void **state)
{
	const struct ckpt_zero_cut cut = make_cut(0, 10, 4), none = { 0, 0, 0, 0 };
	const struct ckpt_zero_cut no_part = { 10, 0, 4, 0 }, short_part = { 10, 2, 4, 0 };
	const struct ckpt_zero_cut wide_part = { 10, UINT64_MAX / 2, 4, 0 };
	struct ckpt_zero_runs it;
	struct ckpt_zero_moves mv;

	(void)state;
	assert_int_equal(ckpt_zero_runs_init(&it, &cut, 11, 0), -1);
	assert_int_equal(ckpt_zero_runs_init(&it, &cut, 1, 10), -1);
	assert_int_equal(ckpt_zero_runs_init(&it, &cut, 1, UINT64_MAX), -1);
	assert_int_equal(ckpt_zero_runs_init(&it, &none, 0, 0), -1);
	assert_int_equal(ckpt_zero_runs_init(&it, &no_part, 0, 1), -1);
	assert_int_equal(ckpt_zero_runs_init(&it, &short_part, 0, 1), -1);
	assert_int_equal(ckpt_zero_runs_init(&it, &wide_part, 0, 1), -1);
	assert_int_equal(ckpt_zero_moves_init(&mv, &cut, 0, &cut, 1, 10), -1);
	assert_int_equal(ckpt_zero_moves_init(&mv, &cut, 1, &cut, 0, 10), -1);
	assert_int_equal(ckpt_zero_moves_init(&mv, &cut, 0, &short_part, 0, 1), -1);
	assert_int_equal(ckpt_zero_runs_init(&it, &cut, 10, 0), 0);
}

/* Lays elements 1, 2, ... out as the ranks of 'cut' hold them; 0 is padding. */
static void fill(uint16_t slot[SLOTS], const struct ckpt_zero_cut *cut)
{
	memset(slot, 0, SLOTS * sizeof(*slot));
	for (uint64_t i = 0; i < cut->numel; i++)
		slot[i] = (uint16_t)(i + 1);
}

/* Makes 'dst' out of 'src' by moves alone. */
static uint32_t apply(uint16_t dst[SLOTS], const struct ckpt_zero_cut *to,
		      uint64_t dst_begin, const uint16_t src[SLOTS],
		      const struct ckpt_zero_cut *from, uint64_t src_begin, uint64_t n)
{
	struct ckpt_zero_moves it;
	struct ckpt_zero_move m;
	uint64_t done = 0;
	uint32_t count = 0;

	assert_int_equal(ckpt_zero_moves_init(&it, from, src_begin, to, dst_begin, n), 0);
	for (; ckpt_zero_moves_next(&it, &m); count++) {
		assert_int_equal(m.done, done);
		assert_true(m.src_rank < from->world && m.dst_rank < to->world);
		assert_in_range(m.numel, 1, n - done);
		assert_true(m.src_offset + m.numel <= from->part);
		assert_true(m.dst_offset + m.numel <= to->part);
		memcpy(dst + m.dst_rank * to->part + m.dst_offset,
		       src + m.src_rank * from->part + m.src_offset,
		       m.numel * sizeof(*dst));
		done += m.numel;
	}
	assert_int_equal(done, n);
	return count;
}

static void reshard_n_to_m_gives_what_m_would_have_saved(void **state)
{
	static uint16_t src[SLOTS], dst[SLOTS], want[SLOTS];

	(void)state;
	FOR_ALL_CUTS(kind, n, numel) {
		const struct ckpt_zero_cut from = make_cut(kind, numel, n);

		fill(src, &from);
		for (uint32_t m = 1; m <= MAX_WORLD; m++) {
			const struct ckpt_zero_cut to = make_cut(kind, numel, m);
			uint32_t moves;

			fill(want, &to);
			memset(dst, 0, sizeof(dst));
			moves = apply(dst, &to, 0, src, &from, 0, numel);
			assert_memory_equal(dst, want, sizeof(want));
			assert_true(moves <= n + m - 1);
		}
	}
}

/* A flat group of three parameters becomes three parameters of stage 3, and back. */
static void a_flat_group_survives_stage_3_and_back(void **state)
{
	static uint16_t flat[SLOTS], part[3][SLOTS], back[SLOTS];
	static const uint64_t numel[3] = { 17, 1, 30 };

	(void)state;
	for (uint32_t n = 1; n <= MAX_WORLD; n++)
		for (uint32_t m = 1; m <= MAX_WORLD; m++) {
			const struct ckpt_zero_cut group = make_cut(2, 48, n);
			uint64_t at = 0;

			fill(flat, &group);
			memset(part, 0, sizeof(part));
			memset(back, 0, sizeof(back));
			for (unsigned j = 0; j < 3; at += numel[j++]) {
				const struct ckpt_zero_cut one = make_cut(0, numel[j], m);

				apply(part[j], &one, 0, flat, &group, at, numel[j]);
				assert_int_equal(part[j][0], at + 1);
				apply(back, &group, at, part[j], &one, 0, numel[j]);
			}
			assert_memory_equal(back, flat, sizeof(flat));
		}
}

static void largest_numbers_do_not_wrap(void **state)
{
	static const uint32_t worlds[] = { 1, 2, 3, 4095, 4096 };

	(void)state;
	for (unsigned kind = 0; kind < 3; kind++)
	for (unsigned w = 0; w < 5; w++)
	for (uint64_t less = 0; less < 5; less++) {
		const struct ckpt_zero_cut cut = make_cut(kind, BIG - less, worlds[w]);
		const struct ckpt_zero_cut to = make_cut(kind, BIG - less, 7);
		unsigned __int128 slots = (unsigned __int128)cut.part * cut.world;
		struct ckpt_zero_moves it;
		struct ckpt_zero_move m;
		uint64_t sum = 0, offset;
		uint32_t rank, count = 0;

		assert_true(slots >= cut.numel && slots < (unsigned __int128)1 << 63);
		for (rank = 0; rank < cut.world; rank++)
			sum += ckpt_zero_valid_numel(&cut, rank);
		assert_int_equal(sum, cut.numel);
		assert_int_equal(ckpt_zero_locate(&cut, cut.numel - 1, &rank, &offset), 0);
		assert_true(rank < cut.world && offset < cut.part);
		assert_int_equal(rank * cut.part + offset, cut.numel - 1);
		assert_int_equal(ckpt_zero_moves_init(&it, &cut, 0, &to, 0, cut.numel), 0);
		for (sum = 0; ckpt_zero_moves_next(&it, &m); sum += m.numel)
			assert_true(m.src_rank < cut.world && m.dst_rank < 7 &&
				    ++count < cut.world + 7);
		assert_int_equal(sum, cut.numel);
	}
}

static void numbers_outside_the_domain_are_refused(void **state)
{
	struct ckpt_zero_cut cut = { 1, 2, 3, 4 };

	(void)state;
	assert_int_equal(ckpt_z12_cut(1, 0, 2, &cut), -1);
	assert_int_equal(ckpt_z12_cut(1, CKPT_ZERO_MAX_WORLD + 1, 2, &cut), -1);
	assert_int_equal(ckpt_z12_cut(BIG + 1, 1, 2, &cut), -1);
	assert_int_equal(ckpt_z12_cut(1, 1, 0, &cut), -1);
	assert_int_equal(ckpt_z12_cut(1, 1, 3, &cut), -1);
	assert_int_equal(ckpt_z3_cut(1, 0, &cut), -1);
	assert_int_equal(ckpt_z3_cut(1, CKPT_ZERO_MAX_WORLD + 1, &cut), -1);
	assert_int_equal(ckpt_z3_cut(BIG + 1, 1, &cut), -1);
	assert_int_equal(cut.numel, 1);
	assert_int_equal(cut.part, 2);
	assert_int_equal(ckpt_z12_part_numel(5, 0, 2), 0);
	assert_int_equal(ckpt_z3_part_numel(5, 0), 0);
	assert_int_equal(ckpt_z3_valid_numel(5, 0, 0), 0);
	assert_int_equal(ckpt_z3_part_numel(UINT64_MAX, 1), UINT64_MAX);
	assert_int_equal(ckpt_z12_flat_numel((UINT64_C(1) << 63) - 1, 4096, 2),
			 UINT64_C(1) << 63);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_element_has_exactly_one_owner),
		cmocka_unit_test(slots_map_back_to_the_elements_they_hold),
		cmocka_unit_test(slots_outside_the_partition_are_refused),
		cmocka_unit_test(runs_cover_a_range_once_and_in_order),
		cmocka_unit_test(ranges_outside_a_cut_are_refused),
		cmocka_unit_test(reshard_n_to_m_gives_what_m_would_have_saved),
		cmocka_unit_test(a_flat_group_survives_stage_3_and_back),
		cmocka_unit_test(largest_numbers_do_not_wrap),
		cmocka_unit_test(numbers_outside_the_domain_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
