/*
 * ck_prune_do.c -- a step that goes, or loses its moments, where it is.
 *
 * Names that begin with a dot are nobody's step, so a step changes for readers in one rename; that
 * is on the disk before anything behind the hidden name is removed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/retain/ck_prune.h"
#include "libckpt/retain/ck_slim.h"

int ck_prune_lock(const char *dir, int *lock_out, struct ckpt_err *err)
{
	const int fd = ck_open(dir, O_RDONLY | O_DIRECTORY, 0);

	*lock_out = -1;
	if (fd < 0)
		return ck_fail_sys(err, errno, "open", dir);
	/* Other failures: a file system without locks. */
	if (!ck_flock(fd, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK) {
		*lock_out = fd;
		return 0;
	}
	ck_close(fd);
	return ck_fail(err, CKPT_E_BUSY, dir, CKPT_NO_OFFSET,
		       "another process is pruning this folder; wait until it is finished");
}

void ck_prune_unlock(int lock)
{
	if (lock >= 0)
		ck_close(lock);
}

static int sync_above(const char *path, enum ckpt_sync sync, enum ck_synced what,
		      struct ckpt_err *err)
{
	char *dir = ck_fs_parent(path);
	int rc = dir ? 0 : ck_fail_nomem(err, "a path", strlen(path));

	if (!rc && sync != CKPT_SYNC_NONE)
		rc = ck_fs_sync_dir(dir, what, err);
	ck_free(dir);
	return rc;
}

/* "DIR/.NAME" and the ending, new memory. */
static char *hidden(const char *path, const char *ending)
{
	const char *base = ck_fs_base(path);

	return ck_asprintf("%.*s.%s%s", (int)(base - path), path, base, ending);
}

/* ---- removing ---- */

/* What has a hidden name, also on the disk. */
static int drop(const char *path, enum ckpt_sync sync, struct ckpt_err *err)
{
	int rc = ck_fs_remove_tree(path, err);

	return rc || sync != CKPT_SYNC_FULL ? rc : sync_above(path, sync, CK_SYNCED_GONE, err);
}

int ck_prune_remove(const char *path, enum ckpt_sync sync, struct ckpt_err *err)
{
	char *aside = hidden(path, CK_STEPS_REMOVED);
	int rc = aside ? 0 : ck_fail_nomem(err, "a path", strlen(path));

	if (!rc && ck_fs_move_new(path, aside))
		rc = ck_fail_sys(err, errno, "move aside", path);
	if (!rc)
		rc = sync_above(path, sync, CK_SYNCED_ASIDE, err);
	if (!rc)
		rc = drop(aside, sync, err);
	ck_free(aside);
	return rc;
}

/* ---- without moments ---- */

/* Two steps where the file system has no exchange: the step is absent between them. */
static int trade_in_two(const char *slim, const char *path, bool *begun_out, struct ckpt_err *err)
{
	char *aside = hidden(path, CK_STEPS_REMOVED);
	int rc = 0, failed;

	if (!aside)
		return ck_fail_nomem(err, "a path", strlen(path));
	if (ck_fs_move_new(path, aside))
		rc = ck_fail_sys(err, errno, "move aside", path);
	if (!rc && ck_fs_move_new(slim, path)) {
		failed = errno;
		*begun_out = ck_fs_move_new(aside, path) != 0;
		rc = ck_fail_sys(err, failed, "rename", path);
	} else if (!rc) {
		*begun_out = true;
		if (ck_fs_move_new(aside, slim))
			rc = ck_fail_sys(err, errno, "rename", aside);
	}
	ck_free(aside);
	return rc;
}

/* The old step stands at 'slim' then.  '*begun_out': not only there, or nobody knows. */
static int trade(const char *slim, const char *path, enum ckpt_sync sync, bool *begun_out,
		 struct ckpt_err *err)
{
	int rc = 0;

	if (ck_sys.rename(slim, path, CK_RENAME_EXCHANGE)) {
		if (errno != EINVAL && errno != ENOSYS)
			return ck_fail_sys(err, errno, "exchange folders", path);
		rc = trade_in_two(slim, path, begun_out, err);
	} else {
		*begun_out = true;
	}
	return rc ? rc : sync_above(path, sync, CK_SYNCED_TRADED, err);
}

static int open_step(const struct ck_formats *formats, const char *path,
		     const struct ckpt_prune_opts *o, struct ckpt **ck_out, struct ckpt_err *err)
{
	const struct ckpt_open_opts opts = {
		.size = sizeof(opts), .threads = o->run->threads, .limits = o->limits,
	};

	return ck_ckpt_open(formats, &path, 1, &opts, ck_out, err);
}

