/*
 * ck_est_acts.c -- what the forward pass keeps for the backward pass, bytes a token, and the
 * saved step.  The formulas of activations were compared with what PyTorch 2.11 and
 * transformers 5.17 allocated on a GPU: docs/internals/memory.md has the table.
 */
#include <stdio.h>

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

/* An adapter keeps what goes into the module as it is; no frozen matrix does. */
static bool keeps(const struct ck_estimating *e, unsigned modules)
{
	return e->m->lora_on & modules && !e->m->lora_drops;
}

/*
 * What adapters keep besides that: what A makes, and with dropout what is left of the input, and a
 * byte that says of each element whether it is.
 */
static uint64_t adapters(const struct ck_estimating *e)
{
	uint64_t widest, n = 0;
	const uint64_t inputs = ck_model_lora_inputs(e->m, &widest);

	for (unsigned on = e->m->lora_on; on; on &= on - 1)
		n += e->b * e->m->lora;
	return n + (e->m->lora_drops ? (e->b + 1) * inputs : 0);
}

/* A norm over n elements: its input in fp32, what it makes of it, and its output. */
static uint64_t norm_bytes(const struct ck_estimating *e, uint64_t n)
{
	return e->m->info.arch.rms ? 4 * n + 2 * e->b * n : 2 * e->b * n;
}

/* The norms of a layer.  Frozen ones keep their input, and the output that an adapter takes. */
static uint64_t norms(const struct ck_estimating *e)
{
	const struct ckpt_arch *a = &e->m->info.arch;
	const unsigned read = keeps(e, CK_LORA_QKV) + keeps(e, CK_LORA_GATE_UP);

	if (!e->m->lora)
		return a->norms * norm_bytes(e, a->hidden);
	return a->norms * (a->rms ? 4 : e->b) * a->hidden + read * e->b * a->hidden;
}

/* Queries, keys, values as attention takes them, and its output, without what else it keeps. */
static uint64_t qkv(const struct ckpt_arch *a)
{
	if (!a->kv_rank)
		return 2 * a->heads * a->head_dim + 2 * a->kv_heads * a->head_dim;
	/* values are a view of what holds the keys' first part too; the output is copied */
	return a->heads * (2 * a->head_dim + (a->head_dim - a->rope_dim + a->v_dim) +
			   2 * a->v_dim);
}

static uint64_t eager_attention(const struct ck_estimating *e)
{
	const struct ckpt_arch *a = &e->m->info.arch;
	const uint64_t q = a->heads * a->head_dim, kv = a->kv_heads * a->head_dim;
	uint64_t n = e->b * qkv(a);

	if (a->qk_norm)
		n += (e->m->lora ? 4 : 4 + e->b) * (q + kv);
	if (e->m->lora && e->s.attention_matrix && !keeps(e, CK_LORA_O))
		n -= e->b * q;
	if (a->kv_rank)
		n += norm_bytes(e, a->kv_rank) + (a->q_rank ? norm_bytes(e, a->q_rank) : 0);
	if (e->s.attention_matrix)
		n += (4 + e->b) * a->heads * e->s.sequence + (a->kv_rank ? 0 : 2 * e->b * (q - kv));
	else
		n += 4 * a->heads;
	return n;
}

/*
 * The MLP of a layer.  A token is copied for each of its experts, and what each returns is kept to
 * be weighted, with four numbers of 8 bytes and one of 4; the router keeps its scores in fp32,
 * DeepSeek's its input and a mask too; Qwen2's shared expert has a gate.
 */
static uint64_t mlp(const struct ck_estimating *e, bool experts, unsigned kept)
{
	const struct ckpt_arch *a = &e->m->info.arch;

	if (!experts)
		return (a->gated ? kept : 2) * e->b * a->inter;
	return e->b * (a->top_k * (2 * a->hidden + kept * a->expert_inter) +
		       kept * a->shared_inter) +
	       36 * a->top_k + 4 * a->experts +
	       (a->kv_rank ? 4 * a->hidden + a->experts :
		a->shared_inter ? e->b * a->hidden : 0);
}

