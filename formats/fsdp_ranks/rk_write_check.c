/*
 * rk_write_check.c -- what a step has and rank files would lose: refused, unless --drop-state names
 * it, or named.
 */
#include <fnmatch.h>
#include <string.h>

#include "formats/fsdp_ranks/rk_out.h"
#include "libckpt/base/ck_err.h"

bool ck_rk_out_is_moment(const struct rk_out *o, uint32_t state)
{
	const char *name = o->ix->state[state].name;

	if (!strcmp(name, "weight") || !strcmp(name, "master"))
		return false;
	for (const char *const *p = o->want->drop; p && *p; p++)
		if (!fnmatch(*p, name, 0))
			return false;
	return true;
}

static bool is_dropped(const struct rk_out *o, const char *name)
{
	for (const char *const *p = o->want->drop; p && *p; p++)
		if (!fnmatch(*p, name, 0))
			return true;
	return false;
}

static bool fits_state(const struct rk_out *o, const char *pattern, const char **some)
{
	const struct ck_step *step = o->step;

	if (step->left_out && !fnmatch(pattern, step->left_out, 0))
		return true;
	for (uint32_t i = 0; i < step->nunjoined; i++)
		if (!fnmatch(pattern, step->unjoined[i].state, 0))
			return true;
	for (uint64_t i = 0; i < o->ix->nstates; i++) {
		const char *name = o->ix->state[i].name;

		if (!strcmp(name, "weight") || !strcmp(name, "master"))
			continue;
		*some = name;
		if (!fnmatch(pattern, name, 0))
			return true;
	}
	return false;
}

/* A pattern that fits nothing is a wrong name, and what it meant would stay. */
static int check_drops(const struct rk_out *o, struct ckpt_err *err)
{
	for (const char *const *p = o->want->drop; p && *p; p++) {
		const char *some = NULL;

		if (!fits_state(o, *p, &some))
			return ck_fail(err, CKPT_E_USAGE, o->ix->path, CKPT_NO_OFFSET,
				       "%s matches no optimizer state of this step%s%s", *p,
				       some ? ", which has ones such as " : "", some ? some : "");
	}
	return 0;
}

static int check_states(const struct rk_out *o, struct ckpt_err *err)
{
	const struct ck_step *step = o->step;

	if (step->elastic)
		return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET,
			       "an elastic step has no hyper-parameters, and FSDP's optimizer "
			       "needs them");
	if (step->left_out && !is_dropped(o, step->left_out))
		return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET,
			       "state %.60s is not a contiguous tensor, so it cannot be "
			       "re-partitioned; --drop-state %.60s leaves it out",
			       step->left_out, step->left_out);
	for (uint32_t i = 0; i < step->nunjoined; i++)
		if (!is_dropped(o, step->unjoined[i].state))
			return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET,
				       "state %s of group %u cannot be joined over the ranks, so "
				       "it cannot be re-partitioned; --drop-state %s leaves it out",
				       step->unjoined[i].state, step->unjoined[i].group,
				       step->unjoined[i].state);
	return 0;
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
			    !is_dropped(o, key))
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
	int rc = check_drops(o, err);

	if (!rc)
		rc = check_states(o, err);
	if (!rc) {
		note_entries(o);
		note_ranks(o);
	}
	return rc;
}
