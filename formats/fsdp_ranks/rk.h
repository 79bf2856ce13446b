/*
 * rk.h -- private to formats/fsdp_ranks: the rank files of FSDP in memory
 * (docs/formats/fsdp-ranks.md).
 *
 * Each rank saves its part of every tensor in a torch file of its own.  A DTensor or a
 * ShardedTensor says which block of the full tensor it is; a plain tensor is whole.  The blocks of
 * all ranks are put together by name.  The optimizer's files have names, or numbers whose
 * parameters are found by shape (ck_step_match.h, rk_flat.c).
 */
#ifndef RK_H
#define RK_H

#include "formats/torch_pt/ck_pt.h"
#include "libckpt/step/ck_step.h"
#include "libckpt/step/ck_step_match.h"

#define RK_MOST_AXES 8u		/* of a device mesh */
#define RK_MOST_DIMS 64u	/* of a sharded tensor */

enum rk_kind {
	RK_MODEL = 0,
	RK_OPTIM,
	RK_EXTRA,
	RK_KINDS,
};

/* The way in which files are named. */
enum rk_naming {
	RK_VERL = 1,	/* model_world_size_2_rank_0.pt */
	RK_ACCEL,	/* pytorch_model_fsdp_0_rank0.bin */
	RK_WHOLE,	/* pytorch_model_fsdp.bin: FULL_STATE_DICT */
	RK_TC,		/* model_0.pt beside metadata.pkl: torch_checkpointing */
};

/* What a file's name says. */
struct rk_name {
	uint8_t naming, kind;
	uint32_t world;		/* 0 = it does not say */
	uint32_t rank;
	uint32_t model;		/* number of the model, where a run has several */
};

/* Where this rank is on a device mesh. */
struct rk_mesh {
	const struct ck_val *of;
	uint32_t naxes;
	uint64_t size[RK_MOST_AXES], at[RK_MOST_AXES];
	struct rk_mesh *next;
};

struct rk_file {
	struct rk_name id;
	const char *name, *path;
	uint64_t bytes;
	struct ck_src *src;	/* until the index has it */
	struct ck_pt *pt;
	uint32_t source;	/* of the index */
	bool ok;
	bool swapped;		/* a finding says so already */
	struct ck_findings notes;
	struct rk_mesh *mesh;
};

/* A block of a tensor, or a run of a flat one. */
struct rk_block {
	const struct rk_file *file;
	const struct ck_tensor_ref *t;	/* the rank's own tensor */
	uint64_t begin;			/* the block's first element in it */
	const uint64_t *offset, *size;	/* [ndim of its state] */
	uint64_t numel;
};

/* A state of a tensor: blocks of all ranks. */
struct rk_state {
	const char *name;
	uint8_t dtype;
	uint32_t ndim;
	const uint64_t *shape;
	uint64_t numel;
	bool flat;		/* of one dimension, whatever the tensor has */
	bool listed;		/* in the index of torch_checkpointing */
	struct rk_block *block;
	uint64_t nblocks, block_cap;
	struct rk_state *next;
};

struct rk_tensor {
	const char *name;	/* without wrappers */
	const char *full;	/* in the file */
	bool sharded;		/* on some rank a DTensor or a ShardedTensor */
	uint32_t ranks;		/* whose files have it */
	struct rk_state weight;
	struct rk_state *state;	/* of the optimizer */
	int32_t group;		/* of the optimizer; -1 */
	uint64_t entry;		/* in 'id': its place in the optimizer's own order */
	uint32_t alias_of;	/* CK_NONE */
	bool twin;		/* its bytes look like those of another: tied, most likely */
	uint32_t number;	/* in the index, CK_NONE */
};

/* What a value of a rank file is. */
struct rk_value {
	bool is_tensor, sharded;
	uint8_t dtype;
	uint32_t ndim;
	const uint64_t *shape, *offset, *size;
	uint64_t numel;			/* of the block */
	const struct ck_tensor_ref *t;	/* NULL: the rank has nothing of it */
	uint32_t parts, part;		/* pieces that the ranks cut it into; this rank's */
};

/* A parameter as the optimizer numbers or names it. */
struct rk_id {
	int64_t number;
	const char *name;		/* NULL = it has a number */
	const char *called;		/* one with a number: its name in 'param_names', or NULL */
	uint32_t group;
	uint32_t tensor;		/* in 'tensor'; CK_NONE = not known */
	const struct ck_val **of_rank;	/* [world] its states, or NULL */
	bool has_state;
};

