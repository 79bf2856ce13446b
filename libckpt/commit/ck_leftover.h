/*
 * ck_leftover.h -- what save sessions that did not end left behind (docs/formats/partial.md, "Save
 * sessions").
 */
#ifndef CK_LEFTOVER_H
#define CK_LEFTOVER_H

#include "libckpt/commit/ck_stage.h"

/* The file beside a part's record that says what it put; new memory. */
char *ck_leftover_put_path(const struct ck_commit *c, uint32_t part);

/*
 * In the partial folder at 'c', whose lock the caller has: drop what is not of the save 'o', and
 * where no part of that one is there yet, all data.  CKPT_E_BUSY: a process is at work there;
 * CKPT_E_MISMATCH: a part of the same save has another plan.
 */
int ck_leftover_drop(const struct ck_commit *c, const struct ck_stage_opts *o,
		     struct ckpt_err *err);

/*
 * What is begun at the destination of 'o' is an earlier save of the same job: its ranks end it, and
 * are gone soon.
 */
bool ck_leftover_is_earlier(const struct ck_stage_opts *o);

/*
 * Among the partial folders in 'root', those that sessions of other jobs left, or saves of this one
 * before number 'before': finish what was being put into place, remove what no process holds.
 * What cannot be removed stays.  CKPT_E_NOMEM, CKPT_E_IO.
 */
int ck_leftover_sweep(const char *root, struct ck_hash128 job, uint64_t before, enum ckpt_sync sync,
		      struct ckpt_err *err);

#endif
