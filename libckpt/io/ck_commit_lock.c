/* ck_commit_lock.c -- the lock of a partial folder; see ck_commit.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/file.h>
#include <time.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_commit.h"

#define NAP_NS 2000000L

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Asked again and again: a call that waits could not be ended. */
int ck_commit_lock(const struct ck_commit *c, int *lock_out, struct ckpt_err *err)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };
	const uint64_t until = now_ms() + c->lock_ms;
	bool got;

	while (!(got = ck_commit_try_lock(c, lock_out)) && now_ms() < until)
		nanosleep(&nap, NULL);
	if (got)
		return 0;
	return ck_fail(err, CKPT_E_BUSY, c->partial, CKPT_NO_OFFSET,
		       "another process has had the lock of this folder for %" PRIu32 " ms, which "
		       "takes moments: is it stopped, or does its disk hang?", c->lock_ms);
}

bool ck_commit_try_lock(const struct ck_commit *c, int *lock_out)
{
	const int fd = ck_open(c->partial, O_RDONLY | O_DIRECTORY, 0);
	const bool got = fd >= 0 && !ck_flock(fd, LOCK_EX | LOCK_NB);
	const bool taken = fd >= 0 && !got && errno == EWOULDBLOCK;

	*lock_out = got ? fd : -1;
	if (!got)
		ck_commit_unlock(fd);
	return !taken;
}

void ck_commit_unlock(int lock)
{
	if (lock >= 0)
		ck_close(lock);
}
