/* ckpt_load.c -- ranges into memory: arguments made complete, then called down. */
#include "libckpt/base/ck_err.h"
#include "libckpt/read/op_read.h"

int ckpt_load(const struct ckpt *ck, const struct ckpt_load_range *range, size_t n,
	      const struct ckpt_load_opts *opts, struct ckpt_loaded *out, struct ckpt_err *err)
{
	const unsigned known = CKPT_LOAD_CHECK | CKPT_LOAD_DESPITE_FINDINGS;
	struct ckpt_load_opts o;
	struct ckpt_run_opts run;
	int rc;

	if (!ck || (!range && n))
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no checkpoint or no ranges are given");
	rc = ck_opts_take(&o, sizeof(o), opts, "options of loading", err);
	if (!rc)
		rc = ck_opts_take(&run, sizeof(run), o.run, "run options", err);
	if (!rc && ((o.flags & ~known) || (unsigned)run.sync > CKPT_SYNC_NONE))
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			     "unknown flags 0x%x or sync %d: a wrong value, or the program was "
			     "built for a newer library", o.flags & ~known, (int)run.sync);
	if (!rc && o.checks && !ck_load_checks_of(o.checks, ck))
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			     "the checks were made for another checkpoint than the one to load");
	if (rc)
		return rc;
	o.run = &run;
	return ck_load(ck, range, n, &o, out, err);
}

int ckpt_load_checks_new(const struct ckpt *ck, struct ckpt_load_checks **out,
			 struct ckpt_err *err)
{
	if (!ck || !out)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no checkpoint is given, or the pointer to its checks is NULL");
	return ck_load_checks_new(ck, out, err);
}

int ckpt_load_checks_end(struct ckpt_load_checks *checks, const struct ckpt_run_opts *opts,
			 struct ckpt_load_checked *out, struct ckpt_err *err)
{
	struct ckpt_run_opts run;
	int rc;

	if (!checks)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "no checks are given");
	rc = ck_opts_take(&run, sizeof(run), opts, "run options", err);
	return rc ? rc : ck_load_checks_end(checks, &run, out, err);
}

void ckpt_load_checks_free(struct ckpt_load_checks *checks)
{
	ck_load_checks_free(checks);
}
