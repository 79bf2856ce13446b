/* See t_fault.h. Counters are atomic: the library calls from several threads. */
#include "tests/lib/t_fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include "libckpt/base/ck_sys.h"

static struct ck_sys real;
static bool installed;
static _Atomic long calls, blocks, fds;
static _Atomic bool fired;
static long armed;
static bool goes_on, plain_renames;
static enum t_fault_kind kind;

/* True if this call is to fail; 'memory' says that it is an allocation. */
static bool hit(bool memory)
{
	long n;

	if ((kind == T_FAULT_MEMORY && !memory) || (kind == T_FAULT_KILL && memory))
		return false;
	n = atomic_fetch_add(&calls, 1) + 1;
	if (!armed || n < armed || (n > armed && !goes_on))
		return false;
	if (kind == T_FAULT_KILL)
		_exit(9);
	atomic_store(&fired, true);
	return true;
}

/* The same for calls that cannot fall short: sets errno. */
static bool fails(bool takes_space)
{
	if (!hit(false) || kind == T_FAULT_SHORT)
		return false;
	errno = kind == T_FAULT_NOSPACE && takes_space ? ENOSPC : EIO;
	return true;
}

static void *f_realloc(void *p, size_t n)
{
	void *q;

	if (hit(true) && kind != T_FAULT_SHORT) {
		errno = ENOMEM;
		return NULL;
	}
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

static int f_open(const char *path, int flags, mode_t mode)
{
	int fd;

	if (fails(true))
		return -1;
	fd = real.open(path, flags, mode);
	if (fd >= 0)
		atomic_fetch_add(&fds, 1);
	return fd;
}

/* A close that fails has closed nevertheless. */
static int f_close(int fd)
{
	const bool failing = fails(true);
	const int said = errno;
	const int rc = real.close(fd);

	atomic_fetch_sub(&fds, 1);
	if (!failing)
		return rc;
	errno = said;
	return -1;
}

static ssize_t f_pread(int fd, void *p, size_t n, off_t off)
{
	if (hit(false)) {
		if (kind == T_FAULT_SHORT)
			return real.pread(fd, p, n ? 1 : 0, off);
		errno = EIO;
		return -1;
	}
	return real.pread(fd, p, n, off);
}

static ssize_t f_pwrite(int fd, const void *p, size_t n, off_t off)
{
	if (hit(false)) {
		if (kind == T_FAULT_SHORT)
			return real.pwrite(fd, p, n ? 1 : 0, off);
		errno = kind == T_FAULT_NOSPACE ? ENOSPC : EIO;
		return -1;
	}
	return real.pwrite(fd, p, n, off);
}

static ssize_t f_write(int fd, const void *p, size_t n)
{
	if (hit(false)) {
		if (kind == T_FAULT_SHORT)
			return real.write(fd, p, n ? 1 : 0);
		errno = kind == T_FAULT_NOSPACE ? ENOSPC : EIO;
		return -1;
	}
	return real.write(fd, p, n);
}

static int f_fstat(int fd, struct stat *st)
{
	return fails(false) ? -1 : real.fstat(fd, st);
}

static int f_stat(const char *path, struct stat *st)
{
	return fails(false) ? -1 : real.stat(path, st);
}

static int f_lstat(const char *path, struct stat *st)
{
	return fails(false) ? -1 : real.lstat(path, st);
}

static int f_statvfs(const char *path, struct statvfs *st)
{
	return fails(false) ? -1 : real.statvfs(path, st);
}

static int f_access(const char *path, int mode)
{
	return fails(false) ? -1 : real.access(path, mode);
}

static int f_statfs(const char *path, struct statfs *st)
{
	return fails(false) ? -1 : real.statfs(path, st);
}

static char *f_realpath(const char *path, char *out)
{
	return fails(false) ? NULL : real.realpath(path, out);
}

static int f_fadvise(int fd, off_t off, off_t len, int advice)
{
	return real.fadvise(fd, off, len, advice);
}

static int f_fallocate(int fd, off_t off, off_t len)
{
	return fails(true) ? -1 : real.fallocate(fd, off, len);
}

static int f_ftruncate(int fd, off_t len)
{
	return fails(true) ? -1 : real.ftruncate(fd, len);
}

static int f_fsync(int fd, enum ck_synced what)
{
	return fails(true) ? -1 : real.fsync(fd, what);
}

static int f_fdatasync(int fd, enum ck_synced what)
{
	return fails(true) ? -1 : real.fdatasync(fd, what);
}

static int f_flock(int fd, int op)
{
	return fails(false) ? -1 : real.flock(fd, op);
}

static int f_mkdir(const char *path, mode_t mode)
{
	return fails(true) ? -1 : real.mkdir(path, mode);
}

static int f_rmdir(const char *path)
{
	return fails(false) ? -1 : real.rmdir(path);
}

static int f_unlink(const char *path)
{
	return fails(false) ? -1 : real.unlink(path);
}

static int f_rename(const char *from, const char *to, unsigned flags)
{
	if (fails(true))
		return -1;
	if (flags && plain_renames) {
		errno = EINVAL;
		return -1;
	}
	return real.rename(from, to, flags);
}

static DIR *f_opendir(const char *path)
{
	DIR *dir;

	if (fails(false))
		return NULL;
	dir = real.opendir(path);
	if (dir)
		atomic_fetch_add(&fds, 1);
	return dir;
}

static struct dirent *f_readdir(DIR *dir)
{
	return fails(false) ? NULL : real.readdir(dir);
}

static int f_closedir(DIR *dir)
{
	const bool failing = fails(false);
	const int rc = real.closedir(dir);

	atomic_fetch_sub(&fds, 1);
	return failing ? -1 : rc;
}

void t_fault_install(void)
{
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
		.stat = f_stat, .lstat = f_lstat, .statvfs = f_statvfs,
		.access = f_access, .statfs = f_statfs, .realpath = f_realpath,
		.fadvise = f_fadvise, .fallocate = f_fallocate, .ftruncate = f_ftruncate,
		.fsync = f_fsync,
		.fdatasync = f_fdatasync, .flock = f_flock, .mkdir = f_mkdir,
		.rmdir = f_rmdir, .unlink = f_unlink, .rename = f_rename,
		.opendir = f_opendir, .readdir = f_readdir, .closedir = f_closedir,
	};
}

void t_fault_remove(void)
{
	if (installed)
		ck_sys = real;
	installed = false;
}

void t_fault_arm(enum t_fault_kind what, long n, bool on)
{
	kind = what;
	armed = n;
	goes_on = on;
	atomic_store(&calls, 0);
	atomic_store(&fired, false);
}

void t_fault_plain_renames(bool on)
{
	plain_renames = on;
}

bool t_fault_fired(void)
{
	return atomic_load(&fired);
}

long t_fault_calls(void)
{
	return atomic_load(&calls);
}

long t_fault_blocks(void)
{
	return atomic_load(&blocks);
}

long t_fault_fds(void)
{
	return atomic_load(&fds);
}
