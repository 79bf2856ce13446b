/*
 * ds_write_version.c -- what one version of DeepSpeed has in its files and another has not:
 * keys of the model file in their order, attributes of the loss scaler.
 *
 * Source: files of 15 versions, docs/formats/deepspeed.md.
 */
#include <string.h>

#include "formats/ds_pt/ds_write.h"
#include "libckpt/base/ck_err.h"

bool ck_wr_since(const struct wr *w, uint32_t minor, uint32_t patch)
{
	const uint32_t *v = w->t->version;

	return v[0] > 0 || v[1] > minor || (v[1] == minor && v[2] >= patch);
}

struct ck_val *ck_wr_version(struct wr *w)
{
	struct ck_val *old = ck_val_get(w->step->model, "ds_version");

	if (!w->want->version || ck_val_is_str(old, w->want->version))
		return old;
	return ck_val_new_str(&w->arena, w->want->version);
}

/* ---- the model file ---- */

/* Since 0.'minor'.'patch'. */
static const struct {
	const char *name;
	uint32_t minor, patch;
} model_keys[] = {
	{ "module", 0, 0 }, { "buffer_names", 4, 2 }, { "optimizer", 0, 0 },
	{ "param_shapes", 6, 0 }, { "frozen_param_shapes", 9, 1 }, { "shared_params", 9, 2 },
	{ "frozen_param_fragments", 9, 1 }, { "lr_scheduler", 0, 0 }, { "data_sampler", 8, 0 },
	{ "random_ltd", 8, 0 }, { "sparse_tensor_module_names", 5, 5 }, { "skipped_steps", 0, 0 },
	{ "global_steps", 0, 0 }, { "global_samples", 0, 0 }, { "dp_world_size", 0, 0 },
	{ "mp_world_size", 0, 0 }, { "checkpoint_parallel_dimensions", 19, 5 },
	{ "ds_config", 0, 0 }, { "ds_version", 0, 0 },
};

static struct ck_val *degrees(struct wr *w)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *dict = ck_val_dict_sets(a, ck_val_new_dict(a), "pp_degree",
					       ck_val_new_int(a, 1));

	return ck_val_dict_sets(a, dict, "tp_degree", ck_val_new_int(a, 1));
}

/* set([]), as protocol 2 has it. */
static struct ck_val *empty_set(struct ck_arena *a)
{
	struct ck_val *none = ck_val_new_list(a);

	return ck_val_new_object(a, CK_HOW_REDUCE, ck_val_new_global(a, "__builtin__", "set"),
				 ck_val_new_tuple(a, &none, 1));
}

static struct ck_val *dict_or_new(struct wr *w, const struct ck_val *old)
{
	struct ck_val *const *item;
	uint64_t n;

	return ck_val_pairs(old, &item, &n) ? ck_val_clone(&w->arena, old) :
	       ck_val_new_dict(&w->arena);
}

struct ck_val *ck_wr_config(struct wr *w, struct ck_val *old)
{
	const bool flat = (w->t->stage == 1 || w->t->stage == 2) && !w->t->bf16_optimizer;
	struct ck_val *zero = ck_val_get(old, "zero_optimization");
	struct ck_arena *a = &w->arena;
	int64_t round_robin = 0;

	ck_val_int(ck_val_get(zero, "round_robin_gradients"), &round_robin);
	if (!flat || (round_robin != 0) == w->t->round_robin)
		return old ? old : ck_val_new_none(a);
	zero = ck_val_dict_sets(a, dict_or_new(w, zero), "round_robin_gradients",
				ck_val_new_bool(a, w->t->round_robin));
	return ck_val_dict_sets(a, dict_or_new(w, old), "zero_optimization", zero);
}

static struct ck_val *model_value(struct wr *w, const struct ck_val *root, const char *key)
{
	struct ck_val *old = ck_val_get(root, key);

