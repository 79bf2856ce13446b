/* ck_fs.c -- see ck_fs.h. */
#include "libckpt/io/ck_fs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

int ck_fs_kind(const char *path, enum ck_fs_kind *kind_out, struct ckpt_err *err)
{
	struct stat st;

	if (ck_sys.stat(path, &st)) {
		if (errno != ENOENT && errno != ENOTDIR)
			return ck_fail_sys(err, errno, "stat", path);
		*kind_out = ck_sys.lstat(path, &st) ? CK_FS_NOTHING : CK_FS_OTHER;
		return 0;
	}
	*kind_out = S_ISREG(st.st_mode) ? CK_FS_FILE : S_ISDIR(st.st_mode) ? CK_FS_DIR :
		    CK_FS_OTHER;
	return 0;
}

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

int ck_fs_each(const char *path, ck_fs_each_fn fn, void *arg, struct ckpt_err *err)
{
	DIR *dir = ck_opendir(path);
	int rc = 0;

	if (!dir)
		return ck_fail_sys(err, errno, "open", path);
	while (!rc) {
		const struct dirent *e;

		errno = 0;
		e = ck_sys.readdir(dir);
		if (!e && errno)
			rc = ck_fail_sys(err, errno, "list", path);
		if (!e)
			break;
		if (!is_dots(e->d_name))
			rc = fn(arg, path, e->d_name, err);
	}
	ck_sys.closedir(dir);
	return rc;
}

static int is_there(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	(void)dir;
	(void)name;
	(void)err;
	*(bool *)arg = false;
	return 0;
}

int ck_fs_dir_is_empty(const char *path, bool *out, struct ckpt_err *err)
{
	bool empty = true;
	int rc = ck_fs_each(path, is_there, &empty, err);

	if (!rc)
		*out = empty;
	return rc;
}

bool ck_fs_is_aside(const char *name)
{
	return strstr(name, ".zckpt-") != NULL;
}

char *ck_fs_parent(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		return ck_strdup(".");
	if (slash == path)
		return ck_strdup("/");
	return ck_strndup(path, (size_t)(slash - path));
}

const char *ck_fs_base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

char *ck_fs_join(const char *dir, const char *name)
{
	return ck_asprintf("%s/%s", dir, name);
}

/* What is done with an entry; 'st' is NULL where lstat() failed, and errno says why. */
typedef int (*visit_fn)(void *arg, const char *path, const struct stat *st, struct ckpt_err *err);

struct visit {
	visit_fn fn;
	void *arg;
};

static int visit_entry(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	const struct visit *visit = arg;
	char *path = ck_fs_join(dir, name);
	struct stat st;
	int rc;

	if (!path)
		return ck_fail_nomem(err, "a file name", strlen(name));
	rc = visit->fn(visit->arg, path, ck_sys.lstat(path, &st) ? NULL : &st, err);
	ck_free(path);
	return rc;
}

static int visit_each(const char *path, visit_fn fn, void *arg, struct ckpt_err *err)
{
	struct visit visit = { .fn = fn, .arg = arg };

	return ck_fs_each(path, visit_entry, &visit, err);
}

static int remove_entry(void *arg, const char *path, const struct stat *st, struct ckpt_err *err)
{
	(void)arg;
	if (!st)
		return errno == ENOENT ? 0 : ck_fail_sys(err, errno, "stat", path);
	if (S_ISDIR(st->st_mode))
		return ck_fs_remove_tree(path, err);
	if (ck_sys.unlink(path) && errno != ENOENT)
		return ck_fail_sys(err, errno, "remove", path);
	return 0;
}

int ck_fs_remove_tree(const char *path, struct ckpt_err *err)
{
	struct stat st;
	int rc;

	if (ck_sys.lstat(path, &st))
		return errno == ENOENT ? 0 : ck_fail_sys(err, errno, "stat", path);
	if (!S_ISDIR(st.st_mode))
		return ck_fail(err, CKPT_E_IO, path, CKPT_NO_OFFSET,
			       "not removed: this is not a folder");
	rc = visit_each(path, remove_entry, NULL, err);
	if (!rc && ck_sys.rmdir(path) && errno != ENOENT)
		rc = ck_fail_sys(err, errno, "remove", path);
	return rc;
}

