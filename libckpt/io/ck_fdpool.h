/*
 * ck_fdpool.h -- descriptors of many files, few of them open at a time.
 *
 * A file of the pool is opened when it is used; the one used longest ago is closed to
 * make room.  So a step of thousands of files works under a small descriptor limit.
 */
#ifndef CK_FDPOOL_H
#define CK_FDPOOL_H

#include <sys/types.h>

#include "libckpt/base/ck_base.h"
#include "libckpt/io/ck_stamp.h"

#define CK_SRC_MAX_OPEN 200

struct ck_fdpool;
struct ck_mount;

/* A file of a pool, kept by its owner.  Set path and flags, fd = -1, zero the rest. */
struct ck_pooled {
	const char *path;	/* lent */
	int flags;		/* of open(); O_CREAT counts the first time only */
	int fd;			/* -1 = closed */
	uint32_t pins;		/* users inside the descriptor */
	int close_errno;	/* what the first failing close said */
	bool known;		/* opened before: 'stamp' is set */
	struct ck_stamp stamp;	/* when it was opened first */
	struct ck_pooled *prev, *next;	/* open ones, most recently used first */
};

/* 'max_open' 0 = CK_SRC_MAX_OPEN; less where the process may open few files.  NULL when there is
 * no memory. */
struct ck_fdpool *ck_fdpool_new(uint32_t max_open);
/* The same, whose files are looked at as those of 'of', which must outlive it. */
struct ck_fdpool *ck_fdpool_new_of(struct ck_fdpool *of, uint32_t max_open);
/* All files of the pool must be closed before.  NULL is fine. */
void ck_fdpool_free(struct ck_fdpool *pool);

/*
 * Open the file if it is closed, and keep it open until ck_fdpool_unpin(f).  Any threads.
 * The limit is exceeded while more files are pinned than it says.  CKPT_E_MISMATCH if another
 * file is at the path than when it was opened first, or a file that is only read has another size
 * or mtime; CKPT_E_NOTFOUND, CKPT_E_IO.
 */
int ck_fdpool_pin(struct ck_fdpool *pool, struct ck_pooled *f, struct ckpt_err *err);
void ck_fdpool_unpin(struct ck_fdpool *pool, struct ck_pooled *f);
/* No caller has it pinned.  CKPT_E_IO, CKPT_E_NOSPACE if this or an earlier close failed. */
int ck_fdpool_close(struct ck_fdpool *pool, struct ck_pooled *f, struct ckpt_err *err);

/*
 * The file, which is pinned, is a source: it is looked at now, and by every ck_fdpool_check().
 * CKPT_E_MISMATCH if it is not what it was when the pool looked at this path first.
 */
int ck_fdpool_note_source(struct ck_fdpool *pool, struct ck_pooled *f, struct ckpt_err *err);
/*
 * Before what was made of the sources of the pool goes to its place or is given out: whether all of
 * them, closed ones too, are what they were (ck_stamp.h).  'rc' is how the work ended; an error
 * that a changed source explains becomes that one.  'rc', or CKPT_E_MISMATCH, CKPT_E_IO.
 */
int ck_fdpool_check(struct ck_fdpool *pool, int rc, struct ckpt_err *err);
/* Of one source, by its path: the same for what was read of it alone. */
int ck_fdpool_check_one(struct ck_fdpool *pool, const char *path, struct ckpt_err *err);
struct ck_stamps *ck_fdpool_stamps(struct ck_fdpool *pool);

/* Bytes read from all sources of the pool so far; add to them. */
uint64_t ck_fdpool_bytes(const struct ck_fdpool *pool);
void ck_fdpool_count(struct ck_fdpool *pool, uint64_t n);

/*
 * From now on pages of files that were read are dropped behind the reader
 * (POSIX_FADV_DONTNEED), so that a bulk run does not push everything else out of memory.
 * Set it before threads start.
 */
void ck_fdpool_set_drop(struct ck_fdpool *pool, bool drop);
bool ck_fdpool_drops(const struct ck_fdpool *pool);

/*
 * An archive whose members are opened as files of the pool (ck_mount.h); it becomes the pool's.
 * One at most, before threads start.
 */
void ck_fdpool_set_mount(struct ck_fdpool *pool, struct ck_mount *mount);
const struct ck_mount *ck_fdpool_mount(const struct ck_fdpool *pool);	/* or NULL */

#endif
