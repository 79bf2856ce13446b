/*
 * ck_digest_fill.h -- what a result says of its own bytes: digests of its states, the root over
 * them, a manifest's sum.  They are known when all else is written, and go to the places that the
 * plan has for them.
 */
#ifndef CK_DIGEST_FILL_H
#define CK_DIGEST_FILL_H

#include "libckpt/commit/ck_stage.h"
#include "libckpt/format/ck_plan.h"

/*
 * sum[i] is the sum over the blocks of slot i; afterwards the digest, of a piece its part of the
 * sum as it was.
 */
void ck_digest_fill_close(const struct ck_plan *plan, struct ck_hash128 *sum);

/* stage_file[i] is file i of the plan.  CKPT_E_NOMEM and codes of writing. */
int ck_digest_fill(const struct ck_plan *plan, const struct ck_hash128 *digest,
		   struct ck_stage *stage, const uint32_t *stage_file, struct ckpt_err *err);

#endif
