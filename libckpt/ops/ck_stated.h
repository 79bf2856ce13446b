/*
 * ck_stated.h -- what a checkpoint says of its own bytes (a native step does), held against them.
 */
#ifndef CK_STATED_H
#define CK_STATED_H

#include "libckpt/ops/ck_ckpt.h"
#include "libckpt/ops/ck_passed.h"

/* First bytes of files.  Findings MANIFEST_HASH_WRONG.  CKPT_E_IO, CKPT_E_NOMEM. */
int ck_stated_heads(struct ckpt *ck, struct ckpt_err *err);
/*
 * Before anything else of the files is used: fails with the first head that is wrong, and, where
 * files have heads, with the first archive beside them whose records are not what they were (a
 * native step's values).  Read once for each open checkpoint: a few KB a file.
 */
int ck_stated_begin(const struct ckpt *ck, struct ckpt_err *err);
/* Of a piece whose elements are wrong: the finding. */
void ck_stated_tell(struct ck_findings *findings, const struct ck_index *ix,
		    const struct ck_stated_sum *s);
/*
 * Elements of states: 'passed' (of all sums, ck_passed.h) has seen what was read anyway, the rest
 * is read.  'run' is complete.
 */
int ck_stated_sums(struct ckpt *ck, struct ck_passed *passed, const struct ckpt_run_opts *run,
		   struct ckpt_err *err);
/*
 * Files beside the weights, such as config.json: finding BESIDE_CHANGED, a warning, since people
 * edit them.
 */
int ck_stated_files(struct ckpt *ck, struct ckpt_err *err);

/* Whether 'sum', over the blocks of what 's' speaks of, is what it says. */
bool ck_stated_is(const struct ck_index *ix, const struct ck_stated_sum *s, struct ck_hash128 sum);

/* The whole blocks of a digest in a piece, in elements; false if there is none. */
bool ck_stated_blocks(const struct ck_index *ix, const struct ck_stated_sum *s,
		      uint64_t *first_out, uint64_t *count_out);

#endif
