/*
 * ds_write.c -- what writing a step begins and ends with in every form: its name, its layout, what
 * cannot be carried, its model files.
 *
 * The source is read once more for its values (the index has its tensors).  New rank s takes
 * what is its own (buffers, random states, client state) from source rank s, or s mod N.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/ds_pt/ds_write.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step_drop.h"

static const char *model_stem(struct wr *w, uint32_t rank)
{
	if (w->t->stage == 3)
		return ck_arena_printf(&w->arena, "zero_pp_rank_%u_mp_rank_00_model_states", rank);
	return ck_arena_printf(&w->arena, "mp_rank_%02u_model_states", w->mp);
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
	int rc = ck_step_check_drops(w->step, w->ix, w->want, err);

	return rc ? rc : ck_step_check_joined(w->step, w->want, w->keeps_shards, err);
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
