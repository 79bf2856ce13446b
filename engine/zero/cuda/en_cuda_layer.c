/*
 * en_cuda_layer.c -- a layer forward and backward; docs/internals/gpu.md has the steps and
 * shapes.
 */
#include <stdio.h>
#include <string.h>

#include "engine/zero/cuda/en_cuda_linear.h"

/* Kernels make the gradient of a norm in any case. */
static void *norm_grad(const struct en_cuda_layer *l, enum en_slot slot, size_t at)
{
	void *g = en_cuda_grad(l, slot);

	return g ? g : en_cuda_at(l->c->unused, at, KN_F32);
}

static int end(struct en_cuda_layer *l, struct ckpt_err *err)
{
	if (l->rc < 0)
		return en_cuda_attn(l->rc, kn_cu_gemm_why(l->c->gemm), err);
	return en_cuda_cuda(l->rc, l->what, err);
}

/* The module's input is needed for a gradient. */
static bool trains(const struct en_cuda_layer *l, enum en_slot slot, enum en_linear linear)
{
	return en_cuda_grad(l, slot) || en_cuda_has_adapter(l->block, linear);
}

/*
 * A sum of products in [n, in]: none is added to in its place, so two buffers take turns, and the
 * last of 'left' products goes to 'to'.
 */
struct sum {
	void *to, *other; /* 'to' NULL: the sum is not needed */
	const void *so_far;
	uint32_t left;
	size_t in;
};

static void *sum_next(struct sum *s)
{
	return --s->left & 1 ? s->other : s->to;
}

static void sum_add(struct en_cuda_layer *l, struct sum *s, const void *dy, size_t ld,
		    const void *w, size_t out)
{
	void *to = sum_next(s);

	if (!s->to)
		return;
	en_cuda_input_mm(l, to, dy, ld, w, s->so_far, s->in, out);
	s->so_far = to;
}

/* Adapters of modules that have the sum's input: their gradients, and their part of the sum. */
static void sum_adapters(struct en_cuda_layer *l, struct sum *s, enum en_linear first,
			 const void *dy, const void *x)
{
	const uint32_t terms = en_cuda_adapter_terms(l, first);

	if (!terms)
		return;
	en_cuda_adapter_back(l, first, dy);
	for (uint32_t i = 0; i < terms && s->to; i++) {
		void *to = sum_next(s);

		en_cuda_adapter_term(l, first, i, to, s->so_far);
		s->so_far = to;
	}
	en_cuda_adapter_grads(l, first, dy, x);
}

/* ---- modules side by side ---- */

/* Two matrices one after the other, of which both have adapters or none. */
static bool are_joined(const struct en_block *b, enum en_slot one, enum en_slot two, uint64_t n,
		       enum en_linear first)
{
	return b->at[two] == b->at[one] + n &&
	       (b->grad[one] == UINT64_MAX) == (b->grad[two] == UINT64_MAX) &&
	       en_cuda_has_adapter(b, first) == en_cuda_has_adapter(b, first + 1);
}

static bool is_qkv_joined(const struct en_model_config *m, const struct en_block *b)
{
	const uint64_t q = (uint64_t)m->heads * m->head_dim * m->hidden;
	const uint64_t kv = (uint64_t)m->kv_heads * m->head_dim * m->hidden;

	return b->at[EN_Q_BIAS] == UINT64_MAX && are_joined(b, EN_Q, EN_K, q, EN_LINEAR_Q) &&
	       are_joined(b, EN_K, EN_V, kv, EN_LINEAR_K);
}

static bool is_gate_up_joined(const struct en_model_config *m, const struct en_block *b)
{
	return are_joined(b, EN_GATE, EN_UP, (uint64_t)m->inter * m->hidden, EN_LINEAR_GATE);
}

bool en_cuda_adds_products(const struct en_model *model)
{
	const struct en_model_config *c = &model->config;

	for (uint32_t i = 1; i <= c->layers; i++)
		if (!is_qkv_joined(c, &model->block[i]) || !is_gate_up_joined(c, &model->block[i]))
			return true;
	return model->lora.r;
}

/* ---- q, k and v: one matrix, or three ---- */

struct part {
	enum en_slot w, bias;
	size_t at, n; /* columns of qkv */
};

