/* en_zero_backend.h -- what the files of engine/zero share. */
#ifndef EN_ZERO_BACKEND_H
#define EN_ZERO_BACKEND_H

#include "engine/base/en_trace.h"
#include "engine/model/en_pool.h"
#include "engine/zero/en_offloader.h"
#include "engine/zero/en_zero.h"

#define EN_ZERO_LEVELS 24u
#define EN_ZERO_GATHERS 3u	/* even blocks, odd ones, and a tied model's last */
#define EN_ZERO_REDUCES 2u	/* even blocks, odd ones */

struct zb {
	uint64_t numel, padded, shard;	/* elements */
	void *params;		/* [padded]; stage 3: NULL */
	void *own;		/* [shard]: this rank's, in 'params' or by itself */
	float *grads;		/* [padded]; stages 0 and 1 */
	float *sum[EN_ZERO_LEVELS];	/* [shard]: a stack, of fewer and fewer units each */
	/*
	 * [shard], at stage 0 [padded]; with KN_F32 the master is 'own'.  In a file (en_zero.off):
	 * NULL.
	 */
	float *master, *m, *v;
	struct en_comm_work *work;	/* a gather of all of it, in an update */
	uint32_t span;		/* of the trace */
};

/* Stage 3: a block's parameters, for a while; room for the largest of its blocks. */
struct zgather {
	void *p;
	int64_t block;		/* -1 = free */
	uint32_t users;
	struct en_comm_work *work;
	uint32_t span;		/* of the trace */
};

/* A block's gradients on their way. */
struct zreduce {
	float *grads;		/* stages 2 and 3: room for the largest of its blocks */
	float *piece;		/* [shard]: what comes of it, inside the block's gradients */
	int64_t block;		/* -1 = free */
	uint32_t m;
	struct en_comm_work *work;
	uint32_t span;
};

/*
 * What differs from one kind of machine to another.  A maker has a struct en_zero at the beginning
 * of its own.
 */
struct en_zero_ops {
	const char *name;	/* "cpu", "cuda" */
	void (*free)(struct en_zero *z);
	/* NULL: the memory of the pieces is filled, and published. */
	int (*init)(struct en_zero *z, uint64_t seed, struct ckpt_err *err);
	int (*publish)(struct en_zero *z, struct ckpt_err *err);
	int (*unit)(struct en_zero *z, uint32_t m, const struct en_zero_unit *unit,
		    struct en_loss *loss_out, struct ckpt_err *err);
	int (*eval)(struct en_zero *z, const struct en_batch *batch, struct en_loss *loss_out,
		    struct ckpt_err *err);
	int (*norm)(struct en_zero *z, double *norm_out, struct ckpt_err *err);
	int (*update)(struct en_zero *z, const struct en_zero_hyper *hyper, uint64_t k,
		      float grad_scale, struct ckpt_err *err);
	/*
	 * Where pieces have no memory; else NULL, all three.  A room is memory to load into, two of
	 * them in turns, number 'turn' from 0 on; it is there when what was sent from it has gone.
	 * Sending from NULL sends zeros.  en_zero_publish() frees the rooms.
	 */
	int (*get)(struct en_zero *z, const struct en_zero_slice *slice, float *to,
		   struct ckpt_err *err);
	int (*room)(struct en_zero *z, uint32_t turn, float **room_out, uint64_t *elements_out,
		    struct ckpt_err *err);
	int (*send)(struct en_zero *z, const struct en_zero_slice *slice, const float *from,
		    struct ckpt_err *err);
	/* Copies for saves; or NULL, all five. */
	int (*snap_new)(struct en_zero *z, uint64_t bytes, uint32_t threads,
			struct ckpt_err *err);
	int (*snap_begin)(struct en_zero *z, struct ckpt_err *err);
	int (*snap_start)(struct en_zero *z, struct ckpt_err *err);
	int (*snap_next)(struct en_zero *z, struct en_zero_copied *out, struct ckpt_err *err);
	void (*snap_end)(struct en_zero *z);
	/* z->trace becomes 't', which may be NULL: it is started, what was there is stopped. */
	int (*trace)(struct en_zero *z, struct en_trace *t, struct ckpt_err *err);
};

