/*
 * ds_from_z0.c -- the optimizer's values of a step of stage 0, one for each of its groups, out of
 * the model file's 'optimizer'.
 *
 * ZeRO keeps one entry of the optimizer's state for all parameters of a group (a flat tensor),
 * stage 0 one for each; so whatever is not cut (the count of steps) must be the same for all
 * of them.  But FusedAdam counts in the last parameter of a group only, and takes that count
 * for all.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/ds_driver.h"
#include "libckpt/base/ck_err.h"

#define SAME_DEPTH 50

static const struct ck_val *wrapper(const struct ds_step *ds)
{
	return ck_val_get(ds->model, "optimizer");
}

static const struct ck_val *torch_groups(const struct ds_step *ds)
{
	const struct ck_val *inner = ck_val_get(wrapper(ds), "optimizer_state_dict");

	return ck_val_get(inner ? inner : wrapper(ds), "param_groups");
}

/* ---- one entry for a group ---- */

static int refuse(const struct ds_param *p, const char *key, const char *why, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_UNSUPPORTED, p->name, CKPT_NO_OFFSET,
		       "'%.60s' of its optimizer state %s", key, why);
}

static bool is_joined(const struct ds_step *ds, const struct ds_param *p, const char *key)
{
	return strcmp(key, "step") && ck_index_state_find(ds->ix, p->tensor, key) != CK_NONE;
}

/* Two numbers, or two values of any other kind but a tensor. */
static int same_value(struct ds_step *ds, const struct ck_val *a, const struct ck_val *b,
		      bool *same_out, struct ckpt_err *err)
{
	bool is_a = false, is_b = false;
	double x = 0, y = 0;
	int rc;

	if (!ck_val_tensor(a) && !ck_val_tensor(b)) {
		*same_out = ck_val_equal(a, b, SAME_DEPTH);
		return 0;
	}
	rc = ck_ds_number_of(ds->model_file, a, &is_a, &x, err);
	if (!rc)
		rc = ck_ds_number_of(ds->model_file, b, &is_b, &y, err);
	*same_out = is_a && is_b && x == y;
	return rc;
}

/* A value that stages 1 to 3 keep once for all parameters of a group. */
static int check_common(struct ds_step *ds, const struct ds_param *p, const char *key,
			const struct ck_val *theirs, const struct ck_val *v, struct ckpt_err *err)
{
	bool is_number = true, same = true;
	double number;
	int rc = 0;

	if (ck_val_tensor(v))
		rc = ck_ds_number_of(ds->model_file, v, &is_number, &number, err);
	if (!rc && !is_number)
		return refuse(p, key, ck_val_tensor(v)->numel == p->numel ?
			      "is left out (zckpt inspect says why), so it cannot be "
			      "re-partitioned" :
			      "does not have the parameter's shape, so it cannot be re-partitioned",
			      err);
	if (!rc && theirs)
		rc = same_value(ds, theirs, v, &same, err);
	if (!rc && !same)
		return refuse(p, key, "differs from that of the first parameter of its group; "
			      "stages 1 to 3 keep one for all", err);
	return rc;
}

/* The entry of 'p' against that of the group's first parameter, which may be itself. */
static int check_entry(struct ds_step *ds, const struct ds_param *first, const struct ds_param *p,
		       bool fused, struct ckpt_err *err)
{
	struct ck_val *const *mine, *const *theirs;
	uint64_t n, m;
	bool skip;
	int rc;

	if (!ck_val_pairs(p->state, &mine, &n) || !ck_val_pairs(first->state, &theirs, &m))
		return p->state == first->state ? 0 :
		       refuse(p, "state", "exists for some parameters of its group only", err);
	for (uint64_t i = 0; i < n; i++) {
		const char *key = ck_val_str(mine[2 * i]);
		const struct ck_val *v = mine[2 * i + 1];

		if (!key || n != m || !ck_val_is_str(theirs[2 * i], key))
			return refuse(p, key ? key : "a key", "differs from that of the first "
				      "parameter of its group", err);
		if (is_joined(ds, p, key) != is_joined(ds, first, key))
			return refuse(p, key, "has the parameter's shape for some parameters of "
				      "its group only", err);
		if (is_joined(ds, p, key))
			continue;
		skip = p == first || (fused && !strcmp(key, "step"));
		rc = check_common(ds, p, key, skip ? NULL : theirs[2 * i + 1], v, err);
		if (rc)
			return rc;
	}
	return n == m ? 0 : refuse(p, "state", "has fewer values than its group's first", err);
}

