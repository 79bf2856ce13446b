/* ck_overflow.c -- see ck_overflow.h. */
#include "libckpt/run/ck_overflow.h"

#include <inttypes.h>

#include "libckpt/base/ck_err.h"

void ck_overflow_add(struct ck_overflow *all, const struct ck_overflow *more)
{
	if (more->n && (!all->n || more->first < all->first))
		all->first = more->first;
	all->n += more->n;
}

static bool is_cast(const struct ck_run_job *job, const struct ck_seg *s)
{
	return s->kind == CK_SEG_STATE && (s->dtype != job->ix->state[s->state].dtype ||
					   ck_changes(job->change, s->state));
}

bool ck_overflow_casts(const struct ck_run_job *job, const struct ck_unit *u)
{
	uint64_t at = u->off;

	for (uint64_t i = u->seg; at < u->off + u->bytes; i++) {
		const struct ck_seg *s = &job->plan->seg[i];

		if (is_cast(job, s))
			return true;
		at = s->off + s->bytes;
	}
	return false;
}

bool ck_overflow_any_casts(const struct ck_run_job *job)
{
	for (uint64_t i = 0; i < job->plan->nsegs; i++)
		if (is_cast(job, &job->plan->seg[i]))
			return true;
	return false;
}

int ck_overflow_check(const struct ck_run_job *job, const struct ck_overflow *over,
		      struct ckpt_err *err)
{
	const struct ck_index *ix = job->ix;
	const char *name;

	if (!over->n)
		return 0;
	name = ix->tensor[ix->state[over->first->state].tensor].name;
	if (job->findings)
		ck_findings_add(job->findings, CK_FINDING_VALUES_INFINITE, name,
				"%" PRIu64 " finite value%s too large for the requested type "
				"and would become infinite, the first in this tensor; bf16 has "
				"the range of fp32", over->n, over->n == 1 ? " is" : "s are");
	return ck_fail(err, CKPT_E_MISMATCH, name, CKPT_NO_OFFSET,
		       "VALUES_INFINITE: %" PRIu64 " finite value%s too large for the requested "
		       "type and would become infinite", over->n, over->n == 1 ? " is" : "s are");
}
