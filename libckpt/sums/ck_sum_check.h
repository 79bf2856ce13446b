/*
 * ck_sum_check.h -- stored bytes are summed as they pass by, and compared with the sums that the
 * checkpoint states of them (ck_index.h), whatever the format and whoever reads.
 *
 * A sum is over the whole blocks of a piece, in any order, so each block is hashed as it passes by.
 * A bit for each block says that it was: it counts once however often it is read.  What a piece has
 * of blocks that it cuts has a hash of its own, over both ends: they are kept until both were seen.
 */
#ifndef CK_SUM_CHECK_H
#define CK_SUM_CHECK_H

#include "libckpt/tensor/ck_index.h"

struct ck_claims;
struct ck_hash_reuse;
struct ck_sum_check;
struct ck_part_sums;

/*
 * For all stated sums of 'ix', which must outlive it; 'only' (may be NULL) says of each source
 * whether it counts.  Memory: about 120 bytes for each sum, a bit for each block of 4 KiB.
 */
int ck_sum_check_new(const struct ck_index *ix, const bool *only, struct ck_sum_check **out,
		     struct ckpt_err *err);
void ck_sum_check_free(struct ck_sum_check *passed);
/* Sums of blocks in these buffers, one of each thread, are noted there as they are made. */
void ck_sum_check_note(struct ck_sum_check *passed, struct ck_hash_reuse *hashed, uint32_t n);
/* Is every byte of such a piece compared? */
bool ck_sum_check_compares(const struct ck_index *ix, const struct ck_stated_sum *says);

/* Bytes of a source as they were read.  Any number of threads. */
void ck_sum_check_add(struct ck_sum_check *passed, uint32_t source, uint64_t off, const void *p,
		      uint64_t n);

/* Whose rest is read when all has passed: pieces of which some bytes have not. */
enum ck_sum_check_rest {
	CK_REST_NONE,		/* of none: such pieces are not compared */
	CK_REST_WITNESS,	/* where a certain byte has passed, which is the same for all: of
				   those who read a piece together one reads the rest of it */
	CK_REST_WANTED,		/* where something of the state or source is wanted */
};

/* Pieces of the state, or in the source, are wanted. */
void ck_sum_check_want_state(struct ck_sum_check *passed, uint32_t state);
void ck_sum_check_want_source(struct ck_sum_check *passed, uint32_t source);

/* A piece that was compared. */
struct ck_sum_check_piece {
	const struct ck_stated_sum *says;
	uint32_t source;
	uint64_t off, bytes;	/* in the source */
	uint64_t again;		/* of these: read for the sum alone */
	uint64_t number;	/* among what parts share, or CK_NOT_SHARED */
	uint64_t blocks, all;	/* that 'sum' has, of a piece that is shared; that it should have */
	struct ck_hash128 sum;
	bool good;
};
typedef int (*ck_sum_check_fn)(void *arg, const struct ck_sum_check_piece *piece,
			       struct ckpt_err *err);

/*
 * Before anything passes, and when all is wanted that will be: this part answers for its blocks
 * of what is wanted, a block for the part that claims its first byte.
 */
void ck_sum_check_share(struct ck_sum_check *passed, struct ck_part_sums *share,
			const struct ck_claims *claims);

struct ck_sum_check_ask {
	enum ck_sum_check_rest rest;
	uint32_t threads;
	const volatile int *cancel;	/* may be NULL */
};

/*
 * All has passed: 'fn' is called for each piece that could be compared, or of which this part notes
 * something, in order of the files.
 * Codes of reading, and what 'fn' returns.
 */
int ck_sum_check_each(struct ck_sum_check *passed, const struct ck_sum_check_ask *ask,
		      ck_sum_check_fn fn, void *arg, struct ckpt_err *err);

#endif
