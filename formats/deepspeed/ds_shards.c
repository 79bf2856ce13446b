/* ds_shards.c -- a DeepSpeed step for another number of ranks: every file of it into a plan. */
#include <string.h>

#include "formats/deepspeed/ds_driver.h"
#include "formats/ds_pt/ds_par.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

/* Named after the run's precision, which a step without shards tells by its weights. */
static bool is_bf16(const struct wr *w)
{
	uint32_t s;

	if (w->step->shards)
		return w->step->bf16_named;
	if (w->step->weight_dtype)
		return w->step->weight_dtype == CKPT_BF16;
	for (uint32_t g = 0; g < w->t->ngroups; g++) {
		if (!w->t->group[g].nparams)
			continue;
		s = ck_index_state_find(w->ix, w->t->group[g].param[0].tensor, "weight");
		return s != CK_NONE && w->ix->state[s].dtype == CKPT_BF16;
	}
	return false;
}

static const char *optim_stem(struct wr *w, uint32_t rank)
{
	return ck_arena_printf(&w->arena, "%szero_pp_rank_%u_mp_rank_%02u_optim_states",
			       is_bf16(w) ? "bf16_" : "", rank, w->mp);
}

/* The outer dict of a shard around the ZeRO dict. */
static struct ck_val *optim_root(struct wr *w, struct ck_val *zero)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *root, *config;

	if (!w->new_keys) {
		root = ck_val_dict_sets(a, ck_val_clone(a, w->step->file[0].pt->doc.root),
					"optimizer_state_dict", zero);
		config = ck_val_get(root, "ds_config");
		return config ? ck_val_dict_sets(a, root, "ds_config", ck_wr_config(w, config)) :
		       root;
	}
	root = ck_val_dict_sets(a, ck_val_new_dict(a), "optimizer_state_dict", zero);
	root = ck_val_dict_sets(a, root, "ds_config",
				ck_wr_config(w, ck_val_get(w->step->model, "ds_config")));
	return ck_val_dict_sets(a, root, "ds_version", ck_wr_version(w));
}

static int write_shard(struct wr *w, uint32_t rank, struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	struct ck_val *root;
	const char *stem = optim_stem(w, rank);
	int rc = ck_wr_begin(w, w->step->file, w->step->nfiles, err);

	if (rc)
		return rc;
	root = optim_root(w, ck_wr_zero_dict(w, rank, &inner));
	if (ck_val_get(root, "param_shapes"))	/* up to 0.5.10 they are here */
		root = ck_val_dict_sets(&w->arena, root, "param_shapes", ck_wr_shapes(w));
	if (inner.code)
		return ck_fail(err, inner.code, inner.where, inner.offset, "%s", inner.msg);
	if (!root || !stem)
		return ck_fail_nomem(err, "a shard", 0);
	return ck_wr_finish(w, stem, root, err);
}

/* The optimizer's values, as that shard (open) has them. */
static void fill_shard(struct ck_step *step, const struct ds_file *file, const struct ck_val *zero)
{
	const struct ds_step *ds = step->from;
	const struct ck_val *opt = ck_ds_torch_optimizer(ds, zero);
	const struct ck_val *groups = ck_val_get(opt, "param_groups");

	step->own = zero;
	step->file[0] = (struct ck_step_file){ .path = file->path, .pt = file->pt };
	ck_ds_fill_optimizer(step, zero);
	for (uint32_t g = 0; g < step->ngroups; g++) {
		step->group[g].hyper = ck_val_at(groups, g);
		step->group[g].entry = NULL;
	}
	for (uint32_t i = ds->ngroups; i > 0; i--) {	/* of sub-groups the first counts */
		const struct ds_group *from = &ds->group[i - 1];

		if (from->group < 0 || (uint32_t)from->group >= step->ngroups)
			continue;
		step->group[from->group].key = from->state_key;
		step->group[from->group].entry = ck_val_get_int(ck_val_get(opt, "state"),
								from->state_key);
	}
}

/* As many ranks as before, each keeps its own values: the step's are then those of its shard. */
static int write_optim(struct wr *w, uint32_t rank, struct ckpt_err *err)
{
	struct ds_step *ds = w->keeps_shards ? w->step->from : NULL;
	struct ds_file *own = ds ? ds->optim[rank].file : NULL;
	int rc;

	if (!own || own == ds->optim_file)
		return write_shard(w, rank, err);
	rc = ck_ds_open_pt(ds, own, err);
	if (rc)
		return rc;
	fill_shard(w->step, own, ck_val_get(own->pt->doc.root, "optimizer_state_dict"));
	w->first = ds->zero;
	rc = write_shard(w, rank, err);
	w->first = NULL;
	fill_shard(w->step, ds->optim_file, ds->zero);
	ck_ds_close_pt(own);
	return rc;
}

