/* ck_fdpool.c -- see ck_fdpool.h.  One lock around the list; nothing is read under it. */
#include "libckpt/io/ck_fdpool.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"

struct ck_fdpool {
	pthread_mutex_t lock;	/* guards the list and every fd, pins */
	uint32_t max_open, nopen;
	struct ck_pooled *first, *last;
	_Atomic uint64_t bytes;
	bool drop;
	struct ck_mount *mount;
	struct ck_stamps *stamps;	/* of sources */
	bool lent;			/* they are another pool's */
};

/* What the process may open besides: folders, records, standard streams, other pools. */
#define NOT_OURS 32u

/* Half of what is left of a small limit: a listing must not find every descriptor taken. */
static uint32_t within_limit(uint32_t max_open)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) || lim.rlim_cur == RLIM_INFINITY)
		return max_open;
	if (lim.rlim_cur <= NOT_OURS + 2)
		return 1;
	return (uint32_t)ck_min_u64(max_open, (lim.rlim_cur - NOT_OURS) / 2);
}

struct ck_fdpool *ck_fdpool_new_of(struct ck_fdpool *of, uint32_t max_open)
{
	struct ck_fdpool *pool = ck_zalloc(sizeof(*pool));

	if (!pool)
		return NULL;
	pool->stamps = of ? of->stamps : ck_stamps_new();
	pool->lent = of;
	if (!pool->stamps) {
		ck_free(pool);
		return NULL;
	}
	pthread_mutex_init(&pool->lock, NULL);
	pool->max_open = within_limit(max_open ? max_open : CK_SRC_MAX_OPEN);
	return pool;
}

struct ck_fdpool *ck_fdpool_new(uint32_t max_open)
{
	return ck_fdpool_new_of(NULL, max_open);
}

void ck_fdpool_free(struct ck_fdpool *pool)
{
	if (!pool)
		return;
	if (pool->mount)
		pool->mount->free(pool->mount);
	if (!pool->lent)
		ck_stamps_free(pool->stamps);
	pthread_mutex_destroy(&pool->lock);
	ck_free(pool);
}

uint64_t ck_fdpool_bytes(const struct ck_fdpool *pool)
{
	return atomic_load(&pool->bytes);
}

void ck_fdpool_count(struct ck_fdpool *pool, uint64_t n)
{
	atomic_fetch_add(&pool->bytes, n);
}

void ck_fdpool_set_drop(struct ck_fdpool *pool, bool drop)
{
	pool->drop = drop;
}

bool ck_fdpool_drops(const struct ck_fdpool *pool)
{
	return pool->drop;
}

void ck_fdpool_set_mount(struct ck_fdpool *pool, struct ck_mount *mount)
{
	pool->mount = mount;
}

const struct ck_mount *ck_fdpool_mount(const struct ck_fdpool *pool)
{
	return pool ? pool->mount : NULL;
}

static void list_remove(struct ck_fdpool *pool, struct ck_pooled *f)
{
	*(f->prev ? &f->prev->next : &pool->first) = f->next;
	*(f->next ? &f->next->prev : &pool->last) = f->prev;
	f->prev = f->next = NULL;
}

static void list_front(struct ck_fdpool *pool, struct ck_pooled *f)
{
	f->next = pool->first;
	if (pool->first)
		pool->first->prev = f;
	else
		pool->last = f;
	pool->first = f;
}

static void fd_close(struct ck_fdpool *pool, struct ck_pooled *f)
{
	list_remove(pool, f);
	if (ck_close(f->fd) && !f->close_errno)
		f->close_errno = errno;
	f->fd = -1;
	pool->nopen--;
}

/* Close the idle file used longest ago; false if all are in use. */
static bool close_one(struct ck_fdpool *pool)
{
	struct ck_pooled *f = pool->last;

	while (f && f->pins)
		f = f->prev;
	if (f)
		fd_close(pool, f);
	return f;
}

