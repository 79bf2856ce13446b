/*
 * ck_block.h -- blocks of a tensor that files have by themselves, each row-major, as extents of one
 * of its states.
 */
#ifndef CK_BLOCK_H
#define CK_BLOCK_H

#include "libckpt/tensor/ck_index.h"

/* Elements offset[d] .. offset[d] + size[d] - 1 in each dimension; within the shape, none is 0. */
struct ck_block {
	const uint64_t *shape;		/* of the tensor */
	const uint64_t *offset, *size;
	uint32_t ndim;
};

/*
 * How many elements of a block follow each other in the tensor too; the first dimensions, whose
 * number goes to '*rows_out', count such runs.
 */
uint64_t ck_block_run(const struct ck_block *b, uint32_t *rows_out);
/* The element of the tensor that run number 'row' of a block begins with. */
uint64_t ck_block_first(const struct ck_block *b, uint32_t rows, uint64_t row);

/* Extents of all blocks, in any order until they are sorted. */
struct ck_runs {
	struct ck_extent *run;
	uint64_t n, cap;
};

/* Room for 'more' of them at run[n]. */
int ck_runs_room(struct ck_runs *runs, uint64_t more, struct ckpt_err *err);
/* By their first element. */
void ck_runs_sort(struct ck_runs *runs);
/*
 * True if sorted ones leave a gap, or overlap ('*twice_out'), at element '*at_out' of a state of
 * 'numel' elements.
 */
bool ck_runs_odd(const struct ck_runs *runs, uint64_t numel, uint64_t *at_out, bool *twice_out);
/* Sorted ones become a state, or a further copy of one that is there. */
int ck_runs_put(const struct ck_runs *runs, struct ck_index *ix, uint32_t tensor,
		const char *state, enum ckpt_dtype dtype, struct ckpt_err *err);
void ck_runs_release(struct ck_runs *runs);

#endif
