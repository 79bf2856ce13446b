/*
 * ds_format.c -- the driver's table, and the order in which a step is read.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/ds_driver.h"
#include "formats/ds_pt/ds_par.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"

static int add_sources(struct ds_step *ds, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < ds->nfiles; i++)
		rc = ck_ds_add_source(ds, &ds->file[i], err);
	return rc;
}

/* Where a file of a rank should be. */
static const char *path_of_rank(struct ds_step *ds, const char *prefix, uint32_t rank,
				const char *tail)
{
	const char *path = ck_arena_printf(&ds->arena, "%s/%szero_pp_rank_%u_mp_rank_%02u_%s.pt",
					   ds->at.where, prefix, rank, ds->mp, tail);

	return path ? path : ds->at.where;
}

/* The file of a rank is missing, or damaged, which an error of its own says. */
static void miss(struct ds_step *ds, enum ck_finding_id id, const char *path, uint32_t here)
{
	if (!ck_ds_is_named(ds, path))
		ck_findings_add(ds->f, id, path, "%s; %u of %u ranks have this file (was "
			"the save interrupted, or the copy partial?)",
				ck_tree_find(&ds->at.tree, ck_fs_base(path)) ? "damaged" :
									       "missing",
				here, ds->world);
}

static void check_shards(struct ds_step *ds)
{
	uint32_t here = 0;

	for (uint32_t r = 0; r < ds->world; r++)
		here += ds->optim[r].file != NULL;
	ds->optim_whole = here == ds->world;
	for (uint32_t r = 0; r < ds->world; r++)
		if (!ds->optim[r].file)
			miss(ds, CK_FINDING_RANK_FILE_MISSING,
			     path_of_rank(ds, ds->optim_file->id.bf16 ? "bf16_" : "", r,
					  "optim_states"), here);
}

static void check_models(struct ds_step *ds)
{
	uint32_t here = 0;

	for (uint32_t r = 0; r < ds->world; r++)
		here += ds->model_rank[r].file != NULL;
	for (uint32_t r = 0; r < ds->world; r++)
		if (!ds->model_rank[r].file)
			miss(ds, CK_FINDING_MODEL_FILE_MISSING,
			     path_of_rank(ds, "", r, "model_states"), here);
}

/* Is every file there that the ranks wrote, and none besides? */
static void check_ranks(struct ds_step *ds)
{
	if (ds->optim)
		check_shards(ds);
	if (ds->model_rank)
		check_models(ds);
	if (ds->optim && (ds->stage == 3) != (ds->model_rank != NULL))
		ck_findings_add(ds->f, CK_FINDING_STEP_MIXED, ds->at.where,
				"the shards are of stage %d, the model files of %s (files "
				"of two saves in one folder?)", ds->stage,
				ds->model_rank ? "stage 3" : "another stage");
	for (uint64_t i = 0; i < ds->nfiles; i++)
		if (ds->file[i].id.rank >= ds->world && ds->file[i].id.kind != DS_EXPERT &&
		    ds->file[i].id.kind != DS_EXPERT_OPTIM)
			ck_findings_add(ds->f, CK_FINDING_RANK_FILE_EXTRA, ds->file[i].path,
					"this shard is of rank %u, but %u ranks wrote the step "
					"(left over from a run with more ranks?)",
					ds->file[i].id.rank,
					ds->world);
}

static bool is_mics(const struct ds_step *ds)
{
	const struct ck_val *zero = ck_val_get(ck_val_get(ds->model, "ds_config"),
					       "zero_optimization");
	int64_t n;

	return ck_val_int(ck_val_get(zero, "mics_shard_size"), &n) && n > 0;
}

static void check_world(struct ds_step *ds)
{
	int64_t dp;

	if (!ds->optim_file || !ck_val_int(ck_val_get(ds->model, "dp_world_size"), &dp) ||
	    dp == ds->world || is_mics(ds))
		return;
	ck_findings_add(ds->f, CK_FINDING_RANKS_DISAGREE, ds->at.where,
			"the model file says %" PRId64 " ranks, the shards say %u (files of two "
			"world sizes in one folder?)", dp, ds->world);
}

