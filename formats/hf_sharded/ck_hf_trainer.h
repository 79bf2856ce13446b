/*
 * ck_hf_trainer.h -- private to formats/hf_sharded: a folder checkpoint-N of transformers' Trainer
 * in memory (docs/formats/trainer.md).
 *
 * The weights are those of a model folder, whose driver reads them.  The optimizer numbers its
 * parameters; ck_hf_params.c finds out which they are.
 */
#ifndef CK_HF_TRAINER_H
#define CK_HF_TRAINER_H

#include "formats/torch_pt/ck_pt.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/step/ck_order.h"
#include "libckpt/step/ck_step.h"

#define TRN_OPTIMIZER "optimizer.pt"
#define TRN_SCHEDULER "scheduler.pt"
#define TRN_STATE "trainer_state.json"
#define TRN_OWN "zckpt-step.pt"
#define TRN_SCALER "scaler.pt"

/* Files beside the weights; those of torch first. */
enum trn_file {
	TRN_IN_OPTIMIZER = 0,
	TRN_IN_SCHEDULER,
	TRN_IN_OWN,
	TRN_IN_SCALER,
	TRN_IN_STATE,
	TRN_IN_CONFIG,
	TRN_FILES,
	TRN_TORCH_FILES = TRN_IN_STATE,
};

/* A parameter as the optimizer numbers it. */
struct trn_param {
	const struct ck_val *state;	/* dictionary, or NULL: it had no gradient yet */
	const char *name;		/* in 'param_names', or NULL */
	uint32_t group;
	uint32_t tensor;		/* CK_NONE = not known */
	double step;
	bool has_step;
};

struct trn_group {
	const struct ck_val *hyper;
	uint64_t first, n;		/* of 'order' */
	double step, least;		/* the greatest count of a parameter, and the least */
	bool has_step;
};

struct trn {
	const struct ck_input *in;
	struct ck_index *ix;
	struct ck_findings *f;
	struct ck_arena arena;
	struct ck_step_place at;
	struct ck_src *src[TRN_FILES];	/* the index's; NULL = missing */
	const char *path[TRN_FILES];
	struct ck_pt *pt[TRN_TORCH_FILES];
	uint32_t source;		/* of TRN_OPTIMIZER in the index */
	int64_t global_step;		/* -1 */
	struct trn_param *param;	/* by number */
	uint64_t nparams;
	struct trn_group *group;	/* the file's, or those of the source that it was made of */
	uint32_t ngroups;
	uint64_t *order;		/* numbers of parameters, group by group */
	const char *alias;		/* a name that is tied to the tensor 'alias_of', or NULL */
	uint32_t alias_of;
	bool adapter;			/* of PEFT, without the model that it is for */
	bool damaged;			/* a finding says so: there are no groups */
	const char *unproven;		/* a clause: why it is not known whose the states are */
	const char *odd;		/* a state that is not of its parameter's shape, or NULL */
	const char *odd_of;		/* that parameter */
	const struct ck_val *deepspeed;	/* of TRN_OWN, or NULL */
	struct ck_val *scheduler;	/* of TRN_SCHEDULER without empty groups; NULL = as it is */
};

extern const struct ck_format ck_format_trainer;

/* ---- ck_hf_trainer.c ---- */

struct trn *ck_trn_new(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f);
void ck_trn_free(void *of);
const char *ck_trn_name(enum trn_file which);
/* Parse everything of t->src but which tensors the parameters are. */
int ck_trn_parse(struct trn *t, struct ckpt_err *err);
/* The root of a torch file's tree, or NULL. */
const struct ck_val *ck_trn_root(const struct trn *t, enum trn_file which);
/* The text of a file in new memory (ck_free), NUL behind it.  CKPT_E_LIMIT. */
int ck_trn_text(const struct trn *t, enum trn_file which, char **text_out, uint64_t *len_out,
		struct ckpt_err *err);

/* ---- ck_hf_trainer_config.c ---- */

/*
 * config.json of the model, in new memory (ck_free) as ck_trn_text() has it; out->path and out->len
 * are filled.  CKPT_E_NOTFOUND: it is nowhere, or not where the caller says.
 */
int ck_trn_config(struct trn *t, struct ck_order_config *out, char **text_out,
		  struct ckpt_err *err);

/*
 * '*path_out' = the config.json of the model that adapter_config.json in 'tree' names; NULL = there
 * is none, or the model is no folder here.
 */
int ck_trn_base_config(const struct ck_input *in, const struct ck_tree *tree,
		       struct ck_arena *arena, const char **path_out, struct ckpt_err *err);

/* ---- ck_hf_trainer_empty.c ---- */

/* Leaves out groups without parameters, and their rates: t->group, t->scheduler. */
int ck_trn_drop_empty(struct trn *t, struct ckpt_err *err);

/* ---- ck_hf_params.c ---- */

/* Groups, parameters and their counts of steps, by number.  CKPT_E_CORRUPT. */
int ck_trn_params_read(struct trn *t, struct ckpt_err *err);
/* Which tensors they are, or t->unproven. */
int ck_trn_params_find(struct trn *t, const struct ck_index *ix, struct ckpt_err *err);

/* ---- ck_hf_values.c ---- */

/* global_step, and what TRN_OWN has.  Codes of JSON; CKPT_E_CORRUPT. */
int ck_trn_state_read(struct trn *t, struct ckpt_err *err);
/* GradScaler's state in TRN_SCALER, where nothing says the scale more exactly; or NULL. */
const struct ck_val *ck_trn_scaler(const struct trn *t);
/* The state of the scheduler: the source's own, or the LambdaLR's; NULL = none. */
struct ck_val *ck_trn_scheduler(const struct trn *t);
/* Had the group itself this value? */
bool ck_trn_is_hyper(const struct trn *t, uint32_t group, const char *key, const struct ck_val *v);
/* Add the client's values to a dictionary, and TRN_SCALER's as a training file has it. */
int ck_trn_clients(struct trn *t, struct ck_val *model, struct ck_findings *f,
		   struct ckpt_err *err);
/* The driver's values(). */
int ck_trn_values(const struct ck_index *ix, const struct ckpt_limits *limits, uint32_t rank,
		  struct ck_values *out, struct ckpt_err *err);
/* ---- ck_hf_trainer_step.c, ck_hf_trainer_out.c ---- */

int ck_trn_read_step(const struct ck_input *in, const struct ck_index *ix, struct ck_findings *f,
		     struct ck_step *out, struct ckpt_err *err);
int ck_trn_write_step(struct ck_step *step, const struct ck_index *ix,
		      const struct ck_reshard_want *want, struct ck_plan *plan,
		      struct ckpt_err *err);

#endif
