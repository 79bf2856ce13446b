/*
 * rk_out.h -- private to formats/fsdp_ranks: writing rank files (docs/formats/fsdp-ranks.md,
 * "Written").
 */
#ifndef RK_OUT_H
#define RK_OUT_H

#include "formats/fsdp_ranks/rk.h"
#include "formats/torch_pt/ck_pt_plan.h"
#include "libckpt/format/ck_plan.h"

/* How torch pickles a device mesh: the first version of each form. */
enum rk_form {
	RK_FORM_2_6 = 1,	/* mesh, _dim_group_infos */
	RK_FORM_2_8,		/* mesh, _dim_group_names */
	RK_FORM_2_11,		/* _layout of shape and stride, _rank_map */
	RK_FORM_2_15,		/* _layout of axes, _rank_map */
};

/* A name of the model. */
struct rk_named {
	const char *name;
	uint32_t tensor;	/* in the index; of a tied name the first one */
	uint32_t state;
	bool sharded;
};

#define RK_MOST_KEYS 32u

/* What every DTensor of a file has, made at its first mention: a pickle has it once. */
struct rk_shared {
	struct ck_val *mesh, *placements, *order, *layout, *device;
	struct rk_key {
		const char *text;
		struct ck_val *v;
	} key[RK_MOST_KEYS];
	uint32_t nkeys;
};

struct rk_out {
	struct ck_step *step;
	const struct ck_index *ix;
	const struct ck_reshard_want *want;
	struct ck_plan *plan;
	const struct rk *source;	/* of a step of rank files, or NULL */
	const char *tag, *dir;		/* the step's folder; where in the result the files are */
	const char *device;		/* of the mesh: "cuda" */
	uint32_t world;
	enum rk_form form;
	struct rk_named *named;
	uint64_t nnamed;
	const char *guessed;		/* the first name that may be a parameter's, or NULL */
	uint64_t nguessed;
	const char *scalar;		/* the first parameter without dimensions, or NULL */
	uint64_t nscalars;
	bool named_optimizer;		/* it needs 'param_names' */
	double *count;			/* [ngroups] steps */
	bool *counted;

	/* ---- of the file that is made ---- */
	uint32_t rank;
	struct ck_arena arena;
	struct ck_pt_part *storage;
	uint64_t nstorages, storage_cap;
	struct rk_shared shared;
	struct ck_map by_state;		/* number of a state -> its storage */
};

/* ---- rk_dtensor.c: values of a file; in its arena, NULL without memory ---- */

/* A whole state as a plain tensor. */
struct ck_val *ck_rk_out_whole(struct rk_out *o, uint32_t tensor, uint32_t state);
/* This rank's rows of a state as a DTensor. */
struct ck_val *ck_rk_out_sharded(struct rk_out *o, uint32_t tensor, uint32_t state);
/* A tensor without dimensions, of one F32. */
struct ck_val *ck_rk_out_number(struct rk_out *o, double v);

/* ---- rk_write_check.c ---- */

/* CKPT_E_USAGE for a pattern that fits no state, CKPT_E_UNSUPPORTED; findings. */
int ck_rk_out_check(const struct rk_out *o, struct ckpt_err *err);

/* ---- rk_write_optim.c ---- */

/* Counts of the groups, and whether the reader needs names. */
int ck_rk_out_prepare(struct rk_out *o, struct ckpt_err *err);
/* {state, param_groups} of this rank. */
struct ck_val *ck_rk_out_optimizer(struct rk_out *o);

/* ---- rk_write_extra.c ---- */

/* {lr_scheduler, ...} of this rank; the same for all but "deepspeed", which is rank 0's. */
struct ck_val *ck_rk_out_extra(struct rk_out *o);
/* Findings for values that no file holds. */
void ck_rk_out_note_values(const struct rk_out *o);

#endif
