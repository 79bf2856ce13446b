/*
 * en_zero_backend.h -- what a kind of machine brings to ZeRO, and what it may use of engine/zero.
 *
 * The passes, gathers, norm and update are written once (zero_pass.c, zero_move.c, zero_norm.c,
 * zero_step.c), over the functions of struct en_zero_backend.  These may return before the work is
 * done: a backend with streams launches it, in the order of the calls, and makes one stream wait
 * for another.  How gradients are summed over ranks and micro-batches is the backend's: on CPU
 * ranks the host sums what has arrived, in what it keeps anyway; on GPUs a stream does, as early as
 * it may.
 */
#ifndef EN_ZERO_BACKEND_H
#define EN_ZERO_BACKEND_H

#include "engine/base/en_trace.h"
#include "engine/model/en_pool.h"
#include "engine/zero/en_adam.h"
#include "engine/zero/en_offloader.h"
#include "engine/zero/en_zero.h"

#define EN_ZERO_LEVELS 24u	/* of sums over micro-batches, as a binary counter */
#define EN_ZERO_REDUCES 2u	/* buffers of gradients: even blocks, odd ones */

/* A block's state on this rank. */
struct en_zero_block {
	uint64_t numel, padded, shard;	/* elements that are trained */
	uint64_t fnumel, fpadded, fshard;	/* the same of frozen ones, which have no states */
	void *params;		/* [padded + fpadded]; NULL where they are gathered for each use */
	void *own;		/* [shard]: this rank's, in 'params' or by itself */
	void *frozen;		/* [fshard]: the same of frozen ones */
	/*
	 * [shard], at stage 0 [padded]; with KN_F32 the master is 'own' or 'params'.  Outside
	 * (en_zero.off): NULL.
	 */
	float *master, *exp_avg, *exp_avg_sq;
	uint64_t first_sum;	/* of its chunks, among the sums of a rank */
};

/* Stage 3: which slot a block is gathered in. */
struct en_zero_slots {
	uint32_t n;		/* 0: parameters stay whole */
	uint32_t ahead;		/* blocks gathered before they are used */
	uint64_t reuse;		/* a block that is used again after so many elements is kept */
	uint32_t *of;		/* [nblocks]: the slot of a block */
	uint64_t *padded;	/* [n]: elements, trained and frozen; 0: of no block */
};

/* A slot. */
struct en_zero_gather {
	void *p;
	int64_t block;		/* -1 = free */
	uint32_t users;
};

/* A pass over the blocks. */
struct en_zero_pass {
	struct en_zero *z;
	const struct en_batch *batch;
	uint32_t m;		/* number of the micro-batch */
	float factor;
	bool back;		/* it goes backward; else the loss alone */
	void *embed_grads;	/* of block 0; of a tied model the head's part is in it */
	struct en_loss *loss;
};

/* 'head' is the head's matrix; gradients NULL: frozen, or the loss alone. */
struct en_zero_head {
	const void *params, *head;
	void *dnorm, *dhead;
};

/*
 * A backend has a struct en_zero at the beginning of its own.  Functions that may be NULL say so.
 */
struct en_zero_backend {
	const char *name;	/* "cpu", "cuda" */
	void (*free)(struct en_zero *z);
	/* z->trace becomes 't', which may be NULL: it is started, what was there is stopped. */
	int (*trace)(struct en_zero *z, struct en_trace *t, struct ckpt_err *err);

	/* ---- parameters ---- */
	/* Of whole parameters: what is computed next waits for the block's gather; or NULL. */
	int (*whole_wait)(struct en_zero *z, uint32_t block, struct ckpt_err *err);
	/* Into a slot without users, which may still be read by what was launched before. */
	int (*gather_begin)(struct en_zero *z, uint32_t block, uint32_t slot,
			    struct ckpt_err *err);
	int (*gather_wait)(struct en_zero *z, uint32_t block, uint32_t slot, struct ckpt_err *err);
	/* All that uses the slot has been launched; or NULL. */
	int (*release)(struct en_zero *z, uint32_t slot, struct ckpt_err *err);

	/* ---- gradients ---- */
	/* Where those of a block are to be written, zero after the last parameter. */
	int (*grad_buffer)(struct en_zero *z, uint32_t block, void **grads_out,
			   struct ckpt_err *err);
	/* They are written, by micro-batch m: begins to sum them over ranks. */
	int (*reduce_begin)(struct en_zero *z, uint32_t block, uint32_t m, struct ckpt_err *err);

