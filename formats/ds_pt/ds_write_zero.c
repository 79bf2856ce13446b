/*
 * ds_write_zero.c -- the ZeRO dict of a shard: its keys in the order of the stage it is for.
 *
 * At the source's own kind of stage it is the source's dict with what depends on the layout made
 * anew.  At another, the keys are those that the DeepSpeed of the source writes there.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/ds_pt/ds_write.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/step/ck_step_drop.h"

/* Of values in an entry of the optimizer. */
#define NEST_DEPTH 4
#define NEST_VALUES 100000u

#define ELASTIC_STEP "base_optimizer_state_step"

/* Since 0.'minor'.'patch'. */
struct key {
	const char *name;
	uint32_t minor, patch;
};

static const struct key flat_keys[] = {
	{ "loss_scaler", 0, 0 }, { "dynamic_loss_scale", 0, 0 }, { "overflow", 0, 0 },
	{ "clip_grad", 6, 2 }, { "base_optimizer_state", 0, 0 },
	{ ELASTIC_STEP, 11, 0 },	/* of an elastic step whose groups have one */
	{ "single_partition_of_fp32_groups", 0, 0 }, { "zero_stage", 0, 0 },
	{ "group_paddings", 7, 0 }, { "param_alignment_paddings", 19, 8 },
	{ "partition_count", 0, 0 }, { "ds_version", 0, 0 }, { "param_slice_mappings", 7, 4 },
	{ NULL, 0, 0 },
};

static const struct key bf16_keys[] = {
	{ "clip_grad", 0, 0 }, { "base_optimizer_state", 0, 0 },
	{ "single_partition_of_fp32_groups", 0, 0 }, { "group_paddings", 0, 0 },
	{ "partition_count", 0, 0 }, { "ds_version", 0, 0 }, { "param_slice_mappings", 7, 0 },
	{ NULL, 0, 0 },
};

static const struct key sub_keys[] = {
	{ "zero_stage", 0, 0 }, { "loss_scaler", 0, 0 }, { "dynamic_loss_scale", 0, 0 },
	{ "overflow", 0, 0 }, { "partition_count", 0, 0 }, { "optimizer_state_dict", 0, 0 },
	{ "fp32_flat_groups", 0, 0 }, { NULL, 0, 0 },
};

/* ---- an entry of the optimizer's state ---- */

/* The count of steps at zero, in the kind it has: a number, or a tensor of one element. */
static struct ck_val *first_step(struct wr *w, const struct ck_val *old, struct ckpt_err *err)
{
	const struct ck_tensor_ref *t = ck_val_tensor(old);
	struct ck_tensor_ref ref;
	uint32_t number;

	if (!t)
		return old->kind == CK_VAL_FLOAT ? ck_val_new_float(&w->arena, 0) :
		       ck_val_new_int(&w->arena, 0);
	ref = *t;
	ref.offset = 0;
	if (ck_wr_storage(w, (enum ckpt_dtype)t->dtype, &number, err) ||
	    ck_wr_zero(w, t->numel, err))
		return NULL;
	ref.storage = number;
	return ck_val_new_tensor(&w->arena, &ref);
}

struct ck_val *ck_wr_edit_entry(struct wr *w, const struct ck_val *old, uint32_t tensor,
				ck_wr_maker *make, const void *arg, struct ckpt_err *err)
{
	struct ck_val *entry = ck_val_clone(&w->arena, old);
	struct ck_val *const *item;
	uint64_t n;

	if (!old)
		ck_fail(err, CKPT_E_CORRUPT, w->step->at.where, CKPT_NO_OFFSET,
			"the optimizer has no state for one of its param groups");
	if (!ck_val_pairs(old, &item, &n))
		return entry;
	for (uint64_t i = 0; entry && i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);
		struct ck_val *v = item[2 * i + 1];

		if (!name)
			continue;
		if (ck_step_is_dropped(w->want, name)) {
			ck_val_dict_drop(entry, name);
			continue;
		}
		if (strcmp(name, "step") && tensor != CK_NONE && ck_wr_has(w, tensor, name))
			v = make(w, name, arg, err);
		else if (!strcmp(name, "step") && w->want->reset)
			v = first_step(w, v, err);
		entry = ck_val_dict_set(&w->arena, entry, item[2 * i], v);
	}
	return entry;
}

/* Are steps to be counted from zero? */
static bool begins_anew(const struct wr *w)
{
	return w->want->reset || ck_step_is_dropped(w->want, "step");
}

