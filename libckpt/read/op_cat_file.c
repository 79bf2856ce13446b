/* op_cat_file.c -- `cat` into a file. */
#include <errno.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_small_file.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/read/op_read.h"
#include "libckpt/run/ck_run.h"

static int check_dst(const char *dst, bool force, struct ckpt_err *err)
{
	struct stat st;

	if (ck_sys.lstat(dst, &st))
		return errno == ENOENT || errno == ENOTDIR ? 0 :
		       ck_fail_sys(err, errno, "stat", dst);
	if (!S_ISREG(st.st_mode))
		return ck_fail(err, CKPT_E_EXISTS, dst, CKPT_NO_OFFSET,
			       "the path exists and is not a file");
	if (!force)
		return ck_fail(err, CKPT_E_EXISTS, dst, CKPT_NO_OFFSET,
			       "the file exists; --force replaces it");
	return 0;
}

static int write_bytes(void *arg, const void *bytes, size_t n, struct ckpt_err *err)
{
	return ck_small_file_write(arg, bytes, n, err);
}

int ck_cat_file(struct ckpt *ck, uint64_t tensor, const struct ckpt_cat_opts *opts,
		const char *dst, bool force, struct ckpt_cat_info *info_out, struct ckpt_err *err)
{
	struct ck_small_file half = { .fd = -1 };
	struct ckpt_run_opts run;
	char *dir = ck_fs_parent(dst), *top = NULL;
	int rc = check_dst(dst, force, err);

	ck_run_opts_fill(opts->run, &run);
	if (!rc)
		rc = dir ? ck_fs_make_folders(dir, run.sync != CKPT_SYNC_NONE, &top, err) :
		     ck_fail_nomem(err, "a file name", strlen(dst));
	if (!rc)
		rc = ck_small_file_begin(&half, dst, ".zckpt-partial", err);
	if (!rc)
		rc = ck_cat(ck, tensor, opts, write_bytes, &half, info_out, err);
	if (!rc)
		rc = ck_small_file_place(&half, force, run.sync, err);
	ck_small_file_drop(&half);
	if (rc)
		ck_fs_remove_made(dir, top);
	ck_free(dir);
	ck_free(top);
	return rc;
}
