/*
 * ck_crc.h -- CRC-32 (IEEE, as in zip) of bytes that were summed in pieces.  Pure.
 */
#ifndef CK_CRC_H
#define CK_CRC_H

#include "libckpt/base/ck_base.h"

/* Bytes [off, off + bytes) of a sum. */
struct ck_crc_piece {
	uint64_t off, bytes;
	uint32_t slot;		/* which sum */
	uint32_t crc;
};

/* What ck_crc_append() keeps from one call to the next; zeroed before the first. */
struct ck_crc_shift {
	uint64_t bytes;
	uint32_t by;
};
/*
 * The CRC of A followed by B, of their CRCs and B's length.  About 64 x 32 steps, unless the
 * length is that of the call before.
 */
uint32_t ck_crc_append(uint32_t a, uint32_t b, uint64_t b_bytes, struct ck_crc_shift *shift);

/* By slot, then offset: for qsort. */
int ck_crc_order(const void *a, const void *b);
/*
 * The CRC of the 'n' pieces, of one slot and in order, which must cover [0, bytes) once:
 * CKPT_E_CORRUPT if they do not.
 */
int ck_crc_join(const struct ck_crc_piece *piece, uint64_t n, uint64_t bytes, uint32_t *crc_out,
		struct ckpt_err *err);

#endif
