/*
 * test_mg_places.c -- whose is each piece of a bucket without names?
 *
 * If this is wrong, a parameter gets the optimizer state of another one.  A run that resumes with
 * it is worse, without a message.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "formats/megatron/mg_places.h"
#include "kernels/include/kn.h"

#define LAYERS 4u
#define MAX_CHUNKS 128u
#define MAX_ELEMS 65536u

enum key { FC2, GATE, UP, NORM2, BIAS, QKV, PROJ, NORM1, OUT, FINAL, EMBED };

/* A layer, as a buffer has it: from the last parameter to the first. */
static const struct { enum key key; uint32_t numel; } layer[] = {
	{ FC2, 384 }, { GATE, 384 }, { UP, 384 }, { NORM2, 16 }, { BIAS, 32 }, { QKV, 512 },
	{ PROJ, 256 }, { NORM1, 16 },
};

static struct made {
	float weight[MAX_ELEMS];	/* what masters are made of, exact in bf16 */
	uint16_t stored[MAX_ELEMS];
	float row[2][MAX_ELEMS];
	struct mgp_chunk chunk[MAX_CHUNKS];
	uint64_t place[2][MAX_CHUNKS];	/* where the block is, by what was made */
	struct mgp_run run[2][4 * MAX_CHUNKS];
	struct mgp_bucket bucket[2];
	struct mgp_buffer buffer[2];
	struct mgp p;
	uint64_t used;
	struct ck_src *weights, *rows[2];
} m;

static uint32_t seed;

static uint32_t random_bits(void)
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 8;
}

static uint32_t add_chunk(enum key key, uint32_t of_layer, uint32_t numel)
{
	const uint32_t i = m.p.nchunks++;

	for (uint32_t k = 0; k < numel; k++)
		m.weight[m.used + k] = ((float)(random_bits() % 4096) - 2048.f) / 1024.f;
	m.chunk[i] = (struct mgp_chunk){
		.off = m.used * 2, .numel = numel, .key = key == UP ? GATE : key, .layer = of_layer,
		.half = key == GATE ? i + 1 : MGP_NONE, .dtype = CKPT_BF16,
		.is_half = key == UP, .side = key == EMBED ? MGP_BEFORE :
			   key == OUT || key == FINAL ? MGP_AFTER : MGP_ANYWHERE,
	};
	m.used += numel;
	return i;
}

static void make_model(uint32_t with_seed)
{
	memset(&m, 0, sizeof(m));
	seed = with_seed;
	add_chunk(OUT, MGP_NONE, 768);
	add_chunk(FINAL, MGP_NONE, 16);
	for (uint32_t l = LAYERS; l-- > 0;)
		for (size_t k = 0; k < sizeof(layer) / sizeof(*layer); k++)
			add_chunk(layer[k].key, l, layer[k].numel);
	add_chunk(EMBED, MGP_NONE, 776);	/* its bucket ends between multiples of 64 */
	m.p.nlayers = LAYERS;
}

static uint32_t chunk_of(enum key key, uint32_t of_layer)
{
	for (uint32_t i = 0; i < m.p.nchunks; i++)
		if (m.chunk[i].key == (key == UP ? GATE : key) && m.chunk[i].layer == of_layer)
			return key == UP ? i + 1 : i;
	fail();
	return 0;
}

static void set(uint32_t chunk, float to)
{
	for (uint64_t k = 0; k < m.chunk[chunk].numel; k++)
		m.weight[m.chunk[chunk].off / 2 + k] = to;
}

/* Stored weights are the masters rounded, which are a little off a value of few bits. */
static float master_of(uint64_t elem)
{
	const float w = m.weight[elem];

	return w + w * (float)(elem % 7) / 4096.f;
}

static void lay_run(uint32_t b, uint64_t first, uint64_t end)
{
	struct mgp_bucket *bucket = &m.bucket[b];

	if (end > first)
		m.run[b][bucket->nruns++] = (struct mgp_run){
			.off = first * 4, .first = first, .count = end - first,
		};
}

/* Blocks first .. last of the model as bucket 'b', from 'at' on; gaps are what memory had. */
static uint64_t lay(uint32_t b, uint32_t first, uint32_t last, uint64_t at, bool zero_gaps)
{
	const uint64_t base = at;

	for (uint32_t i = first; i <= last; i++) {
		const struct mgp_chunk *c = &m.chunk[i];
		const bool is_half = i && m.chunk[i - 1].half == i;

		for (; !is_half && (at - base) % MGP_ALIGN; at++)
			m.row[b][at] = zero_gaps || at < 48 ? 0.f : m.row[b][at - 48];
		m.place[b][i] = at;
		for (uint64_t k = 0; k < c->numel; k++)
			m.row[b][at++] = master_of(c->off / 2 + k);
	}
	return at;
}

