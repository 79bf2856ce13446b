/*
 * ck_format.h -- the seam between drivers and the rest: a driver is one const table.
 *
 * probe() answers with the bits of evidence it saw in the names and first bytes;
 * the strongest claim wins and no driver knows the others.  index() fills an index and a
 * list of findings and goes on as long as it can.  A driver that can write has plan().
 */
#ifndef CK_FORMAT_H
#define CK_FORMAT_H

#include "libckpt/format/ck_archive.h"
#include "libckpt/format/ck_audit.h"
#include "libckpt/format/ck_findings.h"
#include "libckpt/format/ck_plan.h"
#include "libckpt/format/ck_slim_file.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/io/ck_tree.h"
#include "libckpt/tensor/ck_index.h"

/* The driver of the step that an input means. */
struct ck_chosen {
	const struct ck_format *kind;	/* NULL = it means none */
	bool is_known;
};

/* What index() has read and read_step() needs: the driver's own. */
struct ck_kept {
	void *of;	/* NULL = nothing */
	void (*release)(void *of);
};

/* What the caller gave, looked at once. */
struct ck_input {
	const char *const *path;	/* as given, without trailing slashes */
	size_t npaths;
	bool is_dir;
	struct ck_tree tree;		/* folders: their entries, overlaid */
	uint8_t head[512];		/* files: first bytes, zero behind the end */
	size_t head_len;
	uint64_t bytes;			/* files: size */
	const char *tag;		/* asked for, or NULL */
	const char *subtree;		/* entry of a torch file that is asked for, or NULL */
	const char *names, *model_config, *tp_rules;	/* as struct ckpt_open_opts has them */
	const char *order_path;		/* and these, of a training file of torch */
	const char *const *frozen, *const *buffers;
	uint64_t vocab_size;
	bool find_states;		/* by content, where they have no names */
	bool find_model;		/* of a torch file: look for the model in it */
	uint32_t threads;
	struct ckpt_limits limits;	/* filled in */
	struct ck_fdpool *pool;		/* outlives the index */
	const struct ck_formats *formats;	/* the drivers that are asked */
	const struct ck_format *driver;	/* filled by ck_format_open(): the one that read it */
	struct ck_chosen *chosen;	/* whose step is meant, once somebody has looked; or NULL */
	struct ck_kept *kept;	/* filled by index(), for who will write a step; NULL = no one */
};

struct ck_plan;
struct ck_step;
struct ck_val;
struct ck_values;

/* Elements first .. first + count - 1 of every state of a tensor lie in files of 'rank'. */
struct ck_cut {
	uint64_t first, count;
	uint32_t tensor;	/* of the index */
	uint32_t rank;
};

/* A file in a step's folder that is no part of it; 'name' is in the folder, with / between. */
struct ck_along {
	const char *name;
	uint64_t bytes;
};

/* A version of torch, as a number that can be compared. */
#define CK_TORCH(major, minor) ((uint32_t)(major) << 16 | (uint32_t)(minor) << 8)

/* A step for another number of ranks, as asked; -1 and 0 mean as the source has it. */
struct ck_reshard_want {
	const struct ck_format *target;	/* it has write_step() */
	uint32_t world;		/* ranks; of a form that has none, its files of values */
	int stage;		/* -1 = as it is; 0, 1, 2, 3; 4 = BF16_Optimizer */
	int round_robin;	/* -1, 0, 1 */
	uint64_t sub_group_size;
	uint32_t ep;		/* expert ranks of DeepSpeed's experts; 0 = as it is */
	const char *tag;	/* NULL = the source's, without or with its ending _universal */
	const char *version;	/* DeepSpeed's, "0.16.9"; NULL = the source's */
	uint32_t torch;		/* that will load it: CK_TORCH(2, 4); 0 = not said */
	const char *device;	/* of FSDP's mesh, "cuda"; NULL = not said */
	enum ckpt_dtype weight_dtype;	/* of the weights of a source without masters; 0 = as is */
	const char *file;	/* of a form that is one file: its name */
	const char *layout;	/* of DCP: "titan", ... (ckpt_reshard_opts); NULL = the source's */
	bool whole;		/* slices of tensor parallelism are joined, and stages */
	bool reset;		/* the optimizer begins anew: states zero, step 0 */
	const char *const *drop;	/* patterns of states to leave out, NULL last; or NULL */
	bool in_place;		/* the result goes beside its source: what else is there stays */
	/*
	 * Of the native form: who holds what, in any order, in place of equal shares; NULL = those.
	 * With cut_rank >= 0 the plan has the values and the files of that rank, and no manifest.
	 */
	const struct ck_cut *cut;
	uint64_t ncuts;
	int32_t cut_rank;
	bool cut_alone;		/* and with it a manifest of that rank's part alone */
	/* Of the native form: what the caller adds to the plan, for ck_plan_sum_file(). */
	const struct ck_along *along;
	uint64_t nalong;
};

