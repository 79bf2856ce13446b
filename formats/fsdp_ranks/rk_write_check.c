/*
 * rk_write_check.c -- what a step has and rank files would lose: refused, unless --drop-state names
 * it, or named.
 */
#include <string.h>

#include "formats/fsdp_ranks/rk_out.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/step/ck_step_drop.h"

static int check_states(const struct rk_out *o, struct ckpt_err *err)
{
	const struct ck_step *step = o->step;

	if (step->elastic)
		return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET,
			       "an elastic step has no hyper-parameters, and FSDP's optimizer "
			       "needs them");
	return ck_step_check_joined(step, o->want, false, err);
}

/* ---- notes ---- */

static bool is_state(const struct rk_out *o, const char *name)
{
	for (uint32_t i = 0; i < o->step->nstates; i++)
		if (!strcmp(o->step->state[i], name))
			return true;
	for (uint64_t i = 0; i < o->ix->nstates; i++)
		if (!strcmp(o->ix->state[i].name, name))
			return true;
	return false;
}

/* Values of groups that are neither a state nor the count. */
static void note_entries(const struct rk_out *o)
{
	for (uint32_t g = 0; g < o->step->ngroups; g++) {
		struct ck_val *const *item;
		uint64_t n = 0;

		ck_val_pairs(o->step->group[g].entry, &item, &n);
		for (uint64_t i = 0; i < n; i++) {
			const char *key = ck_val_str(item[2 * i]);

			if (key && strcmp(key, "step") != 0 && !is_state(o, key) &&
			    !ck_step_is_dropped(o->want, key))
				ck_findings_add(o->step->f, CK_FINDING_NOT_CARRIED,
						o->step->at.where, "'%.60s' of param group %u: a "
						"value of the optimizer that is no state of a "
						"parameter", key, g);
		}
	}
}

static void note_ranks(const struct rk_out *o)
{
	const struct ck_step_differing *shard = &o->step->own_shard, *model = &o->step->own_model;

	if (shard->path)
		ck_findings_add(o->step->f, CK_FINDING_NOT_CARRIED, shard->path,
				"'%.60s' of the optimizer differs from rank 0's shard; the "
				"result has rank 0's value", shard->key);
	if (model->path)
		ck_findings_add(o->step->f, CK_FINDING_NOT_CARRIED, model->path,
				"'%.60s' differs from rank 0's model file; the result has "
				"rank 0's value", model->key);
}

int ck_rk_out_check(const struct rk_out *o, struct ckpt_err *err)
{
	int rc = ck_step_check_drops(o->step, o->ix, o->want, err);

	if (!rc)
		rc = check_states(o, err);
	if (!rc) {
		note_entries(o);
		note_ranks(o);
	}
	return rc;
}
