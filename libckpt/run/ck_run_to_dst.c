/* ck_run_to_dst.c -- see ck_run_to_dst.h. */
#include "libckpt/run/ck_run_to_dst.h"

#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_stage.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/run/ck_dst_check.h"
#include "libckpt/run/ck_overflow.h"
#include "libckpt/run/ck_crc_fill.h"
#include "libckpt/sums/ck_digest_fill.h"

static int check_root(void *arg, struct ckpt_err *err)
{
	return ck_dst_check(arg, err);
}

/* What is copied from files is opened when its turn comes; it is of this moment. */
static int watch_files(const struct ck_run_to_dst *d, struct ckpt_err *err)
{
	const char *last = NULL;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < d->plan->nsegs; i++) {
		const struct ck_seg *s = &d->plan->seg[i];

		if (s->kind != CK_SEG_FILE || (last && !strcmp(last, s->text)))
			continue;
		last = s->text;
		rc = ck_src_watch(d->ck->pool, last, err);
	}
	return rc;
}

/* Files that threads can write side by side: a small one beside a large one counts for nothing. */
static uint64_t files_at_once(const struct ck_plan *plan)
{
	uint64_t largest = 0;

	for (uint64_t i = 0; i < plan->nfiles; i++)
		largest = ck_max_u64(largest, plan->file[i].bytes);
	return largest ? ck_max_u64(1, ck_plan_bytes(plan) / largest) : 1;
}

static int begin_stage(const struct ck_run_to_dst *d, struct ck_stage **stage_out,
		       struct ckpt_err *err)
{
	struct ck_stage_opts so = {
		.dst = d->dst, .is_dir = d->is_dir, .force = d->flags & CKPT_WRITE_FORCE,
		.restart = d->flags & CKPT_WRITE_RESTART, .sync = d->run->sync,
		.part = d->nparts > 1 ? d->part : 0, .nparts = d->nparts > 1 ? d->nparts : 1,
		.nunits = d->plan->nunits, .total_bytes = ck_plan_bytes(d->plan),
		.fingerprint = d->fingerprint, .is_ours = d->is_ours,
		.writers = (uint32_t)((d->run->threads - 1) / files_at_once(d->plan) + 1),
		.step = d->step, .check = d->step ? check_root : NULL,
		.check_arg = (void *)(uintptr_t)d, .sources = d->ck->pool,
	};
	int rc = ck_plan_hash(d->plan, so.nparts, &so.plan, err);

	return rc ? rc : ck_stage_begin(&so, stage_out, err);
}

static int write_stage(const struct ck_run_to_dst *d, struct ck_run_job *job,
		       struct ck_run_stats *stats, struct ckpt_err *err)
{
	uint32_t *file = ck_alloc_array(d->plan->nfiles, sizeof(*file));
	int rc = file ? 0 : ck_fail_nomem(err, "files", d->plan->nfiles);

	for (uint64_t i = 0; !rc && i < d->plan->nfiles; i++)
		rc = ck_stage_file(job->stage, d->plan->file[i].name, d->plan->file[i].bytes,
				   &file[i], err);
	job->stage_file = file;
	if (!rc)
		rc = ck_run(job, stats, err);
	if (!rc && job->nparts == 1)
		rc = ck_digest_fill(d->plan, stats->digest, job->stage, job->stage_file, err);
	if (!rc)
		rc = ck_crc_fill(job, stats, err);
	if (!rc)
		rc = ck_stage_end(job->stage, err);
	if (!rc && job->nparts == 1)
		rc = ck_stage_commit(job->stage, 0, err);
	job->stage_file = NULL;
	ck_free(file);
	return rc;
}

/* A killed run had come as far as the rename: nothing is left but what it would have said. */
static int find_done(const struct ck_run_to_dst *d, struct ck_run_job *job,
		     struct ck_run_stats *stats, struct ckpt_err *err)
{
	int rc = 0;

	job->to = CK_RUN_NOWHERE;
	if (d->flags & CKPT_CONVERT_DIGEST)
		rc = ck_run(job, stats, err);
	stats->resumed = ck_plan_bytes(d->plan);
	stats->written = 0;
	return rc;
}

/* A canceled run with much behind it is left as a kill would leave it: the same call continues. */
static bool keeps_work(const struct ck_run_to_dst *d, const struct ck_run_job *job,
		       const struct ck_run_stats *stats, int rc, struct ckpt_err *err)
{
	const struct ckpt_progress now = { stats->kept, ck_plan_bytes(d->plan) };

	if (rc != -CKPT_E_CANCELED || !d->run->keep_bytes ||
	    (stats->done < d->run->keep_bytes && !ck_stage_is_continued(job->stage)))
		return false;
	if (d->run->progress)
		d->run->progress(d->run->progress_arg, &now);
	ck_err_clear(err);
	ck_fail(err, CKPT_E_CANCELED, ck_stage_paths(job->stage)->partial, CKPT_NO_OFFSET,
		"the run was canceled; what it wrote is kept here, and the same call continues");
	return true;
}

static int run_to_stage(const struct ck_run_to_dst *d, struct ck_run_job *job,
			struct ck_run_stats *stats, struct ckpt_err *err)
{
	int rc = watch_files(d, err);