/* Fused optimizers count (or counted, before DeepSpeed 0.8) in the group, for all of its states. */
struct ck_val *ck_wr_param_group(struct wr *w, const struct ck_val *old, uint32_t g,
				 struct ckpt_err *err)
{
	struct ck_val *copy = ck_val_clone(&w->arena, old), *step = ck_val_get(old, "step");
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(old, &item, &n)) {
		ck_fail(err, CKPT_E_CORRUPT, w->step->at.where, CKPT_NO_OFFSET,
			"param_groups of the optimizer has no dictionary for group %" PRIu32
			" of %" PRIu32, g, w->t->ngroups);
		return NULL;
	}
	if (copy && step && begins_anew(w))
		copy = ck_val_dict_sets(&w->arena, copy, "step", first_step(w, step, err));
	return copy;
}

/* A tensor deeper in a value stays where it is, which is another file. */
static bool has_tensors(const struct ck_val *v, int depth, uint32_t *left)
{
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_seq(v, &item, &n)) {
		if (!ck_val_pairs(v, &item, &n))
			return false;
		n *= 2;
	}
	for (uint64_t i = 0; depth && i < n; i++)
		if (!*left || !--*left || ck_val_tensor(item[i]) ||
		    has_tensors(item[i], depth - 1, left))
			return true;	/* or too many to look at */
	return false;
}

struct ck_val *ck_wr_own_tensors(struct wr *w, struct ck_val *copy, const struct ck_val *old,
				 struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint32_t left = NEST_VALUES;
	uint64_t n;

	if (!ck_val_pairs(old, &item, &n))
		return copy;
	for (uint64_t i = 0; copy && i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);
		const struct ck_val *v = item[2 * i + 1];

		if (!key || ck_val_get(copy, key) != v)
			continue;
		if (!ck_val_tensor(v) && has_tensors(v, NEST_DEPTH, &left)) {
			ck_fail(err, CKPT_E_UNSUPPORTED, w->step->at.where, CKPT_NO_OFFSET,
				"'%.60s' of the optimizer holds several tensors", key);
			return NULL;
		}
		if (ck_val_tensor(v))
			copy = ck_val_dict_set(&w->arena, copy, item[2 * i],
					       ck_wr_copy(w, v, err));
	}
	return copy;
}

/* ---- keys of the dict ---- */

static struct ck_val *layout_value(struct wr *w, const char *key, uint32_t rank,
				   struct ckpt_err *err)
{
	return w->t->stage == 3 ? ck_wr_sub_value(w, key, rank, err) :
	       ck_wr_flat_value(w, key, rank, err);
}

/* An enum object since 0.7.0, a number before. */
static struct ck_val *stage_value(struct wr *w)
{
	struct ck_val *n = ck_val_new_int(&w->arena, w->t->stage);
	const struct ck_val *old = ck_val_get(w->step->own, "zero_stage");

	if (!ck_wr_since(w, 7, 0) && (!old || old->kind == CK_VAL_INT))
		return n;
	return ck_val_new_object(&w->arena, CK_HOW_REDUCE,
				 ck_val_new_global(&w->arena, "deepspeed.runtime.zero.config",
						   "ZeroStageEnum"),
				 ck_val_new_tuple(&w->arena, &n, 1));
}

/* What BF16_Optimizer, which has no loss scale, leaves to the others: a scale of one. */
static struct ck_val *unit_scaler(struct wr *w)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *state = ck_val_new_dict(a), *v;

	state = ck_val_dict_sets(a, state, "cur_scale", ck_val_new_float(a, 1.0));
	state = ck_val_dict_sets(a, state, "dynamic", ck_val_new_bool(a, false));
	v = ck_val_new_object(a, CK_HOW_NEWOBJ,
			      ck_val_new_global(a, "deepspeed.runtime.fp16.loss_scaler",
						"LossScaler"),
			      ck_val_new_tuple(a, NULL, 0));
	if (v)
		v->u.obj->state = state;
	return state ? v : NULL;
}

static struct ck_val *config_clip(struct wr *w)
{
	double clip = 0;

	ck_val_num(ck_val_get(ck_val_get(w->step->model, "ds_config"), "gradient_clipping"), &clip);
	return ck_val_new_float(&w->arena, clip);
}

