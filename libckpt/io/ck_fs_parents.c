/* ck_fs_parents.c -- missing folders above a result: made for it, removed if it fails. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/io/ck_fs.h"

char *ck_fs_nearest(const char *path)
{
	char *at = ck_strdup(path), *above;
	struct stat st;

	while (at && ck_sys.stat(at, &st) && (errno == ENOENT || errno == ENOTDIR) &&
	       strcmp(at, "/") && strcmp(at, ".")) {
		above = ck_fs_parent(at);
		ck_free(at);
		at = above;
	}
	return at;
}

int ck_fs_check_above(const char *path, struct ckpt_err *err)
{
	char *near = ck_fs_nearest(path);
	struct stat st;
	int rc = near ? 0 : ck_fail_nomem(err, "a file name", 0);

	if (!rc && !ck_sys.stat(near, &st) && !S_ISDIR(st.st_mode))
		rc = ck_fail(err, CKPT_E_EXISTS, near, CKPT_NO_OFFSET,
			     "this is a file, but the result needs a folder here");
	ck_free(near);
	return rc;
}

int ck_fs_fail_make(struct ckpt_err *err, int errnum, const char *path)
{
	char *dir = ck_fs_parent(path);
	const char *where = dir ? dir : path;
	struct stat st;
	int rc;

	if (errnum == ENOENT && ck_sys.stat(where, &st) && errno == ENOENT)
		rc = ck_fail_sys(err, errnum, "mkdir", path);
	else if (errnum == EACCES || errnum == EPERM)
		rc = ck_fail(err, CKPT_E_IO, path, CKPT_NO_OFFSET,
			     "no permission to create it in %s", where);
	else if (errnum == EROFS)
		rc = ck_fail(err, CKPT_E_IO, where, CKPT_NO_OFFSET,
			     "this folder is on a read-only file system");
	else if (errnum == ENOENT || errnum == EINVAL || errnum == EOPNOTSUPP)
		rc = ck_fail(err, CKPT_E_IO, where, CKPT_NO_OFFSET,
			     "files cannot be created in this file system");
	else
		rc = ck_fail_sys(err, errnum, "mkdir", path);
	ck_free(dir);
	return rc;
}

/* One folder; another process may have made it meanwhile. */
static int make_one(const char *path, bool sync, struct ckpt_err *err)
{
	char *above;
	int rc = 0;

	if (ck_sys.mkdir(path, 0777))
		return errno == EEXIST ? 0 : ck_fs_fail_make(err, errno, path);
	above = ck_fs_parent(path);
	if (!above)
		return ck_fail_nomem(err, "a file name", strlen(path));
	if (sync)
		rc = ck_fs_sync_dir(above, CK_SYNCED_PARENTS, err);
	ck_free(above);
	return rc;
}

int ck_fs_make_folders(const char *path, bool sync, char **top_out, struct ckpt_err *err)
{
	char *near = ck_fs_nearest(path), *made = ck_strdup(path), *top = NULL;
	size_t have = near ? strlen(near) : 0;
	const size_t n = strlen(path);
	int rc = near && made ? 0 : ck_fail_nomem(err, "a file name", n);

	if (!rc && !strcmp(near, path))
		goto out;
	if (!rc && !strcmp(near, ".") && path[0] != '.')
		have = 0;
	/* each beginning of the path that ends before a '/' */
	for (size_t i = have; !rc && i <= n; i++) {
		if ((path[i] && path[i] != '/') || !i || path[i - 1] == '/' || i == have)
			continue;
		made[i] = 0;
		rc = make_one(made, sync, err);
		if (!rc && !top && !(top = ck_strdup(made)))
			rc = ck_fail_nomem(err, "a file name", n);
		made[i] = path[i];
	}
	if (rc && top)
		ck_fs_remove_made(path, top);
	if (!rc) {
		*top_out = top;
		top = NULL;
	}
out:
	ck_free(near);
	ck_free(made);
	ck_free(top);
	return rc;
}

void ck_fs_remove_made(const char *path, const char *top)
{
	char *at = top ? ck_strdup(path) : NULL, *above;
	bool last = false;

	while (at && !last && (!ck_sys.rmdir(at) || errno == ENOENT)) {
		last = !strcmp(at, top);
		above = ck_fs_parent(at);
		ck_free(at);
		at = above;
	}
	ck_free(at);
}
