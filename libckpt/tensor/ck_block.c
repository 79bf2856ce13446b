/*
 * ck_block.c -- see ck_block.h: tiles, and the rows that boxes cut out of them.
 *
 * A part, a range of a row-major block, is at most 2 * ndim - 1 rectangles: the rest of a row, the
 * rest of a plane, whole planes, and so on down again.  A rectangle has a step in the file for each
 * dimension, so what a box leaves of it has one too.  Dimensions that follow each other in the box
 * and in the file become one; the innermost then are a run, the next one counts rows of it, and
 * what is left counts strips.
 */
#include "libckpt/tensor/ck_block.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_block_priv.h"
#include "libckpt/tensor/ck_dtype.h"

void ck_tiles_init(struct ck_tiles *t, uint64_t memory_limit)
{
	memset(t, 0, sizeof(*t));
	t->memory_limit = memory_limit;
}

void ck_tiles_release(struct ck_tiles *t)
{
	ck_free(t->part);
	ck_free(t->rect);
	ck_free(t->order);
	ck_free(t->dim);
	ck_free(t->strip);
	ck_free(t->heap);
	ck_free(t->row);
	ck_free(t->piece);
	ck_free(t->level);
	memset(t, 0, sizeof(*t));
}

int ck_tiles_begin(struct ck_tiles *t, const char *name, const uint64_t *shape, uint32_t ndim,
		   struct ckpt_err *err)
{
	uint64_t numel;
	int rc = ck_shape_numel(shape, ndim, &numel, err);

	if (!rc)
		rc = ck_grow(&t->dim, &t->dim_cap, (uint64_t)ndim * 3 + 1, sizeof(*t->dim), err);
	if (!rc)
		rc = ck_grow(&t->level, &t->level_cap, (uint64_t)ndim + 1, sizeof(*t->level), err);
	if (rc)
		return rc;
	if (ndim)
		memcpy(t->dim, shape, ndim * sizeof(*shape));
	t->name = name;
	t->ndim = ndim;
	t->numel = numel;
	t->nparts = t->nrects = t->nordered = 0;
	return 0;
}

int ck_tiles_fits(const struct ck_tiles *t, uint64_t extents, struct ckpt_err *err)
{
	const uint64_t bytes = t->nparts * sizeof(*t->part) + t->nstrips * sizeof(*t->strip) +
		t->nrects * (sizeof(*t->rect) + 3 * t->ndim * sizeof(*t->dim));

	if (!t->memory_limit || (extents <= t->memory_limit / sizeof(struct ck_extent) &&
				 bytes <= t->memory_limit))
		return 0;
	return ck_fail_limit(err, t->name, CKPT_NO_OFFSET, "memory_bytes", t->memory_limit,
			     "its %" PRIu64 " pieces in files form few regular rows",
			     ck_max_u64(t->nrects, ck_max_u64(extents, t->nstrips)));
}

/* ---- numbers of elements ---- */

static uint64_t offset_in(const struct ck_block *b, uint32_t d)
{
	return b ? b->offset[d] : 0;
}

static uint64_t size_in(const struct ck_tiles *t, const struct ck_block *b, uint32_t d)
{
	return b ? b->size[d] : t->dim[d];
}

/* The element of the tensor that is number 'at' of a block. */
static uint64_t element_of(const struct ck_tiles *t, const struct ck_block *b, uint64_t at)
{
	uint64_t elem = 0, stride = 1;

	for (uint32_t d = t->ndim; d-- > 0;) {
		const uint64_t size = size_in(t, b, d);

		elem += (offset_in(b, d) + at % size) * stride;
		at /= size;
		stride *= t->dim[d];
	}
	return elem;
}

/* Do elements [first, first + count) of a block follow each other in the tensor? */
static bool is_run(const struct ck_tiles *t, const struct ck_block *b, uint64_t first,
		   uint64_t count)
{
	return element_of(t, b, first + count - 1) - element_of(t, b, first) == count - 1;
}

