/* ck_run_check.c -- see ck_run_check.h. */
#include "libckpt/run/ck_run_check.h"

#include "libckpt/base/ck_err.h"
#include "libckpt/tensor/ck_extents.h"

static int touch_state(struct ck_source_check *proof, const struct ck_index *ix, uint32_t state,
		       struct ckpt_err *err)
{
	const struct ck_state *s = &ix->state[state];
	int rc = 0;

	for (uint64_t k = 0; !rc && k < s->nstored; k++) {
		const struct ck_extent *e = ck_extent_stored(ix, s, k);

		if (!(e->flags & CKPT_EXTENT_DEFLATED))
			rc = ck_crc_check_add(proof->seen, e->source, e->off, NULL, 0, err);
	}
	return rc;
}

/*
 * Where the names of masters and moments follow from the weights, these count as read; where no
 * name was found for some, the reason may be damage of what is not read.
 */
static int touch_weights(const struct ck_run_job *job, struct ck_source_check *proof,
			 struct ckpt_err *err)
{
	const struct ck_index *ix = job->ix;
	int rc = 0;

	if (!ix->weights_name_states)
		return 0;
	if (job->findings->of_kind[CK_FINDING_NOT_IN_CHECKPOINT])
		ck_crc_check_all(proof->seen);
	for (uint32_t i = 0; !rc && i < ix->ntensors; i++) {
		const uint32_t w = ck_index_state_find(ix, i, "weight");

		if (w != CK_NONE)
			rc = touch_state(proof, ix, w, err);
	}
	return rc;
}

/* All that the plan reads; 'among': also by an earlier process, or another one. */
static int want_all(const struct ck_run_job *job, struct ck_run_check *all, bool among,
		    struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < job->plan->nsegs; i++) {
		const struct ck_seg *s = &job->plan->seg[i];

		if (s->kind == CK_SEG_FILE)
			ck_source_check_want_file(&all->proof, s->text, s->first ? 0 : s->bytes);
		if (s->kind == CK_SEG_FILE && among)
			rc = ck_source_check_saw_file(&all->proof, s->text, s->first, NULL,
						      s->bytes, err);
		if (s->kind == CK_SEG_STATE)
			ck_source_check_want_state(&all->proof, s->state);
		if (s->kind == CK_SEG_STATE && among)
			rc = touch_state(&all->proof, job->ix, s->state, err);
		if (s->kind == CK_SEG_OWN && among)
			rc = touch_state(&all->own, job->plan->own, s->state, err);
	}
	return rc;
}

static int share_all(const struct ck_run_job *job, struct ck_run_check *all, struct ckpt_err *err)
{
	const struct ck_plan *plan = job->plan;
	int rc = want_all(job, all, true, err);

	if (!rc)
		rc = ck_part_sums_init(&all->share, job->part, job->nparts, err);
	all->share.as_warning = job->findings->as_warning;
	if (!rc)
		rc = ck_claims_make(&all->claims, &all->share, job->ix, plan, all->proof.seen, err);
	if (!rc && plan->own)
		rc = ck_claims_make(&all->own_claims, &all->share, plan->own, plan, all->own.seen,
				    err);
	if (!rc && all->proof.passed)
		ck_sum_check_share(all->proof.passed, &all->share, &all->claims);
	if (!rc && plan->own && all->own.passed)
		ck_sum_check_share(all->own.passed, &all->share, &all->own_claims);
	return rc;
}

int ck_run_check_begin(const struct ck_run_job *job, struct ck_run_check *all,
		       struct ckpt_err *err)
{
	int rc = ck_source_check_init(&all->proof, job->ix, job->limits, NULL, err);

	if (!rc)
		rc = touch_weights(job, &all->proof, err);
	if (!rc && job->plan->own)
		rc = ck_source_check_init(&all->own, job->plan->own, job->limits, NULL, err);
	return rc || job->nparts == 1 ? rc : share_all(job, all, err);
}

/*
 * A process alone compares all of it.  One of several compares what it alone answers for, and notes
 * the rest for the committer.
 */
int ck_run_check_end(const struct ck_run_job *job, struct ck_run_check *all, bool resumed,
		     uint32_t threads, struct ckpt_err *err)
{
	const bool parts = job->nparts > 1;
	struct ck_source_check_ask ask = {
		.ix = job->ix,
		.members = {
			.rest = parts ? CK_CRC_CHECK_SHARE :
				resumed ? CK_CRC_CHECK_WHOLE : CK_CRC_CHECK_ALONE,
			.share = &all->share, .claims = &all->claims,
		},
		.pieces = {
			.rest = CK_REST_WANTED, .threads = threads, .cancel = job->opts->cancel,
		},
	};
	int rc;

	if (!job->findings)
		return 0;
	rc = parts ? 0 : want_all(job, all, resumed, err);
	if (!rc)
		rc = ck_source_check_check(&all->proof, &ask, job->findings, err);
	ask.ix = job->plan->own;
	ask.members.claims = &all->own_claims;
	if (!rc && ask.ix)
		rc = ck_source_check_check(&all->own, &ask, job->findings, err);
	return rc || !parts || job->to != CK_RUN_STAGE ? rc :
	       ck_part_sums_settle(&all->share, job->stage, err);
}

void ck_run_check_release(struct ck_run_check *all)
{
	ck_source_check_release(&all->proof);
	ck_source_check_release(&all->own);
	ck_claims_release(&all->claims);
	ck_claims_release(&all->own_claims);
	ck_part_sums_release(&all->share);
}
