/*
 * op_reshard.c -- the verb `reshard`: a step for another number of ranks.
 *
 * The index of the source says where every element is, the driver lays the new files out as a
 * plan, and what is common to all verbs runs it.
 */
#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/format/ck_plan.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/ops/ck_agree.h"
#include "libckpt/ops/ck_buffers.h"
#include "libckpt/ops/ck_ckpt.h"
#include "libckpt/ops/ck_deliver.h"

#define MAX_WORLD 4096u

struct resharding {
	struct ckpt *ck;
	const struct ckpt_reshard_opts *opts;
	const struct ck_format *driver;
	struct ck_plan plan;
	struct ck_findings notes;	/* of reading again: known already */
	const char *dst;
	struct ckpt_run_opts run;
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int stop_on_findings(const struct resharding *r, struct ckpt_err *err)
{
	const struct ckpt_finding *f = ck_findings_worst(&r->ck->findings, CKPT_ERROR);

	if (!f && (r->opts->flags & CKPT_CONVERT_STRICT))
		f = ck_findings_worst(&r->ck->findings, CKPT_WARN);
	return f ? ck_findings_fail(f, err) : 0;
}

static bool is_optimizer_state(const char *name)
{
	return strcmp(name, "weight") && strcmp(name, "master");
}

/* A pattern that fits nothing is a wrong name, and what it meant would stay. */
static int check_drops(const struct resharding *r, struct ckpt_err *err)
{
	const struct ck_index *ix = &r->ck->ix;

	for (const char *const *p = r->opts->drop_states; p && *p; p++) {
		const char *some = NULL;
		uint64_t i;

		for (i = 0; i < ix->nstates; i++) {
			const char *name = ix->state[i].name;

			if (is_optimizer_state(name) && !fnmatch(*p, name, 0))
				break;
			if (is_optimizer_state(name))
				some = name;
		}
		if (i == ix->nstates)
			return ck_fail(err, CKPT_E_USAGE, ix->path, CKPT_NO_OFFSET,
				       "%s fits no optimizer state of this step%s%s", *p,
				       some ? ", which has ones such as " : "", some ? some : "");
	}
	return 0;
}

/* The step is one folder of the result; DeepSpeed's loader takes its name for a pattern. */
static int check_tag(const struct resharding *r, struct ckpt_err *err)
{
	const char *tag = r->opts->tag ? r->opts->tag : r->ck->ix.tag;

	if (!r->opts->tag && !*tag)
		return 0;	/* the driver has a name for it */
	if (*tag && !strchr(tag, '/') && strcmp(tag, ".") && strcmp(tag, "..") &&
	    strcmp(tag, "latest") && strcmp(tag, "latest_universal") &&
	    !(r->opts->tag && strpbrk(tag, "[]*?")))
		return 0;
	return ck_fail(err, CKPT_E_USAGE, tag, CKPT_NO_OFFSET,
		       "this cannot name a step: a plain name of a folder is wanted, without / and "
		       "[]*?; --new-tag gives one");
}

static int check_source(struct resharding *r, struct ckpt_err *err)
{
	int rc = stop_on_findings(r, err);

	if (rc)
		return rc;
	r->driver = ck_format_by_name(r->ck->ix.format);
	if (!r->driver || !r->driver->reshard)
		return ck_fail(err, CKPT_E_UNSUPPORTED, r->ck->ix.path, CKPT_NO_OFFSET,
			       "a checkpoint of format %s is not resharded; give a DeepSpeed step",
			       r->ck->ix.format);
	if (!r->opts->world || r->opts->world > MAX_WORLD)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "a world of %u ranks; 1 to %u are possible", r->opts->world,
			       MAX_WORLD);
	rc = check_tag(r, err);
	if (!rc)
		rc = check_drops(r, err);
	if (!rc)
		rc = ck_agree(r->ck, r->run.threads, err);
	if (!rc)
		rc = ck_buffers_compare(r->ck, err);
	return rc ? rc : stop_on_findings(r, err);
}

/* DST is the folder that the step of the source lies in. */
static bool is_in_place(const struct resharding *r)
{
	char *root = r->ck->npaths == 1 ? ck_fs_parent(r->ck->ix.path) : NULL;
	struct stat a, b;
	const bool same = root && !ck_sys.stat(root, &a) && !ck_sys.stat(r->dst, &b) &&
			  a.st_dev == b.st_dev && a.st_ino == b.st_ino;

	ck_free(root);
	return same;
}