uint64_t ck_tiles_run(const struct ck_tiles *t, const struct ck_block *b)
{
	uint64_t n = 1, all = 1;
	bool whole = true;

	for (uint32_t d = t->ndim; d-- > 0;) {
		const uint64_t size = size_in(t, b, d);

		n *= whole ? size : 1;
		all *= size;
		whole &= size == t->dim[d];
	}
	return all ? n : 0;
}

/* ---- rectangles ---- */

/*
 * The largest rectangle that elements from 'at' on begin with: indices in the block, and lengths;
 * the number of its elements.
 */
static uint64_t first_rect(const struct ck_tiles *t, const struct ck_block *b, uint64_t at,
			   uint64_t end, uint64_t *index, uint64_t *length)
{
	uint64_t n = 1, slices;
	uint32_t d = t->ndim;

	/* Whole dimensions. */
	for (; d > 0; d--) {
		const uint64_t size = size_in(t, b, d - 1);

		if (at % (n * size) || n * size > end - at)
			break;
		index[d - 1] = 0;
		length[d - 1] = size;
		n *= size;
	}
	if (!d)
		return n;
	/* Some slices of the next. */
	at /= n;
	d--;
	index[d] = at % size_in(t, b, d);
	slices = ck_min_u64(end / n - at, size_in(t, b, d) - index[d]);
	length[d] = slices;
	while (d-- > 0) {
		at /= size_in(t, b, d + 1);
		index[d] = at % size_in(t, b, d);
		length[d] = 1;
	}
	return n * slices;
}

/* How the elements of a part are in its file: its step after 'count' elements, or none. */
struct layout {
	uint64_t first, count, step, unit;
};

static uint64_t place_of(const struct layout *l, uint64_t at)
{
	at -= l->first;
	return l->count ? at / l->count * l->step + at % l->count * l->unit : at * l->unit;
}

static int add_rect(struct ck_tiles *t, const struct ck_block *b, const struct layout *l,
		    uint64_t at, struct ckpt_err *err)
{
	const uint32_t nd = t->ndim;
	uint64_t below = 1, *p;
	int rc = ck_grow(&t->rect, &t->rect_cap, t->nrects + 1, sizeof(*t->rect), err);

	if (!rc)
		rc = ck_grow(&t->dim, &t->dim_cap, 3 * (uint64_t)nd * (t->nrects + 2) + 1,
			     sizeof(*t->dim), err);
	if (rc)
		return rc;
	p = t->dim + 3 * (uint64_t)nd * (t->nrects + 1);
	for (uint32_t d = nd; d-- > 0; below *= size_in(t, b, d)) {
		p[d] = offset_in(b, d) + t->dim[nd + d];
		p[nd + d] = t->dim[2 * (uint64_t)nd + d];
		p[2 * (uint64_t)nd + d] = l->count && below >= l->count ?
			below / l->count * l->step : below * l->unit;
	}
	t->rect[t->nrects++] = (struct ck_tiles_rect){
		.part = t->nparts - 1, .place = place_of(l, at),
	};
	return ck_tiles_fits(t, 0, err);
}

static int add_rects(struct ck_tiles *t, const struct ck_block *b, const struct layout *l,
		     uint64_t at, uint64_t end, struct ckpt_err *err)
{
	int rc = 0;

	while (!rc && at < end) {
		const uint64_t n = first_rect(t, b, at, end, t->dim + t->ndim,
					      t->dim + 2 * (uint64_t)t->ndim);

		rc = add_rect(t, b, l, at, err);
		at += n;
	}
	return rc;
}

/* ---- parts ---- */