/* As many ranks, of the same kind of stage and version. */
static bool keeps_shards(const struct wr *w)
{
	const struct ck_step *step = w->step;

	return !w->new_keys && !w->t->regrouped && w->t->world == step->world && w->t->stage &&
	       (w->t->stage == 3) == (step->stage == 3) &&
	       w->t->bf16_optimizer == step->bf16_optimizer;
}

/* The files of a position; of a step without parallelism all. */
static int write_files(struct wr *w, struct ckpt_err *err)
{
	int rc = ck_wr_check(w, err);

	if (!rc)
		ck_wr_tell_own(w);
	if (!rc)
		rc = ck_wr_models(w, err);
	if (!rc && w->t->experts)
		rc = ck_wr_experts(w, err);
	for (uint32_t r = 0; !rc && w->t->stage && r < w->t->world; r++)
		rc = write_optim(w, r, err);
	return rc;
}

static int write_all(struct wr *w, struct ckpt_err *err)
{
	int rc = write_files(w, err);

	if (!rc)
		rc = ck_step_along_list(&w->along, err);
	return rc ? rc : ck_step_along_plan(&w->along, w->plan, err);
}

/* ---- reading ---- */

/* States that every rank has a part of, and that do not join. */
static int fill_unjoined(struct ck_step *step, const struct ds_step *ds, const struct ck_index *ix,
			 struct ckpt_err *err)
{
	const uint64_t most = (uint64_t)ds->ngroups * ds->nstates;

	step->unjoined = ck_arena_zalloc(step->arena, (most + 1) * sizeof(*step->unjoined));
	if (!step->unjoined)
		return ck_fail_nomem(err, "a list of states", most);
	for (uint32_t g = 0; g < ds->ngroups; g++)
		for (uint32_t k = 0; k < ds->nstates && ds->group[g].nparams; k++) {
			uint32_t tensor;

			if (ck_ds_has_state(ds, g, k) &&
			    ck_index_find(ix, ds->group[g].param[0].name, &tensor) &&
			    ck_index_state_find(ix, tensor, ds->state_name[k]) == CK_NONE)
				step->unjoined[step->nunjoined++] = (struct ck_step_unjoined){
					ds->state_name[k], g,
				};
		}
	return 0;
}

static int fill(struct ds_step *ds, const struct ck_index *ix, struct ck_step *step,
		struct ckpt_err *err)
{
	int rc = ck_ds_fill(ds, &ck_format_deepspeed, step, err);

	if (rc)
		return rc;
	step->nfiles = 1;
	step->file = ck_arena_zalloc(step->arena, sizeof(*step->file));
	if (!step->file)
		return ck_fail_nomem(err, "a file", 0);
	if (!ds->optim) {
		*step->file = *step->model_file;
		step->complete = ck_ds_join_z0;
		return 0;
	}
	step->shards = true;
	step->bf16_named = ds->optim_file->id.bf16;
	fill_shard(step, ds->optim_file, ds->zero);
	return fill_unjoined(step, ds, ix, err);
}

/* ---- tensor and pipeline parallelism ---- */

/* Each position is written by itself. */
static int read_parallel(struct ds_step *ds, struct ck_step *out, struct ckpt_err *err)
{
	const struct ds_step *first = ds->parts->pos[0].ds;

	for (uint32_t i = 0; i < ds->parts->npos; i++)
		if (!ds->parts->pos[i].ds->optim)
			return ck_fail(err, CKPT_E_UNSUPPORTED, ds->at.where, CKPT_NO_OFFSET,
				       "stage 0 names no optimizer states, so they cannot be "
				       "re-partitioned; weights can be converted");
	ds->parts->fill = fill;
	*out = (struct ck_step){
		.in = ds->in, .f = ds->f, .arena = &ds->arena, .format = &ck_format_deepspeed,
		.at = ds->at, .tag = ds->ix->tag, .world = ds->ix->world, .stage = first->stage,
		.bf16_optimizer = first->bf16_optimizer, .parallel = true, .from = ds,
		.make_whole = ck_ds_par_whole,
	};
	memcpy(out->version, first->version, sizeof(out->version));
	return 0;
}

static int check_parallel(const struct ck_step *step, const struct ds_par *par,
			  const struct ck_reshard_want *want, struct ckpt_err *err)
{
	const int stage = want->stage == 4 ? 1 : want->stage;

	if (want->ep)
		return ck_fail(err, CKPT_E_USAGE, step->at.where, CKPT_NO_OFFSET,
			       "the step has no experts of DeepSpeed, so it has no expert ranks "
			       "(--ep %u)", want->ep);
	if (want->version || (stage >= 0 && (stage != step->stage ||
					     (want->stage == 4) != step->bf16_optimizer)))
		return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET,
			       "a tensor or pipeline parallel step keeps its ZeRO stage and its "
			       "version of DeepSpeed (--stage, --ds-version)");
	if (want->world % par->npos)
		return ck_fail(err, CKPT_E_USAGE, step->at.where, CKPT_NO_OFFSET,
			       "%u ranks cannot hold tp %u x pp %u, which stay as they are; give a "
			       "multiple of %u (--world), or make a universal checkpoint, which "
			       "DeepSpeed loads at other sizes (--to universal)", want->world,
			       par->ntp, par->npp, par->npos);
	return 0;
}