	/* ---- a pass: the blocks' own work ---- */
	/* NULL: nothing is to be done. */
	int (*pass_begin)(struct en_zero_pass *p, struct ckpt_err *err);
	int (*embed_forward)(struct en_zero_pass *p, const void *params, struct ckpt_err *err);
	int (*layer_forward)(struct en_zero_pass *p, uint32_t layer, const void *params,
			     struct ckpt_err *err);
	int (*head)(struct en_zero_pass *p, const struct en_zero_head *head, struct ckpt_err *err);
	/* Begins to bring the loss to the host; NULL: it is there. */
	int (*loss_begin)(struct en_zero_pass *p, struct ckpt_err *err);
	/*
	 * Computes again what was not kept.  'grads' NULL: nothing of it is trained; with 'lowest'
	 * nothing before it is.
	 */
	int (*layer_backward)(struct en_zero_pass *p, uint32_t layer, const void *params,
			      void *grads, bool lowest, struct ckpt_err *err);
	int (*embed_backward)(struct en_zero_pass *p, void *grads, struct ckpt_err *err);
	/* p->loss is there. */
	int (*pass_end)(struct en_zero_pass *p, struct ckpt_err *err);

	/* ---- the norm ---- */
	/* Sums of squares of chunks are there: of this rank, or with z->sums_of_all of all. */
	int (*norm_begin)(struct en_zero *z, struct ckpt_err *err);
	/* ordered[to ...] = all[from ...], n of them. */
	int (*norm_order)(struct en_zero *z, uint64_t to, uint64_t from, uint64_t n,
			  struct ckpt_err *err);
	/* The sum of n of them, of all ranks. */
	int (*norm_end)(struct en_zero *z, uint64_t n, double *sum_out, struct ckpt_err *err);

	/*
	 * ---- the update; with a->hyper NULL parameters follow masters that were set ----
	 *
	 * update_begin, for each block update_block, then its part, or with z->off its tiles, then
	 * sync_block; update_end.
	 */
	int (*update_begin)(struct en_adam *a, struct ckpt_err *err);
	/*
	 * a->grad and a->copy of block a->block; at stage 0 what other ranks have of it.  NULL
	 * where there are tiles only.
	 */
	int (*update_block)(struct en_adam *a, struct ckpt_err *err);
	/* a->grad and a->copy of tile t, which begins at 'first' of the shard. */
	int (*tile_begin)(struct en_adam *a, uint64_t t, uint64_t first, struct ckpt_err *err);
	/* Elements [from, to) of a->master, of one group. */
	int (*adam)(struct en_adam *a, uint32_t group, uint64_t from, uint64_t to,
		    struct ckpt_err *err);
	/* a->copy [a->n] from a->master. */
	int (*cast)(struct en_adam *a, struct ckpt_err *err);
	/* Or NULL. */
	int (*tile_end)(struct en_adam *a, uint64_t t, struct ckpt_err *err);
	/* The block's new parameters are made: begins to gather them where they stay whole. */
	int (*sync_block)(struct en_adam *a, struct ckpt_err *err);
	int (*update_end)(struct en_adam *a, struct ckpt_err *err);

