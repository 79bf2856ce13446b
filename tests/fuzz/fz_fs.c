/* See fz.h: a small tree of files in memory under the library's table. */
#include "tests/fuzz/fz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "tests/lib/fs/t_dir.h"

#define MAX_NODES 4096
#define MAX_FDS 256
#define FIRST_FD (1 << 20)	/* no real descriptor is so high */

struct node {
	char *path;		/* NULL = removed; freed when it is closed, too */
	uint8_t *p;
	size_t n, cap;
	ino_t ino;
	unsigned opens;
	bool is_dir;
};

struct listing {
	char *path;
	size_t left;		/* nodes that were not looked at */
	struct dirent entry;
};

static struct node *node[MAX_NODES];
static size_t nnodes, nlistings;
static struct node *fds[MAX_FDS];
static off_t fd_at[MAX_FDS];
static ino_t last_ino;
static uint64_t used;

static int fail(int code)
{
	errno = code;
	return -1;
}

static bool below(const char *path, const char *dir)
{
	const size_t n = strlen(dir);

	return !strncmp(path, dir, n) && path[n] == '/';
}

static struct node *find_exact(const char *path)
{
	for (size_t i = 0; i < nnodes; i++)
		if (node[i]->path && !strcmp(node[i]->path, path))
			return node[i];
	return NULL;
}

/* Double slashes, dots and slashes at the end do not matter; ".." leads nowhere. */
static char *plain(const char *path)
{
	char *out = t_alloc(strlen(path) + 2), *to = out;

	while (*path) {
		const size_t n = strcspn(path, "/");

		if (n && !(n == 1 && *path == '.')) {
			*to++ = '/';
			memcpy(to, path, n);
			to += n;
		}
		path += n + (path[n] == '/');
	}
	*to = 0;
	return out;
}

/* The node, or NULL with errno. */
static struct node *find(const char *path)
{
	char *p = plain(path), *slash;
	struct node *f = find_exact(p);

	errno = ENOENT;
	while (!f && (slash = strrchr(p, '/'))) {
		const struct node *up;

		*slash = 0;
		up = find_exact(p);
		if (up && !up->is_dir)
			errno = ENOTDIR;
		if (up)
			break;
	}
	free(p);
	return f;
}

static void node_free(struct node *f)
{
	if (f->path || f->opens)
		return;
	for (size_t i = 0; i < nnodes; i++)
		if (node[i] == f)
			node[i] = node[--nnodes];
	used -= f->n;
	free(f->p);
	free(f);
}

static void drop(struct node *f)
{
	free(f->path);
	f->path = NULL;
	node_free(f);
}

/* NULL with errno. */
static struct node *make(const char *path, bool is_dir)
{
	char *p = plain(path), *slash = strrchr(p, '/');
	const struct node *up;
	struct node *f;

	errno = ENOENT;
	if (!slash || (find_exact(p) && (errno = EEXIST)))
		goto no;
	*slash = 0;
	up = find_exact(p);
	*slash = '/';
	if (*p && strcmp(p, FZ_ROOT) && (!up || !up->is_dir)) {
		errno = up ? ENOTDIR : ENOENT;
		goto no;
	}
	if (strlen(slash + 1) > 255 || strlen(p) > 4000 || nnodes == MAX_NODES) {
		errno = nnodes == MAX_NODES ? ENOSPC : ENAMETOOLONG;
		goto no;
	}
	f = t_alloc(sizeof(*f));
	*f = (struct node){ .path = p, .is_dir = is_dir, .ino = ++last_ino };
	node[nnodes++] = f;
	return f;
no:
	free(p);
	return NULL;
}

static int resize(struct node *f, uint64_t n)
{
	if (n > f->n && n - f->n > FZ_DISK - used)
		return fail(ENOSPC);
	if (n > f->cap) {
		f->cap = n + n / 2;
		f->p = t_grow(f->p, f->cap);
	}
	if (n > f->n)
		memset(f->p + f->n, 0, n - f->n);
	used += n;
	used -= f->n;
	f->n = n;
	return 0;
}