struct rk_group {
	const struct ck_val *hyper;
	double step, least;	/* the greatest count of a parameter, and the least */
	bool has_step;
};

struct rk_tc;

struct rk {
	const struct ck_input *in;
	struct ck_index *ix;
	struct ck_findings *f;
	struct ck_arena arena;
	struct ck_step_place at;
	struct ck_tree tree;		/* of the folder with the files */
	const char *sub;		/* that folder in the step's; "" = the step's own */
	const char *where;		/* its path */
	uint8_t naming;
	uint32_t world;
	bool incomplete;		/* a file is missing or damaged: a finding says so */
	struct rk_file *file;
	uint64_t nfiles, file_cap;
	struct rk_file **model, **optim, **extra;	/* [world], NULL = missing */
	struct rk_tensor *tensor;
	uint64_t ntensors, tensor_cap;
	struct ck_map by_name;
	bool any_sharded;
	uint32_t parts;			/* that FSDP cuts a tensor into, at most 'world' */
	uint32_t *part;			/* [world] which of them a rank has */
	struct rk_id *id;
	uint64_t nids, id_cap;
	struct ck_map by_id;
	struct rk_group *group;
	uint32_t ngroups;
	const char *unproven;	/* a clause: why it is not known whose the states are; or NULL */
	uint64_t nlost;		/* states of the optimizer that are left out */
	struct ckpt_err extra_err;	/* of rank 0's extra state; code 0 = it could be read */
	const char *device;	/* "cuda": of the mesh, or NULL */
	const struct ck_val *deepspeed;	/* dictionary of what only DeepSpeed has, or NULL */
	struct rk_tc *tc;		/* of RK_TC */
};

extern const struct ck_format ck_format_fsdp_ranks;

/* ---- rk_names.c ---- */

/* False for a name that is none of a rank file. */
bool ck_rk_name_read(const char *name, struct rk_name *out);
/* A bid on a folder with such files, for enum rk_naming; 0 = none. */
int ck_rk_names_in(const struct ck_tree *tree);
/* 'n' bytes of a parameter's name without what wrappers of modules add; NULL without memory. */
const char *ck_rk_name_clean(struct rk *r, const char *name, size_t n);

/* ---- rk_files.c ---- */

/* List the files, compare the ranks with the world, and open them, by threads. */
int ck_rk_files_open(struct rk *r, struct ckpt_err *err);
/* Give the sources to the index. */
int ck_rk_files_add(struct rk *r, struct ckpt_err *err);

/* ---- rk_value.c ---- */

/*
 * Look at a value of 'file'.  '*out' says that it is no tensor, or what block of which tensor.
 * A mesh or a shard that is another rank's is a finding.  CKPT_E_CORRUPT, CKPT_E_UNSUPPORTED.
 */
int ck_rk_value_read(struct rk *r, struct rk_file *file, const struct ck_val *v,
		     struct rk_value *out, struct ckpt_err *err);
/* The block that a rank of a mesh has: rk_mesh.c. */
int ck_rk_mesh_block(struct rk *r, struct rk_file *file, const struct ck_val *spec,
		  struct rk_value *v, struct ckpt_err *err);
/*
 * Part number 'at' of 'parts' that an axis cuts '*size' rows from '*offset' on into.
 */
void ck_rk_mesh_cut(uint64_t *offset, uint64_t *size, uint64_t parts, uint64_t at);
/* What BUILD gave an object, without the None before it; or NULL. */
const struct ck_val *ck_rk_state_of(const struct ck_val *v);
/* An object whose class has that last name. */
bool ck_rk_is_object(const struct ck_val *v, const char *name);
/* Numbers of a tuple, in the arena; false if they are none. */
bool ck_rk_counts(struct rk *r, const struct ck_val *v, const uint64_t **out, uint64_t *n_out);
/* Say once of a file that it is another rank's. */
void ck_rk_swapped(struct rk *r, struct rk_file *file, const char *what, uint64_t found);

/* ---- rk_model.c ---- */

/* Every tensor of the model files, with its blocks; which are second names of another. */
int ck_rk_model_read(struct rk *r, struct ckpt_err *err);
/* Add what 'v' is to a state; a rank that disagrees with the others is a finding. */
int ck_rk_state_add(struct rk *r, struct rk_state *s, const char *where, const struct rk_file *file,
		 const struct rk_value *v, struct ckpt_err *err);
