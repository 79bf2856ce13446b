/*
 * en_cuda_layer.c -- a layer forward and backward; docs/internals/gpu.md has the steps and
 * shapes.
 */
#include <stdio.h>
#include <string.h>

#include "engine/zero/cuda/en_cuda_priv.h"

/* Everything that one call works with. */
struct layer {
	struct en_cuda *c;
	const struct en_block *block;
	const void *params;
	void *grads;
	size_t n;		/* positions */
	enum kn_type type;
	struct kn_cu_qk qk;
	const struct kn_cu_attn *attn;
	int rc;			/* of CUDA or a library, the first */
	const char *what;
};

static const void *weight(const struct layer *l, enum en_slot slot)
{
	return l->block->at[slot] == UINT64_MAX ? NULL :
		en_cuda_at_const(l->params, l->block->at[slot], l->type);
}

static void *grad(const struct layer *l, enum en_slot slot)
{
	return l->block->at[slot] == UINT64_MAX ? NULL :
		en_cuda_at(l->grads, l->block->at[slot], l->c->z.opts.wire);
}

static void note(struct layer *l, int rc, const char *what)
{
	if (l->rc || !rc)
		return;
	l->rc = rc;
	l->what = what;
}

static int end(struct layer *l, struct ckpt_err *err)
{
	if (l->rc < 0)
		return en_cuda_attn(l->rc, kn_cu_gemm_why(l->c->gemm), err);
	return en_cuda_cuda(l->rc, l->what, err);
}

/* ---- products ---- */

/* y [n, out] = x [n, in] w^T, rows of y 'ld' apart; 'add' (may be NULL) is added. */
static void forward_mm(struct layer *l, void *y, size_t ld, const void *x, const void *w,
		       const void *add, size_t in, size_t out)
{
	const struct kn_cu_mm mm = {
		.flags = KN_GEMM_TB | (add ? KN_GEMM_ADD : 0), .m = l->n, .n = out, .k = in,
		.lda = in, .ldb = in, .ldc = ld, .ldd = ld, .type = l->type, .out = l->type,
	};
	const struct en_cuda_linear of = {
		.n = l->n, .in = in, .out = out, .ld = ld, .x = x, .w = w, .add = add, .d = y,
	};
	int rc = 0;

	if (!l->rc && en_cuda_fp8_forward(l->c, &of, &rc))
		note(l, rc, "a product of 8-bit numbers");
	else if (!l->rc)
		note(l, kn_cu_gemm_run(l->c->gemm, &mm, 1, x, w, add, y, l->c->work), "a product");
}

/* dx [n, in] = add (may be NULL, is not dx) + dy [n, out] w, rows of dy 'ld' apart. */
static void input_mm(struct layer *l, void *dx, const void *dy, size_t ld, const void *w,
		     const void *add, size_t in, size_t out)
{
	const struct kn_cu_mm mm = {
		.flags = add ? KN_GEMM_ADD : 0, .m = l->n, .n = in, .k = out, .lda = ld, .ldb = in,
		.ldc = in, .ldd = in, .type = l->type, .out = l->type,
	};
	const struct en_cuda_linear of = {
		.n = l->n, .in = in, .out = out, .ld = ld, .dy = dy, .w = w, .add = add, .d = dx,
	};
	int rc = 0;

	if (!l->rc && en_cuda_fp8_input(l->c, &of, &rc))
		note(l, rc, "a product of 8-bit numbers");
	else if (!l->rc)
		note(l, kn_cu_gemm_run(l->c->gemm, &mm, 1, dy, w, add, dx, l->c->work),
		     "a product");
}

