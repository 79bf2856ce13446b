/* cz_priv.h -- what the files of engine/cuda share. */
#ifndef CZ_PRIV_H
#define CZ_PRIV_H

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "engine/base/en_trace.h"
#include "engine/cuda/en_zero_cuda.h"
#include "engine/zero/en_zero_priv.h"
#include "kernels/include/kn_cuda.h"
#include "kernels/include/kn_cuda_attn.h"
#include "kernels/include/kn_cuda_gemm.h"
#include "kernels/include/kn_cuda_random.h"

#define CZ_PLANS 4u		/* of attention: shapes of batches */
#define CZ_TEXT 400

/* A block's state on this GPU. */
struct cz_block {
	uint64_t numel, padded, shard;	/* elements */
	void *params;		/* [padded]; stage 3 of several ranks: NULL */
	void *own;		/* [shard]: this rank's, in 'params' or by itself; or of the host */
	float *master, *m, *v;	/* [updated]; with KN_F32 the master is 'own' or 'params' */
	void *total;		/* [shard]: the step's gradient, of cz.sum_type */
	float **level;		/* [cz_levels()] of [shard], with cz.tree: sums of 1, 2, 4, ...
				 * micro-batches; total is one of them */
	uint64_t first_sum;	/* of its chunks, in cz.sums */
	cudaEvent_t whole;	/* stages 1 and 2: 'params' have been gathered */
};

/* Stage 3: which room is whose. */
struct cz_seats {
	uint32_t n;
	uint32_t ahead;		/* blocks gathered before they are used */
	uint32_t *of;		/* [nblocks]: the room of a block */
	uint64_t *padded;	/* [n]: elements; 0: nobody's */
};

/* Stage 3: a block's parameters, for a while. */
struct cz_gather {
	void *p;
	int64_t block;		/* -1 = free */
	uint32_t users;
	cudaEvent_t ready;	/* the gather is over */
	cudaEvent_t left;	/* who used it is done */
};

/* A block's gradients on their way. */
struct cz_reduce {
	void *grads;		/* of opts.wire */
	void *pieces;		/* of a micro-batch: of all ranks [size * shard], exchanged; or of
				 * NCCL [shard], where several micro-batches are summed; or NULL */
	cudaEvent_t written;	/* they are there */
	cudaEvent_t gone;	/* they may be overwritten */
};

/* What a layer keeps for its way back, besides its input. */
struct cz_kept {
	void *qkv, *o, *mid, *gu;	/* of the type */
	float *lse, *rstd_in, *rstd_post;
	/* With keep_all; else NULL, and computed again into room that all layers share. */
	void *h_in, *q, *k, *h_post, *act;
};

