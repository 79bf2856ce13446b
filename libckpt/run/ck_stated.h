/*
 * ck_stated.h -- what a checkpoint says of its own bytes (a native step does), compared with them.
 */
#ifndef CK_STATED_H
#define CK_STATED_H

#include "libckpt/run/ck_ckpt.h"
#include "libckpt/sums/ck_sum_check.h"
#include "libckpt/sums/ck_stated_sum.h"

/* First bytes of files.  Findings MANIFEST_HASH_WRONG.  CKPT_E_IO, CKPT_E_NOMEM. */
int ck_stated_heads(struct ckpt *ck, struct ckpt_err *err);
/*
 * Before anything else of the files is used: fails with the first head that is wrong, and, where
 * files have heads, with the first archive beside them whose records are not what they were (a
 * native step's values).  Read once for each open checkpoint: a few KB a file.
 */
int ck_stated_begin(const struct ckpt *ck, struct ckpt_err *err);
/*
 * Elements of states: 'passed' (of all sums, ck_sum_check.h) has seen what was read anyway, the
 * rest is read.  'run' is complete.
 */
int ck_stated_sums(struct ckpt *ck, struct ck_sum_check *passed, const struct ckpt_run_opts *run,
		   struct ckpt_err *err);
/*
 * Files beside the weights, such as config.json: finding BESIDE_CHANGED, a warning, since people
 * edit them.
 */
int ck_stated_files(struct ckpt *ck, struct ckpt_err *err);

#endif
