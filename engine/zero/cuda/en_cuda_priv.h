/* en_cuda_priv.h -- what the files of engine/zero/cuda share. */
#ifndef EN_CUDA_PRIV_H
#define EN_CUDA_PRIV_H

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "engine/base/en_trace.h"
#include "engine/zero/cuda/en_zero_cuda.h"
#include "engine/zero/en_zero_backend.h"
#include "kernels/include/kn_cuda.h"
#include "kernels/include/kn_cuda_attn.h"
#include "kernels/include/kn_cuda_fp8.h"
#include "kernels/include/kn_cuda_gemm.h"
#include "kernels/include/kn_cuda_random.h"

#define EN_CUDA_PLANS 4u		/* of attention: shapes of batches */
#define EN_CUDA_TEXT 400

/* A block on this GPU; its en_zero_block points to memory of the GPU, or 'own' of the host. */
struct en_cuda_block {
	const struct en_zero_block *z;
	void *total;		/* [shard]: the step's gradient, of en_cuda.sum_type */
	float **level;		/* [en_cuda_levels()] of [shard], with en_cuda.tree: sums of 1, 2,
				 * 4, ... micro-batches; total is one of them */
	cudaEvent_t whole;	/* stages 1 and 2: 'params' have been gathered */
};

/* A gather into a slot. */
struct en_cuda_gather {
	cudaEvent_t ready;	/* the gather is over */
	cudaEvent_t left;	/* who used it is done */
};

/* A rank's shards of a block, on the device. */
struct en_cuda_parts {
	void *own, *frozen;
};

/* A block's gradients on their way. */
struct en_cuda_reduce {
	void *grads;		/* of opts.wire */
	void *pieces;		/* of a micro-batch: of all ranks [size * shard], exchanged; or of
				 * NCCL [shard], where several micro-batches are summed; or NULL */
	cudaEvent_t written;	/* they are there */
	cudaEvent_t gone;	/* they may be overwritten */
};

/* What a layer keeps for its way back, besides its input. */
struct en_cuda_kept {
	void *qkv, *o, *mid, *gu;	/* of the type */
	float *lse, *rstd_in, *rstd_post;
	void *lora;			/* [n, r] of each adapter, side by side where it can be */
	/* With keep_all; else NULL, and computed again into room that all layers share. */
	void *h_in, *q, *k, *h_post, *act;
};

