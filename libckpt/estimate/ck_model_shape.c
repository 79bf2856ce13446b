/*
 * ck_model_shape.c -- the parameters of a decoder, in order, from its shape.  How tensor-parallel
 * ranks divide each of them is the rule of DeepSpeed's AutoTP and of Megatron-Core: what makes
 * heads or the width of an MLP by rows, what takes them by columns, anything else whole.
 */
#include "libckpt/base/ck_err.h"
#include "libckpt/estimate/ck_model.h"

/* A module: a weight, and a bias if it has one. */
struct part {
	uint64_t weight, bias;
	uint8_t cut, bias_cut;
};

struct making {
	struct ckpt_model *m;
	const struct ck_shape *s;
	uint32_t block;
	struct ckpt_err *err;
	bool tower;
};

static int add(const struct making *k, const struct part *part)
{
	struct ck_param p = { .numel = part->weight, .module = k->m->modules++,
			      .block = k->block, .cut = part->cut,
			      .tower = k->tower };
	int rc = part->weight ? ck_model_add(k->m, &p, k->err) : 0;

	p.numel = part->bias;
	p.cut = part->bias_cut;
	return rc || !part->bias ? rc : ck_model_add(k->m, &p, k->err);
}

/* Each rank has some of the rows, and of the bias. */
static int add_rows(const struct making *k, uint64_t rows, uint64_t columns, bool bias)
{
	return add(k, &(struct part){ rows * columns, bias ? rows : 0, CK_CUT_EVEN, CK_CUT_EVEN });
}

/* Each rank has some of the columns; the bias is added to the sum. */
static int add_columns(const struct making *k, uint64_t rows, uint64_t columns, bool bias)
{
	return add(k, &(struct part){ rows * columns, bias ? rows : 0, CK_CUT_EVEN, CK_CUT_NONE });
}

static int add_whole(const struct making *k, uint64_t weight, uint64_t bias)
{
	return add(k, &(struct part){ weight, bias, CK_CUT_NONE, CK_CUT_NONE });
}

static int add_norm(const struct making *k, uint64_t n)
{
	if (k->s->has & CK_SHAPE_BARE_NORM)
		return 0;
	return add_whole(k, n, k->s->has & CK_SHAPE_RMS ? 0 : n);
}

static int add_attention(const struct making *k)
{
	const struct ck_shape *s = k->s;
	const uint64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim, h = s->hidden;
	const bool bias = s->has & CK_SHAPE_QKV_BIAS, all = s->has & CK_SHAPE_QK_NORM_ALL;
	int rc;

	if (s->has & CK_SHAPE_FUSED_QKV) {
		rc = add_rows(k, q + 2 * kv, h, bias);
	} else {
		rc = add_rows(k, q, h, bias);
		for (int i = 0; !rc && i < 2; i++)
			rc = add_rows(k, kv, h, bias);
	}
	if (!rc)
		rc = add_columns(k, h, q, s->has & CK_SHAPE_O_BIAS);
	if (!rc && (all || (s->has & CK_SHAPE_QK_NORM)))
		rc = add_whole(k, all ? q : s->head_dim, 0);
	if (!rc && (all || (s->has & CK_SHAPE_QK_NORM)))
		rc = add_whole(k, all ? kv : s->head_dim, 0);
	return rc;
}

/* The compressions are whole on each rank, what makes heads of them is cut. */
static int add_mla(const struct making *k)
{
	const struct ck_mla *a = &k->s->mla;
	const uint64_t h = k->s->hidden, n = k->s->heads, q = n * (a->nope + a->rope);
	const bool bias = k->s->has & CK_SHAPE_O_BIAS;
	int rc;

	if (a->q_rank) {
		rc = add_whole(k, a->q_rank * h, bias ? a->q_rank : 0);
		if (!rc)
			rc = add_norm(k, a->q_rank);
		if (!rc)
			rc = add_rows(k, q, a->q_rank, false);
	} else {
		rc = add_rows(k, q, h, false);
	}
	if (!rc)
		rc = add_whole(k, (a->kv_rank + a->rope) * h, bias ? a->kv_rank + a->rope : 0);
	if (!rc)
		rc = add_norm(k, a->kv_rank);
	if (!rc)
		rc = add_rows(k, n * (a->nope + a->v), a->kv_rank, false);
	return rc ? rc : add_columns(k, h, n * a->v, bias);
}

static int add_mlp(const struct making *k, uint64_t inter)
{
	const unsigned ups = k->s->has & CK_SHAPE_GATED ? 2 : 1;
	const uint64_t fused = k->s->has & CK_SHAPE_FUSED_GATE ? ups : 1;
	const bool bias = k->s->has & CK_SHAPE_MLP_BIAS;
	int rc = 0;

	for (unsigned i = 0; !rc && i < ups / fused; i++)
		rc = add_rows(k, fused * inter, k->s->hidden, bias);
	return rc ? rc : add_columns(k, k->s->hidden, inter, bias);
}

