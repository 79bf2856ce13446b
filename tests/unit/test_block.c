/*
 * Tensors in blocks. If this fails, the columns of a matrix that tensor parallelism has cut come
 * from the wrong rank, or q, k and v are exchanged, without a word.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/tensor/ck_block.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_extents.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_raw.h"

#define DIMS 4
#define MOST 4096	/* elements of a tensor that is compared one by one */
#define PARTS 512

/* What was added: elements [first, first + count) of a block, from byte 'off' of a file on. */
struct part {
	uint64_t offset[DIMS], size[DIMS];
	uint64_t first, count;
	struct ck_extent e;
};

struct made {
	uint64_t shape[DIMS], numel;
	uint32_t ndim;
	struct part part[PARTS];
	size_t n;
	/* Of each element its file and byte. */
	uint32_t source[MOST];
	uint64_t byte[MOST];
};

static struct ck_index ix;
static struct ck_tiles tiles;
static struct made m;
static uint64_t seed, serial;

static int set_up(void **state)
{
	(void)state;
	if (ck_index_init(&ix, 0, NULL))
		return -1;
	for (int i = 0; i < 4; i++) {
		struct ck_src *src;
		uint32_t source;

		if (ck_src_mem("0123456789", 10, "mem", &src, NULL) ||
		    ck_index_add_source(&ix, "mem", src, 3, &source, NULL))
			return -1;
	}
	ck_tiles_init(&tiles, 0);
	seed = 20260707;
	serial = 0;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	ck_tiles_release(&tiles);
	ck_index_release(&ix);
	return 0;
}

static uint64_t below(uint64_t n)
{
	return t_random(&seed) % n;
}

/* ---- a tensor cut at random ---- */

static uint64_t element(const struct part *p, uint64_t at)
{
	uint64_t elem = 0, stride = 1;

	for (uint32_t d = m.ndim; d-- > 0;) {
		elem += (p->offset[d] + at % p->size[d]) * stride;
		at /= p->size[d];
		stride *= m.shape[d];
	}
	return elem;
}

static void note(const struct part *p)
{
	const uint64_t es = ckpt_dtype_bits(p->e.dtype) / 8;

	for (uint64_t i = 0; i < p->count; i++) {
		const uint64_t elem = element(p, p->first + i);

		m.source[elem] = p->e.source;
		m.byte[elem] = p->e.runs > 1 ? p->e.off + i / p->e.count * p->e.src_stride +
				i % p->e.count * es : p->e.off + i * es;
	}
}

/* Ranges of a block, each in a place of its own. */
static void cut_block(const uint64_t *offset, const uint64_t *size)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < m.ndim; d++)
		n *= size[d];
	for (uint64_t at = 0; at < n && m.n < PARTS;) {
		struct part *p = &m.part[m.n++];
		uint64_t count = m.n == PARTS || below(3) ? n - at : 1 + below(n - at);

		memset(p, 0, sizeof(*p));
		for (uint32_t d = 0; d < m.ndim; d++) {
			p->offset[d] = offset[d];
			p->size[d] = size[d];
		}
		p->first = at;
		p->count = count;
		p->e = (struct ck_extent){
			.off = 1000000 * m.n + below(1000), .source = (uint32_t)below(4),
			.member = CK_NONE, .view = CK_NONE, .dtype = CKPT_BF16, .rank = (int)m.n,
		};
		/* Strided in the file: whole rows of the block, or runs of another length. */
		if (!below(4)) {
			const uint64_t run = m.ndim && below(2) ? size[m.ndim - 1] : 1 + below(5);

			if (count % run == 0 && count > run) {
				p->e.count = run;
				p->e.runs = count / run;
				p->e.src_stride = run * 2 + 2 * below(9);
			}
		}
		note(p);
		at += count;
	}
}

static void cut_box(const uint64_t *offset, const uint64_t *size, unsigned depth)
{
	const uint32_t d = m.ndim ? (uint32_t)below(m.ndim) : 0;
	uint64_t o[DIMS] = { 0 }, s[DIMS] = { 0 }, parts, cut;

	if (!depth || !m.ndim || size[d] < 2 || m.n > PARTS / 2) {
		cut_block(offset, size);
		return;
	}
	memcpy(o, offset, m.ndim * sizeof(*o));
	memcpy(s, size, m.ndim * sizeof(*s));
	/* In equal parts, or anywhere. */
	parts = 2 + below(3);
	if (size[d] % parts == 0) {
		s[d] = size[d] / parts;
		for (uint64_t i = 0; i < parts; i++, o[d] += s[d])
			cut_box(o, s, depth - 1);
		return;
	}
	cut = 1 + below(size[d] - 1);
	s[d] = cut;
	cut_box(o, s, depth - 1);
	o[d] += cut;
	s[d] = size[d] - cut;
	cut_box(o, s, depth - 1);
}

