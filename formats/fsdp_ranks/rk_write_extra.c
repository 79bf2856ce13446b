/*
 * rk_write_extra.c -- the extra state of a rank: the scheduler and the client's values.  What only
 * DeepSpeed has is one more value of rank 0, "deepspeed", which loaders do not ask for and which
 * makes the way back exact.  Random states are not written: each rank of the new run draws its own.
 */
#include <string.h>

#include "formats/fsdp_ranks/rk_out.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_val_new.h"

/* Keys of DeepSpeed's model file that the files say in another way, or not at all. */
static const char *const dropped[] = {
	"module", "optimizer", "param_shapes", "frozen_param_fragments", "dp_world_size",
	"mp_world_size", "zckpt_id", "sparse_tensor_module_names", "csr_tensor_module_names",
	"universal_checkpoint_info", "data_sampler", "random_ltd", "lr_scheduler",
};

/* And those that go into "deepspeed". */
static const char *const kept[] = {
	"ds_config", "ds_version", "global_steps", "skipped_steps", "global_samples",
	"buffer_names", "frozen_param_shapes", "shared_params",
};

static bool is_in(const char *const *list, size_t n, const char *key)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(list[i], key))
			return true;
	return false;
}

/* Of torch's schedulers, or of whichever wrote rank files; DeepSpeed's own have another form. */
static struct ck_val *torch_scheduler(const struct rk_out *o)
{
	struct ck_val *v = ck_val_get(o->step->model, "lr_scheduler");
	const bool is_theirs = o->source && !o->source->deepspeed && !ck_val_is_none(v);

	return (is_theirs || ck_val_get(v, "last_epoch")) && ck_rk_value_is_plain(v) ? v : NULL;
}

/* A value of the client's own that a file can hold. */
static bool is_client(const char *key, const struct ck_val *v)
{
	return key && !is_in(dropped, CK_ARRAY_LEN(dropped), key) &&
	       !is_in(kept, CK_ARRAY_LEN(kept), key) && strcmp(key, "deepspeed") != 0 &&
	       strcmp(key, "rng") != 0 && !ck_val_is_none(v) && ck_rk_value_is_plain(v);
}

/* Of the source's extra state what the step has no place for. */
static void note_source(const struct rk_out *o)
{
	struct ck_val *const *item;
	uint64_t n = 0;

	ck_val_pairs(ck_rk_extra_root(o->source), &item, &n);
	for (uint64_t i = 0; i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);

		if (!key || !strcmp(key, "rng") || !strcmp(key, "deepspeed") ||
		    ck_val_is_none(item[2 * i + 1]) ||
		    ck_val_get(o->step->model, key) == item[2 * i + 1])
			continue;
		ck_findings_add(o->step->f, CK_FINDING_NOT_CARRIED, o->source->extra[0]->name,
				"'%.60s': a value with tensors or objects in it, or of a name that "
				"DeepSpeed uses itself", key);
	}
	if (ck_val_get(ck_rk_extra_root(o->source), "rng"))
		ck_findings_add(o->step->f, CK_FINDING_NOT_CARRIED, o->source->extra[0]->name,
				"random states of %u ranks ('rng'), and the result has %u: each "
				"rank draws other numbers", o->source->world, o->world);
}

void ck_rk_out_note_values(const struct rk_out *o)
{
	struct ck_val *const *item;
	uint64_t n = 0;

	if (o->source) {
		note_source(o);
		return;
	}
	ck_val_pairs(o->step->model, &item, &n);
	for (uint64_t i = 0; i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);

		if (!key || is_in(dropped, CK_ARRAY_LEN(dropped), key) ||
		    is_in(kept, CK_ARRAY_LEN(kept), key) || ck_val_is_none(item[2 * i + 1]) ||
		    is_client(key, item[2 * i + 1]))
			continue;
		ck_findings_add(o->step->f, CK_FINDING_NOT_CARRIED, key,
				"a value of the client with tensors, objects or more than %u "
				"values in it", RK_MOST_VALUES);
	}
}

/* ---- what DeepSpeed needs on the way back ---- */

static struct ck_val *put(struct rk_out *o, struct ck_val *d, const char *key,
			  const struct ck_val *v)
{
	return !v || !ck_rk_value_is_plain(v) ? d :
	       ck_val_dict_sets(&o->arena, d, key, (struct ck_val *)v);
}

