/* ck_sys.c -- see ck_sys.h. */
#include "libckpt/base/ck_sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libckpt/base/ck_err.h"

static int sys_open(const char *path, int flags, mode_t mode)
{
	return open(path, flags | O_CLOEXEC, mode);
}

/* glibc emulates posix_fallocate by writing; the plain call says EOPNOTSUPP. */
static int sys_fallocate(int fd, off_t off, off_t len)
{
	return fallocate(fd, 0, off, len);
}

static int sys_rename(const char *from, const char *to, unsigned flags)
{
	return flags ? renameat2(AT_FDCWD, from, AT_FDCWD, to, flags) : rename(from, to);
}

/* A further name; of a symbolic link itself, as rename() has it. */
static int sys_link(const char *from, const char *to)
{
	return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

static int sys_clone(int to, int from)
{
#ifdef FICLONE
	return ioctl(to, FICLONE, from);
#else
	(void)to;
	(void)from;
	errno = EOPNOTSUPP;
	return -1;
#endif
}

static void *sys_map(int fd, size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int sys_populate(void *p, size_t n)
{
#ifdef MADV_POPULATE_WRITE
	return madvise(p, n, MADV_POPULATE_WRITE);
#else
	return madvise(p, n, 23);	/* Linux 5.14; before it EINVAL */
#endif
}

static int sys_forget(void *p, size_t n)
{
	return madvise(p, n, MADV_DONTNEED);
}

static int sys_fsync(int fd, enum ck_synced what)
{
	(void)what;
	return fsync(fd);
}

static int sys_fdatasync(int fd, enum ck_synced what)
{
	(void)what;
	return fdatasync(fd);
}

static int sys_thread(pthread_t *thread, void *(*fn)(void *), void *arg)
{
	return pthread_create(thread, NULL, fn, arg);
}

struct ck_sys ck_sys = {
	.realloc = realloc,
	.free = free,
	.open = sys_open,
	.close = close,
	.pread = pread,
	.pwrite = pwrite,
	.write = write,
	.fstat = fstat,
	.stat = stat,
	.lstat = lstat,
	.access = access,
	.statvfs = statvfs,
	.statfs = statfs,
	.realpath = realpath,
	.fallocate = sys_fallocate,
	.fadvise = posix_fadvise,
	.ftruncate = ftruncate,
	.fsync = sys_fsync,
	.fdatasync = sys_fdatasync,
	.flock = flock,
	.mkdir = mkdir,
	.rmdir = rmdir,
	.unlink = unlink,
	.rename = sys_rename,
	.link = sys_link,
	.clone = sys_clone,
	.map = sys_map,
	.unmap = munmap,
	.populate = sys_populate,
	.forget = sys_forget,
	.opendir = opendir,
	.readdir = readdir,
	.closedir = closedir,
	.thread = sys_thread,
};

int ck_open(const char *path, int flags, mode_t mode)
{
	int fd;

	do
		fd = ck_sys.open(path, flags, mode);
	while (fd < 0 && errno == EINTR);
	return fd;
}

int ck_close(int fd)
{
	const int rc = ck_sys.close(fd);

	return rc && errno == EINTR ? 0 : rc;
}

DIR *ck_opendir(const char *path)
{
	DIR *dir;

	do
		dir = ck_sys.opendir(path);
	while (!dir && errno == EINTR);
	return dir;
}

int ck_statvfs(const char *path, struct statvfs *st)
{
	int rc;

	do
		rc = ck_sys.statvfs(path, st);
	while (rc && errno == EINTR);
	return rc;
}

int ck_fallocate(int fd, off_t off, off_t len)
{
	int rc;

	do
		rc = ck_sys.fallocate(fd, off, len);
	while (rc && errno == EINTR);
	return rc;
}

int ck_ftruncate(int fd, off_t len)
{
	int rc;

	do
		rc = ck_sys.ftruncate(fd, len);
	while (rc && errno == EINTR);
	return rc;
}

int ck_fsync(int fd, enum ck_synced what)
{
	int rc;

	do
		rc = ck_sys.fsync(fd, what);
	while (rc && errno == EINTR);
	return rc;
}

int ck_fdatasync(int fd, enum ck_synced what)
{
	int rc;

	do
		rc = ck_sys.fdatasync(fd, what);
	while (rc && errno == EINTR);
	return rc;
}

int ck_flock(int fd, int op)
{
	int rc;

	do
		rc = ck_sys.flock(fd, op);
	while (rc && errno == EINTR);
	return rc;
}

void *ck_realloc(void *p, size_t n)
{
	return ck_sys.realloc(p, n ? n : 1);
}

int ck_thread(pthread_t *thread, void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	int failed;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	failed = ck_sys.thread(thread, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return failed;
}

void *ck_alloc(size_t n)
{
	return ck_realloc(NULL, n);
}

void *ck_zalloc(size_t n)
{
	void *p = ck_alloc(n);

	if (p)
		memset(p, 0, n);
	return p;
}

void *ck_alloc_array(uint64_t n, size_t size)
{
	uint64_t bytes;

	if (ck_mul_over(n, size, &bytes) || bytes > SIZE_MAX / 2)
		return NULL;
	return ck_alloc(bytes);
}

void ck_free(void *p)
{
	if (p)
		ck_sys.free(p);
}

char *ck_strndup(const char *s, size_t n)
{
	char *p = ck_alloc(n + 1);

	if (p) {
		memcpy(p, s, n);
		p[n] = 0;
	}
	return p;
}

char *ck_strdup(const char *s)
{
	return ck_strndup(s, strlen(s));
}

char *ck_asprintf(const char *fmt, ...)
{
	va_list ap;
	char *p;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return NULL;
	p = ck_alloc((size_t)n + 1);
	if (!p)
		return NULL;
	va_start(ap, fmt);
	vsnprintf(p, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return p;
}

int ck_grow(void *arr, uint64_t *cap, uint64_t want, size_t size, struct ckpt_err *err)
{
	uint64_t bytes, n = *cap ? *cap : 16;
	void *q;

	if (want <= *cap)
		return 0;
	while (n < want)
		if (ck_mul_over(n, 2, &n))
			return ck_fail_nomem(err, "an array", want);
	if (ck_mul_over(n, size, &bytes) || bytes > SIZE_MAX / 2)
		return ck_fail_nomem(err, "an array", want);
	/* '*arr' is a pointer to any type: copied, so that no type is pretended. */
	memcpy(&q, arr, sizeof(q));
	q = ck_realloc(q, bytes);
	if (!q)
		return ck_fail_nomem(err, "an array", bytes);
	memcpy(arr, &q, sizeof(q));
	*cap = n;
	return 0;
}
