/*
 * rk_write_extra.c -- the extra state of a rank: the scheduler and the client's values.  What only
 * DeepSpeed has is one more value of rank 0, "deepspeed", which loaders do not ask for and which
 * makes the way back exact.  Random states are not written: each rank of the new run draws its own.
 */
#include <string.h>

#include "formats/fsdp_ranks/rk_out.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/tensor/ck_val_new.h"

/* Of torch's schedulers, or of whichever wrote rank files; DeepSpeed's own have another form. */
static struct ck_val *torch_scheduler(const struct rk_out *o)
{
	struct ck_val *v = ck_val_get(o->step->model, "lr_scheduler");
	const bool is_theirs = o->source && !o->source->deepspeed && !ck_val_is_none(v);

	return (is_theirs || ck_val_get(v, "last_epoch")) && ck_step_ds_is_plain(v) ? v : NULL;
}

/* DeepSpeed's own, and the scheduler, have a place. */
static bool is_noted(const char *key)
{
	return ck_step_ds_is_own(key) || !strcmp(key, "lr_scheduler");
}

/* A value of the client's own that a file can hold. */
static bool is_client(const char *key, const struct ck_val *v)
{
	return key && !is_noted(key) && strcmp(key, "deepspeed") != 0 &&
	       strcmp(key, "rng") != 0 && !ck_val_is_none(v) && ck_step_ds_is_plain(v);
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

		if (!key || is_noted(key) || ck_val_is_none(item[2 * i + 1]) ||
		    is_client(key, item[2 * i + 1]))
			continue;
		ck_findings_add(o->step->f, CK_FINDING_NOT_CARRIED, key,
				"a value of the client with tensors, objects or more than %u "
				"values in it", CK_STEP_DS_MOST_VALUES);
	}
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
		d = ck_val_dict_sets(&o->arena, d, "deepspeed",
				     ck_step_ds_make(o->step, o->ix, &o->arena, ck_step_ds_is_hyper,
						     scheduler != NULL));
	return d;
}