	if (!rc)
		rc = begin_stage(d, &job->stage, err);
	if (rc)
		return rc;
	job->most_threads = (uint32_t)ck_min_u64(UINT32_MAX, files_at_once(d->plan) *
						 ck_stage_useful_writers(job->stage));
	if (ck_stage_is_done(job->stage))
		rc = find_done(d, job, stats, err);
	else
		rc = write_stage(d, job, stats, err);
	if (rc)
		rc = ck_fdpool_check(d->ck->pool, rc, err);
	if (rc && !keeps_work(d, job, stats, rc, err))
		ck_stage_abort(job->stage);
	else
		ck_stage_close(job->stage);
	return rc;
}

/*
 * What is sent cannot be taken back: values that --strict would stop at are looked for first, and
 * where a source changed meanwhile the status says that what went out is not to be used.
 */
static int run_to_stream(const struct ck_run_to_dst *d, struct ck_run_job *job,
			 struct ck_run_stats *stats, struct ckpt_err *err)
{
	int rc = watch_files(d, err);

	if (!rc && job->strict && ck_overflow_any_casts(job)) {
		job->to = CK_RUN_NOWHERE;
		rc = ck_run(job, stats, err);
		if (!rc) {
			ck_free(stats->digest);
			ck_free(stats->piece);
			*stats = (struct ck_run_stats){ 0 };
		}
		job->to = CK_RUN_STREAM;
	}
	if (!rc)
		rc = ck_run(job, stats, err);
	return ck_fdpool_check(d->ck->pool, rc, err);
}

/* A dry run says "it is there already" as the real one would. */
static int check_absent(const struct ck_run_to_dst *d, struct ckpt_err *err)
{
	bool empty = false;
	enum ck_fs_kind kind;
	int rc = ck_fs_kind(d->dst, &kind, err);

	if (!rc && kind == CK_FS_DIR)
		rc = ck_fs_dir_is_empty(d->dst, &empty, err);
	if (!rc && kind == CK_FS_DIR && !empty && d->step)
		return ck_dst_check(d, err);
	if (rc || kind == CK_FS_NOTHING || (d->flags & CKPT_WRITE_FORCE) ||
	    (empty && d->is_dir))
		return rc;
	return ck_fail(err, CKPT_E_EXISTS, d->dst, CKPT_NO_OFFSET, "%s", d->is_dir &&
		       kind == CK_FS_DIR ? "the folder exists; --force replaces its weights, other "
		       "files stay" : "the destination exists; --force replaces it");
}

/* Bytes of the source that the plan's segments are made of. */
static uint64_t bytes_to_read(const struct ck_run_to_dst *d)
{
	const struct ck_plan *plan = d->plan;
	uint64_t sum = 0;

	for (uint64_t i = 0; i < plan->nsegs; i++) {
		const struct ck_seg *s = &plan->seg[i];
		const uint64_t to = ckpt_dtype_bits(s->dtype);
		uint64_t from;

		if (s->kind == CK_SEG_STATE && to && s->state < d->ck->ix.nstates) {
			from = ckpt_dtype_bits(d->ck->ix.state[s->state].dtype);
			sum += s->bytes / to * from + s->bytes % to * from / to;
		} else if (s->kind != CK_SEG_LITERAL && s->kind != CK_SEG_ZERO) {
			sum += s->bytes;
		}
	}
	return sum;
}

/* Refuses what the run would refuse, and says what it would read and write. */
static int run_dry(const struct ck_run_to_dst *d, struct ck_run_stats *stats, struct ckpt_err *err)
{
	const uint64_t bytes = ck_plan_bytes(d->plan);
	uint64_t room = 0;
	int rc = d->to_stream ? 0 : check_absent(d, err);

	if (!rc && !d->to_stream)
		rc = ck_commit_room(d->dst, d->is_dir, bytes, &room, err);
	if (!rc) {
		stats->written = bytes;
		stats->to_read = bytes_to_read(d);
		stats->free = room;
	}
	return rc;
}

int ck_run_to_dst(const struct ck_run_to_dst *d, struct ck_run_stats *stats_out,
		  struct ckpt_err *err)
{
	struct ck_run_job job = {
		.ix = &d->ck->ix, .plan = d->plan, .change = d->change,
		.limits = &d->ck->limits, .opts = d->run,
		.pool = d->ck->pool, .fd = d->fd, .part = d->nparts > 1 ? d->part : 0,
		.nparts = d->nparts > 1 ? d->nparts : 1,
		.to = d->to_stream ? CK_RUN_STREAM : CK_RUN_STAGE,
		.findings = &d->ck->findings, .strict = d->flags & CKPT_WRITE_STRICT,
	};
	int rc;

	if (d->flags & CKPT_WRITE_DRY_RUN)
		return run_dry(d, stats_out, err);
	ck_fdpool_set_drop(d->ck->pool, true);
	rc = d->to_stream ? run_to_stream(d, &job, stats_out, err) :
			    run_to_stage(d, &job, stats_out, err);
	ck_fdpool_set_drop(d->ck->pool, false);
	return rc;
}
