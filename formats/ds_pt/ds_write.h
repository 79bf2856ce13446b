/*
 * ds_write.h -- writing DeepSpeed's .pt files: one of the target at a time.
 *
 * A file is made as an edited copy of a source file's value tree: keys that the driver does
 * not know stay as they are, for any class.  New tensors point to new storages; tensors
 * that stay take their storages from the source file.
 */
#ifndef CK_DS_WRITE_H
#define CK_DS_WRITE_H

#include "formats/ds_pt/ds_target.h"
#include "formats/torch_pt/ck_pt.h"
#include "formats/torch_pt/ck_pt_plan.h"
#include "libckpt/format/ck_plan.h"
#include "libckpt/step/ck_step_along.h"
#include "libckpt/tensor/ck_val_new.h"

/* A storage of the file being made. */
struct wr_store {
	uint64_t piece, npieces;	/* in wr->piece */
	uint8_t dtype;
};

struct wr {
	struct ck_step *step;		/* source */
	const struct ck_index *ix;
	const struct tg_layout *t;
	const struct ck_reshard_want *want;
	struct ck_plan *plan;
	const char *tag;		/* folder in the result */
	bool keeps_shards;		/* each rank's shard keeps its own values */
	bool by_rank;			/* so do files of the model's values */
	bool new_keys;			/* key sets by version and stage, not the source's */
	const struct ck_val *first;	/* rank 0's shard, where the one written keeps its own
					   values: for the order of entries; else NULL */
	/*
	 * One position of a parallel step: the number in its files' names, and its states' numbers
	 * in the plan's own index, as they are needed; NULL = 'ix' is the run's index.
	 */
	uint32_t mp;
	uint32_t *own_state;
	struct ck_step_along along;
	/* of the file being made */
	struct ck_arena arena;
	struct ck_pt_piece *piece;
	uint64_t npieces, piece_cap;
	struct wr_store *store;		/* those of the source file first, under its numbers */
	uint64_t nstores, store_cap;
};

/* ds_write_own.c: the piece that reads a deflated or big-endian storage of 'file' (open). */
int ck_wr_own(struct wr *w, const struct ck_step_file *file, const struct ck_pt_storage *s,
	      struct ck_pt_piece *piece, struct ckpt_err *err);

/* The number in the plan's own index of a state of 'ix', whose elements are there as stored. */
int ck_wr_own_state(struct wr *w, uint32_t state, uint32_t *own_out, struct ckpt_err *err);

/* Begin a file; tensors of 'n' files (open) can go into it: take their storages. */
int ck_wr_begin(struct wr *w, const struct ck_step_file *file, uint32_t n, struct ckpt_err *err);
/* Lay it out as TAG/STEM.pt and let go of what it took.  CKPT_E_NOMEM if 'stem' is NULL. */
int ck_wr_finish(struct wr *w, const char *stem, const struct ck_val *root,
		 struct ckpt_err *err);

/* A new storage of elements of 'dtype'; '*number_out' for ck_wr_flat(). */
int ck_wr_storage(struct wr *w, enum ckpt_dtype dtype, uint32_t *number_out,
		  struct ckpt_err *err);
/* Append elements of a state, or zeros, to the storage made last. */
int ck_wr_state(struct wr *w, uint32_t state, uint64_t first, uint64_t count,
		struct ckpt_err *err);
/*
 * The same by the state's name in the optimizer, of a tensor: a master that was not kept is
 * the weight, a state that begins anew is zeros.
 */
int ck_wr_named(struct wr *w, uint32_t tensor, const char *name, uint64_t first, uint64_t count,
		struct ckpt_err *err);
/* Whether elements of it can be written, and their type. */
bool ck_wr_has(const struct wr *w, uint32_t tensor, const char *name);
enum ckpt_dtype ck_wr_dtype(const struct wr *w, uint32_t tensor, const char *name);
int ck_wr_zero(struct wr *w, uint64_t count, struct ckpt_err *err);
/* The whole of a storage as a 1-D tensor; NULL without memory. */
struct ck_val *ck_wr_flat(struct wr *w, uint32_t number, bool requires_grad);

/*
 * ds_write_flat.c, ds_write_sub.c: the value of a key of rank 'rank's ZeRO dict that depends on
 * the layout; NULL for any other key, and (with '*err' or without memory) on failure.
 */
struct ck_val *ck_wr_flat_value(struct wr *w, const char *key, uint32_t rank,
				struct ckpt_err *err);
struct ck_val *ck_wr_sub_value(struct wr *w, const char *key, uint32_t rank,
			       struct ckpt_err *err);
/* ds_write_zero.c: the ZeRO dict, at the source's stage or another. */
struct ck_val *ck_wr_zero_dict(struct wr *w, uint32_t rank, struct ckpt_err *err);
/*
 * An entry of the optimizer's state, for the parameters that begin with 'tensor': what 'make'
 * gives for each state that is cut, everything else as it was.
 */