static int join_group(struct ds_step *ds, const struct ds_group *g, struct ck_val **entry_out,
		      struct ckpt_err *err)
{
	const bool fused = ck_ds_is_fused(ck_val_at(torch_groups(ds), (uint64_t)g->group));
	struct ck_arena *a = &ds->arena;
	struct ck_val *step;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < g->nparams; i++)
		rc = check_entry(ds, &g->param[0], &g->param[i], fused, err);
	if (rc || !g->nparams || !g->param[0].state)
		return rc;
	*entry_out = ck_val_clone(a, g->param[0].state);
	step = ck_val_get(g->param[g->nparams - 1].state, "step");
	if (step)
		*entry_out = ck_val_dict_sets(a, *entry_out, "step", step);
	return *entry_out ? 0 : ck_fail_nomem(err, "a state", 0);
}

/* ---- the rest ---- */

static const struct ck_val *fp16_config(const struct ds_step *ds)
{
	return ck_val_get(ck_val_get(ds->model, "ds_config"), "fp16");
}

static struct ck_val *config_int(struct ds_step *ds, const char *key, int64_t without)
{
	int64_t v = without;

	ck_val_int(ck_val_get(fp16_config(ds), key), &v);
	return ck_val_new_int(&ds->arena, v);
}

/* Before 0.17 a configuration that names none of these gives a scaler without hysteresis. */
static int64_t default_hysteresis(const struct ds_step *ds)
{
	static const char *const keys[] = {
		"initial_scale_power", "loss_scale_window", "min_loss_scale",
		"consecutive_hysteresis",
	};

	if (ds->version[0] || ds->version[1] >= 17)
		return 2;
	for (size_t i = 0; i < CK_ARRAY_LEN(keys); i++)
		if (ck_val_get(fp16_config(ds), keys[i]))
			return 2;
	return 1;
}

/* What the wrapper keeps of it, and what a new run has of the rest. */
static struct ck_val *dynamic_state(struct ds_step *ds)
{
	static const char *const kept[] = {
		"cur_iter", "last_overflow_iter", "scale_factor", "scale_window",
	};
	struct ck_arena *a = &ds->arena;
	struct ck_val *shift = config_int(ds, "hysteresis", default_hysteresis(ds));
	struct ck_val *state = ck_val_new_dict(a);
	int64_t again = 0;

	ck_val_int(ck_val_get(fp16_config(ds), "consecutive_hysteresis"), &again);
	state = ck_val_dict_sets(a, state, "cur_scale", ck_val_get(wrapper(ds), "cur_scale"));
	state = ck_val_dict_sets(a, state, "dynamic", ck_val_new_bool(a, true));
	for (size_t i = 0; i < CK_ARRAY_LEN(kept); i++)
		state = ck_val_dict_sets(a, state, kept[i], ck_val_get(wrapper(ds), kept[i]));
	state = ck_val_dict_sets(a, state, "min_scale", config_int(ds, "min_loss_scale", 1));
	state = ck_val_dict_sets(a, state, "delayed_shift", shift);
	state = ck_val_dict_sets(a, state, "cur_hysteresis", shift);
	state = ck_val_dict_sets(a, state, "consecutive_hysteresis",
				 ck_val_new_bool(a, again != 0));
	state = ck_val_dict_sets(a, state, "raise_error_at_min_scale", ck_val_new_bool(a, true));
	return ck_val_dict_sets(a, state, "dtype", ck_val_new_global(a, "torch", "float16"));
}

