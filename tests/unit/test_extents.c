/*
 * Extents of weaves. If this fails, rows of a matrix that is cut into columns come from another
 * row, or a column is taken for its neighbour.
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
#include "libckpt/tensor/ck_extents.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_raw.h"

#define MOST 4000
#define PIECES 9

static struct ck_index ix;
static uint64_t seed;

/* What the extents of a state must be, one by one. */
static struct ck_extent want[MOST];
static size_t nwant;
static uint64_t numel;
static uint64_t byte_of[MOST];

static int set_up(void **state)
{
	struct ck_src *src;
	uint32_t source;

	(void)state;
	seed = 20260708;
	if (ck_index_init(&ix, 0, NULL) || ck_src_mem("0123456789", 10, "mem", &src, NULL))
		return -1;
	return ck_index_add_source(&ix, "mem", src, 3, &source, NULL);
}

static int tear_down(void **state)
{
	(void)state;
	ck_index_release(&ix);
	return 0;
}

static uint64_t below(uint64_t n)
{
	return t_random(&seed) % n;
}

static struct ck_extent extent(uint64_t count)
{
	return (struct ck_extent){
		.first = numel, .count = count, .runs = 1, .off = 100000 * nwant + below(9),
		.member = CK_NONE, .view = CK_NONE, .dtype = CKPT_BF16,
	};
}

static void note(const struct ck_extent *e)
{
	want[nwant++] = *e;
	for (uint64_t i = 0; i < e->count * e->runs; i++)
		byte_of[numel++] = e->off + i / e->count * e->src_stride + i % e->count * 2;
}

static void add_extent(void)
{
	struct ck_extent e = extent(below(4));

	if (e.count && !below(3)) {
		e.runs = 2 + below(4);
		e.src_stride = 2 * (e.count + below(3));
	}
	note(&e);
	assert_int_equal(ck_index_state_extent(&ix, &e, NULL), 0);
}

static void add_weave(void)
{
	const uint64_t n = 2 + below(PIECES - 2), rows = 2 + below(9), first = numel;
	struct ck_extent piece[PIECES];
	uint64_t at = numel;

	for (uint64_t k = 0; k < n; k++) {
		piece[k] = extent(1 + below(4));
		piece[k].first = at;
		piece[k].off += 1000 * k;
		piece[k].src_stride = 2 * (piece[k].count + below(2));
		at += piece[k].count;
	}
	assert_int_equal(ck_index_state_weave(&ix, piece, n, rows, NULL), 0);
	for (uint64_t r = 0; r < rows; r++)
		for (uint64_t k = 0; k < n; k++) {
			struct ck_extent e = piece[k];

			e.first = first + r * (at - first) + piece[k].first - first;
			e.off += r * piece[k].src_stride;
			e.src_stride = 0;
			note(&e);
		}
}

static const struct ck_state *make(int i)
{
	char *name = t_fmt("t%d", i);
	uint32_t state;

	nwant = 0;
	numel = 0;
	assert_int_equal(ck_index_add_tensor(&ix, name, &numel, 1, CKPT_ROLE_PLAIN, &state, NULL),
			 0);
	free(name);
	assert_int_equal(ck_index_state_begin(&ix, state, "weight", CKPT_BF16, 0, NULL), 0);
	for (uint64_t k = below(7); k > 0; k--) {
		assert_int_equal(ck_index_state_filled(&ix), numel);
		if (below(2))
			add_extent();
		else
			add_weave();
	}
	ix.tensor[ix.ntensors - 1].numel = numel;
	assert_int_equal(ck_index_state_end(&ix, &state, NULL), 0);
	return &ix.state[state];
}

static void expect(const struct ck_extent *e, size_t i)
{
	assert_true(i < nwant);
	assert_int_equal(e->first, want[i].first);
	assert_int_equal(e->count, want[i].count);
	assert_int_equal(e->runs, want[i].runs);
	assert_int_equal(e->off, want[i].off);
	assert_int_equal(e->src_stride, want[i].src_stride);
}

static void extents_come_in_order_and_by_number(void **state)
{
	(void)state;
	for (int i = 0; i < 2000; i++) {
		const uint64_t before = ix.nextents;
		const struct ck_state *s = make(i);
		const struct ck_extent *e;
		struct ck_extents c;
		size_t n = 0;

		assert_int_equal(s->nextents, nwant);
		assert_int_equal(ix.nextents - before, nwant);
		ck_extents_begin(&c, &ix, s, 0);
		while (nwant && !want[n].count && n + 1 < nwant && !want[n + 1].first)
			n++;	/* element 0 is in none of these */
		for (; (e = ck_extents_next(&c)); n++)
			expect(e, n);
		assert_int_equal(n, nwant);
		for (n = 0; n < nwant; n++) {
			const struct ck_extent one = ck_extent_get(&ix, s, n);

			expect(&one, n);
		}
	}
}

static void each_element_begins_a_walk_at_its_extent(void **state)
{
	(void)state;
	for (int i = 0; i < 500; i++) {
		const struct ck_state *s = make(i);

		for (uint64_t elem = 0, n = 0; elem < numel; elem++) {
			struct ck_extents c;
			struct ck_extent e = ck_extent_at(&ix, s, elem);

			while (want[n].first + want[n].count * want[n].runs <= elem)
				n++;
			expect(&e, n);
			ck_extents_begin(&c, &ix, s, elem);
			for (size_t k = n; k < nwant && k < n + 30; k++)
				expect(ck_extents_next(&c), k);
		}
	}
}

