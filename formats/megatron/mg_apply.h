/* mg_apply.h -- a table of names and sizes, applied to the tensors of a checkpoint. */
#ifndef MG_APPLY_H
#define MG_APPLY_H

#include "formats/megatron/mg_sizes.h"

/* A tensor of Megatron's. */
struct mg_native {
	const char *key;
	const uint64_t *shape;
	uint32_t ndim;
};

/*
 * A tensor of transformers: boxes of native tensor number 'native', one after the other.  A box is
 * its offset and its size, of as many numbers as the native tensor has axes.  All lent.
 */
struct mg_made {
	const char *name;
	const uint64_t *shape;
	uint32_t ndim;
	uint64_t native;
	const uint64_t *box;
	uint64_t nboxes;
};

struct mg_taker {
	void *arg;
	int (*fn)(void *arg, const struct mg_made *made, struct ckpt_err *err);
};

/*
 * Call 'taker' for every tensor of transformers, in the order of 'native'.  Each native tensor is
 * used once, each of its rows once, but for those that the table cuts; each tensor that the table
 * asks for is made once.  CKPT_E_MISMATCH where that is not so.
 */
int ck_mg_apply(const struct mg_map *map, const struct mg_sizes *sizes,
		const struct mg_native *native, uint64_t n, const struct mg_taker *taker,
		struct ckpt_err *err);

#endif
