/*
 * ds_values.c -- what of a step is no tensor: the files of the index that have a rank's, and where
 * in them an optimizer keeps its param groups and loss scaler.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/ds_pt/ck_ds.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"

struct opened {
	struct ck_pt *model, *optim;	/* may be the same */
};

static void close_both(struct ck_values *v)
{
	struct opened *o = v->own;

	if (!o)
		return;
	if (o->optim != o->model)
		ck_pt_close(o->optim);
	ck_pt_close(o->model);
	ck_free(o);
	v->own = NULL;
}

static int bytes_of(const struct ck_values *v, const struct ck_tensor_ref *t, bool in_model,
		    uint64_t max, uint8_t **out, struct ckpt_err *err)
{
	const struct opened *o = v->own;

	return ck_pt_tensor_bytes(in_model ? o->model : o->optim, t, max, out, err);
}

const struct ck_source *ck_ds_source_of(const struct ck_index *ix, enum ds_kind kind,
					uint32_t rank)
{
	for (uint64_t i = 0; i < ix->nsources; i++) {
		const struct ds_name id = ck_ds_name_parse(ck_fs_base(ix->source[i].path));

		if (id.kind == kind && id.rank == rank)
			return &ix->source[i];
	}
	return NULL;
}

const struct ck_source *ck_ds_source_named(const struct ck_index *ix, const char *end)
{
	const size_t n = strlen(end);

	for (uint64_t i = 0; i < ix->nsources; i++) {
		const char *path = ix->source[i].path;
		const size_t len = strlen(path);

		if (len > n && path[len - n - 1] == '/' && !strcmp(path + len - n, end))
			return &ix->source[i];
	}
	return NULL;
}

/* ---- where optimizers keep things ---- */

/* Of ZeRO, of the wrapper of stage 0, of the torch optimizer itself, of the universal form. */
static const struct ck_val *groups_in(const struct ck_val *optimizer)
{
	static const char *const inner[] = { "base_optimizer_state", "optimizer_state_dict" };
	struct ck_val *const *item;
	uint64_t n;

	for (size_t i = 0; i < CK_ARRAY_LEN(inner); i++) {
		const struct ck_val *in = ck_val_get(optimizer, inner[i]);
		const struct ck_val *v = ck_val_get(in, "param_groups");

		if (ck_val_seq(v, &item, &n))
			return v;
	}
	optimizer = ck_val_get(optimizer, "param_groups");
	return ck_val_seq(optimizer, &item, &n) ? optimizer : NULL;
}

/* ZeRO keeps an object; at stage 0 its numbers stand in the optimizer's own state. */
static const struct ck_val *scaler_in(const struct ck_val *optimizer)
{
	const struct ck_val *v = ck_val_get(optimizer, "loss_scaler");
	struct ck_val *const *item;
	uint64_t n;

	if (v && v->kind == CK_VAL_OBJECT && ck_val_pairs(v->u.obj->state, &item, &n))
		return v->u.obj->state;
	if (ck_val_pairs(v, &item, &n))
		return v;
	return ck_val_get(optimizer, "cur_scale") ? optimizer : NULL;
}

void ck_ds_take_optimizer(struct ck_values *v, const struct ck_val *optimizer)
{
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(optimizer, &item, &n))
		return;
	v->optimizer = optimizer;
	v->groups = groups_in(optimizer);
	v->scaler = scaler_in(optimizer);
}

/* ---- files ---- */

static int open_pt(const struct ck_source *s, const struct ckpt_limits *limits, struct ck_pt **out,
		   struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int rc = ck_pt_open(s->src, limits, 0, NULL, out, err);

	if (!rc && !ck_val_pairs((*out)->doc.root, &item, &n)) {
		ck_pt_close(*out);
		*out = NULL;
		rc = ck_fail(err, CKPT_E_CORRUPT, s->path, CKPT_NO_OFFSET,
			     "this file holds no dictionary");
	}
	return rc;
}

int ck_ds_open_values(const struct ck_index *ix, const struct ckpt_limits *limits, uint32_t rank,
		      const struct ck_source *model, const struct ck_source *optim,
		      struct ck_values *out, struct ckpt_err *err)
{
	struct opened *o;
	int rc;

	if (!model)
		return ck_fail(err, CKPT_E_INCOMPLETE, ix->path, CKPT_NO_OFFSET,
			       "MODEL_FILE_MISSING: no file here has the values of rank %" PRIu32,
			       rank);
	o = ck_zalloc(sizeof(*o));
	if (!o)
		return ck_fail_nomem(err, "values", sizeof(*o));
	out->own = o;
	out->bytes = bytes_of;
	out->close = close_both;
	rc = open_pt(model, limits, &o->model, err);
	if (!rc && optim && optim != model)
		rc = open_pt(optim, limits, &o->optim, err);
	if (rc) {
		close_both(out);
		return rc;
	}
	if (!o->optim)
		o->optim = o->model;
	out->model = o->model->doc.root;
	return 0;
}

const struct ck_source *ck_ds_model_source(const struct ck_index *ix, uint32_t rank)
{
	const struct ck_source *s = ck_ds_source_of(ix, DS_MODEL, 0);

	return s ? s : ck_ds_source_of(ix, DS_MODEL_RANK, rank);
}

const struct ck_val *ck_ds_values_root(const struct ck_values *v)
{
	const struct opened *o = v->own;

	return o->optim->doc.root;
}