/* Runs as ranks store them: cut at the ends of parameters, and where a rank's part ends. */
static void cut(uint32_t b, uint32_t first, uint32_t last, uint32_t ranks)
{
	const uint64_t part = m.bucket[b].numel / ranks + 1;
	uint64_t done = 0;

	for (uint32_t i = first; i <= last; i++) {
		uint64_t end = m.place[b][i] + m.chunk[i].numel;

		if (i && m.chunk[i - 1].half == i)
			continue;
		if (m.chunk[i].half == i + 1)
			end += m.chunk[i + 1].numel;
		lay_run(b, done, m.place[b][i]);
		done = m.place[b][i];
		for (uint64_t r = 1; r < ranks; r++)
			if (r * part > done && r * part < end) {
				lay_run(b, done, r * part);
				done = r * part;
			}
		lay_run(b, done, end);
		done = end;
	}
}

/* One bucket of all blocks in each of 'n' positions. */
static void make_buckets(uint32_t n, uint32_t ranks)
{
	for (uint32_t b = 0; b < n; b++) {
		m.bucket[b].numel = lay(b, 0, m.p.nchunks - 1, 0, false);
		m.bucket[b].has_borders = true;
		cut(b, 0, m.p.nchunks - 1, ranks);
		m.buffer[b] = (struct mgp_buffer){ .position = b, .bucket = b, .nbuckets = 1 };
	}
	m.p.nbuckets = m.p.nbuffers = n;
}

static void search(void)
{
	struct ckpt_err err = { 0 };

	kn_cast(m.stored, KN_BF16, m.weight, KN_F32, m.used, NULL);
	for (uint64_t k = 0; k < m.used; k++) {
		float f = master_of(k);

		kn_cast(&m.stored[k], KN_BF16, &f, KN_F32, 1, NULL);
	}
	assert_int_equal(ck_src_mem(m.stored, sizeof(m.stored), "weights", &m.weights, NULL), 0);
	for (uint32_t i = 0; i < m.p.nchunks; i++)
		m.chunk[i].src = m.weights;
	for (uint32_t b = 0; b < m.p.nbuckets; b++) {
		assert_int_equal(ck_src_mem(m.row[b], sizeof(m.row[b]), "row", &m.rows[b], NULL),
				 0);
		for (uint64_t r = 0; r < m.bucket[b].nruns; r++)
			m.run[b][r].src = m.rows[b];
		m.bucket[b].run = m.run[b];
		m.bucket[b].dtype = CKPT_F32;
	}
	m.p.chunk = m.chunk;
	m.p.bucket = m.bucket;
	m.p.buffer = m.buffer;
	assert_int_equal(ck_mgp_find(&m.p, &err), 0);
}

static void done(void)
{
	ck_mgp_release(&m.p);
	ck_src_close(m.weights);
	for (uint32_t b = 0; b < m.p.nbuckets; b++)
		ck_src_close(m.rows[b]);
}

/* How many blocks are found; every one of them where it was put. */
static uint32_t found(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m.p.nchunks; i++) {
		n += m.chunk[i].tile != MGP_NONE;
		for (uint32_t t = m.chunk[i].tile; t != MGP_NONE; t = m.p.tile[t].next) {
			assert_int_equal(m.p.tile[t].chunk, i);
			assert_int_equal(m.p.tile[t].at, m.place[m.p.tile[t].bucket][i]);
		}
	}
	return n;
}

static bool is_found(enum key key, uint32_t of_layer)
{
	return m.chunk[chunk_of(key, of_layer)].tile != MGP_NONE;
}

static void every_block_is_where_it_was_put(void **state)
{
	(void)state;
	for (uint32_t ranks = 1; ranks < 12; ranks++) {
		make_model(ranks);
		make_buckets(1, ranks);
		search();
		assert_null(m.bucket[0].why);
		assert_int_equal(found(), m.p.nchunks);
		done();
	}
}

static void copies_in_two_parts_of_the_model_are_both_found(void **state)
{
	(void)state;
	make_model(1);
	make_buckets(2, 3);
	search();
	assert_int_equal(found(), m.p.nchunks);
	for (uint32_t i = 0; i < m.p.nchunks; i++) {
		const struct mgp_tile *t = &m.p.tile[m.chunk[i].tile];

		assert_int_not_equal(t->next, MGP_NONE);
		assert_int_not_equal(m.p.tile[t->next].bucket, t->bucket);
	}
	done();
}

static void equal_norms_of_one_layer_are_told_apart_by_the_order_of_another(void **state)
{
	(void)state;
	make_model(2);
	set(chunk_of(NORM1, 1), 1.f);
	set(chunk_of(NORM2, 1), 1.f);
	make_buckets(1, 2);
	search();
	assert_int_equal(found(), m.p.nchunks);
	done();
}