static int check_range(const struct ck_tiles *t, const struct ck_block *b, uint64_t first,
		       uint64_t count, struct ckpt_err *err)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < t->ndim; d++) {
		const uint64_t offset = offset_in(b, d), size = size_in(t, b, d);

		if (offset > t->dim[d] || size > t->dim[d] - offset)
			return ck_fail(err, CKPT_E_CORRUPT, t->name, CKPT_NO_OFFSET,
				       "a block has %" PRIu64 " indices from %" PRIu64 " on of "
				       "dimension %u, which has %" PRIu64, size, offset, d,
				       t->dim[d]);
		n *= size;
	}
	if (first > n || count > n - first)
		return ck_fail(err, CKPT_E_CORRUPT, t->name, CKPT_NO_OFFSET,
			       "a part has %" PRIu64 " elements from %" PRIu64 " on, its block has "
			       "%" PRIu64, count, first, n);
	return 0;
}

/* The last byte must have a number of 64 bits; those before it have one then. */
static int check_bytes(const struct ck_tiles *t, const struct ck_extent *e, uint64_t count,
		       struct ckpt_err *err)
{
	const bool runs = e->runs > 1 && !(e->flags & CKPT_EXTENT_GATHER);
	uint64_t bits, skip = 0, end;

	if (!ck_mul_over(runs ? e->count : count, ckpt_dtype_bits((enum ckpt_dtype)e->dtype),
			 &bits) &&
	    !(runs && ck_mul_over(e->runs - 1, e->src_stride, &skip)) &&
	    !ck_add_over(e->off, skip, &end) && !ck_add_over(end, bits / 8, &end))
		return 0;
	return ck_fail(err, CKPT_E_CORRUPT, t->name, e->off,
		       "the end of %" PRIu64 " elements from here on exceeds 64 bits", count);
}

/* Runs of whole slices of a block. */
static bool is_sliced(const struct ck_tiles *t, const struct ck_block *b, uint64_t first,
		      uint64_t run)
{
	uint64_t n = 1;

	for (uint32_t d = t->ndim; d-- > 0 && n < run;)
		n *= size_in(t, b, d);
	return n == run && first % run == 0;
}

/* As it is: elements that follow each other in the tensor, and do not in the file. */
static int add_whole(struct ck_tiles *t, const struct ck_block *b, uint64_t first,
		     struct ckpt_err *err)
{
	struct ck_tiles_part *p = &t->part[t->nparts - 1];

	p->e.first = element_of(t, b, first);
	p->is_whole = true;
	return ck_tiles_fits(t, 0, err);
}

int ck_tiles_add(struct ck_tiles *t, const struct ck_block *b, uint64_t first, uint64_t count,
		 const struct ck_extent *e, struct ckpt_err *err)
{
	const uint32_t bits = ckpt_dtype_bits((enum ckpt_dtype)e->dtype);
	const bool view = e->flags & CKPT_EXTENT_GATHER, runs = !view && e->runs > 1;
	struct layout l = { .first = first, .unit = bits < 8 ? bits : bits / 8 };
	int rc = check_range(t, b, first, count, err);

	if (!rc && count)
		rc = check_bytes(t, e, count, err);
	if (!rc && runs && (e->count > count || e->count * e->runs != count))
		rc = ck_fail(err, CKPT_E_CORRUPT, t->name, e->off, "%" PRIu64 " runs of %" PRIu64
			     " elements are not a part of %" PRIu64, e->runs, e->count, count);
	if (rc || !count)
		return rc;
	if (view && !is_run(t, b, first, count))
		return ck_fail(err, CKPT_E_UNSUPPORTED, t->name, e->off, "a strided view that is a "
			       "block of columns is not supported");
	rc = ck_grow(&t->part, &t->part_cap, t->nparts + 1, sizeof(*t->part), err);
	if (rc)
		return rc;
	t->part[t->nparts++] = (struct ck_tiles_part){ .e = *e, .bits = bits < 8 };
	if (!runs) {
		t->part[t->nparts - 1].e.count = count;
		t->part[t->nparts - 1].e.runs = 1;
	}
	if (!view && !runs)
		return add_rects(t, b, &l, first, first + count, err);
	if (runs && is_sliced(t, b, first, e->count)) {
		l.count = e->count;
		l.step = bits < 8 ? e->src_stride * 8 : e->src_stride;
		return add_rects(t, b, &l, first, first + count, err);
	}
	if (is_run(t, b, first, count))
		return add_whole(t, b, first, err);
	for (uint64_t k = 0; !rc && k < e->runs; k++) {
		struct ck_extent one = *e;

		one.off += k * e->src_stride;
		one.runs = 1;
		rc = ck_tiles_add(t, b, first + k * e->count, e->count, &one, err);
	}
	return rc;
}

