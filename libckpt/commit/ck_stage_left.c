/*
 * ck_stage_left.c -- what a run of another process left at a destination: it is settled, finished
 * or discarded; see ck_stage.h.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_commit.h"
#include "libckpt/commit/ck_result_sums.h"
#include "libckpt/commit/ck_source_sums.h"
#include "libckpt/commit/ck_stage.h"

#define POLL_MS 50

/*
 * The paths of a result whose kind only its record knows, and the locked record of part 0: claimed
 * under the folder's lock, since parts that begin there must not find it taken.  '*lock_out' may be
 * held after a failure, too.
 */
static int claim_first(struct ck_commit *c, const char *dst, int *lock_out,
		       struct ck_record **rec_out, struct ck_record_seen *seen,
		       struct ckpt_err *err)
{
	char *path;
	int rc;

	*lock_out = -1;
	*seen = (struct ck_record_seen){ 0 };
	rc = ck_commit_init(c, dst, true, err);
	if (!rc)
		rc = ck_commit_lock(c, lock_out, err);
	if (rc)
		return rc;
	path = ck_commit_record_path(c, 0);
	rc = path ? ck_record_claim(path, rec_out, seen, err) :
	     ck_fail_nomem(err, "a file name", strlen(dst));
	ck_free(path);
	if (!rc)
		c->step = seen->head.step;
	if (!rc && !(seen->head.flags & CK_RECORD_DIR)) {
		ck_commit_release(c);
		rc = ck_commit_init(c, dst, false, err);
	}
	return rc;
}

static bool nothing_begun(const struct ck_commit *c)
{
	struct stat st;

	return ck_sys.stat(c->partial, &st) && errno == ENOENT;
}

/*
 * Wait for part 0's end entry and claim its record.  A record whose part has not ended is let
 * go at once, so that the part can be started again.
 */
static int wait_for_first(struct ck_commit *c, const char *dst, int64_t until,
			  struct ck_record **rec_out, struct ck_record_seen *seen,
			  struct ckpt_err *err)
{
	const struct timespec nap = { .tv_nsec = POLL_MS * 1000000L };

	for (;;) {
		struct ck_record *rec = NULL;
		struct ckpt_err inner = { 0 };
		int lock;
		const int rc = claim_first(c, dst, &lock, &rec, seen, &inner);

		ck_commit_unlock(lock);
		if (!rc && seen->ended) {
			*rec_out = rec;
			return 0;
		}
		ck_record_close(rec);
		if (rc && rc != -CKPT_E_BUSY && rc != -CKPT_E_NOTFOUND && rc != -CKPT_E_CORRUPT) {
			if (err && !err->code)
				*err = inner;
			return rc;
		}
		/* Emptied by a commit, or by parts that gave up, but for this. */
		if (ck_clock_ms() >= until && rc == -CKPT_E_NOTFOUND)
			ck_commit_remove_empty(c);
		/* parts are started first: without any there is nothing to wait for */
		if (rc == -CKPT_E_NOTFOUND && nothing_begun(c))
			return ck_fail(err, CKPT_E_NOTFOUND, c->partial, CKPT_NO_OFFSET,
				       "no unfinished parts at this destination: the run is "
				       "finished, or never started (--part I/N starts a part)");
		if (ck_clock_ms() >= until)
			return ck_fail(err, CKPT_E_INCOMPLETE, c->partial, CKPT_NO_OFFSET,
				       "part 1 is not finished (%s); start it with the same "
				       "command", rc == -CKPT_E_NOTFOUND ? "it was not begun" :
				       rc ? inner.msg : "it was interrupted");
		ck_commit_release(c);
		nanosleep(&nap, NULL);
	}
}

int ck_stage_settle(const char *dst, enum ckpt_sync sync, ck_is_ours_fn *is_ours,
		    bool *settled_out, struct ckpt_err *err)
{
	struct ck_commit c = { 0 };
	struct ck_record *rec = NULL;
	struct ck_record_seen seen = { 0 };
	struct ckpt_err inner = { 0 };
	int lock, rc = claim_first(&c, dst, &lock, &rec, &seen, &inner);
	const bool none = rc == -CKPT_E_NOTFOUND;

	*settled_out = false;
	/* No run, one that is at work, or one that was not so far: nothing to be done. */
	if (!rc && seen.ended && seen.placing)
		rc = ck_commit_tidy(&c, &seen, sync, is_ours, settled_out, err);
	else
		rc = 0;
	ck_record_close(rec);
	ck_commit_unlock(lock);
	if (none)
		ck_commit_remove_empty(&c);	/* killed when all but this was done */
	ck_commit_release(&c);
	return rc;
}