static void make(void)
{
	static const uint64_t zero[DIMS];

	memset(&m, 0, sizeof(m));
	m.ndim = (uint32_t)below(DIMS + 1);
	m.numel = 1;
	for (uint32_t d = 0; d < m.ndim; d++) {
		m.shape[d] = 1 + below(m.ndim > 2 ? 8 : 40);
		m.numel *= m.shape[d];
	}
	cut_box(zero, m.shape, 1 + (unsigned)below(4));
	for (size_t i = m.n; i > 1; i--) {	/* in any order */
		const size_t k = below(i);
		const struct part p = m.part[k];

		m.part[k] = m.part[i - 1];
		m.part[i - 1] = p;
	}
}

static void add(size_t i)
{
	const struct part *p = &m.part[i];
	const struct ck_block block = { p->offset, p->size };

	assert_int_equal(ck_tiles_add(&tiles, &block, p->first, p->count, &p->e, NULL), 0);
}

static void add_all(void)
{
	assert_int_equal(ck_tiles_begin(&tiles, "t", m.shape, m.ndim, NULL), 0);
	for (size_t i = 0; i < m.n; i++)
		add(i);
}

/* ---- what is in the index ---- */

static const struct ck_state *put(void)
{
	char *name = t_fmt("t%d", (int)serial++);
	uint32_t tensor;

	assert_int_equal(ck_index_add_tensor(&ix, name, m.shape, m.ndim, CKPT_ROLE_PLAIN, &tensor,
					     NULL), 0);
	free(name);
	assert_int_equal(ck_tiles_put(&tiles, &ix, tensor, "weight", CKPT_BF16, NULL), 0);
	return &ix.state[ix.nstates - 1];
}

/* Element number 'at' of the extents on must be element 'elem' of the tensor. */
static void expect(uint64_t elem, const struct ck_extent *e, uint64_t k)
{
	assert_int_equal(e->source, m.source[elem]);
	assert_int_equal(e->off + k / e->count * e->src_stride + k % e->count * 2, m.byte[elem]);
}

static void expect_all(const struct ck_state *s)
{
	uint64_t at = 0;

	for (uint64_t i = 0; i < s->nextents; i++) {
		const struct ck_extent extent = ck_extent_get(&ix, s, i), *e = &extent;

		assert_int_equal(e->first, at);
		for (uint64_t k = 0; k < e->count * e->runs; k++)
			expect(at++, e, k);
	}
	assert_int_equal(at, m.numel);
}

static void elements_of_any_cut_are_where_their_blocks_have_them(void **state)
{
	(void)state;
	for (int i = 0; i < 3000; i++) {
		struct ck_tiles_fault fault = { .odd = true };

		make();
		add_all();
		assert_int_equal(ck_tiles_check(&tiles, &fault, NULL), 0);
		assert_false(fault.odd);
		expect_all(put());
	}
}

/* ---- boxes ---- */