/* The file that was opened first, or a sentence why not.  Of ours only the name counts. */
static int check_same(struct ck_pooled *f, const struct stat *st, struct ckpt_err *err)
{
	struct ck_stamp now;

	ck_stamp_of(st, &now);
	if (!f->known) {
		f->stamp = now;
		f->known = true;
	}
	if ((f->flags & O_ACCMODE) != O_RDONLY) {
		now.bytes = f->stamp.bytes;
		now.mtime_ns = f->stamp.mtime_ns;
	}
	return ck_stamp_compare(f->path, &f->stamp, &now, err);
}

static int fd_open(struct ck_fdpool *pool, struct ck_pooled *f, struct ckpt_err *err)
{
	const int flags = f->known ? f->flags & ~O_CREAT : f->flags;
	struct stat st;
	int fd, rc;

	while (pool->nopen >= pool->max_open && close_one(pool))
		;
	do {
		fd = ck_open(f->path, flags, 0666);
		if (fd < 0 && errno != EMFILE)
			return ck_fail_sys(err, errno, "open", f->path);
	} while (fd < 0 && close_one(pool));
	if (fd < 0)
		return ck_fail_sys(err, EMFILE, "open", f->path);
	rc = ck_sys.fstat(fd, &st) ? ck_fail_sys(err, errno, "fstat", f->path) :
	     check_same(f, &st, err);
	if (rc) {
		ck_close(fd);
		return rc;
	}
	f->fd = fd;
	pool->nopen++;
	return 0;
}

int ck_fdpool_pin(struct ck_fdpool *pool, struct ck_pooled *f, struct ckpt_err *err)
{
	int rc = 0;

	pthread_mutex_lock(&pool->lock);
	if (f->fd >= 0)
		list_remove(pool, f);
	else
		rc = fd_open(pool, f, err);
	if (!rc) {
		list_front(pool, f);
		f->pins++;
	}
	pthread_mutex_unlock(&pool->lock);
	return rc;
}

void ck_fdpool_unpin(struct ck_fdpool *pool, struct ck_pooled *f)
{
	pthread_mutex_lock(&pool->lock);
	f->pins--;
	pthread_mutex_unlock(&pool->lock);
}

int ck_fdpool_note_source(struct ck_fdpool *pool, struct ck_pooled *f, struct ckpt_err *err)
{
	return ck_stamps_note(pool->stamps, f->path, f->fd, &f->stamp, err);
}

static int held_as(void *arg, const char *path)
{
	const struct ck_fdpool *pool = arg;

	for (const struct ck_pooled *f = pool->first; f; f = f->next)
		if (!strcmp(f->path, path))
			return f->fd;
	return -1;
}

/* What half-written files look like to who reads them. */
static bool may_be_explained(int rc)
{
	return rc == -CKPT_E_CORRUPT || rc == -CKPT_E_TRUNCATED || rc == -CKPT_E_FORMAT ||
	       rc == -CKPT_E_NOTFOUND;
}

int ck_fdpool_check(struct ck_fdpool *pool, int rc, struct ckpt_err *err)
{
	struct ckpt_err why = { 0 };
	int changed;

	if (rc && !may_be_explained(rc))
		return rc;
	pthread_mutex_lock(&pool->lock);
	changed = ck_stamps_check(pool->stamps, held_as, pool, &why);
	pthread_mutex_unlock(&pool->lock);
	if (!changed || (rc && changed != -CKPT_E_MISMATCH))
		return rc;
	if (err)
		*err = why;
	return changed;
}

int ck_fdpool_check_one(struct ck_fdpool *pool, const char *path, struct ckpt_err *err)
{
	int rc;

	pthread_mutex_lock(&pool->lock);
	rc = ck_stamps_check_one(pool->stamps, path, held_as, pool, err);
	pthread_mutex_unlock(&pool->lock);
	return rc;
}

struct ck_stamps *ck_fdpool_stamps(struct ck_fdpool *pool)
{
	return pool->stamps;
}

int ck_fdpool_close(struct ck_fdpool *pool, struct ck_pooled *f, struct ckpt_err *err)
{
	int failed;

	pthread_mutex_lock(&pool->lock);
	if (f->fd >= 0)
		fd_close(pool, f);
	failed = f->close_errno;
	f->close_errno = 0;
	pthread_mutex_unlock(&pool->lock);
	return failed ? ck_fail_sys(err, failed, "close", f->path) : 0;
}
