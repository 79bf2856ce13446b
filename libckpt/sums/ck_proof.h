/*
 * ck_proof.h -- what a run reads, compared with all that files say of their own bytes: CRC-32s of
 * archive members (ck_seen.h) and sums that the index states (ck_passed.h).
 *
 * Whoever reads bytes that become a result adds them here as they pass, and asks before the result
 * is placed or printed.
 */
#ifndef CK_PROOF_H
#define CK_PROOF_H

#include "libckpt/format/ck_findings.h"
#include "libckpt/sums/ck_passed.h"
#include "libckpt/sums/ck_seen.h"

struct ck_proof {
	const struct ck_index *ix;
	struct ck_seen *seen;
	struct ck_passed *passed;	/* NULL = the index states nothing */
};

/* 'ix' and 'limits' must outlive it; 'only' as in ck_passed_new(). */
int ck_proof_init(struct ck_proof *proof, const struct ck_index *ix,
		  const struct ckpt_limits *limits, const bool *only, struct ckpt_err *err);
void ck_proof_release(struct ck_proof *proof);

/* A ck_saw_fn (ck_read.h); 'proof' is a ck_proof. */
int ck_proof_saw(void *proof, uint32_t source, uint64_t off, const void *p, size_t n,
		 struct ckpt_err *err);
/* Bytes of a file as a file, by its path; of one that is no source nothing is noted.  p NULL: they
 * were read in another way. */
int ck_proof_saw_file(struct ck_proof *proof, const char *path, uint64_t off, const void *p,
		      size_t n, struct ckpt_err *err);

/* What is read of it, by this run or another, is to be right as a whole. */
void ck_proof_want_state(struct ck_proof *proof, uint32_t state);
/* All of a file, if it has no more than so many bytes. */
void ck_proof_want_file(struct ck_proof *proof, const char *path, uint64_t bytes);

struct ck_proof_ask {
	const struct ck_index *ix;
	struct ck_seen_ask members;
	struct ck_passed_ask pieces;	/* what parts share goes into members.share */
};

/*
 * All has passed: a finding CRC_WRONG or MANIFEST_HASH_WRONG for each member and piece that is not
 * what it was.  Fails with the first that is an error.
 */
int ck_proof_check(struct ck_proof *proof, const struct ck_proof_ask *ask,
		   struct ck_findings *findings, struct ckpt_err *err);

#endif
