/*
 * See t_disk.h: calls on files and their bytes over an image, the log of them, and the table that
 * takes the place of the system's.  Calls on names are in t_disk_names.c.
 */
#include "tests/lib/fs/t_disk_fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "tests/lib/fs/t_dir.h"

#define MAX_FDS 256
#define FIRST_FD (1 << 20)	/* no real descriptor is so high */
#define DISK ((uint64_t)1 << 40)

struct t_now t_now;

static struct ck_sys real;
static bool installed;
static int without = -1;
static uint64_t asked[64];
static struct t_log *record;
static bool *spare;	/* inodes that were free when the disk was loaded */
static size_t nspare;
static struct { uint32_t inode; off_t at; bool open; } fds[MAX_FDS];

int t_disk_fail(int code)
{
	errno = code;
	return -1;
}

/* ---- the log ---- */

struct t_call *t_disk_note(enum t_call_kind kind, char *say)
{
	struct t_log *log = record;

	if (log->n == log->cap) {
		log->cap = log->cap * 2 + 64;
		log->call = t_grow(log->call, log->cap * sizeof(*log->call));
	}
	log->call[log->n] = (struct t_call){ .kind = kind, .say = say };
	return &log->call[log->n++];
}

void t_disk_set_name(struct t_call *call, uint32_t slot, uint32_t to)
{
	call->change[call->n].slot = slot;
	call->change[call->n++].to = to;
	t_now.disk->slot[slot].to = to;
}

/* All bytes of a file are new. */
static void set_data(uint32_t inode, struct t_blob *blob, const char *what)
{
	struct t_call *call = t_disk_note(T_CALL_DATA, t_fmt("%s of %zu bytes", what, blob->n));

	t_blob_done(blob);
	call->inode = inode;
	call->blob = t_blob_hold(blob);
	t_blob_drop(t_now.disk->inode[inode].blob);
	t_now.disk->inode[inode].blob = blob;
}

/* ---- paths and descriptors ---- */

/* The folder of a path, or T_NOTHING with errno; '*name_out' in new memory. */
static uint32_t parent_of(const char *path, char **name_out)
{
	char *dir = t_fmt("%s", path), *end = dir + strlen(dir), *slash;
	uint32_t at = T_NOTHING;

	while (end > dir + 1 && end[-1] == '/')
		*--end = 0;
	slash = strrchr(dir, '/');
	errno = ENOENT;
	if (slash && slash[1]) {
		*name_out = t_fmt("%s", slash + 1);
		*slash = 0;
		at = t_image_find(t_now.disk, dir, NULL);
		if (at != T_NOTHING && !t_now.disk->inode[at].is_dir) {
			at = T_NOTHING;
			errno = ENOTDIR;
		}
		if (at == T_NOTHING)
			free(*name_out);
	}
	free(dir);
	return at;
}

/* The slot a path names, whether something is there or not; T_NOTHING with errno. */
uint32_t t_disk_slot(const char *path)
{
	char *name = NULL;
	const uint32_t dir = parent_of(path, &name);
	uint32_t slot;

	if (dir == T_NOTHING)
		return T_NOTHING;
	slot = t_image_slot(t_now.disk, dir, name);
	free(name);
	return slot;
}

uint32_t t_disk_find(const char *path)
{
	const uint32_t at = t_image_find(t_now.disk, path, NULL);

	errno = ENOENT;
	return at;
}

static uint32_t make(const char *path, bool is_dir)
{
	const uint32_t slot = t_disk_slot(path);
	uint32_t inode = 0;
	struct t_call *call;

	if (slot == T_NOTHING)
		return T_NOTHING;
	if (t_now.disk->slot[slot].to != T_NOTHING) {
		errno = EEXIST;
		return T_NOTHING;
	}
	while (inode < nspare && !spare[inode])
		inode++;
	if (inode < nspare) {
		spare[inode] = false;
		t_now.disk->inode[inode] = (struct t_inode){ .is_dir = is_dir, .used = true };
	} else {
		inode = t_image_inode(t_now.disk, is_dir);
	}
	call = t_disk_note(T_CALL_MAKE, t_fmt("inode %u", inode + 1));
	call->inode = inode;
	call->is_dir = is_dir;
	call = t_disk_note(T_CALL_NAMES, t_fmt("%s %s", is_dir ? "mkdir" : "create", path));
	t_disk_set_name(call, slot, inode);
	return inode;
}

static bool is_open(int fd)
{
	if (fd >= FIRST_FD && fd < FIRST_FD + MAX_FDS && fds[fd - FIRST_FD].open)
		return true;
	errno = EBADF;
	return false;
}

static uint32_t by_fd(int fd)
{
	return fds[fd - FIRST_FD].inode;
}

