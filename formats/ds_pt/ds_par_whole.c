/*
 * ds_par_whole.c -- a tensor or pipeline parallel step as one without such parallelism.
 *
 * Tensors are those of the whole index.  Param groups are the stages' groups of the same number,
 * one stage after the other; what two stages share is of the lower one.  Values are those of the
 * first position.
 */
#include <string.h>

#include "formats/ds_pt/ds_par.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/step/ck_step_made.h"
#include "libckpt/tensor/ck_val_new.h"

/* Keys that say how the run was divided, or what a whole step says otherwise. */
static void drop_division(struct ck_val *model)
{
	static const char *const key[] = {
		"universal_checkpoint_info", "checkpoint_parallel_dimensions", "param_shapes",
		"shared_params", "frozen_param_fragments", "num_layers",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(key); i++)
		ck_val_dict_drop(model, key[i]);
}

static struct ck_val *without_division(struct ck_arena *a, const struct ck_val *config)
{
	struct ck_val *own = ck_val_clone(a, config);

	if (own)
		ck_val_dict_drop(own, "tensor_parallel");
	return own;
}

int ck_ds_par_whole_model(struct ck_step *step, const struct ck_reshard_want *want,
			  struct ckpt_err *err)
{
	const struct ds_step *whole = step->from, *first = whole->parts->pos[0].ds;
	const struct ck_val *config = ck_val_get(first->model, "ds_config");
	struct ck_arena *a = step->arena;
	struct ck_val *model = ck_val_dict_sets(a, ck_val_clone(a, first->model), "mp_world_size",
						ck_val_new_int(a, 1));

	if (want->target->has_slices && whole->parts->npp > 1)
		return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET,
			       "DeepSpeed's pipelines load a file for each layer, so the %u "
			       "stages of the step are not joined in DeepSpeed's own forms (--to "
			       "dcp, native or fsdp-ranks joins them)", whole->parts->npp);
	if (model)
		drop_division(model);
	if (ck_val_get(config, "tensor_parallel"))
		model = ck_val_dict_sets(a, model, "ds_config", without_division(a, config));
	if (!model)
		return ck_fail_nomem(err, "a step", 0);
	step->model = model;
	step->parallel = false;
	step->bare_module = true;
	step->frozen_listed = true;
	step->reordered = true;
	step->has_rank = NULL;
	step->open_rank = NULL;
	step->close_rank = NULL;
	return ck_step_made_names(whole->ix, a, step, err);
}

/* ---- param groups of the stages ---- */

struct joining {
	const struct ds_step *whole;
	struct ck_step *out;
	struct ck_step *stage;	/* by pipeline stage */
	bool *taken;		/* by tensor of the whole index */
};

static int read_stages(struct joining *j, struct ckpt_err *err)
{
	struct ds_par *par = j->whole->parts;
	int rc = 0;

	for (uint32_t pp = 0; !rc && pp < par->npp; pp++) {
		struct ds_pos *pos = ck_ds_pos(par, pp, 0);

		pos->ds->in = j->whole->in;
		pos->ds->f = j->whole->f;
		rc = par->fill(pos->ds, &pos->ix, &j->stage[pp], err);
		if (!rc && j->stage[pp].complete)
			rc = j->stage[pp].complete(&j->stage[pp], err);
	}
	return rc;
}

static int count_groups(struct joining *j, struct ckpt_err *err)
{
	struct ck_step *out = j->out;

	out->nlisted = 0;
	out->ngroups = 0;
	for (uint32_t pp = 0; pp < j->whole->parts->npp; pp++) {
		if (j->stage[pp].ngroups > out->ngroups)
			out->ngroups = j->stage[pp].ngroups;
		out->nlisted += j->stage[pp].nlisted;
	}
	out->group = ck_arena_zalloc(out->arena,
				     ((uint64_t)out->ngroups + 1) * sizeof(*out->group));
	return out->group ? 0 : ck_fail_nomem(err, "groups", out->ngroups);
}

static int take_param(struct joining *j, struct ck_step_group *to, const char *name,
		      struct ckpt_err *err)
{
	const struct ck_index *ix = j->whole->ix;
	const struct ck_tensor *t;
	uint32_t tensor;

	if (!ck_index_find(ix, name, &tensor))
		return ck_fail(err, CKPT_E_INCOMPLETE, name, CKPT_NO_OFFSET,
			       "a tensor rank lacks this parameter");
	if (ix->tensor[tensor].role == CKPT_ROLE_ALIAS)
		tensor = (uint32_t)ix->tensor[tensor].alias_of;
	if (j->taken[tensor]) {
		j->out->nlisted--;
		return 0;
	}
	j->taken[tensor] = true;
	t = &ix->tensor[tensor];
	to->param[to->nparams++] = (struct ck_step_param){
		.name = t->name, .shape = t->shape, .ndim = t->ndim, .tensor = tensor,
		.numel = t->numel,
	};
	return 0;
}

/* A stage's values of a group; tensors among them are in its own files. */
static struct ck_val *entry_of(const struct joining *j, const struct ck_val *old, uint32_t first)
{
	struct ck_arena *a = j->out->arena;
	struct ck_val *entry = ck_val_new_dict(a);
	struct ck_val *const *item;
	uint64_t n = 0;

	ck_val_pairs(old, &item, &n);
	for (uint64_t i = 0; entry && i < n; i++) {
		const struct ck_tensor_ref *t = ck_val_tensor(item[2 * i + 1]);
		struct ck_tensor_ref ref;

		if (t) {
			ref = *t;
			ref.storage += first;
		}
		entry = ck_val_dict_set(a, entry, item[2 * i], t ? ck_val_new_tensor(a, &ref) :
					item[2 * i + 1]);
	}
	return entry;
}

