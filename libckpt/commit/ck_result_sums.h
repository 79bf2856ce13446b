/*
 * ck_result_sums.h -- sums of a result that several processes wrote: joined from the pieces in
 * their records and written to their places (docs/formats/partial.md, "Sums").
 */
#ifndef CK_RESULT_SUMS_H
#define CK_RESULT_SUMS_H

#include "libckpt/commit/ck_commit.h"

/*
 * All parts have ended.  Nothing happens where no record speaks of sums.  Doing it twice does no
 * harm.  CKPT_E_CORRUPT: pieces are missing, or a place lies in no file; codes of reading and
 * writing.
 */
int ck_result_sums_fill(const struct ck_commit *c, uint32_t nparts, enum ckpt_sync sync,
			struct ckpt_err *err);

#endif
