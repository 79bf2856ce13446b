/* ck_block_priv.h -- private to libckpt/tensor: what tiles are made of (ck_block.h). */
#ifndef CK_BLOCK_PRIV_H
#define CK_BLOCK_PRIV_H

#include "libckpt/tensor/ck_block.h"

/*
 * Places in its file are counted from e.off, in bytes; in bits where an element has less than a
 * byte.  A whole one is e as it is, from e.first on, and has no rectangle.
 */
struct ck_tiles_part {
	struct ck_extent e;
	bool bits;
	bool is_whole;
};

/* Its offset, size and step in the file are in ck_tiles.dim. */
struct ck_tiles_rect {
	uint64_t part;
	uint64_t place;
};

struct ck_tiles_order {
	uint64_t at, rect;
};

/* 'rows' rows of 'count' elements: from one to the next 'to' elements, in the file 'from'. */
struct ck_tiles_strip {
	uint64_t next;		/* the element that the first begins with */
	uint64_t count;
	uint64_t rows;
	uint64_t to, from;
	uint64_t place;		/* of the first */
	uint64_t part;
};

/* A dimension, or several in one. */
struct ck_tiles_level {
	uint64_t n;
	uint64_t to, from;
};

/* CKPT_E_LIMIT if what there is, or so many extents, take more memory than they may. */
int ck_tiles_fits(const struct ck_tiles *t, uint64_t extents, struct ckpt_err *err);

/* The strips of a box, in no order; they may overlap. */
int ck_tiles_cut(struct ck_tiles *t, const struct ck_block *box, struct ckpt_err *err);

#endif