/* The optimizer's count of steps is the same on every rank. */
static void check_steps(struct ds_step *ds)
{
	const struct ds_optim *first = NULL;

	for (uint32_t r = 0; r < ds->world; r++) {
		const struct ds_optim *o = &ds->optim[r];

		if (!o->file)
			continue;
		if (!first)
			first = o;
		for (uint32_t i = 0; i < o->nparts; i++) {
			if (!o->part[i].has_step || !first->part[i].has_step ||
			    o->part[i].step == first->part[i].step)
				continue;
			ck_findings_add(ds->f, CK_FINDING_STEP_MIXED, o->file->path,
					"the optimizer is at step %g here and at %g in %s (files "
					"of two saves in one folder?)", o->part[i].step,
					first->part[i].step, first->file->name);
			break;
		}
	}
}

/* Ranks were compared with each other: one speaks for all. */
static int check_counts(struct ds_step *ds, struct ckpt_err *err)
{
	double *count = ck_arena_alloc(&ds->arena, ((uint64_t)ds->ngroups + 1) * sizeof(*count));
	const struct ds_optim *o = ds->optim;
	uint32_t n = 0;

	if (!count)
		return ck_fail_nomem(err, "counts of steps", ds->ngroups);
	while (o < ds->optim + ds->world && !o->file)
		o++;
	if (o == ds->optim + ds->world)
		return 0;
	for (uint32_t i = 0; i < o->nparts; i++)
		if (o->part[i].has_step)
			count[n++] = o->part[i].step;
	ck_ds_check_counts(ds, ds->at.where, count, n);
	return 0;
}

/*
 * DeepSpeed 0.17.6 to 0.18.4 lost the optimizer of bf16 runs at stage 0, and at stage 1 with
 * fp32 gradient accumulation: param_shapes is there, the shards never were.
 */
static bool never_saved(const struct ds_step *ds)
{
	const struct ck_val *config = ck_val_get(ds->model, "ds_config");
	const struct ck_val *zero = ck_val_get(config, "zero_optimization");
	const uint32_t minor = ds->version[1], patch = ds->version[2];
	struct ck_val *const *item;
	int64_t stage = 0;
	uint64_t n;

	if (!ck_val_pairs(config, &item, &n) || ds->version[0])
		return false;
	if (!(minor == 17 && patch >= 6) && !(minor == 18 && patch <= 4))
		return false;
	ck_val_int(ck_val_get(zero, "stage"), &stage);
	if (stage == 0)
		return true;
	return stage == 1 &&
	       ck_val_is_str(ck_val_get(ck_val_get(config, "data_types"), "grad_accum_dtype"),
			     "fp32");
}

/* A step without shards: stage 0, an optimizer that was never saved, or lost files. */
static void judge_without_optim(struct ds_step *ds)
{
	for (uint64_t i = 0; i < ds->nfiles; i++)
		if (ds->file[i].id.kind == DS_OPTIM && ck_ds_is_named(ds, ds->file[i].path))
			return;	/* they exist and are damaged, which is an error already */
	if (ck_ds_experts_judge(ds))
		return;
	if (ds->ngroups && !never_saved(ds) && ds->par) {
		ck_findings_add(ds->f, CK_FINDING_RANK_FILE_MISSING, ds->at.where,
				"all *_mp_rank_%02u_optim_states.pt are missing; %u ranks wrote "
				"them (was only a part of the step copied?)", ds->mp, ds->world);
		return;
	}
	if (ds->ngroups && !never_saved(ds)) {
		ck_findings_add(ds->f, CK_FINDING_RANK_FILE_MISSING, ds->at.where,
				"all *_optim_states.pt are missing; %u ranks wrote them "
				"(was only a part of the step copied?)", ds->world);
		return;
	}
	if (!ck_ds_has_optimizer(ds) && !ds->mp)
		ck_findings_add(ds->f, CK_FINDING_NOT_IN_CHECKPOINT, ds->at.where,
				"the optimizer was not saved; the step has weights and buffers "
				"only");
}

/* DeepSpeed's own tags say the step; another one was given by somebody. */
static void check_tag(struct ds_step *ds)
{
	uint64_t named;

	if (ds->ix->step >= 0 && ck_step_of_tag(ds->ix->tag, &named) &&
	    named != (uint64_t)ds->ix->step)
		ck_findings_add(ds->f, CK_FINDING_TAG_STEP_DIFFERS, ds->at.where,
				"the folder is called %s, its files say step %" PRId64
				" (was it renamed?)", ds->ix->tag, ds->ix->step);
}