/* A param group of a step that is made of weights. */
struct ck_shard_group {
	const uint32_t *tensor;	/* of the index, in the order of the modules */
	uint64_t n;
	double weight_decay;
};

/* Of a param group in the midst of a run. */
struct ck_shard_hyper {
	double lr, initial_lr, weight_decay, beta1, beta2, eps;
	int64_t step;		/* of the optimizer */
};

/* Where a run is: then the index has masters and states, and nothing is made up. */
struct ck_shard_now {
	const struct ck_shard_hyper *hyper;	/* by group */
	const char *const *state;	/* names of the optimizer's states that are cut */
	uint64_t nstates;
	int64_t steps, samples, skipped;
	const struct ck_val *scheduler;	/* a dictionary, or NULL: the run has none */
	const struct ck_val *client;	/* a dictionary: keys of the caller's own; or NULL */
	int64_t scaler_iter, scaler_last_overflow, scaler_hysteresis;
	bool overflow;
};

/*
 * A step made of weights alone, or with 'now' of all that a run has.  The index says by the role of
 * its tensors what is frozen and what is a buffer; a tied name is an alias.
 */
struct ck_shard_want {
	struct ck_reshard_want step;	/* stage, version and tag are set */
	const struct ck_shard_group *group;
	uint64_t ngroups;
	double lr, first_lr;		/* of the run; of its first step */
	double beta1, beta2, eps, clip;
	bool l2;			/* Adam's decay, not AdamW's */
	enum ckpt_dtype dtype;		/* of the weights */
	const struct ck_val *config;	/* DeepSpeed's, or a small one */
	bool dynamic;			/* fp16: the loss scale */
	double scale;
	int64_t window, hysteresis;
	double min_scale;
	const struct ck_shard_now *now;	/* NULL = a run's beginning */
	const struct ckpt_limits *limits;
};

/* A model that a run of another program begins with: the index has weights of transformers. */
struct ck_model_want {
	const char *config_path;	/* config.json */
	uint32_t tp;			/* ranks of tensor parallelism that will read it first */
	uint64_t vocab_divisor;		/* each of them has a multiple of so many rows */
	enum ckpt_dtype dtype;		/* of the weights; 0 = as stored */
	const struct ckpt_limits *limits;
};

