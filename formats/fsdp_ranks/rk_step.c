/*
 * rk_step.c -- a step of another form that is written of rank files: the optimizer's groups, the
 * scheduler and the client's values, and the names of the model, as DeepSpeed's files have them.
 *
 * FSDP keeps the fp32 parameter that DeepSpeed calls the master: writers take it from the weight.
 * What the files do not say has the value that a new engine of DeepSpeed has: no loss scale, no
 * count of samples.  The optimizer has to be complete: a state whose parameter no file proves stops
 * the step, since a run that resumes without it would diverge.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/fsdp_ranks/rk.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/step/ck_step_made.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_val_new.h"

#define INSTEAD "; zckpt convert writes the weights, and zckpt shard begins a run with them"

/* ---- is the optimizer complete? ---- */

static int check_optimizer(const struct rk *r, struct ckpt_err *err)
{
	uint64_t listed = 0, with_state = 0;

	if (!r->ngroups || !r->nids)
		return ck_fail(err, CKPT_E_INCOMPLETE, r->where, CKPT_NO_OFFSET,
			       "the folder has no file of the optimizer, and a step needs one"
			       INSTEAD);
	if (r->unproven)
		return ck_fail(err, CKPT_E_INCOMPLETE, r->where, CKPT_NO_OFFSET,
			       "the optimizer numbers its parameters, and its states %s, so no "
			       "step can be made with them" INSTEAD, r->unproven);
	if (r->nlost)
		return ck_fail(err, CKPT_E_INCOMPLETE, r->where, CKPT_NO_OFFSET,
			       "%" PRIu64 " states of the optimizer are left out, as the findings "
			       "say, and a step needs all" INSTEAD, r->nlost);
	for (uint64_t i = 0; i < r->ntensors; i++)
		listed += r->tensor[i].group >= 0;
	for (uint64_t i = 0; i < r->nids; i++)
		with_state += r->id[i].has_state;
	if (!listed || (!with_state && !r->deepspeed))
		return ck_fail(err, CKPT_E_INCOMPLETE, r->where, CKPT_NO_OFFSET,
			       "the optimizer has no states (the save of a run before its first "
			       "step?), so no file says which parameters it has" INSTEAD);
	return 0;
}

/* A group of DeepSpeed has one count. */
static void compare_counts(const struct rk *r, struct ck_step *step)
{
	for (uint32_t g = 0; g < r->ngroups; g++)
		if (r->group[g].has_step && r->group[g].least != r->group[g].step)
			ck_findings_add(step->f, CK_FINDING_NOT_CARRIED, r->where,
					"the counts of steps of group %u's parameters: they differ "
					"(%.17g to %.17g), and all get the greatest", g,
					r->group[g].least, r->group[g].step);
}

/* A run in 16 bits has no fp32 masters. */
static void note_masters(const struct rk *r, struct ck_step *step)
{
	const char *first = NULL;
	uint64_t n = 0;

	for (uint64_t i = 0; i < r->ntensors; i++) {
		const struct rk_tensor *t = &r->tensor[i];

		if (t->group < 0 || ckpt_dtype_bits((enum ckpt_dtype)t->weight.dtype) != 16)
			continue;
		first = first ? first : t->name;
		n++;
	}
	if (n)
		ck_findings_add(&step->for_others, CK_FINDING_FORMAT_NOTE, first,
				"%" PRIu64 " parameters have 16 bits and no fp32 masters: where "
				"the result needs masters they are the weights, widened", n);
}

/* verl's "huggingface": files of the model's folder; those of the step's own folder go along. */
static void note_files(const struct rk *r, struct ck_step *step)
{
	const struct ck_tree_entry *e;

	for (uint64_t i = 0; *r->sub && i < r->tree.n; i++) {
		e = &r->tree.entry[i];
		if (!e->is_odd && !ck_format_fsdp_ranks.is_part(e->name, e->is_dir))
			ck_findings_add(step->f, CK_FINDING_NOT_CARRIED, e->path,
					"it is in the folder of the model, and no file of a rank");
	}
}

/* ---- groups ---- */

struct ordered {
	uint64_t entry;
	uint32_t tensor;
};

