/*
 * en_layer.c -- a transformer layer, forward.
 *
 *	u1 = norm(x);  q, k, v = u1 Wq^T, u1 Wk^T, u1 Wv^T (Qwen2: + biases)
 *	Qwen3: q, k = norm per head;  q, k = rope(q, k);  o = attention(q, k, v)
 *	mid = x + o Wo^T;  u2 = norm(mid);  y = mid + (silu(u2 Wg^T) u2 Wu^T) Wd^T
 */
#include <math.h>
#include <string.h>

#include "engine/model/en_layer_priv.h"

void en_layer_at(struct en_exec *exec, const struct en_batch *batch, const void *params,
		 struct en_layer_const *out)
{
	const struct en_block *b = &exec->model->block[exec->layer + 1];
	const float *p = en_widen(exec, params, en_block_span(b), 0);

	exec->batch = batch;
	for (int i = 0; i < EN_LAYER_SLOTS; i++)
		out->slot[i] = b->at[i] == UINT64_MAX ? NULL : p + b->at[i];
}

struct kn_attn en_layer_attn(const struct en_exec *exec, size_t tokens)
{
	const struct en_model_config *c = &exec->model->config;

	return (struct kn_attn){ .t = tokens, .group = c->heads / c->kv_heads, .d = c->head_dim,
				 .ldq = exec->q, .ldk = exec->kv, .lds = tokens,
				 .scale = (float)(1 / sqrt((double)c->head_dim)),
				 .type = exec->type };
}

void en_layer_rope(const struct en_exec *exec, const struct en_batch *batch, float *q, float *k,
		   size_t first, size_t count, float sign)
{
	const struct en_model_config *c = &exec->model->config;
	const size_t t = batch->tokens, d = c->head_dim, end = first + count;

	for (size_t i = first, n; i < end; i += n) {
		const size_t at = i % t, start = batch->starts ? (size_t)batch->starts[i] : 0;

		n = en_batch_document_end(batch, i / t, at) - at;
		if (n > end - i)
			n = end - i;
		kn_rope(q, exec->cos, exec->sin, n, at - start, t, c->heads, d, sign, exec->type);
		kn_rope(k, exec->cos, exec->sin, n, at - start, t, c->kv_heads, d, sign,
			exec->type);
		q += n * exec->q;
		k += n * exec->kv;
	}
}

struct forward {
	const struct en_batch *batch;
	struct en_layer_const w;
	struct en_saved s;
	const float *x;
	float *y;
	struct kn_attn shape;
	float *project;		/* exec->t: what a projection gives, before it is added */
};

static void norm_in(struct en_exec *exec, void *arg, size_t first, size_t count, size_t job)
{
	const struct en_model_config *c = &exec->model->config;
	const struct forward *f = arg;
	const size_t at = first * c->hidden;

	(void)job;
	kn_rmsnorm(f->s.u1 + at, f->s.rstd1 + first, f->x + at, f->w.slot[EN_NORM_IN], count,
		   c->hidden, (float)c->norm_eps, exec->type);
}

/* Norms of q and k, and the rotation. */
static void turn(struct en_exec *exec, void *arg, size_t first, size_t count, size_t job)
{
	const struct en_model_config *c = &exec->model->config;
	const struct forward *f = arg;
	const struct en_saved *s = &f->s;
	const size_t d = c->head_dim;
	float *q = s->q + first * exec->q, *k = s->k + first * exec->kv;

	(void)job;
	if (f->w.slot[EN_Q_NORM]) {
		kn_rmsnorm(q, s->rstd_q + first * c->heads, s->q_raw + first * exec->q,
			   f->w.slot[EN_Q_NORM], count * c->heads, d, (float)c->norm_eps,
			   exec->type);
		kn_rmsnorm(k, s->rstd_k + first * c->kv_heads, s->k_raw + first * exec->kv,
			   f->w.slot[EN_K_NORM], count * c->kv_heads, d, (float)c->norm_eps,
			   exec->type);
	}
	en_layer_rope(exec, f->batch, q, k, first, count, 1);
}

struct attn_run {
	struct en_exec *exec;
	struct forward *f;
};

/* Job: one key/value head of one row, document after document. */
static void attend(void *arg, size_t job, uint32_t thread)
{
	const struct attn_run *run = arg;
	const struct en_exec *exec = run->exec;
	const struct forward *f = run->f;
	const size_t kv_heads = exec->model->config.kv_heads, t = f->batch->tokens;
	const size_t row = job / kv_heads, head = job % kv_heads;
	struct kn_attn shape = f->shape;

	for (size_t i = 0; i < t; i += shape.t) {
		const size_t token = row * t + i;
		const size_t q = token * exec->q + head * shape.group * shape.d;
		const size_t k = token * exec->kv + head * shape.d;

		shape.t = en_batch_document_end(f->batch, row, i) - i;
		kn_attn(&shape, f->s.o + q, f->s.stat + (job * shape.group * t + i) * 2,
			f->s.q + q, f->s.k + k, f->s.v + k,
			exec->attn + thread * exec->attn_floats);
	}
}