struct en_cuda {
	struct en_zero z;	/* first */
	struct en_cuda_opts cuda;
	char text[EN_CUDA_TEXT];
	cudaStream_t work, move;
	ncclComm_t nccl;	/* NULL: one rank */
	bool lost;		/* a peer is dead; pending NCCL operations never complete */
	struct en_cuda_allocation *memory;	/* all there is */
	uint32_t nmemory;
	bool shares;		/* other ranks reach what is en_cuda_new_shared() */
	bool tree;		/* gradients are exchanged, all micro-batches summed as one tree */
	struct en_cuda_fp8 *fp8;	/* en_cuda_fp8.c; NULL: no product is of 8-bit numbers */
	struct kn_cu_gemm *gemm;
	void *gemm_work;
	struct kn_cu_attn *attn[EN_CUDA_PLANS];
	uint32_t attn_rows[EN_CUDA_PLANS], attn_tokens[EN_CUDA_PLANS];
	bool attn_seams[EN_CUDA_PLANS];
	void *attn_work;
	size_t attn_bytes;
	enum kn_type sum_type;	/* of en_cuda_block.total */
	struct en_cuda_block *block;
	struct en_cuda_gather *gather;	/* [z.slots.n] */
	struct en_cuda_reduce reduce[EN_ZERO_REDUCES + 1];	/* the last: of a tied block 0 */
	void **x;		/* [layers + 1]: a layer's input */
	struct en_cuda_kept *kept;	/* [layers]; with recompute all the same */
	uint32_t ld;		/* of qkv: (heads + 2 kv_heads) head_dim */
	/* Room to compute in. */
	void *h, *q, *k, *act;	/* [n, hidden], [n, heads d], [n, kv_heads d], [n, inter] */
	void *g;		/* [n, hidden]: the gradient of the stream */
	void *t, *dout, *dqkv, *dgu;
	void *spare;		/* as t, where several products are added up; or NULL */
	void *dlora;		/* [n, r] of each adapter with one input */
	void *lora_a;		/* their A's, where there are several */
	void *lora_da;		/* and the gradients of these, of the wire's type */
	void *dropped;		/* [n, model->drop]: an adapter's input, or its gradient; or NULL */
	void *unused;		/* where gradients of frozen norms go; or NULL */
	void *part;		/* of reductions over rows */
	void *logits;		/* [chunk, vocab] */
	size_t chunk;
	float *dhead;		/* [vocab, hidden]: several chunks, 16 bits sent; or NULL */
	float *loss;		/* [n] */
	float *cos, *sin;
	int32_t *starts;	/* [n]; of a batch in which rows hold documents: 'seams' */
	bool seams;
	int32_t *ids, *target, *list_id, *list_begin, *list_at;	/* [n], [n + 1] */
	void *whole;		/* stage 0 of several ranks: the sums of a block, of all */
	double *rank_sums;	/* [size], of the host: without tree, a sum of each rank */
	double *sums;		/* [nsums]: of chunks of this rank's shards */
	double *all_sums, *ordered;	/* with tree, of several ranks: of all, and by block */
	double *tree_work;
	double *result;		/* two: loss, norm */
	/* The host's side of the small ones, pinned. */
	int32_t *host_ids;	/* 6 n + 1 */
	uint64_t *host_list;	/* n */
	double *host_result;
	size_t nid;
	bool expects;		/* memory is counted, and none is taken */
	struct en_cuda_off *off;	/* en_cuda_offload.c; NULL: nothing is on the host */
	cudaEvent_t updated, loss_ready;
	struct en_cuda_load *load;	/* while a state is loaded; en_cuda_load.c */
	struct en_cuda_snap *snap;	/* where saves are made; en_cuda_save.c */
	/* While there is a trace: its beginning, and every mark that there can be. */
	cudaEvent_t trace_begin, *trace_mark;
	uint32_t trace_marks;
};

static inline struct en_cuda *en_cuda_of(struct en_zero *z)
{
	return (struct en_cuda *)z;
}
static inline void *en_cuda_at(void *p, uint64_t elements, enum kn_type type)
{
	return (uint8_t *)p + elements * kn_type_size(type);
}
static inline const void *en_cuda_at_const(const void *p, uint64_t elements, enum kn_type type)
{
	return (const uint8_t *)p + elements * kn_type_size(type);
}
static inline bool en_cuda_has_host_optimizer(const struct en_cuda *c)
{
	return c->z.opts.stage && c->z.opts.host_optimizer;
}
static inline bool en_cuda_has_host_params(const struct en_cuda *c)
{
	return c->z.opts.stage == 3 && c->z.opts.host_params;
}
/* Parameters stay whole: there is nothing to gather in a pass. */
static inline bool en_cuda_is_whole(const struct en_cuda *c)
{
	return c->z.opts.stage != 3 || (c->z.comm->size == 1 && !c->z.opts.host_params);
}

static inline bool en_cuda_keeps_all(const struct en_cuda *c)
{
	return c->cuda.keep_all && !c->z.opts.recompute;
}

/* ---- en_cuda_lib.c: what libraries say, as errors ---- */
int en_cuda_cuda(int rc, const char *what, struct ckpt_err *err);
int en_cuda_nccl(const struct en_cuda *c, ncclResult_t rc, const char *what, struct ckpt_err *err);
int en_cuda_attn(int rc, const char *why, struct ckpt_err *err);
int en_cuda_event(cudaEvent_t *out, struct ckpt_err *err);
/* NULL is fine. */
void en_cuda_event_free(cudaEvent_t event);
/* 'later' continues when what 'earlier' has been given so far is done. */
int en_cuda_after(cudaStream_t later, cudaStream_t earlier, cudaEvent_t by, struct ckpt_err *err);
/* ---- en_cuda_wait.c ---- */
/*
 * Until 'event' has come, or with NULL 'stream' is empty; of several ranks with the deadline:
 * CKPT_E_IO names those that are silent, and then NCCL is ended (c->lost).
 */
int en_cuda_wait(struct en_cuda *c, cudaStream_t stream, cudaEvent_t event, const char *what,
		 struct ckpt_err *err);
