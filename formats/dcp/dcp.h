/*
 * dcp.h -- private to formats/dcp: a step of torch.distributed.checkpoint in memory
 * (docs/formats/dcp.md).
 *
 * A step has one folder with a '.metadata', or, as accelerate writes it, one for the model and one
 * for the optimizer.  '.metadata' lists items by flat names: a tensor has chunks, another value is
 * one pickle; each of these is an archive of torch.save in a data file.
 */
#ifndef DCP_H
#define DCP_H

#include <pthread.h>

#include "formats/torch_pt/ck_pt.h"
#include "libckpt/format/ck_values.h"
#include "libckpt/step/ck_step.h"
#include "libckpt/zip/ck_zip_row.h"

#define DCP_METADATA ".metadata"
#define DCP_PARTS 2

/* An archive in a data file. */
struct dcp_place {
	uint32_t file;		/* CK_NONE: '.metadata' does not say where */
	uint64_t begin, bytes;
	bool is_named;		/* by a block */
};

/* A block of a tensor. */
struct dcp_chunk {
	const uint64_t *offset, *size;	/* [ndim of its item] */
	uint64_t numel;
	struct dcp_place at;
	uint64_t data;		/* byte of its elements in the file; once 'is_read' */
	uint32_t crc;		/* of them, as the archive says; 0 = it says nothing */
	bool is_varied;		/* its first elements are not all the same */
	bool is_read;
};

enum dcp_use {
	DCP_OTHER = 0,		/* of the client */
	DCP_MODEL,
	DCP_STATE,		/* of the optimizer: 'name' and 'state' say whose and which */
	DCP_GROUP,		/* a value of a param group */
};

/* An open archive. */
struct dcp_value {
	struct ck_zip_part bytes;
	struct ck_src *src;
	struct ck_pt *pt;
};

struct dcp_item {
	const char *flat;	/* in '.metadata' */
	const char *box;	/* what contains it: "model"; "" = the root */
	const char *key;	/* its name in there */
	const struct ck_val *path;	/* of planner_data: a tuple, or NULL */
	uint64_t order;		/* there: that of the state dict */
	uint32_t part;
	bool is_tensor;
	uint8_t use;		/* enum dcp_use */
	uint8_t dtype;		/* enum ckpt_dtype */
	bool has_number;
	uint32_t ndim;
	const uint64_t *shape;
	uint64_t numel;
	struct dcp_chunk *chunk;	/* a value that is no tensor has one */
	uint64_t nchunks;
	struct dcp_value *value;	/* of one that is no tensor */
	double number;		/* of a tensor of one element */
	int64_t whole;		/* the same, where its type is of integers */
	const char *name;	/* DCP_MODEL and DCP_STATE: the parameter's, without wrappers */
	const char *state;	/* DCP_STATE: "exp_avg" */
};

struct dcp_file {
	const char *name;	/* in the step's folder */
	const char *path;
	struct ck_src *src;	/* until the index has it; NULL = missing */
	uint64_t bytes;
	int32_t rank;		/* by its name; -1 = none */
	uint32_t source;	/* of the index */
	uint64_t items;		/* that are in it */
};

struct dcp_part {
	const char *sub;	/* its folder in the step; "" = the step's own */
	const char *path;	/* of its '.metadata' */
	struct ck_tree tree;
	struct ck_pkl doc;
	struct ck_src *src;	/* of '.metadata', until the index has it */
	uint64_t bytes;
	struct ck_map by_place;	/* name and offsets of a chunk -> number in 'place' */
	struct dcp_place *place;
	uint64_t nplaces, place_cap;
};

/* Parameters that have the same hyper-parameters. */
struct dcp_group {
	struct ck_val *hyper;	/* dictionary */
	double step, least;	/* the greatest count of its parameters, and the least */
	bool has_step;
};

/* A parameter that the optimizer calls by a number. */
struct dcp_number {
	const char *name;	/* "12" */
	uint32_t group;
	uint64_t at;		/* in the group's list */
};

struct dcp {
	const struct ck_input *in;
	struct ck_index *ix;
	struct ck_findings *f;
	struct ck_arena arena;
	struct ck_step_place at;
	struct dcp_part part[DCP_PARTS];
	uint32_t nparts;
	struct dcp_item *item;
	uint64_t nitems, item_cap;
	struct ck_map by_flat;	/* part and flat name -> item */
	struct dcp_file *file;
	uint64_t nfiles, file_cap;
	struct ck_map by_file;	/* name -> file */
	const char *box;	/* that the model is in */
	const struct ck_val *deepspeed;	/* dictionary of what only DeepSpeed has, or NULL */
	const char *optim;	/* what the optimizer's names begin with, "optimizer."; or NULL */
	bool is_old;		/* the form of torch before 2.4 */
	bool by_parameter;	/* it has its groups' values for each parameter, as torchtitan */
	struct dcp_group *group;
	uint32_t ngroups, group_cap;
	struct dcp_number *number;	/* group by group */
	uint64_t nnumbers, number_cap;
	struct ck_map by_number;	/* name -> number in 'number' */
	const char *unproven;	/* a clause: why it is not known whose the states are */
	struct ck_map group_of;	/* name of a parameter -> number in 'group' */
	struct ck_map has_state;	/* names of parameters that have a state */
	struct ck_map frozen, buffers, tied;	/* names that 'deepspeed' lists */
	struct ck_map by_sums;	/* blocks with their CRC-32s -> a trained tensor of the index */
	pthread_mutex_t lock;	/* of 'f' and 'held', while items are read */
	uint64_t held;		/* bytes of the values that are open */
};