static int fill_index(struct ds_step *ds, struct ckpt_err *err)
{
	struct ck_index *ix = ds->ix;
	int64_t step;

	ix->format = "deepspeed";
	ix->stage = ds->stage;
	ix->weights_name_states = !ds->stage;	/* ds_z0_match.c */
	ix->world = ds->world;
	ix->optimizer = ds->bf16_optimizer ? "BF16_Optimizer" :
			ds->elastic ? "ZeRO, elastic" :
			ds->optim_file ? "ZeRO" :
			ck_ds_has_optimizer(ds) ? "not partitioned" : "none";
	if (ck_val_int(ck_val_get(ds->model, "global_steps"), &step))
		ix->step = step;
	check_tag(ds);
	if (ck_val_str(ck_val_get(ds->model, "ds_version")))
		ix->writer = ck_arena_printf(&ix->arena, "DeepSpeed %s",
					     ck_val_str(ck_val_get(ds->model, "ds_version")));
	else if (ds->version[0] || ds->version[1] || ds->version[2])	/* the shards say it */
		ix->writer = ck_arena_printf(&ix->arena, "DeepSpeed %u.%u.%u", ds->version[0],
					     ds->version[1], ds->version[2]);
	return ck_ds_add_facts(ds, err);
}

static int build(struct ds_step *ds, struct ckpt_err *err)
{
	int rc = add_sources(ds, err);

	if (!rc && ds->par)
		rc = ck_ds_pipe_add_sources(ds, err);
	if (rc)
		return rc;
	check_ranks(ds);
	check_world(ds);
	if (ds->optim)
		check_steps(ds);
	else
		judge_without_optim(ds);
	if (ds->optim)
		rc = check_counts(ds, err);
	if (!rc)
		rc = ck_ds_index_model(ds, err);
	if (!rc && ck_ds_is_z0(ds) && !ds->experts && !ds->par)
		rc = ck_ds_index_z0(ds, err);
	if (!rc && ds->optim_whole)
		rc = ds->stage == 3 ? ck_ds_index_z3(ds, err) : ck_ds_index_z12(ds, err);
	if (!rc)
		rc = ck_ds_tell_ranks(ds, err);
	if (!rc && ds->optim_whole && !ds->nstates && !ds->mp)
		ck_findings_add(ds->f, CK_FINDING_STATE_EMPTY, ds->at.where,
				"no optimizer state besides the masters (saved before the "
				"first step, removed since, or the optimizer has none)");
	return rc;
}

/* ---- tensor and pipeline parallel ---- */

static int read_position(struct ds_step *ds, struct ckpt_err *err)
{
	int rc = ck_ds_load(ds, err);

	if (!rc)
		rc = build(ds, err);
	return ck_ds_why_swapped(ds, rc, err);
}

/* Positions must have as many ranks, and optimizers of one kind. */
static void check_positions(struct ds_step *whole)
{
	const struct ds_par *par = whole->parts;
	const struct ds_step *first = par->pos[0].ds;

	for (uint32_t i = 1; i < par->npos; i++) {
		const struct ds_step *ds = par->pos[i].ds;

		if (par->pos[i].incomplete || par->pos[0].incomplete)
			continue;
		if (ds->world != first->world || ds->stage != first->stage ||
		    ds->bf16_optimizer != first->bf16_optimizer)
			ck_findings_add(whole->f, CK_FINDING_RANKS_DISAGREE,
					ds->model_file->path, "mp_rank %u has stage %d and %u "
					"ranks, mp_rank 0 stage %d and %u", ds->mp, ds->stage,
					ds->world, first->stage, first->world);
	}
}

