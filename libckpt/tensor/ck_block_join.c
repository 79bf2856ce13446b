/*
 * ck_block_join.c -- see ck_block.h: strips in the order of their elements.
 *
 * A heap gives the strip whose next row begins first.  Rows that follow each other from there on
 * are taken until they have gone one step of the first.  If all of them have that step they are a
 * weave, of as many rows as the one with the fewest has.  What is no weave is taken row by row.  So
 * each strip is visited once for each weave that it is in.  A row that begins too late or too early
 * is the next then: it leaves a gap, or begins before the end of what was taken.
 */
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_block_priv.h"
#include "libckpt/tensor/ck_dtype.h"

/* ---- the heap ---- */

static void sift_down(struct ck_tiles *t, uint64_t i)
{
	struct ck_tiles_strip **h = t->heap, *s = h[i];

	for (uint64_t k; (k = 2 * i + 1) < t->nheap; i = k) {
		k += k + 1 < t->nheap && h[k + 1]->next < h[k]->next;
		if (s->next <= h[k]->next)
			break;
		h[i] = h[k];
	}
	h[i] = s;
}

static struct ck_tiles_strip *pop(struct ck_tiles *t)
{
	struct ck_tiles_strip *s = t->heap[0];

	t->heap[0] = t->heap[--t->nheap];
	if (t->nheap)
		sift_down(t, 0);
	return s;
}

static void push(struct ck_tiles *t, struct ck_tiles_strip *s)
{
	uint64_t i = t->nheap++;

	for (; i && t->heap[(i - 1) / 2]->next > s->next; i = (i - 1) / 2)
		t->heap[i] = t->heap[(i - 1) / 2];
	t->heap[i] = s;
}

static int fill_heap(struct ck_tiles *t, struct ckpt_err *err)
{
	int rc = ck_grow(&t->heap, &t->heap_cap, t->nstrips, sizeof(*t->heap), err);

	if (!rc)
		rc = ck_grow(&t->row, &t->row_cap, t->nstrips, sizeof(*t->row), err);
	if (rc)
		return rc;
	t->nheap = t->nstrips;
	for (uint64_t i = 0; i < t->nstrips; i++)
		t->heap[i] = &t->strip[i];
	for (uint64_t i = t->nheap / 2; i-- > 0;)
		sift_down(t, i);
	return 0;
}

/* ---- rows ---- */

/* Strips whose rows follow each other from the first one's on. */
struct row {
	uint64_t n;
	uint64_t at, end;	/* elements */
	uint64_t times;		/* so many of it follow each other too */
};

static void take_row(struct ck_tiles *t, struct row *r)
{
	const struct ck_tiles_strip *first = t->heap[0];
	uint64_t rows = first->rows;
	bool more = rows > 1;

	r->n = 0;
	r->at = r->end = first->next;
	do {
		struct ck_tiles_strip *s = pop(t);

		t->row[r->n++] = s;
		r->end += s->count;
		rows = ck_min_u64(rows, s->rows);
		more &= s->rows > 1 && s->to == first->to;
	} while (more && t->nheap && r->end - r->at < first->to && t->heap[0]->next == r->end);
	r->times = 1;
	if (more && r->end - r->at == first->to)
		r->times = rows;
}

static void advance(struct ck_tiles *t, const struct row *r)
{
	for (uint64_t i = 0; i < r->n; i++) {
		struct ck_tiles_strip *s = t->row[i];

		s->rows -= r->times;
		s->next += r->times * s->to;
		s->place += r->times * s->from;
		if (s->rows)
			push(t, s);
	}
}

/* ---- extents ---- */

struct out {
	struct ck_index *ix;	/* NULL = nothing is stored */
	uint64_t base;		/* elements of the state before the first */
	uint64_t nextents;
	/* The last one: the next may continue it. */
	struct ck_extent last;
	uint64_t last_part, last_end;	/* in the file; CK_TILES_NO_PART */
};

#define NO_PART UINT64_MAX

static struct ck_extent extent_of(const struct ck_tiles *t, const struct out *out,
				  const struct ck_tiles_strip *s)
{
	const struct ck_tiles_part *p = &t->part[s->part];
	struct ck_extent e = p->e;

	e.first = out->base + s->next;
	if (p->is_whole)
		return e;
	e.count = s->count;
	e.runs = 1;
	e.off += p->bits ? s->place / 8 : s->place;
	e.src_stride = p->bits ? s->from / 8 : s->from;
	return e;
}

static int flush(struct out *out, struct ckpt_err *err)
{
	if (out->last_part == NO_PART)
		return 0;
	out->last_part = NO_PART;
	return ck_index_state_extent(out->ix, &out->last, err);
}