/* The experts of a layer are one module with two parameters, as in transformers 5. */
static int add_experts(const struct making *k)
{
	const struct ck_moe *e = &k->s->moe;
	const uint64_t down = e->experts * e->inter * k->s->hidden;
	struct ck_param p = { .module = k->m->modules++, .block = k->block, .expert = true,
			      .cut = CK_CUT_EVEN };
	int rc = add_whole(k, e->experts * k->s->hidden, 0);

	for (int i = 0; !rc && i < 2; i++) {
		p.numel = i ? down : 2 * down;
		rc = ck_model_add(k->m, &p, k->err);
	}
	if (!rc && e->shared)
		rc = add_mlp(k, e->shared);
	if (!rc && e->shared && e->shared_gate)
		rc = add_whole(k, k->s->hidden, 0);
	return rc;
}

bool ck_shape_has_experts(const struct ck_shape *s, uint64_t layer)
{
	const struct ck_moe *e = &s->moe;

	return e->experts && layer >= e->first_dense && (layer + 1) % (e->every + !e->every) == 0 &&
	       !(layer < CK_DENSE_BITS && (e->dense[layer / 8] >> layer % 8 & 1));
}

static int add_layer(const struct making *k)
{
	int rc = k->s->mla.kv_rank ? add_mla(k) : add_attention(k);

	if (!rc && ck_shape_has_experts(k->s, k->block - 1))
		rc = add_experts(k);
	else if (!rc)
		rc = add_mlp(k, k->s->inter);
	for (uint32_t i = 0; !rc && i < k->s->norms; i++)
		rc = add_norm(k, k->s->hidden);
	return rc;
}

void ck_model_take_arch(struct ckpt_model *m, const struct ck_shape *s)
{
	struct ckpt_arch *a = &m->info.arch;

	*a = (struct ckpt_arch){
		.layers = s->layers, .hidden = s->hidden, .inter = s->inter, .vocab = s->vocab,
		.heads = s->heads, .kv_heads = s->kv_heads, .head_dim = s->head_dim,
		.gated = !!(s->has & CK_SHAPE_GATED), .rms = !!(s->has & CK_SHAPE_RMS),
		.norms = s->norms,
		.qk_norm = !!(s->has & (CK_SHAPE_QK_NORM | CK_SHAPE_QK_NORM_ALL)),
		.experts = s->moe.experts, .top_k = s->moe.top_k, .expert_inter = s->moe.inter,
		.shared_inter = s->moe.shared, .q_rank = s->mla.q_rank, .kv_rank = s->mla.kv_rank,
		.rope_dim = s->mla.rope, .v_dim = s->mla.v,
	};
	if (s->mla.kv_rank)
		a->head_dim = s->mla.nope + s->mla.rope;
	for (uint64_t i = 0; i < s->layers; i++)
		a->moe_layers += ck_shape_has_experts(s, i);
}

/* The tower is used before the layers, and no rank of tensor parallelism divides it. */
static int add_tower(const struct making *making)
{
	const struct ck_tower *t = &making->s->tower;
	struct making k = *making;
	int rc = 0;

	k.tower = true;
	for (uint32_t first = 0, end; !rc && first < t->n; first = end) {
		const uint32_t group = t->part[first].group;

		for (end = first; end < t->n && t->part[end].group == group;)
			end++;
		for (uint64_t n = 0; !rc && n < t->times[group]; n++)
			for (uint32_t i = first; !rc && i < end; i++)
				rc = add_whole(&k, t->part[i].weight, t->part[i].bias);
	}
	return rc;
}

int ck_model_add_shape(struct ckpt_model *m, const struct ck_shape *s, struct ckpt_err *err)
{
	struct making k = { m, s, 0, err, false };
	int rc = add_tower(&k);

	if (!rc)
		rc = add(&k, &(struct part){ s->vocab * s->hidden, 0, CK_CUT_EMBEDDING, 0 });

	if (!rc && s->positions)
		rc = add_whole(&k, s->positions * s->hidden, 0);
	for (uint64_t i = 0; !rc && i < s->layers; i++) {
		k.block = (uint32_t)i + 1;
		rc = add_layer(&k);
	}
	k.block = CK_BLOCK_BEHIND;
	if (!rc)
		rc = add_norm(&k, s->hidden);
	if (!rc && !s->tied)
		rc = add(&k, &(struct part){ s->vocab * s->hidden, 0, CK_CUT_HEAD, 0 });
	if (rc)
		return rc;
	ck_model_take_arch(m, s);
	m->shaped = true;
	m->tied = s->tied;
	return 0;
}
