/*
 * ck_estimate.h -- the numbers that the terms of an estimate are made of.
 * docs/internals/memory.md derives them.
 */
#ifndef CK_ESTIMATE_H
#define CK_ESTIMATE_H

#include "libckpt/estimate/ck_model.h"

struct ck_estimating {
	const struct ckpt_model *m;
	struct ckpt_setup s;		/* complete: no field is 0 that has a default; gpus is
					   the ranks that divide the states: share->dp */
	struct ckpt_share *share;
	uint32_t dense_groups;		/* groups from this one on are of experts, if ep > 1 */
	uint64_t flight;		/* micro-batches whose activations a stage holds */
	struct ckpt_estimate *out;
	uint64_t hosts_ranks;		/* ranks of a host */
	uint64_t b, g;			/* bytes of a weight, of a gradient that is summed up */
	/* elements */
	uint64_t flat, part;		/* stages 1, 2: all groups with padding; of a rank */
	uint64_t expert_flat;		/* of 'flat', groups of experts that ranks divide */
	uint64_t part3, frozen3;	/* stage 3: parts of a rank, padding included */
	uint64_t persist;		/* stage 3: kept whole, not counted in 'retained' */
	uint64_t retained;		/* stage 3: not released between its two uses */
	uint64_t last_module;		/* stage 3: the one with which the forward pass ends */
	uint64_t sub_group;		/* stage 3: the largest, in parts */
	uint64_t nsub;			/* stage 3: how many */
	uint64_t first, behind;		/* trainable: before layer 2, behind the layers */
	uint64_t pinned_part, pinned_part3;	/* what pinning makes of 'part' x 4 B, ... */
};

void ck_est_term(struct ck_estimating *e, enum ckpt_place place, unsigned phases, const char *name,
		 uint64_t bytes, const char *fmt, ...) CK_PRINTF(6, 7);

/* The terms of states and buffers; of activations; the save. */
void ck_est_states(struct ck_estimating *e);
void ck_est_activations(struct ck_estimating *e);
void ck_est_save(struct ck_estimating *e);

/*
 * The sizes of the groups of ranks; CKPT_E_USAGE as ckpt_estimate() has it.  The model of a rank of
 * pipeline stage share->stage: what it has of each parameter, its layers, its groups.
 */
int ck_share_init(const struct ckpt_model *m, const struct ckpt_setup *setup,
		  struct ckpt_share *out, struct ckpt_err *err);
int ck_share_model(const struct ckpt_model *m, const struct ckpt_share *share,
		   struct ckpt_model **out, struct ckpt_err *err);
/* Elements of a stage, over all of its ranks. */
uint64_t ck_share_stage_params(const struct ckpt_model *m, const struct ckpt_share *share,
			       uint32_t stage);
/* The first layer of a stage, from 0. */
uint64_t ck_share_first_layer(const struct ckpt_model *m, const struct ckpt_share *share,
			      uint32_t stage);
/* CKPT_E_USAGE: a model of which no parts are known; a stage that has none. */
int ck_share_check(const struct ckpt_model *m, const struct ckpt_setup *setup,
		   const struct ckpt_share *share, struct ckpt_err *err);
static inline bool ck_share_is_one(const struct ckpt_share *share)
{
	return share->tp == 1 && share->pp == 1 && share->ep == 1;
}

/*
 * Add what the ranks of a stage write to a save; 'e' has their model.  The files of ranks that
 * divide nothing but data are those of ck_est_save().
 */
void ck_est_save_stage(const struct ck_estimating *e, struct ckpt_save *sum);
/* What Megatron-Core writes; 'world' ranks, 'b' bytes of a weight. */
void ck_est_save_mcore(const struct ckpt_model *m, const struct ckpt_share *share, uint64_t b,
		       struct ckpt_save *out);

/* All of it for a CPU rank of ztrain.  CKPT_E_USAGE: a model or setup that it does not train. */
int ck_est_ztrain(struct ck_estimating *e, struct ckpt_err *err);

/* "7,615,616,512", in one of a few places that are used in turn; on the caller's stack. */
struct ck_counts {
	char text[8][32];
	unsigned at;
};
const char *ck_count(struct ck_counts *counts, uint64_t n);

int ck_estimate(const struct ckpt_model *m, const struct ckpt_setup *setup,
		struct ckpt_estimate *out, struct ckpt_err *err);
int ck_rank_share(const struct ckpt_model *m, const struct ckpt_setup *setup, uint32_t rank,
		  struct ckpt_rank_share *out, struct ckpt_err *err);
int ck_setup_read(const char *path, struct ckpt_setup *setup, unsigned *said_out,
		  struct ckpt_err *err);

#endif