typedef struct ck_val *ck_wr_maker(struct wr *w, const char *name, const void *arg,
				   struct ckpt_err *err);
struct ck_val *ck_wr_edit_entry(struct wr *w, const struct ck_val *old, uint32_t tensor,
				ck_wr_maker *make, const void *arg, struct ckpt_err *err);
/* A param group's dictionary as a copy, whose own count of steps may restart at 0. */
struct ck_val *ck_wr_param_group(struct wr *w, const struct ck_val *old, uint32_t g,
				 struct ckpt_err *err);
/* Is a state of that name to be left out? */
/* What no layout decides, as a ZeRO dict; NULL with '*err' or without memory. */
struct ck_val *ck_wr_zero_rest(struct wr *w, struct ckpt_err *err);
/*
 * What 'copy' still shares with 'old', in tensors of its own: the count of steps of an entry, a
 * learning rate of a param group.  For an entry that stands in several places: torch adds to the
 * count in place, and one that all of them share would count each.
 */
struct ck_val *ck_wr_own_tensors(struct wr *w, struct ck_val *copy, const struct ck_val *old,
				 struct ckpt_err *err);
/* ds_write_model.c: param_shapes in layout order; NULL without memory. */
struct ck_val *ck_wr_shapes(struct wr *w);
/* A tensor of that shape on a new storage; NULL without memory. */
struct ck_val *ck_wr_tensor(struct wr *w, uint32_t number, const uint64_t *shape, uint32_t ndim,
			    bool requires_grad);
/* A contiguous tensor of the optimizer, on a new storage; NULL with '*err' or without memory. */
struct ck_val *ck_wr_copy(struct wr *w, const struct ck_val *tensor, struct ckpt_err *err);
/* ds_write_z0.c: the model file's root with the optimizer in it. */
struct ck_val *ck_wr_stage0(struct wr *w, struct ck_val *root, struct ckpt_err *err);
struct ds_file;
/* ds_write_experts.c: a file of the source, as it is; the files of experts, of a step with them. */
int ck_wr_file_as_is(struct wr *w, const struct ds_file *file, struct ckpt_err *err);
int ck_wr_experts(struct wr *w, struct ckpt_err *err);
/* ds_write_autoep.c: the model file's root with its AutoEP layers as the target has them. */
struct ck_val *ck_wr_autoep(struct wr *w, struct ck_val *root, struct ckpt_err *err);
/* The root of a rank's file of the model's values, from the source's. */
typedef struct ck_val *ck_wr_root_maker(struct wr *w, const struct ck_val *old, uint32_t rank,
					const void *arg, struct ckpt_err *err);
/* ds_write_model.c: of DeepSpeed's model file; 'arg' is not looked at. */
ck_wr_root_maker ck_wr_model;
/* Such a file TAG/STEM.pt: of the source's rank if 'ranked', else of rank 0's values. */
int ck_wr_rank_file(struct wr *w, const char *stem, uint32_t rank, bool ranked,
		    ck_wr_root_maker *make, const void *arg, struct ckpt_err *err);

/* ds_write_version.c: is the target of DeepSpeed 0.'minor'.'patch' or later? */
bool ck_wr_since(const struct wr *w, uint32_t minor, uint32_t patch);
/* 'ds_version' of the target; NULL without memory, as the next two. */
struct ck_val *ck_wr_version(struct wr *w);
/* The keys of a model file that the target's version has, in its order, then the client's. */
struct ck_val *ck_wr_model_keys(struct wr *w, const struct ck_val *root);
/*
 * 'ds_config' of the source (NULL gives None) with the order that a flat group is laid out in: who
 * cuts the step once more undoes round robin by it.
 */
struct ck_val *ck_wr_config(struct wr *w, struct ck_val *old);
/* The loss scaler with every attribute that a later version looks for. */
struct ck_val *ck_wr_scaler(struct wr *w, struct ck_val *scaler);

/*
 * ds_write.c: begin with a step that is complete; 'ix' is the index of its tensors.
 * ck_wr_end() after a success.
 */
int ck_wr_init(struct wr *w, struct ck_step *step, const struct ck_index *ix,
	       const struct ck_reshard_want *want, struct ck_plan *plan, struct ckpt_err *err);
/* 't' has groups, world and version at least; it outlives 'w'. */
void ck_wr_layout(struct wr *w, const struct tg_layout *t);
void ck_wr_end(struct wr *w);
/* What was asked for fits the step. */
int ck_wr_check(struct wr *w, struct ckpt_err *err);
/* After it: findings of values that differ over ranks and cannot stay. */
void ck_wr_tell_own(struct wr *w);
/* Every model file. */
int ck_wr_models(struct wr *w, struct ckpt_err *err);

#endif
