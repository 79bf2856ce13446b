/*
 * ck_source_sums.h -- what the parts of a run saw of its source, joined from their records and
 * compared with what the source states of itself (docs/formats/partial.md, "Sums of the source").
 */
#ifndef CK_SOURCE_SUMS_H
#define CK_SOURCE_SUMS_H

#include "libckpt/commit/ck_commit.h"

/*
 * All parts have ended.  Fails with the code and message of the first member or piece that is not
 * what it was; CKPT_E_INCOMPLETE where the parts did not see all of one.  Changes nothing.
 */
int ck_source_sums_check(const struct ck_commit *c, uint32_t nparts, struct ckpt_err *err);

#endif
