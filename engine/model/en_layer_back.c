/*
 * en_layer_back.c -- a transformer layer, backward: the lines of en_layer.c from last to first.
 *
 * A gradient that comes over two ways (the residual stream and the norm) is added where the norm
 * goes back.  Gradients of vectors are sums over all positions: each job of rows sums its own, and
 * the jobs' sums are added in order.
 */
#include <string.h>

#include "engine/model/en_layer_priv.h"

struct backward {
	const struct en_batch *batch;
	struct en_layer_const w;
	struct en_layer g;
	struct en_saved s;
	const float *x, *dy;
	float *dx;
	struct kn_attn shape;
	unsigned flags;
};

static void deactivate(struct en_exec *exec, void *arg, size_t first, size_t count, size_t job)
{
	const struct backward *b = arg;
	const size_t inter = exec->model->config.inter;

	(void)job;
	for (size_t r = first; r < first + count; r++) {
		const float *gate = b->s.gu + r * 2 * inter;
		float *dgate = exec->dgu + r * 2 * inter;

		kn_swiglu_back(dgate, dgate + inter, exec->dact + r * inter, gate, gate + inter,
			       inter, exec->type);
	}
}

static void norm_post_back(struct en_exec *exec, void *arg, size_t first, size_t count, size_t job)
{
	const struct backward *b = arg;
	const size_t h = exec->model->config.hidden, at = first * h;
	float *dw = exec->partial + job * h;

	memset(dw, 0, h * sizeof(*dw));
	kn_rmsnorm_back(exec->dmid + at, dw, exec->du + at, b->s.mid + at, b->s.rstd2 + first,
			b->w.slot[EN_NORM_POST], b->dy + at, count, h, exec->type);
}

static void norm_in_back(struct en_exec *exec, void *arg, size_t first, size_t count, size_t job)
{
	const struct backward *b = arg;
	const size_t h = exec->model->config.hidden, at = first * h;
	float *dw = exec->partial + job * h;

	memset(dw, 0, h * sizeof(*dw));
	kn_rmsnorm_back(b->dx + at, dw, exec->du + at, b->x + at, b->s.rstd1 + first,
			b->w.slot[EN_NORM_IN], exec->dmid + at, count, h, exec->type);
}

struct attn_run {
	struct en_exec *exec;
	struct backward *b;
};

static void attend_back(void *arg, size_t job, uint32_t thread)
{
	const struct attn_run *run = arg;
	const struct en_exec *exec = run->exec;
	const struct backward *b = run->b;
	const size_t kv_heads = exec->model->config.kv_heads, t = b->batch->tokens;
	const size_t row = job / kv_heads, head = job % kv_heads;
	struct kn_attn shape = b->shape;

	for (size_t i = 0; i < t; i += shape.t) {
		const size_t token = row * t + i;
		const size_t q = token * exec->q + head * shape.group * shape.d;
		const size_t k = token * exec->kv + head * shape.d;

		shape.t = en_batch_document_end(b->batch, row, i) - i;
		kn_attn_back(&shape, exec->dq + q, exec->dk + k, exec->dv + k, exec->dgo + q,
			     b->s.stat + (job * shape.group * t + i) * 2, b->s.q + q, b->s.k + k,
			     b->s.v + k, exec->attn + thread * exec->attn_floats);
	}
}

/* Floats of a job's sums, in the order q bias, k bias, v bias, q norm, k norm. */
static size_t sums_width(const struct en_exec *exec)
{
	const struct en_model_config *c = &exec->model->config;

	if (c->arch == EN_QWEN2)
		return (size_t)exec->q + 2 * (size_t)exec->kv;
	return c->arch == EN_QWEN3 ? 2 * (size_t)c->head_dim : 0;
}

/* Back over the rotation, the norms of q and k, and the biases. */
static void turn_back(struct en_exec *exec, void *arg, size_t first, size_t count, size_t job)
{
	const struct en_model_config *c = &exec->model->config;
	const struct backward *b = arg;
	const struct en_saved *s = &b->s;
	const size_t d = c->head_dim, q_at = first * exec->q;
	const size_t kv_at = first * exec->kv, width = sums_width(exec);
	float *dq = exec->dq + q_at, *dk = exec->dk + kv_at, *sum = exec->partial + job * width;

	en_layer_rope(exec, b->batch, dq, dk, first, count, -1);
	memset(sum, 0, width * sizeof(*sum));
	if (b->w.slot[EN_Q_NORM]) {
		kn_rmsnorm_back(dq, sum, dq, s->q_raw + q_at, s->rstd_q + first * c->heads,
				b->w.slot[EN_Q_NORM], NULL, count * c->heads, d, exec->type);
		kn_rmsnorm_back(dk, sum + d, dk, s->k_raw + kv_at, s->rstd_k + first * c->kv_heads,
				b->w.slot[EN_K_NORM], NULL, count * c->kv_heads, d, exec->type);
	}
	if (b->w.slot[EN_Q_BIAS]) {
		kn_sum_rows(sum, dq, count, exec->q);
		kn_sum_rows(sum + exec->q, dk, count, exec->kv);
		kn_sum_rows(sum + exec->q + exec->kv, exec->dv + kv_at, count, exec->kv);
	}
}

