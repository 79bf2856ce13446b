/*
 * ck_uni.h -- private to formats/universal: DeepSpeed's universal checkpoint while it is read.
 *
 * Its model files are DeepSpeed's own, so names, shapes, groups, buffers and frozen parameters come
 * as formats/ds_pt reads them; here are the folders of parameters (docs/formats/universal.md).
 */
#ifndef CK_UNI_H
#define CK_UNI_H

#include "formats/ds_pt/ck_ds.h"
#include "formats/ds_pt/ds_write.h"

/* A file NAME.pt in a parameter's folder. */
struct uni_file {
	struct ds_file file;
	struct ds_slice slice;	/* its first elements; dtype 0 = there is none */
	struct uni_param *of;
	const char *state;	/* "fp32", "exp_avg", "step", ... */
	double step;		/* of "step" */
	bool has_step;
};

struct uni_param {
	struct ds_param *p;
	struct uni_file *file;	/* fp32 first, then as listed */
	uint32_t nfiles;
	bool leads;		/* its group: a step has the group's count from here */
};

struct uni {
	struct ds_step ds;	/* of the model files; first, for those who are given that */
	struct ds_file optim;	/* zero/optimizer_state.pt */
	struct ck_val *optim_root;	/* NULL = not read */
	struct uni_param **group;	/* group[g][i] is ds.group[g].param[i] */
	struct uni_file *file;	/* of all parameters */
	uint64_t nfiles, nparams;
};

/* uni_load.c: list and read the files below 'zero'. */
int ck_uni_load(struct uni *u, struct ckpt_err *err);
void ck_uni_release(struct uni *u);
int ck_uni_open_optimizer(struct uni *u, struct ckpt_err *err);
/* uni_par.c: the model files of a tensor or pipeline parallel run, whose tensors become those of
 * the index; u->ds has what they say alike. */
int ck_uni_read_parallel(struct uni *u, struct ckpt_err *err);
/* Is there a tensor of that name in a model file? */
bool ck_uni_in_module(const struct uni *u, const char *name);
/* The type the model computes in, as its configuration says it; 0 = it does not. */
enum ckpt_dtype ck_uni_config_dtype(const struct uni *u);
/* The file of a state, or NULL. */
struct uni_file *ck_uni_file(const struct uni_param *p, const char *state);

/* uni_step.c: the optimizer's, or NULL; a slot of the driver (ck_format.h). */
struct ck_val *ck_uni_param_groups(const struct uni *u);
int ck_uni_read_step(const struct ck_input *in, const struct ck_index *ix, struct ck_findings *f,
		     struct ck_step *out, struct ckpt_err *err);
/* How tensor ranks cut a parameter, for DeepSpeed's loader. */
struct uni_cut {
	int axis;		/* cat_dim; -1 = it is left out */
	uint32_t parts;		/* param_n_sub_params; 0 = it is left out */
	bool vocabulary;
};

/* uni_write.c: pieces of the form, and the slot. */
int ck_uni_write_param(struct wr *w, const struct ck_step_param *p, const struct ck_val *entry,
		       const struct uni_cut *cut, struct ckpt_err *err);
int ck_uni_write_optimizer(struct wr *w, struct ckpt_err *err);
int ck_uni_check_version(const struct wr *w, struct ckpt_err *err);
/* Findings of what DeepSpeed's loader will not take. */
void ck_uni_tell_drops(struct wr *w);
/* uni_write_par.c: of a tensor or pipeline parallel step. */
int ck_uni_write_parallel(struct ck_step *step, const struct ck_reshard_want *want,
			  struct ck_plan *plan, struct ckpt_err *err);
int ck_uni_write_step(struct ck_step *step, const struct ck_index *ix,
		      const struct ck_reshard_want *want, struct ck_plan *plan,
		      struct ckpt_err *err);

extern const struct ck_format ck_format_universal;

#endif
