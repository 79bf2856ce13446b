/*
 * en_head.c -- the two ends of the model: the embedding, and the final norm with head and loss.
 *
 * Logits are made in chunks of positions and turn into their gradient in place; the head's
 * gradient grows from chunk to chunk, and is rounded once, at the end.
 */
#include <string.h>

#include "engine/model/en_exec_priv.h"

/* ---------------------------------------------------------------- embedding */

struct embed {
	const struct en_batch *batch;
	const char *table;
	float *y;
	const float *dy;
	float *grads;
	bool round;
};

static void embed_rows(struct en_exec *exec, void *arg, size_t first, size_t count, size_t job)
{
	const struct embed *e = arg;
	const size_t h = exec->model->config.hidden, size = kn_type_size(exec->type);

	(void)job;
	for (size_t r = first; r < first + count; r++)
		kn_cast(e->y + r * h, KN_F32, e->table + (size_t)e->batch->ids[r] * h * size,
			exec->type, h, NULL);
}

void en_embed_forward(struct en_exec *exec, const struct en_batch *batch, const void *params,
		      float *y)
{
	struct embed e = { .batch = batch, .table = params, .y = y };

	en_rows_run(exec, (size_t)batch->rows * batch->tokens, embed_rows, &e);
}

struct embed_run {
	struct en_exec *exec;
	const struct embed *e;
};

/* Columns of the table, so that each sum is made by one job in order of positions. */
#define EMBED_COLS 64u

static void embed_cols(void *arg, size_t job, uint32_t thread)
{
	const struct embed_run *run = arg;
	const struct embed *e = run->e;
	const size_t h = run->exec->model->config.hidden, first = job * EMBED_COLS;
	const size_t count = h - first < EMBED_COLS ? h - first : EMBED_COLS;
	const size_t n = (size_t)e->batch->rows * e->batch->tokens;

	(void)thread;
	kn_embed_back(e->grads, e->dy, e->batch->ids, n, h, first, count);
	for (size_t r = 0; e->round && r < n; r++)
		kn_round(e->grads + (size_t)e->batch->ids[r] * h + first, count, run->exec->type);
}

struct zero {
	float *p;
	size_t n;
};

#define ZERO ((size_t)1 << 18)

static void zero_job(void *arg, size_t job, uint32_t thread)
{
	const struct zero *z = arg;
	const size_t at = job * ZERO;

	(void)thread;
	memset(z->p + at, 0, (z->n - at < ZERO ? z->n - at : ZERO) * sizeof(*z->p));
}

void en_embed_backward(struct en_exec *exec, const struct en_batch *batch, const float *dy,
		       float *grads, unsigned flags)
{
	const size_t h = exec->model->config.hidden;
	struct embed e = { .batch = batch, .dy = dy, .grads = grads,
			   .round = exec->type != KN_F32 && !(flags & EN_ADD) };
	struct embed_run run = { exec, &e };
	struct zero z = { grads, (size_t)exec->model->block[0].numel };

	if (!(flags & (EN_ADD | EN_TIED)))
		en_pool_run(exec->pool, (z.n + ZERO - 1) / ZERO, zero_job, &z);
	en_pool_run(exec->pool, (h + EMBED_COLS - 1) / EMBED_COLS, embed_cols, &run);
}

/* ---------------------------------------------------------------- head */

struct head {
	const float *x, *norm_w;
	float *dx;
	size_t first, n;	/* position of the chunk, and positions in all */
	const float *factor;	/* NULL: no gradient */
};

static void final_norm(struct en_exec *exec, void *arg, size_t first, size_t count, size_t job)
{
	const struct en_model_config *c = &exec->model->config;
	const struct head *h = arg;
	const size_t at = first * c->hidden;

	(void)job;
	kn_rmsnorm(exec->norm + at, exec->rstd + first, h->x + at, h->norm_w, count, c->hidden,
		   (float)c->norm_eps, exec->type);
}

static void final_norm_back(struct en_exec *exec, void *arg, size_t first, size_t count, size_t job)
{
	const struct head *h = arg;
	const size_t n = exec->model->config.hidden, at = first * n;
	float *dw = exec->partial + job * n;

	memset(dw, 0, n * sizeof(*dw));
	kn_rmsnorm_back(h->dx + at, dw, exec->du + at, h->x + at, exec->rstd + first, h->norm_w,
			NULL, count, n, exec->type);
}