struct cz {
	struct en_zero z;	/* first */
	struct en_cuda_opts cuda;
	char text[CZ_TEXT];
	cudaStream_t work, move;
	ncclComm_t nccl;	/* NULL: one rank */
	bool lost;		/* a rank is not there: what was begun will not end */
	struct cz_memory *memory;	/* all there is */
	uint32_t nmemory;
	bool shares;		/* other ranks reach what is cz_new_shared() */
	bool tree;		/* gradients are exchanged, and all units summed as one tree */
	struct kn_cu_gemm *gemm;
	void *gemm_work;
	struct kn_cu_attn *attn[CZ_PLANS];
	uint32_t attn_rows[CZ_PLANS], attn_tokens[CZ_PLANS];
	void *attn_work;
	size_t attn_bytes;
	enum kn_type sum_type;	/* of cz_block.total */
	struct cz_block *block;
	struct cz_seats seats;
	struct cz_gather *gather;	/* [seats.n] */
	bool back;		/* on the way back */
	struct cz_reduce reduce[EN_ZERO_REDUCES + 1];	/* the last: of a tied block 0 */
	void **x;		/* [layers + 1]: a layer's input */
	struct cz_kept *kept;	/* [layers]; with recompute all the same */
	uint32_t ld;		/* of qkv: (heads + 2 kv_heads) head_dim */
	/* Room to compute in. */
	void *h, *q, *k, *act;	/* [n, hidden], [n, heads d], [n, kv_heads d], [n, inter] */
	void *g;		/* [n, hidden]: the gradient of the stream */
	void *t, *dout, *dqkv, *dgu;
	void *spare;		/* as t, where biases make three products of one; or NULL */
	void *part;		/* of reductions over rows */
	void *logits;		/* [chunk, vocab] */
	size_t chunk;
	float *dhead;		/* [vocab, hidden]: several chunks, 16 bits sent; or NULL */
	float *loss;		/* [n] */
	float *cos, *sin;
	int32_t *ids, *target, *list_id, *list_begin, *list_at;	/* [n], [n + 1] */
	void *whole;		/* stage 0 of several ranks: the sums of a block, of all */
	double *sums;		/* [nsums]: of chunks of this rank's shards */
	double *all_sums, *ordered;	/* with tree, of several ranks: of all, and by block */
	double *tree_work;
	double *result;		/* two: loss, norm */
	/* The host's side of the small ones, pinned. */
	int32_t *host_ids;	/* 5 n + 1 */
	uint64_t *host_list;	/* n */
	double *host_result;
	size_t nid;
	bool expects;		/* memory is counted, and none is taken */
	struct cz_off *off;	/* cz_offload.c; NULL: nothing is on the host */
	cudaEvent_t updated, told;
	struct cz_room *rooms;	/* while a state is loaded; cz_load.c */
	struct cz_snap *snap;	/* where saves are made; cz_save.c */
	/* While there is a trace: its beginning, and every mark that there can be. */
	cudaEvent_t trace_begin, *trace_mark;
	uint32_t trace_marks;
};

static inline struct cz *cz_of(struct en_zero *z)
{
	return (struct cz *)z;
}
static inline void *cz_at(void *p, uint64_t elements, enum kn_type type)
{
	return (uint8_t *)p + elements * kn_type_size(type);
}
static inline const void *cz_at_const(const void *p, uint64_t elements, enum kn_type type)
{
	return (const uint8_t *)p + elements * kn_type_size(type);
}
static inline bool cz_has_host_optimizer(const struct cz *c)
{
	return c->z.opts.stage && c->z.opts.host_optimizer;
}
static inline bool cz_has_host_params(const struct cz *c)
{
	return c->z.opts.stage == 3 && c->z.opts.host_params;
}
/* Parameters stay whole: there is nothing to gather in a pass. */
static inline bool cz_is_whole(const struct cz *c)
{
	return c->z.opts.stage != 3 || (c->z.comm->size == 1 && !c->z.opts.host_params);
}

static inline bool cz_keeps_all(const struct cz *c)
{
	return c->cuda.keep_all && !c->z.opts.recompute;
}

/* ---- cz_lib.c: what libraries say, as errors ---- */
int cz_cuda(int rc, const char *what, struct ckpt_err *err);
int cz_nccl(const struct cz *c, ncclResult_t rc, const char *what, struct ckpt_err *err);
int cz_attn(int rc, const char *why, struct ckpt_err *err);
int cz_event(cudaEvent_t *out, struct ckpt_err *err);
/* NULL is fine. */
void cz_event_free(cudaEvent_t event);
/* 'later' goes on when what 'earlier' has been given so far is done. */
int cz_after(cudaStream_t later, cudaStream_t earlier, cudaEvent_t by, struct ckpt_err *err);
/* ---- cz_wait.c ---- */
/*
 * Until 'event' has come, or with NULL 'stream' is empty; of several ranks not for ever: CKPT_E_IO
 * names those that are silent, and then NCCL is ended (c->lost).
 */
int cz_wait(struct cz *c, cudaStream_t stream, cudaEvent_t event, const char *what,
	    struct ckpt_err *err);
/* Nothing is on its way any more.  False: it does not end, and nothing can be freed. */
bool cz_drain(struct cz *c);
/* c->nccl, with the deadline. */
int cz_join_nccl(struct cz *c, const ncclUniqueId *id, const ncclConfig_t *config,
		 struct ckpt_err *err);

/* One rank's id for all; NULL and nothing for one rank. */
int cz_join(struct cz *c, struct ckpt_err *err);

