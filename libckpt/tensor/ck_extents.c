/* ck_extents.c -- see ck_extents.h. */
#include "libckpt/tensor/ck_extents.h"

#include "libckpt/base/ck_search.h"

/* Elements of a row. */
static uint64_t width_of(const struct ck_weave *w, const struct ck_extent *head)
{
	const struct ck_extent *last = head + w->pieces - 1;

	return last->first + last->count - head->first;
}

/* A piece, some rows on. */
static struct ck_extent piece_at(const struct ck_weave *w, const struct ck_extent *head,
				 uint64_t piece, uint64_t row)
{
	struct ck_extent e = head[piece];

	e.first += row * width_of(w, head);
	e.off += row * e.src_stride;
	e.src_stride = 0;
	return e;
}

/* The piece that has an element of the first row. */
static uint64_t piece_of(const struct ck_weave *w, const struct ck_extent *head, uint64_t elem)
{
	uint64_t i;

	CK_LOWER_BOUND(i, w->pieces, head[i].first <= elem);
	return i ? i - 1 : 0;
}

static const struct ck_weave *weave_get(const struct ck_index *ix, const struct ck_state *state,
					uint64_t number)
{
	return number < state->nweaves ? &ix->weave[state->weave + number] : NULL;
}

/*
 * Number of the stored extent that element 'elem' is in, or of the first piece of the weave; and of
 * the weave, or the one that follows.
 */
static uint64_t find(const struct ck_index *ix, const struct ck_state *state, uint64_t elem,
		     uint64_t *weave_out)
{
	const struct ck_weave *w = weave_get(ix, state, 0);
	uint64_t i, k;

	CK_LOWER_BOUND(i, state->nstored, ck_extent_stored(ix, state, i)->first <= elem);
	i -= i > 0;
	CK_LOWER_BOUND(k, state->nweaves, w[k].stored <= i);
	if (k && i < w[k - 1].stored + w[k - 1].pieces)
		i = w[--k].stored;
	*weave_out = k;
	return i;
}

/* ---- in order ---- */

void ck_extents_begin(struct ck_extents *c, const struct ck_index *ix,
		      const struct ck_state *state, uint64_t elem)
{
	const struct ck_weave *w;
	uint64_t k;

	*c = (struct ck_extents){ .at = NULL };
	if (!state->nstored)
		return;
	c->base = ck_extent_stored(ix, state, 0);
	c->end = c->base + state->nstored;
	c->at = c->base + find(ix, state, elem, &k);
	c->weave = w = weave_get(ix, state, k);
	c->nweaves = state->nweaves - k;
	c->stop = w ? c->base + w->stored : c->end;
	if (c->at < c->stop || elem < c->at->first)
		return;
	elem -= c->at->first;
	c->row = elem / width_of(w, c->at);
	c->piece = piece_of(w, c->at, c->at->first + elem % width_of(w, c->at));
	if (c->row >= w->rows) {
		c->row = w->rows - 1;
		c->piece = w->pieces - 1;
	}
}

const struct ck_extent *ck_extents_step(struct ck_extents *c)
{
	const struct ck_weave *w = c->weave;

	if (c->at == c->end)
		return NULL;
	c->e = piece_at(w, c->at, c->piece, c->row);
	if (++c->piece < w->pieces)
		return &c->e;
	c->piece = 0;
	if (++c->row < w->rows)
		return &c->e;
	c->row = 0;
	c->at += w->pieces;
	c->weave++;
	c->stop = --c->nweaves ? c->base + c->weave->stored : c->end;
	return &c->e;
}

struct ck_extent ck_extent_at(const struct ck_index *ix, const struct ck_state *state,
			      uint64_t elem)
{
	struct ck_extents c;

	ck_extents_begin(&c, ix, state, elem);
	return *ck_extents_next(&c);
}