static struct node *by_fd(int fd)
{
	struct node *f = fd >= FIRST_FD && fd < FIRST_FD + MAX_FDS ? fds[fd - FIRST_FD] : NULL;

	if (!f)
		errno = EBADF;
	return f;
}

static int f_open(const char *path, int flags, mode_t mode)
{
	struct node *f = find(path);
	int i = 0;

	(void)mode;
	if (f && (flags & O_CREAT) && (flags & O_EXCL))
		return fail(EEXIST);
	if (!f && errno == ENOENT && (flags & O_CREAT))
		f = make(path, false);
	if (!f)
		return -1;
	if (f->is_dir && (flags & O_ACCMODE) != O_RDONLY)
		return fail(EISDIR);
	if (!f->is_dir && (flags & O_DIRECTORY))
		return fail(ENOTDIR);
	while (i < MAX_FDS && fds[i])
		i++;
	if (i == MAX_FDS)
		return fail(EMFILE);
	if (flags & O_TRUNC)
		resize(f, 0);
	fds[i] = f;
	fd_at[i] = flags & O_APPEND ? (off_t)f->n : 0;
	f->opens++;
	return FIRST_FD + i;
}

static int f_close(int fd)
{
	struct node *f = by_fd(fd);

	if (!f)
		fz_die("descriptor %d is closed, which is not open", fd);
	fds[fd - FIRST_FD] = NULL;
	f->opens--;
	node_free(f);
	return 0;
}

static ssize_t f_pread(int fd, void *p, size_t n, off_t off)
{
	const struct node *f = by_fd(fd);

	if (!f)
		return -1;
	if (off < 0)
		return fail(EINVAL);
	if ((uint64_t)off >= f->n)
		return 0;
	if (n > f->n - (size_t)off)
		n = f->n - (size_t)off;
	memcpy(p, f->p + off, n);
	return (ssize_t)n;
}

static ssize_t f_pwrite(int fd, const void *p, size_t n, off_t off)
{
	struct node *f = by_fd(fd);
	uint64_t end;

	if (!f)
		return -1;
	if (off < 0 || ck_add_over((uint64_t)off, n, &end))
		return fail(EINVAL);
	if (end > f->n && resize(f, end))
		return -1;
	if (n)
		memcpy(f->p + off, p, n);
	return (ssize_t)n;
}

static ssize_t f_write(int fd, const void *p, size_t n)
{
	ssize_t k;

	if (!by_fd(fd))
		return -1;
	k = f_pwrite(fd, p, n, fd_at[fd - FIRST_FD]);
	if (k > 0)
		fd_at[fd - FIRST_FD] += k;
	return k;
}

static int say(const struct node *f, struct stat *st)
{
	if (!f)
		return -1;
	memset(st, 0, sizeof(*st));
	st->st_mode = f->is_dir ? S_IFDIR | 0755 : S_IFREG | 0644;
	st->st_size = (off_t)f->n;
	st->st_blocks = (blkcnt_t)((f->n + 511) / 512);
	st->st_ino = f->ino;
	st->st_nlink = 1;
	return 0;
}

static int f_fstat(int fd, struct stat *st)
{
	return say(by_fd(fd), st);
}

static int f_stat(const char *path, struct stat *st)
{
	return say(find(path), st);
}

static int f_statvfs(const char *path, struct statvfs *st)
{
	if (!find(path))
		return -1;
	memset(st, 0, sizeof(*st));
	st->f_bsize = st->f_frsize = 1;
	st->f_blocks = FZ_DISK;
	st->f_bfree = st->f_bavail = FZ_DISK - used;
	return 0;
}

static int f_access(const char *path, int mode)
{
	(void)mode;
	return find(path) ? 0 : -1;
}

static int f_statfs(const char *path, struct statfs *st)
{
	memset(st, 0, sizeof(*st));
	return find(path) ? 0 : -1;
}

