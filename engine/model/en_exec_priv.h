/* en_exec_priv.h -- what the files of the forward and backward passes share. */
#ifndef EN_EXEC_PRIV_H
#define EN_EXEC_PRIV_H

#include "engine/model/en_exec.h"
#include "engine/model/en_pool.h"
#include "libckpt/ztrain/ck_zt_memory.h"

/* Rows of a job of element-wise work; sums over rows are first made per job. */
#define EN_ROWS CK_ZT_ROWS

struct en_exec {
	const struct en_model *model;
	enum kn_type type;
	struct en_pool *pool;
	uint32_t threads;
	uint32_t layer;		/* at work: of its blocks' layout */
	size_t most_rows, most_tokens, most;	/* most = rows * tokens */
	uint32_t q, kv;		/* heads * head_dim, kv_heads * head_dim */
	size_t chunk;		/* most positions of a chunk of logits */
	size_t bytes;
	float *memory;		/* holds all that follows */
	float *cos, *sin;	/* [most_tokens, head_dim / 2], rounded to the type */
	float *wide;		/* a block's parameters as fp32; 16-bit types only */
	float *t;		/* [most, hidden] each */
	float *dmid, *du;
	float *dact;		/* [most, inter] */
	float *dgu;		/* [most, 2 inter] */
	float *dgo, *dq;	/* [most, q] */
	float *dk, *dv;		/* [most, kv] */
	float *lora, *dlora;	/* [most, r] of an adapter */
	float *dropped;		/* [most, model->drop]: an adapter's input, or its gradient */
	const struct en_batch *batch;	/* of the layer at work; NULL: nothing is dropped */
	float *partial;		/* sums over rows of jobs */
	float *attn;		/* per thread */
	size_t attn_floats;
	float *norm, *rstd;	/* of the head: [most, hidden], [most] */
	float *logits;		/* [chunk, vocab] */
	float *loss;		/* [most] */
	int32_t *target;	/* [most] */
};

/* A layer's parameters or gradients, by slot; NULL where the model has none. */
struct en_layer {
	float *slot[EN_LAYER_SLOTS];
};
struct en_layer_const {
	const float *slot[EN_LAYER_SLOTS];
};

/* What a layer keeps, in the caller's memory. */
struct en_saved {
	float *u1, *rstd1;	/* norm's result [n, hidden] and factor [n] */
	float *q_raw, *k_raw;	/* before their norms, Qwen3 only */
	float *rstd_q, *rstd_k;	/* [n, heads], [n, kv_heads] */
	float *q, *k, *v;
	float *stat;		/* [rows, heads, tokens, 2] */
	float *o;
	float *mid;		/* between attention and mlp [n, hidden] */
	float *u2, *rstd2;
	float *gu;		/* gate and up side by side [n, 2 inter] */
	float *act;
};

/* One of these. */
struct en_saved_part {
	float **p;
	size_t n;		/* floats; 0 where the model has none */
	bool narrow;		/* they are numbers of the type */
};
#define EN_SAVED_PARTS 16u

/* 's's parts, in the order they lie in memory; returns how many. */
uint32_t en_saved_parts(const struct en_exec *exec, size_t n, struct en_saved *s,
			struct en_saved_part *out);

/* Lays '*out' over 'memory' (NULL: only counts) and returns the floats. */
size_t en_saved_place(const struct en_exec *exec, size_t n, float *memory, struct en_saved *out);

/* The block's parameters as fp32: themselves, or copied to exec->wide + at. */
const float *en_widen(struct en_exec *exec, const void *params, size_t numel, size_t at);

/* Positions of a chunk of logits, when there are 'n': chunks of one size but the last. */
size_t en_chunk_rows(const struct en_model_config *config, size_t n);

/* One matrix product, cut into jobs. */
struct en_mm {
	unsigned flags;		/* of kn_gemm() */
	size_t m, n, k;
	const float *a, *b;
	size_t lda, ldb;
	float *c;
	size_t ldc;
	const float *bias;	/* [n], or NULL */
	bool round;		/* C is rounded to the type afterwards */
};

/* Products that do not need each other, side by side. */
void en_mm_run(struct en_exec *exec, const struct en_mm *mm, size_t count);

/* y = x W^T + bias: W [out, in]. */
struct en_mm en_mm_forward(const float *x, const float *w, const float *bias, float *y, size_t n,
			   size_t in, size_t out);
/* dx = dy W, or with 'add' dx += dy W. */
struct en_mm en_mm_input(const float *dy, const float *w, float *dx, size_t n, size_t in,
			 size_t out, bool add);
/* dW = dy^T x. */
struct en_mm en_mm_weight(const float *dy, const float *x, float *dw, size_t n, size_t in,
			  size_t out, unsigned flags);

/* Rows first..first+count, which are job number 'job'. */
typedef void (*en_rows_fn)(struct en_exec *exec, void *arg, size_t first, size_t count,
			   size_t job);

/* Calls fn for rows 0..n in jobs of EN_ROWS. */
void en_rows_run(struct en_exec *exec, size_t n, en_rows_fn fn, void *arg);

/*
 * Sums over jobs: exec->partial has 'jobs' rows of 'width' floats, of which 'count' from 'at' on
 * are added in order and become the gradient of a vector.
 */
void en_partial_join(struct en_exec *exec, size_t jobs, size_t width, size_t at, size_t count,
		     float *grad, unsigned flags);

/* The next 'n' floats of 'memory' from '*at' on, in whole cache lines; NULL memory: counts only. */
static inline float *en_floats_at(float *memory, size_t *at, size_t n)
{
	float *p = memory ? memory + *at : NULL;

	*at += (n + 15) / 16 * 16;
	return p;
}

static inline size_t en_row_jobs(size_t n)
{
	return (n + EN_ROWS - 1) / EN_ROWS;
}

#endif