static void boxes_come_in_the_order_in_which_they_are_listed(void **state)
{
	unsigned refused = 0;

	(void)state;
	for (int i = 0; i < 3000; i++) {
		uint64_t offset[4][DIMS], size[4][DIMS], total = 0, at = 0;
		const struct ck_state *s;
		uint32_t tensor;
		char *name;
		int rc = 0;

		make();
		add_all();
		for (int k = 0; k < 4; k++) {
			uint64_t n = 1;

			for (uint32_t d = 0; d < m.ndim; d++) {
				const bool whole = below(3) == 0;

				offset[k][d] = whole ? 0 : below(m.shape[d]);
				size[k][d] = whole ? m.shape[d] :
					     below(m.shape[d] - offset[k][d] + 1);
				n *= size[k][d];
			}
			total += n;
		}
		name = t_fmt("b%d", (int)serial++);
		assert_int_equal(ck_index_add_tensor(&ix, name, &total, 1, CKPT_ROLE_PLAIN, &tensor,
						     NULL), 0);
		free(name);
		assert_int_equal(ck_index_state_begin(&ix, tensor, "weight", CKPT_BF16, 0, NULL),
				 0);
		for (int k = 0; k < 4 && !rc; k++)
			rc = ck_tiles_append(&tiles, &(struct ck_block){ offset[k], size[k] }, &ix,
					     NULL);
		if (rc) {	/* strided runs that a box cuts */
			assert_int_equal(rc, -CKPT_E_UNSUPPORTED);
			ck_index_state_cancel(&ix);
			refused++;
			continue;
		}
		assert_int_equal(ck_index_state_end(&ix, NULL, NULL), 0);
		s = &ix.state[ix.nstates - 1];
		for (uint64_t x = 0, box = 0, in = 0; x < s->nextents; x++) {
			const struct ck_extent extent = ck_extent_get(&ix, s, x), *e = &extent;

			assert_int_equal(e->first, at);
			for (uint64_t j = 0; j < e->count * e->runs; j++, at++, in++) {
				struct part p = { .first = 0 };
				uint64_t n = 1;

				for (;; box++, in = 0) {
					n = 1;
					for (uint32_t d = 0; d < m.ndim; d++)
						n *= size[box][d];
					if (in < n)
						break;
				}
				memcpy(p.offset, offset[box], sizeof(p.offset));
				memcpy(p.size, size[box], sizeof(p.size));
				expect(element(&p, in), e, j);
			}
		}
		assert_int_equal(at, total);
	}
	assert_true(refused < 1000);
}

/* ---- faults ---- */

static int by_first(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return x[0] < y[0] ? -1 : x[0] > y[0];
}

/* By rows of the parts, in order: the first that begins after or before the end of the last. */
static bool is_odd(uint64_t *at_out, bool *twice_out)
{
	uint64_t (*run)[2] = t_alloc(sizeof(*run) * MOST * 2), n = 0, at = 0;
	bool odd = false;

	for (size_t i = 0; i < m.n; i++)
		for (uint64_t k = 0; k < m.part[i].count; k++) {
			const uint64_t elem = element(&m.part[i], m.part[i].first + k);

			if (k && run[n - 1][0] + run[n - 1][1] == elem) {
				run[n - 1][1]++;
			} else {
				run[n][0] = elem;
				run[n++][1] = 1;
			}
		}
	qsort(run, n, sizeof(*run), by_first);
	*twice_out = false;
	for (uint64_t i = 0; i < n && !odd; i++) {
		odd = run[i][0] != at;
		*twice_out = run[i][0] < at;
		*at_out = *twice_out ? run[i][0] : at;
		at += odd ? 0 : run[i][1];
	}
	if (!odd)
		*at_out = at;
	free(run);
	return odd || at != m.numel;
}

static void the_first_gap_or_overlap_is_found(void **state)
{
	unsigned odd = 0, twice = 0;

	(void)state;
	for (int i = 0; i < 3000; i++) {
		struct ck_tiles_fault fault;
		uint64_t at = 0;
		bool both, is;

		make();
		for (uint64_t k = below(3); k > 0; k--) {
			struct part *p = &m.part[below(m.n)];

			switch (below(3)) {
			case 0:		/* missing */
				*p = m.part[m.n > 1 ? --m.n : 0];
				break;
			case 1:		/* short */
				p->count = 1 + below(p->count);
				p->e.runs = 1;
				break;
			default:	/* twice */
				if (m.n < PARTS)
					m.part[m.n++] = *p;
			}
		}
		is = is_odd(&at, &both);
		add_all();
		assert_int_equal(ck_tiles_check(&tiles, &fault, NULL), 0);
		assert_int_equal(fault.odd, is);
		assert_int_equal(fault.at, at);
		assert_int_equal(fault.twice, both);
		odd += is;
		twice += both;
	}
	assert_true(odd > 500 && twice > 100 && odd < 2500);
}

