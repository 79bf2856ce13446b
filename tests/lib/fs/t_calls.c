/* See t_calls.h. */
#include "tests/lib/fs/t_calls.h"

#include "libckpt/base/ck_sys.h"

static struct ck_sys real;
static t_call_fn told;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void enter(const char *call, const char *path)
{
	if (told)
		told(call, path);
	else
		pthread_mutex_lock(&lock);
}

static void leave(void)
{
	if (!told)
		pthread_mutex_unlock(&lock);
}

static int w_open(const char *path, int flags, mode_t mode)
{
	int rc;

	enter("open", path);
	rc = real.open(path, flags, mode);
	leave();
	return rc;
}

static int w_close(int fd)
{
	int rc;

	enter("close", NULL);
	rc = real.close(fd);
	leave();
	return rc;
}

static ssize_t w_pread(int fd, void *p, size_t n, off_t off)
{
	ssize_t rc;

	enter("pread", NULL);
	rc = real.pread(fd, p, n, off);
	leave();
	return rc;
}

static ssize_t w_pwrite(int fd, const void *p, size_t n, off_t off)
{
	ssize_t rc;

	enter("pwrite", NULL);
	rc = real.pwrite(fd, p, n, off);
	leave();
	return rc;
}

static ssize_t w_write(int fd, const void *p, size_t n)
{
	ssize_t rc;

	enter("write", NULL);
	rc = real.write(fd, p, n);
	leave();
	return rc;
}

static int w_fstat(int fd, struct stat *st)
{
	int rc;

	enter("fstat", NULL);
	rc = real.fstat(fd, st);
	leave();
	return rc;
}

static int w_stat(const char *path, struct stat *st)
{
	int rc;

	enter("stat", path);
	rc = real.stat(path, st);
	leave();
	return rc;
}

static int w_lstat(const char *path, struct stat *st)
{
	int rc;

	enter("lstat", path);
	rc = real.lstat(path, st);
	leave();
	return rc;
}

static int w_access(const char *path, int mode)
{
	int rc;

	enter("access", path);
	rc = real.access(path, mode);
	leave();
	return rc;
}

static int w_statvfs(const char *path, struct statvfs *st)
{
	int rc;

	enter("statvfs", path);
	rc = real.statvfs(path, st);
	leave();
	return rc;
}

static int w_statfs(const char *path, struct statfs *st)
{
	int rc;

	enter("statfs", path);
	rc = real.statfs(path, st);
	leave();
	return rc;
}

static char *w_realpath(const char *path, char *out)
{
	char *rc;

	enter("realpath", path);
	rc = real.realpath(path, out);
	leave();
	return rc;
}

static int w_fallocate(int fd, off_t off, off_t len)
{
	int rc;

	enter("fallocate", NULL);
	rc = real.fallocate(fd, off, len);
	leave();
	return rc;
}

static int w_fadvise(int fd, off_t off, off_t len, int advice)
{
	int rc;

	enter("fadvise", NULL);
	rc = real.fadvise(fd, off, len, advice);
	leave();
	return rc;
}

static int w_ftruncate(int fd, off_t len)
{
	int rc;

	enter("ftruncate", NULL);
	rc = real.ftruncate(fd, len);
	leave();
	return rc;
}

static int w_fsync(int fd, enum ck_synced what)
{
	int rc;

	enter("fsync", NULL);
	rc = real.fsync(fd, what);
	leave();
	return rc;
}

static int w_fdatasync(int fd, enum ck_synced what)
{
	int rc;

	enter("fdatasync", NULL);
	rc = real.fdatasync(fd, what);
	leave();
	return rc;
}

static int w_flock(int fd, int op)
{
	int rc;

	enter("flock", NULL);
	rc = real.flock(fd, op);
	leave();
	return rc;
}

static int w_mkdir(const char *path, mode_t mode)
{
	int rc;

	enter("mkdir", path);
	rc = real.mkdir(path, mode);
	leave();
	return rc;
}

static int w_rmdir(const char *path)
{
	int rc;

	enter("rmdir", path);
	rc = real.rmdir(path);
	leave();
	return rc;
}

static int w_unlink(const char *path)
{
	int rc;

	enter("unlink", path);
	rc = real.unlink(path);
	leave();
	return rc;
}

static int w_rename(const char *from, const char *to, unsigned flags)
{
	int rc;

	enter("rename", to);
	rc = real.rename(from, to, flags);
	leave();
	return rc;
}

static DIR *w_opendir(const char *path)
{
	DIR *rc;

	enter("opendir", path);
	rc = real.opendir(path);
	leave();
	return rc;
}

static struct dirent *w_readdir(DIR *dir)
{
	struct dirent *rc;

	enter("readdir", NULL);
	rc = real.readdir(dir);
	leave();
	return rc;
}

static int w_closedir(DIR *dir)
{
	int rc;

	enter("closedir", NULL);
	rc = real.closedir(dir);
	leave();
	return rc;
}

static void wrap(void)
{
	real = ck_sys;
	ck_sys.open = w_open;
	ck_sys.close = w_close;
	ck_sys.pread = w_pread;
	ck_sys.pwrite = w_pwrite;
	ck_sys.write = w_write;
	ck_sys.fstat = w_fstat;
	ck_sys.stat = w_stat;
	ck_sys.lstat = w_lstat;
	ck_sys.access = w_access;
	ck_sys.statvfs = w_statvfs;
	ck_sys.statfs = w_statfs;
	ck_sys.realpath = w_realpath;
	ck_sys.fallocate = w_fallocate;
	ck_sys.fadvise = w_fadvise;
	ck_sys.ftruncate = w_ftruncate;
	ck_sys.fsync = w_fsync;
	ck_sys.fdatasync = w_fdatasync;
	ck_sys.flock = w_flock;
	ck_sys.mkdir = w_mkdir;
	ck_sys.rmdir = w_rmdir;
	ck_sys.unlink = w_unlink;
	ck_sys.rename = w_rename;
	ck_sys.opendir = w_opendir;
	ck_sys.readdir = w_readdir;
	ck_sys.closedir = w_closedir;
}

void t_calls_watch(t_call_fn fn)
{
	told = fn;
	wrap();
}

void t_calls_in_turn(bool on)
{
	told = NULL;
	if (on)
		wrap();
	else
		ck_sys = real;
}
