/*
 * uni_format.c -- the driver's table, and the order in which a universal checkpoint is read.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/ds_pt/ds_par.h"
#include "formats/universal/ck_uni.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"

/* ---- what kind of step it was made from ---- */

/* BF16_Optimizer says no stage.  Model files of each rank are those of stage 3. */
static void take_stage(struct uni *u)
{
	struct ds_step *ds = &u->ds;
	const struct ck_val *zero = u->optim_root;
	int64_t stage;

	if (ck_ds_stage_of(ck_val_get(zero, "zero_stage"), &stage) && stage >= 1 && stage <= 3)
		ds->stage = (int)stage;
	else
		ds->stage = ds->model_rank ? 3 : 1;
	ds->bf16_optimizer = ds->stage != 3 && zero && !ck_val_get(zero, "zero_stage");
	if ((ds->stage == 3) != (ds->model_rank != NULL))
		ck_findings_add(ds->f, CK_FINDING_STEP_MIXED, ds->at.where,
				"zero/optimizer_state.pt is of stage %d, the model files of %s "
				"(files of two conversions in one folder?)", ds->stage,
				ds->model_rank ? "stage 3" : "another stage");
}

static void check_model_files(struct ds_step *ds)
{
	for (uint32_t r = 0; ds->model_rank && r < ds->world; r++)
		if (!ds->model_rank[r].file && !ck_ds_is_rank_named(ds, DS_MODEL_RANK, r))
			ck_findings_add(ds->f, CK_FINDING_MODEL_FILE_MISSING, ds->at.where,
					"zero_pp_rank_%u_mp_rank_00_model_states.pt is "
					"missing or damaged; %u ranks wrote the "
					"step", r, ds->world);
	for (uint64_t i = 0; i < ds->nfiles; i++)
		if (ds->file[i].id.kind == DS_OPTIM)
			ck_findings_add(ds->f, CK_FINDING_RANK_FILE_EXTRA, ds->file[i].path,
					"this is a shard, but a universal checkpoint has its "
					"states in 'zero' (was it converted into the step's own "
					"folder?)");
}

/* ---- what each parameter has ---- */

static bool is_state(const struct uni_file *f)
{
	return strcmp(f->state, "step") && strcmp(f->state, "fp32");
}

static bool same_set(const struct ds_step *ds, uint32_t a, uint32_t b)
{
	return a == b || (ds->group[a].group >= 0 && ds->group[a].group == ds->group[b].group);
}

/* Of the same param group, a parameter that has this state and 'p' has not. */
static void check_param(struct uni *u, const struct uni_param *p, const struct uni_param *other)
{
	const struct uni_file *mine = ck_uni_file(p, "step"), *step = ck_uni_file(other, "step");

	for (uint32_t i = 0; i < other->nfiles; i++)
		if (!ck_uni_file(p, other->file[i].state))
			ck_findings_add(u->ds.f, CK_FINDING_STATE_FILE_MISSING, p->p->name,
					"zero/%s/%s.pt is missing; %s of the same param "
					"group has "
					"one (was the copy interrupted?)", p->p->name,
					other->file[i].state, other->p->name);
	if (mine && step && mine->has_step && step->has_step && mine->step != step->step)
		ck_findings_add(u->ds.f, CK_FINDING_STEP_MIXED, p->p->name,
				"the optimizer is at step %g here and at %g for %s (files of two "
				"steps?)", mine->step, step->step, other->p->name);
}

/* The parameter of each param group that has most states says what the others must have. */
static const struct uni_param *richest(const struct uni *u, uint32_t g)
{
	const struct uni_param *best = NULL;

	for (uint32_t k = 0; k < u->ds.ngroups; k++)
		for (uint32_t i = 0; same_set(&u->ds, g, k) && i < u->ds.group[k].nparams; i++)
			if (!best || u->group[k][i].nfiles > best->nfiles)
				best = &u->group[k][i];
	return best;
}