	/*
	 * ---- the state on a device; NULL, all four, where pieces have memory of the host ----
	 *
	 * Masters from a seed, moments zero.
	 */
	int (*init)(struct en_zero *z, uint64_t seed, struct ckpt_err *err);
	int (*get)(struct en_zero *z, const struct en_zero_slice *slice, float *to,
		   struct ckpt_err *err);
	/*
	 * Memory to load into, two buffers in turns, number 'turn' from 0 on; it is there when what
	 * was sent from it has gone.  update_end() frees them.
	 */
	int (*load_buffer)(struct en_zero *z, uint32_t turn, float **buffer_out,
			   uint64_t *elements_out, struct ckpt_err *err);
	/* 'from' NULL sends zeros. */
	int (*load_send)(struct en_zero *z, const struct en_zero_slice *slice, const float *from,
			 struct ckpt_err *err);
	/*
	 * Frozen elements [at, at + n) of this rank's shard of a block, of the type that is
	 * computed with, to or from the host's memory at 'p'; NULL: z->block[].frozen is memory of
	 * the host.
	 */
	int (*frozen_put)(struct en_zero *z, uint32_t block, uint64_t at, uint64_t n,
			  const void *p, struct ckpt_err *err);
	int (*frozen_get)(struct en_zero *z, uint32_t block, uint64_t at, uint64_t n, void *p,
			  struct ckpt_err *err);
	/* A frozen piece from a seed, as en_model_init() makes it; NULL: on the host. */
	int (*frozen_init)(struct en_zero *z, const struct en_zero_piece *p, uint64_t seed,
			   struct ckpt_err *err);
	/* All ranks' frozen elements of a block come together where parameters stay whole. */
	int (*frozen_share)(struct en_zero *z, uint32_t block, struct ckpt_err *err);
	/* ---- copies for saves; or NULL, all five ---- */
	int (*snap_new)(struct en_zero *z, uint64_t bytes, uint32_t threads,
			struct ckpt_err *err);
	int (*snap_begin)(struct en_zero *z, struct ckpt_err *err);
	int (*snap_start)(struct en_zero *z, struct ckpt_err *err);
	int (*snap_next)(struct en_zero *z, struct en_zero_copied *out, struct ckpt_err *err);
	void (*snap_end)(struct en_zero *z);
};

struct en_zero {
	const struct en_zero_backend *backend;
	const struct en_model *model;
	struct en_comm *comm;
	struct en_zero_opts opts;
	struct en_zero_rule rule;
	struct en_mem mem;
	struct en_trace *trace;	/* NULL: none is recorded */
	uint64_t scratch;	/* of 'comm', as far as 'mem' knows */
	bool moves_by_comm;	/* 'comm' carries parameters and gradients: it has scratch memory */
	enum kn_type grad_type;	/* that gradients are computed in */
	struct en_zero_block *block;
	struct en_zero_slots slots;
	struct en_zero_gather *gather;	/* [slots.n] */
	uint64_t nsums;		/* of chunks, of a rank */
	bool sums_of_all;	/* the norm is summed over chunks of all ranks */
	struct en_zero_piece *piece;
	uint64_t npieces;
	struct en_zero_piece *frozen;	/* of parameters that are not trained: no states */
	uint64_t nfrozen;
	struct en_offloader *off;	/* masters and moments outside the blocks, or NULL */
	struct en_pool *pool;	/* the host's threads; lent, or NULL */
	float *file_buffer;	/* while a state in a file is loaded, or NULL */
};

/* Of a tied model: the gradients of block 0 are held from the head on. */
static inline bool en_zero_is_tied(const struct en_model *model, uint32_t block)
{
	return model->config.tied && !block;
}
/* Elements of a master that this rank updates: the shard, or at stage 0 all. */
static inline uint64_t en_zero_updated(const struct en_zero *z, const struct en_zero_block *b)
{
	return z->opts.stage ? b->shard : b->padded;
}

/* ---- en_zero.c ---- */
/* Options that exist. */
int en_zero_check(const struct en_zero_opts *opts, struct ckpt_err *err);
/* Trained elements of a block, with padding to whole chunks of 'size' ranks. */
uint64_t en_zero_padded(const struct en_model *model, uint32_t block, uint32_t size);
/* The same of all its elements: of the buffer of its parameters. */
uint64_t en_zero_room(const struct en_model *model, uint32_t block, uint32_t size);
static inline enum en_mem_kind en_zero_param_kind(const struct en_zero_opts *o)
{
	return o->stage == 3 && o->host_params ? EN_MEM_HOST_PARAMS : EN_MEM_PARAMS;
}
static inline enum en_mem_kind en_zero_optimizer_kind(const struct en_zero_opts *o)
{
	return o->stage && o->host_optimizer ? EN_MEM_HOST_OPTIMIZER : EN_MEM_OPTIMIZER;
}
/* Where the frozen elements of whole parameters begin. */
static inline void *en_zero_frozen_at(const struct en_zero *z, void *params, uint32_t block)
{
	return (uint8_t *)params + z->block[block].padded * kn_type_size(z->opts.type);
}
/* This rank's part of each parameter, once blocks and z->off are there. */
int en_zero_cut_pieces(struct en_zero *z, struct ckpt_err *err);
/* Random masters, and moments of zero, by all threads. */
void en_zero_init_piece(const struct en_zero *z, const struct en_zero_piece *p, uint64_t seed);
/* Pieces have no memory of this process: they are loaded through buffers, as the backend's. */
bool en_zero_is_remote(const struct en_zero *z);
int en_zero_load_buffer(struct en_zero *z, uint32_t turn, float **buffer_out,
			uint64_t *elements_out, struct ckpt_err *err);