static void a_norm_at_the_edge_of_its_layer_is_told_apart_from_the_next_one(void **state)
{
	(void)state;
	make_model(2);
	set(chunk_of(NORM1, 2), 1.f);
	set(chunk_of(NORM1, 1), 1.f);
	set(chunk_of(NORM2, 1), 1.f);
	make_buckets(1, 2);
	search();
	assert_int_equal(found(), m.p.nchunks);
	done();
}

static void norms_that_are_all_ones_are_unknown_and_the_others_known(void **state)
{
	(void)state;
	make_model(3);
	for (uint32_t l = 0; l < LAYERS; l++) {
		set(chunk_of(NORM1, l), 1.f);
		set(chunk_of(NORM2, l), 1.f);
	}
	set(chunk_of(FINAL, MGP_NONE), 1.f);
	make_buckets(1, 2);
	search();
	assert_null(m.bucket[0].why);
	assert_int_equal(found(), m.p.nchunks - 2 * LAYERS - 1);
	for (uint32_t l = 0; l < LAYERS; l++)
		assert_false(is_found(NORM1, l) || is_found(NORM2, l));
	assert_false(is_found(FINAL, MGP_NONE));
	done();
}

static void zero_biases_are_told_apart_by_their_layers(void **state)
{
	(void)state;
	make_model(4);
	for (uint32_t l = 0; l < LAYERS; l++)
		set(chunk_of(BIAS, l), 0.f);
	make_buckets(2, 2);
	search();
	assert_int_equal(found(), m.p.nchunks);
	done();
}

static void swap(uint32_t b, uint32_t x, uint32_t y)
{
	for (uint64_t k = 0; k < m.chunk[x].numel; k++) {
		float *p = &m.row[b][m.place[b][x] + k];
		float *q = &m.row[b][m.place[b][y] + k];
		const float was = *p;

		*p = *q;
		*q = was;
	}
}

