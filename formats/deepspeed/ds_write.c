/*
 * ds_write.c -- a step for another number of ranks: every file of it into a plan.
 *
 * The source is read once more for its values (the index has its tensors).  New rank s takes
 * what is its own (buffers, random states, client state) from source rank s, or s mod N.
 */
#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/ds_write.h"
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

static const char *model_stem(struct wr *w, uint32_t rank)
{
	if (w->t->stage == 3)
		return ck_arena_printf(&w->arena, "zero_pp_rank_%u_mp_rank_00_model_states", rank);
	return "mp_rank_00_model_states";
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
	struct ds_file *own = ck_wr_keeps_shards(w) ? ds->optim[rank].file : NULL;
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

/* The source's model file of rank s; at stages 1 and 2 there is one. */
static struct ds_file *model_of(const struct wr *w, uint32_t rank)
{
	if (w->ds->stage != 3 || w->t->stage != 3)
		return w->ds->model_file;
	if (!w->ds->model_rank[rank % w->ds->world].file)	/* let pass as a warning */
		return w->ds->model_file;
	return w->ds->model_rank[rank % w->ds->world].file;
}

static int write_model(struct wr *w, uint32_t rank, struct ckpt_err *err)
{
	struct ds_file *file = model_of(w, rank);
	const bool kept = file == w->ds->model_file;
	struct ckpt_err inner = { 0 };
	struct ck_val *root;
	const char *stem = model_stem(w, rank);
	int rc = 0;

	if (!kept)
		rc = ck_ds_open_pt(w->ds, file, err);
	if (!rc)
		rc = ck_wr_begin(w, file, err);
	if (rc)
		return rc;
	root = ck_wr_model(w, file ? file->pt->doc.root : w->ds->model, rank, &inner);
	if (inner.code)
		rc = ck_fail(err, inner.code, inner.where, inner.offset, "%s", inner.msg);
	else if (!root || !stem)
		rc = ck_fail_nomem(err, "a model file", 0);
	else
		rc = ck_wr_finish(w, stem, root, err);
	if (!kept)
		ck_ds_close_pt(file);
	return rc;
}

static bool is_optimizer_state(const char *name)
{
	return strcmp(name, "weight") && strcmp(name, "master");
}

/* Does it fit a state that the index has, or one that could not be joined? */
static bool fits_state(const struct wr *w, const char *pattern, const char **some)
{
	for (uint32_t k = 0; k < w->ds->nstates; k++)
		if (!fnmatch(pattern, w->ds->state_name[k], 0))
			return true;
	if (w->ds->left_out && !fnmatch(pattern, w->ds->left_out, 0))
		return true;
	for (uint64_t i = 0; i < w->ix->nstates; i++) {
		if (!is_optimizer_state(w->ix->state[i].name))
			continue;
		*some = w->ix->state[i].name;
		if (!fnmatch(pattern, *some, 0))
			return true;
	}
	return false;
}

/* A pattern that fits nothing is a wrong name, and what it meant would stay. */
static int check_drops(const struct wr *w, struct ckpt_err *err)
{
	for (const char *const *p = w->want->drop; p && *p; p++) {
		const char *some = NULL;

		if (!fits_state(w, *p, &some))
			return ck_fail(err, CKPT_E_USAGE, w->ix->path, CKPT_NO_OFFSET,
				       "%s fits no optimizer state of this step%s%s", *p,
				       some ? ", which has ones such as " : "", some ? some : "");
	}
	return 0;
}

/* What the index could not join would silently be lost. */
static int check_states(struct wr *w, struct ckpt_err *err)
{
	const struct ds_step *ds = w->ds;

	if (ds->left_out && !ck_wr_is_dropped(w, ds->left_out) && !ck_wr_keeps_shards(w))
		return ck_fail(err, CKPT_E_UNSUPPORTED, ds->where, CKPT_NO_OFFSET,
			       "state %.60s is no contiguous tensor, so it cannot be "
			       "re-partitioned; --drop-state %.60s leaves it out", ds->left_out,
			       ds->left_out);
	for (uint32_t g = 0; ds->optim && g < ds->ngroups; g++)
		for (uint32_t k = 0; k < ds->nstates && ds->group[g].nparams; k++) {
			uint32_t tensor;

			if (!ck_ds_has_state(ds, g, k) ||
			    ck_wr_is_dropped(w, ds->state_name[k]) ||
			    !ck_index_find(w->ix, ds->group[g].param[0].name, &tensor) ||
			    ck_index_state_find(w->ix, tensor, ds->state_name[k]) != CK_NONE)
				continue;
			return ck_fail(err, CKPT_E_UNSUPPORTED, ds->where, CKPT_NO_OFFSET,
				       "state %s of group %u cannot be joined over the ranks, so "
				       "it cannot be re-partitioned; --drop-state %s leaves it out",
				       ds->state_name[k], g, ds->state_name[k]);
		}
	return 0;
}

static int write_all(struct wr *w, struct ckpt_err *err)
{
	const uint32_t models = w->t->stage == 3 ? w->t->world : 1;
	int rc = check_drops(w, err);

	if (!rc)
		rc = check_states(w, err);
	if (!rc)
		ck_wr_tell_own(w);
	if (!rc && w->want->native)
		rc = ck_wr_list_along(w, err);
	if (!rc && w->want->native) {
		rc = ck_wr_native(w, err);
		return rc ? rc : ck_wr_root(w, err);
	}
	for (uint32_t r = 0; !rc && r < models; r++)
		rc = write_model(w, r, err);
	if (!rc && w->want->universal)
		rc = ck_wr_universal(w, err);
	for (uint32_t r = 0; !rc && !w->want->universal && w->t->stage && r < w->t->world; r++)
		rc = write_optim(w, r, err);
	if (!rc)
		rc = ck_wr_list_along(w, err);
	return rc ? rc : ck_wr_root(w, err);
}

/* A universal checkpoint is the step's tag with an ending, as its converter is usually called. */
static const char *tag_for(struct ds_step *ds, const struct ck_reshard_want *want, const char *tag)
{
	static const char ending[] = "_universal";
	const size_t n = strlen(tag), end = sizeof(ending) - 1;
	const bool has = n > end && !strcmp(tag + n - end, ending);

	if (want->tag)
		return want->tag;
	if (want->universal && !has)
		return ck_arena_printf(&ds->arena, "%s%s", tag, ending);
	if (!want->universal && has && ds->origin == DS_FROM_UNIVERSAL)
		return ck_arena_strndup(&ds->arena, tag, n - end);
	return tag;
}

int ck_wr_step(struct ds_step *ds, const struct ck_index *ix, const struct ck_reshard_want *want,
	       const char *tag, struct ck_plan *plan, struct ckpt_err *err)
{
	struct tg_layout layout;
	struct wr w = {
		.ds = ds, .ix = ix, .t = &layout, .want = want, .plan = plan,
		.tag = tag_for(ds, want, tag),
	};
	int rc = w.tag ? ck_ds_target(ds, ix, want, &layout, err) :
		 ck_fail_nomem(err, "a tag", strlen(tag));

	if (rc)
		return rc;
	w.new_keys = ds->origin != DS_FROM_SHARDS ||
		 memcmp(layout.version, ds->version, sizeof(layout.version)) != 0;
	rc = write_all(&w, err);
	ck_free(w.along);
	ck_free(w.piece);
	ck_free(w.store);
	ck_arena_release(&w.arena);
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
		rc = ck_fail(err, CKPT_E_UNSUPPORTED, ds.where, CKPT_NO_OFFSET,
			     "the step has no optimizer shards to re-partition");
	if (!rc)
		rc = ck_wr_step(&ds, ix, want, scratch.tag, plan, err);
	ck_ds_end(&ds);
	ck_index_release(&scratch);
	return rc;
}