/* Kept of a layer, bytes a token. */
static uint64_t eager_layer(const struct ck_estimating *e, bool experts)
{
	const unsigned kept = e->m->lora && !keeps(e, CK_LORA_DOWN) ? 3 : 4;

	return norms(e) + eager_attention(e) + mlp(e, experts, kept) + adapters(e);
}

/* Inputs and outputs of matrix products, and the two sums of the residual stream. */
static uint64_t fused_layer(const struct ck_estimating *e, bool experts)
{
	const struct ckpt_arch *a = &e->m->info.arch;

	return e->b * ((2 + a->norms) * a->hidden + qkv(a) + a->q_rank + a->kv_rank) +
	       mlp(e, experts, 3) +
	       (e->s.attention_matrix ? e->b * a->heads * e->s.sequence : 4 * a->heads) +
	       adapters(e);
}

static uint64_t layer(const struct ck_estimating *e, bool experts)
{
	return e->s.ops == CKPT_OPS_FUSED ? fused_layer(e, experts) : eager_layer(e, experts);
}

/* What is in use at once while the backward pass is in a layer. */
static uint64_t working(const struct ck_estimating *e)
{
	const struct ckpt_arch *a = &e->m->info.arch;
	const uint64_t dense = a->moe_layers < a->layers ? (a->gated ? 3 : 2) * e->b * a->inter : 0;
	const uint64_t sparse = a->moe_layers ? e->b * (a->top_k * (2 * a->hidden +
				3 * a->expert_inter) + 3 * a->shared_inter) : 0;
	const uint64_t mlp = dense > sparse ? dense : sparse;
	const uint64_t scores = e->s.attention_matrix ? 8 * a->heads * e->s.sequence : 0;

	return mlp > scores ? mlp : scores;
}

static void layers(struct ck_estimating *e)
{
	const struct ckpt_arch *a = &e->m->info.arch;
	const uint64_t tokens = e->out->tokens, dense = layer(e, false), sparse = layer(e, true);
	const bool all = a->moe_layers == a->layers, any = a->moe_layers > 0;
	const uint64_t n = all || (any && sparse > dense) ? sparse : dense;
	const uint64_t kept = (a->layers - a->moe_layers) * dense + a->moe_layers * sparse;
	char flight[48] = "";
	struct ck_counts c = { .at = 0 };

	if (e->flight > 1)
		snprintf(flight, sizeof(flight), " x %s micro-batches in flight",
			 ck_count(&c, e->flight));
	if (e->s.recompute)
		ck_est_term(e, CKPT_PLACE_GPU, LOSS | LAYER, "inputs of the layers",
			    times(times(a->layers * e->b * a->hidden, tokens), e->flight),
			    "%s layers x %u B x %s x %s tokens%s", ck_count(&c, a->layers),
			    (unsigned)e->b, ck_count(&c, a->hidden), ck_count(&c, tokens), flight);
	else if (any && !all)
		ck_est_term(e, CKPT_PLACE_GPU, LOSS | LAYER, "activations",
			    times(times(kept, tokens), e->flight),
			    "(%s layers x %s B + %s with experts x %s B) x %s tokens%s",
			    ck_count(&c, a->layers - a->moe_layers), ck_count(&c, dense),
			    ck_count(&c, a->moe_layers), ck_count(&c, sparse),
			    ck_count(&c, tokens), flight);
	else
		ck_est_term(e, CKPT_PLACE_GPU, LOSS | LAYER, "activations",
			    times(times(kept, tokens), e->flight),
			    "%s layers x %s B x %s tokens%s", ck_count(&c, a->layers),
			    ck_count(&c, n), ck_count(&c, tokens), flight);
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
	if (!a->vocab)
		return;		/* not the last stage */
	ck_est_term(e, CKPT_PLACE_GPU, LOSS, "final norm", times(norm, tokens),
		    "%s B x %s tokens", ck_count(&c, norm), ck_count(&c, tokens));
	ck_est_term(e, CKPT_PLACE_GPU, LOSS, "logits and their gradients",
		    times(12 * a->vocab, tokens), "3 x 4 B x vocabulary %s x %s tokens",
		    ck_count(&c, a->vocab), ck_count(&c, tokens));
}