static char *f_realpath(const char *path, char *out)
{
	const struct node *f = find(path);

	return f ? memcpy(out, f->path, strlen(f->path) + 1) : NULL;
}

static int f_fadvise(int fd, off_t off, off_t len, int advice)
{
	return fd < 0 || off < 0 || len < 0 || advice < 0 ? EINVAL : 0;
}

static int f_fallocate(int fd, off_t off, off_t len)
{
	struct node *f = by_fd(fd);
	uint64_t end;

	if (!f)
		return -1;
	if (off < 0 || len <= 0 || ck_add_over((uint64_t)off, (uint64_t)len, &end))
		return fail(EINVAL);
	return end > f->n ? resize(f, end) : 0;
}

static int f_ftruncate(int fd, off_t len)
{
	struct node *f = by_fd(fd);

	if (!f)
		return -1;
	return len < 0 ? fail(EINVAL) : resize(f, (uint64_t)len);
}

static int f_sync(int fd, enum ck_synced what)
{
	(void)what;
	return by_fd(fd) ? 0 : -1;
}

static int f_flock(int fd, int op)
{
	(void)op;
	return by_fd(fd) ? 0 : -1;
}

static int f_mkdir(const char *path, mode_t mode)
{
	(void)mode;
	return make(path, true) ? 0 : -1;
}

static bool is_empty(const struct node *f)
{
	for (size_t i = 0; i < nnodes; i++)
		if (node[i]->path && below(node[i]->path, f->path))
			return false;
	return true;
}

static int f_rmdir(const char *path)
{
	struct node *f = find(path);

	if (!f)
		return -1;
	if (!f->is_dir)
		return fail(ENOTDIR);
	if (!is_empty(f))
		return fail(ENOTEMPTY);
	drop(f);
	return 0;
}

static int f_unlink(const char *path)
{
	struct node *f = find(path);

	if (!f)
		return -1;
	if (f->is_dir)
		return fail(EISDIR);
	drop(f);
	return 0;
}

/* All paths that are 'from' or below it. */
static void move(const char *from, const char *to)
{
	for (size_t i = 0; i < nnodes; i++) {
		char *old = node[i]->path;

		if (!old || (strcmp(old, from) && !below(old, from)))
			continue;
		node[i]->path = t_fmt("%s%s", to, old + strlen(from));
		free(old);
	}
}

static int rename_plain(const char *from, const char *to, unsigned flags)
{
	struct node *a = find_exact(from), *b = find_exact(to);

	if (!a || (flags == CK_RENAME_EXCHANGE && !b))
		return fail(ENOENT);
	if (below(to, from) || (flags == CK_RENAME_EXCHANGE && below(from, to)))
		return fail(EINVAL);
	if (flags == CK_RENAME_EXCHANGE) {
		move(from, "/zf swap");
		move(to, from);
		move("/zf swap", to);
		return 0;
	}
	if (b && flags == CK_RENAME_NOREPLACE)
		return fail(EEXIST);
	if (a == b)
		return 0;
	if (b && a->is_dir != b->is_dir)
		return fail(b->is_dir ? EISDIR : ENOTDIR);
	if (b && b->is_dir && !is_empty(b))
		return fail(ENOTEMPTY);
	if (b)
		drop(b);
	move(from, to);
	return 0;
}

static int f_rename(const char *from, const char *to, unsigned flags)
{
	char *a = plain(from), *b = plain(to);
	const int rc = rename_plain(a, b, flags);
	const int said = errno;

	free(a);
	free(b);
	errno = said;
	return rc;
}

static DIR *f_opendir(const char *path)
{
	const struct node *f = find(path);
	struct listing *l;

	if (!f)
		return NULL;
	if (!f->is_dir) {
		errno = ENOTDIR;
		return NULL;
	}
	l = t_alloc(sizeof(*l));
	memset(l, 0, sizeof(*l));
	l->path = t_fmt("%s", f->path);
	l->left = nnodes;
	nlistings++;
	return (DIR *)(void *)l;
}