static void join(struct en_exec *exec, const struct backward *b, enum en_slot slot, size_t n,
		 size_t width, size_t at, size_t count)
{
	if (b->g.slot[slot])
		en_partial_join(exec, en_row_jobs(n), width, at, count, b->g.slot[slot], b->flags);
}

static void join_turn(struct en_exec *exec, const struct backward *b, size_t n)
{
	const size_t width = sums_width(exec), d = exec->model->config.head_dim;

	if (b->w.slot[EN_Q_NORM]) {
		join(exec, b, EN_Q_NORM, n, width, 0, d);
		join(exec, b, EN_K_NORM, n, width, d, d);
	}
	if (b->w.slot[EN_Q_BIAS]) {
		join(exec, b, EN_Q_BIAS, n, width, 0, exec->q);
		join(exec, b, EN_K_BIAS, n, width, exec->q, exec->kv);
		join(exec, b, EN_V_BIAS, n, width, exec->q + exec->kv, exec->kv);
	}
}

/* The gradient of a matrix as one more product, unless it is frozen. */
static size_t weight(const struct backward *b, enum en_slot slot, const float *dy, const float *x,
		     size_t n, size_t in, size_t out, struct en_mm *mm)
{
	if (b->g.slot[slot])
		*mm = en_mm_weight(dy, x, b->g.slot[slot], n, in, out, b->flags);
	return b->g.slot[slot] != NULL;
}

static void lora_back(struct en_exec *exec, const struct backward *b, const struct en_lora_of *of,
		      const float *dy, size_t ldy, float *dx)
{
	en_lora_backward(exec, &b->w, &b->g, of, dy, ldy, dx, b->flags);
}

/* After sums that were not rounded as they grew. */
static void round_rows(struct en_exec *exec, void *arg, size_t first, size_t count, size_t job)
{
	const struct en_mm *mm = arg;

	(void)job;
	kn_round(mm->c + first * mm->n, count * mm->n, exec->type);
}

/* dx = dy W and what an adapter adds, rounded; and the gradient of W. */
static void linear_back(struct en_exec *exec, const struct backward *b, enum en_slot slot,
			const struct en_lora_of *of, const float *dy, float *dx)
{
	const bool lora = b->w.slot[EN_LORA_A + of->linear];
	struct en_mm mm[2];

	mm[0] = en_mm_input(dy, b->w.slot[slot], dx, of->n, of->in, of->out, false);
	mm[0].round = !lora;
	en_mm_run(exec, mm, 1 + weight(b, slot, dy, of->x, of->n, of->in, of->out, &mm[1]));
	if (!lora)
		return;
	lora_back(exec, b, of, dy, of->out, dx);
	en_rows_run(exec, of->n, round_rows, &mm[0]);
}

/* Gate and up apart: one of them is frozen, or their adapters are trained. */
static void gate_up_apart(struct en_exec *exec, const struct backward *b, size_t n)
{
	const struct en_model_config *c = &exec->model->config;
	const size_t h = c->hidden, inter = c->inter;
	const float *const *w = b->w.slot;
	struct en_lora_of of = en_lora_of(EN_LINEAR_GATE, b->s.u2, n, h, inter);
	struct en_mm mm[2];

	for (uint32_t i = 0; i < 2; i++) {
		const enum en_slot slot = i ? EN_UP : EN_GATE;
		const float *dy = exec->dgu + i * inter;
		size_t count = 1;

		mm[0] = en_mm_input(dy, w[slot], exec->du, n, h, inter, i);
		mm[0].round = false;
		count += weight(b, slot, dy, b->s.u2, n, h, inter, &mm[1]);
		mm[0].lda = mm[1].lda = 2 * inter;
		en_mm_run(exec, mm, count);
		of.linear = i ? EN_LINEAR_UP : EN_LINEAR_GATE;
		lora_back(exec, b, &of, dy, 2 * inter, exec->du);
	}
	en_rows_run(exec, n, round_rows, &mm[0]);
}