static void add_and_norm(struct en_exec *exec, void *arg, size_t first, size_t count, size_t job)
{
	const struct en_model_config *c = &exec->model->config;
	const struct forward *f = arg;
	const size_t at = first * c->hidden;

	(void)job;
	kn_add(f->s.mid + at, f->x + at, f->project + at, count * c->hidden, exec->type);
	kn_rmsnorm(f->s.u2 + at, f->s.rstd2 + first, f->s.mid + at, f->w.slot[EN_NORM_POST], count,
		   c->hidden, (float)c->norm_eps, exec->type);
}

static void activate(struct en_exec *exec, void *arg, size_t first, size_t count, size_t job)
{
	const struct forward *f = arg;
	const size_t inter = exec->model->config.inter;

	(void)job;
	for (size_t r = first; r < first + count; r++) {
		const float *gate = f->s.gu + r * 2 * inter;

		kn_swiglu(f->s.act + r * inter, gate, gate + inter, inter, exec->type);
	}
}

static void add_out(struct en_exec *exec, void *arg, size_t first, size_t count, size_t job)
{
	const struct forward *f = arg;
	const size_t h = exec->model->config.hidden, at = first * h;

	(void)job;
	kn_add(f->y + at, f->s.mid + at, f->project + at, count * h, exec->type);
}

size_t en_layer_gate_up(struct en_mm *mm, const float *x, const float *const *w, float *gu,
			size_t n, size_t h, size_t inter)
{
	mm[0] = en_mm_forward(x, w[EN_GATE], NULL, gu, n, h, 2 * inter);
	if (en_layer_is_joined(w, h * inter))
		return 1;
	mm[0].n = inter;
	mm[1] = en_mm_forward(x, w[EN_UP], NULL, gu + inter, n, h, inter);
	mm[1].ldc = mm[0].ldc;
	return 2;
}

void en_layer_forward(struct en_exec *exec, const struct en_batch *batch, const void *params,
		      const float *x, float *y, float *saved)
{
	const struct en_model_config *c = &exec->model->config;
	const size_t n = (size_t)batch->rows * batch->tokens, h = c->hidden, inter = c->inter;
	struct forward f = { .batch = batch, .x = x, .y = y, .project = exec->t,
			     .shape = en_layer_attn(exec, batch->tokens) };
	struct attn_run attn = { exec, &f };
	const float *const *w = f.w.slot;
	struct en_lora_of of;
	struct en_mm mm[3];
	bool norm;

	en_layer_at(exec, batch, params, &f.w);
	en_saved_place(exec, n, saved, &f.s);
	norm = w[EN_Q_NORM];
	en_rows_run(exec, n, norm_in, &f);
	mm[0] = en_mm_forward(f.s.u1, w[EN_Q], w[EN_Q_BIAS], norm ? f.s.q_raw : f.s.q, n, h,
			      exec->q);
	mm[1] = en_mm_forward(f.s.u1, w[EN_K], w[EN_K_BIAS], norm ? f.s.k_raw : f.s.k, n, h,
			      exec->kv);
	mm[2] = en_mm_forward(f.s.u1, w[EN_V], w[EN_V_BIAS], f.s.v, n, h, exec->kv);
	en_mm_run(exec, mm, 3);
	of = en_lora_of(EN_LINEAR_Q, f.s.u1, n, h, exec->q);
	en_lora_forward(exec, &f.w, &of, mm[0].c, exec->q);
	of = en_lora_of(EN_LINEAR_K, f.s.u1, n, h, exec->kv);
	en_lora_forward(exec, &f.w, &of, mm[1].c, exec->kv);
	of = en_lora_of(EN_LINEAR_V, f.s.u1, n, h, exec->kv);
	en_lora_forward(exec, &f.w, &of, mm[2].c, exec->kv);
	en_rows_run(exec, n, turn, &f);
	en_pool_run(exec->pool, (size_t)batch->rows * c->kv_heads, attend, &attn);
	mm[0] = en_mm_forward(f.s.o, w[EN_O], NULL, f.project, n, exec->q, h);
	en_mm_run(exec, mm, 1);
	of = en_lora_of(EN_LINEAR_O, f.s.o, n, exec->q, h);
	en_lora_forward(exec, &f.w, &of, f.project, h);
	en_rows_run(exec, n, add_and_norm, &f);
	en_mm_run(exec, mm, en_layer_gate_up(mm, f.s.u2, w, f.s.gu, n, h, inter));
	of = en_lora_of(EN_LINEAR_GATE, f.s.u2, n, h, inter);
	en_lora_forward(exec, &f.w, &of, f.s.gu, 2 * inter);
	of.linear = EN_LINEAR_UP;
	en_lora_forward(exec, &f.w, &of, f.s.gu + inter, 2 * inter);
	en_rows_run(exec, n, activate, &f);
	mm[0] = en_mm_forward(f.s.act, w[EN_DOWN], NULL, f.project, n, inter, h);
	en_mm_run(exec, mm, 1);
	of = en_lora_of(EN_LINEAR_DOWN, f.s.act, n, inter, h);
	en_lora_forward(exec, &f.w, &of, f.project, h);
	en_rows_run(exec, n, add_out, &f);
}