int en_zero_load_send(struct en_zero *z, const struct en_zero_slice *slice, const float *from,
		      struct ckpt_err *err);
/* z->block, with its sizes; CKPT_E_NOMEM. */
int en_zero_new_blocks(struct en_zero *z, struct ckpt_err *err);
/* What engine/zero has made of 'z'; the last of a backend's free(). */
void en_zero_release_shared(struct en_zero *z);

/* ---- zero_frozen.c ---- */
int en_zero_init_frozen(struct en_zero *z, uint64_t seed, struct ckpt_err *err);
/* Elements [at, at + n) of a piece, in fp32. */
typedef int en_zero_make_fn(void *arg, const struct en_zero_piece *p, uint64_t at, uint64_t n,
			    float *to, struct ckpt_err *err);
/* A frozen piece of what a run trains (en_model_hold()), by parts from 'make'; CKPT_E_NOMEM. */
int en_zero_fill_held(struct en_zero *z, const struct en_zero_piece *p, en_zero_make_fn *make,
		      void *arg, struct ckpt_err *err);

/* ---- zero_slots.c ---- */
/* opts->flow, or what it is without one, also with 'opts' NULL. */
const struct en_zero_flow *en_zero_flow_of(const struct en_zero_opts *opts);
/* CKPT_E_NOMEM.  'slots' is to be released, also after an error. */
int en_zero_slots_plan(const struct en_model *model, const struct en_zero_flow *flow,
		       uint32_t size, struct en_zero_slots *slots, struct ckpt_err *err);
void en_zero_slots_release(struct en_zero_slots *slots);

/* ---- zero_move.c ---- */
/* z->slots and z->gather without their memory; CKPT_E_NOMEM. */
int en_zero_new_gathers(struct en_zero *z, const struct en_zero_flow *flow, struct ckpt_err *err);
/* The slot that a block is gathered in; NULL where parameters stay whole. */
struct en_zero_gather *en_zero_slot_of(struct en_zero *z, uint32_t block);
/* The parameters of a block, gathered if need be; en_zero_release() lets go of them. */
int en_zero_gather(struct en_zero *z, uint32_t block, const void **params_out,
		   struct ckpt_err *err);
/* 'back': on the way back, which decides whether the block is kept until its next use. */
int en_zero_release(struct en_zero *z, uint32_t block, bool back, struct ckpt_err *err);
/* Begins to gather those after 'block' (step 1) or before it (-1, block 0 excepted). */
int en_zero_prefetch(struct en_zero *z, uint32_t block, int step, struct ckpt_err *err);
/* The first of a pass. */
int en_zero_prefetch_first(struct en_zero *z, struct ckpt_err *err);
/* Parameters have changed: nothing that was gathered is of use. */
void en_zero_forget(struct en_zero *z);

/* ---- zero_norm.c ---- */
/* Chunks that hold elements, of all ranks. */
uint64_t en_zero_all_chunks(const struct en_zero *z);

/* ---- zero_file.c: states that are in a file ---- */
/* z->off, as the options have it; without 'masters' moments alone, and the masters are blocks'. */
int en_zero_new_off(struct en_zero *z, bool masters, struct ckpt_err *err);
/* What it takes of memory where it is a file; 'part' is the largest one. */
uint64_t en_zero_ring(const struct en_zero_opts *o, bool masters, uint64_t part);
/* As the backend's functions for the state on a device. */
int en_zero_file_init(struct en_zero *z, uint64_t seed, struct ckpt_err *err);
int en_zero_file_get(struct en_zero *z, const struct en_zero_slice *slice, float *to,
		     struct ckpt_err *err);
int en_zero_file_buffer(struct en_zero *z, uint32_t turn, float **buffer_out,
			uint64_t *elements_out, struct ckpt_err *err);
int en_zero_file_send(struct en_zero *z, const struct en_zero_slice *slice, const float *from,
		      struct ckpt_err *err);
/* The buffer to load into; NULL is fine. */
void en_zero_file_free_buffer(struct en_zero *z);

#endif
