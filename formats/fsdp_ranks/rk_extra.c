/*
 * rk_extra.c -- extra_state_world_size_N_rank_0.pt: the scheduler and random states of verl, the
 * client's own values, and "deepspeed", which zckpt writes: what a step of DeepSpeed has and FSDP
 * has no place for.
 */
#include <string.h>

#include "formats/fsdp_ranks/rk_tc.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/tensor/ck_val_new.h"

int ck_rk_extra_open(struct rk *r, struct ckpt_err *err)
{
	struct rk_file *file = r->extra[0];
	struct ck_val *const *item;
	const struct ck_val *v;
	uint64_t n;
	int rc;

	if (!file || !file->ok)
		return 0;
	rc = ck_pt_open(r->ix->source[file->source].src, &r->in->limits, 0, NULL, &file->pt,
			&r->extra_err);
	if (rc == -CKPT_E_NOMEM)
		return ck_fail_nomem(err, "an extra state", file->bytes);
	v = ck_val_get(ck_rk_extra_root(r), "deepspeed");
	if (!rc && ck_val_pairs(v, &item, &n))
		r->deepspeed = v;
	return 0;
}

const struct ck_val *ck_rk_extra_root(const struct rk *r)
{
	return r->extra[0] && r->extra[0]->pt ? r->extra[0]->pt->doc.root : NULL;
}

/* ---- what DeepSpeed had ---- */

static bool has_text(const struct ck_val *list, const char *text)
{
	struct ck_val *const *item;
	uint64_t n = 0;

	ck_val_seq(list, &item, &n);
	for (uint64_t i = 0; i < n; i++)
		if (ck_val_is_str(item[i], text))
			return true;
	return false;
}

bool ck_rk_extra_lists(const struct rk *r, const char *key, const char *name)
{
	return has_text(ck_val_get(r->deepspeed, key), name);
}

/* ---- the scheduler and the client's values ---- */

static int take_value(struct rk *r, struct ck_step *step, const struct ck_val *key,
		      struct ck_val *v, struct ckpt_err *err)
{
	const char *name = ck_val_str(key);
	const char *where = r->extra[0]->name;

	if (!name || !strcmp(name, "deepspeed") || ck_val_is_none(v))
		return 0;
	if (!strcmp(name, "rng")) {
		ck_findings_add(&step->for_others, CK_FINDING_NOT_CARRIED, where,
				"random states of the ranks ('rng'): the resumed run draws other "
				"numbers");
		return 0;
	}
	if (ck_step_ds_is_reserved(name) || !ck_step_ds_is_plain(v)) {
		ck_findings_add(&step->for_others, CK_FINDING_NOT_CARRIED, where,
				"'%.60s': a value with tensors or objects in it, or of a name that "
				"DeepSpeed uses itself", name);
		return 0;
	}
	return ck_val_dict_sets(&r->arena, step->model, name, v) ? 0 :
	       ck_fail_nomem(err, "a value of the client", 0);
}

int ck_rk_extra_fill(struct rk *r, struct ck_step *step, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n = 0;
	int rc = 0;

	if (r->tc)
		return ck_rk_tc_fill(r, step, err);
	if (r->extra_err.code)
		return ck_fail(err, r->extra_err.code, r->extra_err.where, r->extra_err.offset,
			       "%s", r->extra_err.msg);
	ck_val_pairs(ck_rk_extra_root(r), &item, &n);
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = take_value(r, step, item[2 * i], item[2 * i + 1], err);
	return rc ? rc : ck_step_ds_fill(r->deepspeed, &r->arena, step, err);
}