/* The copy must be a step, or the old one stays. */
static int check(const struct ck_formats *formats, const char *slim,
		 const struct ckpt_prune_opts *o, struct ckpt_err *err)
{
	struct ck_arena arena = CK_ARENA_INIT;
	const char *why = NULL;
	int rc = ck_steps_verify(formats, slim, 0, o->run, o->limits, &arena, &why, err);

	if (!rc && why)
		rc = ck_fail(err, CKPT_E_CORRUPT, slim, CKPT_NO_OFFSET,
			     "the copy without moments fails its check (%s); the step is "
			     "unchanged", why);
	ck_arena_release(&arena);
	return rc;
}

/* What is not begun leaves nothing; what is, the next prune ends. */
static void give_up(const char *slim)
{
	char *partial = ck_asprintf("%s.zckpt-partial", slim);

	ck_fs_remove_tree(slim, NULL);
	if (partial)
		ck_fs_remove_tree(partial, NULL);
	ck_free(partial);
}

static int replace(struct ckpt *ck, const struct ck_slim_ask *ask, const char *path,
		   const struct ckpt_prune_opts *o, struct ckpt_err *err)
{
	bool begun = false;
	int rc = ck_slim(ck, ask, NULL, err);

	if (!rc)
		rc = check(ck->formats, ask->dst, o, err);
	if (!rc)
		rc = trade(ask->dst, path, o->run->sync, &begun, err);
	if (!rc)
		rc = drop(ask->dst, o->run->sync, err);
	else if (!begun)
		give_up(ask->dst);
	return rc;
}

int ck_prune_slim(const struct ck_formats *formats, const char *path,
		  const struct ckpt_prune_opts *o, bool apply, struct ck_prune_slimmed *out,
		  struct ckpt_err *err)
{
	char *to = hidden(path, CK_STEPS_SLIM);
	struct ck_slim_ask ask = { .run = o->run, .what = CKPT_SLIM_MOMENTS, .bare = true };
	struct ckpt_slimmed done = { 0 };
	struct ckpt *ck = NULL;
	int rc = to ? open_step(formats, path, o, &ck, err) :
		 ck_fail_nomem(err, "a path", strlen(path));

	*out = (struct ck_prune_slimmed){ 0 };
	if (!rc && !ck_slim_rewrites(ck))
		snprintf(out->format, sizeof(out->format), "%s", ck->ix.format);
	else if (!rc)
		rc = ck_slim(ck, &ask, &done, err);
	out->freed = done.moments_bytes && done.after_bytes < done.before_bytes ?
		     done.before_bytes - done.after_bytes : 0;
	out->copy = out->freed ? done.after_bytes : 0;
	ck_arena_free(done.memory);
	ask.dst = to;
	if (!rc && apply && out->freed)
		rc = replace(ck, &ask, path, o, err);
	ckpt_close(ck);
	ck_free(to);
	return rc;
}

/* ---- after a kill ---- */

/*
 * A copy was whole before it got its name, and until it trades places with the step both are
 * there.  So it goes if the step is there, whichever of the two it is, and else takes its place.
 */
static int settle_slim(const char *path, enum ckpt_sync sync, struct ckpt_err *err)
{
	const char *base = ck_fs_base(path);
	const size_t n = strlen(base) - 1 - strlen(CK_STEPS_SLIM);
	char *step = ck_asprintf("%.*s%.*s", (int)(base - path), path, (int)n, base + 1);
	struct stat st;
	int rc = 0;

	if (!step)
		return ck_fail_nomem(err, "a path", strlen(path));
	if (!ck_sys.lstat(step, &st))
		rc = drop(path, sync, err);
	else if (errno != ENOENT)
		rc = ck_fail_sys(err, errno, "stat", step);
	else if (ck_fs_move_new(path, step))
		rc = ck_fail_sys(err, errno, "rename", step);
	else
		rc = sync_above(step, sync, CK_SYNCED_TRADED, err);
	ck_free(step);
	return rc;
}

int ck_prune_settle(const char *path, enum ckpt_sync sync, struct ckpt_err *err)
{
	const size_t n = strlen(path), k = strlen(CK_STEPS_SLIM);

	/* Whoever renamed it may not have come to this. */
	int rc = sync_above(path, sync, CK_SYNCED_ASIDE, err);

	if (!rc && n > k && !strcmp(path + n - k, CK_STEPS_SLIM))
		return settle_slim(path, sync, err);
	return rc ? rc : drop(path, sync, err);
}