struct ck_extent ck_extent_get(const struct ck_index *ix, const struct ck_state *state,
			       uint64_t number)
{
	const struct ck_extent *base = ck_extent_stored(ix, state, 0);
	const struct ck_weave *w = weave_get(ix, state, 0);
	uint64_t k, in;

	CK_LOWER_BOUND(k, state->nweaves, w[k].number <= number);
	if (!k)
		return base[number];
	w += k - 1;
	in = number - w->number;
	if (in < w->pieces * w->rows)
		return piece_at(w, base + w->stored, in % w->pieces, in / w->pieces);
	return base[w->stored + w->pieces + (in - w->pieces * w->rows)];
}

bool ck_weaves_equal(const struct ck_index *a, const struct ck_state *x, const struct ck_index *b,
		     const struct ck_state *y)
{
	if (x->nextents != y->nextents || x->nstored != y->nstored || x->nweaves != y->nweaves)
		return false;
	for (uint64_t i = 0; i < x->nweaves; i++) {
		const struct ck_weave *v = weave_get(a, x, i), *w = weave_get(b, y, i);

		if (v->stored != w->stored || v->pieces != w->pieces || v->rows != w->rows)
			return false;
	}
	return true;
}

/* ---- spans ---- */

void ck_spans_begin(struct ck_spans *c, const struct ck_index *ix, const struct ck_state *state,
		    uint64_t first, uint64_t count)
{
	uint64_t k;

	*c = (struct ck_spans){ .first = first, .left = state->nstored ? count : 0 };
	if (!c->left)
		return;
	c->base = ck_extent_stored(ix, state, 0);
	c->stored = c->base + find(ix, state, first, &k);
	c->weave = weave_get(ix, state, k);
	c->nweaves = state->nweaves - k;
}

static void pass(struct ck_spans *c, uint64_t n)
{
	c->first += n;
	c->left -= n;
}

/* The next piece of whole rows from row 'row' on. */
static void pass_rows(struct ck_spans *c, uint64_t row, struct ck_span *out)
{
	const struct ck_weave *w = c->weave;
	const uint64_t width = width_of(w, c->stored);

	c->e = piece_at(w, c->stored, c->piece, row);
	c->e.runs = c->rows;
	c->e.src_stride = c->stored[c->piece].src_stride;
	*out = (struct ck_span){ &c->e, 0, c->e.count * c->rows, width };
	if (++c->piece < w->pieces)
		return;
	pass(c, c->rows * width);
	c->piece = c->rows = 0;
}

static void pass_weave(struct ck_spans *c, struct ck_span *out)
{
	const struct ck_weave *w = c->weave;
	const struct ck_extent *head = c->stored;
	const uint64_t width = width_of(w, head), at = c->first - head->first;
	const uint64_t row = at / width, in = at % width;

	if (!in && !c->rows)
		c->rows = ck_min_u64(w->rows - row, c->left / width);
	if (c->rows) {
		pass_rows(c, row, out);
	} else {
		c->e = piece_at(w, head, piece_of(w, head, head->first + in), row);
		*out = (struct ck_span){ &c->e, c->first - c->e.first, 0, width };
		out->n = ck_min_u64(c->left, c->e.count - out->at);
		pass(c, out->n);
	}
	if (c->first - head->first == w->rows * width) {
		c->stored += w->pieces;
		c->weave++;
		c->nweaves--;
	}
}

bool ck_spans_next(struct ck_spans *c, struct ck_span *out)
{
	while (c->left) {
		const struct ck_extent *e = c->stored;

		if (c->nweaves && e == c->base + c->weave->stored) {
			pass_weave(c, out);
			return true;
		}
		c->stored++;
		*out = (struct ck_span){ e, c->first - e->first, 0, e->count };
		out->n = ck_min_u64(c->left, e->count * e->runs - out->at);
		pass(c, out->n);
		if (out->n)
			return true;
	}
	return false;
}

void ck_span_bytes(const struct ck_span *s, uint64_t *from_out, uint64_t *to_out)
{
	const struct ck_extent *e = s->e;
	const uint64_t es = ckpt_dtype_bits((enum ckpt_dtype)e->dtype) / 8, last = s->at + s->n - 1;

	*from_out = e->off + s->at / e->count * e->src_stride + s->at % e->count * es;
	*to_out = e->off + last / e->count * e->src_stride + (last % e->count + 1) * es;
}
