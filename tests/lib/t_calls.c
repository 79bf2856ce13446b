/* See t_calls.h. */
#include "tests/lib/t_calls.h"

#include "libckpt/base/ck_sys.h"

static struct ck_sys real;
static t_call_fn told;

static int w_open(const char *path, int flags, mode_t mode)
{
	told("open", path);
	return real.open(path, flags, mode);
}

static int w_mkdir(const char *path, mode_t mode)
{
	told("mkdir", path);
	return real.mkdir(path, mode);
}

static int w_rmdir(const char *path)
{
	told("rmdir", path);
	return real.rmdir(path);
}

static int w_unlink(const char *path)
{
	told("unlink", path);
	return real.unlink(path);
}

static int w_rename(const char *from, const char *to, unsigned flags)
{
	told("rename", to);
	return real.rename(from, to, flags);
}

static int w_stat(const char *path, struct stat *st)
{
	told("stat", path);
	return real.stat(path, st);
}

static int w_lstat(const char *path, struct stat *st)
{
	told("lstat", path);
	return real.lstat(path, st);
}

static DIR *w_opendir(const char *path)
{
	told("opendir", path);
	return real.opendir(path);
}

static ssize_t w_pread(int fd, void *p, size_t n, off_t off)
{
	told("pread", NULL);
	return real.pread(fd, p, n, off);
}

static ssize_t w_pwrite(int fd, const void *p, size_t n, off_t off)
{
	told("pwrite", NULL);
	return real.pwrite(fd, p, n, off);
}

static ssize_t w_write(int fd, const void *p, size_t n)
{
	told("write", NULL);
	return real.write(fd, p, n);
}

static int w_ftruncate(int fd, off_t len)
{
	told("ftruncate", NULL);
	return real.ftruncate(fd, len);
}

static int w_fallocate(int fd, off_t off, off_t len)
{
	told("fallocate", NULL);
	return real.fallocate(fd, off, len);
}

static int w_fsync(int fd, enum ck_synced what)
{
	told("fsync", NULL);
	return real.fsync(fd, what);
}

static int w_fdatasync(int fd, enum ck_synced what)
{
	told("fdatasync", NULL);
	return real.fdatasync(fd, what);
}

static int w_flock(int fd, int op)
{
	told("flock", NULL);
	return real.flock(fd, op);
}

void t_calls_watch(t_call_fn fn)
{
	real = ck_sys;
	told = fn;
	ck_sys.open = w_open;
	ck_sys.mkdir = w_mkdir;
	ck_sys.rmdir = w_rmdir;
	ck_sys.unlink = w_unlink;
	ck_sys.rename = w_rename;
	ck_sys.stat = w_stat;
	ck_sys.lstat = w_lstat;
	ck_sys.opendir = w_opendir;
	ck_sys.pread = w_pread;
	ck_sys.pwrite = w_pwrite;
	ck_sys.write = w_write;
	ck_sys.ftruncate = w_ftruncate;
	ck_sys.fallocate = w_fallocate;
	ck_sys.fsync = w_fsync;
	ck_sys.fdatasync = w_fdatasync;
	ck_sys.flock = w_flock;
}
