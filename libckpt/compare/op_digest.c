/*
 * op_digest.c -- `digest`: read everything, write nothing, hash each state as a whole.
 */
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/compare/ck_diff.h"
#include "libckpt/run/ck_master_check.h"
#include "libckpt/run/ck_buffers.h"
#include "libckpt/run/ck_run.h"
#include "libckpt/run/ck_stated.h"
#include "libckpt/select/ck_select.h"
#include "libckpt/select/ck_states.h"
#include "libckpt/sums/ck_digest_lines.h"

static int plan_state(const struct ck_index *ix, const struct ck_pick *pick, uint32_t number,
		      struct ck_plan *plan, struct ckpt_err *err)
{
	const struct ck_tensor *t = &ix->tensor[pick->tensor];
	const struct ck_state *s = &ix->state[number];
	const struct ck_slot slot = {
		.name = pick->stored, .state = s->name, .shape = t->shape, .ndim = t->ndim,
		.dtype = s->dtype, .fill = UINT64_MAX,
	};
	uint32_t n;
	int rc = ck_plan_slot(plan, &slot, &n, err);

	if (!rc)
		rc = ck_plan_state(plan, ix, number, s->dtype, 0, t->numel, n, err);
	return rc;
}

static int plan_all(const struct ckpt *ck, const struct ck_selection *sel,
		    const char *const *states, struct ck_plan *plan, struct ckpt_err *err)
{
	int rc = ck_plan_file(plan, "digest", err);

	for (uint64_t i = 0; !rc && i < sel->npicks; i++) {
		uint32_t s = ck->ix.tensor[sel->pick[i].tensor].first_state;

		for (; !rc && s != CK_NONE; s = ck->ix.state[s].next)
			if (ck_states_has(states, ck->ix.state[s].name))
				rc = plan_state(&ck->ix, &sel->pick[i], s, plan, err);
	}
	if (!rc && !plan->nslots)
		rc = ck_select_fail_empty(&ck->ix, err);
	return rc ? rc : ck_plan_finish(plan, err);
}

static int fill_result(const struct ck_plan *plan, const struct ck_run_stats *stats,
		       struct ckpt_digests *out, struct ckpt_err *err)
{
	struct ck_arena *arena = ck_zalloc(sizeof(*arena));
	struct ckpt_digests made = { .nlines = plan->nslots, .memory = arena };
	int rc;

	if (!arena)
		return ck_fail_nomem(err, "digests", sizeof(*arena));
	rc = ck_digest_lines_make(plan, stats->digest, arena, &made.lines, made.root, err);
	if (rc) {
		ck_arena_release(arena);
		ck_free(arena);
		return rc;
	}
	*out = made;
	return 0;
}

static int check(struct ckpt *ck, const struct ckpt_run_opts *run, struct ckpt_err *err)
{
	const struct ckpt_finding *bad = ck_findings_worst(&ck->findings, CKPT_ERROR);
	int rc;

	if (bad)
		return ck_findings_fail(bad, err);
	rc = ck_stated_begin(ck, err);
	if (!rc)
		rc = ck_master_check(ck, run->threads, false, err);
	if (!rc)
		rc = ck_buffers_compare(ck, err);
	bad = ck_findings_worst(&ck->findings, CKPT_ERROR);
	return rc || !bad ? rc : ck_findings_fail(bad, err);
}

int ck_digest(struct ckpt *ck, const struct ckpt_digest_opts *opts, struct ckpt_digests *out,
	      struct ckpt_err *err)
{
	struct ck_selection sel = CK_SELECTION_INIT;
	struct ck_plan plan = CK_PLAN_INIT;
	struct ck_run_stats stats = { 0 };
	struct ckpt_select select = { .size = sizeof(select) };
	struct ckpt_run_opts run;
	const struct ck_run_job job = {
		.ix = &ck->ix, .plan = &plan, .limits = &ck->limits, .opts = &run,
		.to = CK_RUN_NOWHERE, .nparts = 1, .fd = -1, .findings = &ck->findings,
	};
	uint64_t before;
	int rc;

	ck_run_opts_fill(opts->run, &run);
	if (opts->select)
		select = *opts->select;
	select.tied = CKPT_TIED_DROP;
	select.rename = NULL;
	select.strip_prefix = NULL;
	before = ck_fdpool_bytes(ck->pool);
	rc = check(ck, &run, err);
	if (!rc)
		rc = ck_states_check(&ck->ix, opts->states, err);
	if (!rc)
		rc = ck_select(&ck->ix, &select, &sel, err);
	if (!rc)
		rc = plan_all(ck, &sel, opts->states, &plan, err);
	ck_fdpool_set_drop(ck->pool, true);
	if (!rc)
		rc = ck_fdpool_check(ck->pool, ck_run(&job, &stats, err), err);
	ck_fdpool_set_drop(ck->pool, false);
	if (!rc)
		rc = fill_result(&plan, &stats, out, err);
	if (!rc)
		out->read_bytes = ck_fdpool_bytes(ck->pool) - before;
	ck_free(stats.digest);
	ck_plan_release(&plan);
	ck_selection_release(&sel);
	return rc;
}