bool t_disk_is_dir(uint32_t inode)
{
	return t_now.disk->inode[inode].is_dir;
}

/* A copy of the file's bytes, of length N. */
static struct t_blob *grown(uint32_t inode, size_t n)
{
	const struct t_blob *old = t_now.disk->inode[inode].blob;
	struct t_blob *b = t_blob_new(n);

	if (old && (old->n < n ? old->n : n))
		memcpy(b->p, old->p, old->n < n ? old->n : n);
	return b;
}

static size_t size_of(uint32_t inode)
{
	return t_now.disk->inode[inode].blob ? t_now.disk->inode[inode].blob->n : 0;
}

/* ---- the calls ---- */

static int d_open(const char *path, int flags, mode_t mode)
{
	uint32_t at = t_disk_find(path);
	int i = 0;

	(void)mode;
	if (at != T_NOTHING && (flags & O_CREAT) && (flags & O_EXCL))
		return t_disk_fail(EEXIST);
	if (at == T_NOTHING && (flags & O_CREAT))
		at = make(path, false);
	if (at == T_NOTHING)
		return -1;
	if (t_disk_is_dir(at) && (flags & O_ACCMODE) != O_RDONLY)
		return t_disk_fail(EISDIR);
	if (!t_disk_is_dir(at) && (flags & O_DIRECTORY))
		return t_disk_fail(ENOTDIR);
	while (i < MAX_FDS && fds[i].open)
		i++;
	if (i == MAX_FDS)
		return t_disk_fail(EMFILE);
	if ((flags & O_TRUNC) && size_of(at))
		set_data(at, t_blob_new(0), path);
	fds[i].inode = at;
	fds[i].at = flags & O_APPEND ? (off_t)size_of(at) : 0;
	fds[i].open = true;
	return FIRST_FD + i;
}

static int d_close(int fd)
{
	if (!is_open(fd))
		return -1;
	fds[fd - FIRST_FD].open = false;
	return 0;
}

static ssize_t d_pread(int fd, void *p, size_t n, off_t off)
{
	size_t size;

	if (!is_open(fd))
		return -1;
	size = size_of(by_fd(fd));
	if ((uint64_t)off >= size)
		return 0;
	if (n > size - (size_t)off)
		n = size - (size_t)off;
	memcpy(p, t_now.disk->inode[by_fd(fd)].blob->p + off, n);
	return (ssize_t)n;
}

static ssize_t d_pwrite(int fd, const void *p, size_t n, off_t off)
{
	const size_t end = (size_t)off + n;
	struct t_blob *b;

	if (!is_open(fd))
		return -1;
	if (!n)
		return 0;
	b = grown(by_fd(fd), end > size_of(by_fd(fd)) ? end : size_of(by_fd(fd)));
	memcpy(b->p + off, p, n);
	set_data(by_fd(fd), b, "write");
	return (ssize_t)n;
}

static ssize_t d_write(int fd, const void *p, size_t n)
{
	const ssize_t k = is_open(fd) ? d_pwrite(fd, p, n, fds[fd - FIRST_FD].at) : -1;

	if (k > 0)
		fds[fd - FIRST_FD].at += k;
	return k;
}

static int say(uint32_t inode, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_mode = t_disk_is_dir(inode) ? S_IFDIR | 0755 : S_IFREG | 0644;
	st->st_size = (off_t)size_of(inode);
	st->st_blocks = (blkcnt_t)((size_of(inode) + 511) / 512);
	st->st_ino = inode + 1;
	st->st_nlink = 1;
	return 0;
}

static int d_fstat(int fd, struct stat *st)
{
	return is_open(fd) ? say(by_fd(fd), st) : -1;
}

static int d_stat(const char *path, struct stat *st)
{
	const uint32_t at = t_disk_find(path);

	return at == T_NOTHING ? -1 : say(at, st);
}

static int d_access(const char *path, int mode)
{
	(void)mode;
	return t_disk_find(path) == T_NOTHING ? -1 : 0;
}

static int d_statvfs(const char *path, struct statvfs *st)
{
	if (t_disk_find(path) == T_NOTHING)
		return -1;
	memset(st, 0, sizeof(*st));
	st->f_bsize = st->f_frsize = 1;
	st->f_blocks = st->f_bfree = st->f_bavail = DISK;
	return 0;
}

static int d_statfs(const char *path, struct statfs *st)
{
	memset(st, 0, sizeof(*st));
	return t_disk_find(path) == T_NOTHING ? -1 : 0;
}

static char *d_realpath(const char *path, char *out)
{
	if (t_disk_find(path) == T_NOTHING)
		return NULL;
	memcpy(out, path, strlen(path) + 1);
	return out;
}

