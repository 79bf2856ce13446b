/*
 * Memory for tensors in blocks. If this fails, a large model that is cut into columns needs
 * gigabytes to be opened.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "libckpt/io/ck_src.h"
#include "libckpt/tensor/ck_block.h"
#include "libckpt/tensor/ck_extents.h"
#include "tests/lib/fs/t_dir.h"

#define LIMIT ((uint64_t)64 << 20)

static struct ck_index ix;
static struct ck_tiles tiles;
static uint64_t serial;

static int set_up(void **state)
{
	struct ck_src *src;
	uint32_t source;

	(void)state;
	serial = 0;
	ck_tiles_init(&tiles, LIMIT);
	if (ck_index_init(&ix, LIMIT, NULL) || ck_src_mem("0123456789", 10, "mem", &src, NULL))
		return -1;
	return ck_index_add_source(&ix, "mem", src, 3, &source, NULL);
}

static int tear_down(void **state)
{
	(void)state;
	ck_tiles_release(&tiles);
	ck_index_release(&ix);
	return 0;
}

static const struct ck_state *put(const uint64_t *shape)
{
	char *name = t_fmt("t%d", (int)serial++);
	uint32_t tensor;

	assert_int_equal(ck_index_add_tensor(&ix, name, shape, 2, CKPT_ROLE_PLAIN, &tensor, NULL),
			 0);
	free(name);
	assert_int_equal(ck_tiles_put(&tiles, &ix, tensor, "weight", CKPT_F32, NULL), 0);
	return &ix.state[ix.nstates - 1];
}

/* Part 'rank' of a matrix that 8 ranks have the columns of, cut once more among 'dp' of them. */
static void add_columns(const uint64_t *shape, uint64_t rank, uint64_t dp)
{
	const uint64_t offset[] = { 0, rank * (shape[1] / 8) }, size[] = { shape[0], shape[1] / 8 };
	const uint64_t n = size[0] * size[1], part = n / dp + 1;
	const struct ck_block block = { offset, size };

	for (uint64_t at = 0; at < n; at += part) {
		const struct ck_extent e = {
			.off = ((uint64_t)serial << 32) + at * 4, .member = CK_NONE,
			.view = CK_NONE, .dtype = CKPT_F32, .rank = (int)rank,
		};

		assert_int_equal(ck_tiles_add(&tiles, &block, at, part < n - at ? part : n - at,
					      &e, NULL), 0);
	}
}

static void columns_of_448_matrices_fit_a_small_index(void **state)
{
	const uint64_t of[7][2] = {
		{ 8192, 28672 }, { 28672, 8192 }, { 28672, 8192 }, { 8192, 8192 },
		{ 8192, 8192 }, { 1024, 8192 }, { 1024, 8192 },
	};
	uint64_t extents = 0;

	(void)state;
	for (uint64_t i = 0; i < 448; i++) {
		const uint64_t *shape = of[i % 7];
		const struct ck_state *s;
		const uint64_t dp = i % 2 ? 16 : 1;

		assert_int_equal(ck_tiles_begin(&tiles, "t", shape, 2, NULL), 0);
		for (uint64_t rank = 0; rank < 8; rank++, serial++)
			add_columns(shape, rank, dp);
		s = put(shape);
		extents += 8 * shape[0];
		if (dp == 1) {
			assert_int_equal(s->nextents, 8 * shape[0]);
			assert_int_equal(s->nstored, 8);
		}
	}
	assert_true(ix.nextents >= extents);
	assert_true(ix.nstored <= 448 * 8 * 3 * 16);
}

/* Each rank cuts its columns elsewhere. */
static void columns_that_are_cut_anywhere_are_weaves_too(void **state)
{
	const uint64_t shape[] = { 3000, 80 };
	const struct ck_state *s;

	(void)state;
	assert_int_equal(ck_tiles_begin(&tiles, "t", shape, 2, NULL), 0);
	for (uint64_t rank = 0; rank < 8; rank++, serial++)
		add_columns(shape, rank, 3 + rank);
	s = put(shape);
	assert_true(s->nextents >= 8 * 3000);
	assert_true(s->nstored < 8 * 60 * 3);
}

/* Two halves, and the second is cut into planes whose rows are half as long. */
static void rows_that_end_nowhere_together_meet_the_limit(void **state)
{
	const uint64_t shape[] = { 1 << 21, 4, 2 };
	const uint64_t offset[][3] = { { 0 }, { 0, 2, 0 }, { 0, 2, 1 } };
	const uint64_t size[][3] = { { 1 << 21, 2, 2 }, { 1 << 21, 2, 1 }, { 1 << 21, 2, 1 } };
	struct ck_tiles_fault fault;
	int rc;

	(void)state;
	assert_int_equal(ck_tiles_begin(&tiles, "t", shape, 3, NULL), 0);
	rc = 0;
	for (int i = 0; !rc && i < 3; i++)
		rc = ck_tiles_add(&tiles, &(struct ck_block){ offset[i], size[i] }, 0,
				  size[i][0] * size[i][1] * size[i][2], &(struct ck_extent){
			.member = CK_NONE, .view = CK_NONE, .dtype = CKPT_F32,
		}, NULL);
	assert_int_equal(rc ? rc : ck_tiles_check(&tiles, &fault, NULL), -CKPT_E_LIMIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
		T(columns_of_448_matrices_fit_a_small_index),
		T(columns_that_are_cut_anywhere_are_weaves_too),
		T(rows_that_end_nowhere_together_meet_the_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
