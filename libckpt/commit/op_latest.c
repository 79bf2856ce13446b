/* op_latest.c -- the file that names the step to resume from, replaced in one rename. */
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_small_file.h"
#include "libckpt/commit/op_latest.h"
#include "libckpt/io/ck_fs.h"

/* Loaders take white space from both ends, and join the name to the folder. */
static int check_tag(const char *tag, struct ckpt_err *err)
{
	const size_t n = strlen(tag);
	const char *what = !n ? "is empty" :
			   strchr(tag, '/') || !strcmp(tag, ".") || !strcmp(tag, "..") ?
			   "is not the name of a folder in it" :
			   strpbrk(tag, "\r\n") ? "has a line break" :
			   strchr(" \t", tag[0]) || strchr(" \t", tag[n - 1]) ?
			   "has white space at an end" : NULL;

	return what ? ck_fail(err, CKPT_E_USAGE, tag, CKPT_NO_OFFSET,
			      "the name of the step %s: a loader would not find it", what) : 0;
}

static int check_step(const char *dir, const char *tag, struct ckpt_err *err)
{
	char *path = ck_fs_join(dir, tag);
	enum ck_fs_kind kind;
	int rc;

	if (!path)
		return ck_fail_nomem(err, "a path", strlen(tag));
	rc = ck_fs_kind(path, &kind, err);
	if (!rc && kind != CK_FS_DIR)
		rc = ck_fail(err, CKPT_E_NOTFOUND, path, CKPT_NO_OFFSET,
			     "no folder of that name exists");
	ck_free(path);
	return rc;
}

static int replace(const char *path, const char *tag, enum ckpt_sync sync, struct ckpt_err *err)
{
	struct ck_small_file half = { .fd = -1 };
	int rc = ck_small_file_begin(&half, path, ".zckpt-new", err);

	if (!rc)
		rc = ck_small_file_write(&half, tag, strlen(tag), err);
	if (!rc)
		rc = ck_small_file_place(&half, true, sync, err);
	ck_small_file_drop(&half);
	return rc;
}

int ck_latest_set(const char *dir, const char *tag, bool universal, enum ckpt_sync sync,
		  struct ckpt_err *err)
{
	char *path;
	int rc = check_tag(tag, err);

	if (!rc)
		rc = check_step(dir, tag, err);
	if (rc)
		return rc;
	path = ck_fs_join(dir, universal ? "latest_universal" : "latest");
	rc = path ? replace(path, tag, sync, err) : ck_fail_nomem(err, "a path", strlen(dir));
	ck_free(path);
	return rc;
}