static void spans_have_each_element_of_a_range_once(void **state)
{
	uint8_t seen[MOST];

	(void)state;
	for (int i = 0; i < 2000; i++) {
		const struct ck_state *s = make(i);
		const uint64_t first = numel ? below(numel) : 0;
		const uint64_t count = !below(3) ? numel - first : below(numel - first + 1);
		uint64_t nspans = 0;
		struct ck_spans c;
		struct ck_span span;

		memset(seen, 0, sizeof(seen));
		ck_spans_begin(&c, &ix, s, first, count);
		for (; ck_spans_next(&c, &span); nspans++) {
			const struct ck_extent *e = span.e;
			uint64_t from, to;

			assert_true(span.n && span.at + span.n <= e->count * e->runs);
			ck_span_bytes(&span, &from, &to);
			for (uint64_t k = span.at; k < span.at + span.n; k++) {
				const uint64_t elem = e->first + k / e->count * span.step +
						      k % e->count;
				const uint64_t at = e->off + k / e->count * e->src_stride +
						    k % e->count * 2;

				assert_true(elem >= first && elem < first + count);
				assert_int_equal(seen[elem]++, 0);
				assert_int_equal(at, byte_of[elem]);
				assert_true(k != span.at || at == from);
				assert_true(k != span.at + span.n - 1 || at + 2 == to);
			}
		}
		for (uint64_t k = 0; k < numel; k++)
			assert_int_equal(seen[k], k >= first && k < first + count);
		/* A weave that is cut at both ends is a row, whole rows and a row. */
		assert_true(nspans <= 3 * s->nstored);
		if (count == numel)
			assert_true(nspans <= s->nstored);
	}
}

static void a_derived_state_has_the_same_extents(void **state)
{
	const struct ck_state *s, *d;
	uint32_t number;

	(void)state;
	do {
		number = (uint32_t)ix.nstates;
		s = make((int)number);
	} while (!s->nweaves);
	assert_int_equal(ck_index_state_derive(&ix, number, "half", CKPT_F16, NULL), 0);
	d = &ix.state[number + 1];
	assert_int_equal(d->nextents, nwant);
	for (size_t n = 0; n < nwant; n++) {
		const struct ck_extent e = ck_extent_get(&ix, d, n);

		expect(&e, n);
	}
}

static void rows_that_leave_a_gap_or_are_too_many_are_refused(void **state)
{
	static const struct {
		uint64_t first[2], rows;
		int ok;
	} of[] = {
		{ { 0, 5 }, 4, 1 }, { { 0, 4 }, 4, 0 }, { { 0, 6 }, 4, 0 }, { { 1, 5 }, 4, 0 },
		{ { 0, 5 }, 3, 0 }, { { 0, 5 }, 5, 0 }, { { 0, 5 }, (uint64_t)1 << 62, 0 },
	};
	const uint64_t shape[] = { 4, 10 };
	uint32_t t;

	(void)state;
	assert_int_equal(ck_index_add_tensor(&ix, "t", shape, 2, CKPT_ROLE_PLAIN, &t, NULL), 0);
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		const uint64_t before = ix.nextents;
		struct ck_extent e[2];

		e[0] = e[1] = extent(5);
		e[0].first = of[i].first[0];
		e[1].first = of[i].first[1];
		assert_int_equal(ck_index_state_begin(&ix, t, "weight", CKPT_BF16, 0, NULL), 0);
		assert_int_equal(ck_index_state_weave(&ix, e, 2, of[i].rows, NULL), 0);
		assert_int_equal(ck_index_state_end(&ix, NULL, NULL), of[i].ok ? 0 :
				 -CKPT_E_MISMATCH);
		assert_int_equal(ix.nextents - before, of[i].ok ? 8 : 0);
		assert_int_equal(ix.nstored, 2);
		assert_int_equal(ix.nweaves, 1);
	}
}

static void a_row_beyond_64_bits_is_refused(void **state)
{
	const uint64_t shape[] = { 4, 10 };
	struct ck_extent e[2];
	uint32_t t;

	(void)state;
	assert_int_equal(ck_index_add_tensor(&ix, "t", shape, 2, CKPT_ROLE_PLAIN, &t, NULL), 0);
	assert_int_equal(ck_index_state_begin(&ix, t, "weight", CKPT_BF16, 0, NULL), 0);
	e[0] = e[1] = extent(5);
	e[1].first = 5;
	e[1].src_stride = UINT64_MAX / 3;
	assert_int_equal(ck_index_state_weave(&ix, e, 2, 4, NULL), -CKPT_E_CORRUPT);
	ck_index_state_cancel(&ix);
	assert_int_equal(ix.nstored, 0);
	assert_int_equal(ix.nextents, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
		T(extents_come_in_order_and_by_number),
		T(each_element_begins_a_walk_at_its_extent),
		T(spans_have_each_element_of_a_range_once),
		T(a_derived_state_has_the_same_extents),
		T(rows_that_leave_a_gap_or_are_too_many_are_refused),
		T(a_row_beyond_64_bits_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
