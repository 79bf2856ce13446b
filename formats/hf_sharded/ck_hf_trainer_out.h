/* ck_hf_trainer_out.h -- private to formats/hf_sharded: a Trainer's folder that is written. */
#ifndef CK_HF_TRAINER_OUT_H
#define CK_HF_TRAINER_OUT_H

#include "formats/hf_sharded/ck_hf_trainer.h"
#include "formats/torch_pt/ck_pt_plan.h"
#include "libckpt/step/ck_step_along.h"

/* A client's dictionary: logging_steps, save_steps, eval_steps of the run. */
#define TRN_EVERY "trainer_steps"
#define TRN_GROUPS 2u	/* with weight decay, and without */

/* A param group of the Trainer. */
struct trn_out_group {
	const struct ck_step_param **param;
	uint64_t n;
	uint32_t from;		/* the source's group, whose values it has */
};

struct trn_out {
	struct ck_step *step;
	const struct ck_index *ix;
	const struct ck_reshard_want *want;
	struct ck_plan *plan;
	struct ck_arena *arena;		/* the step's */
	const char *tag;
	struct trn_out_group group[TRN_GROUPS];
	bool same_groups;		/* as the source has them */
	double *count;			/* [ngroups] steps of the optimizer */
	uint64_t nadapter;		/* tensors of the adapter "default" of PEFT; 0 = none */
	const struct ck_val *grad_scaler;	/* of TRN_SCALER, or NULL: there is none */
	int64_t steps;
	struct ck_step_along_file kept_state;
	const struct ck_step_along_file *state;	/* trainer_state.json beside the source, or NULL */
	/* Storages of the torch file that is made. */
	struct ck_pt_part *storage;
	uint64_t nstorages, storage_cap;
};

/* ---- ck_hf_trainer_weights.c ---- */

/* Fills o->nadapter. */
void ck_trn_out_find_adapter(struct trn_out *o);
/* Is it one of them? */
bool ck_trn_out_is_adapter(const struct ck_index *ix, uint32_t tensor);
/* The files of the weights. */
int ck_trn_out_weights(struct trn_out *o, struct ckpt_err *err);

/* ---- ck_hf_trainer_groups.c ---- */

/* Is it a step that torch's AdamW continues?  Then o->group, o->count. */
int ck_trn_out_groups(struct trn_out *o, struct ckpt_err *err);
/* The dictionary of optimizer.pt, with its storages; NULL without memory. */
struct ck_val *ck_trn_out_optimizer(struct trn_out *o);
/* That of scheduler.pt, and whether it is the source's own. */
struct ck_val *ck_trn_out_scheduler(struct trn_out *o, bool *own_out);
/* Names by group of the source. */
struct ck_val *ck_trn_out_listed(struct trn_out *o);

/* ---- ck_hf_trainer_order.c ---- */

/* The groups get the order of the model's parameters, or there is a finding. */
int ck_trn_out_sort(struct trn_out *o, struct ckpt_err *err);

#endif
