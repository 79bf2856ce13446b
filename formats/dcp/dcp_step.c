/*
 * dcp_step.c -- a step of another form that is written of a DCP folder: the optimizer's groups, the
 * client's values, and the names of the model, as DeepSpeed's files have them.
 *
 * FSDP keeps the fp32 parameter that DeepSpeed calls the master: writers take it from the weight.
 * What the folder does not say has the value that a new engine of DeepSpeed has: no loss scale, no
 * count of samples.  Its gradient clipping stays the engine's own, so no key has it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/step/ck_step_made.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_val_new.h"


/* ---- groups ---- */

/* The optimizer's own order, which is that of the list of a group. */
static int take_params(struct dcp *d, const struct ck_index *ix, struct ck_step *step,
		       struct ckpt_err *err)
{
	for (uint64_t i = 0; i < d->group_of.n; i++)
		step->group[d->group_of.entry[i].value].nparams++;
	for (uint32_t g = 0; g < step->ngroups; g++) {
		struct ck_step_group *to = &step->group[g];

		to->param = ck_arena_zalloc(&d->fs.arena, ((uint64_t)to->nparams + 1) *
					    sizeof(*to->param));
		if (!to->param)
			return ck_fail_nomem(err, "a param group", to->nparams);
		to->nparams = 0;
	}
	for (uint64_t i = 0; i < d->group_of.n; i++) {
		const struct ck_map_entry *e = &d->group_of.entry[i];
		struct ck_step_group *g = &step->group[e->value];
		const struct ck_tensor *t;
		uint32_t tensor;

		if (!ck_index_find(ix, e->key, &tensor) ||
		    ix->tensor[tensor].role != CKPT_ROLE_TRAINABLE)
			continue;
		t = &ix->tensor[tensor];
		g->param[g->nparams++] = (struct ck_step_param){
			.name = t->name, .shape = t->shape, .ndim = t->ndim, .numel = t->numel,
			.tensor = tensor,
		};
		step->nlisted++;
	}
	return 0;
}

/* FusedAdam and DeepSpeedCPUAdam have a key that torch's AdamW has not. */
static struct ck_val *hyper_of(struct dcp *d, uint32_t g)
{
	struct ck_val *hyper = ck_val_new_dict(&d->fs.arena), *const *item;
	uint64_t n = 0;

	ck_val_pairs(d->group[g].hyper, &item, &n);
	for (uint64_t i = 0; i < n; i++)
		if (ck_step_ds_has_key(d->deepspeed, g, ck_val_str(item[2 * i])))
			hyper = ck_val_dict_add(&d->fs.arena, hyper, item[2 * i], item[2 * i + 1]);
	if (!d->deepspeed && !ck_val_get(hyper, "bias_correction"))
		hyper = ck_val_dict_sets(&d->fs.arena, hyper, "bias_correction",
					 ck_val_new_bool(&d->fs.arena, true));
	return hyper;
}

static int take_values(struct dcp *d, struct ck_step *step, uint32_t g, struct ckpt_err *err)
{
	struct ck_arena *a = &d->fs.arena;
	struct ck_step_group *to = &step->group[g];
	struct ck_val *entry = ck_val_new_dict(a);

	to->hyper = hyper_of(d, g);
	if (d->group[g].has_step && d->group[g].step >= 0 && d->group[g].step < 1e15)
		entry = ck_val_dict_sets(a, entry, "step",
					 ck_val_new_int(a, (int64_t)d->group[g].step));
	for (uint32_t i = 0; i < step->nstates; i++)
		entry = ck_val_dict_sets(a, entry, step->state[i], ck_val_new_none(a));
	to->entry = entry;
	return to->hyper && entry ? 0 : ck_fail_nomem(err, "a param group", 0);
}

static void compare_counts(const struct dcp *d, struct ck_step *step)
{
	for (uint32_t g = 0; g < d->ngroups; g++)
		if (d->group[g].has_step && d->group[g].least != d->group[g].step)
			ck_findings_add(step->f, CK_FINDING_NOT_CARRIED, d->fs.at.where,
					"the counts of steps of group %u's parameters: they differ "
					"(%.17g to %.17g), and all get the greatest", g,
					d->group[g].least, d->group[g].step);
}

/* A run in 16 bits has no fp32 masters. */
static void note_masters(const struct dcp *d, struct ck_step *step)
{
	const char *first = NULL;
	uint64_t n = 0, g;

	for (uint64_t i = 0; i < d->fs.nitems; i++) {
		const struct dcp_item *it = &d->fs.item[i];

		if (it->use != DCP_MODEL || ckpt_dtype_bits((enum ckpt_dtype)it->dtype) != 16 ||
		    !ck_map_find(&d->group_of, it->name, strlen(it->name), &g))
			continue;
		first = first ? first : it->name;
		n++;
	}
	if (n && !ck_step_ds_type(d->deepspeed, "master_dtype"))
		ck_findings_add(&step->for_others, CK_FINDING_FORMAT_NOTE, first,
				"%" PRIu64 " parameters have 16 bits and no fp32 masters: where "
				"the result needs masters they are the weights, widened", n);
}

