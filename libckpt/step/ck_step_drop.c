/* ck_step_drop.c -- see ck_step_drop.h. */
#include "libckpt/step/ck_step_drop.h"

#include <fnmatch.h>
#include <string.h>

#include "libckpt/base/ck_err.h"

static bool is_optimizer_state(const char *name)
{
	return strcmp(name, "weight") && strcmp(name, "master");
}

bool ck_step_is_dropped(const struct ck_reshard_want *want, const char *name)
{
	for (const char *const *p = want->drop; p && *p; p++)
		if (!fnmatch(*p, name, 0))
			return true;
	return false;
}

bool ck_step_is_moment(const struct ck_reshard_want *want, const char *name)
{
	return is_optimizer_state(name) && !ck_step_is_dropped(want, name);
}

/* Does it fit a state that the step or the index has, or one that could not be joined? */
static bool fits_state(const struct ck_step *step, const struct ck_index *ix, const char *pattern,
		       const char **some)
{
	for (uint32_t k = 0; k < step->nstates; k++)
		if (!fnmatch(pattern, step->state[k], 0))
			return true;
	for (uint32_t i = 0; i < step->nunjoined; i++)
		if (!fnmatch(pattern, step->unjoined[i].state, 0))
			return true;
	if (step->left_out && !fnmatch(pattern, step->left_out, 0))
		return true;
	for (uint64_t i = 0; i < ix->nstates; i++) {
		if (!is_optimizer_state(ix->state[i].name))
			continue;
		*some = ix->state[i].name;
		if (!fnmatch(pattern, *some, 0))
			return true;
	}
	return false;
}

int ck_step_check_drops(const struct ck_step *step, const struct ck_index *ix,
			const struct ck_reshard_want *want, struct ckpt_err *err)
{
	for (const char *const *p = want->drop; p && *p; p++) {
		const char *some = NULL;

		if (!fits_state(step, ix, *p, &some))
			return ck_fail(err, CKPT_E_USAGE, ix->path, CKPT_NO_OFFSET,
				       "%s matches no optimizer state of this step%s%s", *p,
				       some ? ", which has ones such as " : "", some ? some : "");
	}
	return 0;
}

int ck_step_check_joined(const struct ck_step *step, const struct ck_reshard_want *want,
			 bool keeps_shards, struct ckpt_err *err)
{
	if (step->left_out && !ck_step_is_dropped(want, step->left_out) && !keeps_shards)
		return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET,
			       "state %.60s is not a contiguous tensor, so it cannot be "
			       "re-partitioned; --drop-state %.60s leaves it out", step->left_out,
			       step->left_out);
	for (uint32_t i = 0; i < step->nunjoined; i++) {
		const char *state = step->unjoined[i].state;

		if (!ck_step_is_dropped(want, state))
			return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET,
				       "state %s of group %u cannot be joined over the ranks, so "
				       "it cannot be re-partitioned; --drop-state %s leaves it out",
				       state, step->unjoined[i].group, state);
	}
	return 0;
}