static int lay_out(const struct ck_input *in, void *arg, struct ckpt_err *err)
{
	struct resharding *r = arg;
	const struct ck_reshard_want want = {
		.world = r->opts->world, .stage = r->opts->stage,
		.round_robin = r->opts->round_robin,
		.sub_group_size = r->opts->sub_group_size, .tag = r->opts->tag,
		.version = r->opts->ds_version, .drop = r->opts->drop_states,
		.reset = (r->opts->flags & CKPT_RESHARD_RESET) != 0,
		.in_place = is_in_place(r),
	};

	return r->driver->reshard(in, &r->ck->ix, &want, &r->plan, &r->notes, err);
}

static int make_plan(struct resharding *r, struct ckpt_err *err)
{
	struct ck_input in = {
		.path = r->ck->path, .npaths = r->ck->npaths, .tag = r->ck->tag,
		.threads = r->ck->threads, .limits = r->ck->limits, .pool = r->ck->pool,
	};
	int rc = ck_format_with_input(&in, lay_out, r, err);

	return rc ? rc : ck_plan_finish(&r->plan, err);
}

/* The folder of the step in the result: that of the plan's first file. */
static char *step_of(const struct ck_plan *plan)
{
	const char *name = plan->nfiles ? plan->file[0].name : "";

	return ck_strndup(name, strcspn(name, "/"));
}

static int run_plan(struct resharding *r, struct ck_run_stats *stats, struct ckpt_err *err)
{
	char *step = step_of(&r->plan);
	const struct ck_deliver d = {
		.ck = r->ck, .plan = &r->plan, .dst = r->dst, .is_dir = true,
		.flags = r->opts->flags, .run = &r->run, .part = r->opts->part,
		.nparts = r->opts->nparts, .fingerprint = ck_hasher_sum(r->ck->ix.fingerprint),
		.step = step, .driver = r->driver,
	};
	int rc = step ? ck_deliver(&d, stats, err) : ck_fail_nomem(err, "a file name", 0);

	ck_free(step);
	return rc;
}

/* In one arena, which ckpt_report_free() releases. */
static int make_report(const struct resharding *r, const struct ck_run_stats *stats,
		       struct ckpt_report *out, struct ckpt_err *err)
{
	struct ck_arena *arena = ck_zalloc(sizeof(*arena));
	struct ckpt_report rep = {
		.memory = arena, .nfiles = r->plan.nfiles, .written_bytes = stats->written,
		.resumed_bytes = stats->resumed, .threads = stats->threads,
		.ntensors = r->ck->ix.ntensors,
	};

	if (!arena)
		return ck_fail_nomem(err, "a report", sizeof(*arena));
	rep.files = ck_arena_zalloc(arena, (rep.nfiles + 1) * sizeof(*rep.files));
	for (uint64_t i = 0; rep.files && i < rep.nfiles; i++) {
		rep.files[i].path = ck_arena_printf(arena, "%s/%s", r->dst, r->plan.file[i].name);
		rep.files[i].bytes = r->plan.file[i].bytes;
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

int ck_reshard(struct ckpt *ck, const char *dst, const struct ckpt_reshard_opts *opts,
	       struct ckpt_report *report_out, struct ckpt_err *err)
{
	struct resharding r = { .ck = ck, .opts = opts, .plan = CK_PLAN_INIT };
	const uint64_t before = ck_fdpool_bytes(ck->pool);
	const double began = now();
	struct ck_run_stats stats = { 0 };
	size_t n = strlen(dst);
	char *plain;
	int rc;

	while (n > 1 && dst[n - 1] == '/')
		n--;
	plain = ck_strndup(dst, n);
	if (!plain)
		return ck_fail_nomem(err, "a path", n);
	r.dst = plain;
	ck_run_opts_fill(opts->run, &r.run);
	rc = check_source(&r, err);
	if (!rc)
		rc = make_plan(&r, err);
	if (!rc)
		rc = run_plan(&r, &stats, err);
	if (!rc && report_out) {
		rc = make_report(&r, &stats, report_out, err);
		if (!rc) {
			report_out->read_bytes = ck_fdpool_bytes(ck->pool) - before;
			report_out->seconds = now() - began;
		}
	}
	ck_free(stats.digest);
	ck_free(stats.piece);
	ck_findings_release(&r.notes);
	ck_plan_release(&r.plan);
	ck_free(plain);
	return rc;
}
