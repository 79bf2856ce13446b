/* ckpt_keep.c -- `slim` and `prune`: arguments checked, then called down. */
#include <string.h>

#include "formats/ck_formats.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_mem.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/retain/ck_prune.h"
#include "libckpt/retain/ck_slim.h"
#include "libckpt/retain/ck_steps.h"
#include "libckpt/run/ck_run.h"

#define WRITE_FLAGS (CKPT_WRITE_FORCE | CKPT_WRITE_RESTART | CKPT_WRITE_DRY_RUN | \
		     CKPT_WRITE_STRICT)
#define PRUNE_FLAGS (CKPT_PRUNE_APPLY | CKPT_PRUNE_FULL | CKPT_PRUNE_LINK | CKPT_PRUNE_REFLINK)
#define SLIM_WHAT (CKPT_SLIM_VIEWS | CKPT_SLIM_FROZEN | CKPT_SLIM_MOMENTS)

static int check_slim(const char *dst, const struct ckpt_slim_opts *o,
		      const struct ckpt_run_opts *run, struct ckpt_err *err)
{
	if ((o->flags & ~WRITE_FLAGS) || (o->what & ~SLIM_WHAT) ||
	    (unsigned)run->sync > CKPT_SYNC_NONE)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "unknown flags 0x%x or 0x%x, or sync %d: a wrong value, or the "
			       "program was built for a newer library",
			       o->flags, o->what, (int)run->sync);
	if (dst ? dst[0] != 0 : (o->flags & CKPT_WRITE_DRY_RUN) != 0)
		return 0;
	return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "no destination is given");
}

int ckpt_slim(struct ckpt *ck, const char *dst, const struct ckpt_slim_opts *opts,
	      struct ckpt_slimmed *out, struct ckpt_err *err)
{
	struct ckpt_slim_opts o;
	struct ckpt_run_opts run;
	struct ck_slim_ask ask = { .run = &run };
	size_t n = dst ? strlen(dst) : 0;
	char *to = NULL;
	int rc;

	if (!ck)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "no checkpoint is given");
	rc = ck_opts_take(&o, sizeof(o), opts, "options of slimming", err);
	if (!rc)
		rc = ck_opts_take(&run, sizeof(run), o.run, "run options", err);
	if (!rc)
		rc = check_slim(dst, &o, &run, err);
	if (rc)
		return rc;
	while (n > 1 && dst[n - 1] == '/')
		n--;
	if (dst) {
		to = ck_strndup(dst, n);
		if (!to)
			return ck_fail_nomem(err, "a path", n);
	}
	ask.dst = to;
	ask.what = o.what;
	ask.flags = o.flags;
	rc = ck_slim(ck, &ask, out, err);
	ck_free(to);
	return rc;
}

void ckpt_slimmed_free(struct ckpt_slimmed *slimmed)
{
	if (!slimmed)
		return;
	ck_arena_free(slimmed->memory);
	memset(slimmed, 0, sizeof(*slimmed));
}

/* 'dir' without slashes at its end (ck_free), and complete limits. */
static int take_dir(const char *dir, const struct ckpt_limits *given, char **path_out,
		    struct ckpt_limits *limits, struct ckpt_err *err)
{
	size_t n = dir ? strlen(dir) : 0;
	int rc;

	if (!n)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "no folder is given");
	rc = ck_opts_take(limits, sizeof(*limits), given, "limits", err);
	if (rc)
		return rc;
	ck_limits_fill(limits, limits);
	while (n > 1 && dir[n - 1] == '/')
		n--;
	*path_out = ck_strndup(dir, n);
	return *path_out ? 0 : ck_fail_nomem(err, "a path", n);
}

int ckpt_latest_get(const char *dir, const struct ckpt_limits *limits, struct ckpt_latest *out,
		    struct ckpt_err *err)
{
	struct ckpt_limits l;
	char *path = NULL;
	int rc = out ? take_dir(dir, limits, &path, &l, err) :
		 ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "the result pointer is NULL");

	if (!rc)
		rc = ck_latest_get(&ck_all_formats, path, &l, out, err);
	ck_free(path);
	return rc;
}

void ckpt_latest_free(struct ckpt_latest *latest)
{
	if (!latest)
		return;
	ck_arena_free(latest->memory);
	memset(latest, 0, sizeof(*latest));
}

int ckpt_steps_list(const char *dir, const struct ckpt_run_opts *run,
		    const struct ckpt_limits *limits, struct ckpt_steps *out,
		    struct ckpt_err *err)
{
	struct ckpt_limits l;
	struct ckpt_run_opts given, full;
	char *path = NULL;
	int rc = out ? take_dir(dir, limits, &path, &l, err) :
		 ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "the result pointer is NULL");

	if (!rc)
		rc = ck_opts_take(&given, sizeof(given), run, "run options", err);
	if (!rc) {
		ck_run_opts_fill(&given, &full);
		rc = ck_steps_report(&ck_all_formats, path, &full, &l, out, err);
	}
	ck_free(path);
	return rc;
}

void ckpt_steps_free(struct ckpt_steps *steps)
{
	if (!steps)
		return;
	ck_arena_free(steps->memory);
	memset(steps, 0, sizeof(*steps));
}

int ckpt_prune(const char *dir, const struct ckpt_prune_opts *opts, struct ckpt_pruned *out,
	       struct ckpt_err *err)
{
	struct ckpt_prune_opts o;
	struct ckpt_run_opts run;
	struct ckpt_limits limits;
	size_t n = dir ? strlen(dir) : 0;
	char *path;
	int rc;

	if (!n || !out)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no folder is given, or the result pointer is NULL");
	rc = ck_opts_take(&o, sizeof(o), opts, "options of pruning", err);
	if (!rc)
		rc = ck_opts_take(&run, sizeof(run), o.run, "run options", err);
	if (!rc)
		rc = ck_opts_take(&limits, sizeof(limits), o.limits, "limits", err);
	if (!rc && ((o.flags & ~PRUNE_FLAGS) ||
		    (unsigned)run.sync > CKPT_SYNC_NONE))
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			     "unknown flags 0x%x or sync %d: a wrong value, or the program was "
			     "built for a newer library", o.flags, (int)run.sync);
	if (rc)
		return rc;
	ck_limits_fill(&limits, &limits);
	o.run = &run;
	o.limits = &limits;
	while (n > 1 && dir[n - 1] == '/')
		n--;
	path = ck_strndup(dir, n);
	rc = path ? ck_prune(&ck_all_formats, path, &o, out, err) : ck_fail_nomem(err, "a path", n);
	ck_free(path);
	return rc;
}

void ckpt_pruned_free(struct ckpt_pruned *pruned)
{
	if (!pruned)
		return;
	ck_arena_free(pruned->memory);
	memset(pruned, 0, sizeof(*pruned));
}