/* Nothing is on its way any more.  False: it does not end, and nothing can be freed. */
bool en_cuda_drain(struct en_cuda *c);
/* c->nccl, with the deadline. */
int en_cuda_join_nccl(struct en_cuda *c, const ncclUniqueId *id, const ncclConfig_t *config,
		      struct ckpt_err *err);

/* One rank's id for all; NULL and nothing for one rank. */
int en_cuda_join(struct en_cuda *c, struct ckpt_err *err);

/* ---- en_cuda_new.c ---- */
/* All of a state's memory on the device but attention's; where c->expects it is only counted. */
int en_cuda_take_memory(struct en_cuda *c, struct ckpt_err *err);
/* Attention of the run's own shape, with its memory. */
int en_cuda_plan_most(struct en_cuda *c, struct ckpt_err *err);
void en_cuda_free(struct en_zero *z);

/* ---- en_cuda_mem.c ---- */
/* Device memory of zeros. */
int en_cuda_new(struct en_cuda *c, enum en_mem_kind kind, uint64_t bytes, void *p_out,
		struct ckpt_err *err);
/* The same for what moves between ranks: all of them take it, in the same order. */
int en_cuda_new_shared(struct en_cuda *c, enum en_mem_kind kind, uint64_t bytes, void *p_out,
		       struct ckpt_err *err);
/* NULL is fine. */
void en_cuda_free_one(struct en_cuda *c, void *p);
void en_cuda_free_all(struct en_cuda *c);

/* ---- en_cuda_move.c: parameters come ---- */
ncclDataType_t en_cuda_nccl_type(enum kn_type type);
/* 'bytes' went to each other rank. */
void en_cuda_count_sent(struct en_cuda *c, enum en_comm_kind kind, uint64_t bytes);
int en_cuda_whole_wait(struct en_zero *z, uint32_t block, struct ckpt_err *err);
int en_cuda_gather_begin(struct en_zero *z, uint32_t block, uint32_t slot, struct ckpt_err *err);
int en_cuda_gather_wait(struct en_zero *z, uint32_t block, uint32_t slot, struct ckpt_err *err);
int en_cuda_release(struct en_zero *z, uint32_t slot, struct ckpt_err *err);
int en_cuda_frozen_share(struct en_zero *z, uint32_t block, struct ckpt_err *err);
/* Parameters of stages 1 and 2, after 'by' has updated them; ready when their event is. */
int en_cuda_gather_params(struct en_cuda *c, uint32_t block, cudaStream_t by, struct ckpt_err *err);

/* ---- en_cuda_reduce.c: gradients go ---- */
/* A single micro-batch of a single rank is the sum already. */
bool en_cuda_is_total(const struct en_cuda *c);
/* Partial sums of a block that may be held at once. */
uint32_t en_cuda_levels(const struct en_zero_opts *opts);
int en_cuda_grad_buffer(struct en_zero *z, uint32_t block, void **grads_out, struct ckpt_err *err);
/* After the last micro-batch the sums of squares are made as well. */
int en_cuda_reduce_begin(struct en_zero *z, uint32_t block, uint32_t m, struct ckpt_err *err);
/* The stream that computes waits for all that moves. */
int en_cuda_reduce_wait(struct en_cuda *c, struct ckpt_err *err);

/* ---- en_cuda_norm.c ---- */
int en_cuda_norm_begin(struct en_zero *z, struct ckpt_err *err);
int en_cuda_norm_order(struct en_zero *z, uint64_t to, uint64_t from, uint64_t n,
		       struct ckpt_err *err);
int en_cuda_norm_end(struct en_zero *z, uint64_t n, double *sum_out, struct ckpt_err *err);

/* ---- en_cuda_layer.c ---- */
/* Attention for batches of such rows; kept. */
int en_cuda_plan(struct en_cuda *c, const struct en_batch *b, const struct kn_cu_attn **out,
		 struct ckpt_err *err);
/* A layer's products go back in parts that are added up, so c->spare is needed. */
bool en_cuda_adds_products(const struct en_model *model);
/* A layer on the rows of a pass. */
struct en_cuda_run {
	const struct en_batch *batch;
	uint32_t layer;
	const void *params;
};
/* With y NULL half a pass: without the last product, which recomputation does not need. */
int en_cuda_run_forward(struct en_cuda *c, const struct en_cuda_run *run, const void *x, void *y,
			const struct en_cuda_kept *kept, struct ckpt_err *err);
