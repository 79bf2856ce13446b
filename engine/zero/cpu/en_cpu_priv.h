/* en_cpu_priv.h -- what the files of engine/zero/cpu share. */
#ifndef EN_CPU_PRIV_H
#define EN_CPU_PRIV_H

#include "engine/zero/cpu/en_zero_cpu.h"
#include "engine/zero/en_zero_backend.h"

struct en_cpu_block {
	float *grads;		/* [padded]; stages 0 and 1 */
	float *sum[EN_ZERO_LEVELS];	/* [shard]: a stack, each of fewer micro-batches */
	struct en_collective *work;	/* a gather of all of it, in an update */
	uint32_t span;		/* of the trace */
};

/* A gather into a slot. */
struct en_cpu_gather {
	struct en_collective *work[2];	/* of trained parameters, and of frozen ones */
	uint32_t span;		/* of the trace */
};

/* A block's gradients on their way. */
struct en_cpu_reduce {
	float *grads;		/* stages 2 and 3: room for the largest of its blocks */
	float *shard;		/* [shard]: what comes of it, inside the block's gradients */
	int64_t block;		/* -1 = free */
	uint32_t m;
	struct en_collective *work;
	uint32_t span;
};

struct en_cpu {
	struct en_zero z;	/* first */
	struct en_exec *exec;
	struct en_cpu_block *block;
	uint32_t levels;	/* of the stack of sums */
	struct en_cpu_gather *gather;	/* [z.slots.n] */
	struct en_cpu_reduce reduce[EN_ZERO_REDUCES];
	float *tied;		/* stages 2 and 3 of a tied model: block 0's gradients */
	bool packed;		/* 16-bit types: what layers but the last keep is put away */
	float **x;		/* [layers + 1]: a layer's input; packed: two that take turns */
	float **saved;		/* [layers]; packed or with recompute all the same */
	void **away;		/* [layers]: packed */
	float *again;		/* packed and recompute: what a layer gives that is not needed */
	double *sums;		/* of chunks: of this rank, */
	double *all_sums;	/* of all, and those in order */
};

static inline struct en_cpu *en_cpu_of(struct en_zero *z)
{
	return (struct en_cpu *)z;
}
/*
 * With 'as_deepspeed', stages 0 and 1: a rank adds up its own micro-batches in the whole gradients,
 * and only the sum is reduced.
 */
static inline bool en_cpu_adds(const struct en_zero *z)
{
	return z->opts.as_deepspeed && z->opts.stage < 2;
}

/* ---- en_cpu_move.c ---- */
int en_cpu_gather_begin(struct en_zero *z, uint32_t block, uint32_t slot, struct ckpt_err *err);
int en_cpu_gather_wait(struct en_zero *z, uint32_t block, uint32_t slot, struct ckpt_err *err);
int en_cpu_grad_buffer(struct en_zero *z, uint32_t block, void **grads_out, struct ckpt_err *err);
int en_cpu_reduce_begin(struct en_zero *z, uint32_t block, uint32_t m, struct ckpt_err *err);
int en_cpu_frozen_share(struct en_zero *z, uint32_t block, struct ckpt_err *err);
/* All sums of the micro-batch are there. */
int en_cpu_reduce_wait(struct en_cpu *c, struct ckpt_err *err);
/* After the last micro-batch: a block's gradient, [shard]. */
float *en_cpu_total(const struct en_cpu *c, uint32_t block);

/* ---- en_cpu_pass.c ---- */
int en_cpu_embed_forward(struct en_zero_pass *p, const void *params, struct ckpt_err *err);
int en_cpu_layer_forward(struct en_zero_pass *p, uint32_t layer, const void *params,
			 struct ckpt_err *err);
int en_cpu_head(struct en_zero_pass *p, const struct en_zero_head *head, struct ckpt_err *err);
int en_cpu_layer_backward(struct en_zero_pass *p, uint32_t layer, const void *params, void *grads,
			  bool lowest, struct ckpt_err *err);
int en_cpu_embed_backward(struct en_zero_pass *p, void *grads, struct ckpt_err *err);
int en_cpu_pass_end(struct en_zero_pass *p, struct ckpt_err *err);

/* ---- en_cpu_step.c ---- */
int en_cpu_norm_begin(struct en_zero *z, struct ckpt_err *err);
int en_cpu_norm_order(struct en_zero *z, uint64_t to, uint64_t from, uint64_t n,
		      struct ckpt_err *err);
int en_cpu_norm_end(struct en_zero *z, uint64_t n, double *sum_out, struct ckpt_err *err);
int en_cpu_update_begin(struct en_adam *a, struct ckpt_err *err);
int en_cpu_update_block(struct en_adam *a, struct ckpt_err *err);
int en_cpu_tile_begin(struct en_adam *a, uint64_t t, uint64_t first, struct ckpt_err *err);
int en_cpu_sync_block(struct en_adam *a, struct ckpt_err *err);
int en_cpu_update_end(struct en_adam *a, struct ckpt_err *err);
int en_cpu_trace(struct en_zero *z, struct en_trace *t, struct ckpt_err *err);

#endif
