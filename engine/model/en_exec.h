/*
 * en_exec.h -- forward and backward, block by block, on the CPU.
 *
 * All activations and gradients are fp32 arrays [rows * tokens, hidden], row-major, tokens of a
 * sample together.  With a 16-bit type parameters come in that type, and every number is rounded
 * to it where transformers' modules would (kn_train.h, R()); norms, softmax and loss are computed
 * in fp32 inside.
 *
 * Bits: a micro-batch's results depend on the parameters, the batch and the type alone, neither on
 * the number of threads nor on what else was computed, and the forward pass of a block, called
 * again, gives the same bits: recomputation is just that.
 *
 * Memory: all of it is taken by en_exec_new(); nothing is allocated in a step.  Calls cannot fail;
 * batches are checked once, by en_batch_check().  One call at a time on a handle.
 */
#ifndef EN_EXEC_H
#define EN_EXEC_H

#include "engine/model/en_model.h"

/*
 * labels[b, t + 1] is the target of position t; -100 counts as nothing, labels[b, 0] never.
 *
 * Packed rows hold several documents: 'starts' says of each token where its document begins in the
 * row.  A token attends to its own document, and its position is counted from there.
 */
struct en_batch {
	uint32_t rows, tokens;
	const int32_t *ids;	/* [rows, tokens] */
	const int32_t *labels;	/* the same, may be NULL where no loss is asked for */
	const int32_t *starts;	/* the same; NULL: a row is one document */
	const struct en_drop *drop;	/* NULL: nothing is dropped, as in evaluation */
};

/*
 * What decides which inputs of adapters a pass drops (kn_dropout()), with the layer and the module:
 * so the same are dropped whatever rank computes the row, and when a layer is computed again.
 */
struct en_drop {
	uint64_t seed;
	uint64_t sample;	/* of row 0; those of the rows after it follow */
};
/* Of module 'linear' of layer 'layer', for kn_dropout(); the batch has 'drop'. */
struct kn_dropout en_drop_of(const struct en_model *model, const struct en_batch *batch,
			     uint32_t layer, enum en_linear linear);

struct en_exec_opts {
	uint32_t rows, tokens;	/* the largest batch, and the longest row */
	enum kn_type type;	/* KN_F32, KN_BF16, KN_F16 */
	uint32_t threads;	/* 1 to 256 */
};

struct en_exec;

/*
 * CKPT_E_USAGE (a size of 0, more than 2^31 tokens, another type), CKPT_E_NOMEM, CKPT_E_IO (no
 * thread).  The model must outlive '*exec_out', which is for en_exec_free().
 */
int en_exec_new(const struct en_model *model, const struct en_exec_opts *opts,
		struct en_exec **exec_out, struct ckpt_err *err);
/* NULL is fine. */
void en_exec_free(struct en_exec *exec);

/* Bytes that the largest batch takes. */
struct en_exec_size {
	size_t work;		/* of en_exec_new() */
	size_t stream;		/* of a layer's input or output */
	size_t saved;		/* en_saved_floats() */
	size_t packed;		/* en_packed_bytes() */
	size_t packed_input;	/* the same with EN_RECOMPUTE */
};

/* Known before en_exec_new(), with options that it takes; nothing is allocated. */
void en_exec_expect(const struct en_model *model, const struct en_exec_opts *opts,
		    struct en_exec_size *out);

struct en_pool *en_exec_pool(struct en_exec *exec);
/* Bytes that en_exec_new() took. */
size_t en_exec_bytes(const struct en_exec *exec);

/*
 * CKPT_E_LIMIT when it is larger than the handle was made for, CKPT_E_MISMATCH for a token or label
 * outside the vocabulary (labels: but -100) and for starts that are not those of documents one
 * after the other, naming its place.
 */
int en_batch_check_for(const struct en_model *model, uint32_t rows, uint32_t tokens,
		       const struct en_batch *batch, struct ckpt_err *err);
/* The same for the batches of a handle. */
int en_batch_check(const struct en_exec *exec, const struct en_batch *batch,
		   struct ckpt_err *err);
