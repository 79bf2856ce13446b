/*
 * ck_crc_check.h -- what a run reads of archives, summed as it passes by, and compared with the
 * CRC-32s of their members when all is read.
 */
#ifndef CK_CRC_CHECK_H
#define CK_CRC_CHECK_H

#include "libckpt/format/ck_findings.h"
#include "libckpt/tensor/ck_index.h"

struct ck_claims;
struct ck_crc_check;
struct ck_part_sums;

/* Of the sources of 'ix', which must outlive it, as must the limits. */
int ck_crc_check_new(const struct ck_index *ix, const struct ckpt_limits *limits,
		     struct ck_crc_check **seen_out, struct ckpt_err *err);
void ck_crc_check_free(struct ck_crc_check *seen);

/*
 * 'n' bytes that were read at 'off' of a source; n 0: bytes there were read in another way.  Any
 * number of threads.
 */
int ck_crc_check_add(struct ck_crc_check *seen, uint32_t source, uint64_t off, const void *p,
		     size_t n, struct ckpt_err *err);

/* The same of bytes of the file as a file: they may begin and end in any member; p NULL as n 0. */
int ck_crc_check_add_raw(struct ck_crc_check *seen, uint32_t source, uint64_t off, const void *p,
			 size_t n, struct ckpt_err *err);

/* The source of a path; false if it is none. */
bool ck_crc_check_source(const struct ck_crc_check *seen, const char *path, uint32_t *source_out);

/* Every member of every source, or of one, is to be checked, whatever was read of it. */
void ck_crc_check_all(struct ck_crc_check *seen);
void ck_crc_check_whole(struct ck_crc_check *seen, uint32_t source);

/* A member that is checked. */
struct ck_crc_check_member {
	const char *path, *name;
	uint32_t source;
	uint64_t off, bytes;	/* its content in the source */
	uint64_t read, again;	/* of that: what had passed by; what was read for the sum alone */
	uint32_t crc, want;	/* as it is, as the archive says */
};
typedef int (*ck_crc_check_fn)(void *arg, const struct ck_crc_check_member *member,
			       struct ckpt_err *err);

/*
 * Of a member that was read in part the rest is read now, if it is no more than what was read, or
 * 64 MiB; where others read of it as well, if it is no more than an eighth of what was.  Members of
 * which more is left are let pass, but where this says otherwise.
 */
enum ck_crc_check_rest {
	CK_CRC_CHECK_ALONE,
	CK_CRC_CHECK_AMONG,	/* others */
	CK_CRC_CHECK_WITNESS,	/* the same; and all the rest is read by whoever read a certain
				   byte, which is the same for all */
	CK_CRC_CHECK_WHOLE,	/* whatever is left */
	CK_CRC_CHECK_SHARE,	/* as ALONE of all that the parts of a run read together: each
				   sums what it answers for, and notes it where a member is not
				   its own */
};

struct ck_crc_check_ask {
	enum ck_crc_check_rest rest;
	struct ck_part_sums *share;	/* of SHARE */
	const struct ck_claims *claims;
};

/*
 * Every member of which something was read, and that is checked.  Fails with what 'fn' returns, and
 * codes of reading.
 */
int ck_crc_check_each(struct ck_crc_check *seen, const struct ck_crc_check_ask *ask,
		      ck_crc_check_fn fn, void *arg, struct ckpt_err *err);

/*
 * The same: a CRC_WRONG finding for each that is not what it was.  Fails with the first finding
 * that is an error.
 */
int ck_crc_check_check(struct ck_crc_check *seen, const struct ck_crc_check_ask *ask,
		       struct ck_findings *findings, struct ckpt_err *err);

#endif
