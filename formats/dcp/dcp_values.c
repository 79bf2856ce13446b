/*
 * dcp_values.c -- what of a step is no tensor of the model, as <ckpt_value.h> shows it: '.metadata'
 * is read again, and of the data files the archives of values and single numbers.
 *
 *	model       the client's values; of a step that zckpt wrote also its counts, configuration
 *	            and scheduler.  "global_steps" of another program's is its own count of steps
 *	optimizer   {"state": {NAME: {"step": N}}, "param_groups": [...]}, as torch's state dict
 */
#include <inttypes.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/tensor/ck_val_new.h"

struct opened {
	struct ck_input in;
	struct ck_findings f;
	struct ck_index own;	/* for facts and hashes that only a new index needs */
	struct dcp *d;
};

/* ---- files, which the index has open ---- */

/* The folder that accelerate has for a part, or "". */
static const char *sub_of(struct dcp_files *fs, const char *path)
{
	const char *end = path + strlen(path) - strlen("/" DCP_METADATA), *begin = end;

	while (begin > path && begin[-1] != '/')
		begin--;
	if (!ck_dcp_is_part_folder(begin))
		return "";
	return ck_arena_strndup(&fs->arena, begin, (size_t)(end - begin));
}

/* ---- trees ---- */

static struct ck_val *make_model(struct dcp *d, const struct ck_index *ix, struct ckpt_err *err)
{
	struct ck_val *model = ck_val_new_dict(&d->fs.arena);
	const char *why;
	int rc = model ? 0 : ck_fail_nomem(err, "values", 0);

	for (uint64_t i = 0; !rc && i < d->fs.nitems; i++)
		if (d->fs.item[i].use == DCP_OTHER && strcmp(d->fs.item[i].flat, "deepspeed"))
			rc = ck_dcp_client_add(d, model, &d->fs.item[i], &why, err);
	if (!rc)
		ck_dcp_client_end(d, model);
	if (!rc)
		rc = ck_step_ds_model(d->deepspeed, &d->fs.arena, model, err);
	if (!rc && ix->step >= 0 && !ck_val_get(model, "global_steps") &&
	    !ck_val_dict_sets(&d->fs.arena, model, "global_steps",
			      ck_val_new_int(&d->fs.arena, ix->step)))
		rc = ck_fail_nomem(err, "a count", 0);
	return rc ? NULL : model;
}

/* {NAME: {"step": N}} */
static struct ck_val *steps_of(struct dcp *d)
{
	struct ck_arena *a = &d->fs.arena;
	struct ck_val *all = ck_val_new_dict(a);

	for (uint64_t i = 0; all && i < d->fs.nitems; i++) {
		const struct dcp_item *it = &d->fs.item[i];

		if (it->use == DCP_STATE && it->has_number && !strcmp(it->state, "step"))
			all = ck_val_dict_sets(a, all, it->name,
					       ck_val_dict_sets(a, ck_val_new_dict(a), "step",
								ck_val_new_float(a, it->number)));
	}
	return all;
}

/* Its values, and "params": the names of its parameters. */
static struct ck_val *group_of(struct dcp *d, uint32_t g)
{
	struct ck_arena *a = &d->fs.arena;
	struct ck_val *names = ck_val_new_list(a), *group = ck_val_new_dict(a), *const *item;
	uint64_t n = 0;

	ck_val_pairs(d->group[g].hyper, &item, &n);
	for (uint64_t i = 0; group && i < n; i++)
		group = ck_val_dict_add(a, group, item[2 * i], item[2 * i + 1]);
	for (uint64_t i = 0; names && i < d->group_of.n; i++)
		if (d->group_of.entry[i].value == g)
			names = ck_val_list_add(a, names,
						ck_val_new_str(a, d->group_of.entry[i].key));
	return ck_val_dict_sets(a, group, "params", names);
}

static int make_optimizer(struct dcp *d, struct ck_values *out, struct ckpt_err *err)
{
	struct ck_arena *a = &d->fs.arena;
	struct ck_val *groups = ck_val_new_list(a), *all = ck_val_new_dict(a);

	if (!d->optim)
		return 0;
	for (uint32_t g = 0; groups && g < d->ngroups; g++)
		groups = ck_val_list_add(a, groups, group_of(d, g));
	all = ck_val_dict_sets(a, all, "state", steps_of(d));
	all = ck_val_dict_sets(a, all, "param_groups", groups);
	if (!all)
		return ck_fail_nomem(err, "param groups", d->ngroups);
	out->optimizer = all;
	out->groups = groups;
	out->scaler = ck_val_get(d->deepspeed, "loss_scaler");
	return 0;
}

/* ---- */

/* The files are the index's. */
static void close_values(struct ck_values *v)
{
	struct opened *o = v->own;

	if (!o)
		return;
	ck_dcp_files_give_back(&o->d->fs);
	ck_dcp_free(o->d);
	ck_findings_release(&o->f);
	ck_index_release(&o->own);
	ck_free(o);
	v->own = NULL;
}

static int bytes_of(const struct ck_values *v, const struct ck_tensor_ref *t, bool in_model,
		    uint64_t max, uint8_t **out, struct ckpt_err *err)
{
	(void)v;
	(void)in_model;
	(void)max;
	(void)out;
	return ck_fail(err, CKPT_E_UNSUPPORTED, NULL, CKPT_NO_OFFSET,
		       "a tensor of %" PRIu64 " elements within a value of a DCP folder: zckpt "
		       "reads single numbers only there", t->numel);
}

static int read_all(struct dcp *d, const struct ck_index *ix, struct ckpt_err *err)
{
	int rc = ck_dcp_files_lend(&d->fs, ix, sub_of, err);

	if (!rc)
		rc = ck_dcp_values_read(&d->fs, err);
	if (!rc)
		rc = ck_dcp_deepspeed_find(d, err);
	if (!rc)
		rc = ck_dcp_names_find(d, err);
	return rc ? rc : ck_dcp_groups_find(d, err);
}

int ck_dcp_values(const struct ck_index *ix, const struct ckpt_limits *limits, uint32_t rank,
		  struct ck_values *out, struct ckpt_err *err)
{
	struct opened *o = ck_zalloc(sizeof(*o));
	int rc;

	(void)rank;	/* one rank's are all ranks' */
	if (!o)
		return ck_fail_nomem(err, "values", sizeof(*o));
	rc = ck_index_init(&o->own, limits->memory_bytes, err);
	o->d = rc ? NULL : ck_dcp_new(&o->in, &o->own, &o->f, err);
	if (!o->d) {
		ck_index_release(&o->own);
		ck_free(o);
		return rc ? rc : -CKPT_E_NOMEM;
	}
	o->in.limits = *limits;
	o->in.threads = 1;
	o->d->fs.arena.limit = limits->memory_bytes;
	o->d->fs.at.where = ix->path;
	out->own = o;
	rc = read_all(o->d, ix, err);
	if (!rc)
		rc = make_optimizer(o->d, out, err);
	if (!rc)
		out->model = make_model(o->d, ix, err);
	if (!rc && !out->model)
		rc = -CKPT_E_NOMEM;
	rc = ck_arena_why(&o->d->fs.arena, rc, ix->path, err);
	if (rc) {
		close_values(out);
		return rc;
	}
	out->bytes = bytes_of;
	out->close = close_values;
	return 0;
}