/* What the source has of a key that no layout decides, or NULL. */
static struct ck_val *source_value(const struct wr *w, const char *key)
{
	const struct ck_step *s = w->step;
	const struct {
		const char *key;
		struct ck_val *value;
	} has[] = {
		{ "loss_scaler", s->scaler }, { "dynamic_loss_scale", s->dynamic_scale },
		{ "overflow", s->overflow }, { "clip_grad", s->clip },
		{ ELASTIC_STEP, s->elastic_step },
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(has); i++)
		if (!strcmp(has[i].key, key))
			return has[i].value;
	return NULL;
}

/* Of a key that the layout does not decide: the source's, else what a new run would have. */
static struct ck_val *other_value(struct wr *w, const char *key, struct ckpt_err *err)
{
	struct ck_val *old = source_value(w, key);

	if (!strcmp(key, ELASTIC_STEP) && begins_anew(w))
		return first_step(w, old, err);
	if (!strcmp(key, "zero_stage"))
		return stage_value(w);
	if (!strcmp(key, "ds_version"))
		return ck_wr_version(w);
	if (old)
		return strcmp(key, "loss_scaler") ? old : ck_wr_scaler(w, old);
	if (!strcmp(key, "loss_scaler"))
		return unit_scaler(w);
	if (!strcmp(key, "clip_grad"))
		return config_clip(w);
	return ck_val_new_bool(&w->arena, false);	/* dynamic_loss_scale, overflow */
}

static bool is_layout_key(const struct wr *w, const char *key)
{
	static const char *const flat[] = {
		"base_optimizer_state", "single_partition_of_fp32_groups", "group_paddings",
		"groups_padding", "param_alignment_paddings", "partition_count",
		"param_slice_mappings",
	};
	static const char *const sub[] = {
		"optimizer_state_dict", "fp32_flat_groups", "partition_count",
	};
	const char *const *list = w->t->stage == 3 ? sub : flat;
	const size_t n = w->t->stage == 3 ? CK_ARRAY_LEN(sub) : CK_ARRAY_LEN(flat);

	for (size_t i = 0; i < n; i++)
		if (!strcmp(list[i], key))
			return true;
	return false;
}

static struct ck_val *same_kind(struct wr *w, uint32_t rank, struct ckpt_err *err)
{
	struct ck_val *zero = ck_val_clone(&w->arena, w->step->own);
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(w->step->own, &item, &n))
		return NULL;
	for (uint64_t i = 0; zero && i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);

		if (key && is_layout_key(w, key))
			zero = ck_val_dict_set(&w->arena, zero, item[2 * i],
					       layout_value(w, key, rank, err));
		else if (key && !strcmp(key, "zero_stage") && w->t->stage != w->step->stage)
			zero = ck_val_dict_set(&w->arena, zero, item[2 * i], stage_value(w));
		else if (key && !strcmp(key, ELASTIC_STEP) && begins_anew(w))
			zero = ck_val_dict_set(&w->arena, zero, item[2 * i],
					       first_step(w, item[2 * i + 1], err));
	}
	return zero;
}

static struct ck_val *other_kind(struct wr *w, uint32_t rank, struct ckpt_err *err)
{
	const struct key *key = w->t->stage == 3 ? sub_keys :
				w->t->bf16_optimizer ? bf16_keys : flat_keys;
	struct ck_val *zero = ck_val_new_dict(&w->arena);

	for (; zero && key->name; key++) {
		if (!ck_wr_since(w, key->minor, key->patch) ||
		    (!strcmp(key->name, ELASTIC_STEP) && !w->step->elastic_step))
			continue;
		zero = ck_val_dict_sets(&w->arena, zero, key->name,
					is_layout_key(w, key->name) ?
					layout_value(w, key->name, rank, err) :
					other_value(w, key->name, err));
	}
	return zero;
}

struct ck_val *ck_wr_zero_rest(struct wr *w, struct ckpt_err *err)
{
	struct ck_val *rest = ck_val_new_dict(&w->arena);

	for (const struct key *key = flat_keys; rest && key->name; key++)
		if (source_value(w, key->name))
			rest = ck_val_dict_sets(&w->arena, rest, key->name,
						other_value(w, key->name, err));
	return rest;
}

struct ck_val *ck_wr_zero_dict(struct wr *w, uint32_t rank, struct ckpt_err *err)
{
	const bool same = !w->new_keys && (w->step->stage == 3) == (w->t->stage == 3) &&
			  w->step->bf16_optimizer == w->t->bf16_optimizer;
	struct ck_val *zero = same ? same_kind(w, rank, err) : other_kind(w, rank, err);

	if (!zero)
		ck_fail_nomem(err, "a shard", 0);
	return zero;
}
