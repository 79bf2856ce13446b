/* en_cuda_linear.h -- private to engine/zero/cuda: a layer's matrix products and adapters. */
#ifndef EN_CUDA_LINEAR_H
#define EN_CUDA_LINEAR_H

#include "engine/zero/cuda/en_cuda_priv.h"

/* Everything that one call works with. */
struct en_cuda_layer {
	struct en_cuda *c;
	const struct en_batch *batch;
	uint32_t number; /* of the layer */
	const struct en_block *block;
	const struct en_cuda_kept *kept;
	const void *params;
	void *grads;
	bool lowest; /* nothing before the layer is trained */
	size_t n;    /* positions */
	enum kn_type type;
	struct kn_cu_qk qk;
	const struct kn_cu_attn *attn;
	int rc; /* of CUDA or a library, the first */
	const char *what;
};

static inline const void *en_cuda_weight(const struct en_cuda_layer *l, enum en_slot slot)
{
	return l->block->at[slot] == UINT64_MAX
		       ? NULL
		       : en_cuda_at_const(l->params, l->block->at[slot], l->type);
}

/* NULL where it is frozen. */
static inline void *en_cuda_grad(const struct en_cuda_layer *l, enum en_slot slot)
{
	return l->block->grad[slot] == UINT64_MAX
		       ? NULL
		       : en_cuda_at(l->grads, l->block->grad[slot], l->c->z.opts.wire);
}

static inline void en_cuda_note(struct en_cuda_layer *l, int rc, const char *what)
{
	if (l->rc || !rc)
		return;
	l->rc = rc;
	l->what = what;
}

static inline bool en_cuda_has_adapter(const struct en_block *b, enum en_linear linear)
{
	return b->at[EN_LORA_A + linear] != UINT64_MAX;
}

/* y [n, out] = x [n, in] w^T, rows of y 'ld' apart; 'add' (may be NULL) is added. */
void en_cuda_forward_mm(struct en_cuda_layer *l, void *y, size_t ld, const void *x, const void *w,
			const void *add, size_t in, size_t out);

/* dx [n, in] = add (may be NULL, is not dx) + dy [n, out] w, rows of dy 'ld' apart. */
void en_cuda_input_mm(struct en_cuda_layer *l, void *dx, const void *dy, size_t ld, const void *w,
		      const void *add, size_t in, size_t out);

/* dw [out, in] = dy^T x, rows of dy 'ld' apart. */
void en_cuda_weight_mm(struct en_cuda_layer *l, void *dw, const void *dy, size_t ld, const void *x,
		       size_t in, size_t out);

/* ---- en_cuda_adapter.c ---- */

/*
 * Adapters of modules that have one input: EN_LINEAR_Q is q, k and v, EN_LINEAR_GATE is gate and
 * up, EN_LINEAR_O and EN_LINEAR_DOWN are alone.  Rows of their outputs, and of gradients dy of
 * those, are as far apart as the layer has them.
 */

/* How many modules from 'from' to before 'to' have an adapter. */
static inline uint32_t en_cuda_adapters(const struct en_model *m, enum en_linear from,
					enum en_linear to)
{
	return m->lora.r
		       ? (uint32_t)__builtin_popcount(m->lora.targets & ((1u << to) - (1u << from)))
		       : 0;
}

/*
 * s x A^T of each into the layer's kept ones, which the backward pass needs.
 */
void en_cuda_adapter_in(struct en_cuda_layer *l, enum en_linear first, const void *x);

/*
 * The same, and then room = what the adapters add to the outputs, and 'add' (may be NULL), which
 * is what the module's own product is added to.  Without an adapter that is 'add'.
 */
const void *en_cuda_adapt(struct en_cuda_layer *l, enum en_linear first, void *room, const void *x,
			  const void *add);

/* c->dlora = s dy B of each. */
void en_cuda_adapter_back(struct en_cuda_layer *l, enum en_linear first, const void *dy);

/* Of c->dlora: how many sums their parts of dx are, and to [n, in] = add (may be NULL) + one. */
uint32_t en_cuda_adapter_terms(const struct en_cuda_layer *l, enum en_linear first);
void en_cuda_adapter_term(struct en_cuda_layer *l, enum en_linear first, uint32_t term, void *to,
			  const void *add);

/* Gradients of A and B, from c->dlora and what is kept. */
void en_cuda_adapter_grads(struct en_cuda_layer *l, enum en_linear first, const void *dy,
			   const void *x);

/*
 * Of a module that is alone: c->dlora, and room [n, in] = what the adapter adds to dx.  Returns
 * room, or NULL without an adapter.
 */
const void *en_cuda_adapter_input(struct en_cuda_layer *l, enum en_linear linear, void *room,
				  const void *dy);

#endif
