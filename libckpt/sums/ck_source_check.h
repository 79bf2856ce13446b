/*
 * ck_source_check.h -- what a run reads, compared with all that files say of their own bytes:
 * CRC-32s of archive members (ck_crc_check.h) and sums that the index states (ck_sum_check.h).
 *
 * Whoever reads bytes that become a result adds them here as they pass, and asks before the result
 * is placed or printed.
 */
#ifndef CK_SOURCE_CHECK_H
#define CK_SOURCE_CHECK_H

#include "libckpt/format/ck_findings.h"
#include "libckpt/sums/ck_sum_check.h"
#include "libckpt/sums/ck_crc_check.h"

struct ck_source_check {
	const struct ck_index *ix;
	struct ck_crc_check *seen;
	struct ck_sum_check *passed;	/* NULL = the index states nothing */
};

/* 'ix' and 'limits' must outlive it; 'only' as in ck_sum_check_new(). */
int ck_source_check_init(struct ck_source_check *proof, const struct ck_index *ix,
			 const struct ckpt_limits *limits, const bool *only, struct ckpt_err *err);
void ck_source_check_release(struct ck_source_check *proof);

/* A ck_saw_fn (ck_read.h); 'proof' is a ck_source_check. */
int ck_source_check_saw(void *proof, uint32_t source, uint64_t off, const void *p, size_t n,
			struct ckpt_err *err);
/* Bytes of a file as a file, by its path; of one that is no source nothing is noted.  p NULL: they
 * were read in another way. */
int ck_source_check_saw_file(struct ck_source_check *proof, const char *path, uint64_t off,
			     const void *p, size_t n, struct ckpt_err *err);

/* What is read of it, by this run or another, is to be right as a whole. */
void ck_source_check_want_state(struct ck_source_check *proof, uint32_t state);
/* All of a file, if it has no more than so many bytes. */
void ck_source_check_want_file(struct ck_source_check *proof, const char *path, uint64_t bytes);

struct ck_source_check_ask {
	const struct ck_index *ix;
	struct ck_crc_check_ask members;
	struct ck_sum_check_ask pieces;	/* what parts share goes into members.share */
};

/*
 * All has passed: a finding CRC_WRONG or MANIFEST_HASH_WRONG for each member and piece that is not
 * what it was.  Fails with the first that is an error.
 */
int ck_source_check_check(struct ck_source_check *proof, const struct ck_source_check_ask *ask,
			  struct ck_findings *findings, struct ckpt_err *err);

#endif
