/* ckpt_verify.c -- `verify`: arguments checked, then called down. */
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/verify/op_verify.h"

int ckpt_verify(struct ckpt *ck, const struct ckpt_verify_opts *opts, struct ckpt_verified *out,
		struct ckpt_err *err)
{
	const unsigned known = CKPT_VERIFY_FULL | CKPT_VERIFY_WRITE_MANIFEST | CKPT_VERIFY_FORCE;
	struct ckpt_verify_opts o;
	struct ckpt_run_opts run;
	int rc;

	if (!ck || !out)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no checkpoint is given, or the result pointer is NULL");
	rc = ck_opts_take(&o, sizeof(o), opts, "options of verifying", err);
	if (!rc)
		rc = ck_opts_take(&run, sizeof(run), o.run, "run options", err);
	if (!rc && ((o.flags & ~known) || (unsigned)run.sync > CKPT_SYNC_NONE))
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			     "unknown flags 0x%x or sync %d: a wrong value, or the program was "
			     "built for a newer library", o.flags & ~known, (int)run.sync);
	if (rc)
		return rc;
	o.run = &run;
	return ck_verify(ck, &o, out, err);
}

int ckpt_verify_open_finding(const struct ckpt_err *err, struct ckpt_finding *out)
{
	const char *name = ck_finding_name(CK_FINDING_FILE_DAMAGED);
	struct ckpt_finding f;
	size_t n;

	if (!err || !out)
		return 0;
	n = strcspn(err->msg, ":");
	if (!ck_finding_by_name(err->msg, n, &f)) {
		if (err->code != CKPT_E_TRUNCATED && err->code != CKPT_E_CORRUPT)
			return 0;
		ck_finding_by_name(name, strlen(name), &f);
		f.text = err->msg;
	} else {
		f.text = err->msg + n + 1 + strspn(err->msg + n + 1, " ");
	}
	f.where = err->where;
	*out = f;
	return 1;
}

int ckpt_finding_known(const char *id)
{
	return id && ck_finding_is_name(id);
}
