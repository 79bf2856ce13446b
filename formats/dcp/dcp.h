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

#include "formats/dcp_files/ck_dcp_files.h"
#include "libckpt/format/ck_values.h"
#include "libckpt/step/ck_step.h"

/* What an item is. */
enum dcp_use {
	DCP_OTHER = 0,		/* of the client */
	DCP_MODEL,
	DCP_STATE,		/* of the optimizer: 'name' and 'state' say whose and which */
	DCP_GROUP,		/* a value of a param group */
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
	struct dcp_files fs;
	const char *box;	/* that the model is in */
	const struct ck_val *deepspeed;	/* dictionary of what only DeepSpeed has, or NULL */
	const char *optim;	/* what the optimizer's names begin with, "optimizer."; or NULL */
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