struct en_zero {
	const struct en_zero_ops *ops;
	const struct en_model *model;
	struct en_comm *comm;
	struct en_zero_opts opts;
	struct en_zero_rule rule;
	struct en_exec *exec;
	struct en_mem mem;
	struct en_trace *trace;	/* NULL: nobody wants to know */
	uint64_t scratch;	/* of 'comm', as far as 'mem' knows */
	struct zb *block;
	uint32_t levels;	/* of the stack of sums */
	struct zgather gather[EN_ZERO_GATHERS];
	struct zreduce reduce[EN_ZERO_REDUCES];
	float *tied;		/* stages 2 and 3 of a tied model: block 0's gradients */
	bool packed;		/* 16-bit types: what layers but the last keep is put away */
	float **x;		/* [layers + 1]: a layer's input; packed: two that take turns */
	float **saved;		/* [layers]; packed or with recompute all the same */
	void **away;		/* [layers]: packed */
	float *again;		/* packed and recompute: what a layer gives that is not needed */
	double *sums;		/* of chunks: of this rank, */
	double *all_sums;	/* of all, and those in order */
	uint64_t nsums;		/* of a rank */
	struct en_zero_piece *piece;
	uint64_t npieces;
	struct en_offloader *off;	/* masters and moments outside the blocks, or NULL */
	struct en_pool *pool;	/* the host's threads; lent, or NULL */
	float *file_room;	/* while a state is read into a file */
};

/* Options that exist. */
int en_zero_check(const struct en_zero_opts *opts, struct ckpt_err *err);
/* Elements of a block, with padding to whole chunks of 'size' ranks. */
uint64_t en_zero_padded(const struct en_model *model, uint32_t block, uint32_t size);
/* Whether a block has a tied matrix, whose gradient waits apart at stages 2 and 3. */
static inline bool en_zero_is_tied(const struct en_model *model, uint32_t block)
{
	return model->config.tied && !block;
}
static inline enum en_mem_kind en_zero_param_kind(const struct en_zero_opts *o)
{
	return o->stage == 3 && o->host_params ? EN_MEM_HOST_PARAMS : EN_MEM_PARAMS;
}
static inline enum en_mem_kind en_zero_optimizer_kind(const struct en_zero_opts *o)
{
	return o->stage && o->host_optimizer ? EN_MEM_HOST_OPTIMIZER : EN_MEM_OPTIMIZER;
}

/* Of any maker: this rank's part of each parameter; where[block] is what its masters begin at. */
struct en_zero_where {
	float *master, *m, *v;	/* of the shard; at stage 0 of the whole block; or NULL */
	uint64_t shard;
};
int en_zero_cut_pieces(struct en_zero *z, const struct en_zero_where *where, struct ckpt_err *err);

/* Random masters, and moments of zero, by all threads. */
void en_zero_init_piece(const struct en_zero *z, const struct en_zero_piece *p, uint64_t seed);

/* zero_file.c */
/* z->off, as the options have it; without 'masters' moments alone, and the masters are zb's. */
int en_zero_new_off(struct en_zero *z, bool masters, struct ckpt_err *err);
/* What it takes of memory where it is a file; 'part' is the largest one. */
uint64_t en_zero_ring(const struct en_zero_opts *o, bool masters, uint64_t part);
/* Of any maker whose states are in a file. */
int en_zero_file_init(struct en_zero *z, uint64_t seed, struct ckpt_err *err);
int en_zero_file_get(struct en_zero *z, const struct en_zero_slice *slice, float *to,
		     struct ckpt_err *err);
int en_zero_file_room(struct en_zero *z, uint32_t turn, float **room_out, uint64_t *elements_out,
		      struct ckpt_err *err);
int en_zero_file_send(struct en_zero *z, const struct en_zero_slice *slice, const float *from,
		      struct ckpt_err *err);
/* Where it is: of a maker's publish() and free(). */
void en_zero_free_file_room(struct en_zero *z);

/* Elements of a master that this rank updates: the shard, or at stage 0 all. */
uint64_t en_zb_updated(const struct en_zero *z, const struct zb *b);

#endif