/* A row of one strip, or rows that follow each other; it may continue the last. */
static int put_alone(const struct ck_tiles *t, struct out *out, const struct ck_tiles_strip *s,
		     uint64_t times, struct ckpt_err *err)
{
	const struct ck_tiles_part *p = &t->part[s->part];
	const uint32_t bits = ckpt_dtype_bits((enum ckpt_dtype)p->e.dtype);
	int rc;

	if (!p->is_whole && times == 1 && out->last_part == s->part && out->last_end == s->place) {
		out->last.count += s->count;
		out->last_end += s->count * (p->bits ? bits : bits / 8);
		return 0;
	}
	rc = flush(out, err);
	if (rc)
		return rc;
	out->last = extent_of(t, out, s);
	if (times > 1)
		out->last.runs = times;
	else if (!p->is_whole)
		out->last.src_stride = 0;
	out->last_part = s->part;
	out->last_end = times > 1 || p->is_whole ? UINT64_MAX :
			s->place + s->count * (p->bits ? bits : bits / 8);
	return 0;
}

static int put_row(struct ck_tiles *t, struct out *out, const struct row *r, struct ckpt_err *err)
{
	int rc = 0;

	out->nextents += r->n;
	if (!out->ix)
		return ck_tiles_fits(t, out->nextents, err);
	if (r->n == 1 || r->times == 1) {
		for (uint64_t i = 0; !rc && i < r->n; i++)
			rc = put_alone(t, out, t->row[i], r->times, err);
		return rc;
	}
	rc = flush(out, err);
	if (!rc)
		rc = ck_grow(&t->piece, &t->piece_cap, r->n, sizeof(*t->piece), err);
	for (uint64_t i = 0; !rc && i < r->n; i++)
		t->piece[i] = extent_of(t, out, t->row[i]);
	return rc ? rc : ck_index_state_weave(out->ix, t->piece, r->n, r->times, err);
}

/* 'numel' elements of a box. */
static int join(struct ck_tiles *t, const struct ck_block *box, uint64_t numel,
		struct ck_index *ix, struct ck_tiles_fault *fault_out, struct ckpt_err *err)
{
	struct out out = {
		.ix = ix, .base = ix ? ck_index_state_filled(ix) : 0, .last_part = NO_PART,
	};
	uint64_t at = 0;
	int rc = ck_tiles_cut(t, box, err);

	if (!rc)
		rc = fill_heap(t, err);
	while (!rc && t->nheap && t->heap[0]->next == at) {
		struct row r;

		take_row(t, &r);
		rc = put_row(t, &out, &r, err);
		at += r.times * (r.end - r.at);
		advance(t, &r);
	}
	if (!rc && ix)
		rc = flush(&out, err);
	if (rc)
		return rc;
	*fault_out = (struct ck_tiles_fault){
		.odd = t->nheap || at != numel, .twice = t->nheap && t->heap[0]->next < at,
	};
	fault_out->at = fault_out->twice ? t->heap[0]->next : at;
	return 0;
}

int ck_tiles_check(struct ck_tiles *t, struct ck_tiles_fault *fault_out, struct ckpt_err *err)
{
	return join(t, NULL, t->numel, NULL, fault_out, err);
}

int ck_tiles_append(struct ck_tiles *t, const struct ck_block *box, struct ck_index *ix,
		    struct ckpt_err *err)
{
	struct ck_tiles_fault fault;
	uint64_t numel = 1;
	int rc;

	for (uint32_t d = 0; d < t->ndim; d++) {
		if (box && (box->offset[d] > t->dim[d] ||
			    box->size[d] > t->dim[d] - box->offset[d]))
			return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
				       "a box has indices %" PRIu64 " to %" PRIu64 " of dimension "
				       "%u, which has %" PRIu64, box->offset[d],
				       box->offset[d] + box->size[d], d, t->dim[d]);
		numel *= box ? box->size[d] : t->dim[d];
	}
	rc = join(t, box, numel, ix, &fault, err);
	if (!rc && fault.odd)
		rc = ck_fail(err, CKPT_E_MISMATCH, t->name, CKPT_NO_OFFSET,
			     "element %" PRIu64 " of %" PRIu64 " %s", fault.at, numel,
			     fault.twice ? "is in two of its pieces" : "is in none of its pieces");
	return rc;
}

int ck_tiles_put(struct ck_tiles *t, struct ck_index *ix, uint32_t tensor, const char *state,
		 enum ckpt_dtype dtype, struct ckpt_err *err)
{
	int rc = ck_index_state_begin(ix, tensor, state, dtype, 0, err);

	if (rc)
		return rc;
	rc = ck_tiles_append(t, NULL, ix, err);
	if (rc) {
		ck_index_state_cancel(ix);
		return rc;
	}
	return ck_index_state_end(ix, NULL, err);
}
