/* en_layer_priv.h -- what a layer's two directions share. */
#ifndef EN_LAYER_PRIV_H
#define EN_LAYER_PRIV_H

#include "engine/model/en_exec_priv.h"

/*
 * The slots of the layer at work, from its parameters.  'batch' is what it works on until the next
 * call; NULL: adapters drop nothing.
 */
void en_layer_at(struct en_exec *exec, const struct en_batch *batch, const void *params,
		 struct en_layer_const *out);

/* The linear module of an adapter, and its input: x [n, in]; 'out' outputs. */
struct en_lora_of {
	enum en_linear linear;
	const float *x;
	size_t n, in, out;
};

/* Where the module has an adapter, y [n, ldy] += what it gives, rounded. */
void en_lora_forward(struct en_exec *exec, const struct en_layer_const *w,
		     const struct en_lora_of *of, float *y, size_t ldy);
/* Its gradients from dy [n, ldy]; dx (NULL: not needed) += what comes of it, not rounded. */
void en_lora_backward(struct en_exec *exec, const struct en_layer_const *w,
		      const struct en_layer *g, const struct en_lora_of *of, const float *dy,
		      size_t ldy, float *dx, unsigned flags);

/* A linear module and its input. */
static inline struct en_lora_of en_lora_of(enum en_linear linear, const float *x, size_t n,
					   size_t in, size_t out)
{
	return (struct en_lora_of){ linear, x, n, in, out };
}

/* Gate and up, side by side in 'gu' [n, 2 inter]; returns how many products. */
size_t en_layer_gate_up(struct en_mm *mm, const float *x, const float *const *w, float *gu,
			size_t n, size_t h, size_t inter);
/* The matrices of gate and up are one after the other, so they are one. */
static inline bool en_layer_is_joined(const float *const *w, size_t numel)
{
	return w[EN_UP] == w[EN_GATE] + numel;
}

/* Turns the heads of rows first..first+count of the batch; q and k begin at row 'first'. */
void en_layer_rope(const struct en_exec *exec, const struct en_batch *batch, float *q, float *k,
		   size_t first, size_t count, float sign);

/* The shape of attention for rows of 'tokens'. */
struct kn_attn en_layer_attn(const struct en_exec *exec, size_t tokens);

#endif
