/*
 * nat_step.c -- native steps (docs/formats/native.md): the driver's table.
 *
 * Tensors come from the manifest (nat_read.c), values from rest*.pt, which have the keys of model
 * files.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <ckpt_zero.h>

#include "formats/native/ck_nat.h"
#include "formats/native/nat_step.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"

/* ---- which step ---- */

static int probe(const struct ck_input *in)
{
	const struct ck_format *kind;
	bool named;
	int rc;

	if (!in->is_dir)
		return 0;
	if (ck_nat_is_step(&in->tree))
		return 72;
	rc = ck_step_chosen_kind(in, &kind, &named);
	return rc ? rc : kind != &ck_format_native ? 0 : named ? 72 : 21;
}

static int holds(const struct ck_tree *tree)
{
	return ck_nat_is_step(tree) ? 72 : 0;
}

static bool is_like(const char *name, const char *begin, const char *end)
{
	const size_t n = strlen(name), b = strlen(begin), k = strlen(end);

	return n >= b + k && !strncmp(name, begin, b) && !strcmp(name + n - k, end);
}

static bool is_part(const char *name, bool is_dir)
{
	return !is_dir && (is_like(name, "rank-", ".safetensors") ||
			   is_like(name, "frozen-", ".safetensors") ||
			   is_like(name, "rest", ".pt") || is_like(name, "manifest", ".json"));
}

/* ---- values ---- */

static int make_ranks(struct ds_step *ds, struct ckpt_err *err)
{
	if (ds->ix->world > CKPT_ZERO_MAX_WORLD)
		return ck_fail(err, CKPT_E_CORRUPT, ds->at.where, CKPT_NO_OFFSET,
			       "the manifest says that %" PRIu32 " ranks wrote the step; 1 to "
			       "%u are possible", ds->ix->world, CKPT_ZERO_MAX_WORLD);
	ds->world = (uint32_t)ck_max_u64(1, ds->ix->world);
	ds->model_rank = ck_arena_zalloc(&ds->arena, ds->world * sizeof(*ds->model_rank));
	return ds->model_rank ? 0 : ck_fail_nomem(err, "a table of ranks", ds->world);
}

/* rest.pt is the first of the files with number 0; ds->file has those that are there. */
static int list_rests(struct ds_step *ds, const struct ck_nat *nat, struct ckpt_err *err)
{
	ds->file = ck_arena_zalloc(&ds->arena, (nat->nfiles + 1) * sizeof(*ds->file));
	if (!ds->file)
		return ck_fail_nomem(err, "a list of files", nat->nfiles);
	for (uint64_t i = 0; i < nat->nfiles; i++) {
		const struct ck_tree_entry *e = ck_tree_find(&ds->at.tree, nat->file[i].name);
		struct ds_file *file = &ds->file[ds->nfiles];

		if (nat->file[i].head || nat->file[i].again || !e)
			continue;
		*file = (struct ds_file){ .path = e->path, .name = e->name, .bytes = e->bytes };
		file->id.kind = DS_MODEL_RANK;
		file->id.rank = (uint32_t)nat->file[i].rank;
		if (file->id.rank >= ds->world)
			return ck_fail(err, CKPT_E_CORRUPT, e->path, CKPT_NO_OFFSET,
				       "this file has the values of rank %" PRIu32 ", but "
				       "%" PRIu32 " ranks wrote the step",
				       file->id.rank, ds->world);
		if (!file->id.rank)
			ds->model_file = file;
		else
			ds->model_rank[file->id.rank].file = file;
		ds->nfiles++;
	}
	return 0;
}

static void check_id(struct ds_file *file, const char *id)
{
	const char *said = ck_val_str(ck_val_get(file->pt->doc.root, "zckpt_id"));

	if (!said || strcmp(said, id))
		ck_findings_add(&file->notes, CK_FINDING_STEP_MIXED, file->path,
				"this file is of save %.40s, the manifest of save %s (files of "
				"two saves in one folder?)", said ? said : "(no id)", id);
}

