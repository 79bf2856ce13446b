/*
 * ds_target.h -- where everything goes in a step that is to be written: groups in the
 * optimizer's own order, their layout at the target's stage and world size.
 *
 * Pure once the source has been read: nothing here looks at files.
 */
#ifndef CK_DS_TARGET_H
#define CK_DS_TARGET_H

#include "libckpt/step/ck_step.h"
#include "libckpt/include/ckpt_zero.h"

/* A param group of the optimizer. */
struct tg_group {
	struct ck_step_param *param;	/* the optimizer's order */
	uint32_t nparams;
	/*
	 * Experts: 'runs' expert ranks, each with a flat run of its own of 'nparams' parameters on
	 * 'world' of the ranks.  Those of run r begin at param[r * nparams]; stacked ones are the
	 * same in all runs, and run r has elements from r * numel on.  Else one run on all ranks.
	 */
	uint32_t runs, world;
	bool stacked;
	/* stages 1 and 2 */
	uint32_t *order;	/* order[k] = parameter stored at position k */
	uint64_t *numel;	/* by position */
	uint64_t *offset, *gap;	/* by position */
	uint64_t total;		/* elements and gaps */
	struct ckpt_zero_cut cut;
	/* stage 3: sub-group i holds parameters first[i] up to first[i + 1] */
	uint32_t *first;
	uint32_t nsubs;
	uint32_t sub0;		/* number of its first sub-group in the step */
	uint64_t *part;		/* slots of each parameter on every rank */
};

/* Of stage 0: what the model file's 'optimizer' is (ds_target_z0.c). */
enum tg_z0 {
	TG_Z0_KEPT,		/* as the source has it */
	TG_Z0_TORCH,		/* the torch optimizer's dictionary */
	TG_Z0_WHOLE,		/* FP16_UnfusedOptimizer: a master for each parameter */
	TG_Z0_FLAT,		/* FP16_Optimizer: one for each group */
};

struct tg_layout {
	int stage;		/* 0, 1, 2, 3 */
	enum tg_z0 z0;
	bool bf16_optimizer;	/* stage 1 or 2 data, masters with their padding */
	bool round_robin;
	bool aligned;		/* parameter_alignment */
	bool experts;		/* they are written as DeepSpeed's */
	bool by_data;		/* expert ranks follow each other after all of their copies */
	bool regrouped;		/* param groups are not those of the source */
	uint32_t world;
	uint32_t version[3];	/* of the DeepSpeed that is to read it */
	uint64_t sub_group_size;
	struct tg_group *group;
	uint32_t ngroups;
	uint32_t nsubs;
};

/*
 * Lay the step 'ds' (loaded, indexed in 'ix') out as asked.  Memory is step->arena.
 * CKPT_E_UNSUPPORTED and CKPT_E_LAYOUT name what cannot be written.
 */
int ck_ds_target(struct ck_step *step, const struct ck_index *ix,
		 const struct ck_reshard_want *want, struct tg_layout *out, struct ckpt_err *err);

/* The same without a stage: groups, world and version alone. */
int ck_ds_target_groups(struct ck_step *step, const struct ck_index *ix,
			const struct ck_reshard_want *want, struct tg_layout *out,
			struct ckpt_err *err);

/* The run of a group that 'rank' has a partition of, and the number of the partition. */
uint32_t ck_tg_run(const struct tg_layout *t, const struct tg_group *g, uint32_t rank);
uint32_t ck_tg_place(const struct tg_layout *t, const struct tg_group *g, uint32_t rank);

/*
 * ds_target_experts.c: can experts be written as asked?  With another number of expert ranks the
 * step's groups become those that DeepSpeed makes of them.  CKPT_E_UNSUPPORTED, CKPT_E_USAGE.
 */
int ck_ds_target_experts(struct ck_step *step, const struct ck_index *ix,
			 const struct ck_reshard_want *want, struct tg_layout *t,
			 struct ckpt_err *err);
/* A group of the step as one of the target. */
int ck_ds_target_runs(struct ck_step *step, const struct ck_step_group *from, struct tg_group *g,
		      struct ckpt_err *err);

/* ds_target_z0.c: is the source a step of stage 0 that only gets another number of ranks? */
bool ck_ds_z0_stays(const struct ck_step *step, const struct ck_reshard_want *want);
/* The type of the weights that are trained; false if there are several. */
bool ck_ds_trained_type(const struct ck_step *step, const struct ck_index *ix,
			enum ckpt_dtype *out);
/* Is it a param group of DeepSpeed's or Apex's FusedAdam?  By keys that others have or have not. */
bool ck_ds_is_fused(const struct ck_val *group);
/* Stage 0 was asked for: its form, or stage 1 of BF16_Optimizer.  CKPT_E_UNSUPPORTED. */
int ck_ds_target_z0(const struct ck_step *step, const struct ck_index *ix,
		    const struct ck_reshard_want *want, struct tg_layout *t, struct ckpt_err *err);

#endif