static int by_entry(const void *a, const void *b)
{
	const struct ordered *x = a, *y = b;

	if (x->entry != y->entry)
		return x->entry < y->entry ? -1 : 1;
	return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

static int add_param(struct rk *r, const struct ck_index *ix, struct ck_step *step,
		     const struct rk_tensor *from, struct ckpt_err *err)
{
	struct ck_step_group *g = &step->group[from->group];
	const struct ck_tensor *t = &ix->tensor[from->number];

	if (t->role != CKPT_ROLE_TRAINABLE)
		return 0;
	if (!g->param)
		g->param = ck_arena_zalloc(&r->arena, (r->ntensors + 1) * sizeof(*g->param));
	if (!g->param)
		return ck_fail_nomem(err, "a param group", r->ntensors);
	g->param[g->nparams++] = (struct ck_step_param){
		.name = t->name, .shape = t->shape, .ndim = t->ndim, .numel = t->numel,
		.tensor = from->number,
	};
	step->nlisted++;
	return 0;
}

/* The optimizer's own order: that of its numbers; in a unit of FSDP1 that of the model. */
static int take_params(struct rk *r, const struct ck_index *ix, struct ck_step *step,
		       struct ckpt_err *err)
{
	struct ordered *all = ck_alloc_array(r->ntensors + 1, sizeof(*all));
	uint64_t n = 0;
	int rc = 0;

	if (!all)
		return ck_fail_nomem(err, "param groups", r->ntensors);
	for (uint32_t i = 0; i < r->ntensors; i++)
		if (r->tensor[i].group >= 0)
			all[n++] = (struct ordered){ r->tensor[i].entry, i };
	if (n)
		qsort(all, n, sizeof(*all), by_entry);
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = add_param(r, ix, step, &r->tensor[all[i].tensor], err);
	ck_free(all);
	return rc;
}

/* FusedAdam and DeepSpeedCPUAdam have a key that torch's AdamW has not. */
static struct ck_val *hyper_of(struct rk *r, uint32_t g)
{
	struct ck_val *hyper = ck_val_new_dict(&r->arena), *const *item;
	uint64_t n = 0;

	ck_val_pairs(r->group[g].hyper, &item, &n);
	for (uint64_t i = 0; i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);

		if (key && strcmp(key, "params") && strcmp(key, "param_names") &&
		    ck_step_ds_has_key(r->deepspeed, g, key))
			hyper = ck_val_dict_add(&r->arena, hyper, item[2 * i], item[2 * i + 1]);
	}
	if (!r->deepspeed && !ck_val_get(hyper, "bias_correction"))
		hyper = ck_val_dict_sets(&r->arena, hyper, "bias_correction",
					 ck_val_new_bool(&r->arena, true));
	return hyper;
}

static int take_values(struct rk *r, struct ck_step *step, uint32_t g, struct ckpt_err *err)
{
	struct ck_arena *a = &r->arena;
	struct ck_step_group *to = &step->group[g];
	struct ck_val *entry = ck_val_new_dict(a);

	to->hyper = hyper_of(r, g);
	if (r->group[g].has_step && r->group[g].step >= 0 && r->group[g].step < 1e15)
		entry = ck_val_dict_sets(a, entry, "step",
					 ck_val_new_int(a, (int64_t)r->group[g].step));
	for (uint32_t i = 0; i < step->nstates; i++)
		entry = ck_val_dict_sets(a, entry, step->state[i], ck_val_new_none(a));
	to->entry = entry;
	return to->hyper && entry ? 0 : ck_fail_nomem(err, "a param group", 0);
}

static int take_groups(struct rk *r, const struct ck_index *ix, struct ck_step *step,
		       struct ckpt_err *err)
{
	int rc;

	step->ngroups = r->ngroups;
	step->group = ck_arena_zalloc(&r->arena, ((uint64_t)r->ngroups + 1) * sizeof(*step->group));
	if (!step->group)
		return ck_fail_nomem(err, "param groups", r->ngroups);
	rc = take_params(r, ix, step, err);
	if (!rc)
		rc = ck_step_made_states(ix, &r->arena, step, err);
	for (uint32_t g = 0; !rc && g < step->ngroups; g++)
		rc = take_values(r, step, g, err);
	return rc;
}

/* ---- the model's tree ---- */

static int make_model(struct rk *r, const struct ck_index *ix, struct ck_step *step,
		      struct ckpt_err *err)
{
	int rc = ck_step_made_model(ix, &r->arena, step, err);

	if (!rc && !ck_val_dict_sets(&r->arena, step->model, "lr_scheduler",
				     ck_val_new_none(&r->arena)))
		rc = ck_fail_nomem(err, "a scheduler", 0);
	return rc;
}

int ck_rk_read_step(const struct ck_input *in, const struct ck_index *ix, struct ck_findings *f,
		 struct ck_step *out, struct ckpt_err *err)
{
	struct rk *r = in->kept->of;
	int rc;

	r->in = in;
	r->f = f;
	*out = (struct ck_step){
		.in = in, .f = f, .arena = &r->arena, .format = &ck_format_fsdp_ranks,
		.at = r->at, .tag = ck_step_made_tag(ix, &r->arena),
		.world = r->world ? r->world : 1, .stage = 2,
		.version = { 0, 19, 8 }, .bare_module = true, .frozen_listed = true,
		.reordered = true, .from = r,
	};
	if (!out->tag)
		return ck_fail_nomem(err, "a name", 0);
	rc = check_optimizer(r, err);
	if (!rc)
		rc = take_groups(r, ix, out, err);
	if (!rc)
		compare_counts(r, out);
	if (!rc)
		note_masters(r, out);
	if (!rc)
		note_files(r, out);
	if (!rc)
		rc = ck_step_made_scaler(&r->arena, out, err);
	if (!rc)
		rc = make_model(r, ix, out, err);
	return rc ? rc : ck_rk_extra_fill(r, out, err);
}
