/* ck_step_out.c -- see ck_step_out.h. */
#include <string.h>
#include <time.h>

#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/reshard/ck_step_out.h"
#include "libckpt/run/ck_run_to_dst.h"
#include "libckpt/run/op_commit.h"

/* In one arena, which ckpt_report_free() releases. */
static int make_report(const struct ck_step_out *o, const char *dst,
		       const struct ck_run_stats *stats, struct ckpt_report *out,
		       struct ckpt_err *err)
{
	struct ck_arena *arena = ck_zalloc(sizeof(*arena));
	struct ckpt_report rep = {
		.memory = arena, .nfiles = o->plan->nfiles, .written_bytes = stats->written,
		.would_read_bytes = stats->to_read, .free_bytes = stats->free,
		.resumed_bytes = stats->resumed, .threads = stats->threads,
		.ntensors = o->ck->ix.ntensors,
	};

	if (!arena)
		return ck_fail_nomem(err, "a report", sizeof(*arena));
	rep.files = ck_arena_zalloc(arena, (rep.nfiles + 1) * sizeof(*rep.files));
	for (uint64_t i = 0; rep.files && i < rep.nfiles; i++) {
		rep.files[i].path = o->is_file ? ck_arena_strdup(arena, dst) :
				    ck_arena_printf(arena, "%s/%s", dst, o->plan->file[i].name);
		rep.files[i].bytes = o->plan->file[i].bytes;
		if (!rep.files[i].path)
			rep.files = NULL;
	}
	if (!rep.files) {
		ck_arena_release(arena);
		ck_free(arena);
		return ck_fail_nomem(err, "a report", rep.nfiles);
	}
	*out = rep;
	return 0;
}

/* The folder of the step in the result: that of the plan's first file. */
static char *step_of(const struct ck_plan *plan)
{
	const char *name = plan->nfiles ? plan->file[0].name : "";

	return ck_strndup(name, strcspn(name, "/"));
}

static int run_plan(const struct ck_step_out *o, const char *dst, struct ck_run_stats *stats,
		    struct ckpt_err *err)
{
	struct ckpt_run_opts run;
	char *step = o->is_file ? NULL : step_of(o->plan);
	struct ck_run_to_dst d = {
		.ck = o->ck, .plan = o->plan, .dst = dst, .is_dir = !o->is_file, .flags = o->flags,
		.run = &run, .part = o->part, .nparts = o->nparts,
		.fingerprint = ck_hasher_sum(o->ck->ix.fingerprint), .step = step,
		.step_is_fixed = o->step_is_fixed, .driver = o->ck->formats->step,
	};
	int rc;

	ck_run_opts_fill(o->run, &run);
	rc = o->is_file ? 0 :
	     step ? ck_outputs_at(o->ck->formats->folder, dst, &d.is_ours, err) :
		    ck_fail_nomem(err, "a file name", 0);
	if (!rc)
		rc = ck_run_to_dst(&d, stats, err);
	ck_free(step);
	return rc;
}

int ck_step_deliver(const struct ck_step_out *out, struct ckpt_report *report_out,
		    struct ckpt_err *err)
{
	const uint64_t before = out->began ? out->read_before : ck_fdpool_bytes(out->ck->pool);
	const double began = out->began ? out->began : ck_clock_seconds();
	struct ck_run_stats stats = { 0 };
	size_t n = strlen(out->dst);
	char *dst;
	int rc;

	while (n > 1 && out->dst[n - 1] == '/')
		n--;
	dst = ck_strndup(out->dst, n);
	rc = dst ? run_plan(out, dst, &stats, err) : ck_fail_nomem(err, "a path", n);
	if (!rc && report_out) {
		rc = make_report(out, dst, &stats, report_out, err);
		if (!rc) {
			report_out->read_bytes = ck_fdpool_bytes(out->ck->pool) - before;
			report_out->seconds = ck_clock_seconds() - began;
		}
	}
	ck_free(stats.digest);
	ck_free(stats.piece);
	ck_free(dst);
	return rc;
}
