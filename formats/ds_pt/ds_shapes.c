/*
 * ds_shapes.c -- param_shapes: the only authority for which name lies where in the flat
 * data.  A list with a dictionary per param group (stages 1, 2, BF16_Optimizer) or per
 * sub-group (stage 3); one dictionary before 0.5.4; in the shard up to 0.5.10.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/ds_pt/ck_ds.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/tensor/ck_dtype.h"

bool ck_ds_shape_of(struct ds_step *ds, const struct ck_val *v, const uint64_t **shape_out,
		 uint32_t *ndim_out, uint64_t *numel_out)
{
	struct ck_val *const *item;
	uint64_t n, *shape;

	if (!ck_val_seq(v, &item, &n) || n > ds->in->limits.tensor_dims)
		return false;
	shape = ck_arena_alloc(&ds->arena, n * sizeof(*shape));
	if (!shape)
		return false;
	for (uint64_t i = 0; i < n; i++) {
		int64_t d;

		if (!ck_val_int(item[i], &d) || d < 0)
			return false;
		shape[i] = (uint64_t)d;
	}
	*shape_out = shape;
	*ndim_out = (uint32_t)n;
	return !ck_shape_numel(shape, (uint32_t)n, numel_out, NULL);
}

/* 'room': how many names there may still be. */
static int read_group(struct ds_step *ds, const struct ck_val *dict, struct ds_group *g,
		      uint64_t *room, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(dict, &item, &n))
		return ck_fail(err, CKPT_E_CORRUPT, ds->at.where, CKPT_NO_OFFSET,
			       "an entry of param_shapes is not a dictionary");
	if (n > *room)	/* one dictionary may hang in many places */
		return ck_fail(err, CKPT_E_CORRUPT, ds->at.where, CKPT_NO_OFFSET,
			       "NAMES_WRONG: param_shapes lists more parameters than the file has "
			       "values, so some names are listed twice");
	*room -= n;
	g->param = ck_arena_zalloc(&ds->arena, (n + 1) * sizeof(*g->param));
	if (!g->param)
		return ck_fail_nomem(err, "a list of parameters", n);
	g->nparams = (uint32_t)n;
	for (uint64_t i = 0; i < n; i++) {
		struct ds_param *p = &g->param[i];

		p->tensor = CK_NONE;
		p->name = ck_val_str(item[2 * i]);
		if (!p->name ||
		    !ck_ds_shape_of(ds, item[2 * i + 1], &p->shape, &p->ndim, &p->numel))
			return ck_fail(err, CKPT_E_CORRUPT, ds->at.where, CKPT_NO_OFFSET,
				       "entry %" PRIu64 " of param_shapes has no name or no shape",
				       i);
	}
	return 0;
}

static int too_many(const struct ds_step *ds, const char *what, uint64_t n, struct ckpt_err *err)
{
	return ck_fail_limit(err, ds->at.where, CKPT_NO_OFFSET, "groups", ds->in->limits.groups,
			     "the optimizer has %" PRIu64 " %s", n, what);
}

/* The param group and the key of its state that sub-group number 'sub' has. */
static void name_sub_group(struct ds_step *ds, uint32_t sub, int32_t group, int64_t key)
{
	if (sub >= ds->ngroups)
		return;
	ds->group[sub].group = group;
	ds->group[sub].state_key = key;
}

/*
 * Sub-groups to param groups and to keys of 'state': param_groups[k]['params'] lists them in
 * order.  Usually key i is sub-group i; but Adagrad before its first step lists every
 * sub-group twice under keys that begin behind their number, so positions count.
 */
static int name_sub_groups(struct ds_step *ds, struct ckpt_err *err)
{
	struct ck_val *const *groups, *const *params;
	uint64_t ngroups, n, seen = 0;
	uint32_t sub = 0;
	int64_t key, last = -1;

	if (!ck_val_seq(ds->param_groups, &groups, &ngroups))
		return 0;
	for (uint64_t k = 0; k < ngroups; k++) {
		if (!ck_val_seq(ck_val_get(groups[k], "params"), &params, &n))
			continue;
		seen += n;	/* one list may hang in many groups */
		if (seen > 2 * (uint64_t)ds->in->limits.groups)
			return too_many(ds, "sub-groups in param_groups", seen, err);
		for (uint64_t i = 0; i < n; i++) {
			if (!ck_val_int(params[i], &key) || key <= last)
				continue;
			last = key;
			name_sub_group(ds, sub++, (int32_t)k, key);
		}
	}
	if (sub != ds->ngroups)
		ck_findings_add(ds->f, CK_FINDING_NAMES_WRONG, ds->at.where,
				"param_groups list %u sub-groups, param_shapes has %u", sub,
				ds->ngroups);
	return 0;
}

int ck_ds_name_groups(struct ds_step *ds, struct ckpt_err *err)
{
	const struct ck_val *groups = ds->param_groups;
	struct ck_val *const *item;
	uint64_t n;

	if (ck_val_seq(groups, &item, &n) && n > ds->in->limits.groups)
		return too_many(ds, "param groups", n, err);
	for (uint32_t g = 0; g < ds->ngroups; g++) {
		const struct ck_val *params = ck_val_get(ck_val_at(groups, g), "params");

		ds->group[g].group = ds->stage == 3 ? -1 : (int32_t)g;
		/* stages 1 and 2: one flat tensor, whose key is usually the group's number */
		if (ds->stage == 3 || !ck_val_int(ck_val_at(params, 0), &ds->group[g].state_key))
			ds->group[g].state_key = g;
	}
	return ds->stage == 3 && ds->zero ? name_sub_groups(ds, err) : 0;
}

int ck_ds_read_shapes(struct ds_step *ds, struct ckpt_err *err)
{
	const struct ck_val *shapes = ck_val_get(ds->model, "param_shapes");
	uint64_t n, room = ds->model_file->pt->doc.nodes;
	struct ck_val *const *item, *one;
	int rc = 0;

	ds->frozen_listed = ck_val_get(ds->model, "frozen_param_shapes") &&
			    !ck_val_is_none(ck_val_get(ds->model, "frozen_param_shapes"));
	if ((!shapes || ck_val_is_none(shapes)) && ds->optim_file) {
		shapes = ck_val_get(ds->optim_file->pt->doc.root, "param_shapes");
		room = ds->optim_file->pt->doc.nodes;
	}
	if (!shapes || ck_val_is_none(shapes))
		return 0;
	one = (struct ck_val *)(uintptr_t)shapes;
	if (!ck_val_seq(shapes, &item, &n)) {
		item = &one;
		n = 1;
	}
	if (n > ds->in->limits.groups)
		return too_many(ds, "groups in param_shapes", n, err);
	ds->group = ck_arena_zalloc(&ds->arena, (n + 1) * sizeof(*ds->group));
	if (!ds->group)
		return ck_fail_nomem(err, "groups", n);
	ds->ngroups = (uint32_t)n;
	for (uint64_t g = 0; !rc && g < n; g++)
		rc = read_group(ds, item[g], &ds->group[g], &room, err);
	return rc ? rc : ck_ds_name_groups(ds, err);
}