static struct ck_val *static_state(struct ds_step *ds)
{
	struct ck_arena *a = &ds->arena;
	struct ck_val *state = ck_val_dict_sets(a, ck_val_new_dict(a), "cur_scale",
						ck_val_get(wrapper(ds), "cur_scale"));

	return ck_val_dict_sets(a, state, "dynamic", ck_val_new_bool(a, false));
}

static struct ck_val *scaler(struct ds_step *ds, bool dynamic)
{
	struct ck_arena *a = &ds->arena;
	struct ck_val *v =
		ck_val_new_object(a, CK_HOW_NEWOBJ,
				  ck_val_new_global(a, "deepspeed.runtime.fp16.loss_scaler",
						    dynamic ? "DynamicLossScaler" : "LossScaler"),
				  ck_val_new_tuple(a, NULL, 0));
	struct ck_val *state = dynamic ? dynamic_state(ds) : static_state(ds);

	if (!v || !state)
		return NULL;
	v->u.obj->state = state;
	return v;
}

static int check_wrapper(struct ds_step *ds, bool dynamic, struct ckpt_err *err)
{
	static const char *const need[] = {
		"cur_scale", "cur_iter", "last_overflow_iter", "scale_factor", "scale_window",
	};

	for (size_t i = 0; dynamic && i < CK_ARRAY_LEN(need); i++)
		if (!ck_val_get(wrapper(ds), need[i]))
			return ck_fail(err, CKPT_E_CORRUPT, ds->model_file->path, CKPT_NO_OFFSET,
				       "'optimizer' has a dynamic loss scale and no '%s'", need[i]);
	for (uint64_t g = 0; ck_val_at(torch_groups(ds), g); g++)
		if (ck_val_get(ck_val_at(torch_groups(ds), g), "use_muon"))
			return ck_fail(err, CKPT_E_UNSUPPORTED, ds->at.where, CKPT_NO_OFFSET,
				       "Muon's momentum at stage 0 differs from its "
				       "momentum with ZeRO, so it cannot be re-partitioned");
	return 0;
}

static int join(struct ck_step *step, struct ckpt_err *err)
{
	struct ds_step *ds = step->from;
	const struct ck_val *opt = wrapper(ds);
	int64_t dynamic = 0;
	int rc;

	ck_val_int(ck_val_get(opt, "dynamic_loss_scale"), &dynamic);
	rc = check_wrapper(ds, dynamic != 0, err);
	for (uint32_t g = 0; !rc && g < step->ngroups; g++) {
		step->group[g].hyper = ck_val_at(torch_groups(ds), g);
		rc = join_group(ds, &ds->group[g], &step->group[g].entry, err);
	}
	if (rc)
		return rc;
	step->clip = ck_val_get(opt, "clip_grad");
	if (!ck_val_get(opt, "cur_scale"))
		return 0;
	step->scaler = scaler(ds, dynamic != 0);
	step->dynamic_scale = ck_val_new_bool(step->arena, dynamic != 0);
	return step->scaler && step->dynamic_scale ? 0 : ck_fail_nomem(err, "a loss scaler", 0);
}

int ck_ds_join_z0(struct ck_step *step, struct ckpt_err *err)
{
	struct ds_step *ds = step->from;
	int rc;

	if (!ds->group)
		return ck_fail(err, CKPT_E_UNSUPPORTED, ds->at.where, CKPT_NO_OFFSET,
			       "stage 0 stores optimizer states without names, and the files do "
			       "not determine all of them; the stage cannot change, the number of "
			       "ranks can");
	ds->model_file->src = ds->ix->source[ds->model_file->source].src;	/* lent */
	rc = join(step, err);
	ds->model_file->src = NULL;
	return rc;
}