struct xent_run {
	struct en_exec *exec;
	const struct head *h;
	size_t n;		/* positions of the chunk */
};

#define XENT_ROWS 8u

static void xent_job(void *arg, size_t job, uint32_t thread)
{
	const struct xent_run *run = arg;
	struct en_exec *exec = run->exec;
	const size_t vocab = exec->model->config.vocab, at = job * XENT_ROWS;
	const size_t count = run->n - at < XENT_ROWS ? run->n - at : XENT_ROWS;
	const size_t global = run->h->first + at;

	(void)thread;
	kn_xent(exec->logits + at * vocab, exec->loss + global, exec->target + global, count, vocab,
		run->h->factor, exec->type);
}

/* target[b, t] = labels[b, t + 1]; nothing after the last. */
static void fill_targets(struct en_exec *exec, const struct en_batch *batch)
{
	const size_t n = (size_t)batch->rows * batch->tokens;

	for (size_t i = 0; i < n; i++) {
		const bool last = (i + 1) % batch->tokens == 0;
		const int32_t label = last || !batch->labels ? -100 : batch->labels[i + 1];

		exec->target[i] = label < 0 ? -1 : label;
	}
}

static void chunk(struct en_exec *exec, struct head *h, const float *w, size_t count,
		  unsigned flags, const struct en_head_out *out)
{
	const size_t hidden = exec->model->config.hidden, vocab = exec->model->config.vocab;
	const size_t at = h->first * hidden;
	struct xent_run run = { exec, h, count };
	struct en_mm mm[2];

	mm[0] = en_mm_forward(exec->norm + at, w, NULL, exec->logits, count, hidden, vocab);
	en_mm_run(exec, mm, 1);
	if (out->logits)
		memcpy(out->logits + h->first * vocab, exec->logits,
		       count * vocab * sizeof(*out->logits));
	en_pool_run(exec->pool, (count + XENT_ROWS - 1) / XENT_ROWS, xent_job, &run);
	if (!h->factor)
		return;
	mm[0] = en_mm_input(exec->logits, w, exec->du + at, count, hidden, vocab, false);
	mm[1] = en_mm_weight(exec->logits, exec->norm + at, out->dhead, count, hidden, vocab,
			     h->first ? EN_ADD : flags);
	mm[1].round = !(flags & EN_ADD) && h->first + count == h->n;
	en_mm_run(exec, mm, out->dhead ? 2 : 1);
}

void en_head(struct en_exec *exec, const struct en_batch *batch, const void *params,
	     const void *head, const float *x, float factor, unsigned flags,
	     const struct en_head_out *out, struct en_loss *loss)
{
	const size_t hidden = exec->model->config.hidden, vocab = exec->model->config.vocab;
	const size_t n = (size_t)batch->rows * batch->tokens;
	const size_t rows = en_chunk_rows(&exec->model->config, n);
	struct head h = { .x = x, .dx = out->dx, .n = n, .factor = out->dx ? &factor : NULL };
	const struct en_block *last = &exec->model->block[exec->model->nblocks - 1];
	const float *w;

	h.norm_w = en_widen(exec, (const char *)params + last->at[EN_NORM_FINAL] *
			    kn_type_size(exec->type), hidden, 0);
	w = en_widen(exec, head, hidden * vocab, hidden);
	fill_targets(exec, batch);
	en_rows_run(exec, n, final_norm, &h);
	for (h.first = 0; h.first < n; h.first += rows)
		chunk(exec, &h, w, n - h.first < rows ? n - h.first : rows, flags, out);
	loss->sum = 0;
	loss->count = 0;
	for (size_t i = 0; i < n; i++) {
		loss->sum += (double)exec->loss[i];
		loss->count += exec->target[i] >= 0;
	}
	if (out->token_loss)
		memcpy(out->token_loss, exec->loss, n * sizeof(*out->token_loss));
	if (!out->dx)
		return;
	en_rows_run(exec, n, final_norm_back, &h);
	if (out->dnorm)
		en_partial_join(exec, en_row_jobs(n), hidden, 0, hidden, out->dnorm, flags);
}