static int tidy_locked(const struct ck_commit *c, const struct ck_record_seen *seen,
		       enum ckpt_sync sync, ck_is_ours_fn *is_ours, bool *placed_out,
		       struct ckpt_err *err)
{
	int lock, rc = ck_commit_lock(c, &lock, err);

	if (rc)
		return rc;
	rc = ck_commit_tidy(c, seen, sync, is_ours, placed_out, err);
	ck_commit_unlock(lock);
	return rc;
}

int ck_stage_finish(const char *dst, uint32_t timeout_ms, enum ckpt_sync sync,
		    ck_is_ours_fn *is_ours, struct ckpt_err *err)
{
	const int64_t until = ck_clock_ms() + timeout_ms;
	struct ck_commit c = { 0 };
	struct ck_record *rec = NULL;
	struct ck_record_seen seen = { 0 };
	bool placed = false;
	int64_t left;
	int rc = wait_for_first(&c, dst, until, &rec, &seen, err);

	if (!rc)
		rc = tidy_locked(&c, &seen, sync, is_ours, &placed, err);
	if (!rc && !placed && (seen.head.flags & CK_RECORD_SESSION))
		rc = ck_fail(err, CKPT_E_INCOMPLETE, c.partial, CKPT_NO_OFFSET,
			     "this save is unfinished, and only the trainer that began it can "
			     "finish it; --discard deletes it");
	left = until - ck_clock_ms();
	if (!rc && !placed)
		rc = ck_commit_wait(&c, &seen.head, left > 0 ? (uint32_t)left : 0, err);
	if (!rc && !placed && seen.head.nparts > 1)
		rc = ck_source_sums_check(&c, seen.head.nparts, err);
	if (!rc && !placed && seen.head.nparts > 1)
		rc = ck_result_sums_fill(&c, seen.head.nparts, sync, err);
	if (!rc && !placed)
		rc = ck_commit_place(&c, rec, seen.head.flags & CK_RECORD_FORCE, sync, is_ours,
				     &placed, err);
	ck_record_close(rec);
	ck_commit_release(&c);
	return rc;
}

int ck_stage_discard_if(const char *dst, ck_is_ours_fn *is_ours,
			ck_commit_may_go *may_go, void *arg, struct ckpt_err *err)
{
	struct ck_record_seen seen = { 0 };
	struct ck_record *rec = NULL;
	struct ckpt_err inner = { 0 };
	struct ck_commit c = { 0 };
	bool placed = false;
	int lock, rc = claim_first(&c, dst, &lock, &rec, &seen, &inner);

	if (c.partial && nothing_begun(&c)) {
		rc = ck_fail(err, CKPT_E_NOTFOUND, c.partial, CKPT_NO_OFFSET,
			     "no run was begun for this destination");
	} else if (rc && rc != -CKPT_E_NOTFOUND && rc != -CKPT_E_CORRUPT &&
		   rc != -CKPT_E_UNSUPPORTED) {
		if (err && !err->code)
			*err = inner;
	} else {
		rc = ck_commit_tidy(&c, rec ? &seen : NULL, CKPT_SYNC_DATA, is_ours, &placed, err);
		ck_record_close(rec);
		ck_commit_unlock(lock);
		rec = NULL;
		lock = -1;
		if (!rc && !placed)
			rc = ck_commit_drop_all(&c, may_go, arg, err);
	}
	ck_record_close(rec);
	ck_commit_unlock(lock);
	ck_commit_release(&c);
	return rc;
}

int ck_stage_discard(const char *dst, ck_is_ours_fn *is_ours, struct ckpt_err *err)
{
	return ck_stage_discard_if(dst, is_ours, NULL, NULL, err);
}
