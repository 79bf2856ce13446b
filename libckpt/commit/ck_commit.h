/*
 * ck_commit.h -- the last step of the commit protocol: names, waiting for parts, putting a
 * complete result into place.  Used by ck_stage.c and by `zckpt commit`.
 */
#ifndef CK_COMMIT_H
#define CK_COMMIT_H

#include "libckpt/base/ck_base.h"
#include "libckpt/commit/ck_record.h"
#include "libckpt/io/ck_tree.h"

/* Whether a file of a replaced folder goes, of which 'fresh' is the new one (ck_stage.h). */
typedef bool ck_is_ours_fn(const char *name, const struct ck_tree *fresh);

/* Where things are; all strings owned. */
struct ck_commit {
	char *dst;
	char *parent;
	char *partial;	/* dst.zckpt-partial */
	char *data;	/* dst.zckpt-partial/data */
	char *old;	/* dst.zckpt-partial/old: where folders cannot trade places */
	char *result;	/* what is renamed: data, or the file in it */
	uint64_t step;	/* not 0: what goes as one into a dst that is there (ck_record.h) */
	bool is_dir;
	bool is_dots;	/* dst was given as "." or the like */
	uint32_t lock_ms;	/* for ck_commit_lock() */
};

/*
 * 'dst' may end in slashes, which are dropped.  A link to a folder, "." and ".." become the path
 * of that folder.  CKPT_E_USAGE for "/" and "".
 */
int ck_commit_init(struct ck_commit *c, const char *dst, bool is_dir, struct ckpt_err *err);
void ck_commit_release(struct ck_commit *c);
/*
 * What a dry run says of the place: the errors of a run that writes 'bytes' there, and in
 * '*free_out' what is free, 0 = unknown.
 */
int ck_commit_room(const char *dst, bool is_dir, uint64_t bytes, uint64_t *free_out,
		   struct ckpt_err *err);
/* partial/part-00007.rec, new memory. */
char *ck_commit_record_path(const struct ck_commit *c, uint32_t part);
/* The destination lies in a memory file system. */
bool ck_commit_in_memory(const struct ck_commit *c);

/*
 * Until the record of every part of the run 'like' has its end entry; CKPT_E_INCOMPLETE names
 * a missing part.
 */
int ck_commit_wait(const struct ck_commit *c, const struct ck_record_head *like,
		   uint32_t timeout_ms, struct ckpt_err *err);
/*
 * Rename, move what is kept of an old folder, remove the partial folder.
 * 'rec' is the locked record of part 0.  '*placed_out' becomes true as soon as the result stands
 * at dst, also when what follows fails: then the partial folder may hold files of the old folder
 * and must stay.
 */
int ck_commit_place(const struct ck_commit *c, struct ck_record *rec, bool force,
		    enum ckpt_sync sync, ck_is_ours_fn *is_ours, bool *placed_out,
		    struct ckpt_err *err);
/*
 * The record says that what is at 'path' is about to be renamed to its place.  With 'sync' both the
 * entry and the way to it are on the disk then.
 */
int ck_commit_announce(const struct ck_commit *c, struct ck_record *rec, const char *path,
		       bool sync, struct ckpt_err *err);
/*
 * Go on where a killed process stopped in ck_commit_place(); 'seen' is what the locked record of
 * part 0 says, NULL if there is none.  '*placed_out': the result stands at dst.  The caller has the
 * folder's lock.
 */
int ck_commit_tidy(const struct ck_commit *c, const struct ck_record_seen *seen,
		   enum ckpt_sync sync, ck_is_ours_fn *is_ours, bool *placed_out,
		   struct ckpt_err *err);
/* A part gives up: remove its record, and everything if no record is left. */
void ck_commit_drop_part(const struct ck_commit *c, uint32_t part);
/* Asked under the folder's lock, when no part is at work: may all that is there go? */
typedef bool ck_commit_may_go(const struct ck_commit *c, void *arg);
/*
 * Remove all that is there; CKPT_E_BUSY if a part is at work, or 'may_go' (NULL = yes) says no.
 * Under the folder's lock: none begins meanwhile.  No record may be locked by the caller.
 */
int ck_commit_drop_all(const struct ck_commit *c, ck_commit_may_go *may_go, void *arg,
		       struct ckpt_err *err);

/*
 * Keep other parts from beginning or giving up until ck_commit_unlock(); '*lock_out' is -1 where
 * there are no locks.  CKPT_E_NOTFOUND: there is no folder, so nothing is locked: one that is made
 * afterwards is another process's.  CKPT_E_BUSY if a process has had it for all of c->lock_ms: it
 * is held for moments only, so that one is stopped, or its disk hangs.  Nothing is done then.
 */
int ck_commit_lock(const struct ck_commit *c, int *lock_out, struct ckpt_err *err);
/*
 * The same without waiting, also where there is no folder; false: another process has it.  The
 * folder that is locked is the one at this path: one that was removed or replaced meanwhile is
 * opened again.
 */
bool ck_commit_try_lock(const struct ck_commit *c, int *lock_out);
/* An empty partial folder, which no other process has locked, is removed. */
void ck_commit_remove_empty(const struct ck_commit *c);
void ck_commit_unlock(int lock);

#endif