/* c->g becomes the gradient of x; with 'lowest' that is not needed. */
int en_cuda_run_backward(struct en_cuda *c, const struct en_cuda_run *run, const void *x,
			 const struct en_cuda_kept *kept, void *grads, bool lowest,
			 struct ckpt_err *err);

/* ---- en_cuda_fp8.c: products of 8-bit numbers; without c->fp8 they do nothing ---- */
int en_cuda_fp8_new(struct en_cuda *c, struct ckpt_err *err);
void en_cuda_fp8_free(struct en_cuda *c);
/* Parameters are others from now on. */
void en_cuda_fp8_stale(struct en_cuda *c);
/* Of a pass: no input has a scale. */
int en_cuda_fp8_begin(struct en_cuda *c, struct ckpt_err *err);
/* Of a layer, forward ('grads' NULL) or back. */
void en_cuda_fp8_layer(struct en_cuda *c, uint32_t layer, const void *params, const void *grads);
/*
 * Where the kernel that makes a tensor leaves its largest number; NULL: nowhere.  Of the input of
 * EN_Q, EN_GATE or EN_DOWN, and of the gradient of what EN_O, EN_GATE or EN_DOWN gave, with
 * 'before' in the layer before.  Nobody changes the tensor after that.
 */
struct kn_cu_fp8_scale *en_cuda_fp8_of_input(struct en_cuda *c, enum en_slot slot);
struct kn_cu_fp8_scale *en_cuda_fp8_of_grad(struct en_cuda *c, enum en_slot slot, bool before);
/*
 * Whether the transposed copy of the input of EN_Q, EN_GATE or EN_DOWN is kept for the way back,
 * which then needs nothing of 16 bits; and whether the layer at work has it.
 */
bool en_cuda_fp8_keeps(const struct en_cuda *c, enum en_slot slot);
bool en_cuda_fp8_has(const struct en_cuda *c, enum en_slot slot);
/* A product of a matrix w [out, in] for n positions; 'ld' is the distance of rows of y and dy. */
struct en_cuda_linear {
	size_t n, in, out, ld;
	const void *x, *dy, *w, *add;
	void *d;
};
/*
 * d = x w^T + add;  d = dy w + add;  d = dy^T x.  False: not in 8 bits, and nothing is done.
 * '*rc_out' is a cudaError_t, or below 0: kn_cu_gemm_why().
 */
bool en_cuda_fp8_forward(struct en_cuda *c, const struct en_cuda_linear *l, int *rc_out);
bool en_cuda_fp8_input(struct en_cuda *c, const struct en_cuda_linear *l, int *rc_out);
bool en_cuda_fp8_weight(struct en_cuda *c, const struct en_cuda_linear *l, int *rc_out);

/* ---- en_cuda_head.c ---- */
int en_cuda_upload(struct en_cuda *c, const struct en_batch *b, struct ckpt_err *err);
int en_cuda_embed_forward(struct en_zero_pass *p, const void *params, struct ckpt_err *err);
int en_cuda_head(struct en_zero_pass *p, const struct en_zero_head *head, struct ckpt_err *err);
int en_cuda_embed_backward(struct en_zero_pass *p, void *grads, struct ckpt_err *err);

/* ---- en_cuda_pass.c ---- */
int en_cuda_pass_begin(struct en_zero_pass *p, struct ckpt_err *err);
int en_cuda_layer_forward(struct en_zero_pass *p, uint32_t layer, const void *params,
			  struct ckpt_err *err);
int en_cuda_loss_begin(struct en_zero_pass *p, struct ckpt_err *err);
int en_cuda_layer_backward(struct en_zero_pass *p, uint32_t layer, const void *params, void *grads,
			   bool lowest, struct ckpt_err *err);
int en_cuda_pass_end(struct en_zero_pass *p, struct ckpt_err *err);

/* ---- en_cuda_trace.c ---- */
int en_cuda_trace(struct en_zero *z, struct en_trace *t, struct ckpt_err *err);

