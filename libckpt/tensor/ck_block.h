/*
 * ck_block.h -- what files have of a tensor, in blocks, as extents of its states.
 *
 * A tile is a run of elements of one block, in a file.  Tiles come in any order and together have
 * each element of a tensor once.  Tensor parallelism cuts a tensor into blocks along any axis, or
 * several; data parallelism cuts the blocks again, in the middle of a row if need be.  A state is
 * made of all tiles, or of boxes cut out of them, one after the other: so q, k and v come out of a
 * tensor that has them in turns.
 *
 *	ck_tiles_init(&tiles, limits.memory_bytes);
 *	for each tensor:
 *		ck_tiles_begin(&tiles, name, shape, ndim, err)
 *		for each piece in a file:
 *			ck_tiles_add(&tiles, &block, first, count, &extent, err)
 *		ck_tiles_check(&tiles, &fault, err)	a finding, if fault.odd
 *		ck_tiles_put(&tiles, ix, tensor, "weight", dtype, err)
 *	ck_tiles_release(&tiles);
 *
 * Where blocks form rows, their extents are stored as weaves (ck_index.h), whatever the number of
 * rows: memory O(tiles), time O(tiles log tiles).  Where the rows of blocks begin and end nowhere
 * together, an extent is stored for each row, up to the limit of memory.
 */
#ifndef CK_BLOCK_H
#define CK_BLOCK_H

#include "libckpt/tensor/ck_index.h"

/* Elements offset[d] .. offset[d] + size[d] - 1 in each dimension of a tensor, row-major. */
struct ck_block {
	const uint64_t *offset, *size;
};

/* The first element that is in no tile, or the beginning of a row that is in another tile too. */
struct ck_tiles_fault {
	uint64_t at;
	bool odd;
	bool twice;
};

struct ck_tiles_part;	/* what was added by one call */
struct ck_tiles_rect;	/* a box of a part: parts begin and end in the middle of rows */
struct ck_tiles_strip;	/* rows of the same length, at the same distance */
struct ck_tiles_level;
struct ck_tiles_order;	/* rects by where they begin in the outermost dimension */

struct ck_tiles {
	const char *name;
	struct ck_tiles_part *part;
	uint64_t nparts, part_cap;
	struct ck_tiles_rect *rect;
	uint64_t nrects, rect_cap;
	struct ck_tiles_order *order;	/* of the first 'nordered' rects */
	uint64_t nordered, order_cap, widest;
	uint64_t *dim;		/* 'shape', two for work, then 3 for each rect, of 'ndim' numbers */
	uint64_t ndims, dim_cap;
	struct ck_tiles_strip *strip, **heap, **row;
	uint64_t nstrips, strip_cap, nheap, heap_cap, row_cap;
	struct ck_extent *piece;
	uint64_t piece_cap;
	struct ck_tiles_level *level;
	uint64_t level_cap;
	uint64_t numel;
	uint64_t memory_limit;	/* 0 = none */
	uint32_t ndim;
};

/* More memory than that is CKPT_E_LIMIT; 0 = no limit. */
void ck_tiles_init(struct ck_tiles *t, uint64_t memory_limit);
void ck_tiles_release(struct ck_tiles *t);

/* A tensor without tiles.  'name' is lent and for messages; the shape is copied. */
int ck_tiles_begin(struct ck_tiles *t, const char *name, const uint64_t *shape, uint32_t ndim,
		   struct ckpt_err *err);

/*
 * How many elements of a block follow each other in the tensor too, from its first on; 0 if it has
 * none.
 */
uint64_t ck_tiles_run(const struct ck_tiles *t, const struct ck_block *block);

/*
 * Elements [first, first + count) of a block, counted row-major in the block (all of it: 0, the
 * product of its sizes).  NULL is the whole tensor.  'extent' says where they are: its off, source,
 * member, rank, dtype and flags; its 'first' does not count.  With 'runs' up to 1 they are one run,
 * whatever its 'count' says; else runs * count of them are.  A view (CKPT_EXTENT_GATHER) must be of
 * elements that follow each other in the tensor.  No elements: nothing changes.  CKPT_E_CORRUPT if
 * the block is not within the tensor, or [first, first + count) not within the block.
 */
int ck_tiles_add(struct ck_tiles *t, const struct ck_block *block, uint64_t first, uint64_t count,
		 const struct ck_extent *extent, struct ckpt_err *err);

/* Are all elements of the tensor in one tile each? */
int ck_tiles_check(struct ck_tiles *t, struct ck_tiles_fault *fault_out, struct ckpt_err *err);

/*
 * A state of all the elements, or a further copy of one that is there; the index's tensor may have
 * another shape of as many elements.  CKPT_E_MISMATCH where ck_tiles_check() finds a fault.
 */
int ck_tiles_put(struct ck_tiles *t, struct ck_index *ix, uint32_t tensor, const char *state,
		 enum ckpt_dtype dtype, struct ckpt_err *err);

/*
 * The elements of a box, row-major in the box, as the next ones of the state that was begun with
 * ck_index_state_begin().  NULL is the whole tensor.  CKPT_E_MISMATCH if some of the box are in no
 * tile or in two, CKPT_E_UNSUPPORTED if it cuts a tile that is a view; the state stays begun.
 */
int ck_tiles_append(struct ck_tiles *t, const struct ck_block *box, struct ck_index *ix,
		    struct ckpt_err *err);

#endif