static uint32_t parts(const struct en_cuda_layer *l, struct part out[3])
{
	const size_t q = l->qk.heads * l->qk.d, kv = l->qk.kv_heads * l->qk.d;
	const struct part three[3] = {
		{EN_Q, EN_Q_BIAS, 0, q},
		{EN_K, EN_K_BIAS, q, kv},
		{EN_V, EN_V_BIAS, q + kv, kv},
	};

	if (is_qkv_joined(&l->c->z.model->config, l->block)) {
		out[0] = (struct part){EN_Q, EN_Q_BIAS, 0, q + 2 * kv};
		return 1;
	}
	for (int i = 0; i < 3; i++)
		out[i] = three[i];
	return 3;
}

static void project(struct en_cuda_layer *l, void *qkv, const void *h)
{
	const size_t in = l->c->z.model->config.hidden, ld = l->c->ld;
	struct part part[3];
	const uint32_t n = parts(l, part);

	en_cuda_adapt(l, EN_LINEAR_Q, l->c->dqkv, h, NULL); /* not in use on the way forward */
	for (uint32_t i = 0; i < n; i++) {
		void *y = en_cuda_at(qkv, part[i].at, l->type);
		const void *bias = en_cuda_weight(l, part[i].bias);
		const void *add = !en_cuda_has_adapter(l->block, EN_LINEAR_Q + i)
					  ? NULL
					  : en_cuda_at(l->c->dqkv, part[i].at, l->type);

		en_cuda_forward_mm(l, y, ld, h, en_cuda_weight(l, part[i].w), add, in, part[i].n);
		if (bias && !l->rc)
			en_cuda_note(
				l,
				kn_cu_add_bias(y, ld, bias, l->n, part[i].n, l->type, l->c->work),
				"a bias");
	}
}

/* dh NULL: it is not needed. */
static void project_back(struct en_cuda_layer *l, void *dh, const void *dqkv, const void *h)
{
	const size_t in = l->c->z.model->config.hidden, ld = l->c->ld;
	const enum kn_type wire = l->c->z.opts.wire;
	struct part part[3];
	const uint32_t n = parts(l, part);
	struct sum sum = {
		.to = dh,
		.other = l->c->spare,
		.left = n + en_cuda_adapter_terms(l, EN_LINEAR_Q),
		.in = in,
	};

	sum_adapters(l, &sum, EN_LINEAR_Q, dqkv, h);
	for (uint32_t i = 0; i < n; i++) {
		const void *dy = en_cuda_at_const(dqkv, part[i].at, l->type);
		void *bias = en_cuda_grad(l, part[i].bias);

		sum_add(l, &sum, dy, ld, en_cuda_weight(l, part[i].w), part[i].n);
		en_cuda_weight_mm(l, en_cuda_grad(l, part[i].w), dy, ld, h, in, part[i].n);
		if (bias && !l->rc)
			en_cuda_note(l,
				     kn_cu_sum_rows(bias, wire, dy, ld, l->n, part[i].n, l->type, 0,
						    l->c->part, l->c->work),
				     "a bias");
	}
}

/* ---- the layer ---- */

/* A plan for other rows than before: evaluation's last batch, or rows of documents. */
int en_cuda_plan(struct en_cuda *c, const struct en_batch *b, const struct kn_cu_attn **out,
		 struct ckpt_err *err)
{
	const struct en_model_config *m = &c->z.model->config;
	const size_t q = (size_t)m->heads * m->head_dim, kv = (size_t)m->kv_heads * m->head_dim;
	const struct kn_cu_attn_shape shape = {
		.b = b->rows,
		.t = b->tokens,
		.heads = m->heads,
		.kv = m->kv_heads,
		.d = m->head_dim,
		.ldq = q,
		.ldk = kv,
		.ldv = c->ld,
		.ldo = q,
		.lddq = c->ld,
		.lddk = c->ld,
		.lddv = c->ld,
		.lddo = q,
		.scale = (float)(1 / __builtin_sqrt((double)m->head_dim)),
		.type = c->z.opts.type,
		.starts = c->seams ? c->starts : NULL,
	};
	char why[200] = "";
	uint32_t i = 0;
	int rc;

