/*
 * ck_hash_reuse.h -- sums of blocks that were hashed where they are in a worker's buffer, for the
 * next who needs the same sums of the same bytes.
 *
 * A sum is used again only for the very bytes (address and length) that it was made of, with the
 * same numbers of blocks, so it is the one that a second pass over them would give.
 */
#ifndef CK_HASH_REUSE_H
#define CK_HASH_REUSE_H

#include "libckpt/base/ck_hash.h"

#define CK_HASH_REUSE_MOST 64

struct ck_hash_reuse_run {
	const uint8_t *p;
	uint64_t n;		/* bytes: whole blocks, but for the end of a state */
	uint64_t block;		/* number of the first */
	struct ck_hash128 sum;
};

/* One thread's.  The buffer and its length stay as they are. */
struct ck_hash_reuse {
	const uint8_t *buf;
	uint64_t bytes, n;
	struct ck_hash_reuse_run run[CK_HASH_REUSE_MOST];
};

/* The bytes of the buffer are about to change. */
void ck_hash_reuse_forget(struct ck_hash_reuse *h);
/* Bytes [p, p + n) were hashed; past CK_HASH_REUSE_MOST they are not noted. */
void ck_hash_reuse_note(struct ck_hash_reuse *h, const uint8_t *p, uint64_t n, uint64_t block,
			struct ck_hash128 sum);
/* ck_digest_blocks(); what was noted is not hashed again. */
struct ck_hash128 ck_hash_reuse_blocks(const struct ck_hash_reuse *h, const uint8_t *p, uint64_t n,
				       uint64_t first);

#endif
