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

int ck_wr_rank_file(struct wr *w, const char *stem, uint32_t rank, bool ranked,
		    ck_wr_root_maker *make, const void *arg, struct ckpt_err *err)
{
	const struct ck_step_file *file = w->step->model_file;
	struct ck_val *old = w->step->model;
	struct ck_step_file own = { .path = NULL };
	struct ckpt_err inner = { 0 };
	struct ck_val *root;
	int rc = 0;

	if (ranked && w->step->open_rank)
		rc = w->step->open_rank(w->step, rank, &own, err);
	if (own.pt) {
		file = &own;
		old = own.pt->doc.root;
	}
	if (!rc)
		rc = ck_wr_begin(w, file, file ? 1 : 0, err);
	if (!rc) {
		root = make(w, old, rank, arg, &inner);
		if (inner.code)
			rc = ck_fail(err, inner.code, inner.where, inner.offset, "%s", inner.msg);
		else if (!root || !stem)
			rc = ck_fail_nomem(err, "a model file", 0);
		else
			rc = ck_wr_finish(w, stem, root, err);
	}
	if (own.pt)
		w->step->close_rank(w->step, rank);
	return rc;
}

/* At stages 1 and 2 there is one, which is rank 0's. */
static int write_model(struct wr *w, uint32_t rank, struct ckpt_err *err)
{
	return ck_wr_rank_file(w, model_stem(w, rank), rank,
			       w->step->stage == 3 && w->t->stage == 3, ck_wr_model, NULL, err);
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
	for (uint32_t k = 0; k < w->step->nstates; k++)
		if (!fnmatch(pattern, w->step->state[k], 0))
			return true;
	if (w->step->left_out && !fnmatch(pattern, w->step->left_out, 0))
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
				       "%s matches no optimizer state of this step%s%s", *p,
				       some ? ", which has ones such as " : "", some ? some : "");
	}
	return 0;
}

/* What the index could not join would silently be lost. */
static int check_states(struct wr *w, struct ckpt_err *err)
{
	const struct ck_step *step = w->step;

	if (step->left_out && !ck_wr_is_dropped(w, step->left_out) && !w->keeps_shards)
		return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET,
			       "state %.60s is not a contiguous tensor, so it cannot be "
			       "re-partitioned; --drop-state %.60s leaves it out", step->left_out,
			       step->left_out);
	for (uint32_t i = 0; i < step->nunjoined; i++) {
		const char *state = step->unjoined[i].state;

		if (!ck_wr_is_dropped(w, state))
			return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET,
				       "state %s of group %u cannot be joined over the ranks, so "
				       "it cannot be re-partitioned; --drop-state %s leaves it out",
				       state, step->unjoined[i].group, state);
	}
	return 0;
}

void ck_wr_tell_own(struct wr *w)
{
	const struct ck_step_differing *shard = &w->step->own_shard, *model = &w->step->own_model;

	if (shard->path && !w->keeps_shards)
		ck_findings_add(w->step->f, CK_FINDING_NOT_CARRIED, shard->path,
				"'%.60s' of the optimizer differs from rank 0's shard; the "
				"result has rank 0's value", shard->key);
	if (model->path && !w->by_rank)
		ck_findings_add(w->step->f, CK_FINDING_NOT_CARRIED, model->path,
				"'%.60s' differs from rank 0's model file; the result has "
				"rank 0's value", model->key);
	else if (model->path && w->t->world < w->step->world)
		ck_findings_add(w->step->f, CK_FINDING_NOT_CARRIED, model->path,
				"'%.60s' differs between ranks; the values of %u of %u "
				"ranks are "
				"dropped", model->key, w->step->world - w->t->world,
				w->step->world);
	else if (model->path && w->t->world > w->step->world)
		ck_findings_add(w->step->f, CK_FINDING_NOT_CARRIED, model->path,
				"'%.60s' differs between ranks; rank s gets the value of "
				"rank s mod "
				"%u, so several ranks have the same", model->key, w->step->world);
}

int ck_wr_check(struct wr *w, struct ckpt_err *err)
{
	int rc = check_drops(w, err);

	return rc ? rc : check_states(w, err);
}

int ck_wr_init(struct wr *w, struct ck_step *step, const struct ck_index *ix,
	       const struct ck_reshard_want *want, struct ck_plan *plan, struct ckpt_err *err)
{
	*w = (struct wr){
		.step = step, .ix = ix, .want = want, .plan = plan,
		.tag = ck_step_tag(step, want),
	};
	w->along = (struct ck_step_along){ .step = step, .want = want, .tag = w->tag };
	return w->tag ? 0 : ck_fail_nomem(err, "a tag", strlen(step->tag));
}

void ck_wr_layout(struct wr *w, const struct tg_layout *t)
{
	w->t = t;
	w->new_keys = !w->step->shards ||
		      memcmp(t->version, w->step->version, sizeof(t->version)) != 0;
}

void ck_wr_end(struct wr *w)
{
	ck_step_along_release(&w->along);
	ck_free(w->piece);
	ck_free(w->store);
	ck_arena_release(&w->arena);
}