/* Each must be of this saving; rank 0's stays open. */
static int look_at_rests(struct ds_step *ds, const struct ck_nat *nat, struct ckpt_err *err)
{
	int rc = list_rests(ds, nat, err);

	for (uint64_t i = 0; !rc && i < ds->nfiles; i++) {
		struct ds_file *file = &ds->file[i];

		rc = ck_ds_open_pt(ds, file, err);
		if (!rc) {
			check_id(file, nat->id);
			if (ds->model_file && ds->model_file->pt)
				ck_ds_note_own_model(ds, file);
		} else {
			rc = ck_ds_note_damage(file, rc, err);
		}
		ck_findings_merge(ds->f, &file->notes, CK_FINDING_COUNT);
		if (file != ds->model_file)
			ck_ds_keep_pt(ds, file);
	}
	return rc;
}

/* ---- reading ---- */

static int begin(struct ds_step *ds, struct ck_nat *nat, struct ckpt_err *err)
{
	int rc;

	ds->arena.limit = ds->in->limits.memory_bytes;
	pthread_mutex_init(&ds->lock, NULL);
	rc = ck_ds_find(ds, err);
	if (!rc)
		rc = ck_nat_read(nat, &ds->at.tree, ds->at.where, &ds->in->limits, ds->in->pool,
				 ds->ix, ds->f, err);
	if (!rc)
		rc = make_ranks(ds, err);
	if (!rc)
		rc = look_at_rests(ds, nat, err);
	for (uint64_t i = 0; i < ds->at.tree.ndiffering; i++)
		ck_findings_add(ds->f, CK_FINDING_OVERLAY_DIFFERS, ds->at.tree.differing[i],
				"two of the given folders hold this file with different sizes; the "
				"first one's is used");
	return rc;
}

static int nat_index(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
		     struct ckpt_err *err)
{
	struct ds_step *ds = ck_alloc(sizeof(*ds));
	struct ck_nat nat = { 0 };
	int rc;

	if (!ds)
		return ck_fail_nomem(err, "a step", sizeof(*ds));
	*ds = (struct ds_step){ .in = in, .ix = ix, .f = f };
	rc = begin(ds, &nat, err);
	if (!rc && ds->model_file && ds->model_file->pt) {
		ds->model = ds->model_file->pt->doc.root;
		rc = ck_ds_add_batch(ds, err);	/* manifests of ztrain say nothing of it */
	}
	rc = ck_arena_why(&ds->arena, rc, in->path[0], err);
	rc = ck_arena_why(&nat.arena, rc, in->path[0], err);
	ck_nat_release(&nat);
	ck_kept_give(in->kept, rc, ds, ck_ds_free);
	return rc;
}

/* ---- a step that is written of this one ---- */

static void take_param(struct ds_group *g, const struct ck_tensor *t, uint32_t number)
{
	g->param[g->nparams++] = (struct ds_param){
		.name = t->name, .shape = t->shape, .ndim = t->ndim, .numel = t->numel,
		.tensor = number,
	};
}

/* Groups as the manifest has them: its order is the optimizer's. */
static int take_groups(struct ds_step *ds, struct ckpt_err *err)
{
	const struct ck_index *ix = ds->ix;

	ds->ngroups = (uint32_t)ix->ngroups;
	ds->group = ck_arena_zalloc(&ds->arena, (ix->ngroups + 1) * sizeof(*ds->group));
	if (!ds->group)
		return ck_fail_nomem(err, "groups", ix->ngroups);
	for (uint32_t g = 0; g < ds->ngroups; g++) {
		uint64_t n = 0;

		ds->group[g].group = (int32_t)g;
		ds->group[g].state_key = g;
		for (uint32_t t = 0; t < ix->ntensors; t++)
			n += ix->tensor[t].group == (int32_t)g;
		ds->group[g].param = ck_arena_zalloc(&ds->arena,
						     (n + 1) * sizeof(*ds->group[g].param));
		if (!ds->group[g].param)
			return ck_fail_nomem(err, "parameters", n);
	}
	for (uint32_t t = 0; t < ix->ntensors; t++)
		if (ix->tensor[t].group >= 0)
			take_param(&ds->group[ix->tensor[t].group], &ix->tensor[t], t);
	return 0;
}

