/* en_find_lock.c -- one run at a time saves in a folder; see en_find.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "engine/checkpoint/en_find.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define NAME ".ztrain.zckpt-lock"
#define MOST_TURNS 16

/* Another one may have ended, and taken the file away, between open and lock. */
static bool is_there(const char *path, int fd)
{
	struct stat mine, there;

	return !ck_sys.fstat(fd, &mine) && !ck_sys.stat(path, &there) &&
	       mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

static int fail_busy(const char *dir, int fd, struct ckpt_err *err)
{
	char who[128] = "";
	const ssize_t n = ck_sys.pread(fd, who, sizeof(who) - 1, 0);

	who[n > 0 ? n : 0] = 0;
	who[strcspn(who, "\n")] = 0;
	return ck_fail(err, CKPT_E_BUSY, dir, CKPT_NO_OFFSET,
		       "another run saves in this folder (%s); give --save a different folder",
		       *who ? who : "unknown process");
}

/* What it points to would be written over. */
static int fail_link(const char *path, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_IO, path, CKPT_NO_OFFSET,
		       "the lock file is a symbolic link; no run creates one: remove it");
}

static void sign(int fd)
{
	char text[128], host[64] = "";

	gethostname(host, sizeof(host) - 1);
	snprintf(text, sizeof(text), "process %ld on %s\n", (long)getpid(), host);
	if (!ck_sys.ftruncate(fd, 0))
		(void)!ck_sys.pwrite(fd, text, strlen(text), 0);
}

int en_lock_folder(const char *dir, int *lock_out, struct ckpt_err *err)
{
	char *path = ck_asprintf("%s/" NAME, dir);
	int rc = path ? 0 : ck_fail_nomem(err, "a path", strlen(dir));

	*lock_out = -1;
	for (int turn = 0; !rc && *lock_out < 0 && turn < MOST_TURNS; turn++) {
		const int fd = ck_open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);

		if (fd < 0) {
			rc = errno == ELOOP ? fail_link(path, err) :
			     ck_fail_sys(err, errno, "open", path);
			break;
		}
		if (!ck_flock(fd, LOCK_EX | LOCK_NB)) {
			if (is_there(path, fd)) {
				sign(fd);
				*lock_out = fd;
				break;
			}
		} else if (errno == EWOULDBLOCK) {
			rc = fail_busy(dir, fd, err);
		} else {	/* no locks here: steps that come meanwhile are seen at the save */
			ck_close(fd);
			ck_sys.unlink(path);
			break;
		}
		ck_close(fd);
	}
	ck_free(path);
	return rc;
}

void en_unlock_folder(const char *dir, int lock)
{
	char *path = lock < 0 ? NULL : ck_asprintf("%s/" NAME, dir);

	if (path)
		ck_sys.unlink(path);
	if (lock >= 0)
		ck_close(lock);
	ck_free(path);
}