	for (; i < EN_CUDA_PLANS && c->attn[i]; i++)
		if (c->attn_rows[i] == b->rows && c->attn_tokens[i] == b->tokens &&
		    c->attn_seams[i] == c->seams)
			break;
	if (i == EN_CUDA_PLANS) {
		i = EN_CUDA_PLANS - 1;
		rc = en_cuda_wait(c, c->work, NULL, "attention", err);
		if (rc)
			return rc;
		kn_cu_attn_free(c->attn[i]);
		c->attn[i] = NULL;
	}
	if (!c->attn[i]) {
		rc = kn_cu_attn_new(&c->attn[i], &shape,
				    c->cuda.own_attention ? KN_CU_ATTN_OWN : KN_CU_ATTN_ANY,
				    c->cuda.fixed ? KN_CU_ATTN_FIXED : 0, why, sizeof(why));
		if (rc)
			return en_cuda_attn(rc, why, err);
		if (!i) /* of the run's own shape */
			snprintf(c->text + strlen(c->text), sizeof(c->text) - strlen(c->text),
				 ", attention by %s kernels%s%s", kn_cu_attn_name(c->attn[i]),
				 *why ? ": " : "", why);
		c->attn_rows[i] = b->rows;
		c->attn_tokens[i] = b->tokens;
		c->attn_seams[i] = c->seams;
		if (kn_cu_attn_work(c->attn[i]) > c->attn_bytes) {
			en_cuda_free_one(c, c->attn_work);
			c->attn_work = NULL;
			rc = en_cuda_new(c, EN_MEM_WORK, kn_cu_attn_work(c->attn[i]), &c->attn_work,
					 err);
			if (rc)
				return rc;
			c->attn_bytes = kn_cu_attn_work(c->attn[i]);
		}
	}
	*out = c->attn[i];
	return 0;
}

static int open_layer(struct en_cuda_layer *l, struct en_cuda *c, const struct en_cuda_run *run,
		      const struct en_cuda_kept *kept, struct ckpt_err *err)
{
	const struct en_model_config *m = &c->z.model->config;
	const struct en_batch *b = run->batch;

	*l = (struct en_cuda_layer){
		.c = c,
		.batch = b,
		.number = run->layer,
		.block = &c->z.model->block[run->layer + 1],
		.kept = kept,
		.params = run->params,
		.n = (size_t)b->rows * b->tokens,
		.type = c->z.opts.type,
		.qk =
			{
				.rows = (size_t)b->rows * b->tokens,
				.tokens = b->tokens,
				.heads = m->heads,
				.kv_heads = m->kv_heads,
				.d = m->head_dim,
				.ld = c->ld,
				.ldq = (size_t)m->heads * m->head_dim,
				.ldk = (size_t)m->kv_heads * m->head_dim,
				.eps = (float)m->norm_eps,
				.type = c->z.opts.type,
				.starts = c->seams ? c->starts : NULL,
			},
	};
	return en_cuda_plan(c, b, &l->attn, err);
}

static void norm(struct en_cuda_layer *l, void *y, float *rstd, const void *x, enum en_slot slot)
{
	const struct en_model_config *m = &l->c->z.model->config;
	const bool post = slot == EN_NORM_POST;

	if (!l->rc)
		en_cuda_note(l,
			     kn_cu_rmsnorm_amax(y, rstd, x, en_cuda_weight(l, slot), l->n,
						m->hidden, (float)m->norm_eps, l->type,
						en_cuda_fp8_of_input(l->c, post ? EN_GATE : EN_Q),
						l->c->work),
			     "a norm");
}

/* c->g = c->g + the gradient through the norm, whose input was x. */
static void norm_back(struct en_cuda_layer *l, const void *dy, const void *x, const float *rstd,
		      enum en_slot slot)
{
	struct en_cuda *c = l->c;
	const bool post = slot == EN_NORM_POST;

	if (!l->rc)
		en_cuda_note(l,
			     kn_cu_rmsnorm_back_amax(c->g, norm_grad(l, slot, 0), c->z.opts.wire,
						     dy, x, rstd, en_cuda_weight(l, slot), c->g,
						     l->n, c->z.model->config.hidden, l->type, 0,
						     c->part,
						     post ? en_cuda_fp8_of_grad(c, EN_O, false)
							  : en_cuda_fp8_of_grad(c, EN_DOWN, true),
						     c->work),
			     "a norm");
}

/* Where something is that may be kept. */
static void *place(void *kept, void *shared)
{
	return kept ? kept : shared;
}

static void turn(struct en_cuda_layer *l, const struct en_cuda_kept *kept)
{
	struct en_cuda *c = l->c;

	if (!l->rc)
		en_cuda_note(l,
			     kn_cu_qk(&l->qk, place(kept->q, c->q), place(kept->k, c->k), kept->qkv,
				      en_cuda_weight(l, EN_Q_NORM), en_cuda_weight(l, EN_K_NORM),
				      c->cos, c->sin, c->work),
			     "rotation");
}

static const void *values(const struct en_cuda_layer *l, const void *qkv)
{
	return en_cuda_at_const(qkv, (l->qk.heads + l->qk.kv_heads) * l->qk.d, l->type);
}