/* dw [out, in] = dy^T x, rows of dy 'ld' apart. */
static void weight_mm(struct layer *l, void *dw, const void *dy, size_t ld, const void *x,
		      size_t in, size_t out)
{
	const struct kn_cu_mm mm = {
		.flags = KN_GEMM_TA, .m = out, .n = in, .k = l->n, .lda = ld, .ldb = in,
		.ldd = in, .type = l->type, .out = l->c->z.opts.wire,
	};
	const struct en_cuda_linear of = {
		.n = l->n, .in = in, .out = out, .ld = ld, .x = x, .dy = dy, .d = dw,
	};
	int rc = 0;

	if (!l->rc && en_cuda_fp8_weight(l->c, &of, &rc))
		note(l, rc, "a product of 8-bit numbers");
	else if (!l->rc)
		note(l, kn_cu_gemm_run(l->c->gemm, &mm, 1, dy, x, NULL, dw, l->c->work),
		     "a product");
}

/* ---- q, k and v: one matrix, or three with a bias each ---- */

struct part {
	enum en_slot w, bias;
	size_t at, n;		/* columns of qkv */
};

static uint32_t parts(const struct layer *l, struct part out[3])
{
	const size_t q = l->qk.heads * l->qk.d, kv = l->qk.kv_heads * l->qk.d;
	const struct part three[3] = {
		{ EN_Q, EN_Q_BIAS, 0, q }, { EN_K, EN_K_BIAS, q, kv },
		{ EN_V, EN_V_BIAS, q + kv, kv },
	};

	if (l->block->at[EN_Q_BIAS] == UINT64_MAX) {
		out[0] = (struct part){ EN_Q, EN_Q_BIAS, 0, q + 2 * kv };
		return 1;
	}
	for (int i = 0; i < 3; i++)
		out[i] = three[i];
	return 3;
}

static void project(struct layer *l, void *qkv, const void *h)
{
	const size_t in = l->c->z.model->config.hidden, ld = l->c->ld;
	struct part part[3];
	const uint32_t n = parts(l, part);

	for (uint32_t i = 0; i < n; i++) {
		void *y = en_cuda_at(qkv, part[i].at, l->type);
		const void *bias = weight(l, part[i].bias);

		forward_mm(l, y, ld, h, weight(l, part[i].w), NULL, in, part[i].n);
		if (bias && !l->rc)
			note(l, kn_cu_add_bias(y, ld, bias, l->n, part[i].n, l->type, l->c->work),
			     "a bias");
	}
}

