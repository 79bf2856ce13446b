/*
 * ds_facts.c -- what a step says about itself, as text: counters, versions,
 * hyper-parameters and step of each param group.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ds_pt/ck_ds.h"
#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"

#define TEXT_BYTES 400

/* The shortest decimal that reads back as the same double. */
static int add_double(struct ck_buf *buf, double v, struct ckpt_err *err)
{
	char text[40];

	for (int digits = 1; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, v);
		if (strtod(text, NULL) == v)
			break;
	}
	return ck_buf_adds(buf, text, err);
}

static bool add_text(struct ck_buf *buf, const struct ck_val *v, int depth, struct ckpt_err *err);

static bool add_items(struct ck_buf *buf, const struct ck_val *v, int depth,
		      struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_seq(v, &item, &n) || n > 16 || ck_buf_adds(buf, "[", err))
		return false;
	for (uint64_t i = 0; i < n; i++)
		if ((i && ck_buf_adds(buf, ", ", err)) || !add_text(buf, item[i], depth - 1, err))
			return false;
	return !ck_buf_adds(buf, "]", err);
}

/* Numbers, booleans, None, strings, short lists of them; false for anything else, or a failure. */
static bool add_text(struct ck_buf *buf, const struct ck_val *v, int depth, struct ckpt_err *err)
{
	if (!v || !depth)
		return false;
	switch ((enum ck_val_kind)v->kind) {
	case CK_VAL_NONE:
		return !ck_buf_adds(buf, "null", err);
	case CK_VAL_BOOL:
		return !ck_buf_adds(buf, v->u.b ? "true" : "false", err);
	case CK_VAL_INT:
		return !ck_buf_addf(buf, err, "%" PRId64, v->u.i);
	case CK_VAL_FLOAT:
		return !add_double(buf, v->u.f, err);
	case CK_VAL_STR:
		return ck_val_str(v) && !ck_buf_adds(buf, ck_val_str(v), err);
	default:
		return add_items(buf, v, depth, err);
	}
}

static int add_value(struct ds_step *ds, const char *key, const struct ck_val *v,
		     struct ckpt_err *err)
{
	struct ck_buf buf = CK_BUF_INIT(TEXT_BYTES);
	struct ckpt_err inner = { 0 };
	int rc = 0;

	if (!add_text(&buf, v, 3, &inner) || !buf.p)
		rc = inner.code == CKPT_E_NOMEM ? ck_fail_nomem(err, "a fact", TEXT_BYTES) : 0;
	else
		rc = ck_index_add_fact(ds->ix, err, key, "%s", buf.p);
	ck_buf_release(&buf);
	return rc;
}

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
		rc = add_value(ds, key, item[2 * i + 1], err);
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
		struct ck_buf text = CK_BUF_INIT(TEXT_BYTES);
		char key[64];

		if (!part[i].has_step || ds->group[i].group == last)
			continue;
		last = ds->group[i].group;
		snprintf(key, sizeof(key), "group.%d.step", last < 0 ? (int)i : last);
		if (add_double(&text, part[i].step, NULL))
			rc = ck_fail_nomem(err, "a fact", TEXT_BYTES);
		else
			rc = ck_index_add_fact(ds->ix, err, key, "%s", text.p);
		ck_buf_release(&text);
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
	rc = add_value(ds, "loss_scale", ck_val_get(v, "cur_scale"), err);
	for (size_t i = 0; !rc && i < CK_ARRAY_LEN(keys); i++) {
		snprintf(key, sizeof(key), "loss_scaler.%s", keys[i]);
		rc = add_value(ds, key, ck_val_get(v, keys[i]), err);
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
		rc = add_value(ds, key, item[2 * i + 1], err);
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
			rc = add_value(ds, keys[i], ck_val_get(config, keys[i]), err);
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
		rc = add_value(ds, keys[i], ck_val_get(ds->model, keys[i]), err);
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