/* From the last node to the first: what is removed meanwhile trades places with a later one. */
static struct dirent *f_readdir(DIR *dir)
{
	struct listing *l = (struct listing *)(void *)dir;

	if (l->left > nnodes)
		l->left = nnodes;
	while (l->left) {
		const struct node *f = node[--l->left];
		const char *name = f->path ? f->path + strlen(l->path) + 1 : "";

		if (!f->path || !below(f->path, l->path) || strchr(name, '/'))
			continue;
		memcpy(l->entry.d_name, name, strlen(name) + 1);
		return &l->entry;
	}
	return NULL;
}

static int f_closedir(DIR *dir)
{
	struct listing *l = (struct listing *)(void *)dir;

	nlistings--;
	free(l->path);
	free(l);
	return 0;
}

void fz_fs_install(void)
{
	ck_sys.open = f_open;
	ck_sys.close = f_close;
	ck_sys.pread = f_pread;
	ck_sys.pwrite = f_pwrite;
	ck_sys.write = f_write;
	ck_sys.fstat = f_fstat;
	ck_sys.stat = ck_sys.lstat = f_stat;
	ck_sys.statvfs = f_statvfs;
	ck_sys.access = f_access;
	ck_sys.statfs = f_statfs;
	ck_sys.realpath = f_realpath;
	ck_sys.fallocate = f_fallocate;
	ck_sys.fadvise = f_fadvise;
	ck_sys.ftruncate = f_ftruncate;
	ck_sys.fsync = ck_sys.fdatasync = f_sync;
	ck_sys.flock = f_flock;
	ck_sys.mkdir = f_mkdir;
	ck_sys.rmdir = f_rmdir;
	ck_sys.unlink = f_unlink;
	ck_sys.rename = f_rename;
	ck_sys.opendir = f_opendir;
	ck_sys.readdir = f_readdir;
	ck_sys.closedir = f_closedir;
}

void fz_fs_clear(void)
{
	while (nnodes)
		drop(node[nnodes - 1]);
	last_ino = 0;
	if (used)
		fz_die("%llu bytes of files are lost", (unsigned long long)used);
	f_mkdir(FZ_ROOT, 0755);
}

bool fz_fs_put(const char *path, const void *p, size_t n)
{
	struct node *f;

	for (const char *s = strchr(path + 1, '/'); s; s = strchr(s + 1, '/')) {
		char *dir = t_fmt("%.*s", (int)(s - path), path);

		f_mkdir(dir, 0755);
		free(dir);
	}
	f = make(path, false);
	if (!f)
		return false;
	if (!resize(f, n)) {
		if (n)
			memcpy(f->p, p, n);
		return true;
	}
	drop(f);
	return false;
}

uint64_t fz_fs_size(const char *path)
{
	const struct node *f = find(path);

	return f && !f->is_dir ? f->n : UINT64_MAX;
}

bool fz_fs_is_dir(const char *path)
{
	const struct node *f = find(path);

	return f && f->is_dir;
}

size_t fz_fs_count(void)
{
	return nnodes;
}

size_t fz_fs_open(void)
{
	size_t n = nlistings;

	for (size_t i = 0; i < MAX_FDS; i++)
		n += fds[i] != NULL;
	return n;
}

void fz_fs_remove(const char *path)
{
	for (size_t i = nnodes; i-- > 0;)
		if (i < nnodes && node[i]->path &&
		    (!strcmp(node[i]->path, path) || below(node[i]->path, path)))
			drop(node[i]);
}

void fz_fs_save(const char *dir)
{
	for (size_t i = 0; i < nnodes; i++) {
		char *path = node[i]->path ? t_fmt("%s%s", dir, node[i]->path) : NULL;

		if (path && !node[i]->is_dir) {
			for (char *s = strchr(path + 1, '/'); s; s = strchr(s + 1, '/')) {
				*s = 0;
				mkdir(path, 0777);
				*s = '/';
			}
			t_file_write(path, node[i]->p, node[i]->n);
		}
		free(path);
	}
}