/* ---- strips ---- */

static int add_strip(struct ck_tiles *t, const struct ck_tiles_strip *s, struct ckpt_err *err)
{
	int rc = ck_grow(&t->strip, &t->strip_cap, t->nstrips + 1, sizeof(*s), err);

	if (rc)
		return rc;
	t->strip[t->nstrips++] = *s;
	return ck_tiles_fits(t, 0, err);
}

/* Levels from the innermost on, none of which continues the one before. */
static int add_strips(struct ck_tiles *t, struct ck_tiles_strip s, uint64_t unit, uint32_t n,
		      struct ckpt_err *err)
{
	const struct ck_tiles_level *l = t->level;
	uint64_t outer = 1;
	uint32_t k = 0;
	int rc = 0;

	s.count = 1;
	s.rows = 1;
	if (k < n && l[k].to == 1 && l[k].from == unit)
		s.count = l[k++].n;
	if (k < n) {
		s.rows = l[k].n;
		s.to = l[k].to;
		s.from = l[k++].from;
	}
	for (uint32_t i = k; i < n; i++)
		outer *= l[i].n;
	for (uint64_t i = 0; !rc && i < outer; i++) {
		struct ck_tiles_strip one = s;
		uint64_t at = i;

		for (uint32_t m = k; m < n; at /= l[m++].n) {
			one.next += at % l[m].n * l[m].to;
			one.place += at % l[m].n * l[m].from;
		}
		rc = add_strip(t, &one, err);
	}
	return rc;
}

/* What a box has of a rectangle. */
static int cut_rect(struct ck_tiles *t, const struct ck_tiles_rect *r, const uint64_t *dim,
		    const struct ck_block *box, struct ckpt_err *err)
{
	const uint32_t nd = t->ndim;
	const struct ck_tiles_part *p = &t->part[r->part];
	const uint32_t bits = ckpt_dtype_bits((enum ckpt_dtype)p->e.dtype);
	struct ck_tiles_strip s = { .part = r->part, .place = r->place };
	uint64_t below = 1;
	uint32_t n = 0;

	for (uint32_t d = nd; d-- > 0; below *= size_in(t, box, d)) {
		const uint64_t at = offset_in(box, d), end = at + size_in(t, box, d);
		const uint64_t from = ck_max_u64(dim[d], at);
		const uint64_t to = ck_min_u64(dim[d] + dim[nd + d], end);
		const uint64_t step = dim[2 * (uint64_t)nd + d];
		struct ck_tiles_level *l = &t->level[n];

		if (from >= to)
			return 0;
		s.next += (from - at) * below;
		s.place += (from - dim[d]) * step;
		if (to - from == 1)
			continue;
		if (n && l[-1].n * l[-1].to == below && l[-1].n * l[-1].from == step) {
			l[-1].n *= to - from;
			continue;
		}
		*l = (struct ck_tiles_level){ to - from, below, step };
		n++;
	}
	return add_strips(t, s, p->bits ? bits : bits / 8, n, err);
}

/* How many of its elements are in a box, and the first there.  All of them follow each other. */
static uint64_t count_in(struct ck_tiles *t, const struct ck_tiles_part *p,
			 const struct ck_block *box, uint64_t *first_out)
{
	const uint32_t nd = t->ndim;
	uint64_t *index = t->dim + nd, *length = t->dim + 2 * (uint64_t)nd;
	const uint64_t end = p->e.first + p->e.count * p->e.runs;
	uint64_t in = 0;

	for (uint64_t at = p->e.first, n; at < end; at += n) {
		uint64_t part = 1, first = 0, below = 1;

		n = first_rect(t, NULL, at, end, index, length);
		for (uint32_t d = nd; d-- > 0; below *= size_in(t, box, d)) {
			const uint64_t a = offset_in(box, d), b = a + size_in(t, box, d);
			const uint64_t from = ck_max_u64(index[d], a);
			const uint64_t to = ck_min_u64(index[d] + length[d], b);

			part *= from < to ? to - from : 0;
			first += (from - a) * below;
		}
		if (part && !in)
			*first_out = first;
		in += part;
	}
	return in;
}