static void a_state_with_a_fault_is_not_put(void **state)
{
	const uint64_t shape[] = { 4, 6 }, zero[2] = { 0 }, half[] = { 4, 3 };
	const struct ck_extent e = { .member = CK_NONE, .view = CK_NONE, .dtype = CKPT_F32 };
	const struct ck_block left = { zero, half };
	struct ckpt_err err = { 0 };
	uint32_t tensor;

	(void)state;
	assert_int_equal(ck_index_add_tensor(&ix, "a", shape, 2, CKPT_ROLE_PLAIN, &tensor, NULL),
			 0);
	assert_int_equal(ck_tiles_begin(&tiles, "a", shape, 2, NULL), 0);
	assert_int_equal(ck_tiles_add(&tiles, &left, 0, 12, &e, NULL), 0);
	assert_int_equal(ck_tiles_put(&tiles, &ix, tensor, "weight", CKPT_F32, &err),
			 -CKPT_E_MISMATCH);
	assert_string_equal(err.where, "a");
	assert_non_null(strstr(err.msg, "element 3 of 24 is in none"));
	assert_int_equal(ix.nstates, 0);
	assert_int_equal(ix.nextents, 0);
}

static void what_is_not_within_the_tensor_is_refused(void **state)
{
	const uint64_t shape[] = { 4, 6 }, offset[] = { 0, 4 }, size[] = { 4, 3 };
	const uint64_t huge[] = { UINT64_MAX, 0 }, zero[2] = { 0 };
	struct ck_extent e = { .member = CK_NONE, .view = CK_NONE, .dtype = CKPT_F32 };

	(void)state;
	assert_int_equal(ck_tiles_begin(&tiles, "a", shape, 2, NULL), 0);
	assert_int_equal(ck_tiles_add(&tiles, &(struct ck_block){ offset, size }, 0, 12, &e, NULL),
			 -CKPT_E_CORRUPT);
	assert_int_equal(ck_tiles_add(&tiles, &(struct ck_block){ huge, size }, 0, 12, &e, NULL),
			 -CKPT_E_CORRUPT);
	assert_int_equal(ck_tiles_add(&tiles, &(struct ck_block){ zero, size }, 0, 13, &e, NULL),
			 -CKPT_E_CORRUPT);
	assert_int_equal(ck_tiles_add(&tiles, &(struct ck_block){ zero, size }, 13, 0, &e, NULL),
			 -CKPT_E_CORRUPT);
	e.off = UINT64_MAX - 10;
	assert_int_equal(ck_tiles_add(&tiles, NULL, 0, 24, &e, NULL), -CKPT_E_CORRUPT);
	assert_int_equal(ck_tiles_append(&tiles, &(struct ck_block){ offset, size }, &ix, NULL),
			 -CKPT_E_USAGE);
}

/* ---- none, one, views ---- */

static void no_elements_and_one_are_tensors_too(void **state)
{
	const uint64_t empty[] = { 3, 0, 2 }, zero[3] = { 0 }, wide[] = { 3, 4 }, none[] = { 3, 0 };
	const struct ck_extent e = {
		.off = 40, .member = CK_NONE, .view = CK_NONE, .dtype = CKPT_F32, .rank = 2,
	};
	const struct ck_state *s;

	(void)state;
	m.ndim = 0;
	assert_int_equal(ck_tiles_begin(&tiles, "a", NULL, 0, NULL), 0);
	assert_int_equal(ck_tiles_add(&tiles, &(struct ck_block){ NULL, NULL }, 0, 1, &e, NULL), 0);
	s = put();
	assert_int_equal(s->nextents, 1);
	assert_int_equal(ck_extent_stored(&ix, s, 0)->count, 1);
	assert_int_equal(ck_extent_stored(&ix, s, 0)->off, 40);
	assert_int_equal(ck_extent_stored(&ix, s, 0)->rank, 2);
	m.ndim = 3;
	memcpy(m.shape, empty, sizeof(empty));
	assert_int_equal(ck_tiles_begin(&tiles, "b", empty, 3, NULL), 0);
	assert_int_equal(ck_tiles_add(&tiles, &(struct ck_block){ zero, empty }, 0, 0, &e, NULL),
			 0);
	s = put();
	assert_int_equal(s->nextents, 0);
	/* A rank that has no columns. */
	m.ndim = 2;
	memcpy(m.shape, wide, sizeof(wide));
	assert_int_equal(ck_tiles_begin(&tiles, "c", wide, 2, NULL), 0);
	assert_int_equal(ck_tiles_add(&tiles, &(struct ck_block){ zero, none }, 0, 0, &e, NULL), 0);
	assert_int_equal(ck_tiles_add(&tiles, NULL, 0, 12, &e, NULL), 0);
	s = put();
	assert_int_equal(s->nextents, 1);
	assert_int_equal(ck_extent_stored(&ix, s, 0)->count, 12);
}