/* Moments do not move with them: nothing may be given. */
static void masters_that_changed_places_make_the_buffer_unknown(void **state)
{
	static const struct { enum key a; uint32_t la; enum key b; uint32_t lb; } swaps[] = {
		{ FC2, 3, FC2, 1 }, { QKV, 0, QKV, 1 }, { NORM1, 2, NORM1, 3 },
		{ NORM1, 2, NORM2, 2 }, { GATE, 1, UP, 1 }, { GATE, 1, GATE, 2 },
		{ FC2, 2, GATE, 2 }, { FC2, 2, UP, 2 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(swaps) / sizeof(*swaps); i++) {
		make_model(5);
		make_buckets(1, 2);
		swap(0, chunk_of(swaps[i].a, swaps[i].la), chunk_of(swaps[i].b, swaps[i].lb));
		search();
		assert_non_null(m.bucket[0].why);
		assert_int_equal(found(), 0);
		done();
	}
}

static void one_changed_master_makes_its_bucket_unknown_and_no_other(void **state)
{
	(void)state;
	make_model(6);
	make_buckets(2, 2);
	m.row[0][m.place[0][chunk_of(QKV, 2)] + 100] += 1.f;
	search();
	assert_non_null(m.bucket[0].why);
	assert_null(m.bucket[1].why);
	assert_int_equal(found(), m.p.nchunks);
	for (uint32_t i = 0; i < m.p.nchunks; i++)
		assert_int_equal(m.p.tile[m.chunk[i].tile].bucket, 1);
	done();
}

/* The masters are those of another rank's slice; the moments are not. */
static void a_slice_of_another_rank_makes_the_position_unknown(void **state)
{
	(void)state;
	for (uint32_t odd = 0; odd < 2; odd++) {
		make_model(9);
		for (uint32_t l = 0; l < LAYERS; l++) {
			m.chunk[chunk_of(QKV, l)].nslices = 2;
			m.chunk[chunk_of(QKV, l)].slice = odd && l == 1;
		}
		make_buckets(1, 2);
		search();
		assert_int_equal(found(), odd ? 0 : m.p.nchunks);
		done();
	}
}

static void experts_that_differ_between_layers_make_the_position_unknown(void **state)
{
	(void)state;
	for (uint32_t odd = 0; odd < 2; odd++) {
		make_model(10);
		for (uint32_t l = 0; l < LAYERS; l++)
			m.chunk[chunk_of(FC2, l)].expert = odd && l == 2 ? 3 : 4;
		make_buckets(1, 2);
		search();
		assert_int_equal(found(), odd ? 0 : m.p.nchunks);
		done();
	}
}

static void a_layer_without_one_of_its_parameters_makes_the_buffer_unknown(void **state)
{
	const uint32_t last = 2 + 8 * 3 - 2;	/* the norm that begins layer 1 is not there */

	(void)state;
	make_model(11);
	m.bucket[0].numel = lay(0, 0, last, 0, false);
	m.bucket[0].has_borders = true;
	cut(0, 0, last, 1);
	m.buffer[0].nbuckets = 1;
	m.p.nbuckets = m.p.nbuffers = 1;
	search();
	assert_non_null(m.bucket[0].why);
	assert_int_equal(found(), 0);
	done();
}

static void an_embedding_before_the_layers_makes_the_buffer_unknown(void **state)
{
	(void)state;
	for (uint32_t odd = 0; odd < 2; odd++) {
		make_model(12);
		m.chunk[0].side = odd ? MGP_BEFORE : MGP_AFTER;
		make_buckets(1, 1);
		search();
		assert_int_equal(found(), odd ? 0 : m.p.nchunks);
		done();
	}
}

/* Buckets joined to one row, without borders: the second one begins at any element. */
static void joined_buckets_are_found_without_borders(void **state)
{
	const uint32_t last = 2 + 8 + 7;	/* the second bucket is from layer LAYERS - 3 on */
	uint64_t at;

	(void)state;
	make_model(7);
	at = lay(0, 0, last, 0, true);
	assert_int_not_equal(at % MGP_ALIGN, 0);
	m.bucket[0].numel = lay(0, last + 1, m.p.nchunks - 1, at, true);
	lay_run(0, 0, m.bucket[0].numel);
	m.buffer[0].nbuckets = 1;
	m.p.nbuckets = m.p.nbuffers = 1;
	search();
	assert_null(m.bucket[0].why);
	assert_int_equal(found(), m.p.nchunks);
	done();
}

static void a_bucket_that_is_all_zeros_is_unknown(void **state)
{
	(void)state;
	make_model(8);
	for (uint32_t i = 0; i < m.p.nchunks; i++)
		set(i, 0.f);
	m.bucket[0].numel = lay(0, 0, m.p.nchunks - 1, 0, true);
	lay_run(0, 0, m.bucket[0].numel);
	m.buffer[0].nbuckets = 1;
	m.p.nbuckets = m.p.nbuffers = 1;
	search();
	assert_non_null(m.bucket[0].why);
	assert_int_equal(found(), 0);
	done();
}

/* A flipped bit is seen, or changes no rounded value; blocks that change places are seen. */
static void no_mutation_gives_a_block_a_wrong_place(void **state)
{
	(void)state;
	for (uint32_t round = 0; round < 600; round++) {
		uint32_t x, y, bits;
		float *elem;

		make_model(round % 16);
		if (round % 3 == 0)
			set(chunk_of(round % 2 ? NORM1 : BIAS, round % LAYERS), 1.f);
		make_buckets(1 + round % 2, 1 + round % 5);
		seed = round;
		if (round % 2) {
			elem = &m.row[0][random_bits() % m.bucket[0].numel];
			memcpy(&bits, elem, sizeof(bits));
			bits ^= 1u << random_bits() % 32;
			memcpy(elem, &bits, sizeof(bits));
		} else {
			do {
				x = random_bits() % m.p.nchunks;
				y = random_bits() % m.p.nchunks;
			} while (x == y || m.chunk[x].numel != m.chunk[y].numel);
			swap(0, x, y);
		}
		search();
		if (round % 2 == 0 && m.chunk[x].layer != MGP_NONE && m.chunk[y].layer != MGP_NONE)
			assert_non_null(m.bucket[0].why);
		if (round % 2)
			found();
		done();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_block_is_where_it_was_put),
		cmocka_unit_test(copies_in_two_parts_of_the_model_are_both_found),
		cmocka_unit_test(equal_norms_of_one_layer_are_told_apart_by_the_order_of_another),
		cmocka_unit_test(a_norm_at_the_edge_of_its_layer_is_told_apart_from_the_next_one),
		cmocka_unit_test(norms_that_are_all_ones_are_unknown_and_the_others_known),
		cmocka_unit_test(zero_biases_are_told_apart_by_their_layers),
		cmocka_unit_test(masters_that_changed_places_make_the_buffer_unknown),
		cmocka_unit_test(one_changed_master_makes_its_bucket_unknown_and_no_other),
		cmocka_unit_test(a_slice_of_another_rank_makes_the_position_unknown),
		cmocka_unit_test(experts_that_differ_between_layers_make_the_position_unknown),
		cmocka_unit_test(a_layer_without_one_of_its_parameters_makes_the_buffer_unknown),
		cmocka_unit_test(an_embedding_before_the_layers_makes_the_buffer_unknown),
		cmocka_unit_test(joined_buckets_are_found_without_borders),
		cmocka_unit_test(a_bucket_that_is_all_zeros_is_unknown),
		cmocka_unit_test(no_mutation_gives_a_block_a_wrong_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
