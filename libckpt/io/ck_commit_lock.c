/* ck_commit_lock.c -- the lock of a partial folder; see ck_commit.h. */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_commit.h"

int ck_commit_lock(const struct ck_commit *c)
{
	const int fd = ck_open(c->partial, O_RDONLY | O_DIRECTORY, 0);

	if (fd >= 0 && !ck_flock(fd, LOCK_EX))
		return fd;
	ck_commit_unlock(fd);
	return -1;
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
