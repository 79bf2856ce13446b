/*
 * ds_write.c -- what writing a step begins and ends with in every form: its name, its layout, what
 * cannot be carried, its model files.
 *
 * The source is read once more for its values (the index has its tensors).  New rank s takes
 * what is its own (buffers, random states, client state) from source rank s, or s mod N.
 */
#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

#include "formats/ds_pt/ds_write.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

static const char *model_stem(struct wr *w, uint32_t rank)
{
	if (w->t->stage == 3)
		return ck_arena_printf(&w->arena, "zero_pp_rank_%u_mp_rank_00_model_states", rank);
	return "mp_rank_00_model_states";
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

int ck_wr_models(struct wr *w, struct ckpt_err *err)
{
	const uint32_t n = w->t->stage == 3 ? w->t->world : 1;
	int rc = 0;

	for (uint32_t r = 0; !rc && r < n; r++)
		rc = write_model(w, r, err);
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

	if (ds->left_out && !ck_wr_is_dropped(w, ds->left_out) && !w->keeps_shards)
		return ck_fail(err, CKPT_E_UNSUPPORTED, ds->at.where, CKPT_NO_OFFSET,
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
			return ck_fail(err, CKPT_E_UNSUPPORTED, ds->at.where, CKPT_NO_OFFSET,
				       "state %s of group %u cannot be joined over the ranks, so "
				       "it cannot be re-partitioned; --drop-state %s leaves it out",
				       ds->state_name[k], g, ds->state_name[k]);
		}
	return 0;
}

int ck_wr_check(struct wr *w, struct ckpt_err *err)
{
	int rc = check_drops(w, err);

	if (!rc)
		rc = check_states(w, err);
	if (!rc)
		ck_wr_tell_own(w);
	return rc;
}

/* A universal checkpoint is the step's tag with an ending, as its converter is usually called. */
static const char *tag_for(struct ck_step *step, const struct ck_reshard_want *want)
{
	static const char ending[] = "_universal";
	struct ds_step *ds = step->own;
	const char *tag = step->tag;
	const size_t n = strlen(tag), end = sizeof(ending) - 1;
	const bool has = n > end && !strcmp(tag + n - end, ending);

	if (want->tag)
		return want->tag;
	if (want->target->aside && !has)
		return ck_arena_printf(&ds->arena, "%s%s", tag, ending);
	if (!want->target->aside && has && step->format && step->format->aside)
		return ck_arena_strndup(&ds->arena, tag, n - end);
	return tag;
}

int ck_wr_init(struct wr *w, struct ck_step *step, const struct ck_index *ix,
	       const struct ck_reshard_want *want, struct ck_plan *plan, struct ckpt_err *err)
{
	*w = (struct wr){
		.ds = step->own, .step = step, .ix = ix, .want = want, .plan = plan,
		.tag = tag_for(step, want),
	};
	return w->tag ? 0 : ck_fail_nomem(err, "a tag", strlen(step->tag));
}

void ck_wr_layout(struct wr *w, const struct tg_layout *t)
{
	w->t = t;
	w->new_keys = w->ds->origin != DS_FROM_SHARDS ||
		      memcmp(t->version, w->ds->version, sizeof(t->version)) != 0;
}

void ck_wr_end(struct wr *w)
{
	ck_free(w->along);
	ck_free(w->piece);
	ck_free(w->store);
	ck_arena_release(&w->arena);
}
