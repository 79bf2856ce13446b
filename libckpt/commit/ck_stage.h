/*
 * ck_stage.h -- the commit protocol of all writers (docs/formats/partial.md): output grows
 * beside its destination and is renamed into place when it is complete.
 *
 *	begin -> file (each) -> write, note (any threads) -> end -> commit
 *	                                                  or abort at any time
 *
 * abort after commit is a no-op, as is abort of NULL.
 */
#ifndef CK_STAGE_H
#define CK_STAGE_H

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_hash.h"
#include "libckpt/commit/ck_commit.h"

struct ck_fdpool;

struct ck_stage_opts {
	const char *dst;
	bool is_dir;			/* the result is a folder */
	bool force;			/* replace what is at dst */
	bool restart;			/* drop what a killed run left (one part only) */
	enum ckpt_sync sync;
	uint32_t part, nparts;		/* nparts >= 1 */
	uint64_t nunits;
	uint64_t total_bytes;		/* of all files, for the check of free space */
	struct ck_hash128 plan, fingerprint;
	/*
	 * The files that are read, all of which were looked at.  What a killed run wrote of files
	 * that have changed since then is dropped; a part of another source is refused; and end()
	 * fails if any has changed by then.  NULL = nothing is read.
	 */
	struct ck_fdpool *sources;
	/*
	 * With force and is_dir: true for a file of the old folder that the new one, which holds
	 * 'fresh', replaces; so too when some of what is kept is in 'fresh'.  Others are kept.
	 * NULL = none is kept.  It also decides for a run of another
	 * plan that was killed while it replaced a folder, whose end begin() brings about.
	 */
	ck_is_ours_fn *is_ours;
	/*
	 * The result may go into a folder that is there and holds something (ck_place.h), with
	 * its folder of this name as one; NULL = not.  Then 'check' decides if what is
	 * there stands in the way, before anything is written.
	 */
	const char *step;
	int (*check)(void *arg, struct ckpt_err *err);
	void *check_arg;
	/*
	 * A save session: 'fingerprint' is the job's, 'nunits' counts its saves, and nothing is
	 * gone on with.  What another job or an earlier save left here, and no process holds, is
	 * dropped.
	 * CKPT_E_MISMATCH: another part of the same save has another 'plan'.
	 */
	bool session;
	uint32_t writers;	/* threads that write a file at the same time, if it is said */
	uint32_t lock_ms;	/* for the lock of the partial folder (300,000): CKPT_E_BUSY */
};

struct ck_stage;

/*
 * Look at dst, make or take over the partial folder, lock this part's record.
 * CKPT_E_EXISTS (dst is there; or another plan or source was begun here), CKPT_E_BUSY,
 * CKPT_E_NOSPACE, CKPT_E_NOTFOUND (the parent folder), CKPT_E_IO.  If a killed run had finished
 * but for tidying up, that is done and ck_stage_is_done() is true.  On failure nothing is left
 * that was not there before.
 */
int ck_stage_begin(const struct ck_stage_opts *opts, struct ck_stage **stage_out,
		   struct ckpt_err *err);
bool ck_stage_is_done(const struct ck_stage *stage);
/* Whether this part continues what an earlier process began. */
bool ck_stage_is_continued(const struct ck_stage *stage);
/* Lent. */
const struct ck_commit *ck_stage_paths(const struct ck_stage *stage);

/*
 * Make a file of the result and take its space.  '*file_out' numbers it.  One thread, before
 * the first write.  At most 32 of them are open at a time.
 */
int ck_stage_file(struct ck_stage *stage, const char *name, uint64_t bytes,
		  uint32_t *file_out, struct ckpt_err *err);

/* The same for a file that another part makes too, and takes the space of. */
int ck_stage_file_of_other(struct ck_stage *stage, const char *name, uint32_t *file_out,
			   struct ckpt_err *err);

/* The same, which is read only. */
int ck_stage_file_to_read(struct ck_stage *stage, const char *name, uint32_t *file_out,
			  struct ckpt_err *err);
/*
 * A file of the result that is a further name of the file at 'from': it is synced and never
 * written.  '*made_out' is false where the file system has no such thing, or no more of it: then
 * nothing was done.
 */
int ck_stage_file_linked(struct ck_stage *stage, const char *name, const char *from,
			 uint32_t *file_out, bool *made_out, struct ckpt_err *err);

/* A folder that may be there. */
int ck_stage_make_dir(const char *path, bool *made_out, struct ckpt_err *err);

