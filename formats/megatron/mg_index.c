/*
 * mg_index.c -- the index: a tensor for each target, and facts.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/megatron/mg_buckets.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/step/ck_step_fact.h"

static const char *const names[MG_STATES] = { "weight", "master", "exp_avg", "exp_avg_sq" };

/* ---- tensors ---- */

static bool is_whole(const struct dcp_item *it)
{
	for (uint64_t i = 0; it && i < it->nchunks; i++)
		if (it->chunk[i].numel && !it->chunk[i].is_read)
			return false;
	return true;
}

/* Is each element there once?  A chunk that could not be read has a finding. */
static int is_covered(struct mg *mg, const struct mg_param *p, enum mg_which which,
		      struct ck_tiles *tiles, bool *yes, struct ckpt_err *err)
{
	const struct dcp_item *it = which == MG_W ? p->item : p->state[which].item;
	struct ck_tiles_fault fault;
	int rc;

	*yes = false;
	if (!is_whole(it))
		return 0;
	rc = ck_mg_state_tiles(mg, p, which, tiles, err);
	if (!rc)
		rc = ck_tiles_check(tiles, &fault, err);
	if (rc)
		return rc;
	*yes = !fault.odd || (which != MG_W && p->has_some_states && !fault.twice);
	if (!*yes)
		ck_findings_add(mg->fs.f, CK_FINDING_LENGTH_WRONG, it ? it->flat : p->key,
				"its chunks in '.metadata' %s element %" PRIu64 " of %" PRIu64
				" (files of two saves in one folder?)", fault.twice ?
				"overlap at" : "leave out", fault.at, p->numel);
	return 0;
}

static int put_target(struct mg *mg, const struct mg_target *t, uint32_t tensor,
		      enum mg_which which, struct ck_tiles *tiles, struct ckpt_err *err)
{
	struct ck_index *ix = mg->fs.ix;
	const uint8_t dtype = mg->param[t->param].state[which].dtype;
	int rc = ck_index_state_begin(ix, tensor, names[which], dtype, 0, err);

	if (!rc && !t->box)
		rc = ck_tiles_append(tiles, NULL, ix, err);
	for (uint64_t i = 0; !rc && i < t->nboxes; i++) {
		const struct ck_block box = { t->box[i].offset, t->box[i].size };

		rc = ck_tiles_append(tiles, &box, ix, err);
	}
	if (rc) {
		ck_index_state_cancel(ix);
		return rc;
	}
	return ck_index_state_end(ix, NULL, err);
}

/* A target may lack the state that others of its parameter have: a finding names the parameter. */
static int put_some(struct mg *mg, const struct mg_target *t, uint32_t tensor, enum mg_which which,
		    struct ck_tiles *tiles, struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	int rc = put_target(mg, t, tensor, which, tiles, &inner);

	if (!rc || (rc == -CKPT_E_MISMATCH && which != MG_W &&
		    mg->param[t->param].has_some_states))
		return 0;
	if (err)
		*err = inner;
	return rc;
}

/* One state of all the targets of a parameter, which are mg->by_param[first .. end). */
static int add_state(struct mg *mg, uint64_t param, enum mg_which which, const uint64_t *order,
		     uint64_t n, const uint32_t *tensor, struct ck_tiles *tiles,
		     struct ckpt_err *err)
{
	const struct mg_param *p = &mg->param[param];
	bool yes;
	int rc;

	if ((which != MG_W && p->no_states) || (which != MG_W && !p->state[which].dtype))
		return 0;
	rc = is_covered(mg, p, which, tiles, &yes, err);
	for (uint64_t i = 0; !rc && yes && i < n; i++)
		if (tensor[order[i]] != CK_NONE)
			rc = put_some(mg, &mg->target[order[i]], tensor[order[i]], which, tiles,
				      err);
	return rc;
}

