/*
 * ck_proof.h -- records and pieces of a checkpoint's files, each compared with its sum as a whole
 * before the first of its bytes is handed out.
 */
#ifndef CK_PROOF_H
#define CK_PROOF_H

#include "libckpt/run/ck_ckpt.h"

int ck_proof_new(struct ckpt *ck, struct ckpt_view_checks **out, struct ckpt_err *err);
void ck_proof_free(struct ckpt_view_checks *proof);

/* It is of this checkpoint. */
bool ck_proof_is_of(const struct ckpt_view_checks *proof, const struct ckpt *ck);
/* All files of the checkpoint, as they were looked at when this was made. */
struct ck_hash128 ck_proof_stamps(const struct ckpt_view_checks *proof);

/*
 * What is known of the sums of bytes [off, off + n) of a source is compared, once.  n 0 counts
 * as 1.  Any number of threads: one compares a record while others wait for it.
 */
int ck_proof_need(struct ckpt_view_checks *proof, uint32_t source, uint64_t off, uint64_t n,
		  struct ckpt_err *err);
/* The same as a ck_saw_fn (ck_read.h); 'proof' is a struct ckpt_view_checks. */
int ck_proof_saw(void *proof, uint32_t source, uint64_t off, const void *p, size_t n,
		 struct ckpt_err *err);

/* Damage that was found; false past the end. */
bool ck_proof_finding(struct ckpt_view_checks *proof, uint64_t i, struct ckpt_finding *out);

#endif