/* ---- cz_new.c ---- */
/* All of a state's memory on the device but attention's; where c->expects it is only counted. */
int cz_take_memory(struct cz *c, struct ckpt_err *err);
/* Attention of the run's own shape, with its memory. */
int cz_plan_most(struct cz *c, struct ckpt_err *err);
void cz_free(struct en_zero *z);

/* ---- cz_mem.c ---- */
/* Device memory of zeros. */
int cz_new(struct cz *c, enum en_mem_kind kind, uint64_t bytes, void *p_out, struct ckpt_err *err);
/* The same for what moves between ranks: all of them take it, in the same order. */
int cz_new_shared(struct cz *c, enum en_mem_kind kind, uint64_t bytes, void *p_out,
		  struct ckpt_err *err);
/* NULL is fine. */
void cz_free_one(struct cz *c, void *p);
void cz_free_all(struct cz *c);

/* ---- cz_seats.c ---- */
/* opts.flow, or what it is without one. */
const struct en_zero_flow *cz_flow_of(const struct en_zero_opts *opts);
/* -1: no memory.  '*r' is to be released. */
int cz_seats_plan(const struct en_model *m, const struct en_zero_opts *opts, uint32_t size,
		  struct cz_seats *r);
void cz_seats_release(struct cz_seats *r);

/* ---- cz_move.c: parameters come ---- */
ncclDataType_t cz_nccl_type(enum kn_type type);
/* 'bytes' went to each other rank. */
void cz_count_sent(struct cz *c, enum en_comm_kind kind, uint64_t bytes);
int cz_take(struct cz *c, uint32_t block, const void **params_out, struct ckpt_err *err);
int cz_release(struct cz *c, uint32_t block, struct ckpt_err *err);
/* Parameters of stages 1 and 2, after 'by' has updated them; ready when their event is. */
int cz_gather_params(struct cz *c, uint32_t block, cudaStream_t by, struct ckpt_err *err);
/* The room that a block is gathered in; NULL where parameters stay whole. */
struct cz_gather *cz_room_of(struct cz *c, uint32_t block);
/* Begins to gather those behind 'block' (step 1) or before it (-1, block 0 excepted). */
int cz_ahead(struct cz *c, uint32_t block, int step, struct ckpt_err *err);
/* The first of a pass. */
int cz_begin(struct cz *c, struct ckpt_err *err);
/* Parameters have changed: nothing that was gathered is of use. */
void cz_forget(struct cz *c);

/* ---- cz_reduce.c: gradients go ---- */
/* A single unit of a single rank is the sum already. */
bool cz_is_total(const struct cz *c);
/* Partial sums of a block that may stand beside each other. */
uint32_t cz_levels(const struct en_zero_opts *opts);
/* Where a block's gradients are to be written. */
int cz_grads(struct cz *c, uint32_t block, void **grads_out, struct ckpt_err *err);
/* They are written, by micro-batch m; after the last one the sums of squares are made as well. */
int cz_send(struct cz *c, uint32_t block, uint32_t m, struct ckpt_err *err);
/* The stream that computes waits for all that moves. */
int cz_settle(struct cz *c, struct ckpt_err *err);

/* ---- cz_norm.c ---- */
/* Chunks that hold elements, of all ranks. */
uint64_t cz_all_chunks(const struct cz *c);

/* ---- cz_layer.c ---- */
/* Attention for batches of such rows; kept. */
int cz_plan(struct cz *c, const struct en_batch *b, const struct kn_cu_attn **out,
	    struct ckpt_err *err);
/* Half a pass: without the last product, which recomputation does not need. */
int cz_layer_forward(struct cz *c, const struct en_batch *b, const void *params, const void *x,
		     void *y, const struct cz_kept *kept, struct ckpt_err *err);
/* c->g becomes the gradient of x. */
int cz_layer_backward(struct cz *c, const struct en_batch *b, const void *params, const void *x,
		      const struct cz_kept *kept, void *grads, struct ckpt_err *err);

/* ---- cz_head.c ---- */
int cz_upload(struct cz *c, const struct en_batch *b, struct ckpt_err *err);
int cz_embed_forward(struct cz *c, const struct en_batch *b, const void *table,
		     struct ckpt_err *err);
