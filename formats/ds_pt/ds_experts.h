/*
 * ds_experts.h -- private to formats/ds_pt: experts of a step (docs/formats/deepspeed.md, 11).
 *
 * 'module' of the model file lacks them: each expert of each layer has a file of its own, and each
 * expert rank's param group is one flat run on ranks of its own.  ds_experts.c reads what the model
 * file says of them, ds_experts_file.c their files, ds_experts_group.c names the optimizer's.
 */
#ifndef CK_DS_EXPERTS_H
#define CK_DS_EXPERTS_H

#include "formats/ds_pt/ck_ds.h"

#define DS_EXPERT_MARK ".deepspeed_moe.experts.deepspeed_experts."

struct ds_expert_tensor {
	const char *name;	/* key in the file */
	const uint64_t *shape;
	uint32_t ndim;
	uint64_t numel;
	struct ds_slice slice;
	size_t stem;		/* bytes of the name in front of the expert's number */
	const char *rest;	/* of the name, after the number; "" with AutoEP */
};

/* A file of one expert. */
struct ds_expert {
	struct ds_file *file;
	struct ds_expert_tensor *tensor;
	uint32_t n;
	bool wrong;		/* a finding says so; its tensors are not used */
	bool optim_none, optim_there;	/* of an expp_rank file: None, or an optimizer */
	uint32_t ep;		/* of the optimizer's groups: expert ranks; 0 = not named */
};

struct ds_expert_layer {
	const char *prefix;	/* of its parameters' names; NULL = no file was read */
	uint32_t n;		/* experts, as num_experts has it */
	uint32_t first, count;	/* of the sorted experts: those that are there */
	bool autoep;
	bool whole;		/* every expert is there */
	uint32_t ep;		/* expert ranks as AutoEP has it, else 0 */
};

/* A tensor of the model that expert files have: one of one expert, or a stack of all. */
struct ds_whole {
	const char *name;
	const char *like;	/* name of the same parameter in lists, which count from 0 */
	const uint64_t *shape;
	uint32_t ndim;
	uint32_t layer, expert;	/* 'expert' in the sorted ones: the first of them */
	uint32_t nexperts;	/* 1, or all of the layer */
	uint32_t tensor;	/* number in each file */
};

/* What param_slice_mappings of a rank list for a group. */
struct ds_mapped {
	const char *name;
	uint64_t numel;
};

struct ds_mappings {
	struct ds_mapped *item;
	uint32_t n;
};

struct ds_experts {
	struct ds_expert_layer *layer;
	uint32_t nlayers;
	struct ds_expert *of_file;	/* by number in ds->file */
	struct ds_expert **sorted;	/* by layer and number */
	uint32_t nsorted;
	struct ds_whole *whole;
	uint64_t nwhole;
	struct ck_map by_prefix;	/* prefix -> layer */
	struct ck_map in_files;		/* name of a 'whole' -> its number */
	bool autoep;
	bool by_data;			/* use_data_before_expert_parallelism */
	bool config_known;		/* where that would be said */
	bool optim_none;		/* an expp_rank file says: the run has shards */
	bool optim_there;		/* one has an optimizer */
	bool by_mappings;		/* the step has no param_shapes */
	struct ds_mappings **mapped;	/* by rank, then group */
};

/* ds_experts.c: does the folder have them, and are they of a kind that is read?  Then
 * ds->experts is set.  CKPT_E_LAYOUT, CKPT_E_CORRUPT. */
int ck_ds_experts_begin(struct ds_step *ds, struct ckpt_err *err);
void ck_ds_experts_release(struct ds_step *ds);
/* The number of ranks, of which each param group's partition_count is a part. */
int64_t ck_ds_experts_world(const struct ds_step *ds, int64_t partition_count);
/* Is it the file of an expert that the model has? */
bool ck_ds_experts_is_used(const struct ds_step *ds, const struct ds_file *file);
/* Are the expp_rank files those of the step?  All files were read. */
void ck_ds_experts_check_optim(struct ds_step *ds);
/* Expert ranks as the names of param groups have them ("ep_size_4"), the most; 0 = no such name. */
uint32_t ck_ds_experts_named(const struct ck_val *groups);
/* The configuration of the run, in either kind of file; NULL = there is none. */
const struct ck_val *ck_ds_experts_config(const struct ds_step *ds);
/* The fact "layout", such as "ep 2 x dp 4". */
int ck_ds_experts_add_fact(struct ds_step *ds, struct ckpt_err *err);

/* ds_experts_file.c: the tensors of one file (open). */
int ck_ds_experts_take(struct ds_step *ds, struct ds_file *file, struct ckpt_err *err);
/* All that are there, sorted and compared; the tensors of the model that they make. */
int ck_ds_experts_gather(struct ds_step *ds, struct ckpt_err *err);

/* ds_experts_weight.c: those tensors into the index; 'param' has names of groups (ds_model.c). */
int ck_ds_experts_index(struct ds_step *ds, const struct ck_map *param, struct ckpt_err *err);

/* ds_experts_group.c */
/* Without param_shapes: as many groups as the first shard has partitions. */
int ck_ds_experts_count_groups(struct ds_step *ds, struct ckpt_err *err);
/* What a shard's (open) param_slice_mappings list. */
int ck_ds_experts_take_mappings(struct ds_step *ds, struct ds_file *file, struct ckpt_err *err);
/* The layer whose stack has this name, or NULL. */
struct ds_expert_layer *ck_ds_experts_stack(const struct ds_step *ds, const char *name);
/* Local names and shapes of the groups become those of the whole model. */
int ck_ds_experts_place(struct ds_step *ds, struct ckpt_err *err);

#endif