static void check_group(struct uni *u, uint32_t g)
{
	const struct uni_param *best = richest(u, g);

	for (uint32_t i = 0; i < u->ds.group[g].nparams; i++) {
		const struct uni_param *p = &u->group[g][i];

		if (!ck_uni_file(p, "fp32"))
			ck_findings_add(u->ds.f, CK_FINDING_STATE_FILE_MISSING, p->p->name,
					"zero/%s/fp32.pt is missing, and no other file has "
					"its master (was the copy interrupted?)", p->p->name);
		if (p != best && p->nfiles)
			check_param(u, p, best);
	}
}

static void check_states(struct uni *u)
{
	bool any = false;

	for (uint64_t i = 0; i < u->nfiles; i++)
		any |= is_state(&u->file[i]);
	for (uint32_t g = 0; g < u->ds.ngroups; g++)
		check_group(u, g);
	if (!any)
		ck_findings_add(u->ds.f, CK_FINDING_STATE_EMPTY, u->ds.at.where,
				"no optimizer state besides the masters (saved before the "
				"first step, removed since, or the optimizer has none)");
}

/* ---- into the index ---- */

static int add_state(struct uni *u, struct uni_file *f, const char *name, uint32_t *state_out,
		     struct ckpt_err *err)
{
	struct ck_index *ix = u->ds.ix;
	int rc = ck_index_state_begin(ix, f->of->p->tensor, name, (enum ckpt_dtype)f->slice.dtype,
				      0, err);

	if (!rc)
		rc = ck_ds_extent(&u->ds, &f->file, &f->slice, 0, f->of->p->numel, 0, err);
	if (rc) {
		ck_index_state_cancel(ix);
		return rc;
	}
	return ck_index_state_end(ix, state_out, err);
}

static int add_weight(struct uni *u, const struct ds_param *p, uint32_t master,
		      struct ckpt_err *err)
{
	const bool unwritten = u->ds.parts && u->ds.parts->no_layers;
	const enum ckpt_dtype dtype =
		u->ds.stage == 3 ? ck_ds_placeholder_dtype(&u->ds, p->name) :
		unwritten ? ck_uni_config_dtype(u) : ck_ds_experts_dtype(&u->ds, p->name);

	if (!dtype ||
	    ck_index_state_find(u->ds.ix, p->tensor, "weight") != CK_NONE)
		return 0;
	return ck_index_state_derive(u->ds.ix, master, "weight", dtype, err);
}

static int index_file(struct uni *u, struct uni_file *f, struct ckpt_err *err)
{
	const bool master = !strcmp(f->state, "fp32");
	uint32_t state;
	int rc;

	if (!f->slice.dtype || !strcmp(f->state, "step"))
		return 0;
	if (!strcmp(f->state, "weight") || !strcmp(f->state, "master")) {
		ck_findings_add(u->ds.f, CK_FINDING_NOT_IN_CHECKPOINT, f->file.path,
				"state %s is left out: its name has another meaning here",
				f->state);
		return 0;
	}
	rc = add_state(u, f, master ? "master" : f->state, &state, err);
	return rc || !master ? rc : add_weight(u, f->of->p, state, err);
}

static int index_states(struct uni *u, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < u->nfiles; i++)
		if (u->file[i].of->p->tensor != CK_NONE)
			rc = index_file(u, &u->file[i], err);
	return rc;
}

static int add_sources(struct uni *u, struct ckpt_err *err)
{
	struct ds_step *ds = &u->ds;
	int rc = 0;

	for (uint64_t i = 0; !rc && !ds->parts && i < ds->nfiles; i++)
		rc = ck_ds_add_source(ds, &ds->file[i], err);
	if (!rc)
		rc = ck_ds_add_source(ds, &u->optim, err);
	for (uint64_t i = 0; !rc && i < u->nfiles; i++)
		rc = ck_ds_add_source(ds, &u->file[i].file, err);
	return rc;
}

