/*
 * rk_tc.h -- private to formats/fsdp_ranks: the index of torch_checkpointing, metadata.pkl
 * (docs/formats/torch-checkpointing.md).
 */
#ifndef RK_TC_H
#define RK_TC_H

#include "formats/fsdp_ranks/rk.h"

#define RK_TC_INDEX "metadata.pkl"

/* What was saved under one name, a file for each rank: "model_0.pt", "model_1.pt". */
struct rk_tc_item {
	const char *name;
	const struct ck_val *paths;	/* text of a path -> its entries; NULL: it is not listed */
	uint8_t kind;			/* enum rk_kind */
	struct rk_file **of;		/* [world] */
};

struct rk_tc {
	const char *path;
	struct ck_src *src;		/* until the index has it */
	struct ck_pkl doc;
	struct rk_tc_item *item;
	uint64_t nitems;
	struct ck_map by_name;		/* -> item */
};

/* "model" of "model_0.pt"; false for another name.  '*n_out': its length. */
bool ck_rk_tc_name(const char *name, size_t *n_out, uint32_t *rank_out);

/* ---- rk_tc.c ---- */

/* Read the index of the files in r->file: the world, and what kind each file is. */
int ck_rk_tc_open(struct rk *r, struct ckpt_err *err);
/* Every item must have a file of every rank. */
int ck_rk_tc_ranks(struct rk *r, struct ckpt_err *err);
/* The count of the item 'step', the same on all ranks; -1. */
int64_t ck_rk_tc_step(struct rk *r);
/* The scheduler goes into the step's model; other items are named as left behind. */
int ck_rk_tc_fill(struct rk *r, struct ck_step *step, struct ckpt_err *err);
/* Values of the item 'lr_scheduler' as facts of the index. */
int ck_rk_tc_facts(struct rk *r, struct ckpt_err *err);
void ck_rk_tc_release(struct rk_tc *tc);

/* ---- rk_tc_check.c ---- */

/* Compare the entries of the index with the tensors that the files have. */
int ck_rk_tc_check(struct rk *r, struct ckpt_err *err);

#endif