/*
 * A tensor whose bytes look like those of an earlier one of its shape, which it is then likely
 * to be (tied weights), in 'of_out' [ntensors]; CK_NONE.  Reads samples.
 */
int ck_rk_model_twins(struct rk *r, uint32_t *of_out, struct ckpt_err *err);

/* ---- rk_optim.c ---- */

/* The optimizer's groups, and the states of the tensors whose they provably are. */
int ck_rk_optim_read(struct rk *r, struct ckpt_err *err);
/* Values of the groups as facts of the index. */
int ck_rk_optim_facts(struct rk *r, struct ckpt_err *err);
/* The state of that name of a tensor; it is added, empty, at its first mention. */
int ck_rk_optim_state(struct rk *r, struct rk_tensor *t, const char *name, struct rk_state **out,
		   struct ckpt_err *err);
/* Is the value of that key, one of a parameter's, a state with elements? */
bool ck_rk_optim_is_state(const struct ck_val *key, const struct ck_val *v);

/* ---- rk_numbers.c ---- */

/* Find the tensors of parameters that have only numbers, or say in r->unproven why not. */
int ck_rk_numbers_find(struct rk *r, struct ckpt_err *err);
/*
 * The tensors that may be the parameters, in the model's order, in 'item' [ntensors]; how many.
 * Those of 'twin' are left out if there are too many otherwise.
 */
uint64_t ck_rk_numbers_items(const struct rk *r, const uint32_t *twin, uint32_t *item);
/* [ngroups + 1]: number of the first of r->id that is in a group; NULL without memory. */
uint64_t *ck_rk_numbers_firsts(struct rk *r);

/* ---- rk_flat.c ---- */

/*
 * Whose are the pieces of flat parameters (FSDP1)?  Adds the states where that is certain; else
 * '*why_out' is a clause.
 */
int ck_rk_flat_states(struct rk *r, const uint32_t *twin, const char **why_out,
		      struct ckpt_err *err);

/* ---- rk_units.c ---- */

#define RK_UNIT_GUESSES 7u

/* A parameter in the flat one of its unit. */
struct rk_place {
	uint32_t unit;
	uint64_t start;
};

struct rk_unit {
	uint64_t elements, chunk;
};

/*
 * The units of a model by a guess, a number below RK_UNIT_GUESSES, of which modules FSDP1 wraps:
 * the root's first, then the others in the order of the model.  With 'aligned' a parameter starts
 * at a multiple of 16 bytes (use_orig_params), else where the one before ends.  'place' is [n].
 */
int ck_rk_units_guess(struct rk *r, uint32_t guess, bool aligned, const uint32_t *item, uint64_t n,
		   struct rk_place *place, struct rk_unit **unit_out, uint32_t *nunits_out,
		   struct ckpt_err *err);

/* ---- rk_extra.c ---- */

/*
 * Parse the extra state of rank 0, where verl's naming has one.  What is wrong with it is kept for
 * read_step(): the tensors need none of it.  CKPT_E_NOMEM.
 */
int ck_rk_extra_open(struct rk *r, struct ckpt_err *err);
/* Its dictionary, or NULL. */
const struct ck_val *ck_rk_extra_root(const struct rk *r);
/* Of a step of DeepSpeed that zckpt wrote: is the name in its list 'key' of names? */
bool ck_rk_extra_lists(const struct rk *r, const char *key, const char *name);
/* DeepSpeed's values, the scheduler and the client's, into the step, whose model is made. */
int ck_rk_extra_fill(struct rk *r, struct ck_step *step, struct ckpt_err *err);

/* ---- rk_step.c ---- */

/* The driver's read_step(): of what index() left in in->kept. */
int ck_rk_read_step(const struct ck_input *in, const struct ck_index *ix, struct ck_findings *f,
		 struct ck_step *out, struct ckpt_err *err);

/* ---- rk_write.c ---- */

/* The driver's write_step(). */
int ck_rk_write_step(struct ck_step *step, const struct ck_index *ix,
		  const struct ck_reshard_want *want, struct ck_plan *plan, struct ckpt_err *err);

/* ---- rk_index.c ---- */

int ck_rk_index_fill(struct rk *r, struct ckpt_err *err);

#endif