static bool has_states(const struct mg_param *p)
{
	return p->state[MG_MASTER].dtype || p->state[MG_EXP_AVG].dtype;
}

static int add_tensors(struct mg *mg, uint32_t *tensor, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; rc >= 0 && i < mg->ntargets; i++) {
		const struct mg_target *t = &mg->target[i];
		const struct mg_param *p = &mg->param[t->param];

		tensor[i] = CK_NONE;
		rc = ck_index_add_tensor(mg->fs.ix, t->name, t->shape, t->ndim, has_states(p) ?
					 CKPT_ROLE_TRAINABLE : CKPT_ROLE_PLAIN, &tensor[i], err);
		if (!rc)
			continue;
		tensor[i] = CK_NONE;
		if (rc > 0)
			ck_findings_add(mg->fs.f, CK_FINDING_TENSOR_DUPLICATE, p->key,
					"two parameters are called %s", t->name);
	}
	return rc < 0 ? rc : 0;
}

/* Targets by parameter, as ranges: where those of parameter i end is in end[i]. */
static int sort_targets(struct mg *mg, uint64_t **order_out, uint64_t **end_out,
			struct ckpt_err *err)
{
	uint64_t *order = ck_arena_alloc(&mg->fs.arena, (mg->ntargets + 1) * sizeof(*order));
	uint64_t *end = ck_arena_zalloc(&mg->fs.arena, (mg->nparams + 1) * sizeof(*end));

	if (!order || !end)
		return ck_fail_nomem(err, "targets", mg->ntargets);
	for (uint64_t i = 0; i < mg->ntargets; i++)
		end[mg->target[i].param + 1]++;
	for (uint64_t i = 1; i <= mg->nparams; i++)
		end[i] += end[i - 1];
	for (uint64_t i = 0; i < mg->ntargets; i++)
		order[end[mg->target[i].param]++] = i;
	*order_out = order;
	*end_out = end;
	return 0;
}

static int add_all(struct mg *mg, struct ckpt_err *err)
{
	uint32_t *tensor = ck_arena_alloc(&mg->fs.arena, (mg->ntargets + 1) * sizeof(*tensor));
	struct ck_tiles tiles;
	uint64_t *order = NULL, *end = NULL;
	int rc = tensor ? sort_targets(mg, &order, &end, err) : ck_fail_nomem(err, "tensors", 0);

	if (!rc)
		rc = add_tensors(mg, tensor, err);
	ck_tiles_init(&tiles, mg->fs.in->limits.memory_bytes);
	for (uint64_t i = 0; !rc && i < mg->nparams; i++) {
		const uint64_t first = i ? end[i - 1] : 0;

		for (int w = 0; !rc && w < MG_STATES; w++)
			rc = add_state(mg, i, (enum mg_which)w, order + first, end[i] - first,
				       tensor, &tiles, err);
	}
	ck_tiles_release(&tiles);
	return rc;
}

/* ---- facts ---- */

static int add_layout(struct mg *mg, struct ckpt_err *err)
{
	const struct mg_model *m = &mg->model;
	const struct {
		const char *name;
		uint64_t n;
	} axis[] = {
		{ "tp", m->tp }, { "pp", m->pp }, { "vpp", m->vpp }, { "ep", m->ep },
		{ "cp", m->cp }, { "dp", m->dp },
	};
	char text[200] = "";
	size_t at = 0;

	for (size_t i = 0; i < CK_ARRAY_LEN(axis); i++)
		if (axis[i].n > 1)
			at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s %" PRIu64,
					       at ? " x " : "", axis[i].name, axis[i].n);
	return at ? ck_index_add_fact(mg->fs.ix, err, "layout", "%s", text) : 0;
}