/* Gate and up of h; dgu is not in use on the way forward. */
static void gate_up(struct en_cuda_layer *l, void *gu, const void *h)
{
	struct en_cuda *c = l->c;
	const size_t hidden = c->z.model->config.hidden, inter = c->z.model->config.inter;
	const uint32_t n = is_gate_up_joined(&c->z.model->config, l->block) ? 1 : 2;

	en_cuda_adapt(l, EN_LINEAR_GATE, c->dgu, h, NULL);
	for (uint32_t i = 0; i < n; i++)
		en_cuda_forward_mm(l, en_cuda_at(gu, i * inter, l->type), 2 * inter, h,
				   en_cuda_weight(l, i ? EN_UP : EN_GATE),
				   !en_cuda_has_adapter(l->block, EN_LINEAR_GATE + i)
					   ? NULL
					   : en_cuda_at(c->dgu, i * inter, l->type),
				   hidden, (3 - n) * inter);
}

int en_cuda_run_forward(struct en_cuda *c, const struct en_cuda_run *run, const void *x, void *y,
			const struct en_cuda_kept *kept, struct ckpt_err *err)
{
	const struct en_model_config *m = &c->z.model->config;
	void *h_in = place(kept->h_in, c->h), *h_post = place(kept->h_post, c->h);
	void *act = place(kept->act, c->act);
	struct en_cuda_layer l;
	int rc = open_layer(&l, c, run, kept, err);

	if (rc)
		return rc;
	en_cuda_fp8_layer(c, run->layer, run->params, NULL);
	norm(&l, h_in, kept->rstd_in, x, EN_NORM_IN);
	project(&l, kept->qkv, h_in);
	turn(&l, kept);
	if (!l.rc)
		en_cuda_note(&l,
			     kn_cu_attn_forward(l.attn, kept->o, kept->lse, place(kept->q, c->q),
						place(kept->k, c->k), values(&l, kept->qkv),
						c->attn_work, c->work),
			     "attention");
	en_cuda_forward_mm(&l, kept->mid, m->hidden, kept->o, en_cuda_weight(&l, EN_O),
			   en_cuda_adapt(&l, EN_LINEAR_O, c->t, kept->o, x), l.qk.ldq, m->hidden);
	norm(&l, h_post, kept->rstd_post, kept->mid, EN_NORM_POST);
	gate_up(&l, kept->gu, h_post);
	if (y && !l.rc) {
		en_cuda_note(&l,
			     kn_cu_swiglu_amax(act, kept->gu, l.n, m->inter, l.type,
					       en_cuda_fp8_of_input(c, EN_DOWN), c->work),
			     "swiglu");
		en_cuda_forward_mm(&l, y, m->hidden, act, en_cuda_weight(&l, EN_DOWN),
				   en_cuda_adapt(&l, EN_LINEAR_DOWN, c->t, act, kept->mid),
				   m->inter, m->hidden);
	}
	return end(&l, err);
}

/* c->t = the gradient of h, the input of gate and up, from c->dgu. */
static void gate_up_back(struct en_cuda_layer *l, const void *h)
{
	struct en_cuda *c = l->c;
	const size_t hidden = c->z.model->config.hidden, inter = c->z.model->config.inter;
	const uint32_t n = is_gate_up_joined(&c->z.model->config, l->block) ? 1 : 2;
	struct sum sum = {
		.to = c->t,
		.other = c->spare,
		.left = n + en_cuda_adapter_terms(l, EN_LINEAR_GATE),
		.in = hidden,
	};

	sum_adapters(l, &sum, EN_LINEAR_GATE, c->dgu, h);
	for (uint32_t i = 0; i < n; i++) {
		const enum en_slot slot = i ? EN_UP : EN_GATE;
		const void *dy = en_cuda_at(c->dgu, i * inter, l->type);

		sum_add(l, &sum, dy, 2 * inter, en_cuda_weight(l, slot), (3 - n) * inter);
		en_cuda_weight_mm(l, en_cuda_grad(l, slot), dy, 2 * inter, h, hidden,
				  (3 - n) * inter);
	}
}

