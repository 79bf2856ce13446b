/*
 * ck_step.h -- a training step in memory, between the driver that has read it and the one that
 * writes it.
 *
 * Elements of tensors are in the index, which goes beside it; here is what an index has no room
 * for: the optimizer's groups and their values, the loss scaler, the tree of the model's values
 * with the client's own keys.  Values are trees (ck_val.h); tensors among them are in the step's
 * files.  An unknown key stays in its tree, and is copied with it.
 */
#ifndef CK_STEP_H
#define CK_STEP_H

#include "libckpt/step/ck_step_find.h"
#include "libckpt/tensor/ck_val.h"

struct ck_pt;

/* A file that tensors of a tree are in: the archive that the tree is of. */
struct ck_step_file {
	const char *path;
	struct ck_pt *pt;	/* open (formats/torch_pt); lent */
	uint32_t first;		/* number of its first storage in the tree's tensors */
};

struct ck_step_param {
	const char *name;
	const uint64_t *shape;
	uint32_t ndim;
	uint32_t tensor;	/* in the index; CK_NONE until a writer has looked it up */
	uint64_t numel;
};

/* A param group of the optimizer. */
struct ck_step_group {
	struct ck_step_param *param;	/* the optimizer's own order */
	uint32_t nparams;
	struct ck_val *hyper;	/* dictionary: lr, betas, ...; NULL = there is none */
	/*
	 * Dictionary, or NULL: one value for each of the optimizer's states.  One whose name is a
	 * state's in the index only says that there is such a state; others (step) are kept.
	 */
	struct ck_val *entry;
	int64_t key;		/* of the entry in 'own' */
	/*
	 * Experts of DeepSpeed on so many expert ranks, 0 = the group has none: the parameters of
	 * expert rank 0, then those of 1, and so on; or, if stacked, whole ones of which each
	 * expert rank has an equal part along axis 0.
	 */
	uint32_t ep;
	bool stacked;
};

/* A state that the source has and the index cannot have, since ranks' parts do not join. */
struct ck_step_unjoined {
	const char *state;
	uint32_t group;
};

/* A file whose values are not rank 0's, and the first such key; path NULL = there is none. */
struct ck_step_differing {
	const char *path, *key;
};

struct ck_step {
	const struct ck_input *in;	/* limits at least */
	struct ck_findings *f;		/* what cannot be carried, what a loader drops */
	struct ck_arena *arena;		/* of all that is here */
	const struct ck_format *format;	/* that it was read as; NULL = it is made of weights */
	struct ck_step_place at;	/* lent; without a tree if it was not read */
	const char *tag;		/* name of its folder */

	/* ---- layout of the source ---- */
	uint32_t world;
	int stage;			/* ZeRO's: 0, 1, 2, 3 */
	bool bf16_optimizer;
	bool elastic;			/* without hyper-parameters */
	bool experts;			/* DeepSpeed's: each expert in a file of its own */
	bool parallel;			/* by tensor or pipeline: few formats write it */
	bool only_whole;		/* parallel, and read without what divides it again */
	bool by_data;			/* of experts: use_data_before_expert_parallelism */
	bool aligned;			/* gaps between parameters of a flat group */
	bool bf16_named;		/* with shards: their names say bf16 */
	bool shards;			/* 'own' is what a rank's shard holds */
	uint32_t version[3];		/* of DeepSpeed; 0 0 0 = unknown */
	enum ckpt_dtype weight_dtype;	/* that weights are to have; 0 = as each is */
	bool is_new;			/* nothing but weights: masters are those, states zeros */

	/* ---- the optimizer ---- */
	struct ck_step_group *group;
	uint32_t ngroups;
	uint64_t nlisted;		/* parameters, in a group or not */
	const char *const *state;	/* names of its states as the files have them */
	uint32_t nstates;
	const char *left_out;		/* a state that is no run of elements, or NULL */
	struct ck_step_unjoined *unjoined;
	uint32_t nunjoined;
	/* Values that no layout decides; NULL = there is none. */
	struct ck_val *scaler;		/* an object of a class of DeepSpeed's */
	struct ck_val *dynamic_scale, *overflow, *clip;
	/*
	 * Of a source that does not say what type the run computes in: attributes of the scaler
	 * that it has in fp16.  NULL = 'scaler' is that of the run.
	 */
	struct ck_val *half_scaler;
	struct ck_val *elastic_step;
	const struct ck_val *own;	/* the ZeRO dictionary, in forms of DeepSpeed's; or NULL */
	struct ck_step_file *file;	/* of tensors in all these: the first begins at 0 */
	uint32_t nfiles;

	/* ---- the model ---- */
	struct ck_val *model;		/* rank 0's tree: module, counters, scheduler, client */
	const struct ck_step_file *model_file;	/* of it; NULL = it has no tensors */
	bool bare_module;		/* 'module' has names; the elements are in the index */
	bool frozen_listed;		/* the tree says what is frozen, maybe nothing */
	bool reordered;			/* keys of the tree are not all there, or not in order */
	struct ck_step_differing own_shard, own_model;
	struct ck_findings for_others;	/* what a writer of another format leaves out or guesses */

	/*
	 * (optional) Has that rank of a result other values of the model than rank 0?  Its file,
	 * open; 'pt' stays NULL where it has not.  close_rank() after a success that gave one.
	 */
	bool (*has_rank)(const struct ck_step *step, uint32_t rank);
	int (*open_rank)(struct ck_step *step, uint32_t rank, struct ck_step_file *out,
			 struct ckpt_err *err);
	void (*close_rank)(struct ck_step *step, uint32_t rank);
	/* (optional) Fill what is below "the optimizer" and not groups' parameters; once. */
	int (*complete)(struct ck_step *step, struct ckpt_err *err);
	/* Of a parallel step: make it one without that parallelism, of whole tensors. */
	int (*make_whole)(struct ck_step *step, const struct ck_reshard_want *want,
			  struct ckpt_err *err);
	void *from;			/* the reader's */
	void (*release)(struct ck_step *step);	/* (optional) of what in->kept has not */
};

/*
 * What the index has of the tensors is written as 'want' asks.  The step is in in->kept, which is
 * empty afterwards; if nothing is kept the source is read again, and an error that is found then
 * is the result.  What is not carried and what a loader drops are findings in 'f'.
 */
int ck_step_convert(const struct ck_format *source, const struct ck_input *in,
		    const struct ck_index *ix, const struct ck_reshard_want *want,
		    struct ck_plan *plan, struct ck_findings *f, struct ckpt_err *err);
/* ck_step_weights.c: a step of the tensors of 'ix', which any driver has read. */
int ck_step_shard(const struct ck_index *ix, const struct ck_shard_want *want,
		  struct ck_plan *plan, struct ckpt_err *err);

#endif
