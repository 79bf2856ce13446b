/*
 * ck_zt_memory.h -- what a CPU rank of ztrain holds, from the sizes by which it allocates.
 *
 * Whole numbers only, and the one place that computes them: the engine takes its sizes and what it
 * expects from here, ckpt_estimate() its terms.  docs/ztrain/memory.md has the formulas; a test
 * compares them with the engine's counters, to the byte.
 */
#ifndef CK_ZT_MEMORY_H
#define CK_ZT_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#define CK_ZT_CHUNK 4096u	/* elements: every rank has whole ones of each block */
#define CK_ZT_ROWS 64u		/* of a job of element-wise work */
#define CK_ZT_MESSAGE ((uint64_t)1 << 20)	/* bytes, at most */
#define CK_ZT_SCRATCH ((uint64_t)32 << 20)	/* bytes of a collective that joins */

struct ck_zt_setup {
	/* Of the model: trained elements of each block, the embedding first, the head last. */
	const uint64_t *block;
	const uint64_t *frozen;		/* the others; NULL = there are none */
	uint64_t lora;			/* rank of adapters; 0 = there are none */
	uint64_t lora_drop;		/* the widest input of one that is dropped; 0 = none is */
	uint64_t nblocks;		/* layers + 2 */
	bool tied;			/* the head has the embedding's matrix */
	bool qk_norm;
	uint64_t hidden, inter, heads, kv_heads, head_dim, vocab;
	/* Of the run. */
	uint32_t stage, rank, ranks;
	uint64_t micro_batches;		/* of a rank in a step */
	uint64_t rows, tokens;		/* of a micro-batch; of a row */
	uint32_t type, wire;		/* bytes of a number: computed with, sent */
	uint32_t threads;
	bool recompute;
	bool messages;			/* collectives are messages between ranks, from scratch */
};

/* Bytes, where nothing else is said. */
struct ck_zt_memory {
	uint64_t padded, part;		/* trained elements of all blocks; of a rank */
	uint64_t fpadded, fpart;	/* the same of frozen ones */
	uint64_t real;			/* trained elements of this rank that are no padding */
	uint64_t largest;		/* elements of a rank's part of a block */
	uint64_t gather, reduce;	/* elements of the buffers for blocks on their way */
	uint64_t levels;		/* sums of gradients beside each other */
	uint64_t stream;		/* the hidden states of a micro-batch */
	uint64_t kept, away;		/* of a layer: in fp32; in the type, with its input */

	uint64_t params, gathered, grads, optimizer, activations, work;
	uint64_t norm_sums, scratch;	/* of collectives */
};

void ck_zt_memory(const struct ck_zt_setup *setup, struct ck_zt_memory *out);

/* Elements of a block's trained, or frozen parameters with their padding. */
uint64_t ck_zt_padded(uint64_t numel, uint32_t ranks);
/* Sums of micro-batches beside each other; stages 2 and 3 keep the total in one. */
uint32_t ck_zt_levels(uint32_t stage, uint64_t micro_batches);
/* Bytes of a message, of 'bytes' for each other rank; 'ranks' is 1 where nothing is joined. */
uint64_t ck_zt_message(uint32_t ranks, uint64_t bytes);
/* Scratch of a reduce-scatter: two messages from each other rank. */
uint64_t ck_zt_scratch(uint32_t ranks, uint64_t bytes);
/* Most rows of logits at once. */
uint64_t ck_zt_logit_rows(uint64_t vocab);

#endif
