/*
 * ck_piece.h -- a piece of a state that a checkpoint states a sum of: where its bytes are, and
 * whether they match the sum when they are read at once.  ck_sum_check.h does the same of bytes
 * that pass by in any order.
 */
#ifndef CK_PIECE_H
#define CK_PIECE_H

#include "libckpt/tensor/ck_index.h"

/* A head, whole blocks of the digest, a tail: 'bytes' are those of the blocks. */
struct ck_piece {
	uint64_t off;		/* of the head, in the source */
	uint64_t bytes;
	uint64_t block;		/* number of the first in the state */
	uint32_t source;
	uint16_t head, tail;	/* bytes */
};

/* Bytes that ck_piece_check() works with. */
#define CK_PIECE_BUFFER ((size_t)256 << 10)

/* False if the piece is not in one run, or has nothing to be compared with. */
bool ck_piece_find(const struct ck_index *ix, const struct ck_stated_sum *says,
		   struct ck_piece *out);
/* Read and compare it.  'buf' has CK_PIECE_BUFFER bytes.  Codes of reading. */
int ck_piece_check(const struct ck_index *ix, const struct ck_stated_sum *says,
		   const struct ck_piece *piece, uint8_t *buf, bool *good_out,
		   struct ckpt_err *err);

#endif
