/*
 * test_zero_z3.c -- stage 3: sub-groups, and what a rank's flat buffers hold.
 *
 * If this is wrong, uninitialised padding (NaN in real files) ends up in weights, or
 * moments are given to the wrong parameter because the sub-groups were counted wrongly.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "libckpt/include/ckpt_zero.h"

#define MAX_WORLD 9
#define MAX_PARAM 5
#define NSIZE 5

/* Lists of up to MAX_PARAM parameters of 0, 1, 5, 10 or 27 elements. */
static uint32_t list_of(unsigned code, uint32_t n, uint64_t numel[MAX_PARAM])
{
	static const uint64_t size[NSIZE] = { 0, 1, 5, 10, 27 };

	for (uint32_t j = 0; j < n; j++, code /= NSIZE)
		numel[j] = size[code % NSIZE];
	return code;
}

#define FOR_ALL_LISTS(n, code, numel)                                                  \
	for (uint32_t n = 0; n <= MAX_PARAM; n++)                                      \
		for (unsigned code = 0; list_of(code, n, numel) == 0; code++)

static void parts_and_valid_counts_are_those_of_the_examples(void **state)
{
	static const uint64_t valid10[4] = { 3, 3, 3, 1 }, valid5[4] = { 2, 2, 1, 0 };

	(void)state;
	for (uint32_t rank = 0; rank < 4; rank++) {
		assert_int_equal(ckpt_z3_valid_numel(10, 4, rank), valid10[rank]);
		assert_int_equal(ckpt_z3_valid_numel(5, 4, rank), valid5[rank]);
		assert_int_equal(ckpt_z3_valid_numel(3, 4, rank), rank < 3);
		assert_int_equal(ckpt_z3_valid_numel(0, 4, rank), 0);
	}
	assert_int_equal(ckpt_z3_valid_numel(10, 4, 4), 0);
	assert_int_equal(ckpt_z3_part_numel(1003, 8), 126);
	assert_int_equal(ckpt_z3_valid_numel(1003, 8, 7), 121);
	assert_int_equal(ckpt_z3_part_numel(1003, 4), 251);
	assert_int_equal(ckpt_z3_valid_numel(1003, 4, 3), 250);
}

static void offsets_are_the_running_sum_of_parts(void **state)
{
	uint64_t numel[MAX_PARAM], off[MAX_PARAM], total;

	(void)state;
	FOR_ALL_LISTS(n, code, numel)
		for (uint32_t world = 1; world <= MAX_WORLD; world++) {
			uint64_t at = 0;

			assert_int_equal(ckpt_z3_offsets(numel, n, world, off, &total), 0);
			for (uint32_t j = 0; j < n; j++) {
				assert_int_equal(off[j], at);
				at += (numel[j] + world - 1) / world;
			}
			assert_int_equal(total, at);
		}
}

/* DeepSpeed's loop in other words: count, for each parameter, the sub-group it is in. */
static uint32_t walk(const uint64_t *part, uint32_t n, uint64_t size,
		     uint32_t group[MAX_PARAM])
{
	uint64_t all = 0, local = 0;
	uint32_t count = 0;

	for (uint32_t j = 0; j < n; j++)
		all += part[j];
	for (uint32_t j = 0; j < n; j++) {
		group[j] = count;
		local += part[j];
		if (j == n - 1 || (size < all && local >= size)) {
			count++;
			local = 0;
		}
	}
	return count;
}

static void sub_groups_close_when_the_sum_of_parts_reaches_the_size(void **state)
{
	uint64_t numel[MAX_PARAM], part[MAX_PARAM];

	(void)state;
	FOR_ALL_LISTS(n, code, numel)
	for (uint32_t world = 1; world <= MAX_WORLD; world++) {
		for (uint32_t j = 0; j < n; j++)
			part[j] = (numel[j] + world - 1) / world;
		for (uint64_t size = 0; size <= 30; size += 1 + size / 6) {
			uint32_t first[MAX_PARAM], group[MAX_PARAM], count = 99;
			const uint32_t want = walk(part, n, size, group);

			assert_int_equal(ckpt_z3_subgroups(numel, n, world, size, first,
							   &count), 0);
			assert_int_equal(count, want);
			for (uint32_t i = 0, j = 0; i < count; i++)
				for (; j < (i + 1 < count ? first[i + 1] : n); j++) {
					assert_true(j >= first[i]);
					assert_int_equal(group[j], i);
				}
			if (count)
				assert_int_equal(first[0], 0);
		}
	}
}

static void sub_groups_of_the_worked_examples(void **state)
{
	static const uint64_t part[4] = { 3, 2, 1, 4 };
	uint32_t first[4], n = 0;

	(void)state;
	assert_int_equal(ckpt_z3_subgroups(part, 4, 1, 5, first, &n), 0);
	assert_true(n == 2 && first[0] == 0 && first[1] == 2);
	assert_int_equal(ckpt_z3_subgroups(part, 4, 1, 4, first, &n), 0);
	assert_true(n == 2 && first[1] == 2);
	assert_int_equal(ckpt_z3_subgroups(part, 4, 1, 10, first, &n), 0);
	assert_true(n == 1 && first[0] == 0);
	assert_int_equal(ckpt_z3_subgroups(part, 4, 1, 1, first, &n), 0);
	assert_true(n == 4 && first[3] == 3);
	assert_int_equal(ckpt_z3_subgroups(part, 4, 1, CKPT_Z3_SUB_GROUP_SIZE, first, &n),
			 0);
	assert_int_equal(n, 1);
	assert_int_equal(ckpt_z3_subgroups(part, 0, 1, 1, first, &n), 0);
	assert_int_equal(n, 0);
}