/* Of a group of names: in a file of its first parameter, at stage 3 in the torch optimizer. */
static int step_of(struct uni *u, uint32_t g, bool *is_out, double *out, struct ckpt_err *err)
{
	const struct ck_val *opt = ck_val_get(u->optim_root, "optimizer_state_dict");
	const struct uni_param *p = u->ds.group[g].nparams ? u->group[g] : NULL;
	const struct uni_file *f = p ? ck_uni_file(p, "step") : NULL;

	*is_out = f && f->has_step;
	if (*is_out) {
		*out = f->step;
		return 0;
	}
	return ck_ds_number_of(&u->optim,
			       ck_val_get(ck_val_get_int(ck_val_get(opt, "state"), g), "step"),
			       is_out, out, err);
}

/* The step of each param group. */
static int add_steps(struct uni *u, struct ckpt_err *err)
{
	double *count = ck_arena_alloc(&u->ds.arena, ((uint64_t)u->ds.ngroups + 1) *
				       sizeof(*count));
	int32_t last = -1;
	uint32_t n = 0;
	int rc = count ? 0 : ck_fail_nomem(err, "counts of steps", u->ds.ngroups);

	for (uint32_t g = 0; !rc && g < u->ds.ngroups; g++) {
		bool is_there = false;
		double step = 0;
		char key[64];

		if (u->ds.group[g].group == last)
			continue;
		rc = step_of(u, g, &is_there, &step, err);
		if (rc || !is_there)
			continue;
		last = u->ds.group[g].group;
		count[n++] = step;
		snprintf(key, sizeof(key), "group.%d.step", last < 0 ? (int)g : last);
		rc = ck_index_add_fact(u->ds.ix, err, key, "%.17g", step);
	}
	if (!rc)
		ck_ds_check_counts(&u->ds, u->ds.at.where, count, n);
	return rc;
}

static int add_facts(struct uni *u, struct ckpt_err *err)
{
	struct ds_step *ds = &u->ds;
	struct ck_index *ix = ds->ix;
	int64_t step;
	int rc;

	ix->stage = ds->stage;
	ix->world = ds->world;
	ix->optimizer = ds->bf16_optimizer ? "BF16_Optimizer" : "ZeRO";
	if (ck_val_int(ck_val_get(ds->model, "global_steps"), &step))
		ix->step = step;
	if (ck_val_str(ck_val_get(ds->model, "ds_version")))
		ix->writer = ck_arena_printf(&ix->arena, "DeepSpeed %s",
					     ck_val_str(ck_val_get(ds->model, "ds_version")));
	rc = ck_ds_add_facts(ds, err);
	if (!rc && ds->parts) {
		ix->world = ds->world * ds->parts->npos;
		rc = ck_ds_par_add_layout(ds->parts, ds->world, err);
	}
	return rc ? rc : add_steps(u, err);
}

static int build(struct uni *u, struct ckpt_err *err)
{
	int rc;

	check_model_files(&u->ds);
	check_states(u);
	rc = add_facts(u, err);	/* first: it reads numbers, and then the index has the files */
	if (!rc)
		rc = add_sources(u, err);
	if (!rc && !u->ds.parts)
		rc = ck_ds_index_model(&u->ds, err);
	return rc ? rc : index_states(u, err);
}

/* ---- */

static int read_models(struct uni *u, struct ckpt_err *err)
{
	struct ds_step *ds = &u->ds;
	int rc;

	if (ck_ds_is_parallel(ds)) {
		rc = ck_uni_open_optimizer(u, err);
		if (rc)
			return rc;
		take_stage(u);
		return ck_uni_read_parallel(u, err);
	}
	rc = ck_ds_load(ds, err);
	if (!rc && !ds->ngroups)
		rc = ck_fail(err, CKPT_E_LAYOUT, ds->at.where, CKPT_NO_OFFSET,
			     "LAYOUT_UNSUPPORTED: the model file has no param_shapes, which "
			     "lists the optimizer's parameters");
	if (rc)
		return rc;
	rc = ck_uni_open_optimizer(u, err);
	if (!rc)
		take_stage(u);
	return rc;
}

