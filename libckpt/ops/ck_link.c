/* ck_link.c -- see ck_link.h. */
#include "libckpt/ops/ck_link.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"

#define WINDOW_BYTES ((size_t)1 << 20)
#define HALF ".zckpt-link"
#define DEEPEST 32

struct linking {
	const struct ck_link_opts *opts;
	struct ck_linked *linked;
	const char *other;	/* the folder that goes with the one that is walked */
	uint8_t *buf;		/* two windows */
	uint32_t depth;
};

static bool ends_with(const char *name, const char *end)
{
	const size_t n = strlen(name), k = strlen(end);

	return n >= k && !strcmp(name + n - k, end);
}

/* ---- are they the same ---- */

/* Of owner and mode a link has one. */
static bool may_be_one(const struct linking *l, const struct stat *a, const struct stat *b)
{
	if (!S_ISREG(a->st_mode) || !S_ISREG(b->st_mode) || a->st_dev != b->st_dev ||
	    a->st_ino == b->st_ino || a->st_size != b->st_size || !a->st_size)
		return false;
	return l->opts->reflink || (a->st_uid == b->st_uid && a->st_gid == b->st_gid &&
				    a->st_mode == b->st_mode);
}

static bool is_unchanged(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* '*n_out' bytes, less at the end of the file only. */
static int read_window(int fd, const char *path, uint64_t off, uint8_t *p, size_t *n_out,
		       struct ckpt_err *err)
{
	size_t n = 0;

	while (n < WINDOW_BYTES) {
		const ssize_t k = ck_sys.pread(fd, p + n, WINDOW_BYTES - n, (off_t)(off + n));

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return ck_fail_sys(err, errno, "read", path);
		if (!k)
			break;
		n += (size_t)k;
	}
	*n_out = n;
	return 0;
}

static bool is_canceled(const struct linking *l)
{
	return l->opts->cancel && *l->opts->cancel;
}

static int compare(const struct linking *l, int a, int b, const char *path, uint64_t bytes,
		   bool *same_out, struct ckpt_err *err)
{
	int rc = 0;

	*same_out = true;
	for (uint64_t at = 0; !rc && *same_out && at < bytes; at += WINDOW_BYTES) {
		size_t n = 0, m = 0;

		if (is_canceled(l))
			return ck_fail(err, CKPT_E_CANCELED, path, CKPT_NO_OFFSET, "stopped");
		rc = read_window(a, path, at, l->buf, &n, err);
		if (!rc)
			rc = read_window(b, path, at, l->buf + WINDOW_BYTES, &m, err);
		*same_out = !rc && n == m && n == ck_min_u64(WINDOW_BYTES, bytes - at) &&
			    !memcmp(l->buf, l->buf + WINDOW_BYTES, n);
	}
	return rc;
}

/* ---- a file ---- */

static int open_read(const char *path, int *fd_out, struct ckpt_err *err)
{
	*fd_out = ck_open(path, O_RDONLY | O_NOFOLLOW, 0);
	return *fd_out < 0 ? ck_fail_sys(err, errno, "open", path) : 0;
}

/* '*made_out' is false where there can be no more links. */
static int make_hard(const char *from, const char *half, bool *made_out, struct ckpt_err *err)
{
	if (!ck_sys.link(from, half)) {
		*made_out = true;
		return 0;
	}
	if (errno == EMLINK || errno == EPERM)
		return 0;
	if (errno == EOPNOTSUPP || errno == ENOSYS)
		return ck_fail(err, CKPT_E_UNSUPPORTED, from, CKPT_NO_OFFSET,
			       "this file system has no hard links");
	return ck_fail_sys(err, errno, "link", from);
}

static int make_clone(const char *from, const char *half, mode_t mode, struct ckpt_err *err)
{
	int in, out, rc = open_read(from, &in, err);

	if (rc)
		return rc;
	out = ck_open(half, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode & 0777);
	if (out < 0)
		rc = ck_fail_sys(err, errno, "create", half);
	else if (ck_sys.clone(out, in))
		rc = errno == EOPNOTSUPP || errno == ENOTTY || errno == EINVAL || errno == EXDEV ?
		     ck_fail(err, CKPT_E_UNSUPPORTED, from, CKPT_NO_OFFSET,
			     "this file system cannot share blocks between files; hard links "
			     "can be had on most") :
		     ck_fail_sys(err, errno, "share blocks of", from);
	if (!rc && ck_fdatasync(out, CK_SYNCED_HALF))
		rc = ck_fail_sys(err, errno, "sync", half);
	if (out >= 0 && ck_close(out) && !rc)
		rc = ck_fail_sys(err, errno, "close", half);
	ck_close(in);
	return rc;
}

/* 'now' is what 'path' was when it was compared. */
static int replace(struct linking *l, const char *path, const char *from, const struct stat *now,
		   struct ckpt_err *err)
{
	const char *base = ck_fs_base(path);
	char *half = ck_asprintf("%.*s.%s" HALF, (int)(base - path), path, base);
	bool made = l->opts->reflink;
	struct stat st;
	int rc = half ? 0 : ck_fail_nomem(err, "a path", strlen(path));

	if (!rc && ck_sys.unlink(half) && errno != ENOENT)	/* of a run that was killed */
		rc = ck_fail_sys(err, errno, "remove", half);
	if (!rc)
		rc = made ? make_clone(from, half, now->st_mode, err) :
		     make_hard(from, half, &made, err);
	if (!rc && made && (ck_sys.lstat(path, &st) || !is_unchanged(&st, now)))
		rc = ck_fail(err, CKPT_E_MISMATCH, path, CKPT_NO_OFFSET,
			     "the file changed while it was compared (is the step being "
			     "written?)");
	if (!rc && made && ck_sys.rename(half, path, 0))
		rc = ck_fail_sys(err, errno, "rename", path);
	if (!rc && made) {
		l->linked->files++;
		l->linked->bytes += (uint64_t)now->st_size;
	} else if (half) {
		ck_sys.unlink(half);
	}
	ck_free(half);
	return rc;
}

static int link_file(struct linking *l, const char *path, const char *from, const struct stat *a,
		     struct ckpt_err *err)
{
	int one = -1, two = -1;
	bool same = false;
	int rc = open_read(path, &one, err);

	if (!rc)
		rc = open_read(from, &two, err);
	if (!rc)
		rc = compare(l, one, two, path, (uint64_t)a->st_size, &same, err);
	if (two >= 0)
		ck_close(two);
	if (one >= 0)
		ck_close(one);
	if (rc || !same)
		return rc;
	if (!l->opts->dry_run)
		return replace(l, path, from, a, err);
	l->linked->files++;
	l->linked->bytes += (uint64_t)a->st_size;
	return 0;
}

/* ---- folders ---- */

static int see(void *arg, const char *dir, const char *name, struct ckpt_err *err);

static int see_path(struct linking *l, const char *path, const char *from, const char *name,
		    struct ckpt_err *err)
{
	struct linking below = *l;
	struct stat a, b;

	if (ck_sys.lstat(path, &a))
		return errno == ENOENT ? 0 : ck_fail_sys(err, errno, "stat", path);
	if (ends_with(name, HALF) && name[0] == '.')	/* of a run that was killed */
		return l->opts->dry_run || !ck_sys.unlink(path) ? 0 :
		       ck_fail_sys(err, errno, "remove", path);
	if (ck_sys.lstat(from, &b))
		return errno == ENOENT ? 0 : ck_fail_sys(err, errno, "stat", from);
	if (S_ISDIR(a.st_mode) && S_ISDIR(b.st_mode) && l->depth < DEEPEST) {
		below.other = from;
		below.depth++;
		return ck_fs_each(path, see, &below, err);
	}
	if (!may_be_one(l, &a, &b) ||
	    ((uint64_t)a.st_size < l->opts->least && strncmp(name, "frozen-", 7)))
		return 0;
	return link_file(l, path, from, &a, err);
}

static int see(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	struct linking *l = arg;
	char *path = ck_fs_join(dir, name), *from = ck_fs_join(l->other, name);
	int rc = path && from ? see_path(l, path, from, name, err) :
		 ck_fail_nomem(err, "a path", strlen(name));

	ck_free(path);
	ck_free(from);
	return rc;
}

int ck_link_same(const char *dir, const char *other, const struct ck_link_opts *opts,
		 struct ck_linked *linked, struct ckpt_err *err)
{
	struct linking l = { .opts = opts, .linked = linked, .other = other };
	int rc;

	l.buf = ck_alloc(2 * WINDOW_BYTES);
	if (!l.buf)
		return ck_fail_nomem(err, "a buffer", 2 * WINDOW_BYTES);
	rc = ck_fs_each(dir, see, &l, err);
	ck_free(l.buf);
	return rc;
}
