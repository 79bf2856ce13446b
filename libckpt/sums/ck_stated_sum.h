/*
 * ck_stated_sum.h -- one sum that a checkpoint states of a piece of a tensor's state: which blocks
 * it covers, whether bytes agree with it, and the finding where they do not.  Reads nothing.
 */
#ifndef CK_STATED_SUM_H
#define CK_STATED_SUM_H

#include "libckpt/base/ck_hash.h"
#include "libckpt/format/ck_findings.h"
#include "libckpt/tensor/ck_index.h"

/* The whole blocks of a digest in a piece, in elements; false if there is none. */
bool ck_stated_blocks(const struct ck_index *ix, const struct ck_stated_sum *s,
		      uint64_t *first_out, uint64_t *count_out);
/* Whether 'sum', over the blocks of what 's' speaks of, is what it says. */
bool ck_stated_is(const struct ck_index *ix, const struct ck_stated_sum *s, struct ck_hash128 sum);
/* Of a piece whose elements are wrong: the finding, SUM_WRONG or MANIFEST_HASH_WRONG. */
void ck_stated_wrong(struct ck_findings *findings, const struct ck_index *ix,
		     const struct ck_stated_sum *s);

#endif
