/*
 * ds_facts.c -- what a step says about itself, as text: counters, versions,
 * hyper-parameters and step of each param group.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/ds_pt/ck_ds.h"
#include "formats/ds_pt/ds_experts.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/step/ck_step_fact.h"

static int add_group(struct ds_step *ds, uint64_t g, const struct ck_val *group,
		     struct ckpt_err *err)
{
	struct ck_val *const *item;
	char key[128];
	uint64_t n;
	int rc = 0;

	if (!ck_val_pairs(group, &item, &n))
		return 0;
	for (uint64_t i = 0; !rc && i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);

		/* "params" are numbers of flat tensors, "step" is the optimizer's own below */
		if (!name || !strcmp(name, "params") || !strcmp(name, "param_names"))
			continue;
		snprintf(key, sizeof(key), "group.%" PRIu64 ".%s%s", g,
			 strcmp(name, "step") ? "" : "group_", name);
		rc = ck_step_add_fact(ds->ix, key, item[2 * i + 1], err);
	}
	return rc;
}

/* The step of the first sub-group of each param group. */
static int add_steps(struct ds_step *ds, struct ckpt_err *err)
{
	const struct ds_part *part = NULL;
	int32_t last = -1;
	int rc = 0;

	for (uint32_t r = 0; !part && ds->optim && r < ds->world; r++)
		part = ds->optim[r].part;
	for (uint32_t i = 0; part && !rc && i < ds->ngroups; i++) {
		char key[64];

		if (!part[i].has_step || ds->group[i].group == last)
			continue;
		last = ds->group[i].group;
		snprintf(key, sizeof(key), "group.%d.step", last < 0 ? (int)i : last);
		rc = ck_step_add_number(ds->ix, key, part[i].step, err);
	}
	return rc;
}

/* ZeRO keeps an object; at stage 0 its numbers stand in the optimizer's own state. */
static int add_scaler(struct ds_step *ds, struct ckpt_err *err)
{
	static const char *const keys[] = {
		"cur_iter", "last_overflow_iter", "cur_hysteresis", "scale_factor", "scale_window",
	};
	const struct ck_val *v = ck_val_get(ds->zero, "loss_scaler");
	char key[64];
	int rc;

	if (!ds->zero)
		v = ck_val_get(ds->model, "optimizer");
	else if (v && v->kind == CK_VAL_OBJECT)
		v = v->u.obj->state;
	else
		return 0;
	rc = ck_step_add_fact(ds->ix, "loss_scale", ck_val_get(v, "cur_scale"), err);
	for (size_t i = 0; !rc && i < CK_ARRAY_LEN(keys); i++) {
		snprintf(key, sizeof(key), "loss_scaler.%s", keys[i]);
		rc = ck_step_add_fact(ds->ix, key, ck_val_get(v, keys[i]), err);
	}
	return rc;
}

/* What the scheduler says of itself, whichever it is. */
static int add_scheduler(struct ds_step *ds, struct ckpt_err *err)
{
	struct ck_val *const *item;
	char key[128];
	uint64_t n;
	int rc = 0;

	if (!ck_val_pairs(ck_val_get(ds->model, "lr_scheduler"), &item, &n))
		return 0;
	for (uint64_t i = 0; !rc && i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);

		if (!name)
			continue;
		snprintf(key, sizeof(key), "scheduler.%s", name);
		rc = ck_step_add_fact(ds->ix, key, item[2 * i + 1], err);
	}
	return rc;
}

int ck_ds_add_batch(struct ds_step *ds, struct ckpt_err *err)
{
	static const char *const keys[] = {
		"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
	};
	const struct ck_val *config = ck_val_get(ds->model, "ds_config");
	int rc = 0;

	for (size_t i = 0; !rc && config && i < CK_ARRAY_LEN(keys); i++)
		if (!ck_index_fact(ds->ix, keys[i]))
			rc = ck_step_add_fact(ds->ix, keys[i], ck_val_get(config, keys[i]), err);
	return rc;
}

int ck_ds_add_facts(struct ds_step *ds, struct ckpt_err *err)
{
	static const char *const keys[] = {
		"global_steps", "skipped_steps", "global_samples", "dp_world_size", "ds_version",
	};
	struct ck_val *const *group;
	uint64_t n;
	int rc = 0;

	for (size_t i = 0; !rc && i < CK_ARRAY_LEN(keys); i++)
		rc = ck_step_add_fact(ds->ix, keys[i], ck_val_get(ds->model, keys[i]), err);
	if (!rc && ds->experts)
		rc = ck_ds_experts_add_fact(ds, err);
	if (!rc)
		rc = ck_ds_add_batch(ds, err);
	if (!rc)
		rc = add_scaler(ds, err);
	if (!rc)
		rc = add_scheduler(ds, err);
	if (!rc && ck_val_seq(ds->param_groups, &group, &n)) {
		ds->ix->ngroups = n;
		for (uint64_t g = 0; !rc && g < n; g++)
			rc = add_group(ds, g, group[g], err);
	}
	return rc ? rc : add_steps(ds, err);
}
