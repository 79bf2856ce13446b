/*
 * A run of a small model, as a trainer would have it, whose elements follow from their names and
 * numbers: it is saved by ranks that hold what a cut says, and what was saved can be recognised.
 */
#ifndef T_SAVE_H
#define T_SAVE_H

#include <stdbool.h>

#include "libckpt/include/ckpt.h"

/* How ranks hold the elements of the model. */
enum t_held {
	T_HELD_EVEN,	/* all elements in a row, in equal shares that end anywhere */
	T_HELD_WHOLE,	/* whole tensors in turn */
	T_HELD_BLOCKS,	/* stripes of 1,000 elements of each tensor in turn */
	T_HELD_FIRST,	/* everything by rank 0 */
};

struct t_trainer {
	const char *root;
	const char *job;
	uint32_t nranks, threads;
	uint64_t buffer_bytes;	/* 0 = 1 MiB */
	uint32_t timeout_ms;
	enum ckpt_sync sync;
	enum t_held held;
	uint64_t seed;		/* of the elements: another step has others */
	uint64_t size;		/* elements of the large tensors, 0 = 5,003 */
	bool derived;		/* weights follow from masters */
	enum ckpt_dtype weight;	/* 0 = BF16 */
	bool own;		/* native: files are cut as held */
	bool lend;
	uint64_t frozen;	/* elements of the frozen tensor, 0 = 4,096 */
	uint64_t frozen_seed;	/* of its elements, 0 = seed */
	const char *frozen_from;	/* step that they are linked to */
	unsigned flags;		/* CKPT_SAVER_* */
	bool ask;		/* put what ckpt_save_needs() says */
};

/* A description to be changed; strings and arrays are static until the next call. */
struct ckpt_save_step *t_save_step(const struct t_trainer *t, const char *tag, int to, int stage,
				   uint32_t world);
/* It is step number 'steps' of the run, for the optimizer too. */
void t_save_at(struct ckpt_save_step *step, int64_t steps);
int t_saver(const struct t_trainer *t, uint32_t rank, struct ckpt_saver **out,
	    struct ckpt_err *err);
/* begin() of that rank, with its own ranges if t->own. */
int t_save_begin(const struct t_trainer *t, struct ckpt_saver *sv, struct ckpt_save_step *step,
		 uint32_t rank, struct ckpt_err *err);
/* Put all that the rank holds. */
int t_save_put(const struct t_trainer *t, struct ckpt_saver *sv, const struct ckpt_save_step *step,
	       uint32_t rank, struct ckpt_err *err);
/* All ranks, one after the other in this process, until the step is complete. */
int t_save_all(const struct t_trainer *t, struct ckpt_save_step *step, struct ckpt_err *err);
/* Every element of an open step against what it should be; the first that differs ends the test. */
void t_save_check(const struct t_trainer *t, struct ckpt *ck);

#endif
