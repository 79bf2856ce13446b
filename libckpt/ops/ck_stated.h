/*
 * ck_stated.h -- what a checkpoint says of its own bytes (a native step does), held against them.
 */
#ifndef CK_STATED_H
#define CK_STATED_H

#include "libckpt/ops/ck_ckpt.h"

/* First bytes of files.  Findings MANIFEST_HASH_WRONG.  CKPT_E_IO, CKPT_E_NOMEM. */
int ck_stated_heads(struct ckpt *ck, struct ckpt_err *err);
/* Elements of states: all of them are read.  'run' is complete. */
int ck_stated_sums(struct ckpt *ck, const struct ckpt_run_opts *run, struct ckpt_err *err);

/* The whole blocks of a digest in a piece, in elements; false if there is none. */
bool ck_stated_blocks(const struct ck_index *ix, const struct ck_stated_sum *s,
		      uint64_t *first_out, uint64_t *count_out);

#endif