/* States are elements of the position's own index. */
static int write_position(const struct ck_step *whole, struct ds_pos *pos,
			  const struct ck_reshard_want *want, struct ck_plan *plan,
			  struct ckpt_err *err)
{
	struct ck_reshard_want mine = *want;
	struct tg_layout layout;
	struct ck_step step;
	struct wr w;
	int rc;

	pos->ds->in = whole->in;
	pos->ds->f = whole->f;
	rc = fill(pos->ds, &pos->ix, &step, err);
	if (rc)
		return rc;
	step.tag = whole->tag;
	mine.world = want->world / pos->ds->par->npos;
	rc = ck_wr_init(&w, &step, &pos->ix, &mine, plan, err);
	if (!rc)
		rc = ck_ds_target(&step, &pos->ix, &mine, &layout, err);
	if (rc)
		return rc;
	ck_wr_layout(&w, &layout);
	w.mp = pos->ds->mp;
	w.keeps_shards = keeps_shards(&w);
	w.own_state = ck_arena_alloc(step.arena, (pos->ix.nstates + 1) * sizeof(*w.own_state));
	if (w.own_state)
		memset(w.own_state, 0xff, (pos->ix.nstates + 1) * sizeof(*w.own_state));
	rc = w.own_state ? write_files(&w, err) :
	     ck_fail_nomem(err, "numbers of states", pos->ix.nstates);
	ck_wr_end(&w);
	return rc;
}

static int write_parallel(struct ck_step *step, const struct ck_reshard_want *want,
			  struct ck_plan *plan, struct ckpt_err *err)
{
	const struct ds_step *ds = step->from;
	struct ds_par *par = ds->parts;
	struct wr w;
	int rc = check_parallel(step, par, want, err);

	for (uint32_t i = 0; !rc && i < par->npos; i++)
		rc = write_position(step, &par->pos[i], want, plan, err);
	if (rc || (rc = ck_wr_init(&w, step, ds->ix, want, plan, err)))
		return rc;
	for (uint32_t i = 0; !rc && i < par->nlayers; i++)
		rc = ck_wr_file_as_is(&w, &par->layer[i].file, err);
	if (!rc)
		rc = ck_step_along_list(&w.along, err);
	if (!rc)
		rc = ck_step_along_plan(&w.along, plan, err);
	ck_wr_end(&w);
	return rc;
}

/* ---- */

int ck_ds_write_step(struct ck_step *step, const struct ck_index *ix,
		     const struct ck_reshard_want *want, struct ck_plan *plan,
		     struct ckpt_err *err)
{
	struct tg_layout layout;
	struct wr w;
	int rc;

	if (step->parallel)
		return write_parallel(step, want, plan, err);
	rc = ck_wr_init(&w, step, ix, want, plan, err);

	if (!rc && step->complete && !ck_ds_z0_stays(step, want))
		rc = step->complete(step, err);
	if (!rc)
		rc = ck_ds_target(step, ix, want, &layout, err);
	if (rc)
		return rc;
	ck_wr_layout(&w, &layout);
	w.keeps_shards = keeps_shards(&w);
	w.by_rank = layout.stage == 3;
	rc = write_all(&w, err);
	ck_wr_end(&w);
	return rc;
}

int ck_ds_read_step(const struct ck_input *in, const struct ck_index *ix, struct ck_findings *f,
		    struct ck_step *out, struct ckpt_err *err)
{
	struct ds_step *ds = ck_ds_kept(in, f);

	if (!ds->optim && ds->experts)
		return ck_fail(err, CKPT_E_UNSUPPORTED, ds->at.where, CKPT_NO_OFFSET,
			       "stage 0 names no optimizer states, so they cannot be "
			       "re-partitioned; weights can be converted");
	for (uint32_t g = 0; g < ds->ngroups; g++)
		if (ds->group[g].unplaced)
			return ck_fail(err, CKPT_E_UNSUPPORTED, ds->at.where, CKPT_NO_OFFSET,
				       "which ranks have which states of group %u is not in the "
				       "files, so they cannot be re-partitioned; weights can be "
				       "converted", g);
	if (ds->parts)
		return read_parallel(ds, out, err);
	if (!ds->optim && !ck_ds_is_z0(ds))
		return ck_fail(err, CKPT_E_UNSUPPORTED, ds->at.where, CKPT_NO_OFFSET,
			       "the step has no optimizer shards to re-partition");
	return fill(ds, ix, out, err);
}