/* The end of the document that token 'i' of row 'row' belongs to: an index in the row. */
size_t en_batch_document_end(const struct en_batch *batch, size_t row, size_t i);
/* Whether any row holds more than one document. */
bool en_batch_has_seams(const struct en_batch *batch);
/* Positions whose loss counts. */
uint64_t en_batch_count(const struct en_batch *batch);

/* ---------------------------------------------------------------- blocks */

/* Gradients are added to what is there, instead of written; the sums are not rounded. */
#define EN_ADD 1u
/* Of en_embed_backward(): added to what is there, and the sums are rounded to the type. */
#define EN_TIED 4u
/* Of a layer: nothing before it is trained, and dx is not written. */
#define EN_LOWEST 8u

/* Floats that a layer keeps between forward and backward. */
size_t en_saved_floats(const struct en_exec *exec, uint32_t rows, uint32_t tokens);

#define EN_RECOMPUTE 2u	/* keep a layer's input only, and compute it again on the way back */

/*
 * A layer's input and what it keeps, put away: with a 16-bit type in it, but for what attention and
 * the norms keep in fp32 (they were rounded to it, so that all come back bit for bit); with KN_F32
 * copied.  With EN_RECOMPUTE the input alone, and 'saved' is not looked at.
 */
size_t en_packed_bytes(const struct en_exec *exec, uint32_t rows, uint32_t tokens, unsigned flags);
void en_pack(struct en_exec *exec, const struct en_batch *batch, const float *x,
	     const float *saved, void *packed, unsigned flags);
void en_unpack(struct en_exec *exec, const struct en_batch *batch, const void *packed, float *x,
	       float *saved, unsigned flags);

/* 'params' is the flat buffer of block 0, y [n, hidden] with n = rows * tokens. */
void en_embed_forward(struct en_exec *exec, const struct en_batch *batch, const void *params,
		      float *y);
/* A tied model's head comes first, into the same matrix: then EN_TIED, or EN_ADD again. */
void en_embed_backward(struct en_exec *exec, const struct en_batch *batch, const float *dy,
		       float *grads, unsigned flags);

/*
 * The layer that the next calls are of; the first is 0, and remains so where no parameter is
 * frozen: then layers differ in parameters only.
 */
void en_exec_layer(struct en_exec *exec, uint32_t layer);

/* y may not be x. */
void en_layer_forward(struct en_exec *exec, const struct en_batch *batch, const void *params,
		      const float *x, float *y, float *saved);
/*
 * dx from dy; dx may be dy.  'grads' are fp32, those of trained parameters, each rounded to the
 * type unless EN_ADD; not looked at where the layer has none.
 */
void en_layer_backward(struct en_exec *exec, const struct en_batch *batch, const void *params,
		       const float *x, const float *saved, const float *dy, float *dx,
		       float *grads, unsigned flags);

struct en_loss {
	double sum;		/* of the token losses, in order of positions */
	uint64_t count;		/* positions that count */
};

/* What the head is asked for besides the sum; each may be NULL. */
struct en_head_out {
	float *token_loss;	/* [n] */
	float *logits;		/* [n, vocab] */
	/* The gradients of factor * sum; NULL also for what is frozen. */
	float *dx;		/* [n, hidden]; may be x.  NULL: none of the three */
	float *dnorm;		/* [hidden] */
	float *dhead;		/* [vocab, hidden]: of the last block, or tied: the embedding's */
};

/*
 * Final norm, logits and loss, in chunks of positions: no more logits are held than a chunk's.
 * 'params' is the flat buffer of the last block, 'head' the head's matrix: in it, or, tied, block
 * 0's.  'factor' is the loss scale over the number of positions that the mean is over.
 */
void en_head(struct en_exec *exec, const struct en_batch *batch, const void *params,
	     const void *head, const float *x, float factor, unsigned flags,
	     const struct en_head_out *out, struct en_loss *loss);

/* Cosines and sines of positions 0..tokens-1, [tokens, head_dim / 2] each, rounded to 'type'. */
void en_rope_fill(const struct en_model_config *config, enum kn_type type, size_t tokens,
		  float *cos_out, float *sin_out);

#endif
