/*
 * rk_extra.c -- extra_state_world_size_N_rank_0.pt: the scheduler and random states of verl, the
 * client's own values, and "deepspeed", which zckpt writes: what a step of DeepSpeed has and FSDP
 * has no place for.
 */
#include <stdio.h>
#include <string.h>

#include "formats/fsdp_ranks/rk_tc.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_val_new.h"

int ck_rk_extra_open(struct rk *r, struct ckpt_err *err)
{
	struct rk_file *file = r->extra[0];
	struct ck_val *const *item;
	const struct ck_val *v;
	uint64_t n;
	int rc;

	if (!file || !file->ok)
		return 0;
	rc = ck_pt_open(r->ix->source[file->source].src, &r->in->limits, 0, NULL, &file->pt,
			&r->extra_err);
	if (rc == -CKPT_E_NOMEM)
		return ck_fail_nomem(err, "an extra state", file->bytes);
	v = ck_val_get(ck_rk_extra_root(r), "deepspeed");
	if (!rc && ck_val_pairs(v, &item, &n))
		r->deepspeed = v;
	return 0;
}

const struct ck_val *ck_rk_extra_root(const struct rk *r)
{
	return r->extra[0] && r->extra[0]->pt ? r->extra[0]->pt->doc.root : NULL;
}

/* ---- what DeepSpeed had ---- */

static bool has_text(const struct ck_val *list, const char *text)
{
	struct ck_val *const *item;
	uint64_t n = 0;

	ck_val_seq(list, &item, &n);
	for (uint64_t i = 0; i < n; i++)
		if (ck_val_is_str(item[i], text))
			return true;
	return false;
}

bool ck_rk_extra_lists(const struct rk *r, const char *key, const char *name)
{
	return has_text(ck_val_get(r->deepspeed, key), name);
}

bool ck_rk_extra_has_key(const struct rk *r, uint32_t group, const char *key)
{
	const struct ck_val *keys = ck_val_at(ck_val_get(r->deepspeed, "group_keys"), group);

	return !keys || has_text(keys, key);
}

enum ckpt_dtype ck_rk_extra_type(const struct rk *r, const char *key)
{
	const char *name = ck_val_str(ck_val_get(r->deepspeed, key));

	return name ? ck_dtype_by_torch_name(name) : 0;
}

static int take_model(struct rk *r, struct ck_step *step, struct ckpt_err *err)
{
	static const char *const keys[] = {
		"ds_config", "ds_version", "global_steps", "skipped_steps", "global_samples",
		"shared_params", "lr_scheduler",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(keys); i++) {
		struct ck_val *v = ck_val_get(r->deepspeed, keys[i]);

		if (v && !ck_val_dict_sets(&r->arena, step->model, keys[i], v))
			return ck_fail_nomem(err, "a value", 0);
	}
	return 0;
}

static int take_scaler(struct rk *r, struct ck_step *step, struct ckpt_err *err)
{
	struct ck_arena *a = &r->arena;
	struct ck_val *state = ck_val_get(r->deepspeed, "loss_scaler"), *const *item;
	int64_t dynamic = 0;
	uint64_t n;

	ck_val_int(ck_val_get(r->deepspeed, "dynamic_loss_scale"), &dynamic);
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

static int take_deepspeed(struct rk *r, struct ck_step *step, struct ckpt_err *err)
{
	const char *version = ck_val_str(ck_val_get(r->deepspeed, "ds_version"));
	struct ck_val *v;
	int64_t stage;
	int rc = take_model(r, step, err);

	if (!rc)
		rc = take_scaler(r, step, err);
	v = ck_val_get(r->deepspeed, "dynamic_loss_scale");
	step->dynamic_scale = v ? v : step->dynamic_scale;
	v = ck_val_get(r->deepspeed, "overflow");
	step->overflow = v ? v : step->overflow;
	step->clip = ck_val_get(r->deepspeed, "clip_grad");
	if (ck_val_int(ck_val_get(r->deepspeed, "stage"), &stage) && stage >= 0 && stage <= 3)
		step->stage = (int)stage;
	if (version)
		sscanf(version, "%u.%u.%u", &step->version[0], &step->version[1],
		       &step->version[2]);
	return rc;
}

/* ---- the scheduler and the client's values ---- */

/* Keys of DeepSpeed's model file: a client's value of such a name would be taken for them. */
static const char *const reserved[] = {
	"module", "optimizer", "buffer_names", "param_shapes", "frozen_param_shapes",
	"shared_params", "frozen_param_fragments", "ds_config", "ds_version", "global_steps",
	"skipped_steps", "global_samples", "dp_world_size", "mp_world_size", "data_sampler",
	"random_ltd", "sparse_tensor_module_names", "csr_tensor_module_names",
};

static bool is_reserved(const char *key)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(reserved); i++)
		if (!strcmp(key, reserved[i]))
			return true;
	return false;
}

static int take_value(struct rk *r, struct ck_step *step, const struct ck_val *key,
		      struct ck_val *v, struct ckpt_err *err)
{
	const char *name = ck_val_str(key);
	const char *where = r->extra[0]->name;

	if (!name || !strcmp(name, "deepspeed") || ck_val_is_none(v))
		return 0;
	if (!strcmp(name, "rng")) {
		ck_findings_add(&step->for_others, CK_FINDING_NOT_CARRIED, where,
				"random states of the ranks ('rng'): the resumed run draws other "
				"numbers");
		return 0;
	}
	if (is_reserved(name) || !ck_rk_value_is_plain(v)) {
		ck_findings_add(&step->for_others, CK_FINDING_NOT_CARRIED, where,
				"'%.60s': a value with tensors or objects in it, or of a name that "
				"DeepSpeed uses itself", name);
		return 0;
	}
	return ck_val_dict_sets(&r->arena, step->model, name, v) ? 0 :
	       ck_fail_nomem(err, "a value of the client", 0);
}

int ck_rk_extra_fill(struct rk *r, struct ck_step *step, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n = 0;
	int rc = 0;

	if (r->tc)
		return ck_rk_tc_fill(r, step, err);
	if (r->extra_err.code)
		return ck_fail(err, r->extra_err.code, r->extra_err.where, r->extra_err.offset,
			       "%s", r->extra_err.msg);
	ck_val_pairs(ck_rk_extra_root(r), &item, &n);
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = take_value(r, step, item[2 * i], item[2 * i + 1], err);
	return rc || !r->deepspeed ? rc : take_deepspeed(r, step, err);
}
