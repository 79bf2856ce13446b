/*
 * en_order.h -- in which order an epoch takes its rows.
 *
 * EN_ORDER_SHUFFLED is a permutation of [0, n) that is computed, not stored: a Feistel network over
 * the next even number of bits, keyed by seed and epoch, whose outputs beyond n are sent through it
 * again (cycle walking), so that any place of any epoch costs no memory and about as many hashes
 * for any n.  It is pseudo-random, not a uniform draw among all n! orders.
 *
 * EN_ORDER_TORCH is the list that torch.randperm(n) makes of a generator with seed + epoch, which
 * is what DistributedSampler and accelerate's seedable sampler take; it keeps 4 bytes a row, and
 * the first look at an epoch costs n steps.
 */
#ifndef EN_ORDER_H
#define EN_ORDER_H

#include "libckpt/base/ck_base.h"

enum en_order_kind { EN_ORDER_SEQUENTIAL = 1, EN_ORDER_SHUFFLED, EN_ORDER_TORCH };

/* torch draws 64 bits a step from here on, which is not done here. */
#define EN_ORDER_TORCH_ROWS (UINT32_MAX / 20)

struct en_order {
	enum en_order_kind kind;
	uint64_t n, seed;
	unsigned half;		/* bits of each half of the network */
	uint32_t *list;		/* TORCH: the order of 'list_epoch', or NULL */
	uint64_t list_epoch;
};

/* "sequential", "shuffled", "torch".  Static string, never freed. */
const char *en_order_name(enum en_order_kind kind);

/*
 * Of n rows, 1 to 2^62; zeroed structs may be released.  CKPT_E_USAGE for no rows, CKPT_E_LIMIT for
 * more than that (of TORCH, EN_ORDER_TORCH_ROWS).
 */
int en_order_init(struct en_order *o, enum en_order_kind kind, uint64_t n, uint64_t seed,
		  struct ckpt_err *err);
void en_order_release(struct en_order *o);

/* Row number 'k' (below n) of an epoch.  CKPT_E_NOMEM, of TORCH only.  One thread at a time. */
int en_order_at(struct en_order *o, uint64_t epoch, uint64_t k, uint64_t *row_out,
		struct ckpt_err *err);

#endif
