/* ck_step_ds.c -- see ck_step_ds.h. */
#include "libckpt/step/ck_step_ds.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_val_new.h"

#define DEPTH 64u

/* Those of the first list are in "deepspeed". */
static const char *const kept[] = {
	"ds_config", "ds_version", "global_steps", "skipped_steps", "global_samples",
	"buffer_names", "frozen_param_shapes", "shared_params",
};

static const char *const others[] = {
	"module", "optimizer", "param_shapes", "frozen_param_fragments", "dp_world_size",
	"mp_world_size", "data_sampler", "random_ltd", "sparse_tensor_module_names",
	"csr_tensor_module_names",
};

static const char *const ours[] = {
	"zckpt_id", "zckpt_rank", "universal_checkpoint_info",
};

/* ---- values ---- */

/* Values may be shared along many paths, so no more than 'left' of them are looked at. */
static bool is_plain_within(const struct ck_val *v, unsigned depth, uint64_t *left)
{
	if (!v || !depth || !*left)
		return false;
	--*left;
	switch ((enum ck_val_kind)v->kind) {
	case CK_VAL_NONE: case CK_VAL_BOOL: case CK_VAL_INT: case CK_VAL_BIGINT:
	case CK_VAL_FLOAT: case CK_VAL_STR: case CK_VAL_BYTES:
		return true;
	case CK_VAL_GLOBAL:	/* torch.float16 */
		return !strcmp(v->u.global.module, "torch") &&
		       ck_dtype_by_torch_name(v->u.global.name);
	case CK_VAL_TUPLE: case CK_VAL_LIST: case CK_VAL_DICT: case CK_VAL_SET:
		for (uint64_t i = 0; i < v->u.seq.n; i++)
			if (!is_plain_within(v->u.seq.item[i], depth - 1, left))
				return false;
		return true;
	default:
		return false;
	}
}

bool ck_step_ds_is_plain(const struct ck_val *v)
{
	uint64_t left = CK_STEP_DS_MOST_VALUES;

	return is_plain_within(v, DEPTH, &left);
}

static bool is_in(const char *const *list, size_t n, const char *key)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(list[i], key))
			return true;
	return false;
}

bool ck_step_ds_is_reserved(const char *key)
{
	return is_in(kept, CK_ARRAY_LEN(kept), key) || is_in(others, CK_ARRAY_LEN(others), key);
}

bool ck_step_ds_is_own(const char *key)
{
	return ck_step_ds_is_reserved(key) || is_in(ours, CK_ARRAY_LEN(ours), key);
}

bool ck_step_ds_is_hyper(const char *key, const struct ck_val *v)
{
	return key && strcmp(key, "params") && strcmp(key, "param_names") && ck_step_ds_is_plain(v);
}

/* ---- written ---- */

static struct ck_val *put(struct ck_arena *a, struct ck_val *d, const char *key,
			  const struct ck_val *v)
{
	return !v || !ck_step_ds_is_plain(v) ? d :
	       ck_val_dict_sets(a, d, key, (struct ck_val *)v);
}

static struct ck_val *put_str(struct ck_arena *a, struct ck_val *d, const char *key,
			      const char *text)
{
	return text ? ck_val_dict_sets(a, d, key, ck_val_new_str(a, text)) : d;
}

/* The type of this state of all trained parameters, if they have one. */
static const char *type_of(const struct ck_index *ix, const char *state)
{
	uint8_t dtype = 0;

	for (uint32_t i = 0; i < ix->ntensors; i++) {
		const uint32_t s = ix->tensor[i].role != CKPT_ROLE_TRAINABLE ? CK_NONE :
				   ck_index_state_find(ix, i, state);

		if (s == CK_NONE)
			continue;
		if (dtype && ix->state[s].dtype != dtype)
			return NULL;
		dtype = ix->state[s].dtype;
	}
	return dtype ? ck_dtype_info((enum ckpt_dtype)dtype)->torch : NULL;
}

/* {second name: first name}, and names of frozen parameters. */
static struct ck_val *put_names(const struct ck_index *ix, struct ck_arena *a, struct ck_val *d)
{
	struct ck_val *tied = ck_val_new_dict(a), *frozen = ck_val_new_list(a);

	for (uint32_t i = 0; i < ix->ntensors; i++) {
		const struct ck_tensor *t = &ix->tensor[i];

		if (t->role == CKPT_ROLE_ALIAS)
			tied = ck_val_dict_add(a, tied, ck_val_new_str(a, t->name),
					       ck_val_new_str(a, ix->tensor[t->alias_of].name));
		if (t->role == CKPT_ROLE_FROZEN)
			frozen = ck_val_list_add(a, frozen, ck_val_new_str(a, t->name));
	}
	d = ck_val_dict_sets(a, d, "tied", tied);
	return ck_val_dict_sets(a, d, "frozen", frozen);
}