/* More threads than this write one of its files no faster; UINT32_MAX where they do no harm. */
uint32_t ck_stage_useful_writers(const struct ck_stage *stage);

/* Any threads.  CKPT_E_NOSPACE, CKPT_E_IO. */
int ck_stage_write(struct ck_stage *stage, uint32_t file, uint64_t off, const void *p,
		   size_t n, struct ckpt_err *err);
int ck_stage_read(struct ck_stage *stage, uint32_t file, uint64_t off, void *p, size_t n,
		  struct ckpt_err *err);

/* Unit 'unit' is written and its bytes have this hash.  Any threads. */
int ck_stage_note(struct ck_stage *stage, uint64_t unit, struct ck_hash128 hash,
		  struct ckpt_err *err);
/* True if the record of an earlier process has the unit; the bytes must be verified. */
bool ck_stage_noted(const struct ck_stage *stage, uint64_t unit, struct ck_hash128 *hash_out);

/*
 * Sums of a result of several parts, after all notes: a piece of CRC 'sum' that this part wrote
 * (bytes 0: 'off' is the sum's length), and a place of it.  The committer joins and fills.
 */
int ck_stage_sum(struct ck_stage *stage, uint32_t sum, uint64_t off, uint64_t bytes,
		 uint32_t crc, struct ckpt_err *err);
int ck_stage_sum_place(struct ck_stage *stage, uint32_t sum, uint32_t file, uint64_t off,
		       struct ckpt_err *err);
/* The same for a sum of 128 bits: what this part adds to it, and its place. */
int ck_stage_term(struct ck_stage *stage, uint32_t sum, struct ck_hash128 term,
		  struct ckpt_err *err);
int ck_stage_term_place(struct ck_stage *stage, uint32_t sum, uint32_t file, uint64_t off,
			struct ckpt_err *err);
/* And where the hash of the first 'bytes' bytes of a file goes, which is a place in them. */
int ck_stage_head(struct ck_stage *stage, uint64_t bytes, uint32_t file, uint64_t off,
		  struct ckpt_err *err);
/* What it saw of the source (CK_RECORD_READ_CRC and on). */
int ck_stage_read_sum(struct ck_stage *stage, const struct ck_record_sum *sum,
		      struct ckpt_err *err);

/* All that this part wrote so far goes to the disk, as the sync policy has it. */
int ck_stage_flush(struct ck_stage *stage, struct ckpt_err *err);
/* All units of this part are written: look at the sources once more, flush, and say so in its
 * record.  CKPT_E_MISMATCH if a source has changed. */
int ck_stage_end(struct ck_stage *stage, struct ckpt_err *err);
/*
 * Wait for the other parts ('timeout_ms'), sync, rename, tidy up.  By the process of part 0.  A
 * failure may come after the result was put into place (the sync of a folder, say): then
 * ck_stage_is_done() is true, and the same run again finishes the tidying up.
 */
int ck_stage_commit(struct ck_stage *stage, uint32_t timeout_ms, struct ckpt_err *err);
/* Remove what was written (unless committed, or other parts still write). */
void ck_stage_abort(struct ck_stage *stage);
/* Close without touching the disk: what a process leaves when it only wrote a part. */
void ck_stage_close(struct ck_stage *stage);

/*
 * If a killed run was putting its result into place at 'dst', do the rest: '*settled_out' is true.
 */
int ck_stage_settle(const char *dst, enum ckpt_sync sync, ck_is_ours_fn *is_ours,
		    bool *settled_out, struct ckpt_err *err);
/* Finish a result whose parts have all ended, knowing only 'dst'. */
int ck_stage_finish(const char *dst, uint32_t timeout_ms, enum ckpt_sync sync,
		    ck_is_ours_fn *is_ours, struct ckpt_err *err);
/*
 * Remove what parts left at 'dst', ended or not; a result that stood there already is left as it
 * is.  CKPT_E_NOTFOUND if there is nothing, CKPT_E_BUSY if a part is at work.
 */
int ck_stage_discard(const char *dst, ck_is_ours_fn *is_ours, struct ckpt_err *err);
/* The same if 'may_go' still says so under the folder's lock; else CKPT_E_BUSY. */
int ck_stage_discard_if(const char *dst, ck_is_ours_fn *is_ours,
			ck_commit_may_go *may_go, void *arg, struct ckpt_err *err);

#endif