static int begin(struct uni *u, struct ckpt_err *err)
{
	struct ds_step *ds = &u->ds;
	int rc;

	ds->no_shards = true;
	ds->arena.limit = ds->in->limits.memory_bytes;
	pthread_mutex_init(&ds->lock, NULL);
	rc = ck_ds_find(&u->ds, err);
	if (!rc)
		rc = ck_ds_sort_files(ds, err);
	if (!rc)
		rc = read_models(u, err);
	if (!rc)
		rc = ck_uni_load(u, err);
	if (rc || !u->optim_root)
		return rc;
	ds->zero = u->optim_root;
	ds->param_groups = ck_uni_param_groups(u);
	return ck_ds_name_groups(ds, err);
}

static void release(void *of)
{
	ck_uni_release(of);
	ck_ds_free(of);
}

static int uni_index(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
		     struct ckpt_err *err)
{
	struct uni *u = ck_alloc(sizeof(*u));
	struct ckpt_err mine = { 0 };
	int rc;

	if (!u)
		return ck_fail_nomem(err, "a step", sizeof(*u));
	if (!err)
		err = &mine;	/* below, err->code tells failures apart */
	*u = (struct uni){ .ds = { .in = in, .ix = ix, .f = f } };
	rc = begin(u, err);
	if (!rc)
		rc = build(u, err);
	rc = ck_arena_why(&u->ds.arena, rc, in->path[0], err);
	ck_kept_give(in->kept, rc, u, release);
	return rc;
}

/* ---- the driver ---- */

static bool has_folder(const struct ck_tree *tree)
{
	const struct ck_tree_entry *zero = ck_tree_find(tree, "zero");

	return zero && zero->is_dir;
}

/* States by parameter in a folder 'zero', beside model files. */
static int holds(const struct ck_tree *tree)
{
	return !has_folder(tree) ? 0 : ck_ds_has_files(tree) ? 70 : 1;
}

static bool is_part(const char *name, bool is_dir)
{
	return is_dir ? !strcmp(name, "zero") : ck_ds_name_parse(name).kind != DS_OTHER;
}

/* "zero/NAME/exp_avg.pt", whose NAME may have slashes. */
static bool is_moment(const char *name)
{
	const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;

	return !strncmp(name, "zero/", 5) && base > name + 5 && ck_ends_with(base, ".pt") &&
	       strcmp(base, "fp32.pt") && strcmp(base, "step.pt");
}

/* A folder with a DeepSpeed step too ('latest') is that step unless --tag names this one. */
static int probe(const struct ck_input *in)
{
	const struct ck_format *kind;
	bool named;
	int rc;

	if (!in->is_dir)
		return 0;
	if (holds(&in->tree) > 1)
		return 70;
	rc = ck_step_chosen_kind(in, &kind, &named);
	if (rc)
		return rc;
	if (in->tag)
		return kind == &ck_format_universal ? 70 : 0;
	return ck_tree_find(&in->tree, "latest_universal") ? 54 :
	       kind == &ck_format_universal ? 22 : 0;
}

static int values(const struct ck_index *ix, const struct ckpt_limits *limits, uint32_t rank,
		  struct ck_values *out, struct ckpt_err *err)
{
	const struct ck_source *optim = ck_ds_source_named(ix, "zero/optimizer_state.pt");
	const char *layout = ck_index_fact(ix, "layout");
	int rc;

	if (layout && (strstr(layout, "tp ") || strstr(layout, "pp ")))
		return ck_fail(err, CKPT_E_LAYOUT, ix->path, CKPT_NO_OFFSET,
			       "LAYOUT_UNSUPPORTED: values of a rank of a tensor or pipeline "
			       "parallel step");
	rc = ck_ds_open_values(ix, limits, rank, ck_ds_model_source(ix, rank), optim, out, err);
	if (!rc && optim)
		ck_ds_take_optimizer(out, ck_ds_values_root(out));
	return rc;
}

const struct ck_format ck_format_universal = {
	.name = "universal",
	.noun = "universal checkpoint",
	.is_step = true,
	.aside = true,
	.takes_parallel = true,
	.latest = "latest_universal",
	.is_moment = is_moment,
	.has_slices = true,
	.probe = probe,
	.index = uni_index,
	.holds = holds,
	.is_part = is_part,
	.read_step = ck_uni_read_step,
	.write_step = ck_uni_write_step,
	.values = values,
};
