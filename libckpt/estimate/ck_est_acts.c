/*
 * ck_est_acts.c -- what the forward pass keeps for the backward pass, bytes a token, and the
 * saved step.  The formulas of activations were compared with what PyTorch 2.11 and
 * transformers 5.17 allocated on a GPU: docs/internals/memory.md has the table.
 */
#include "libckpt/estimate/ck_estimate.h"

#define LOSS CKPT_PHASE_LOSS
#define LAYER CKPT_PHASE_LAYER
#define END CKPT_PHASE_END

/* Sums of as many terms as there can be still fit 64 bits. */
#define MOST ((uint64_t)1 << 58)

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t n;

	return __builtin_mul_overflow(a, b, &n) || n > MOST ? MOST : n;
}

/* A norm over n elements: its input in fp32, what it makes of it, and its output. */
static uint64_t norm_bytes(const struct ck_estimating *e, uint64_t n)
{
	return e->m->info.arch.rms ? 4 * n + 2 * e->b * n : 2 * e->b * n;
}

static uint64_t eager_layer(const struct ck_estimating *e)
{
	const struct ckpt_arch *a = &e->m->info.arch;
	const uint64_t q = a->heads * a->head_dim, kv = a->kv_heads * a->head_dim;
	uint64_t n = a->norms * norm_bytes(e, a->hidden) + e->b * (2 * q + 2 * kv);

	if (a->qk_norm)
		n += (4 + e->b) * (q + kv);
	if (e->s.attention_matrix)
		n += (4 + e->b) * a->heads * e->s.sequence + 2 * e->b * (q - kv);
	else
		n += 4 * a->heads;
	return n + (a->gated ? 4 : 2) * e->b * a->inter;
}

/* Inputs and outputs of matrix products, and the two sums of the residual stream. */
static uint64_t fused_layer(const struct ck_estimating *e)
{
	const struct ckpt_arch *a = &e->m->info.arch;
	const uint64_t q = a->heads * a->head_dim, kv = a->kv_heads * a->head_dim;
	const uint64_t inter = (a->gated ? 3 : 2) * a->inter;

	return e->b * ((2 + a->norms) * a->hidden + 2 * q + 2 * kv + inter) +
	       (e->s.attention_matrix ? e->b * a->heads * e->s.sequence : 4 * a->heads);
}

/* What is in use at once while the backward pass is in a layer. */
static uint64_t working(const struct ck_estimating *e)
{
	const struct ckpt_arch *a = &e->m->info.arch;
	const uint64_t mlp = (a->gated ? 3 : 2) * e->b * a->inter;
	const uint64_t scores = e->s.attention_matrix ? 8 * a->heads * e->s.sequence : 0;

	return mlp > scores ? mlp : scores;
}

static void layers(struct ck_estimating *e)
{
	const struct ckpt_arch *a = &e->m->info.arch;
	const uint64_t tokens = e->out->tokens;
	const uint64_t n = e->s.ops == CKPT_OPS_FUSED ? fused_layer(e) : eager_layer(e);
	struct ck_counts c = { .at = 0 };

	if (e->s.recompute)
		ck_est_term(e, CKPT_PLACE_GPU, LOSS | LAYER, "inputs of the layers",
			    times(a->layers * e->b * a->hidden, tokens),
			    "%s layers x %u B x %s x %s tokens", ck_count(&c, a->layers),
			    (unsigned)e->b, ck_count(&c, a->hidden), ck_count(&c, tokens));
	else
		ck_est_term(e, CKPT_PLACE_GPU, LOSS | LAYER, "activations",
			    times(times(a->layers, n), tokens),
			    "%s layers x %s B x %s tokens", ck_count(&c, a->layers),
			    ck_count(&c, n), ck_count(&c, tokens));
	ck_est_term(e, CKPT_PLACE_GPU, e->s.recompute ? LAYER | END : END,
		    e->s.recompute ? "recomputed activations of a layer" :
				     "activations of the first layer",
		    times(n, tokens), "%s B x %s tokens", ck_count(&c, n), ck_count(&c, tokens));
	ck_est_term(e, CKPT_PLACE_GPU, LAYER | END, "working memory of a layer",
		    times(working(e), tokens),
		    "%s B x %s tokens", ck_count(&c, working(e)), ck_count(&c, tokens));
}

void ck_est_activations(struct ck_estimating *e)
{
	const struct ckpt_arch *a = &e->m->info.arch;
	const uint64_t tokens = e->out->tokens;
	const uint64_t norm = e->s.ops == CKPT_OPS_FUSED ? 2 * e->b * a->hidden :
			      norm_bytes(e, a->hidden);
	struct ck_counts c = { .at = 0 };

	if (!a->layers) {
		e->out->no_activations = 1;
		return;
	}
	layers(e);
	ck_est_term(e, CKPT_PLACE_GPU, LOSS, "final norm", times(norm, tokens),
		    "%s B x %s tokens", ck_count(&c, norm), ck_count(&c, tokens));
	ck_est_term(e, CKPT_PLACE_GPU, LOSS, "logits and their gradients",
		    times(12 * a->vocab, tokens), "3 x 4 B x vocabulary %s x %s tokens",
		    ck_count(&c, a->vocab), ck_count(&c, tokens));
}
