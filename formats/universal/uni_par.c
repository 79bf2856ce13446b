/*
 * uni_par.c -- model files of a tensor or pipeline parallel run beside the folder 'zero'.
 *
 * States are whole there.  Each model file has a rank's part of the weights, so shapes and weights
 * are joined as those of a step are (formats/ds_pt), and a vocabulary without its padding.
 */
#include <string.h>

#include "formats/ds_pt/ds_par.h"
#include "formats/universal/ck_uni.h"
#include "libckpt/base/ck_err.h"

static int read_position(struct ds_step *ds, struct ckpt_err *err)
{
	int rc;

	ds->stage = ds->par->whole->stage;
	rc = ck_ds_load(ds, err);
	if (!rc && !ds->ngroups)
		rc = ck_fail(err, CKPT_E_LAYOUT, ds->model_file->path, CKPT_NO_OFFSET,
			     "LAYOUT_UNSUPPORTED: the model file has no param_shapes, which "
			     "lists the optimizer's parameters");
	for (uint64_t i = 0; !rc && i < ds->nfiles; i++)
		rc = ck_ds_add_source(ds, &ds->file[i], err);
	if (!rc)
		rc = ck_ds_pipe_add_sources(ds, err);
	return rc ? rc : ck_ds_index_model(ds, err);
}

/* What the first position says, all say: ds_par.c compared them. */
static void take_first(struct ds_step *whole)
{
	const struct ds_step *first = whole->parts->pos[0].ds;

	whole->model_file = first->model_file;
	whole->model = first->model;
	whole->world = first->world;
	whole->frozen_listed = first->frozen_listed;
	memcpy(whole->version, first->version, sizeof(whole->version));
}

/* Stages have parts of the same param groups; a tied module is on several of them. */
static uint32_t count_params(const struct ds_par *par, uint32_t g)
{
	uint64_t n = 0;

	for (uint32_t pp = 0; pp < par->npp; pp++) {
		const struct ds_step *ds = ck_ds_pos(par, pp, 0)->ds;

		n += g < ds->ngroups ? ds->group[g].nparams : 0;
	}
	return n < CK_NONE ? (uint32_t)n : CK_NONE;
}

static void take_params(struct ds_step *whole, uint32_t g, bool *taken)
{
	const struct ds_par *par = whole->parts;
	struct ds_group *to = &whole->group[g];

	for (uint32_t pp = 0; pp < par->npp; pp++) {
		const struct ds_step *ds = ck_ds_pos(par, pp, 0)->ds;

		for (uint32_t i = 0; g < ds->ngroups && i < ds->group[g].nparams; i++) {
			const char *name = ds->group[g].param[i].name;
			const struct ck_tensor *t;
			uint32_t tensor;

			/* what did not join has a finding */
			if (!ck_index_find(whole->ix, name, &tensor) || taken[tensor])
				continue;
			taken[tensor] = true;
			t = &whole->ix->tensor[tensor];
			to->param[to->nparams++] = (struct ds_param){
				.name = name, .shape = t->shape, .ndim = t->ndim,
				.tensor = tensor, .numel = t->numel,
			};
		}
	}
}

static int list_groups(struct ds_step *whole, struct ckpt_err *err)
{
	const struct ds_par *par = whole->parts;
	bool *taken = ck_arena_zalloc(&whole->arena, ((uint64_t)whole->ix->ntensors + 1) *
				      sizeof(*taken));

	for (uint32_t pp = 0; pp < par->npp; pp++)
		if (ck_ds_pos(par, pp, 0)->ds->ngroups > whole->ngroups)
			whole->ngroups = ck_ds_pos(par, pp, 0)->ds->ngroups;
	whole->group = ck_arena_zalloc(&whole->arena, ((uint64_t)whole->ngroups + 1) *
				       sizeof(*whole->group));
	if (!whole->group || !taken)
		return ck_fail_nomem(err, "groups", whole->ngroups);
	for (uint32_t g = 0; g < whole->ngroups; g++) {
		struct ds_group *to = &whole->group[g];
		const uint32_t n = count_params(par, g);

		to->group = (int32_t)g;
		to->state_key = g;
		to->param = ck_arena_zalloc(&whole->arena, ((uint64_t)n + 1) * sizeof(*to->param));
		if (!to->param)
			return ck_fail_nomem(err, "parameters", n);
		take_params(whole, g, taken);
	}
	return 0;
}

int ck_uni_read_parallel(struct uni *u, struct ckpt_err *err)
{
	struct ds_step *whole = &u->ds;
	int rc = ck_ds_par_open(whole, err);

	if (!rc)
		rc = ck_ds_par_read(whole->parts, read_position, err);
	if (!rc)
		rc = ck_ds_par_join(whole->parts, err);
	if (rc)
		return rc;
	take_first(whole);
	return list_groups(whole, err);
}

bool ck_uni_in_module(const struct uni *u, const char *name)
{
	const struct ds_par *par = u->ds.parts;
	const size_t n = strlen(name);

	for (uint32_t i = 0; par && i < par->npos; i++)
		if (ck_map_find(&par->pos[i].ds->in_module, name, n, NULL))
			return true;
	return ck_map_find(&u->ds.in_module, name, n, NULL);
}

static bool is_enabled(const struct ck_val *config, const char *key)
{
	int64_t n = 0;

	return ck_val_int(ck_val_get(ck_val_get(config, key), "enabled"), &n) && n;
}

enum ckpt_dtype ck_uni_config_dtype(const struct uni *u)
{
	const struct ck_val *config = ck_val_get(u->ds.model, "ds_config");

	if (is_enabled(config, "bf16") || is_enabled(config, "bfloat16"))
		return CKPT_BF16;
	return is_enabled(config, "fp16") ? CKPT_F16 : (enum ckpt_dtype)0;
}
