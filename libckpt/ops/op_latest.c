/* op_latest.c -- the file that names the step to resume from, replaced in one rename. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/ops/ck_ckpt.h"

/* Loaders take white space from both ends, and join the name to the folder. */
static int check_tag(const char *tag, struct ckpt_err *err)
{
	const size_t n = strlen(tag);
	const char *what = !n ? "is empty" :
			   strchr(tag, '/') || !strcmp(tag, ".") || !strcmp(tag, "..") ?
			   "is no name of a folder in it" :
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
			     "there is no folder of that name");
	ck_free(path);
	return rc;
}

/* A new file; what a killed run left under the name goes. */
static int create(const char *path, int *fd_out, struct ckpt_err *err)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
	int fd = ck_sys.open(path, flags, 0666);

	if (fd < 0 && errno == EEXIST && !ck_sys.unlink(path))
		fd = ck_sys.open(path, flags, 0666);
	if (fd < 0)
		return ck_fail_sys(err, errno, "create", path);
	*fd_out = fd;
	return 0;
}

static int fill(int fd, const char *path, const char *text, enum ckpt_sync sync,
		struct ckpt_err *err)
{
	size_t left = strlen(text);

	while (left) {
		const ssize_t k = ck_sys.write(fd, text, left);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return ck_fail_sys(err, k ? errno : ENOSPC, "write", path);
		text += k;
		left -= (size_t)k;
	}
	if (sync != CKPT_SYNC_NONE && ck_sys.fsync(fd, CK_SYNCED_POINTER))
		return ck_fail_sys(err, errno, "sync", path);
	return 0;
}

static int replace(const char *dir, const char *path, const char *fresh, const char *tag,
		   enum ckpt_sync sync, struct ckpt_err *err)
{
	int fd = -1, rc = create(fresh, &fd, err);

	if (rc)
		return rc;
	rc = fill(fd, fresh, tag, sync, err);
	if (ck_sys.close(fd) && !rc)
		rc = ck_fail_sys(err, errno, "close", fresh);
	if (!rc && ck_sys.rename(fresh, path, 0))
		rc = ck_fail_sys(err, errno, "rename", path);
	if (rc) {
		ck_sys.unlink(fresh);
		return rc;
	}
	return sync == CKPT_SYNC_NONE ? 0 : ck_fs_sync_dir(dir, CK_SYNCED_POINTER_NAME, err);
}

int ck_latest_set(const char *dir, const char *tag, bool universal, enum ckpt_sync sync,
		  struct ckpt_err *err)
{
	char *path = NULL, *fresh = NULL;
	int rc = check_tag(tag, err);

	if (!rc)
		rc = check_step(dir, tag, err);
	if (rc)
		return rc;
	path = ck_fs_join(dir, universal ? "latest_universal" : "latest");
	fresh = path ? ck_asprintf("%s.zckpt-new", path) : NULL;
	if (!fresh)
		rc = ck_fail_nomem(err, "a path", strlen(dir));
	if (!rc)
		rc = replace(dir, path, fresh, tag, sync, err);
	ck_free(fresh);
	ck_free(path);
	return rc;
}