static void mlp_back(struct en_cuda_layer *l, const struct en_cuda_kept *kept)
{
	struct en_cuda *c = l->c;
	const struct en_model_config *m = &c->z.model->config;
	const size_t inter = m->inter;
	const void *act = place(kept->act, c->act);
	void *again = kept->act || en_cuda_fp8_has(c, EN_DOWN) ? NULL : c->act;

	/* dgu is not in use yet */
	en_cuda_input_mm(l, c->act, c->g, m->hidden, en_cuda_weight(l, EN_DOWN),
			 en_cuda_adapter_input(l, EN_LINEAR_DOWN, c->dgu, c->g), inter, m->hidden);
	if (!l->rc)
		en_cuda_note(l,
			     kn_cu_swiglu_back_amax(c->dgu, again, c->act, kept->gu, l->n, inter,
						    l->type, en_cuda_fp8_of_grad(c, EN_GATE, false),
						    c->work),
			     "swiglu");
	en_cuda_weight_mm(l, en_cuda_grad(l, EN_DOWN), c->g, m->hidden, act, inter, m->hidden);
	if (c->z.opts.recompute) /* which ends before it */
		en_cuda_adapter_in(l, EN_LINEAR_DOWN, act);
	en_cuda_adapter_grads(l, EN_LINEAR_DOWN, c->g, act);
	if (!kept->h_post && !en_cuda_fp8_has(c, EN_GATE) &&
	    (trains(l, EN_GATE, EN_LINEAR_GATE) || trains(l, EN_UP, EN_LINEAR_UP)))
		norm(l, c->h, NULL, kept->mid, EN_NORM_POST);
	gate_up_back(l, place(kept->h_post, c->h));
	norm_back(l, c->t, kept->mid, kept->rstd_post, EN_NORM_POST);
}

static void attention_back(struct en_cuda_layer *l, const void *x, const struct en_cuda_kept *kept)
{
	struct en_cuda *c = l->c;
	const size_t hidden = c->z.model->config.hidden, q = l->qk.ldq;
	void *dk = en_cuda_at(c->dqkv, q, l->type), *dv = en_cuda_at(dk, l->qk.ldk, l->type);
	struct kn_cu_qk shape = l->qk;
	const bool norms = en_cuda_weight(l, EN_Q_NORM) != NULL;
	const bool needed = !l->lowest || en_cuda_grad(l, EN_NORM_IN);

	shape.ldq = shape.ldk = c->ld; /* dq' and dk' are in dqkv already */
	en_cuda_input_mm(l, c->dout, c->g, hidden, en_cuda_weight(l, EN_O),
			 en_cuda_adapter_input(l, EN_LINEAR_O, c->dqkv, c->g), q, hidden);
	en_cuda_adapter_grads(l, EN_LINEAR_O, c->g, kept->o);
	en_cuda_weight_mm(l, en_cuda_grad(l, EN_O), c->g, hidden, kept->o, q, hidden);
	if (!kept->q)
		turn(l, kept);
	if (!l->rc)
		en_cuda_note(l,
			     kn_cu_attn_back(l->attn, c->dqkv, dk, dv, c->dout,
					     place(kept->q, c->q), place(kept->k, c->k),
					     values(l, kept->qkv), kept->o, kept->lse, c->attn_work,
					     c->work),
			     "attention");
	if (!l->rc)
		en_cuda_note(
			l,
			kn_cu_qk_back(&shape, c->dqkv, norms ? norm_grad(l, EN_Q_NORM, 0) : NULL,
				      norms ? norm_grad(l, EN_K_NORM, l->qk.d) : NULL,
				      c->z.opts.wire, c->dqkv, dk, norms ? kept->qkv : NULL,
				      en_cuda_weight(l, EN_Q_NORM), en_cuda_weight(l, EN_K_NORM),
				      c->cos, c->sin, 0, norms ? c->part : NULL, c->work),
			"rotation");
	if (!kept->h_in && !en_cuda_fp8_has(c, EN_Q) &&
	    (trains(l, EN_Q, EN_LINEAR_Q) || trains(l, EN_K, EN_LINEAR_K) ||
	     trains(l, EN_V, EN_LINEAR_V)))
		norm(l, c->h, NULL, x, EN_NORM_IN);
	project_back(l, needed ? c->t : NULL, c->dqkv, place(kept->h_in, c->h));
	if (needed)
		norm_back(l, c->t, x, kept->rstd_in, EN_NORM_IN);
}

int en_cuda_run_backward(struct en_cuda *c, const struct en_cuda_run *run, const void *x,
			 const struct en_cuda_kept *kept, void *grads, bool lowest,
			 struct ckpt_err *err)
{
	struct en_cuda_layer l;
	int rc = open_layer(&l, c, run, kept, err);

	if (rc)
		return rc;
	l.grads = grads;
	en_cuda_fp8_layer(c, run->layer, run->params, grads);
	l.lowest = lowest;
	mlp_back(&l, kept);
	attention_back(&l, x, kept);
	return end(&l, err);
}