/* Of each group the keys that it has itself, so that what is added for torch goes again. */
static struct ck_val *group_keys(const struct ck_step *step, struct ck_arena *a,
				 bool (*hyper)(const char *key, const struct ck_val *v))
{
	struct ck_val *all = ck_val_new_list(a);

	for (uint32_t g = 0; g < step->ngroups; g++) {
		struct ck_val *keys = ck_val_new_list(a), *const *item;
		uint64_t n = 0;

		ck_val_pairs(step->group[g].hyper, &item, &n);
		for (uint64_t i = 0; i < n; i++)
			if (hyper(ck_val_str(item[2 * i]), item[2 * i + 1]))
				keys = ck_val_list_add(a, keys, item[2 * i]);
		all = ck_val_list_add(a, all, keys);
	}
	return all;
}

struct ck_val *ck_step_ds_make(const struct ck_step *step, const struct ck_index *ix,
			       struct ck_arena *a,
			       bool (*hyper)(const char *key, const struct ck_val *v),
			       bool keeps_scheduler)
{
	struct ck_val *d = ck_val_new_dict(a);

	for (size_t i = 0; i < CK_ARRAY_LEN(kept); i++)
		if (strcmp(kept[i], "frozen_param_shapes"))
			d = put(a, d, kept[i], ck_val_get(step->model, kept[i]));
	if (!keeps_scheduler)
		d = put(a, d, "lr_scheduler", ck_val_get(step->model, "lr_scheduler"));
	if (step->scaler && step->scaler->kind == CK_VAL_OBJECT)
		d = put(a, d, "loss_scaler", step->scaler->u.obj->state);
	d = put(a, d, "dynamic_loss_scale", step->dynamic_scale);
	d = put(a, d, "overflow", step->overflow);
	d = put(a, d, "clip_grad", step->clip);
	d = ck_val_dict_sets(a, d, "group_keys", group_keys(step, a, hyper));
	d = ck_val_dict_sets(a, d, "stage", ck_val_new_int(a, step->stage));
	d = put_str(a, d, "weight_dtype", type_of(ix, "weight"));
	d = put_str(a, d, "master_dtype", type_of(ix, "master"));
	return put_names(ix, a, d);
}

/* ---- read ---- */

bool ck_step_ds_has_key(const struct ck_val *ds, uint32_t group, const char *key)
{
	const struct ck_val *keys = ck_val_at(ck_val_get(ds, "group_keys"), group);
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_seq(keys, &item, &n))
		return true;
	for (uint64_t i = 0; i < n; i++)
		if (ck_val_is_str(item[i], key))
			return true;
	return false;
}

enum ckpt_dtype ck_step_ds_type(const struct ck_val *ds, const char *key)
{
	const char *name = ck_val_str(ck_val_get(ds, key));

	return name ? ck_dtype_by_torch_name(name) : 0;
}

int ck_step_ds_model(const struct ck_val *ds, struct ck_arena *a, struct ck_val *model,
		     struct ckpt_err *err)
{
	static const char *const keys[] = {
		"ds_config", "ds_version", "global_steps", "skipped_steps", "global_samples",
		"shared_params", "lr_scheduler",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(keys); i++) {
		struct ck_val *v = ck_val_get(ds, keys[i]);

		if (v && !ck_val_dict_sets(a, model, keys[i], v))
			return ck_fail_nomem(err, "a value", 0);
	}
	return 0;
}

static int take_scaler(const struct ck_val *ds, struct ck_arena *a, struct ck_step *step,
		       struct ckpt_err *err)
{
	struct ck_val *state = ck_val_get(ds, "loss_scaler"), *const *item;
	int64_t dynamic = 0;
	uint64_t n;

	ck_val_int(ck_val_get(ds, "dynamic_loss_scale"), &dynamic);
	if (!ck_val_pairs(state, &item, &n))
		return 0;
	step->scaler = ck_val_new_object(a, CK_HOW_NEWOBJ,
					 ck_val_new_global(a, "deepspeed.runtime.fp16.loss_scaler",
							   dynamic ? "DynamicLossScaler" :
								     "LossScaler"),
					 ck_val_new_tuple(a, NULL, 0));
	if (!step->scaler)
		return ck_fail_nomem(err, "a loss scaler", 0);
	step->scaler->u.obj->state = state;
	return 0;
}

int ck_step_ds_fill(const struct ck_val *ds, struct ck_arena *a, struct ck_step *step,
		    struct ckpt_err *err)
{
	const char *version = ck_val_str(ck_val_get(ds, "ds_version"));
	struct ck_val *v;
	int64_t stage;
	int rc;

	if (!ds)
		return 0;
	rc = ck_step_ds_model(ds, a, step->model, err);
	if (!rc)
		rc = take_scaler(ds, a, step, err);
	v = ck_val_get(ds, "dynamic_loss_scale");
	step->dynamic_scale = v ? v : step->dynamic_scale;
	v = ck_val_get(ds, "overflow");
	step->overflow = v ? v : step->overflow;
	step->clip = ck_val_get(ds, "clip_grad");
	if (ck_val_int(ck_val_get(ds, "stage"), &stage) && stage >= 0 && stage <= 3)
		step->stage = (int)stage;
	if (version)
		sscanf(version, "%u.%u.%u", &step->version[0], &step->version[1],
		       &step->version[2]);
	return rc;
}
