/*
 * States of Megatron-Core in blocks, as up to 0.14 it writes them, cut anywhere by data parallel
 * ranks.  If this fails, moments and masters of experts come out transposed or at the wrong place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "formats/megatron/mg.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/run/ck_read.h"
#include "tests/lib/ops/t_raw.h"

#define AXES 5
#define MOST 4096
#define CHUNKS 512

/* A state: file[k] is an element, whose number in the parameter is its value. */
struct made {
	struct mg mg;
	struct ck_input in;
	struct ck_index ix;
	struct ck_findings f;
	struct dcp_item item;
	struct dcp_file data;
	struct dcp_chunk chunk[CHUNKS];
	uint64_t offset[CHUNKS][AXES + 1], size[CHUNKS][AXES + 1];
	uint64_t shape[AXES + 1];
	float file[MOST];
	uint64_t n;
};

static void make(struct made *m, const char *key, const uint64_t *shape, uint32_t ndim,
		 const uint64_t *grid)
{
	struct ck_src *src;

	memset(m, 0, sizeof(*m));
	ck_limits_fill(NULL, &m->in.limits);
	assert_int_equal(ck_index_init(&m->ix, 0, NULL), 0);
	ck_dcp_files_init(&m->mg.fs, &m->in, &m->ix, &m->f);
	assert_int_equal(ck_src_mem(m->file, sizeof(m->file), "mem", &src, NULL), 0);
	assert_int_equal(ck_index_add_source(&m->ix, "mem", src, 0, &m->data.source, NULL), 0);
	m->mg.param = ck_zalloc(sizeof(*m->mg.param));
	m->mg.nparams = m->mg.param_cap = 1;
	m->mg.param[0] = (struct mg_param){ .key = key, .shape = shape, .ndim = ndim,
					    .dtype = CKPT_BF16, .numel = 1, .group = -1 };
	assert_int_equal(ck_map_add(&m->mg.by_key, key, strlen(key), 0, NULL, NULL), 0);
	memcpy(m->shape, grid, ndim * sizeof(*grid));
	m->shape[ndim] = 1;
	for (uint32_t d = 0; d < ndim; d++) {
		m->mg.param[0].numel *= shape[d];
		m->shape[ndim] *= shape[d];
	}
	for (uint32_t d = 0; d < ndim; d++)
		m->shape[ndim] /= grid[d];
	m->item = (struct dcp_item){
		.flat = "optimizer.state.exp_avg.x", .name = key, .use = MG_BY_NAME,
		.which = MG_EXP_AVG, .is_tensor = true, .dtype = CKPT_F32, .ndim = ndim + 1,
		.shape = m->shape, .chunk = m->chunk,
	};
	m->mg.fs.item = &m->item;
	m->mg.fs.nitems = 1;
	m->mg.fs.file = &m->data;
}

/*
 * Block number 'cell' has 'count' values from element 'first' of it on; value(k) is the number in
 * the parameter of element k of the block.
 */
static void add_chunk(struct made *m, const uint64_t *at, uint64_t first, uint64_t count,
		      const uint64_t *number)
{
	const uint32_t n = m->item.ndim - 1;
	struct dcp_chunk *c = &m->chunk[m->item.nchunks];

	for (uint32_t d = 0; d < n; d++) {
		m->offset[m->item.nchunks][d] = at[d];
		m->size[m->item.nchunks][d] = 1;
	}
	m->offset[m->item.nchunks][n] = first;
	m->size[m->item.nchunks][n] = count;
	*c = (struct dcp_chunk){
		.offset = m->offset[m->item.nchunks], .size = m->size[m->item.nchunks],
		.numel = count, .data = m->n * sizeof(float), .is_read = true,
	};
	for (uint64_t k = 0; k < count; k++)
		m->file[m->n++] = (float)number[first + k];
	m->item.nchunks++;
}

