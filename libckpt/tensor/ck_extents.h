/*
 * ck_extents.h -- the extents of a state: in order, by number, and as spans of what is stored.
 *
 * An extent of a weave (ck_index.h) is made when it is asked for.  Who reads elements walks extents
 * in order.  Who asks only in which bytes elements are walks spans: a weave of 8 pieces and 8192
 * rows is 8 of them.  Who asks only in which files they are looks at the stored ones.
 */
#ifndef CK_EXTENTS_H
#define CK_EXTENTS_H

#include "libckpt/tensor/ck_index.h"

/*
 * Extents in the order of their elements.  For one that is stored as it is the pointer is into the
 * index; else it is into the cursor, and good until the next call.
 *
 *	ck_extents_begin(&c, ix, state, elem);
 *	while ((e = ck_extents_next(&c)))
 */
struct ck_extents {
	const struct ck_extent *at;	/* the next; at a weave: its first piece */
	const struct ck_extent *stop;	/* up to here as they are stored */
	const struct ck_extent *end, *base;
	const struct ck_weave *weave;	/* the next, of 'nweaves' */
	uint64_t nweaves;
	uint64_t row, piece;		/* in it */
	struct ck_extent e;
};

/* From the extent on that holds element 'elem'.  O(log of what is stored). */
void ck_extents_begin(struct ck_extents *c, const struct ck_index *ix,
		      const struct ck_state *state, uint64_t elem);
const struct ck_extent *ck_extents_step(struct ck_extents *c);

/* NULL after the last. */
static inline const struct ck_extent *ck_extents_next(struct ck_extents *c)
{
	return c->at < c->stop ? c->at++ : ck_extents_step(c);
}

/* The extent that holds element 'elem' of a state that has extents. */
struct ck_extent ck_extent_at(const struct ck_index *ix, const struct ck_state *state,
			      uint64_t elem);
/* Extent 'number' of a state, of state->nextents.  O(log of its weaves). */
struct ck_extent ck_extent_get(const struct ck_index *ix, const struct ck_state *state,
			       uint64_t number);

/*
 * Stored extent 'number' of a state, of state->nstored: all of its source, member, rank, type and
 * flags are among them, and the first is extent 0.  Of a weave they are the first row.
 */
static inline const struct ck_extent *ck_extent_stored(const struct ck_index *ix,
						       const struct ck_state *state,
						       uint64_t number)
{
	return &ix->stored[state->stored + number];
}

/* Do they have as many extents, and weaves of as many pieces and rows in the same places? */
bool ck_weaves_equal(const struct ck_index *a, const struct ck_state *x, const struct ck_index *b,
		     const struct ck_state *y);

/*
 * Elements [at, at + n) of runs * count of an extent, run after run.  The first element of a run is
 * 'step' elements of the state after that of the run before.  That is 'count', but for a weave: its
 * runs are rows.
 */
struct ck_span {
	const struct ck_extent *e;
	uint64_t at, n;
	uint64_t step;
};

struct ck_spans {
	const struct ck_extent *stored;	/* the next */
	const struct ck_weave *weave;	/* this one or the next, of 'nweaves' */
	uint64_t nweaves;
	const struct ck_extent *base;
	uint64_t first, left;		/* elements */
	uint64_t piece, rows;		/* of whole rows that are being passed: rows > 0 */
	struct ck_extent e;
};

/*
 * Where elements [first, first + count) of a state are, each once and in no order.
 */
void ck_spans_begin(struct ck_spans *c, const struct ck_index *ix, const struct ck_state *state,
		    uint64_t first, uint64_t count);
/* False after the last; the extent is good until the next call. */
bool ck_spans_next(struct ck_spans *c, struct ck_span *out);

/* From its first byte to the end of its last; not of a view, and not of types under 8 bits. */
void ck_span_bytes(const struct ck_span *s, uint64_t *from_out, uint64_t *to_out);

#endif