static int add_group(struct mg *mg, const struct ck_val *group, struct ckpt_err *err)
{
	struct ck_val *const *item;
	char key[128];
	uint64_t n = 0;
	int rc = 0;

	if (!ck_val_pairs(group, &item, &n))
		return 0;
	for (uint64_t i = 0; !rc && i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);

		if (!name || !strcmp(name, "params"))
			continue;
		snprintf(key, sizeof(key), "group.%u.%.100s", mg->ngroups, name);
		rc = ck_step_add_fact(mg->fs.ix, key, item[2 * i + 1], err);
	}
	mg->ngroups++;
	return rc;
}

static int add_groups(struct mg *mg, struct ckpt_err *err)
{
	const struct ck_val *all = ck_mg_groups(mg);
	struct ck_val *const *item;
	uint64_t n = 0;
	int rc = all ? 0 : ck_fail_nomem(err, "param groups", 0);

	ck_val_seq(all, &item, &n);
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = add_group(mg, item[i], err);
	mg->fs.ix->ngroups = mg->ngroups;
	return rc;
}

static int add_scheduler(struct mg *mg, struct ckpt_err *err)
{
	struct ck_val *const *item;
	char key[128];
	uint64_t n = 0;
	int rc = 0;

	if (!ck_val_pairs(ck_val_get(mg->common, "opt_param_scheduler"), &item, &n))
		return 0;
	for (uint64_t i = 0; !rc && i < n; i++)
		if (ck_val_str(item[2 * i])) {
			snprintf(key, sizeof(key), "scheduler.%.100s", ck_val_str(item[2 * i]));
			rc = ck_step_add_fact(mg->fs.ix, key, item[2 * i + 1], err);
		}
	return rc;
}

/* By what only some versions write. */
static const char *writer_of(const struct mg *mg)
{
	if (mg->has_common_item)
		return "Megatron-Core 0.19 or later";
	if (mg->is_mcore_class)
		return "Megatron-Core 0.15";
	if (mg->layout == MG_MODEL_SPACE)
		return mg->content ? "Megatron-Core 0.14" : "Megatron-Core 0.13 or earlier";
	if (mg->mcore_data)
		return mg->content ? "Megatron-Core 0.14" : "Megatron-Core 0.13 or earlier";
	return mg->content ? "Megatron-Core 0.14 to 0.18" : "Megatron-Core";
}

static bool has_moments(const struct mg *mg)
{
	for (uint64_t i = 0; i < mg->nparams; i++)
		if (mg->param[i].state[MG_EXP_AVG].dtype)
			return true;
	return false;
}

/* "unnamed": it is saved, but the index has no state of a bucket. */
static const char *optimizer_of(const struct mg *mg)
{
	uint64_t bytes;

	if (has_moments(mg))
		return "sharded";
	return ck_mg_buckets_count(mg, &bytes) ? "unnamed" : "none";
}

int ck_mg_index_fill(struct mg *mg, struct ckpt_err *err)
{
	static const char *const layouts[] = {
		"none", "fully_reshardable", "fully_sharded_model_space", "dp_reshardable",
		"dp_zero_gather_scatter", "replicated",
	};
	struct ck_index *ix = mg->fs.ix;
	uint64_t named;
	int rc = add_all(mg, err);

	ix->world = mg->model.world && mg->model.world <= UINT32_MAX ? (uint32_t)mg->model.world :
		    ck_dcp_files_world(&mg->fs);
	ix->optimizer = optimizer_of(mg);
	ix->writer = writer_of(mg);
	if (ix->step >= 0 && ck_step_number(ix->tag, &named) && named != (uint64_t)ix->step)
		ck_findings_add(mg->fs.f, CK_FINDING_TAG_STEP_DIFFERS, ix->path,
				"the folder is called %s, its common state says iteration %" PRId64
				" (was it renamed?)", ix->tag, ix->step);
	if (!rc)
		rc = add_layout(mg, err);
	if (!rc)
		rc = ck_index_add_fact(ix, err, "optimizer_layout", "%s", layouts[mg->layout]);
	if (!rc)
		rc = add_groups(mg, err);
	return rc ? rc : add_scheduler(mg, err);
}