/* ---- en_cuda_step.c: the update on the GPU ---- */
int en_cuda_update_begin(struct en_adam *a, struct ckpt_err *err);
int en_cuda_update_block(struct en_adam *a, struct ckpt_err *err);
int en_cuda_adam(struct en_adam *a, uint32_t group, uint64_t from, uint64_t to,
		 struct ckpt_err *err);
int en_cuda_cast(struct en_adam *a, struct ckpt_err *err);
int en_cuda_sync_block(struct en_adam *a, struct ckpt_err *err);
int en_cuda_update_end(struct en_adam *a, struct ckpt_err *err);
int en_cuda_init(struct en_zero *z, uint64_t seed, struct ckpt_err *err);

/* ---- en_cuda_offload.c: states and parameters of the host ---- */
/* What of both there is; before the blocks. */
int en_cuda_off_new(struct en_cuda *c, struct ckpt_err *err);
/* Its copies are done. */
void en_cuda_off_wait(struct en_cuda *c);
void en_cuda_off_free(struct en_cuda *c);
/* The stream that copies up; of a trace's row of copies. */
cudaStream_t en_cuda_off_up(const struct en_cuda *c);
/* Elements of a tile, at most. */
uint64_t en_cuda_off_tile(const struct en_cuda *c);
/* Pinned memory of zeros for a block's parameters. */
int en_cuda_new_own(struct en_cuda *c, uint64_t bytes, void *p_out, struct ckpt_err *err);
/*
 * This rank's parts go to their places in the slot when nothing uses that any more; the stream that
 * moves waits for them.
 */
int en_cuda_bring(struct en_cuda *c, uint32_t block, uint32_t slot, struct en_cuda_parts *parts_out,
		  struct ckpt_err *err);
/* And back: the stream that computes has made it at the beginning of the slot. */
int en_cuda_store(struct en_cuda *c, uint32_t block, uint32_t slot, struct ckpt_err *err);
/* The update on the host. */
int en_cuda_off_begin(struct en_adam *a, struct ckpt_err *err);
int en_cuda_off_tile_begin(struct en_adam *a, uint64_t t, uint64_t first, struct ckpt_err *err);
int en_cuda_off_tile_end(struct en_adam *a, uint64_t t, struct ckpt_err *err);
int en_cuda_off_sync_block(struct en_adam *a, struct ckpt_err *err);
int en_cuda_off_end(struct en_adam *a, struct ckpt_err *err);

/* ---- en_cuda_load.c: the state from the host ---- */
/* A state of a block, of this rank's shard from element 0 on. */
float *en_cuda_state(const struct en_cuda *c, uint32_t block, enum en_state state);
int en_cuda_get(struct en_zero *z, const struct en_zero_slice *slice, float *to,
		struct ckpt_err *err);
int en_cuda_load_buffer(struct en_zero *z, uint32_t turn, float **buffer_out,
			uint64_t *elements_out, struct ckpt_err *err);
int en_cuda_load_send(struct en_zero *z, const struct en_zero_slice *slice, const float *from,
		struct ckpt_err *err);
void en_cuda_free_load(struct en_cuda *c);
int en_cuda_frozen_init(struct en_zero *z, const struct en_zero_piece *p, uint64_t seed,
			struct ckpt_err *err);
int en_cuda_frozen_put(struct en_zero *z, uint32_t block, uint64_t at, uint64_t n, const void *p,
		       struct ckpt_err *err);

/* ---- en_cuda_save.c: a copy of the state for saves, on a stream of its own ---- */
int en_cuda_snap_new(struct en_zero *z, uint64_t bytes, uint32_t threads, struct ckpt_err *err);
int en_cuda_snap_begin(struct en_zero *z, struct ckpt_err *err);
int en_cuda_snap_start(struct en_zero *z, struct ckpt_err *err);
int en_cuda_snap_next(struct en_zero *z, struct en_zero_copied *out, struct ckpt_err *err);
void en_cuda_snap_end(struct en_zero *z);
/* Before a block is overwritten: what is computed from here on waits until it has been copied. */
int en_cuda_snap_wait(struct en_cuda *c, uint32_t block, struct ckpt_err *err);
void en_cuda_snap_free(struct en_cuda *c);
/* On the stream of the copies, if there is one: it may be the thread that saves. */
int en_cuda_frozen_get(struct en_zero *z, uint32_t block, uint64_t at, uint64_t n, void *p,
		       struct ckpt_err *err);

#endif
