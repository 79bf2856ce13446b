/*
 * ck_stamp.h -- a source is one thing for a whole run: what the file system says of each file that
 * is read, when it is opened first and once more before an answer is given
 * (docs/formats/partial.md, "One source").
 */
#ifndef CK_STAMP_H
#define CK_STAMP_H

#include <sys/stat.h>

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_hash.h"

/* A file at one moment.  When it was read last (atime) is no part of it. */
struct ck_stamp {
	dev_t dev;
	ino_t ino;
	nlink_t nlink;
	uint64_t bytes;
	int64_t mtime_ns, ctime_ns;
};

/*
 * All files of a source, whatever their order and their folder.  'exact' differs when any
 * was written or replaced; 'inodes' tells whether two processes look at the same files; 'times' is
 * of names, sizes and mtimes of those that are CK_KNOWN_NOT, and is the same for a copy that keeps
 * mtimes.
 */
struct ck_stamp_marks {
	struct ck_hash128 exact, inodes, times;
};

void ck_stamp_of(const struct stat *st, struct ck_stamp *out);
/* CKPT_E_MISMATCH, with what changed; the ctime is not compared. */
int ck_stamp_compare(const char *path, const struct ck_stamp *was, const struct ck_stamp *now,
		     struct ckpt_err *err);

/* How the contents of a file are known without its times. */
enum ck_known {
	CK_KNOWN_NOT,
	CK_KNOWN_PRINT,		/* the source's fingerprint covers checksums of them */
	CK_KNOWN_SUMS,		/* checksums in another file, which is looked at too, fix them: a
				   ctime of its own is no change */
};

/* Files that were looked at.  Any threads. */
struct ck_stamps;
struct ck_stamps *ck_stamps_new(void);		/* NULL when there is no memory */
void ck_stamps_free(struct ck_stamps *s);	/* NULL is fine */

/*
 * The file at 'path' is open as 'fd', was '*stamp' when that was opened, and is about to be read.
 * A file that was written a moment ago is waited for, some ms (2 s where the file system knows
 * whole seconds only), until a further write would give it another time.  CKPT_E_MISMATCH if it is
 * not what it was when it was looked at first; else '*stamp' is what it is now.
 */
int ck_stamps_note(struct ck_stamps *s, const char *path, int fd, struct ck_stamp *stamp,
		   struct ckpt_err *err);
void ck_stamps_known(struct ck_stamps *s, const char *path, enum ck_known known);
/*
 * Whether all files are what they were.  A link that was made or removed is no change.  A file that
 * is missing is one unless held(arg, path) gives a descriptor of it (-1 = none).  CKPT_E_MISMATCH,
 * CKPT_E_IO.
 */
int ck_stamps_check(struct ck_stamps *s, int (*held)(void *arg, const char *path), void *arg,
		    struct ckpt_err *err);
/* The same of one file; a path that was not looked at is no change. */
int ck_stamps_check_one(struct ck_stamps *s, const char *path,
			int (*held)(void *arg, const char *path), void *arg, struct ckpt_err *err);
void ck_stamps_marks(struct ck_stamps *s, struct ck_stamp_marks *out);

#endif