int cz_embed_backward(struct cz *c, const struct en_batch *b, void *grads, bool add,
		      struct ckpt_err *err);
/* 'grads' NULL: the loss alone.  'dhead' is where the head's gradient goes. */
int cz_head(struct cz *c, const struct en_batch *b, const void *params, const void *head,
	    double factor, void *grads, void *dhead, struct ckpt_err *err);
/* How many positions count. */
uint64_t cz_count(const struct cz *c, const struct en_batch *b);

/* ---- cz_trace.c, cz_pass.c, cz_step.c: the table ---- */
int cz_trace(struct en_zero *z, struct en_trace *t, struct ckpt_err *err);
int cz_unit(struct en_zero *z, uint32_t m, const struct en_zero_unit *unit,
	    struct en_loss *loss_out, struct ckpt_err *err);
int cz_eval(struct en_zero *z, const struct en_batch *batch, struct en_loss *loss_out,
	    struct ckpt_err *err);
int cz_norm(struct en_zero *z, double *norm_out, struct ckpt_err *err);
int cz_update(struct en_zero *z, const struct en_zero_hyper *hyper, uint64_t k, float grad_scale,
	      struct ckpt_err *err);
/* ---- cz_offload.c: states and parameters of the host ---- */
/* What of both there is; before the blocks. */
int cz_off_new(struct cz *c, struct ckpt_err *err);
/* Its copies are done. */
void cz_off_wait(struct cz *c);
void cz_off_free(struct cz *c);
/* The stream that copies up; of a trace's row of copies. */
cudaStream_t cz_off_up(const struct cz *c);
/* Elements of a tile's rooms. */
uint64_t cz_off_room(const struct cz *c);
/* Pinned memory of zeros for a block's parameters. */
int cz_new_own(struct cz *c, uint64_t bytes, void *p_out, struct ckpt_err *err);
/*
 * This rank's part goes to its place in 'g', '*own_out', when nobody uses that any more; the stream
 * that moves waits for it.
 */
int cz_bring(struct cz *c, uint32_t block, const struct cz_gather *g, void **own_out,
	     struct ckpt_err *err);
/* And back: the stream that computes has made it at the beginning of 'g'. */
int cz_store(struct cz *c, uint32_t block, const struct cz_gather *g, struct ckpt_err *err);
int cz_off_update(struct en_zero *z, const struct en_zero_hyper *hyper, uint64_t k,
		  float grad_scale, struct ckpt_err *err);
int cz_off_publish(struct en_zero *z, struct ckpt_err *err);

int cz_init(struct en_zero *z, uint64_t seed, struct ckpt_err *err);
int cz_publish(struct en_zero *z, struct ckpt_err *err);

/* ---- cz_load.c: the state from the host ---- */
/* A state of a block, of this rank's shard from element 0 on. */
float *cz_state(const struct cz *c, uint32_t block, enum en_state state);
int cz_get(struct en_zero *z, const struct en_zero_slice *slice, float *to, struct ckpt_err *err);
int cz_room(struct en_zero *z, uint32_t turn, float **room_out, uint64_t *elements_out,
	    struct ckpt_err *err);
int cz_put(struct en_zero *z, const struct en_zero_slice *slice, const float *from,
	   struct ckpt_err *err);
void cz_free_rooms(struct cz *c);

/* ---- cz_save.c: a copy of the state for saves, on a stream of its own ---- */
int cz_snap_new(struct en_zero *z, uint64_t bytes, uint32_t threads, struct ckpt_err *err);
int cz_snap_begin(struct en_zero *z, struct ckpt_err *err);
int cz_snap_start(struct en_zero *z, struct ckpt_err *err);
int cz_snap_next(struct en_zero *z, struct en_zero_copied *out, struct ckpt_err *err);
void cz_snap_end(struct en_zero *z);
/* Before a block is overwritten: what is computed from here on waits until it has been copied. */
int cz_snap_wait(struct cz *c, uint32_t block, struct ckpt_err *err);
void cz_snap_free(struct cz *c);

#endif
