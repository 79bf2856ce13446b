/* ck_small_file.c -- see ck_small_file.h. */
#include "libckpt/commit/ck_small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"

int ck_small_file_begin(struct ck_small_file *h, const char *path, const char *suffix,
			struct ckpt_err *err)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL;
	char *half = ck_asprintf("%s%s", path, suffix);
	int rc = 0;

	*h = (struct ck_small_file){ .fd = -1 };
	h->path = ck_strdup(path);
	if (!half || !h->path) {
		ck_free(half);
		return ck_fail_nomem(err, "a file name", strlen(path));
	}
	h->fd = ck_open(half, flags, 0666);
	if (h->fd < 0 && errno == EEXIST && !ck_sys.unlink(half))
		h->fd = ck_open(half, flags, 0666);
	if (h->fd < 0)
		rc = ck_fail_sys(err, errno, "create", path);
	else
		h->half = half;
	if (rc)
		ck_free(half);
	return rc;
}

int ck_small_file_write(struct ck_small_file *h, const void *p, size_t n, struct ckpt_err *err)
{
	const char *at = p;

	while (n) {
		const ssize_t k = ck_sys.write(h->fd, at, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return ck_fail_sys(err, k ? errno : ENOSPC, "write", h->path);
		at += k;
		n -= (size_t)k;
	}
	return 0;
}

static int close_half(struct ck_small_file *h, enum ckpt_sync sync, struct ckpt_err *err)
{
	int rc = 0;

	if (sync != CKPT_SYNC_NONE &&
	    (sync == CKPT_SYNC_FULL ? ck_fsync : ck_fdatasync)(h->fd, CK_SYNCED_HALF) &&
	    errno != EINVAL)
		rc = ck_fail_sys(err, errno, "sync", h->path);
	if (ck_close(h->fd) && !rc)
		rc = ck_fail_sys(err, errno, "close", h->path);
	h->fd = -1;
	return rc;
}

static int sync_parent(const char *path, struct ckpt_err *err)
{
	char *dir = ck_fs_parent(path);
	const int rc = dir ? ck_fs_sync_dir(dir, CK_SYNCED_HALF_NAME, err) :
		       ck_fail_nomem(err, "a file name", strlen(path));

	ck_free(dir);
	return rc;
}

int ck_small_file_place(struct ck_small_file *h, bool force, enum ckpt_sync sync,
			struct ckpt_err *err)
{
	int rc = close_half(h, sync, err);

	if (rc)
		return rc;
	if (force ? ck_sys.rename(h->half, h->path, 0) : ck_fs_move_new(h->half, h->path))
		return errno == EEXIST ?
		       ck_fail(err, CKPT_E_EXISTS, h->path, CKPT_NO_OFFSET,
			       "another process created the destination during this run") :
		       ck_fail_sys(err, errno, "rename", h->path);
	ck_free(h->half);
	h->half = NULL;
	return sync == CKPT_SYNC_NONE ? 0 : sync_parent(h->path, err);
}

void ck_small_file_drop(struct ck_small_file *h)
{
	if (h->fd >= 0)
		ck_close(h->fd);
	h->fd = -1;
	if (h->half)
		ck_sys.unlink(h->half);
	ck_free(h->half);
	ck_free(h->path);
	h->half = h->path = NULL;
}