static void gate_up_back(struct en_exec *exec, const struct backward *b, size_t n)
{
	const struct en_model_config *c = &exec->model->config;
	const size_t h = c->hidden, inter = c->inter;
	const float *const *w = b->w.slot;
	const float *dgate = b->g.slot[EN_GATE], *dup = b->g.slot[EN_UP];
	struct en_mm mm[2];

	if (!en_layer_is_joined(w, h * inter) || w[EN_LORA_A + EN_LINEAR_GATE] ||
	    w[EN_LORA_A + EN_LINEAR_UP] || !dgate != !dup) {
		gate_up_apart(exec, b, n);
		return;
	}
	mm[0] = en_mm_input(exec->dgu, w[EN_GATE], exec->du, n, h, 2 * inter, false);
	en_mm_run(exec, mm, 1 + weight(b, EN_GATE, exec->dgu, b->s.u2, n, h, 2 * inter, &mm[1]));
}

static void mlp_back(struct en_exec *exec, struct backward *b, size_t n)
{
	const struct en_model_config *c = &exec->model->config;
	const size_t h = c->hidden;
	const struct en_lora_of down = en_lora_of(EN_LINEAR_DOWN, b->s.act, n, c->inter, h);

	linear_back(exec, b, EN_DOWN, &down, b->dy, exec->dact);
	en_rows_run(exec, n, deactivate, b);
	gate_up_back(exec, b, n);
	en_rows_run(exec, n, norm_post_back, b);
	join(exec, b, EN_NORM_POST, n, h, 0, h);
}

static void attn_back(struct en_exec *exec, struct backward *b, size_t n)
{
	const size_t h = exec->model->config.hidden;
	const float *const *w = b->w.slot;
	const float *u1 = b->s.u1;
	const bool needed = !(b->flags & EN_LOWEST) || b->g.slot[EN_NORM_IN];
	float *du = needed ? exec->du : NULL;
	struct en_lora_of of = en_lora_of(EN_LINEAR_O, b->s.o, n, exec->q, h);
	struct attn_run attn = { exec, b };
	struct en_mm mm[4];
	size_t count = 0;

	linear_back(exec, b, EN_O, &of, exec->dmid, exec->dgo);
	en_pool_run(exec->pool, (size_t)b->batch->rows * exec->model->config.kv_heads, attend_back,
		    &attn);
	en_rows_run(exec, n, turn_back, b);
	join_turn(exec, b, n);
	if (needed) {
		mm[0] = en_mm_input(exec->dq, w[EN_Q], exec->du, n, h, exec->q, false);
		mm[count++].round = false;
	}
	count += weight(b, EN_Q, exec->dq, u1, n, h, exec->q, &mm[count]);
	count += weight(b, EN_K, exec->dk, u1, n, h, exec->kv, &mm[count]);
	count += weight(b, EN_V, exec->dv, u1, n, h, exec->kv, &mm[count]);
	en_mm_run(exec, mm, count);
	of = en_lora_of(EN_LINEAR_Q, u1, n, h, exec->q);
	lora_back(exec, b, &of, exec->dq, exec->q, du);
	of = en_lora_of(EN_LINEAR_K, u1, n, h, exec->kv);
	lora_back(exec, b, &of, exec->dk, exec->kv, du);
	of = en_lora_of(EN_LINEAR_V, u1, n, h, exec->kv);
	lora_back(exec, b, &of, exec->dv, exec->kv, du);
	if (!needed)
		return;
	mm[0] = en_mm_input(exec->dk, w[EN_K], exec->du, n, h, exec->kv, true);
	mm[0].round = false;
	en_mm_run(exec, mm, 1);
	mm[0] = en_mm_input(exec->dv, w[EN_V], exec->du, n, h, exec->kv, true);
	en_mm_run(exec, mm, 1);
	en_rows_run(exec, n, norm_in_back, b);
	join(exec, b, EN_NORM_IN, n, h, 0, h);
}

void en_layer_backward(struct en_exec *exec, const struct en_batch *batch, const void *params,
		       const float *x, const float *saved, const float *dy, float *dx,
		       float *grads, unsigned flags)
{
	const struct en_block *block = &exec->model->block[exec->layer + 1];
	const size_t n = (size_t)batch->rows * batch->tokens;
	struct backward b = { .batch = batch, .x = x, .dy = dy, .dx = dx, .flags = flags,
			      .shape = en_layer_attn(exec, batch->tokens) };

	en_layer_at(exec, batch, params, &b.w);
	for (int i = 0; i < EN_LAYER_SLOTS; i++)
		b.g.slot[i] = block->grad[i] == UINT64_MAX ? NULL : grads + block->grad[i];
	/* it is only read from here on */
	en_saved_place(exec, n, (float *)(uintptr_t)saved, &b.s);
	mlp_back(exec, &b, n);
	attn_back(exec, &b, n);
}