struct ck_format {
	const char *name;	/* as printed */
	bool is_model;		/* its tensors are a model's: ck_placeholder.h judges empty ones */
	bool is_step;		/* a checkpoint of it is a training step: a folder of its own */
	bool has_subtrees;	/* ck_input's subtree means something to it */
	bool has_untyped_steps;	/* they do not say what type the run computes in */
	bool has_names;		/* ck_input's names, model_config and vocab_size do */
	bool has_slices;	/* ck_input's tp_rules do */
	bool has_order;		/* ck_input's model_config does: the order of parameters */
	bool takes_parallel;	/* write_step() writes steps of tensor and pipeline parallelism */
	const char *latest;	/* with is_step: the file of a run that names its step, or NULL */
	/* Bits of evidence; 0 = not ours; -CKPT_E_NOMEM: without memory nobody can say. */
	int (*probe)(const struct ck_input *in);
	int (*index)(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
		     struct ckpt_err *err);
	/*
	 * The writing side, all optional.  plan() appends the files for 'want' to 'plan' and
	 * does not cut units.  CKPT_E_UNSUPPORTED names a tensor that the format cannot hold.
	 */
	int (*plan)(const struct ck_want *want, struct ck_plan *plan, struct ckpt_err *err);
	/*
	 * A file of a folder that a new result replaces, whose files are 'fresh' (ck_is_ours_fn);
	 * one that goes with the weights.
	 */
	bool (*is_output)(const char *name, const struct ck_tree *fresh);
	bool (*is_aux)(const char *name);
	/* (optional) Whether a file of a step, by its name in there, has nothing but moments. */
	bool (*is_moment)(const char *name);
	/*
	 * (optional) A step with its values, of what index() left in in->kept, which is used up by
	 * it; 'ix' is the index of the same input.  'in', its 'kept' and 'f' outlive the step.
	 */
	int (*read_step)(const struct ck_input *in, const struct ck_index *ix,
			 struct ck_findings *f, struct ck_step *out, struct ckpt_err *err);
	/*
	 * (optional) Every file of a step, as 'want' asks; 'ix' is the index of its tensors.  What
	 * a loader will not restore is a finding of the step's.
	 */
	int (*write_step)(struct ck_step *step, const struct ck_index *ix,
			  const struct ck_reshard_want *want, struct ck_plan *plan,
			  struct ckpt_err *err);
	/*
	 * (optional) A folder of a run with such a model, in a folder of the step that is the first
	 * of every name.
	 */
	int (*write_model)(const struct ck_index *ix, const struct ck_model_want *want,
			   struct ck_plan *plan, struct ckpt_err *err);
	/*
	 * (optional) What is no tensor, of a rank below the world of 'ix', whose sources are read
	 * (ck_values.h).  '*out' is zeroed and lends from 'ix'; it is closed after success only.
	 */
	int (*values)(const struct ck_index *ix, const struct ckpt_limits *limits, uint32_t rank,
		      struct ck_values *out, struct ckpt_err *err);
	/*
	 * Of steps: a bid on a folder that is one of this format, by the names in it; 0 = it is
	 * none, 1 = it is what is left of one, which is not chosen and not written into.
	 */
	int (*holds)(const struct ck_tree *tree);
	const char *noun;	/* "the folder given is a NOUN" */
	/* A file or folder in a step's folder that is the step's. */
	bool (*is_part)(const char *name, bool is_dir);
	bool aside;		/* kept beside the run's steps: 'latest_universal' names it */
	/*
	 * (optional) List the pickles of a file and their names.  Without 'always' a file that
	 * does not look like one that has any is passed over.
	 */
	int (*audit)(struct ck_src *src, const struct ckpt_limits *limits, bool always,
		     struct ck_audit *out, struct ckpt_err *err);
	/*
	 * (optional) Append a file to 'plan' without what is not needed (ck_slim_file.h), or as
	 * it is where nothing is to be saved or it is none of this format.  '*saved_out' is
	 * filled on success.
	 */
	int (*slim)(const struct ck_slim_want *want, struct ck_plan *plan,
		    struct ck_slim_saved *saved_out, struct ckpt_err *err);
};

/*
 * What a build reads and writes.  The API hands one down to every verb, so nothing in the library
 * names a driver; the one of the product is formats/ck_formats.h, a test makes its own.
 */
struct ck_formats {
	/* All readers, NULL at the end.  Order decides between equal bids. */
	const struct ck_format *const *reader;
	const struct ck_archive_format *archive;	/* NULL = this build has none */
	/* Who the verbs ask to write; NULL = this build cannot. */
	const struct ck_format *step;	/* training steps: write_step */
	const struct ck_format *universal;	/* DeepSpeed's universal form: write_step */
	const struct ck_format *native;	/* steps in the native form: write_step */
	const struct ck_format *dcp;	/* folders of torch.distributed.checkpoint: write_step */
	const struct ck_format *ranks;	/* rank files of FSDP: write_step */
	const struct ck_format *trainer;	/* folders of transformers' Trainer: write_step */
	const struct ck_format *megatron;	/* torch_dist of Megatron-Core: write_model */
	const struct ck_format *folder;	/* a folder of weights: plan, is_output, is_aux */
	const struct ck_format *file;	/* one file of weights: plan */
	const struct ck_format *pickles;	/* one file of torch: plan, audit, slim */
};

/*
 * Look at the paths of 'in' as ck_format_open() does, and call 'fn' with what was found.  An
 * archive is mounted on in->pool, unless it is already, and in->path is then the path in it.
 */
int ck_format_with_input(struct ck_input *in,
			 int (*fn)(const struct ck_input *in, void *arg, struct ckpt_err *err),
			 void *arg, struct ckpt_err *err);

/*
 * Look at the paths, ask every driver, let the best one build the index.  The caller fills
 * path, npaths, tag, threads, limits, pool and formats; the rest is filled here, and only driver
 * is left when it returns.
 * CKPT_E_FORMAT when none bids, with what was found there instead (TorchScript, numpy, GGUF,
 * git-lfs pointer, ...); CKPT_E_NOTFOUND, CKPT_E_USAGE for several paths that are not folders,
 * codes of index().
 */
int ck_format_open(struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
		   struct ckpt_err *err);

/* For index(), at its end: give 'of' to 'kept', or release it if that is NULL or 'rc' is not 0. */
void ck_kept_give(struct ck_kept *kept, int rc, void *of, void (*release)(void *of));
void ck_kept_release(struct ck_kept *kept);	/* nothing is kept then */

#endif
