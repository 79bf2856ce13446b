/* ck_output_sums.h -- what a worker of a run adds up of the bytes it makes: digests and CRC-32s. */
#ifndef CK_OUTPUT_SUMS_H
#define CK_OUTPUT_SUMS_H

#include "libckpt/base/ck_crc.h"
#include "libckpt/format/ck_plan.h"
#include "libckpt/sums/ck_hash_reuse.h"

struct ck_output_sums {
	struct ck_hash128 *sum;		/* per slot of the plan; NULL = nothing yet */
	struct ck_crc_piece *piece;
	uint64_t npieces, piece_cap;
};

/*
 * Bytes [skip, skip + n) of a segment of the plan, to the digest it counts for; 'hashed' has sums
 * of some of them.  CKPT_E_NOMEM.
 */
int ck_output_sums_digest(struct ck_output_sums *t, const struct ck_plan *plan,
			  const struct ck_seg *s,
			  uint64_t skip, const uint8_t *p, uint64_t n,
			  const struct ck_hash_reuse *hashed, struct ckpt_err *err);
/* The same for its CRC-32. */
int ck_output_sums_crc(struct ck_output_sums *t, const struct ck_plan *plan, const struct ck_seg *s,
		       uint64_t skip, const uint8_t *p, uint64_t n, struct ckpt_err *err);
/* All of 'from' to 'all', whose pieces are no longer in order.  CKPT_E_NOMEM. */
int ck_output_sums_join(struct ck_output_sums *all, const struct ck_output_sums *from,
			const struct ck_plan *plan, struct ckpt_err *err);
void ck_output_sums_release(struct ck_output_sums *t);

#endif