/* The type of this state of all trained parameters, if they have one. */
static const char *type_of(const struct rk_out *o, const char *state)
{
	uint8_t dtype = 0;

	for (uint32_t i = 0; i < o->ix->ntensors; i++) {
		const uint32_t s = o->ix->tensor[i].role != CKPT_ROLE_TRAINABLE ? CK_NONE :
				   ck_index_state_find(o->ix, i, state);

		if (s == CK_NONE)
			continue;
		if (dtype && o->ix->state[s].dtype != dtype)
			return NULL;
		dtype = o->ix->state[s].dtype;
	}
	return dtype ? ck_dtype_info((enum ckpt_dtype)dtype)->torch : NULL;
}

static struct ck_val *put_frozen(struct rk_out *o, struct ck_val *d)
{
	struct ck_val *frozen = ck_val_new_list(&o->arena);

	for (uint32_t i = 0; i < o->ix->ntensors; i++)
		if (o->ix->tensor[i].role == CKPT_ROLE_FROZEN)
			frozen = ck_val_list_add(&o->arena, frozen,
						 ck_val_new_str(&o->arena, o->ix->tensor[i].name));
	return ck_val_dict_sets(&o->arena, d, "frozen", frozen);
}

/* Of each group the keys that it has itself, so that what is added for torch goes again. */
static struct ck_val *group_keys(struct rk_out *o)
{
	struct ck_val *all = ck_val_new_list(&o->arena);

	for (uint32_t g = 0; g < o->step->ngroups; g++) {
		struct ck_val *keys = ck_val_new_list(&o->arena), *const *item;
		uint64_t n = 0;

		ck_val_pairs(o->step->group[g].hyper, &item, &n);
		for (uint64_t i = 0; i < n; i++)
			if (ck_rk_out_is_hyper(ck_val_str(item[2 * i]), item[2 * i + 1]))
				keys = ck_val_list_add(&o->arena, keys, item[2 * i]);
		all = ck_val_list_add(&o->arena, all, keys);
	}
	return all;
}

static struct ck_val *deepspeed(struct rk_out *o)
{
	const struct ck_step *step = o->step;
	struct ck_arena *a = &o->arena;
	struct ck_val *d = ck_val_new_dict(a);
	const char *weight = type_of(o, "weight"), *master = type_of(o, "master");

	for (size_t i = 0; i < CK_ARRAY_LEN(kept); i++)
		if (strcmp(kept[i], "frozen_param_shapes") != 0)
			d = put(o, d, kept[i], ck_val_get(step->model, kept[i]));
	if (!torch_scheduler(o))
		d = put(o, d, "lr_scheduler", ck_val_get(step->model, "lr_scheduler"));
	if (step->scaler && step->scaler->kind == CK_VAL_OBJECT)
		d = put(o, d, "loss_scaler", step->scaler->u.obj->state);
	d = put(o, d, "dynamic_loss_scale", step->dynamic_scale);
	d = put(o, d, "overflow", step->overflow);
	d = put(o, d, "clip_grad", step->clip);
	d = ck_val_dict_sets(a, d, "group_keys", group_keys(o));
	d = ck_val_dict_sets(a, d, "stage", ck_val_new_int(a, step->stage));
	if (weight)
		d = ck_val_dict_sets(a, d, "weight_dtype", ck_val_new_str(a, weight));
	if (master)
		d = ck_val_dict_sets(a, d, "master_dtype", ck_val_new_str(a, master));
	return put_frozen(o, d);
}

struct ck_val *ck_rk_out_extra(struct rk_out *o)
{
	struct ck_val *d = ck_val_new_dict(&o->arena), *scheduler = torch_scheduler(o);
	struct ck_val *const *item;
	uint64_t n = 0;

	d = ck_val_dict_sets(&o->arena, d, "lr_scheduler",
			     scheduler ? scheduler : ck_val_new_none(&o->arena));
	ck_val_pairs(o->step->model, &item, &n);
	for (uint64_t i = 0; i < n; i++)
		if (is_client(ck_val_str(item[2 * i]), item[2 * i + 1]))
			d = ck_val_dict_add(&o->arena, d, item[2 * i], item[2 * i + 1]);
	if (!o->rank && (!o->source || o->source->deepspeed))
		d = ck_val_dict_sets(&o->arena, d, "deepspeed", deepspeed(o));
	return d;
}