extern const struct ck_format ck_format_dcp;

/* ---- dcp_format.c ---- */

/* Nothing is read yet. */
struct dcp *ck_dcp_new(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
		       struct ckpt_err *err);
/* Of a struct dcp, with its files; NULL is fine. */
void ck_dcp_free(void *of);
/* Does a name begin as those that accelerate gives to a part's folder? */
bool ck_dcp_is_part_folder(const char *name);

/* ---- dcp_meta.c ---- */

/* Read '.metadata' of a part: its items and the places of their chunks.  Reads no data file. */
int ck_dcp_meta_read(struct dcp *d, struct dcp_part *part, struct ckpt_err *err);

/* ---- dcp_items.c ---- */

/* Open the data files, then look at each archive that an item names, by threads. */
int ck_dcp_items_read(struct dcp *d, struct ckpt_err *err);
/* Of files that are open: only values, and tensors of one element. */
int ck_dcp_values_read(struct dcp *d, struct ckpt_err *err);
/* What the archive of a value is; NULL if it could not be read, or it is a tensor. */
const struct ck_val *ck_dcp_value_of(const struct dcp_item *it);
/* NULL is fine. */
void ck_dcp_value_close(struct dcp_value *v);

/* ---- dcp_names.c ---- */

/* What each item is, and whose. */
int ck_dcp_names_find(struct dcp *d, struct ckpt_err *err);
/* 'n' bytes of a name without what wrappers of modules add; NULL without memory. */
const char *ck_dcp_name_clean(struct dcp *d, const char *name, size_t n);

/* ---- dcp_groups.c ---- */

/* The optimizer's param groups, and facts about them. */
int ck_dcp_groups_find(struct dcp *d, struct ckpt_err *err);

/* ---- dcp_numbers.c ---- */

/* One more of group 'g'. */
int ck_dcp_numbers_add(struct dcp *d, int64_t number, uint32_t g, struct ckpt_err *err);
/*
 * When all are listed: give the states of numbered parameters their names, or say in d->unproven
 * why not.
 */
int ck_dcp_numbers_find(struct dcp *d, struct ckpt_err *err);

/* ---- dcp_index.c ---- */

int ck_dcp_index_fill(struct dcp *d, struct ckpt_err *err);

/* ---- dcp_deepspeed.c ---- */

/* Of a folder that zckpt wrote of a step of DeepSpeed: find what it says of that one. */
int ck_dcp_deepspeed_find(struct dcp *d, struct ckpt_err *err);
/* The first name of a tied weight; NULL: this one is not a second name. */
const char *ck_dcp_deepspeed_tied(const struct dcp *d, const char *name);

/* ---- dcp_step.c ---- */

/* The driver's read_step(): of what index() left in in->kept. */
int ck_dcp_read_step(const struct ck_input *in, const struct ck_index *ix, struct ck_findings *f,
		  struct ck_step *out, struct ckpt_err *err);

/* ---- dcp_tree.c ---- */

/*
 * A dictionary that is filled by paths: 'tree_at' gives, or makes, the one at 'n' steps; NULL
 * without memory, or if a value is on the way.  When it is done, dictionaries with keys 0, 1, ...
 * are lists.
 */
struct ck_val *ck_dcp_tree_new(struct ck_arena *a);
struct ck_val *ck_dcp_tree_at(struct ck_arena *a, struct ck_val *tree, struct ck_val *const *step,
			      uint64_t n);
struct ck_val *ck_dcp_tree_done(struct ck_arena *a, struct ck_val *tree);
/*
 * The client's value goes into a dictionary, by its path.  '*why_out' says why it does not, or is
 * NULL.
 */
int ck_dcp_client_add(struct dcp *d, struct ck_val *root, const struct dcp_item *it,
		      const char **why_out, struct ckpt_err *err);
/* When all are there: dictionaries of items 0, 1, ... become lists. */
void ck_dcp_client_end(struct dcp *d, struct ck_val *root);

/* ---- dcp_values.c ---- */

/* The driver's values(). */
int ck_dcp_values(const struct ck_index *ix, const struct ckpt_limits *limits, uint32_t rank,
		  struct ck_values *out, struct ckpt_err *err);

/* ---- dcp_write.c ---- */

/* The driver's write_step(). */
int ck_dcp_write_step(struct ck_step *step, const struct ck_index *ix,
		   const struct ck_reshard_want *want, struct ck_plan *plan, struct ckpt_err *err);

#endif
