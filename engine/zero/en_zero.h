/*
 * en_zero.h -- a model's training state over ranks: the partitioning of each ZeRO stage, the pass
 * of a micro-batch with its gathers and reductions, and the optimizer's step.
 *
 * Every block of the model (en_model.h) is one flat buffer, padded to a multiple of size * 4096
 * elements; rank r's *shard* of it is the r-th of 'size' equal parts.  Frozen parameters follow
 * those that are trained, padded by themselves; they are of the type that is computed with, whole
 * or sharded as the others, and have neither gradients nor states.  For evaluation alone all
 * parameters are as frozen ones (en_model_hold()), and the state is what a forward pass needs: the
 * functions below that read masters read these parameters then, and no moments.
 *
 *	stage	parameters	gradients		masters and moments
 *	0	whole		whole			whole
 *	1	whole		whole, then the shard	shard
 *	2	whole		a block's, the shard	shard
 *	3	shard		a block's, the shard	shard
 *
 * Order of sums (docs/ztrain/collectives.md): number u = m * size + r is micro-batch m of rank r.
 * A block's gradient is summed over ranks for each m as soon as it is there, and the sums over m
 * are joined as a binary counter does, so that all micro-batches are summed as one binary tree in
 * natural order.  With size * micro_batches constant, and a power of two, results are the same bits
 * at 1, 2, 4 and 8 ranks, at every stage.
 *
 * One thread calls, always the same; every rank makes the same calls.  The three functions of a
 * copy for a save that say so are another one's.
 */
#ifndef EN_ZERO_H
#define EN_ZERO_H

#include "engine/base/en_trace.h"
#include "engine/comm/en_comm.h"
#include "engine/model/en_exec.h"
#include "engine/nvme/en_nvme.h"
#include "engine/zero/en_mem.h"
#include "libckpt/ztrain/ck_zt_memory.h"

#define EN_ZERO_CHUNK CK_ZT_CHUNK	/* elements of a partial sum of the norm */

/*
 * Prefetch, persistence and reuse on GPUs.  CPU ranks ignore it: they always prefetch the next
 * block. Sizes are elements of blocks.
 */
struct en_zero_flow {
	bool given;		/* false: one block ahead, none stays, none is used again */
	bool in_place;		/* nothing moves while something is computed */
	/* Stage 3. */
	uint64_t prefetch_bucket_size;	/* gathered before: one block, or as many as fit; 0: none */
	uint64_t param_persistence_threshold;	/* a block of at most so many is gathered once a
						 * step, */
	uint64_t model_persistence_threshold;	/* while all these are no more than so many */
	uint64_t max_live_parameters;	/* more than one block ahead only while these hold all */
	uint64_t max_reuse_distance;	/* a block used again after at most so many is not dropped;
					 * it stays until another one takes its slot */
};

struct en_zero_opts {
	uint32_t stage;		/* 0 to 3 */
	enum kn_type type;	/* parameters are computed with */
	enum kn_type wire;	/* gradients are sent as; KN_F32 or 'type' */
	/*
	 * Of fp16: gradients are divided by the ranks when they are summed over them, and summed
	 * over micro-batches one by one in fp16, so that they overflow where DeepSpeed's do.
	 * 'factor' of a micro-batch is 'size' times larger then.
	 */
	bool as_deepspeed;
	uint32_t micro_batches;	/* of a step, on each rank */
	uint32_t rows, tokens;	/* of a micro-batch, at most */
	uint32_t threads;
	bool recompute;		/* keep a layer's input only */
	/* On the host; on CPU ranks that is counted apart, and nothing else comes of it. */
	bool host_optimizer;	/* stages 1 to 3 */
	bool host_params;	/* stage 3 */
	/*
	 * Of host_optimizer: masters and moments are in a file on a drive, or, with 'dir' NULL, in
	 * memory.  'bytes' and 'rank' are not looked at, the names when the state is made.
	 */
	struct en_nvme_opts nvme;
	uint32_t off_buffers;	/* tiles in memory, see en_offloader.h; 0 = 4 */
	uint64_t off_tile;	/* elements, a multiple of 4096; 0 = 4 Mi */
	struct en_zero_flow flow;
};

