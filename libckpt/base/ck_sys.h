/*
 * ck_sys.h -- the one table through which the library meets the system.
 *
 * Every allocation and every call on a file of the library goes through it, so a
 * test can make the N-th call fail and see what the caller is left with (check-names.sh
 * sees to it: only ck_sys.o refers to such calls).  The
 * table is written only by tests, before any thread starts; in a program it stays
 * as it is, and the library has no other mutable global state.
 */
#ifndef CK_SYS_H
#define CK_SYS_H

#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/vfs.h>

#include "libckpt/base/ck_base.h"

/*
 * What a sync is for.  Each has one place in the library, and a test leaves them out one by one
 * (docs/internals/power-cuts.md).
 */
enum ck_synced {
	CK_SYNCED_FILES = 1,		/* the bytes of a result */
	CK_SYNCED_SUMS,			/* sums that a committer adds to them */
	CK_SYNCED_NAMES,		/* the names of its files, before its part has ended */
	CK_SYNCED_PARTIAL,		/* the names of 'data' and of the record, likewise */
	CK_SYNCED_PARENTS,		/* folders above the result that were missing */
	CK_SYNCED_BEGUN,		/* the partial folder's name, before folders trade places */
	CK_SYNCED_ENTRY,		/* the record says which folder goes to its place */
	CK_SYNCED_BESIDE,		/* files in folders beside the step, before 'latest' */
	CK_SYNCED_STEP,			/* the step and what is beside it, before 'latest' */
	CK_SYNCED_LATEST,		/* 'latest' of a step that was put beside others */
	CK_SYNCED_KEPT,			/* files of a replaced folder, before the rest of it goes */
	CK_SYNCED_PLACED,		/* the result's name */
	CK_SYNCED_GONE,			/* the partial folder is no longer there */
	CK_SYNCED_HALF,			/* the bytes of one small file: 'latest', a manifest */
	CK_SYNCED_HALF_NAME,
	CK_SYNCED_ASIDE,		/* a step has a hidden name, before it is removed */
	CK_SYNCED_TRADED,		/* a step and its slim copy have traded places, likewise */
	CK_SYNCED_END			/* no sync; one more than there are */
};

struct ck_sys {
	void *(*realloc)(void *p, size_t n);
	void (*free)(void *p);
	int (*open)(const char *path, int flags, mode_t mode);
	int (*close)(int fd);
	ssize_t (*pread)(int fd, void *p, size_t n, off_t off);
	ssize_t (*pwrite)(int fd, const void *p, size_t n, off_t off);
	ssize_t (*write)(int fd, const void *p, size_t n);
	int (*fstat)(int fd, struct stat *st);
	int (*stat)(const char *path, struct stat *st);
	int (*lstat)(const char *path, struct stat *st);
	int (*access)(const char *path, int mode);
	int (*statvfs)(const char *path, struct statvfs *st);
	int (*statfs)(const char *path, struct statfs *st);
	char *(*realpath)(const char *path, char *out);	/* PATH_MAX bytes */
	int (*fallocate)(int fd, off_t off, off_t len);
	int (*fadvise)(int fd, off_t off, off_t len, int advice);
	int (*ftruncate)(int fd, off_t len);
	int (*fsync)(int fd, enum ck_synced what);
	int (*fdatasync)(int fd, enum ck_synced what);
	int (*flock)(int fd, int op);
	int (*mkdir)(const char *path, mode_t mode);
	int (*rmdir)(const char *path);
	int (*unlink)(const char *path);
	int (*rename)(const char *from, const char *to, unsigned flags);
	int (*link)(const char *from, const char *to);
	int (*clone)(int to, int from);	/* the whole file, with shared blocks */
	void *(*map)(int fd, size_t n);	/* the file's first bytes, to be written; NULL = no */
	int (*unmap)(void *p, size_t n);
	/* Whole pages of a map: they are there, or -1 (never a signal); they need not stay. */
	int (*populate)(void *p, size_t n);
	int (*forget)(void *p, size_t n);
	DIR *(*opendir)(const char *path);
	struct dirent *(*readdir)(DIR *dir);
	int (*closedir)(DIR *dir);
	/* 0 or an errno, as pthread_create() */
	int (*thread)(pthread_t *thread, void *(*fn)(void *), void *arg);
};

extern struct ck_sys ck_sys;

/*
 * Calls that a signal may interrupt: they are made again.  (What reads and writes does so where it
 * goes on after a short one.)  An interrupted close has closed and is none, as Linux has it.
 */
int ck_open(const char *path, int flags, mode_t mode);
int ck_close(int fd);
DIR *ck_opendir(const char *path);
int ck_statvfs(const char *path, struct statvfs *st);
int ck_fallocate(int fd, off_t off, off_t len);
int ck_ftruncate(int fd, off_t len);
int ck_fsync(int fd, enum ck_synced what);
int ck_fdatasync(int fd, enum ck_synced what);
int ck_flock(int fd, int op);

/* A thread that no signal goes to: these are for the program's own.  0 or an errno. */
int ck_thread(pthread_t *thread, void *(*fn)(void *), void *arg);

/* NULL when there is no memory; n = 0 gives a pointer that may be freed. */
void *ck_alloc(size_t n);
void *ck_zalloc(size_t n);
void *ck_realloc(void *p, size_t n);
/* n * size with the product checked: NULL when it does not fit. */
void *ck_alloc_array(uint64_t n, size_t size);
void ck_free(void *p);
/* A copy of the string, NULL when there is no memory. */
char *ck_strdup(const char *s);
char *ck_strndup(const char *s, size_t n);
/* printf into new memory. */
char *ck_asprintf(const char *fmt, ...) CK_PRINTF(1, 2);

/*
 * Grow the array '*arr' of elements of 'size' bytes so that it has room for
 * 'want' of them; '*cap' is its capacity.  0 or -CKPT_E_NOMEM.
 */
int ck_grow(void *arr, uint64_t *cap, uint64_t want, size_t size, struct ckpt_err *err);

#endif