/* The first stage that has parameters of the group says its values. */
static int take_values(struct joining *j, uint32_t g, uint32_t pp, struct ckpt_err *err)
{
	const struct ck_step *stage = &j->stage[pp];
	const struct ck_step_group *from = &stage->group[g];
	struct ck_step_group *to = &j->out->group[g];
	uint32_t first = 0;

	for (uint32_t i = 0; i < pp; i++)
		for (uint32_t k = 0; k < j->stage[i].nfiles; k++)
			first += (uint32_t)j->stage[i].file[k].pt->nstorages;
	to->hyper = from->hyper;
	to->key = from->key;
	to->entry = from->entry ? entry_of(j, from->entry, first) : NULL;
	return from->entry && !to->entry ? ck_fail_nomem(err, "an optimizer", g) : 0;
}

static int join_group(struct joining *j, uint32_t g, struct ckpt_err *err)
{
	struct ck_step_group *to = &j->out->group[g];
	uint64_t room = 0;
	int rc = 0;

	for (uint32_t pp = 0; pp < j->whole->parts->npp; pp++)
		room += g < j->stage[pp].ngroups ? j->stage[pp].group[g].nparams : 0;
	to->param = ck_arena_zalloc(j->out->arena, (room + 1) * sizeof(*to->param));
	if (!to->param)
		return ck_fail_nomem(err, "parameters", room);
	for (uint32_t pp = 0; !rc && pp < j->whole->parts->npp; pp++) {
		const struct ck_step_group *from = g < j->stage[pp].ngroups ?
						   &j->stage[pp].group[g] : NULL;

		if (!from)
			continue;
		if (!to->hyper || (!to->nparams && from->nparams))
			rc = take_values(j, g, pp, err);
		for (uint32_t i = 0; !rc && i < from->nparams; i++)
			rc = take_param(j, to, from->param[i].name, err);
	}
	return rc;
}

/* Of all stages one after the other; a stage's values are in its own. */
static int join_files(struct joining *j, struct ckpt_err *err)
{
	struct ck_step *out = j->out;
	uint64_t n = 0;

	for (uint32_t pp = 0; pp < j->whole->parts->npp; pp++)
		n += j->stage[pp].nfiles;
	out->nfiles = 0;
	out->file = ck_arena_zalloc(out->arena, (n + 1) * sizeof(*out->file));
	if (!out->file)
		return ck_fail_nomem(err, "a list of files", n);
	for (uint32_t pp = 0, first = 0; pp < j->whole->parts->npp; pp++)
		for (uint32_t k = 0; k < j->stage[pp].nfiles; k++) {
			struct ck_step_file *file = &out->file[out->nfiles++];

			*file = j->stage[pp].file[k];
			file->first = first;
			first += (uint32_t)file->pt->nstorages;
		}
	return 0;
}

static bool is_listed(const struct ck_step *step, const struct ck_step_unjoined *one)
{
	for (uint32_t i = 0; i < step->nunjoined; i++)
		if (step->unjoined[i].group == one->group &&
		    !strcmp(step->unjoined[i].state, one->state))
			return true;
	return false;
}

/* Stages have the same states that do not join, and each is listed once. */
static int join_unjoined(struct joining *j, struct ckpt_err *err)
{
	struct ck_step *out = j->out;
	uint64_t n = 0;

	for (uint32_t pp = 0; pp < j->whole->parts->npp; pp++)
		n += j->stage[pp].nunjoined;
	out->nunjoined = 0;
	out->unjoined = ck_arena_zalloc(out->arena, (n + 1) * sizeof(*out->unjoined));
	if (!out->unjoined)
		return ck_fail_nomem(err, "a list of states", n);
	for (uint32_t pp = 0; pp < j->whole->parts->npp; pp++)
		for (uint32_t i = 0; i < j->stage[pp].nunjoined; i++)
			if (!is_listed(out, &j->stage[pp].unjoined[i]))
				out->unjoined[out->nunjoined++] = j->stage[pp].unjoined[i];
	return 0;
}

int ck_ds_par_whole(struct ck_step *step, const struct ck_reshard_want *want,
		    struct ckpt_err *err)
{
	const struct ds_step *whole = step->from;
	struct joining j = { .whole = whole, .out = step };
	const struct ck_step old = *step;
	int rc;

	j.stage = ck_arena_zalloc(old.arena, (uint64_t)whole->parts->npp * sizeof(*j.stage));
	j.taken = ck_arena_zalloc(old.arena,
				  ((uint64_t)whole->ix->ntensors + 1) * sizeof(*j.taken));
	if (!j.stage || !j.taken)
		return ck_fail_nomem(err, "stages", whole->parts->npp);
	rc = read_stages(&j, err);
	if (rc)
		return rc;
	*step = j.stage[0];
	step->arena = old.arena;
	step->at = old.at;
	step->tag = old.tag;
	step->world = old.world;
	step->format = old.format;
	step->from = old.from;
	step->complete = NULL;
	step->shards = false;
	step->own = NULL;
	rc = count_groups(&j, err);
	for (uint32_t g = 0; !rc && g < step->ngroups; g++)
		rc = join_group(&j, g, err);
	if (!rc)
		rc = join_files(&j, err);
	if (!rc)
		rc = join_unjoined(&j, err);
	return rc ? rc : ck_ds_par_whole_model(step, want, err);
}
