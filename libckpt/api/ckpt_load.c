/* ckpt_load.c -- ranges into memory: arguments made complete, then called down. */
#include "libckpt/base/ck_err.h"
#include "libckpt/ops/ck_ckpt.h"

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
			     "flags 0x%x or sync number %d are not known to this version",
			     o.flags & ~known, (int)run.sync);
	if (rc)
		return rc;
	o.run = &run;
	return ck_load(ck, range, n, &o, out, err);
}
