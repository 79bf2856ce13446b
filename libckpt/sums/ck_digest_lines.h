/*
 * ck_digest_lines.h -- digests as lines, sorted, with the root over them (docs/formats/digest.md).
 */
#ifndef CK_DIGEST_LINES_H
#define CK_DIGEST_LINES_H

#include "libckpt/base/ck_hash.h"
#include "libckpt/base/ck_mem.h"
#include "libckpt/format/ck_plan.h"

/*
 * '*lines_out' (plan->nslots lines, strings and all in 'arena') and the root.  digest[i]
 * belongs to slot i.  CKPT_E_NOMEM.
 */
int ck_digest_lines_make(const struct ck_plan *plan, const struct ck_hash128 *digest,
			 struct ck_arena *arena, struct ckpt_digest_line **lines_out,
			 char root_out[33], struct ckpt_err *err);

#endif