static int d_fadvise(int fd, off_t off, off_t len, int advice)
{
	(void)off;
	(void)len;
	(void)advice;
	return is_open(fd) ? 0 : EBADF;
}

static int d_fallocate(int fd, off_t off, off_t len)
{
	const size_t end = (size_t)off + (size_t)len;

	if (!is_open(fd))
		return -1;
	if (end > size_of(by_fd(fd)))
		set_data(by_fd(fd), grown(by_fd(fd), end), "fallocate");
	return 0;
}

static int d_ftruncate(int fd, off_t len)
{
	if (!is_open(fd))
		return -1;
	set_data(by_fd(fd), grown(by_fd(fd), (size_t)len), "ftruncate");
	return 0;
}

static const char *path_of(uint32_t inode)
{
	for (size_t i = 0; i < t_now.disk->nslots; i++)
		if (t_now.disk->slot[i].to == inode)
			return t_now.disk->slot[i].name;
	return "/";
}

static int sync_it(int fd, int what)
{
	struct t_call *call;

	if (!is_open(fd))
		return -1;
	asked[what]++;
	if (what == without)
		return 0;
	call = t_disk_note(T_CALL_SYNC, t_fmt("sync %s (%d)", path_of(by_fd(fd)), what));
	call->inode = by_fd(fd);
	return 0;
}

static int d_sync(int fd, enum ck_synced what)
{
	return sync_it(fd, (int)what);
}

static int d_flock(int fd, int op)
{
	(void)op;
	return is_open(fd) ? 0 : -1;
}

static int d_mkdir(const char *path, mode_t mode)
{
	(void)mode;
	return make(path, true) == T_NOTHING ? -1 : 0;
}

static int d_clone(int to, int from)
{
	(void)to;
	(void)from;
	return t_disk_fail(EOPNOTSUPP);
}

/* ---- for tests ---- */

void t_disk_install(void)
{
	if (installed)
		return;
	real = ck_sys;
	installed = true;
	ck_sys = (struct ck_sys){
		.realloc = real.realloc, .free = real.free, .open = d_open, .close = d_close,
		.pread = d_pread, .pwrite = d_pwrite, .write = d_write, .fstat = d_fstat,
		.stat = d_stat, .lstat = d_stat, .access = d_access, .statvfs = d_statvfs,
		.statfs = d_statfs, .realpath = d_realpath, .fallocate = d_fallocate,
		.fadvise = d_fadvise, .ftruncate = d_ftruncate, .fsync = d_sync,
		.fdatasync = d_sync, .flock = d_flock, .mkdir = d_mkdir, .rmdir = t_disk_rmdir,
		.unlink = t_disk_unlink, .rename = t_disk_rename, .link = t_disk_link,
		.clone = d_clone,
		.opendir = t_disk_opendir, .readdir = t_disk_readdir, .closedir = t_disk_closedir,
		.thread = real.thread,
	};
}

static void forget(void)
{
	t_log_free(record);
	t_image_free(t_now.disk);
	free(spare);
	record = NULL;
	t_now.disk = NULL;
	spare = NULL;
}

void t_disk_remove(void)
{
	if (installed)
		ck_sys = real;
	installed = false;
	forget();
}

void t_disk_load(const struct t_image *im)
{
	struct t_image *fresh = t_image_copy(im);

	forget();
	t_now.disk = fresh;
	nspare = t_now.disk->ninodes;
	spare = t_alloc(nspare);
	for (size_t i = 0; i < nspare; i++)
		spare[i] = !t_now.disk->inode[i].used;
	record = t_alloc(sizeof(*record));
	record->base = t_image_copy(im);
	memset(fds, 0, sizeof(fds));
	t_now.nlistings = 0;
}

struct t_image *t_disk_image(void)
{
	struct t_image *im = t_image_copy(t_now.disk);

	t_image_sweep(im);
	return im;
}

struct t_log *t_disk_log(void)
{
	struct t_log *log = record;

	log->nslots = t_now.disk->nslots;
	log->slot = t_alloc(log->nslots * sizeof(*log->slot));
	for (size_t i = 0; i < log->nslots; i++)
		log->slot[i] = (struct t_slot){ t_now.disk->slot[i].dir, T_NOTHING,
						t_fmt("%s", t_now.disk->slot[i].name) };
	record = NULL;
	return log;
}

size_t t_disk_open(void)
{
	size_t n = t_now.nlistings;

	for (size_t i = 0; i < MAX_FDS; i++)
		n += fds[i].open;
	return n;
}

void t_disk_without(int what)
{
	without = what;
}

void t_disk_plain_renames(bool on)
{
	t_now.plain_renames = on;
}

uint64_t t_disk_synced(int what)
{
	return asked[what];
}
