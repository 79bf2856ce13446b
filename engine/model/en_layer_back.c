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

static void mlp_back(struct en_exec *exec, struct backward *b, size_t n)
{
	const struct en_model_config *c = &exec->model->config;
	const float *const *w = b->w.slot;
	const size_t h = c->hidden, inter = c->inter;
	struct en_mm mm[2];

	mm[0] = en_mm_input(b->dy, w[EN_DOWN], exec->dact, n, inter, h, false);
	mm[1] = en_mm_weight(b->dy, b->s.act, b->g.slot[EN_DOWN], n, inter, h, b->flags);
	en_mm_run(exec, mm, 2);
	en_rows_run(exec, n, deactivate, b);
	mm[0] = en_mm_input(exec->dgu, w[EN_GATE], exec->du, n, h, 2 * inter, false);
	mm[1] = en_mm_weight(exec->dgu, b->s.u2, b->g.slot[EN_GATE], n, h, 2 * inter, b->flags);
	en_mm_run(exec, mm, 2);
	en_rows_run(exec, n, norm_post_back, b);
	join(exec, b, EN_NORM_POST, n, h, 0, h);
}

static void attn_back(struct en_exec *exec, struct backward *b, size_t n)
{
	const size_t h = exec->model->config.hidden;
	const float *const *w = b->w.slot;
	struct attn_run attn = { exec, b };
	struct en_mm mm[4];

	mm[0] = en_mm_input(exec->dmid, w[EN_O], exec->dgo, n, exec->q, h, false);
	mm[1] = en_mm_weight(exec->dmid, b->s.o, b->g.slot[EN_O], n, exec->q, h, b->flags);
	en_mm_run(exec, mm, 2);
	en_pool_run(exec->pool, (size_t)b->batch->rows * exec->model->config.kv_heads, attend_back,
		    &attn);
	en_rows_run(exec, n, turn_back, b);
	join_turn(exec, b, n);
	mm[0] = en_mm_input(exec->dq, w[EN_Q], exec->du, n, h, exec->q, false);
	mm[0].round = false;
	mm[1] = en_mm_weight(exec->dq, b->s.u1, b->g.slot[EN_Q], n, h, exec->q, b->flags);
	mm[2] = en_mm_weight(exec->dk, b->s.u1, b->g.slot[EN_K], n, h, exec->kv, b->flags);
	mm[3] = en_mm_weight(exec->dv, b->s.u1, b->g.slot[EN_V], n, h, exec->kv, b->flags);
	en_mm_run(exec, mm, 4);
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
	const struct en_block *block = &exec->model->block[1];
	const size_t n = (size_t)batch->rows * batch->tokens;
	struct backward b = { .batch = batch, .x = x, .dy = dy, .dx = dx, .flags = flags,
			      .shape = en_layer_attn(exec, batch->tokens) };

	en_layer_at(exec, en_widen(exec, params, block->numel, 0), &b.w);
	for (int i = 0; i < EN_LAYER_SLOTS; i++)
		b.g.slot[i] = block->at[i] == UINT64_MAX ? NULL : grads + block->at[i];
	/* it is only read from here on */
	en_saved_place(exec, n, (float *)(uintptr_t)saved, &b.s);
	mlp_back(exec, &b, n);
	attn_back(exec, &b, n);
}
