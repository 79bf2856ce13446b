/* See t_fault.h. Counters are atomic: the library calls from several threads. */
#include "tests/lib/torture/t_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "libckpt/base/ck_sys.h"

/* What a call is like. */
#define TAKES_SPACE 1u
#define WAITS 2u
#define MOVES_BYTES 4u
#define OPENS 8u
#define ALLOCATES 16u
#define STARTS 32u

static const struct {
	const char *name;
	int errnum;
	unsigned classes;	/* of calls that it counts; 0 = all but the last two */
} kinds[] = {
	[T_FAULT_IO] = { "EIO", EIO, 0 },
	[T_FAULT_NOSPACE] = { "ENOSPC", ENOSPC, TAKES_SPACE },
	[T_FAULT_INTR] = { "EINTR", EINTR, WAITS },
	[T_FAULT_SHORT] = { "short", 0, MOVES_BYTES },
	[T_FAULT_FILES] = { "EMFILE", EMFILE, OPENS },
	[T_FAULT_MEMORY] = { "ENOMEM", ENOMEM, ALLOCATES },
	[T_FAULT_THREADS] = { "EAGAIN", EAGAIN, STARTS },
	[T_FAULT_KILL] = { "kill", 0, 0 },
};

static struct ck_sys real;
static bool installed;
static _Atomic long calls, failed, blocks, fds;
static const char *_Atomic last;
static _Atomic long armed;
static _Atomic bool goes_on;
static bool plain_renames;
static _Atomic enum t_fault_kind kind;

const char *t_fault_name(enum t_fault_kind k)
{
	return kinds[k].name;
}

/* True, and errno, if this call is to fail. */
static bool hit(const char *name, unsigned classes)
{
	const enum t_fault_kind what = atomic_load(&kind);
	const unsigned counted = kinds[what].classes;
	const long from = atomic_load(&armed);
	long n;

	if (counted ? !(classes & counted) : classes & (ALLOCATES | STARTS))
		return false;
	n = atomic_fetch_add(&calls, 1) + 1;
	if (!from || n < from || (n > from && !atomic_load(&goes_on)))
		return false;
	/* who tries again after an interruption gets on */
	if (what == T_FAULT_INTR && (n - from) % 2)
		return false;
	if (what == T_FAULT_KILL)
		_exit(9);
	atomic_fetch_add(&failed, 1);
	atomic_store(&last, name);
	errno = kinds[what].errnum;
	return true;
}

/* Bytes that a read or write moves: 0 = it fails. */
static size_t bytes(const char *name, size_t n, unsigned classes)
{
	if (!n || !hit(name, classes | MOVES_BYTES | WAITS))
		return n;
	return atomic_load(&kind) != T_FAULT_SHORT ? 0 : atomic_load(&goes_on) ? (n + 1) / 2 : 1;
}

/* ---------------------------------------------------------------- memory */

static void *f_realloc(void *p, size_t n)
{
	void *q;

	if (hit("realloc", ALLOCATES))
		return NULL;
	q = real.realloc(p, n);
	if (q && !p)
		atomic_fetch_add(&blocks, 1);
	return q;
}

static void f_free(void *p)
{
	if (p)
		atomic_fetch_sub(&blocks, 1);
	real.free(p);
}

static void *f_malloc(size_t n)
{
	return f_realloc(NULL, n);
}

/* ---------------------------------------------------------------- descriptors */

static int f_open(const char *path, int flags, mode_t mode)
{
	int fd;

	if (hit("open", OPENS | WAITS | (flags & O_CREAT ? TAKES_SPACE : 0)))
		return -1;
	fd = real.open(path, flags, mode);
	if (fd >= 0)
		atomic_fetch_add(&fds, 1);
	return fd;
}

/* A close that fails has closed nevertheless. */
static int f_close(int fd)
{
	const bool failing = hit("close", TAKES_SPACE | WAITS);
	const int said = errno;
	const int rc = real.close(fd);

	atomic_fetch_sub(&fds, 1);
	if (!failing)
		return rc;
	errno = said;
	return -1;
}

static DIR *f_opendir(const char *path)
{
	DIR *dir;

	if (hit("opendir", OPENS | WAITS))
		return NULL;
	dir = real.opendir(path);
	if (dir)
		atomic_fetch_add(&fds, 1);
	return dir;
}

static struct dirent *f_readdir(DIR *dir)
{
	return hit("readdir", 0) ? NULL : real.readdir(dir);
}

static int f_closedir(DIR *dir)
{
	const bool failing = hit("closedir", 0);
	const int rc = real.closedir(dir);

	atomic_fetch_sub(&fds, 1);
	return failing ? -1 : rc;
}

/* ---------------------------------------------------------------- contents */

static ssize_t f_pread(int fd, void *p, size_t n, off_t off)
{
	const size_t k = bytes("pread", n, 0);

	return n && !k ? -1 : real.pread(fd, p, k, off);
}

static ssize_t f_pwrite(int fd, const void *p, size_t n, off_t off)
{
	const size_t k = bytes("pwrite", n, TAKES_SPACE);

	return n && !k ? -1 : real.pwrite(fd, p, k, off);
}

static ssize_t f_write(int fd, const void *p, size_t n)
{
	const size_t k = bytes("write", n, TAKES_SPACE);

	return n && !k ? -1 : real.write(fd, p, k);
}