static int cut_whole(struct ck_tiles *t, uint64_t part, const struct ck_block *box,
		     struct ckpt_err *err)
{
	const struct ck_tiles_part *p = &t->part[part];
	struct ck_tiles_strip s = { .part = part, .rows = 1 };

	s.count = count_in(t, p, box, &s.next);
	if (!s.count)
		return 0;
	if (s.count != p->e.count * p->e.runs)
		return ck_fail(err, CKPT_E_UNSUPPORTED, t->name, p->e.off, "%" PRIu64 " of %" PRIu64
			       " elements of a strided view cannot be taken alone", s.count,
			       p->e.count * p->e.runs);
	return add_strip(t, &s, err);
}

static bool is_apart(const uint64_t *dim, uint32_t ndim, const struct ck_block *box)
{
	for (uint32_t d = 0; d < ndim; d++)
		if (dim[d] >= box->offset[d] + box->size[d] ||
		    dim[d] + dim[ndim + d] <= box->offset[d])
			return true;
	return false;
}

static const uint64_t *dim_of(const struct ck_tiles *t, uint64_t rect)
{
	return t->dim + 3 * (uint64_t)t->ndim * (rect + 1);
}

static int by_at(const void *a, const void *b)
{
	const struct ck_tiles_order *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

static int sort_rects(struct ck_tiles *t, struct ckpt_err *err)
{
	const int rc = ck_grow(&t->order, &t->order_cap, t->nrects, sizeof(*t->order), err);

	if (rc)
		return rc;
	t->widest = 0;
	for (uint64_t i = 0; i < t->nrects; i++) {
		const uint64_t *dim = dim_of(t, i);

		t->order[i] = (struct ck_tiles_order){ dim[0], i };
		t->widest = ck_max_u64(t->widest, dim[t->ndim]);
	}
	qsort(t->order, t->nrects, sizeof(*t->order), by_at);
	t->nordered = t->nrects;
	return 0;
}

/* A large model has 50,000 rectangles and as many boxes, each of one layer. */
static int cut_near(struct ck_tiles *t, const struct ck_block *box, struct ckpt_err *err)
{
	const uint64_t end = box->offset[0] + box->size[0];
	uint64_t i, from;
	int rc = t->nordered == t->nrects ? 0 : sort_rects(t, err);

	if (rc)
		return rc;
	from = box->offset[0] > t->widest ? box->offset[0] - t->widest : 0;
	CK_LOWER_BOUND(i, t->nordered, t->order[i].at < from);
	for (; !rc && i < t->nordered && t->order[i].at < end; i++) {
		const uint64_t rect = t->order[i].rect, *dim = dim_of(t, rect);

		if (!is_apart(dim, t->ndim, box))
			rc = cut_rect(t, &t->rect[rect], dim, box, err);
	}
	return rc;
}

int ck_tiles_cut(struct ck_tiles *t, const struct ck_block *box, struct ckpt_err *err)
{
	int rc = 0;

	t->nstrips = 0;
	if (box && t->ndim && t->nrects)
		rc = cut_near(t, box, err);
	else
		for (uint64_t i = 0; !rc && i < t->nrects; i++)
			rc = cut_rect(t, &t->rect[i], dim_of(t, i), box, err);
	for (uint64_t i = 0; !rc && i < t->nparts; i++)
		if (t->part[i].is_whole)
			rc = cut_whole(t, i, box, err);
	return rc;
}
