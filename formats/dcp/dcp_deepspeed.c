/*
 * dcp_deepspeed.c -- the value "deepspeed", which dcp_entries.c writes: what a step of DeepSpeed
 * has and FSDP has no place for.  Another program's folder has no such value.
 */
#include <stdio.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_val_new.h"

/* A list of names, hashed: models have tens of thousands. */
static int hash_list(const struct dcp *d, const char *key, struct ck_map *out, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n = 0;
	int rc = 0;

	ck_val_seq(ck_val_get(d->deepspeed, key), &item, &n);
	for (uint64_t i = 0; rc >= 0 && i < n; i++)
		if (ck_val_str(item[i]))
			rc = ck_map_add(out, ck_val_str(item[i]), strlen(ck_val_str(item[i])), i,
					NULL, err);
	return rc < 0 ? rc : 0;
}

static int hash_tied(struct dcp *d, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n = 0;
	int rc = 0;

	ck_val_pairs(ck_val_get(d->deepspeed, "tied"), &item, &n);
	for (uint64_t i = 0; rc >= 0 && i < n; i++)
		if (ck_val_str(item[2 * i]))
			rc = ck_map_add(&d->tied, ck_val_str(item[2 * i]),
					strlen(ck_val_str(item[2 * i])), i, NULL, err);
	return rc < 0 ? rc : 0;
}

int ck_dcp_deepspeed_find(struct dcp *d, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int rc;

	for (uint64_t i = 0; i < d->nitems; i++) {
		const struct ck_val *v = ck_dcp_value_of(&d->item[i]);

		if (!strcmp(d->item[i].flat, "deepspeed") && ck_val_pairs(v, &item, &n))
			d->deepspeed = v;
	}
	if (!d->deepspeed)
		return 0;
	rc = hash_list(d, "frozen", &d->frozen, err);
	if (!rc)
		rc = hash_list(d, "buffer_names", &d->buffers, err);
	return rc ? rc : hash_tied(d, err);
}

const char *ck_dcp_deepspeed_tied(const struct dcp *d, const char *name)
{
	struct ck_val *const *item;
	uint64_t n = 0, at;

	ck_val_pairs(ck_val_get(d->deepspeed, "tied"), &item, &n);
	return ck_map_find(&d->tied, name, strlen(name), &at) && at < n ?
	       ck_val_str(item[2 * at + 1]) : NULL;
}

bool ck_dcp_deepspeed_has_key(const struct dcp *d, uint32_t group, const char *key)
{
	const struct ck_val *keys = ck_val_at(ck_val_get(d->deepspeed, "group_keys"), group);
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_seq(keys, &item, &n))
		return true;
	for (uint64_t i = 0; i < n; i++)
		if (ck_val_is_str(item[i], key))
			return true;
	return false;
}

enum ckpt_dtype ck_dcp_deepspeed_type(const struct dcp *d, const char *key)
{
	const char *name = ck_val_str(ck_val_get(d->deepspeed, key));

	return name ? ck_dtype_by_torch_name(name) : 0;
}

int ck_dcp_deepspeed_model(struct dcp *d, struct ck_val *model, struct ckpt_err *err)
{
	static const char *const keys[] = {
		"ds_config", "ds_version", "global_steps", "skipped_steps", "global_samples",
		"shared_params", "lr_scheduler",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(keys); i++) {
		struct ck_val *v = ck_val_get(d->deepspeed, keys[i]);

		if (v && !ck_val_dict_sets(&d->arena, model, keys[i], v))
			return ck_fail_nomem(err, "a value", 0);
	}
	return 0;
}

static int take_scaler(struct dcp *d, struct ck_step *step, struct ckpt_err *err)
{
	struct ck_arena *a = &d->arena;
	struct ck_val *state = ck_val_get(d->deepspeed, "loss_scaler"), *const *item;
	int64_t dynamic = 0;
	uint64_t n;

	ck_val_int(ck_val_get(d->deepspeed, "dynamic_loss_scale"), &dynamic);
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

int ck_dcp_deepspeed_fill(struct dcp *d, struct ck_step *step, struct ckpt_err *err)
{
	const char *version = ck_val_str(ck_val_get(d->deepspeed, "ds_version"));
	struct ck_val *v;
	int64_t stage;
	int rc;

	if (!d->deepspeed)
		return 0;
	rc = ck_dcp_deepspeed_model(d, step->model, err);
	if (!rc)
		rc = take_scaler(d, step, err);
	v = ck_val_get(d->deepspeed, "dynamic_loss_scale");
	step->dynamic_scale = v ? v : step->dynamic_scale;
	v = ck_val_get(d->deepspeed, "overflow");
	step->overflow = v ? v : step->overflow;
	step->clip = ck_val_get(d->deepspeed, "clip_grad");
	if (ck_val_int(ck_val_get(d->deepspeed, "stage"), &stage) && stage >= 0 && stage <= 3)
		step->stage = (int)stage;
	if (version)
		sscanf(version, "%u.%u.%u", &step->version[0], &step->version[1],
		       &step->version[2]);
	return rc;
}