static int read_parallel(struct ds_step *whole, struct ckpt_err *err)
{
	struct ds_step *first;
	int rc = ck_ds_par_open(whole, err);

	if (!rc)
		rc = ck_ds_par_read(whole->parts, read_position, err);
	if (rc)
		return rc;
	check_positions(whole);
	first = whole->parts->pos[0].ds;
	if (ck_ds_is_z0(first) || first->nameless)
		ck_findings_add(whole->f, CK_FINDING_NOT_IN_CHECKPOINT, whole->at.where,
				"stage 0 stores master, exp_avg and all other optimizer states "
				"without names; with tensor or pipeline parallelism they are left "
				"out");
	rc = ck_ds_par_join(whole->parts, err);
	if (rc)
		return rc;
	first->ix = whole->ix;	/* what the step says of itself, its first position says */
	rc = fill_index(first, err);
	whole->ix->weights_name_states = false;
	whole->ix->world = first->world * whole->parts->npos;
	return rc ? rc : ck_ds_par_add_layout(whole->parts, first->world, err);
}

static int begin(struct ds_step *ds, struct ckpt_err *err)
{
	int rc;

	ds->arena.limit = ds->in->limits.memory_bytes;
	pthread_mutex_init(&ds->lock, NULL);
	rc = ck_ds_find(ds, err);
	if (!rc)
		rc = ck_ds_sort_files(ds, err);
	if (rc || ck_ds_is_parallel(ds))
		return rc ? rc : read_parallel(ds, err);
	rc = ck_ds_load(ds, err);
	if (!rc)
		rc = build(ds, err);
	rc = ck_ds_why_swapped(ds, rc, err);
	return rc ? rc : fill_index(ds, err);
}

static int ds_index(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
		    struct ckpt_err *err)
{
	struct ds_step *ds = ck_alloc(sizeof(*ds));
	struct ckpt_err mine = { 0 };
	int rc;

	if (!ds)
		return ck_fail_nomem(err, "a step", sizeof(*ds));
	if (!err)
		err = &mine;	/* below, err->code tells failures apart */
	*ds = (struct ds_step){ .in = in, .ix = ix, .f = f };
	rc = begin(ds, err);
	rc = ck_arena_why(&ds->arena, rc, in->path[0], err);
	ck_kept_give(in->kept, rc, ds, ck_ds_free);
	return rc;
}

/* ---- the driver ---- */

static int probe(const struct ck_input *in)
{
	const struct ck_format *kind;
	bool named;
	int rc;

	if (!in->is_dir)
		return 0;
	if (ck_ds_has_files(&in->tree))
		return 60;
	rc = ck_step_chosen_kind(in, &kind, &named);
	if (rc)
		return rc;
	/* a folder whose first save was killed before 'latest' holds the step of a tag */
	if (ck_tree_find(&in->tree, "latest") || (in->tag && kind == &ck_format_deepspeed))
		return 56;
	return ck_step_may_keep_steps(&in->tree) ? 20 : 0;
}

static int holds(const struct ck_tree *tree)
{
	return ck_ds_has_files(tree) ? 60 : 0;
}

static bool is_part(const char *name, bool is_dir)
{
	return !is_dir && ck_ds_name_parse(name).kind != DS_OTHER;
}

static int values(const struct ck_index *ix, const struct ckpt_limits *limits, uint32_t rank,
		  struct ck_values *out, struct ckpt_err *err)
{
	const struct ck_source *shard = ck_ds_source_of(ix, DS_OPTIM, rank);
	const char *layout = ck_index_fact(ix, "layout");
	int rc;

	if (layout && (strstr(layout, "tp ") || strstr(layout, "pp ")))
		return ck_fail(err, CKPT_E_LAYOUT, ix->path, CKPT_NO_OFFSET,
			       "LAYOUT_UNSUPPORTED: values of a rank of a tensor or pipeline "
			       "parallel step");
	rc = ck_ds_open_values(ix, limits, rank, ck_ds_model_source(ix, rank), shard, out, err);
	if (!rc)
		ck_ds_take_optimizer(out, ck_val_get(ck_ds_values_root(out), shard ?
						     "optimizer_state_dict" : "optimizer"));
	return rc;
}

const struct ck_format ck_format_deepspeed = {
	.name = "deepspeed",
	.noun = "step",
	.is_step = true,
	.latest = "latest",
	.has_slices = true,
	.probe = probe,
	.index = ds_index,
	.holds = holds,
	.is_part = is_part,
	.read_step = ck_ds_read_step,
	.write_step = ck_ds_write_step,
	.values = values,
};