/* A param group. */
struct en_zero_hyper {
	double lr, beta1, beta2, eps, decay;
};

struct en_zero_rule {
	enum kn_adam_rule rule;
	bool decoupled, bias_correction;
	bool one_group;		/* norms and biases are in group 0 as well; else in group 1 */
};

struct en_zero;

/* NULL is fine. */
void en_zero_free(struct en_zero *z);

/* What this rank holds; lent, brought up to date by the call. */
const struct en_mem *en_zero_mem(struct en_zero *z);
/* Memory of the caller's that belongs to it: of saves. */
void en_zero_note(struct en_zero *z, enum en_mem_kind kind, int64_t bytes);
/* That parameters are computed with. */
enum kn_type en_zero_type(const struct en_zero *z);
/* 1 or 2. */
uint32_t en_zero_groups(const struct en_zero *z);
/* Whether its parameters decay. */
bool en_zero_group_decays(const struct en_zero *z, uint32_t group);
/* Of a parameter. */
uint32_t en_zero_group_of(const struct en_zero *z, uint32_t param);

/*
 * From now on 't' (NULL: nothing) records what runs; the trace before is stopped and can be
 * read.  Between steps.  Codes of the device.
 */
int en_zero_trace(struct en_zero *z, struct en_trace *t, struct ckpt_err *err);

/* ---------------------------------------------------------------- parameters */

/* Masters from the random numbers of a seed, the same bits everywhere; moments zero. */
int en_zero_init(struct en_zero *z, uint64_t seed, struct ckpt_err *err);
/*
 * Masters from the weights of a checkpoint, each rank its own ranges; moments zero.  'checks' (may
 * be NULL) as in ckpt_load().
 */
int en_zero_read_weights(struct en_zero *z, const struct ckpt *ck,
			 struct ckpt_load_checks *checks, struct ckpt_err *err);
/* Masters and moments from a step of any world and stage. */
int en_zero_read_state(struct en_zero *z, const struct ckpt *ck, struct ckpt_load_checks *checks,
		       uint64_t *bytes_out, struct ckpt_err *err);
/* Frozen parameters of weights or a step; masters remain as they are. */
int en_zero_read_frozen(struct en_zero *z, const struct ckpt *ck,
			struct ckpt_load_checks *checks, struct ckpt_err *err);
/* Whether a step has them all; one that was saved without frozen parameters has none. */
bool en_zero_has_frozen(const struct en_zero *z, const struct ckpt *ck);
/* Masters of adapters from a seed, moments zero. */
int en_zero_init_adapters(struct en_zero *z, uint64_t seed, struct ckpt_err *err);
/* Whether weights have adapters, by the names of the module. */
bool en_zero_has_adapters(const struct en_zero *z, const struct ckpt *ck);
/* The same from them, or a file of PEFT's, by its names. */
int en_zero_read_adapters(struct en_zero *z, const struct ckpt *ck,
			  struct ckpt_load_checks *checks, struct ckpt_err *err);
/* What is computed with follows the masters: after any of the above, on every rank. */
int en_zero_sync_params(struct en_zero *z, struct ckpt_err *err);

enum en_state { EN_STATE_MASTER, EN_STATE_EXP_AVG, EN_STATE_EXP_AVG_SQ, EN_STATES };

/* This rank's part of a parameter; what put and load ask for. */
struct en_zero_piece {
	uint32_t param, block;
	uint64_t first, count;	/* elements of the parameter */
	uint64_t at;		/* of this rank's shard of the block: the first of them */
	float *master, *exp_avg, *exp_avg_sq;	/* NULL: not in memory of this process */
};

/* "master", "exp_avg", "exp_avg_sq": as checkpoints have it. */
const char *en_state_name(enum en_state state);

static inline float *en_zero_memory_of(const struct en_zero_piece *p, enum en_state state)
{
	return state == EN_STATE_MASTER ? p->master :
	       state == EN_STATE_EXP_AVG ? p->exp_avg : p->exp_avg_sq;
}

