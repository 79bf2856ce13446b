/* ckpt_pack.c -- `pack` and `unpack`: arguments checked, then called down. */
#include <string.h>

#include "formats/ck_formats.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/retain/op_pack.h"

int ckpt_has_packs(void)
{
	return ck_all_formats.archive != NULL;
}

static int check_flags(unsigned flags, unsigned known, const struct ckpt_run_opts *run,
		       struct ckpt_err *err)
{
	if (!(flags & ~known) && (unsigned)run->sync <= CKPT_SYNC_NONE)
		return 0;
	return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
		       "unknown flags 0x%x or sync %d: a wrong value, or the program was built "
		       "for a newer library", flags & ~known, (int)run->sync);
}

/* Without the slashes at its end; new memory. */
static char *cut(const char *dst)
{
	size_t n = strlen(dst);

	while (n > 1 && dst[n - 1] == '/')
		n--;
	return ck_strndup(dst, n);
}

int ckpt_pack(struct ckpt *ck, const char *dst, const struct ckpt_pack_opts *opts,
	      struct ckpt_packed *packed_out, struct ckpt_err *err)
{
	struct ckpt_pack_opts o;
	struct ckpt_run_opts run;
	int rc;

	if (!ck || !dst || !dst[0] || dst[strlen(dst) - 1] == '/')
		return ck_fail(err, CKPT_E_USAGE, dst, CKPT_NO_OFFSET,
			       "a checkpoint and the name of a file are needed");
	rc = ck_opts_take(&o, sizeof(o), opts, "options of packing", err);
	if (!rc)
		rc = ck_opts_take(&run, sizeof(run), o.run, "run options", err);
	if (!rc)
		rc = check_flags(o.flags, CKPT_WRITE_FORCE | CKPT_WRITE_RESTART |
				 CKPT_WRITE_DRY_RUN | CKPT_WRITE_STRICT, &run, err);
	if (rc)
		return rc;
	o.run = &run;
	return ck_pack_step(ck, dst, &o, packed_out, err);
}

int ckpt_unpack(const char *path, const char *dst, const struct ckpt_unpack_opts *opts,
		struct ckpt_packed *packed_out, struct ckpt_err *err)
{
	struct ckpt_unpack_opts o;
	struct ckpt_run_opts run;
	struct ckpt_limits limits;
	char *to;
	int rc;

	if (!path || !path[0] || !dst || !dst[0])
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "an archive and a destination are needed");
	rc = ck_opts_take(&o, sizeof(o), opts, "options of unpacking", err);
	if (!rc)
		rc = ck_opts_take(&run, sizeof(run), o.run, "run options", err);
	if (!rc)
		rc = ck_opts_take(&limits, sizeof(limits), o.limits, "limits", err);
	if (!rc)
		rc = check_flags(o.flags, CKPT_WRITE_FORCE | CKPT_WRITE_RESTART |
				 CKPT_WRITE_DRY_RUN, &run, err);
	if (rc)
		return rc;
	o.run = &run;
	o.limits = &limits;
	to = cut(dst);
	rc = to ? ck_unpack_archive(ck_all_formats.archive, path, to, &o, packed_out, err) :
	     ck_fail_nomem(err, "a path", strlen(dst));
	ck_free(to);
	return rc;
}
