/* ck_tally.h -- what a worker of a run adds up of the bytes it makes: digests and CRC-32s. */
#ifndef CK_TALLY_H
#define CK_TALLY_H

#include "libckpt/base/ck_crc.h"
#include "libckpt/format/ck_plan.h"
#include "libckpt/sums/ck_hashed.h"

struct ck_tally {
	struct ck_hash128 *sum;		/* per slot of the plan; NULL = nothing yet */
	struct ck_crc_piece *piece;
	uint64_t npieces, piece_cap;
};

/*
 * Bytes [skip, skip + n) of a segment of the plan, to the digest it counts for; 'hashed' has sums
 * of some of them.  CKPT_E_NOMEM.
 */
int ck_tally_digest(struct ck_tally *t, const struct ck_plan *plan, const struct ck_seg *s,
		    uint64_t skip, const uint8_t *p, uint64_t n, const struct ck_hashed *hashed,
		    struct ckpt_err *err);
/* The same for its CRC-32. */
int ck_tally_crc(struct ck_tally *t, const struct ck_plan *plan, const struct ck_seg *s,
		 uint64_t skip, const uint8_t *p, uint64_t n, struct ckpt_err *err);
/* All of 'from' to 'all', whose pieces are no longer in order.  CKPT_E_NOMEM. */
int ck_tally_join(struct ck_tally *all, const struct ck_tally *from, const struct ck_plan *plan,
		  struct ckpt_err *err);
void ck_tally_release(struct ck_tally *t);

#endif
