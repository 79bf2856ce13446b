/* ck_commit_lock.c -- a partial folder: its records, its lock, its removal; see ck_commit.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_commit.h"
#include "libckpt/io/ck_fs.h"

#define NAP_NS 2000000L
#define MOST_TURNS 16	/* folders that are removed between open and lock */

char *ck_commit_record_path(const struct ck_commit *c, uint32_t part)
{
	return ck_asprintf("%s/part-%05u.rec", c->partial, part);
}

enum taken { TAKEN_BY_ME, TAKEN_BY_OTHER, TAKEN_AWAY };

/* A lock on a folder that was removed before the lock was taken excludes no other process. */
static bool is_gone(const struct ck_commit *c, int fd)
{
	struct stat mine, there;

	if (ck_sys.fstat(fd, &mine))
		return false;
	if (ck_sys.stat(c->partial, &there))
		return errno == ENOENT;
	return mine.st_dev != there.st_dev || mine.st_ino != there.st_ino;
}

static enum taken take_lock(const struct ck_commit *c, int *lock_out)
{
	*lock_out = -1;
	for (int turn = 0; turn < MOST_TURNS; turn++) {
		const int fd = ck_open(c->partial, O_RDONLY | O_DIRECTORY, 0);
		const bool got = fd >= 0 && !ck_flock(fd, LOCK_EX | LOCK_NB);
		const int failed = got ? 0 : errno;

		if (got && !is_gone(c, fd)) {
			*lock_out = fd;
			return TAKEN_BY_ME;
		}
		ck_commit_unlock(fd);
		if (!got)
			return fd < 0 && failed == ENOENT ? TAKEN_AWAY :
			       fd >= 0 && failed == EWOULDBLOCK ? TAKEN_BY_OTHER : TAKEN_BY_ME;
	}
	return TAKEN_BY_OTHER;
}

/* Asked again and again: a call that waits could not be ended. */
int ck_commit_lock(const struct ck_commit *c, int *lock_out, struct ckpt_err *err)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };
	const int64_t until = ck_clock_ms() + c->lock_ms;
	enum taken by;

	while ((by = take_lock(c, lock_out)) == TAKEN_BY_OTHER && ck_clock_ms() < until)
		nanosleep(&nap, NULL);
	if (by == TAKEN_BY_ME)
		return 0;
	if (by == TAKEN_AWAY)
		return ck_fail_sys(err, ENOENT, "open", c->partial);
	return ck_fail(err, CKPT_E_BUSY, c->partial, CKPT_NO_OFFSET,
		       "another process has held the lock of this folder for %" PRIu32 " ms "
		       "instead of a moment: is it stopped, or does its disk hang?", c->lock_ms);
}

bool ck_commit_try_lock(const struct ck_commit *c, int *lock_out)
{
	return take_lock(c, lock_out) != TAKEN_BY_OTHER;
}

void ck_commit_remove_empty(const struct ck_commit *c)
{
	int lock;

	if (take_lock(c, &lock) == TAKEN_BY_ME)
		ck_sys.rmdir(c->partial);
	ck_commit_unlock(lock);
}

void ck_commit_unlock(int lock)
{
	if (lock >= 0)
		ck_close(lock);
}

static int check_idle(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	struct ck_record_seen seen = { 0 };
	struct ck_record *rec = NULL;
	struct ckpt_err inner = { 0 };
	char *path;
	int rc;

	(void)arg;
	if (strncmp(name, "part-", 5))
		return 0;
	path = ck_fs_join(dir, name);
	rc = path ? ck_record_claim(path, &rec, &seen, &inner) :
	     ck_fail_nomem(err, "a file name", strlen(name));
	if ((rc == -CKPT_E_BUSY || rc == -CKPT_E_NOMEM) && err && !err->code)
		*err = inner;
	ck_record_close(rec);
	ck_free(path);
	return rc == -CKPT_E_BUSY || rc == -CKPT_E_NOMEM ? rc : 0;
}

int ck_commit_drop_all(const struct ck_commit *c, ck_commit_may_go *may_go, void *arg,
		       struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	int lock, rc = ck_commit_lock(c, &lock, &inner);

	if (rc == -CKPT_E_NOTFOUND)	/* another process has just removed it */
		return 0;
	if (rc && err && !err->code)
		*err = inner;
	if (rc)
		return rc;
	rc = ck_fs_each(c->partial, check_idle, NULL, err);
	if (!rc && may_go && !may_go(c, arg))
		rc = ck_fail(err, CKPT_E_BUSY, c->partial, CKPT_NO_OFFSET,
			     "another process started a part here at the same time");
	if (!rc)
		rc = ck_fs_remove_tree(c->partial, err);
	ck_commit_unlock(lock);
	return rc;
}