static int f_fallocate(int fd, off_t off, off_t len)
{
	return hit("fallocate", TAKES_SPACE | WAITS) ? -1 : real.fallocate(fd, off, len);
}

static int f_fadvise(int fd, off_t off, off_t len, int advice)
{
	return hit("fadvise", 0) ? errno : real.fadvise(fd, off, len, advice);
}

static int f_ftruncate(int fd, off_t len)
{
	return hit("ftruncate", TAKES_SPACE | WAITS) ? -1 : real.ftruncate(fd, len);
}

static int f_fsync(int fd, enum ck_synced what)
{
	return hit("fsync", TAKES_SPACE | WAITS) ? -1 : real.fsync(fd, what);
}

static int f_fdatasync(int fd, enum ck_synced what)
{
	return hit("fdatasync", TAKES_SPACE | WAITS) ? -1 : real.fdatasync(fd, what);
}

static int f_flock(int fd, int op)
{
	return hit("flock", WAITS) ? -1 : real.flock(fd, op);
}

/* ---------------------------------------------------------------- names */

static int f_fstat(int fd, struct stat *st)
{
	return hit("fstat", 0) ? -1 : real.fstat(fd, st);
}

static int f_stat(const char *path, struct stat *st)
{
	return hit("stat", 0) ? -1 : real.stat(path, st);
}

static int f_lstat(const char *path, struct stat *st)
{
	return hit("lstat", 0) ? -1 : real.lstat(path, st);
}

static int f_access(const char *path, int mode)
{
	return hit("access", 0) ? -1 : real.access(path, mode);
}

static int f_statvfs(const char *path, struct statvfs *st)
{
	return hit("statvfs", WAITS) ? -1 : real.statvfs(path, st);
}

static int f_statfs(const char *path, struct statfs *st)
{
	return hit("statfs", WAITS) ? -1 : real.statfs(path, st);
}

static char *f_realpath(const char *path, char *out)
{
	return hit("realpath", 0) ? NULL : real.realpath(path, out);
}

static int f_mkdir(const char *path, mode_t mode)
{
	return hit("mkdir", TAKES_SPACE) ? -1 : real.mkdir(path, mode);
}

static int f_rmdir(const char *path)
{
	return hit("rmdir", 0) ? -1 : real.rmdir(path);
}

static int f_unlink(const char *path)
{
	return hit("unlink", 0) ? -1 : real.unlink(path);
}

static int f_rename(const char *from, const char *to, unsigned flags)
{
	if (hit("rename", TAKES_SPACE))
		return -1;
	if (flags && plain_renames) {
		errno = EINVAL;
		return -1;
	}
	return real.rename(from, to, flags);
}

static int f_link(const char *from, const char *to)
{
	return hit("link", TAKES_SPACE) ? -1 : real.link(from, to);
}

static int f_clone(int to, int from)
{
	return hit("clone", TAKES_SPACE) ? -1 : real.clone(to, from);
}

static int f_thread(pthread_t *thread, void *(*fn)(void *), void *arg)
{
	return hit("pthread_create", STARTS) ? EAGAIN : real.thread(thread, fn, arg);
}

/* ---------------------------------------------------------------- the table */

void t_fault_install(void)
{
	cJSON_Hooks hooks = { f_malloc, f_free };

	if (installed)
		return;
	real = ck_sys;
	installed = true;
	t_fault_arm(T_FAULT_IO, 0, false);
	atomic_store(&blocks, 0);
	atomic_store(&fds, 0);
	ck_sys = (struct ck_sys){
		.realloc = f_realloc, .free = f_free, .open = f_open, .close = f_close,
		.pread = f_pread, .pwrite = f_pwrite, .write = f_write, .fstat = f_fstat,
		.stat = f_stat, .lstat = f_lstat, .access = f_access, .statvfs = f_statvfs,
		.statfs = f_statfs, .realpath = f_realpath, .fallocate = f_fallocate,
		.fadvise = f_fadvise, .ftruncate = f_ftruncate, .fsync = f_fsync,
		.fdatasync = f_fdatasync, .flock = f_flock, .mkdir = f_mkdir,
		.rmdir = f_rmdir, .unlink = f_unlink, .rename = f_rename, .link = f_link,
		.clone = f_clone,
		.opendir = f_opendir, .readdir = f_readdir, .closedir = f_closedir,
		.thread = f_thread,
	};
	cJSON_InitHooks(&hooks);
	libdeflate_set_memory_allocator(f_malloc, f_free);
}

void t_fault_remove(void)
{
	if (!installed)
		return;
	ck_sys = real;
	cJSON_InitHooks(NULL);
	libdeflate_set_memory_allocator(malloc, free);
	installed = false;
}

void t_fault_arm(enum t_fault_kind what, long n, bool on)
{
	atomic_store(&kind, what);
	atomic_store(&armed, n);
	atomic_store(&goes_on, on);
	atomic_store(&calls, 0);
	atomic_store(&failed, 0);
	atomic_store(&last, "");
}

void t_fault_plain_renames(bool on)
{
	plain_renames = on;
}

bool t_fault_fired(void)
{
	return atomic_load(&failed) > 0;
}

long t_fault_calls(void)
{
	return atomic_load(&calls);
}

long t_fault_failed(void)
{
	return atomic_load(&failed);
}

const char *t_fault_last(void)
{
	return atomic_load(&last);
}

long t_fault_blocks(void)
{
	return atomic_load(&blocks);
}

long t_fault_fds(void)
{
	return atomic_load(&fds);
}
