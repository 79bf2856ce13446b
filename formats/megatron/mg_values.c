/*
 * mg_values.c -- what of an iteration is no tensor, as <ckpt_value.h> shows it.
 *
 *	model       the common state without the optimizer; "args" as a dictionary of its
 *	            attributes; "global_steps" is the iteration
 *	optimizer   {"param_groups": [...]} of all its optimizers, dense parameters first
 */
#include <inttypes.h>
#include <string.h>

#include "formats/megatron/mg.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/tensor/ck_val_new.h"

struct opened {
	struct ck_input in;
	struct ck_findings f;
	struct ck_index own;	/* for hashes that only a new index needs */
	struct mg mg;
};

static const char *sub_of(struct dcp_files *fs, const char *path)
{
	(void)fs;
	(void)path;
	return "";
}

static int open_common(struct mg *mg, const struct ck_index *ix, struct ckpt_err *err)
{
	for (uint64_t i = 0; i < ix->nsources; i++)
		if (ck_ends_with(ix->source[i].path, "/" MG_COMMON)) {
			const int rc = ck_pt_open(ix->source[i].src, &mg->fs.in->limits, 0, NULL,
						  &mg->common_file.pt, err);

			if (!rc)
				mg->common = mg->common_file.pt->doc.root;
			return rc;
		}
	mg->common = ck_mg_common_in_items(mg);
	return mg->common ? 0 :
	       ck_fail(err, CKPT_E_INCOMPLETE, ix->path, CKPT_NO_OFFSET,
		       "MODEL_FILE_MISSING: neither common.pt nor an item common_state is here, "
		       "which have the values");
}

static struct ck_val *make_model(struct mg *mg, const struct ck_index *ix)
{
	struct ck_arena *a = &mg->fs.arena;
	struct ck_val *model = ck_val_new_dict(a), *const *item;
	uint64_t n = 0;

	ck_val_pairs(mg->common, &item, &n);
	for (uint64_t i = 0; model && i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);
		struct ck_val *v = item[2 * i + 1];

		if (key && !strcmp(key, "optimizer"))
			continue;
		if (key && !strcmp(key, "args") && ck_dcp_state_of(v))
			v = (struct ck_val *)ck_dcp_state_of(v);
		model = ck_val_dict_add(a, model, item[2 * i], v);
	}
	if (model && ix->step >= 0 && !ck_val_get(model, "global_steps"))
		model = ck_val_dict_sets(a, model, "global_steps", ck_val_new_int(a, ix->step));
	return model;
}

static int make_trees(struct mg *mg, const struct ck_index *ix, struct ck_values *out,
		      struct ckpt_err *err)
{
	struct ck_arena *a = &mg->fs.arena;
	struct ck_val *groups = ck_mg_groups(mg), *optimizer;

	out->model = make_model(mg, ix);
	if (!out->model || !groups)
		return ck_fail_nomem(err, "values", 0);
	if (!groups->u.seq.n)
		return 0;
	optimizer = ck_val_dict_sets(a, ck_val_new_dict(a), "param_groups", groups);
	if (!optimizer)
		return ck_fail_nomem(err, "param groups", groups->u.seq.n);
	out->optimizer = optimizer;
	out->groups = groups;
	return 0;
}

/* The files are the index's. */
static void close_values(struct ck_values *v)
{
	struct opened *o = v->own;

	if (!o)
		return;
	ck_dcp_files_give_back(&o->mg.fs);
	ck_mg_release(&o->mg);
	ck_findings_release(&o->f);
	ck_index_release(&o->own);
	ck_free(o);
	v->own = NULL;
}

static int bytes_of(const struct ck_values *v, const struct ck_tensor_ref *t, bool in_model,
		    uint64_t max, uint8_t **out, struct ckpt_err *err)
{
	const struct opened *o = v->own;

	if (in_model && o->mg.common_file.pt)
		return ck_pt_tensor_bytes(o->mg.common_file.pt, t, max, out, err);
	return ck_fail(err, CKPT_E_UNSUPPORTED, NULL, CKPT_NO_OFFSET,
		       "a tensor of %" PRIu64 " elements within a value of '.metadata': zckpt does "
		       "not read it", t->numel);
}

int ck_mg_values(const struct ck_index *ix, const struct ckpt_limits *limits, uint32_t rank,
		 struct ck_values *out, struct ckpt_err *err)
{
	struct opened *o = ck_zalloc(sizeof(*o));
	int rc;

	(void)rank;	/* one rank's are all ranks' */
	if (!o)
		return ck_fail_nomem(err, "values", sizeof(*o));
	rc = ck_index_init(&o->own, limits->memory_bytes, err);
	if (rc) {
		ck_free(o);
		return rc;
	}
	o->in.limits = *limits;
	o->in.threads = 1;
	ck_dcp_files_init(&o->mg.fs, &o->in, &o->own, &o->f);
	o->mg.fs.at.where = ix->path;
	out->own = o;
	rc = ck_dcp_files_lend(&o->mg.fs, ix, sub_of, err);
	if (!rc)
		rc = ck_dcp_values_read(&o->mg.fs, err);
	if (!rc)
		rc = open_common(&o->mg, ix, err);
	if (!rc)
		rc = make_trees(&o->mg, ix, out, err);
	rc = ck_arena_why(&o->mg.fs.arena, rc, ix->path, err);
	if (rc) {
		close_values(out);
		return rc;
	}
	out->bytes = bytes_of;
	out->close = close_values;
	return 0;
}