/* What ck_ds_fill() looks at. */
static int take_values(struct ds_step *ds, struct ckpt_err *err)
{
	struct ck_val *const *item;
	const char *version;
	uint64_t n;
	int rc;

	ds->stage = ds->ix->stage < 0 ? 2 : ds->ix->stage;
	ds->bf16_optimizer = ds->ix->optimizer && !strcmp(ds->ix->optimizer, "BF16_Optimizer");
	if (!ds->model_file || !ds->model_file->pt)
		return ck_fail(err, CKPT_E_INCOMPLETE, ds->at.where, CKPT_NO_OFFSET,
			       "MODEL_FILE_MISSING: rest.pt is missing; it holds the "
			       "configuration, the hyper-parameters and the names of the state "
			       "dict");
	rc = take_groups(ds, err);
	if (rc)
		return rc;
	ds->model = ds->model_file->pt->doc.root;
	ds->module = ck_val_get(ds->model, "module");
	ds->zero = ck_val_get(ds->model, "optimizer");
	ds->param_groups = ck_val_get(ck_val_get(ds->zero, "base_optimizer_state"),
				      "param_groups");
	if (!ck_val_pairs(ds->module, &item, &n) || !ck_val_pairs(ds->zero, &item, &n))
		return ck_fail(err, CKPT_E_CORRUPT, ds->model_file->path, CKPT_NO_OFFSET,
			       "'module' or 'optimizer' is missing or not a dictionary");
	ds->frozen_listed = ck_val_pairs(ck_val_get(ds->model, "frozen_param_shapes"), &item, &n);
	version = ck_val_str(ck_val_get(ds->model, "ds_version"));
	if (version)
		sscanf(version, "%u.%u.%u", &ds->version[0], &ds->version[1], &ds->version[2]);
	return 0;
}

static int fill(struct ds_step *ds, struct ck_step *step, struct ckpt_err *err)
{
	const struct ck_val *state;
	int rc = take_values(ds, err);

	if (!rc)
		rc = ck_ds_fill(ds, &ck_format_native, step, err);
	if (rc)
		return rc;
	state = ck_val_get(ck_val_get(ds->zero, "base_optimizer_state"), "state");
	ck_ds_fill_optimizer(step, ds->zero);
	for (uint32_t g = 0; g < step->ngroups; g++) {
		step->group[g].hyper = ck_val_at(ds->param_groups, g);
		step->group[g].entry = ck_val_get_int(state, g);
	}
	step->file = ck_arena_alloc(step->arena, sizeof(*step->file));
	if (!step->file)
		return ck_fail_nomem(err, "a file", 0);
	*step->file = *step->model_file;
	step->nfiles = 1;
	step->bare_module = true;
	step->reordered = true;
	return 0;
}

static int read_step(const struct ck_input *in, const struct ck_index *ix, struct ck_findings *f,
		     struct ck_step *out, struct ckpt_err *err)
{
	(void)ix;
	return fill(ck_ds_kept(in, f), out, err);
}

static int values(const struct ck_index *ix, const struct ckpt_limits *limits, uint32_t rank,
		  struct ck_values *out, struct ckpt_err *err)
{
	const struct ck_source *first = ck_ds_source_named(ix, "rest.pt"), *own = NULL;
	char name[32];
	int rc;

	snprintf(name, sizeof(name), "rest-%05" PRIu32 ".pt", rank);
	if (rank)
		own = ck_ds_source_named(ix, name);
	rc = ck_ds_open_values(ix, limits, rank, own ? own : first, first, out, err);
	if (!rc && first)
		ck_ds_take_optimizer(out, ck_val_get(ck_ds_values_root(out), "optimizer"));
	return rc;
}

const struct ck_format ck_format_native = {
	.name = "native",
	.noun = "native step",
	.is_step = true,
	.latest = "latest",
	.holds = holds,
	.is_part = is_part,
	.write_step = ck_nat_write_step,
	.probe = probe,
	.index = nat_index,
	.read_step = read_step,
	.values = values,
};