/* Every element of the parameter must be its own number. */
static void expect_numbers(struct made *m)
{
	const struct mg_param *p = m->mg.param;
	struct ck_reader *reader;
	struct ck_tiles tiles;
	uint8_t *scratch = malloc(CK_READ_SCRATCH);
	float out[MOST];
	uint32_t tensor;

	assert_int_equal(ck_mg_states_find(&m->mg, NULL), 0);
	assert_null(p->no_states);
	ck_tiles_init(&tiles, 0);
	assert_int_equal(ck_mg_state_tiles(&m->mg, p, MG_EXP_AVG, &tiles, NULL), 0);
	assert_int_equal(ck_index_add_tensor(&m->ix, "x", p->shape, p->ndim, CKPT_ROLE_PLAIN,
					     &tensor, NULL), 0);
	assert_int_equal(ck_tiles_put(&tiles, &m->ix, tensor, "exp_avg", CKPT_F32, NULL), 0);
	assert_int_equal(ck_reader_new(&m->ix, &m->in.limits, 1 << 20, &reader, NULL), 0);
	assert_int_equal(ck_reader_read(reader, &m->ix.state[0], 0, p->numel, CKPT_F32, out,
					scratch, NULL, NULL), 0);
	for (uint64_t i = 0; i < p->numel; i++)
		assert_true(out[i] == (float)i);
	ck_reader_free(reader);
	ck_tiles_release(&tiles);
	free(scratch);
}

static void end(struct made *m)
{
	for (int w = 0; w < MG_STATES; w++)
		ck_free(m->mg.param[0].state[w].piece);
	ck_free(m->mg.param);
	ck_map_release(&m->mg.by_key);
	m->mg.fs.item = NULL;
	m->mg.fs.file = NULL;
	m->mg.fs.nitems = 0;
	ck_dcp_files_release(&m->mg.fs);
	ck_findings_release(&m->f);
	ck_index_release(&m->ix);
}

/* The numbers of a block at [a, b] of 'rows' x 'cols' in a parameter of [H, W], or transposed. */
static void number_block(uint64_t wide, uint64_t row, uint64_t col, uint64_t rows, uint64_t cols,
			 bool turned, uint64_t base, uint64_t *out)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < (turned ? cols : rows); i++)
		for (uint64_t k = 0; k < (turned ? rows : cols); k++)
			out[n++] = base + (row + (turned ? k : i)) * wide + col + (turned ? i : k);
}

/* Cut each block at random, in up to four chunks. */
static void add_cut(struct made *m, const uint64_t *at, uint64_t n, const uint64_t *number,
		    uint64_t *seed)
{
	uint64_t first = 0;

	while (first < n) {
		const uint64_t left = n - first;
		const uint64_t count = t_random(seed) % 4 ? 1 + t_random(seed) % left : left;

		add_chunk(m, at, first, count, number);
		first += count;
	}
}

static void blocks_that_are_cut_anywhere_are_the_parameter(void **state)
{
	static struct made m;
	static const uint64_t shape[] = { 2, 6, 8 }, grid[] = { 2, 3, 2 };
	uint64_t seed = 11, number[MOST];

	(void)state;
	for (int round = 0; round < 40; round++) {
		make(&m, "decoder.layers.mlp.linear_fc2.weight", shape, 3, grid);
		for (uint64_t l = 0; l < 2; l++)
			for (uint64_t a = 0; a < 3; a++)
				for (uint64_t b = 0; b < 2; b++) {
					const uint64_t at[] = { l, a, b };

					number_block(8, 2 * a, 4 * b, 2, 4, false, l * 48, number);
					add_cut(&m, at, 8, number, &seed);
				}
		expect_numbers(&m);
		end(&m);
	}
}

/* fc1 of legacy grouped experts: [L, E, H, 2F], gate and up in blocks of their own. */
static void transposed_experts_that_are_cut_anywhere_are_the_parameter(void **state)
{
	static struct made m;
	static const uint64_t shape[] = { 1, 2, 6, 5 }, grid[] = { 1, 2, 1, 2 };
	uint64_t seed = 5, number[MOST];

	(void)state;
	for (int round = 0; round < 60; round++) {
		make(&m, "decoder.layers.mlp.experts.experts.linear_fc1.weight", shape, 4, grid);
		for (uint64_t e = 0; e < 2; e++)
			for (uint64_t b = 0; b < 2; b++) {
				const uint64_t at[] = { 0, e, 0, b };

				number_block(5, 3 * b, 0, 3, 5, true, e * 30, number);
				if (round)
					add_cut(&m, at, 15, number, &seed);
				else
					add_chunk(&m, at, 0, 15, number);
			}
		expect_numbers(&m);
		end(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_that_are_cut_anywhere_are_the_parameter),
		cmocka_unit_test(transposed_experts_that_are_cut_anywhere_are_the_parameter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
