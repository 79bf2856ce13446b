/*
 * ck_hash.h -- XXH3 by libxxhash, and the layout-independent digest of a state.
 *
 * Digest of one state of one tensor (docs/formats/digest.md):
 *	XXH3-128( "DTYPE [d0,d1,...]\n" || sum )
 * where 'sum' is 16 bytes, little endian: the sum modulo 2^128 of
 * XXH3_128bits_withSeed(block i, seed i) over consecutive 4 KiB blocks (the last one
 * may be short) of the row-major little-endian bytes.  A sum does not care in
 * which order its terms come, so blocks may be hashed by any thread or rank.
 */
#ifndef CK_HASH_H
#define CK_HASH_H

#include "libckpt/base/ck_base.h"

#define CK_DIGEST_BLOCK 4096

struct ck_hash128 {
	uint64_t lo, hi;
};

uint64_t ck_hash64(const void *p, size_t n);
struct ck_hash128 ck_hash128(const void *p, size_t n);

/* a + b modulo 2^128. */
struct ck_hash128 ck_hash128_add(struct ck_hash128 a, struct ck_hash128 b);
bool ck_hash128_equal(struct ck_hash128 a, struct ck_hash128 b);

/*
 * Sum of the hashes of the blocks of 'n' bytes that begin at block 'first' of a
 * state.  'n' must be a multiple of CK_DIGEST_BLOCK unless the run ends the state.
 */
struct ck_hash128 ck_digest_blocks(const void *p, size_t n, uint64_t first);

/* Close a digest: 'dtype' in safetensors' spelling, 'sum' over all blocks. */
struct ck_hash128 ck_digest_close(const char *dtype, const uint64_t *dim, uint32_t ndim,
				  struct ck_hash128 sum);

/* 32 hex digits and a NUL, as xxhsum prints. */
void ck_hash128_print(struct ck_hash128 h, char out[33]);
/* The reverse; false if 'text' is not 32 hex digits. */
bool ck_hash128_parse(const char *text, struct ck_hash128 *out);

/* A running XXH3-128 over many pieces; the sum may be asked for at any time. */
struct ck_hasher;
/* NULL when there is no memory. */
struct ck_hasher *ck_hasher_new(void);
/* As new. */
void ck_hasher_reset(struct ck_hasher *h);
void ck_hasher_add(struct ck_hasher *h, const void *p, size_t n);
struct ck_hash128 ck_hasher_sum(const struct ck_hasher *h);
/* NULL is fine. */
void ck_hasher_free(struct ck_hasher *h);

#endif