static void a_range_that_begins_within_a_row_is_one_extent(void **state)
{
	const struct ck_extent e = { .member = CK_NONE, .view = CK_NONE, .dtype = CKPT_F32 };
	const struct ck_state *s;

	(void)state;
	m.ndim = 3;
	m.shape[0] = m.shape[1] = m.shape[2] = 5;
	assert_int_equal(ck_tiles_begin(&tiles, "a", m.shape, 3, NULL), 0);
	assert_int_equal(ck_tiles_add(&tiles, NULL, 63, 62, &e, NULL), 0);
	assert_int_equal(ck_tiles_add(&tiles, NULL, 0, 63, &e, NULL), 0);
	s = put();
	assert_int_equal(s->nextents, 2);
	assert_int_equal(ck_extent_stored(&ix, s, 0)->count, 63);
	assert_int_equal(ck_extent_stored(&ix, s, 1)->count, 62);
}

static void a_view_stays_whole(void **state)
{
	const uint64_t shape[] = { 4, 6 }, stride[] = { 1, 4 }, zero[2] = { 0 };
	const uint64_t half[] = { 4, 3 }, upper[] = { 2, 6 };
	struct ck_extent e = {
		.member = CK_NONE, .dtype = CKPT_BF16, .flags = CKPT_EXTENT_GATHER,
	};
	const struct ck_state *s;
	uint32_t tensor;

	(void)state;
	assert_int_equal(ck_index_add_view(&ix, shape, stride, 2, &e.view, NULL), 0);
	m.ndim = 2;
	memcpy(m.shape, shape, sizeof(shape));
	assert_int_equal(ck_tiles_begin(&tiles, "a", shape, 2, NULL), 0);
	assert_int_equal(ck_tiles_add(&tiles, &(struct ck_block){ zero, half }, 0, 12, &e, NULL),
			 -CKPT_E_UNSUPPORTED);
	assert_int_equal(ck_tiles_add(&tiles, NULL, 0, 24, &e, NULL), 0);
	s = put();
	assert_int_equal(s->nextents, 1);
	assert_int_equal(ck_extent_stored(&ix, s, 0)->view, e.view);
	assert_int_equal(ck_extent_stored(&ix, s, 0)->count, 24);
	assert_int_equal(ck_index_add_tensor(&ix, "half", upper, 2, CKPT_ROLE_PLAIN, &tensor, NULL),
			 0);
	assert_int_equal(ck_index_state_begin(&ix, tensor, "weight", CKPT_BF16, 0, NULL), 0);
	assert_int_equal(ck_tiles_append(&tiles, &(struct ck_block){ zero, upper }, &ix, NULL),
			 -CKPT_E_UNSUPPORTED);
	ck_index_state_cancel(&ix);
}

static void packed_elements_in_one_piece_are_one_extent(void **state)
{
	const struct ck_extent e = {
		.off = 5, .member = CK_NONE, .view = CK_NONE, .dtype = CKPT_F4,
	};
	const struct ck_state *s;

	(void)state;
	m.ndim = 2;
	m.shape[0] = 3;
	m.shape[1] = 8;
	assert_int_equal(ck_tiles_begin(&tiles, "a", m.shape, 2, NULL), 0);
	assert_int_equal(ck_tiles_add(&tiles, NULL, 0, 24, &e, NULL), 0);
	s = put();
	assert_int_equal(s->nextents, 1);
	assert_int_equal(ck_extent_stored(&ix, s, 0)->off, 5);
	assert_int_equal(ck_extent_stored(&ix, s, 0)->count, 24);
	assert_int_equal(ck_extent_stored(&ix, s, 0)->runs, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
		T(elements_of_any_cut_are_where_their_blocks_have_them),
		T(boxes_come_in_the_order_in_which_they_are_listed),
		T(the_first_gap_or_overlap_is_found),
		T(a_state_with_a_fault_is_not_put),
		T(what_is_not_within_the_tensor_is_refused),
		T(no_elements_and_one_are_tensors_too),
		T(a_range_that_begins_within_a_row_is_one_extent),
		T(a_view_stays_whole),
		T(packed_elements_in_one_piece_are_one_extent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
