/* ds_shards.c -- a DeepSpeed step for another number of ranks: every file of it into a plan. */
#include <string.h>

#include "formats/deepspeed/ds_driver.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

/* Named after the run's precision, which a step without shards tells by its weights. */
static bool is_bf16(const struct wr *w)
{
	uint32_t s;

	if (w->ds->optim_file)
		return w->ds->optim_file->id.bf16;
	if (w->ds->weight_dtype)
		return w->ds->weight_dtype == CKPT_BF16;
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
	return ck_arena_printf(&w->arena, "%szero_pp_rank_%u_mp_rank_00_optim_states",
			       is_bf16(w) ? "bf16_" : "", rank);
}

/* The outer dict of a shard around the ZeRO dict. */
static struct ck_val *optim_root(struct wr *w, struct ck_val *zero)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *root, *config;

	if (!w->new_keys) {
		root = ck_val_dict_sets(a, ck_val_clone(a, w->ds->zero_file->pt->doc.root),
					"optimizer_state_dict", zero);
		config = ck_val_get(root, "ds_config");
		return config ? ck_val_dict_sets(a, root, "ds_config", ck_wr_config(w, config)) :
		       root;
	}
	root = ck_val_dict_sets(a, ck_val_new_dict(a), "optimizer_state_dict", zero);
	root = ck_val_dict_sets(a, root, "ds_config",
				ck_wr_config(w, ck_val_get(w->ds->model, "ds_config")));
	return ck_val_dict_sets(a, root, "ds_version", ck_wr_version(w));
}

static int write_shard(struct wr *w, uint32_t rank, struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	struct ck_val *root;
	const char *stem = optim_stem(w, rank);
	int rc = ck_wr_begin(w, w->ds->zero_file, err);

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

/* As many ranks as before, each keeps its own values: 'zero' is then that of its shard. */
static int write_optim(struct wr *w, uint32_t rank, struct ckpt_err *err)
{
	struct ds_step *ds = w->ds;
	struct ds_file *own = w->keeps_shards ? ds->optim[rank].file : NULL;
	const struct ds_file *file = ds->zero_file;
	struct ck_val *zero = ds->zero;
	int rc;

	if (!own || own == ds->optim_file)
		return write_shard(w, rank, err);
	rc = ck_ds_open_pt(ds, own, err);
	if (rc)
		return rc;
	ds->zero_file = own;
	ds->zero = ck_val_get(own->pt->doc.root, "optimizer_state_dict");
	w->first = zero;
	rc = write_shard(w, rank, err);
	w->first = NULL;
	ds->zero_file = file;
	ds->zero = zero;
	ck_ds_close_pt(own);
	return rc;
}

/* As many ranks, of the same kind of stage and version. */
static bool keeps_shards(const struct wr *w)
{
	const struct ds_step *ds = w->ds;

	return !w->new_keys && ds->optim && w->t->world == ds->world && w->t->stage &&
	       (w->t->stage == 3) == (ds->stage == 3) &&
	       w->t->bf16_optimizer == ds->bf16_optimizer;
}

static int write_all(struct wr *w, struct ckpt_err *err)
{
	int rc = ck_wr_check(w, err);

	if (!rc)
		rc = ck_wr_models(w, err);
	for (uint32_t r = 0; !rc && w->t->stage && r < w->t->world; r++)
		rc = write_optim(w, r, err);
	if (!rc)
		rc = ck_wr_list_along(w, err);
	return rc ? rc : ck_wr_root(w, err);
}

int ck_ds_write_step(struct ck_step *step, const struct ck_index *ix,
		     const struct ck_reshard_want *want, struct ck_plan *plan,
		     struct ckpt_err *err)
{
	struct tg_layout layout;
	struct wr w;
	int rc = ck_wr_init(&w, step, ix, want, plan, err);

	if (!rc)
		rc = ck_ds_target(w.ds, ix, want, &layout, err);
	if (rc)
		return rc;
	ck_wr_layout(&w, &layout);
	w.keeps_shards = keeps_shards(&w);
	w.by_rank = layout.stage == 3;
	rc = write_all(&w, err);
	ck_wr_end(&w);
	return rc;
}

int ck_ds_reshard(const struct ck_input *in, const struct ck_index *ix,
		  const struct ck_reshard_want *want, struct ck_plan *plan,
		  struct ck_findings *findings, struct ckpt_err *err)
{
	struct ck_index scratch;
	struct ds_step ds = { .in = in, .ix = &scratch, .f = findings, .tell_own = true };
	int rc = ck_index_init(&scratch, in->limits.memory_bytes, err);

	if (rc)
		return rc;
	rc = ck_ds_begin(&ds, err);
	ds.zero_file = ds.optim_file;
	if (!rc && ck_ds_is_z0(&ds))
		rc = ck_ds_from_z0(&ds, want, err);
	else if (!rc && !ds.optim)
		rc = ck_fail(err, CKPT_E_UNSUPPORTED, ds.at.where, CKPT_NO_OFFSET,
			     "the step has no optimizer shards to re-partition");
	if (!rc)
		rc = want->target->write_step(&(struct ck_step){
			.format = &ck_format_deepspeed, .tag = scratch.tag, .own = &ds,
		}, ix, want, plan, err);
	ck_ds_end(&ds);
	ck_index_release(&scratch);
	return rc;
}