/* All ranks' pieces together hold every element of every parameter exactly once. */
static void pieces_hold_every_element_once(void **state)
{
	uint64_t numel[MAX_PARAM], off[MAX_PARAM], total;

	(void)state;
	FOR_ALL_LISTS(n, code, numel)
	for (uint32_t world = 1; world <= MAX_WORLD; world++) {
		uint8_t seen[MAX_PARAM][27] = { { 0 } };

		assert_int_equal(ckpt_z3_offsets(numel, n, world, off, &total), 0);
		for (uint32_t rank = 0; rank < world; rank++) {
			struct ckpt_z3_pieces it;
			struct ckpt_zero_piece p;
			uint64_t at = 0;

			assert_int_equal(ckpt_z3_pieces_init(&it, numel, n, world, rank), 0);
			while (ckpt_z3_pieces_next(&it, &p)) {
				assert_true(p.param < n && p.numel > 0);
				assert_int_equal(p.offset, at);
				assert_true(p.offset >= off[p.param]);
				at += p.numel;
				if (p.kind == CKPT_ZERO_PAD)
					continue;
				assert_int_equal(p.kind, CKPT_ZERO_PARAM);
				assert_int_equal(p.offset, off[p.param]);
				for (uint64_t i = 0; i < p.numel; i++) {
					assert_true(p.elem + i < numel[p.param]);
					seen[p.param][p.elem + i]++;
				}
			}
			assert_int_equal(at, total);
			assert_int_equal(ckpt_z3_pieces_next(&it, &p), 0);
		}
		for (uint32_t j = 0; j < n; j++)
			for (uint64_t i = 0; i < numel[j]; i++)
				assert_int_equal(seen[j][i], 1);
	}
}

static void pieces_of_the_worked_example(void **state)
{
	static const uint64_t numel[3] = { 10, 5, 3 };
	static const struct ckpt_zero_piece want[4] = {
		{ 0, 1, 9, 0, CKPT_ZERO_PARAM },
		{ 1, 2, 0, 0, CKPT_ZERO_PAD },
		{ 3, 2, 0, 1, CKPT_ZERO_PAD },
		{ 5, 1, 0, 2, CKPT_ZERO_PAD },
	};
	struct ckpt_z3_pieces it;
	struct ckpt_zero_piece p;

	(void)state;
	assert_int_equal(ckpt_z3_pieces_init(&it, numel, 3, 4, 3), 0);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(ckpt_z3_pieces_next(&it, &p), 1);
		assert_memory_equal(&p, &want[i], sizeof(p));
	}
	assert_int_equal(ckpt_z3_pieces_next(&it, &p), 0);
}

static void numbers_outside_the_domain_are_refused(void **state)
{
	uint64_t numel[2] = { CKPT_ZERO_MAX_NUMEL, 1 }, total = 7;
	uint32_t first[2] = { 7, 7 }, n = 7;
	struct ckpt_z3_pieces it;

	(void)state;
	assert_int_equal(ckpt_z3_offsets(numel, 2, 1, NULL, &total), -1);
	assert_int_equal(ckpt_z3_offsets(numel, 2, 0, NULL, &total), -1);
	assert_int_equal(ckpt_z3_offsets(numel, 2, CKPT_ZERO_MAX_WORLD + 1, NULL, &total), -1);
	assert_int_equal(ckpt_z3_subgroups(numel, 2, 1, 5, first, &n), -1);
	assert_int_equal(ckpt_z3_subgroups(numel, 2, 0, 5, first, &n), -1);
	assert_int_equal(ckpt_z3_pieces_init(&it, numel, 2, 1, 0), -1);
	assert_int_equal(ckpt_z3_pieces_init(&it, numel, 1, 2, 2), -1);
	assert_int_equal(total, 7);
	assert_int_equal(n, 7);
	assert_int_equal(ckpt_z3_offsets(numel, 2, 2, NULL, &total), 0);
	assert_int_equal(total, CKPT_ZERO_MAX_NUMEL / 2 + 1);
	numel[0]++;
	assert_int_equal(ckpt_z3_offsets(numel, 2, 2, NULL, &total), -1);
	assert_int_equal(ckpt_z3_pieces_init(&it, numel, 2, 2, 0), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts_and_valid_counts_are_those_of_the_examples),
		cmocka_unit_test(offsets_are_the_running_sum_of_parts),
		cmocka_unit_test(sub_groups_close_when_the_sum_of_parts_reaches_the_size),
		cmocka_unit_test(sub_groups_of_the_worked_examples),
		cmocka_unit_test(pieces_hold_every_element_once),
		cmocka_unit_test(pieces_of_the_worked_example),
		cmocka_unit_test(numbers_outside_the_domain_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
