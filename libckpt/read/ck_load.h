/*
 * ck_load.h -- private to loading: what the ranges of a call are in files.
 *
 * ck_load_plan.c looks at every range and cuts it at extents, op_load.c reads.
 */
#ifndef CK_LOAD_H
#define CK_LOAD_H

#include "libckpt/run/ck_ckpt.h"

/* Elements [first, first + n) of a state: what of a range lies in one extent. */
struct ck_load_piece {
	uint64_t off;		/* byte of the file: where they lie if they are plain, else near */
	uint64_t first, n;	/* types under 8 bits: bytes */
	uint64_t at;		/* bytes to be made by the pieces before it */
	uint8_t *dst;
	uint32_t source, state;
	uint8_t es;		/* bytes of an element at 'dst' */
	uint8_t dtype;		/* there */
	uint8_t grain;		/* log2 of the elements in a block of a digest, as stored */
	bool plain;		/* stored as wanted, one behind the other */
};

struct ck_load_plan {
	struct ck_load_piece *piece;	/* by place in the files */
	uint64_t n, cap;
	uint64_t bytes;		/* to be made */
	uint64_t ranges, masters;
};

/* CKPT_E_USAGE, CKPT_E_NOMEM.  ck_load_plan_release() also after a failure. */
int ck_load_plan_make(const struct ck_index *ix, const struct ckpt_load_range *range, size_t n,
		      struct ck_load_plan *plan, struct ckpt_err *err);
void ck_load_plan_release(struct ck_load_plan *plan);

/* The piece that holds byte 'at' of what is made. */
uint64_t ck_load_piece_at(const struct ck_load_plan *plan, uint64_t at);
/* How many of its elements lie before byte 'at' of what is made, up to a whole block. */
uint64_t ck_load_cut(const struct ck_load_piece *p, uint64_t at);

/* The first piece in bytes [off, off + n) of a source, or NULL. */
const struct ck_load_piece *ck_load_piece_in(const struct ck_load_plan *plan, uint32_t source,
					     uint64_t off, uint64_t n);

#endif