static int add_used(void *arg, const char *path, const struct stat *st, struct ckpt_err *err)
{
	if (st && S_ISDIR(st->st_mode))
		return visit_each(path, add_used, arg, err);
	if (st && S_ISREG(st->st_mode) && st->st_nlink < 2)	/* a link takes none */
		*(uint64_t *)arg += (uint64_t)st->st_blocks * 512;
	return 0;
}

/* Bytes of disk that the files below a folder take; 0 if it is not there. */
static int used_below(const char *path, uint64_t *bytes_out, struct ckpt_err *err)
{
	struct stat st;
	uint64_t bytes = 0;
	int rc = 0;

	if (!ck_sys.lstat(path, &st) && S_ISDIR(st.st_mode))
		rc = visit_each(path, add_used, &bytes, err);
	if (!rc)
		*bytes_out = bytes;
	return rc;
}

int ck_fs_sync_dir(const char *path, enum ck_synced what, struct ckpt_err *err)
{
	const int fd = ck_open(path, O_RDONLY | O_DIRECTORY, 0);
	int rc = 0;

	if (fd < 0)
		return ck_fail_sys(err, errno, "open", path);
	/* Some file systems cannot sync a folder; they say EINVAL. */
	if (ck_fsync(fd, what) && errno != EINVAL)
		rc = ck_fail_sys(err, errno, "fsync", path);
	ck_close(fd);
	return rc;
}

/* statvfs of a folder, or of the one that it would be made in; 0 or -1 and errno. */
static int statvfs_nearest(const char *path, struct statvfs *out)
{
	char *near;
	int rc = ck_statvfs(path, out);

	if (!rc || (errno != ENOENT && errno != ENOTDIR))
		return rc;
	near = ck_fs_nearest(path);
	rc = near ? ck_statvfs(near, out) : -1;
	ck_free(near);
	return rc;
}

uint64_t ck_fs_free(const char *path)
{
	struct statvfs st;
	uint64_t left;

	return statvfs_nearest(path, &st) || !st.f_blocks ||
	       ck_mul_over(st.f_bavail, st.f_frsize, &left) ? 0 : left;
}

/* "1.6 GB" */
static const char *size_text(uint64_t bytes, char text[24])
{
	static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB", "EB" };
	double n = (double)bytes;
	size_t unit = 0;

	for (; n >= 999.95 && unit + 1 < CK_ARRAY_LEN(units); unit++)
		n /= 1000;
	snprintf(text, 24, unit ? "%.1f %s" : "%.0f %s", n, units[unit]);
	return text;
}

int ck_fs_need(const char *path, uint64_t bytes, const char *have, struct ckpt_err *err)
{
	char need[24], have_left[24];
	struct statvfs st;
	uint64_t left, used = 0;
	int rc = ck_fs_check_above(path, err);

	if (rc)
		return rc;
	if (statvfs_nearest(path, &st))
		return ck_fail_sys(err, errno, "statvfs", path);
	if (!st.f_blocks || ck_mul_over(st.f_bavail, st.f_frsize, &left))
		return 0;	/* it does not know, or has no bound */
	if (bytes <= left)
		return 0;
	/* In this order: what another part takes in between counts once more, not once less. */
	rc = used_below(have, &used, err);
	if (rc)
		return rc;
	bytes -= ck_min_u64(bytes, used);
	if (bytes > left)
		return ck_fail(err, CKPT_E_NOSPACE, path, CKPT_NO_OFFSET,
			       "not enough space on this disk: %s%s needed, %s free",
			       size_text(bytes, need), used ? " more" : "",
			       size_text(left, have_left));
	return 0;
}

static int sync_below(void *arg, const char *path, const struct stat *st, struct ckpt_err *err)
{
	const enum ck_synced *what = arg;

	return st && S_ISDIR(st->st_mode) ? ck_fs_sync_tree(path, *what, err) : 0;
}

int ck_fs_sync_tree(const char *path, enum ck_synced what, struct ckpt_err *err)
{
	int rc = visit_each(path, sync_below, &what, err);

	return rc ? rc : ck_fs_sync_dir(path, what, err);
}

/* RENAME_NOREPLACE where the file system has it. */
int ck_fs_move_new(const char *from, const char *to)
{
	struct stat st;

	if (!ck_sys.rename(from, to, CK_RENAME_NOREPLACE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	if (!ck_sys.lstat(to, &st)) {
		errno = EEXIST;
		return -1;
	}
	return ck_sys.rename(from, to, 0);
}