/* Three parts go to dh, to 'spare' and to dh: no product is added to in its place. */
static void project_back(struct layer *l, void *dh, void *spare, const void *dqkv, const void *h)
{
	const size_t in = l->c->z.model->config.hidden, ld = l->c->ld;
	const enum kn_type wire = l->c->z.opts.wire;
	struct part part[3];
	const uint32_t n = parts(l, part);

	for (uint32_t i = 0; i < n; i++) {
		const void *dy = en_cuda_at_const(dqkv, part[i].at, l->type);
		void *bias = grad(l, part[i].bias);

		input_mm(l, i & 1 ? spare : dh, dy, ld, weight(l, part[i].w),
			 !i ? NULL : i & 1 ? dh : spare, in, part[i].n);
		weight_mm(l, grad(l, part[i].w), dy, ld, h, in, part[i].n);
		if (bias && !l->rc)
			note(l, kn_cu_sum_rows(bias, wire, dy, ld, l->n, part[i].n, l->type, 0,
					       l->c->part, l->c->work), "a bias");
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
		.b = b->rows, .t = b->tokens, .heads = m->heads, .kv = m->kv_heads,
		.d = m->head_dim, .ldq = q, .ldk = kv, .ldv = c->ld, .ldo = q, .lddq = c->ld,
		.lddk = c->ld, .lddv = c->ld, .lddo = q,
		.scale = (float)(1 / __builtin_sqrt((double)m->head_dim)), .type = c->z.opts.type,
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
		if (!i)		/* of the run's own shape */
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

static int open_layer(struct layer *l, struct en_cuda *c, const struct en_batch *b,
		      const void *params, struct ckpt_err *err)
{
	const struct en_model_config *m = &c->z.model->config;

	*l = (struct layer){
		.c = c, .block = &c->z.model->block[1], .params = params,
		.n = (size_t)b->rows * b->tokens, .type = c->z.opts.type,
		.qk = {
			.rows = (size_t)b->rows * b->tokens, .tokens = b->tokens,
			.heads = m->heads, .kv_heads = m->kv_heads, .d = m->head_dim, .ld = c->ld,
			.ldq = (size_t)m->heads * m->head_dim,
			.ldk = (size_t)m->kv_heads * m->head_dim, .eps = (float)m->norm_eps,
			.type = c->z.opts.type, .starts = c->seams ? c->starts : NULL,
		},
	};
	return en_cuda_plan(c, b, &l->attn, err);
}

static void norm(struct layer *l, void *y, float *rstd, const void *x, enum en_slot slot)
{
	const struct en_model_config *m = &l->c->z.model->config;
	const bool post = slot == EN_NORM_POST;

	if (!l->rc)
		note(l, kn_cu_rmsnorm_amax(y, rstd, x, weight(l, slot), l->n, m->hidden,
					   (float)m->norm_eps, l->type,
					   en_cuda_fp8_of_input(l->c, post ? EN_GATE : EN_Q),
					   l->c->work), "a norm");
}

/* c->g = c->g + the gradient through the norm, whose input was x. */
static void norm_back(struct layer *l, const void *dy, const void *x, const float *rstd,
		      enum en_slot slot)
{
	struct en_cuda *c = l->c;
	const bool post = slot == EN_NORM_POST;

	if (!l->rc)
		note(l, kn_cu_rmsnorm_back_amax(c->g, grad(l, slot), c->z.opts.wire, dy, x, rstd,
						weight(l, slot), c->g, l->n,
						c->z.model->config.hidden, l->type, 0, c->part,
						post ? en_cuda_fp8_of_grad(c, EN_O, false) :
						       en_cuda_fp8_of_grad(c, EN_DOWN, true),
						c->work), "a norm");
}

/* Where something is that may be kept. */
static void *place(void *kept, void *shared)
{
	return kept ? kept : shared;
}

static void turn(struct layer *l, const struct en_cuda_kept *kept)
{
	struct en_cuda *c = l->c;

	if (!l->rc)
		note(l, kn_cu_qk(&l->qk, place(kept->q, c->q), place(kept->k, c->k), kept->qkv,
				 weight(l, EN_Q_NORM), weight(l, EN_K_NORM), c->cos, c->sin,
				 c->work), "rotation");
}

static const void *values(const struct layer *l, const void *qkv)
{
	return en_cuda_at_const(qkv, (l->qk.heads + l->qk.kv_heads) * l->qk.d, l->type);
}

int en_cuda_run_forward(struct en_cuda *c, const struct en_batch *b, const void *params,
			const void *x, void *y, const struct en_cuda_kept *kept,
			struct ckpt_err *err)
{
	const struct en_model_config *m = &c->z.model->config;
	void *h_in = place(kept->h_in, c->h), *h_post = place(kept->h_post, c->h);
	void *act = place(kept->act, c->act);
	struct layer l;
	int rc = open_layer(&l, c, b, params, err);

	if (rc)
		return rc;
	en_cuda_fp8_layer(c, (uint32_t)(kept - c->kept), params, NULL);
	norm(&l, h_in, kept->rstd_in, x, EN_NORM_IN);
	project(&l, kept->qkv, h_in);
	turn(&l, kept);
	if (!l.rc)
		note(&l, kn_cu_attn_forward(l.attn, kept->o, kept->lse, place(kept->q, c->q),
					    place(kept->k, c->k), values(&l, kept->qkv),
					    c->attn_work, c->work), "attention");
	forward_mm(&l, kept->mid, m->hidden, kept->o, weight(&l, EN_O), x, l.qk.ldq, m->hidden);
	norm(&l, h_post, kept->rstd_post, kept->mid, EN_NORM_POST);
	forward_mm(&l, kept->gu, 2 * (size_t)m->inter, h_post, weight(&l, EN_GATE), NULL, m->hidden,
		   2 * (size_t)m->inter);
	if (y && !l.rc) {
		note(&l, kn_cu_swiglu_amax(act, kept->gu, l.n, m->inter, l.type,
					   en_cuda_fp8_of_input(c, EN_DOWN), c->work), "swiglu");
		forward_mm(&l, y, m->hidden, act, weight(&l, EN_DOWN), kept->mid, m->inter,
			   m->hidden);
	}
	return end(&l, err);
}

static void mlp_back(struct layer *l, const struct en_cuda_kept *kept)
{
	struct en_cuda *c = l->c;
	const struct en_model_config *m = &c->z.model->config;
	const size_t inter = m->inter;
	void *act = kept->act || en_cuda_fp8_has(c, EN_DOWN) ? NULL : c->act;

	input_mm(l, c->act, c->g, m->hidden, weight(l, EN_DOWN), NULL, inter, m->hidden);
	if (!l->rc)
		note(l, kn_cu_swiglu_back_amax(c->dgu, act, c->act, kept->gu,
					       l->n, inter, l->type,
					       en_cuda_fp8_of_grad(c, EN_GATE, false), c->work),
		     "swiglu");
	weight_mm(l, grad(l, EN_DOWN), c->g, m->hidden, place(kept->act, c->act), inter,
		  m->hidden);
	input_mm(l, c->t, c->dgu, 2 * inter, weight(l, EN_GATE), NULL, m->hidden, 2 * inter);
	if (!kept->h_post && !en_cuda_fp8_has(c, EN_GATE))
		norm(l, c->h, NULL, kept->mid, EN_NORM_POST);
	weight_mm(l, grad(l, EN_GATE), c->dgu, 2 * inter, place(kept->h_post, c->h), m->hidden,
		  2 * inter);
	norm_back(l, c->t, kept->mid, kept->rstd_post, EN_NORM_POST);
}

static void attention_back(struct layer *l, const void *x, const struct en_cuda_kept *kept)
{
	struct en_cuda *c = l->c;
	const size_t hidden = c->z.model->config.hidden, q = l->qk.ldq;
	void *dk = en_cuda_at(c->dqkv, q, l->type), *dv = en_cuda_at(dk, l->qk.ldk, l->type);
	struct kn_cu_qk shape = l->qk;
	const bool norms = weight(l, EN_Q_NORM) != NULL;

	shape.ldq = shape.ldk = c->ld;		/* dq' and dk' are in dqkv already */
	input_mm(l, c->dout, c->g, hidden, weight(l, EN_O), NULL, q, hidden);
	weight_mm(l, grad(l, EN_O), c->g, hidden, kept->o, q, hidden);
	if (!kept->q)
		turn(l, kept);
	if (!l->rc)
		note(l, kn_cu_attn_back(l->attn, c->dqkv, dk, dv, c->dout, place(kept->q, c->q),
					place(kept->k, c->k), values(l, kept->qkv), kept->o,
					kept->lse, c->attn_work, c->work), "attention");
	if (!l->rc)
		note(l, kn_cu_qk_back(&shape, c->dqkv, grad(l, EN_Q_NORM), grad(l, EN_K_NORM),
				      c->z.opts.wire, c->dqkv, dk, norms ? kept->qkv : NULL,
				      weight(l, EN_Q_NORM), weight(l, EN_K_NORM), c->cos, c->sin,
				      0, norms ? c->part : NULL, c->work), "rotation");
	if (!kept->h_in && !en_cuda_fp8_has(c, EN_Q))
		norm(l, c->h, NULL, x, EN_NORM_IN);
	project_back(l, c->t, c->spare, c->dqkv, place(kept->h_in, c->h));
	norm_back(l, c->t, x, kept->rstd_in, EN_NORM_IN);
}

int en_cuda_run_backward(struct en_cuda *c, const struct en_batch *b, const void *params,
			 const void *x, const struct en_cuda_kept *kept, void *grads,
			 struct ckpt_err *err)
{
	struct layer l;
	int rc = open_layer(&l, c, b, params, err);

	if (rc)
		return rc;
	l.grads = grads;
	en_cuda_fp8_layer(c, (uint32_t)(kept - c->kept), params, grads);
	mlp_back(&l, kept);
	attention_back(&l, x, kept);
	return end(&l, err);
}