	if (!strcmp(key, "ds_version"))
		return ck_wr_version(w);
	if (!old && !strcmp(key, "sparse_tensor_module_names")) {
		old = ck_val_get(root, "csr_tensor_module_names");	/* before 0.5.5 */
		return old ? old : empty_set(&w->arena);
	}
	if (old)
		return old;
	return strcmp(key, "checkpoint_parallel_dimensions") ? ck_val_new_none(&w->arena) :
	       degrees(w);
}

static bool is_model_key(const char *key)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(model_keys); i++)
		if (!strcmp(model_keys[i].name, key))
			return true;
	return !strcmp(key, "csr_tensor_module_names");
}

/* 0.19.8 gave one up. */
static bool has_model_key(const struct wr *w, size_t i)
{
	return ck_wr_since(w, model_keys[i].minor, model_keys[i].patch) &&
	       !(ck_wr_since(w, 19, 8) &&
		 !strcmp(model_keys[i].name, "sparse_tensor_module_names"));
}

struct ck_val *ck_wr_model_keys(struct wr *w, const struct ck_val *root)
{
	struct ck_val *dict = ck_val_new_dict(&w->arena);
	struct ck_val *const *item;
	uint64_t n;

	for (size_t i = 0; dict && i < CK_ARRAY_LEN(model_keys); i++)
		if (has_model_key(w, i))
			dict = ck_val_dict_sets(&w->arena, dict, model_keys[i].name,
						model_value(w, root, model_keys[i].name));
	if (!ck_val_pairs(root, &item, &n))
		return NULL;
	for (uint64_t i = 0; dict && i < n; i++) {	/* the client's */
		const char *key = ck_val_str(item[2 * i]);

		if (!key || !is_model_key(key))
			dict = ck_val_dict_set(&w->arena, dict, item[2 * i], item[2 * i + 1]);
	}
	return dict;
}

/* ---- the loss scaler ---- */

static bool is_dynamic(const struct ck_val *scaler)
{
	const struct ck_val *fn = scaler && scaler->kind == CK_VAL_OBJECT ? scaler->u.obj->fn :
				  NULL;

	return fn && fn->kind == CK_VAL_GLOBAL && !strcmp(fn->u.global.name, "DynamicLossScaler");
}

static struct ck_val *keep_or(struct ck_arena *a, struct ck_val *state, const char *key,
			      struct ck_val *value)
{
	return ck_val_get(state, key) ? state : ck_val_dict_sets(a, state, key, value);
}

/* Unpickling calls no constructor: an attribute that is not in the file is not there at all. */
struct ck_val *ck_wr_scaler(struct wr *w, struct ck_val *scaler)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *state, *copy, *const *item;
	uint64_t n;

	if (!is_dynamic(scaler) || !ck_val_pairs(scaler->u.obj->state, &item, &n))
		return scaler;
	state = ck_val_clone(a, scaler->u.obj->state);
	state = keep_or(a, state, "last_overflow_iter", ck_val_new_int(a, -1));
	state = keep_or(a, state, "scale_factor", ck_val_new_float(a, 2.0));
	state = keep_or(a, state, "scale_window", ck_val_new_int(a, 1000));
	state = keep_or(a, state, "min_scale", ck_val_new_int(a, 1));
	state = keep_or(a, state, "delayed_shift", ck_val_new_int(a, 1));
	state = keep_or(a, state, "cur_hysteresis", ck_val_new_int(a, 1));
	state = keep_or(a, state, "consecutive_hysteresis", ck_val_new_bool(a, false));
	state = keep_or(a, state, "raise_error_at_min_scale", ck_val_new_bool(a, true));
	state = keep_or(a, state, "dynamic", ck_val_new_bool(a, true));
	state = keep_or(a, state, "dtype", ck_val_new_global(a, "torch", "float16"));
	copy = ck_val_new_object(a, scaler->u.obj->how, scaler->u.obj->fn, scaler->u.obj->args);
	if (copy)
		copy->u.obj->state = state;
	return state ? copy : NULL;
}
