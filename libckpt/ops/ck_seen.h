/*
 * ck_seen.h -- what a run reads of archives, summed as it passes by, and held against the CRC-32s
 * of their members when all is read.
 */
#ifndef CK_SEEN_H
#define CK_SEEN_H

#include "libckpt/format/ck_findings.h"
#include "libckpt/tensor/ck_index.h"

struct ck_seen;

/* Of the sources of 'ix', which must outlive it. */
int ck_seen_new(const struct ck_index *ix, struct ck_seen **seen_out, struct ckpt_err *err);
void ck_seen_free(struct ck_seen *seen);

/*
 * 'n' bytes that were read at 'off' of a source; n 0: bytes there were read in another way.  Any
 * number of threads.
 */
int ck_seen_add(struct ck_seen *seen, uint32_t source, uint64_t off, const void *p, size_t n,
		struct ckpt_err *err);

/* The same for a file by its path; of one that is no source nothing is noted. */
int ck_seen_add_file(struct ck_seen *seen, const char *path, uint64_t off, const void *p, size_t n,
		     struct ckpt_err *err);

/* Every member of every source is to be checked. */
void ck_seen_all(struct ck_seen *seen);

/* A member that is checked. */
struct ck_seen_member {
	const char *path, *name;
	uint32_t source;
	uint64_t off, bytes;	/* its content in the source */
	uint64_t read, again;	/* of that: what had passed by; what was read for the sum alone */
	uint32_t crc, want;	/* as it is, as the archive says */
};
typedef int (*ck_seen_fn)(void *arg, const struct ck_seen_member *member, struct ckpt_err *err);

/*
 * Every member that is checked, as ck_seen_check() chooses them.  Fails with what 'fn' returns, and
 * codes of reading.
 */
int ck_seen_each(struct ck_seen *seen, const struct ckpt_limits *limits, bool alone, ck_seen_fn fn,
		 void *arg, struct ckpt_err *err);

/*
 * Members of which something was read: a CRC_WRONG finding for each that is not what it was.  What
 * was not read of them is read now, if it is no more than what was, or 64 MiB; not 'alone': if it
 * is no more than an eighth of what was, as others read the rest.  Members of which more is left
 * are let pass.  Fails with the first finding that is an error.
 */
int ck_seen_check(struct ck_seen *seen, const struct ckpt_limits *limits, bool alone,
		  struct ck_findings *findings, struct ckpt_err *err);

#endif
