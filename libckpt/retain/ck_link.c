/* ck_link.c -- see ck_link.h. */
#include "libckpt/retain/ck_link.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/io/ck_stamp.h"

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

/* What is at 'path', and what is open as 'fd', is what it was when it was compared. */
static int check_unchanged(const char *path, const struct ck_stamp *was, int fd,
			   struct ckpt_err *err)
{
	struct ck_stamp now;
	struct stat st;
	int rc;

	if (ck_sys.lstat(path, &st))
		return ck_fail_sys(err, errno, "stat", path);
	ck_stamp_of(&st, &now);
	rc = ck_stamp_compare(path, was, &now, err);
	if (!rc && ck_sys.fstat(fd, &st))
		return ck_fail_sys(err, errno, "fstat", path);
	ck_stamp_of(&st, &now);
	return rc ? rc : ck_stamp_compare(path, was, &now, err);
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

static void show_progress(const struct linking *l, uint64_t seen)
{
	const struct ckpt_progress now = { seen, ck_max_u64(seen, l->opts->total) };

	if (l->opts->progress)
		l->opts->progress(l->opts->progress_arg, &now);
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
		show_progress(l, l->linked->seen + at);
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

static int make_clone(const char *from, int in, const char *half, mode_t mode,
		      struct ckpt_err *err)
{
	const int out = ck_open(half, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode & 0777);
	int rc = 0;

	if (out < 0)
		return ck_fail_sys(err, errno, "create", half);
	if (ck_sys.clone(out, in))
		rc = errno == EOPNOTSUPP || errno == ENOTTY || errno == EINVAL || errno == EXDEV ?
		     ck_fail(err, CKPT_E_UNSUPPORTED, from, CKPT_NO_OFFSET,
			     "this file system cannot share blocks between files; --link "
			     "hard works on most") :
		     ck_fail_sys(err, errno, "share blocks of", from);
	if (!rc && ck_fdatasync(out, CK_SYNCED_HALF))
		rc = ck_fail_sys(err, errno, "sync", half);
	if (ck_close(out) && !rc)
		rc = ck_fail_sys(err, errno, "close", half);
	return rc;
}

/* The two that were compared: 'path' becomes one with 'from'. */
struct pair {
	const char *path, *from;
	int path_fd, from_fd;
	struct ck_stamp path_was, from_was;
	mode_t mode;
};

/*
 * A link is made by name, so another file may have come to 'from' since it was compared, and a
 * clone has what was written since then: whatever 'half' is, it takes the place of 'path' only if
 * it is what was compared.
 */
static int check_pair(const struct linking *l, const struct pair *p, const char *half,
		      struct ckpt_err *err)
{
	int rc = check_unchanged(l->opts->reflink ? p->from : half, &p->from_was, p->from_fd, err);

	return rc ? rc : check_unchanged(p->path, &p->path_was, p->path_fd, err);
}

static int replace(struct linking *l, const struct pair *p, struct ckpt_err *err)
{
	const char *base = ck_fs_base(p->path);
	char *half = ck_asprintf("%.*s.%s" HALF, (int)(base - p->path), p->path, base);
	bool made = l->opts->reflink;
	int rc = half ? 0 : ck_fail_nomem(err, "a path", strlen(p->path));

	if (!rc && ck_sys.unlink(half) && errno != ENOENT)	/* of a run that was killed */
		rc = ck_fail_sys(err, errno, "remove", half);
	if (!rc)
		rc = made ? make_clone(p->from, p->from_fd, half, p->mode, err) :
		     make_hard(p->from, half, &made, err);
	if (!rc && made)
		rc = check_pair(l, p, half, err);
	if (!rc && made && ck_sys.rename(half, p->path, 0))
		rc = ck_fail_sys(err, errno, "rename", p->path);
	if (!rc && made) {
		l->linked->files++;
		l->linked->bytes += p->path_was.bytes;
	} else if (half) {
		ck_sys.unlink(half);
	}
	ck_free(half);
	return rc;
}

static int look_at(struct ck_stamps *stamps, const char *path, int fd, struct ck_stamp *out,
		   struct ckpt_err *err)
{
	struct stat st;

	if (ck_sys.fstat(fd, &st))
		return ck_fail_sys(err, errno, "fstat", path);
	ck_stamp_of(&st, out);
	return ck_stamps_note(stamps, path, fd, out, err);
}

/* From now on a write to one of them shows. */
static int look_at_pair(struct pair *p, struct ckpt_err *err)
{
	struct ck_stamps *stamps = ck_stamps_new();
	int rc = stamps ? look_at(stamps, p->path, p->path_fd, &p->path_was, err) :
		 ck_fail_nomem(err, "a list of files", 2);

	if (!rc)
		rc = look_at(stamps, p->from, p->from_fd, &p->from_was, err);
	ck_stamps_free(stamps);
	return rc;
}

static int link_pair(struct linking *l, struct pair *p, struct ckpt_err *err)
{
	bool same = false;
	int rc = look_at_pair(p, err);

	if (!rc && p->path_was.bytes == p->from_was.bytes)
		rc = compare(l, p->path_fd, p->from_fd, p->path, p->path_was.bytes, &same, err);
	if (rc || !same)
		return rc;
	if (!l->opts->dry_run)
		return replace(l, p, err);
	l->linked->files++;
	l->linked->bytes += p->path_was.bytes;
	return 0;
}

static int link_file(struct linking *l, const char *path, const char *from, mode_t mode,
		     struct ckpt_err *err)
{
	struct pair p = { .path = path, .from = from, .path_fd = -1, .from_fd = -1, .mode = mode };
	int rc = open_read(path, &p.path_fd, err);

	if (!rc)
		rc = open_read(from, &p.from_fd, err);
	if (!rc)
		rc = link_pair(l, &p, err);
	if (p.from_fd >= 0)
		ck_close(p.from_fd);
	if (p.path_fd >= 0)
		ck_close(p.path_fd);
	return rc;
}

/* ---- folders ---- */

static int see(void *arg, const char *dir, const char *name, struct ckpt_err *err);

static int see_path(struct linking *l, const char *path, const char *from, const char *name,
		    struct ckpt_err *err)
{
	struct linking below = *l;
	struct stat a, b = { 0 };	/* of no kind: not there */
	int rc = 0;

	if (ck_sys.lstat(path, &a))
		return errno == ENOENT ? 0 : ck_fail_sys(err, errno, "stat", path);
	if (ck_ends_with(name, HALF) && name[0] == '.')	/* of a run that was killed */
		return l->opts->dry_run || !ck_sys.unlink(path) ? 0 :
		       ck_fail_sys(err, errno, "remove", path);
	if (ck_sys.lstat(from, &b) && errno != ENOENT)
		return ck_fail_sys(err, errno, "stat", from);
	if (S_ISDIR(a.st_mode) && S_ISDIR(b.st_mode) && l->depth < DEEPEST) {
		below.other = from;
		below.depth++;
		return ck_fs_each(path, see, &below, err);
	}
	if (may_be_one(l, &a, &b) &&
	    ((uint64_t)a.st_size >= l->opts->least || !strncmp(name, "frozen-", 7)))
		rc = link_file(l, path, from, a.st_mode, err);
	l->linked->seen += S_ISREG(a.st_mode) ? (uint64_t)a.st_size : 0;
	return rc;
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