/*
 * The pieces of this rank, by parameter, '*n_out' of them; lent.  Over all ranks they are every
 * element once, also at stage 0, where each holds more.
 */
const struct en_zero_piece *en_zero_pieces(const struct en_zero *z, uint64_t *n_out);

/* The same of frozen parameters; their pointers are NULL. */
const struct en_zero_piece *en_zero_frozen(const struct en_zero *z, uint64_t *n_out);
/* This rank's elements of a piece in memory of the host, that never change; NULL: on a device. */
const void *en_zero_frozen_memory(const struct en_zero *z, const struct en_zero_piece *piece);
/* Elements [at, at + n) of a piece of them, of the type that is computed with.  Any thread. */
int en_zero_frozen_get(struct en_zero *z, const struct en_zero_piece *piece, uint64_t at,
		       uint64_t n, void *to, struct ckpt_err *err);

/* Elements [at, at + n) of a state of this rank's shard of a block. */
struct en_zero_slice {
	uint32_t block;
	enum en_state state;
	uint64_t at, n;
};
/* As they are now, to 'to'; wherever they are.  Between steps.  Codes of the device. */
int en_zero_read(struct en_zero *z, const struct en_zero_slice *slice, float *to,
		struct ckpt_err *err);
/* How states in a file are read and written, "io_uring, O_DIRECT"; "" if they are in none. */
const char *en_zero_drive(const struct en_zero *z);

/* ---------------------------------------------------------------- a copy for a save */

/*
 * Where the state is on a device: memory for a copy of it that is made while the run continues.
 * With 'bytes' 0 it holds all of the pieces; else that much, and goes round.  'threads' touch it.
 * '*has_out' is false, and nothing taken, where there is no such device.  It is freed with 'z', and
 * counted as EN_MEM_SAVE.  CKPT_E_NOMEM.
 */
int en_zero_snap_new(struct en_zero *z, uint64_t bytes, uint32_t threads, bool *has_out,
		     struct ckpt_err *err);
/*
 * Between steps, and when the copy before has ended: the state as it is now is what will be copied.
 * An update from here on waits, block by block, until the block has been copied.
 */
int en_zero_snap_begin(struct en_zero *z, struct ckpt_err *err);

/* Of the copy; 'p' is where they are. */
struct en_zero_copied {
	struct en_zero_slice slice;
	const float *p;
	bool stays;		/* until the next begin; else until the next call */
};
/*
 * One other thread calls these three, after begin.  The first starts to copy as much as fits in
 * memory.  The second waits for the next part, in the order in which updates will write
 * ('out->slice.n' is 0 after the last).  The third ends the copy, also after a failure.
 */
int en_zero_snap_start(struct en_zero *z, struct ckpt_err *err);
int en_zero_snap_next(struct en_zero *z, struct en_zero_copied *out, struct ckpt_err *err);
void en_zero_snap_end(struct en_zero *z);

/* ---------------------------------------------------------------- a step */

struct en_zero_micro_batch {
	const struct en_batch *batch;
	double factor;		/* of the sum of token losses; the loss scale is in it */
};

/*
 * Micro-batch number 'm' of the step: forward, backward, gradients reduced.  m = 0, 1, ... up to
 * micro_batches - 1.  Codes of the collectives.
 */
int en_zero_micro_batch(struct en_zero *z, uint32_t m, const struct en_zero_micro_batch *of,
			struct en_loss *loss_out, struct ckpt_err *err);
/* The loss alone; any time between steps. */
int en_zero_eval(struct en_zero *z, const struct en_batch *batch, struct en_loss *loss_out,
		 struct ckpt_err *err);
/* L2 norm of all gradients, scaled as they are; infinite or NaN if one of them is. */
int en_zero_norm(struct en_zero *z, double *norm_out, struct ckpt_err *err);
/*
 * Update number 'k' (from 1) of the optimizer, hyper[group]; gradients count times 'grad_scale'.
 * Gathers the parameters where they are kept whole.
 */
int en_zero_update(struct en_zero *z, const struct en_zero_hyper *hyper, uint64_t k,
		   float grad_scale, struct ckpt_err *err);

#endif