static int take_groups(struct dcp *d, const struct ck_index *ix, struct ck_step *step,
		       struct ckpt_err *err)
{
	int rc;

	step->ngroups = d->ngroups;
	step->group = ck_arena_zalloc(&d->fs.arena, ((uint64_t)d->ngroups + 1) *
				      sizeof(*step->group));
	if (!step->group)
		return ck_fail_nomem(err, "param groups", d->ngroups);
	rc = take_params(d, ix, step, err);
	if (!rc)
		rc = ck_step_made_states(ix, &d->fs.arena, step, err);
	for (uint32_t g = 0; !rc && g < step->ngroups; g++)
		rc = take_values(d, step, g, err);
	if (!rc)
		compare_counts(d, step);
	if (!rc)
		note_masters(d, step);
	return rc;
}

/* ---- the client's values ---- */

static int add_client(struct dcp *d, struct ck_step *step, struct ck_val *root,
		      const struct dcp_item *it, struct ckpt_err *err)
{
	struct ck_val *const *part;
	const char *why = NULL;
	uint64_t n;
	int rc = 0;

	if (ck_val_seq(it->path, &part, &n) && n && ck_val_str(part[0]) &&
	    ck_step_ds_is_reserved(ck_val_str(part[0])))
		why = "DeepSpeed's files have a value of this name";
	else
		rc = ck_dcp_client_add(d, root, it, &why, err);
	if (!rc && why)
		ck_findings_add(&step->for_others, CK_FINDING_NOT_CARRIED, it->flat, "%s", why);
	return rc;
}

/* ---- the model's tree ---- */

static int make_model(struct dcp *d, const struct ck_index *ix, struct ck_step *step,
		      struct ckpt_err *err)
{
	int rc = ck_step_made_model(ix, &d->fs.arena, step, err);

	for (uint64_t i = 0; !rc && i < d->fs.nitems; i++)
		if (d->fs.item[i].use == DCP_OTHER && strcmp(d->fs.item[i].flat, "deepspeed"))
			rc = add_client(d, step, step->model, &d->fs.item[i], err);
	if (!rc && !ck_val_get(step->model, "lr_scheduler"))
		rc = ck_val_dict_sets(&d->fs.arena, step->model, "lr_scheduler",
				      ck_val_new_none(&d->fs.arena)) ? 0 :
		     ck_fail_nomem(err, "a scheduler", 0);
	if (!rc)
		ck_dcp_client_end(d, step->model);
	return rc;
}

int ck_dcp_read_step(const struct ck_input *in, const struct ck_index *ix, struct ck_findings *f,
		  struct ck_step *out, struct ckpt_err *err)
{
	struct dcp *d = in->kept->of;
	int rc;

	d->fs.in = in;
	d->fs.f = f;
	*out = (struct ck_step){
		.in = in, .f = f, .arena = &d->fs.arena, .format = &ck_format_dcp, .at = d->fs.at,
		.tag = ck_step_made_tag(d->fs.ix, &d->fs.arena),
		.world = d->fs.ix->world ? d->fs.ix->world : 1, .stage = 2,
		.version = { 0, 19, 8 }, .bare_module = true, .frozen_listed = true,
		.reordered = true, .from = d,
	};
	if (!out->tag)
		return ck_fail_nomem(err, "a name", 0);
	if (d->unproven)
		return ck_fail(err, CKPT_E_UNSUPPORTED, d->fs.at.where, CKPT_NO_OFFSET,
			       "the optimizer numbers its parameters, and its states %s, so no "
			       "step can be made with them; zckpt convert writes the weights, and "
			       "zckpt shard begins a run with them", d->unproven);
	if (!d->ngroups || !d->group_of.n)
		return ck_fail(err, CKPT_E_INCOMPLETE, d->fs.at.where, CKPT_NO_OFFSET,
			       "the checkpoint has no optimizer by names, and a step needs one; "
			       "zckpt convert writes its weights, and zckpt shard begins a run "
			       "with them");
	rc = take_groups(d, ix, out, err);
	if (!rc)
		rc = ck_step_made_scaler(&d->fs.arena, out, err);
	if (!rc)
		rc = make_model(d, ix, out, err);
	return rc ? rc : ck_step_ds_fill(d->deepspeed, &d->fs.arena, out, err);
}
