/*
 * en_decode.c -- see en_decode.h.  The formulas are those of en_layer.c; keys and values go to the
 * cache of their layer, [room, kv_heads * head_dim] each, where attention reads them.
 */
#include "engine/model/en_decode.h"

#include <stdlib.h>
#include <string.h>

#include "engine/model/en_layer_priv.h"
#include "engine/model/en_model_priv.h"

struct en_decode {
	const struct en_model *model;
	struct en_exec *exec;	/* products, widening, threads */
	const void *const *params;
	size_t room, at;
	size_t bytes;
	float *memory;		/* holds all that follows */
	float *cos, *sin;	/* [room, head_dim / 2] */
	float *keys, *values;	/* [layers, room, kv] */
	float *x, *u, *t;	/* [EN_DECODE_ROWS, hidden] */
	float *q, *q_raw, *o;	/* [EN_DECODE_ROWS, q] */
	float *k_raw;		/* [EN_DECODE_ROWS, kv] */
	float *gu, *act;	/* [EN_DECODE_ROWS, 2 inter], inter */
	float *rstd;		/* [EN_DECODE_ROWS, heads] */
	float *attn;		/* per thread */
	size_t attn_floats;
	float *logits;		/* [vocab] */
};

/* The rows at work in one layer. */
struct rows {
	struct en_decode *d;
	struct en_layer_const w;
	size_t n;
	float *k, *v;		/* of the layer: row 0 */
	struct kn_attn shape;
};

static size_t place(struct en_decode *d, float *m)
{
	const struct en_model_config *c = &d->model->config;
	const struct kn_attn shape = { .t = d->room };
	const size_t n = EN_DECODE_ROWS, half = c->head_dim / 2, kv = d->exec->kv;
	size_t at = 0;

	d->attn_floats = kn_attn_work(&shape);
	d->cos = en_floats_at(m, &at, d->room * half);
	d->sin = en_floats_at(m, &at, d->room * half);
	d->keys = en_floats_at(m, &at, c->layers * d->room * kv);
	d->values = en_floats_at(m, &at, c->layers * d->room * kv);
	d->x = en_floats_at(m, &at, n * c->hidden);
	d->u = en_floats_at(m, &at, n * c->hidden);
	d->t = en_floats_at(m, &at, n * c->hidden);
	d->q = en_floats_at(m, &at, n * d->exec->q);
	d->q_raw = en_floats_at(m, &at, n * d->exec->q);
	d->o = en_floats_at(m, &at, n * d->exec->q);
	d->k_raw = en_floats_at(m, &at, n * kv);
	d->gu = en_floats_at(m, &at, n * 2 * c->inter);
	d->act = en_floats_at(m, &at, n * c->inter);
	d->rstd = en_floats_at(m, &at, n * c->heads);
	d->attn = en_floats_at(m, &at, d->attn_floats * en_pool_threads(d->exec->pool));
	d->logits = en_floats_at(m, &at, c->vocab);
	return at;
}

/* No count above overflows below this. */
#define MOST_FLOATS 1e15

static double cache_floats(const struct en_model_config *c, uint32_t tokens)
{
	return 2.0 * c->layers * c->kv_heads * c->head_dim * tokens;
}

int en_decode_new(const struct en_model *model, const struct en_decode_opts *opts,
		  const void *const *params, struct en_decode **out, struct ckpt_err *err)
{
	const struct en_exec_opts eo = {
		.rows = 1, .tokens = EN_DECODE_ROWS, .type = opts->type, .threads = opts->threads,
	};
	struct en_decode *d;
	int rc;

	if (!opts->tokens || opts->tokens > INT32_MAX)
		return en_model_fail(err, CKPT_E_USAGE, "",
				     "a context of %u tokens; expected 1 to %d", opts->tokens,
				     INT32_MAX);
	if (cache_floats(&model->config, opts->tokens) > MOST_FLOATS)
		return en_model_fail(err, CKPT_E_NOMEM, "", "keys and values of %u tokens are "
				     "%.3g bytes", opts->tokens,
				     cache_floats(&model->config, opts->tokens) * sizeof(float));
	d = calloc(1, sizeof(*d));
	if (!d)
		return en_model_fail(err, CKPT_E_NOMEM, "", "no memory to decode");
	d->model = model;
	d->params = params;
	d->room = opts->tokens;
	rc = en_exec_new(model, &eo, &d->exec, err);
	if (rc)
		goto out;
	d->bytes = place(d, NULL) * sizeof(float);
	if (posix_memalign((void **)&d->memory, 64, d->bytes)) {
		d->memory = NULL;
		rc = en_model_fail(err, CKPT_E_NOMEM, "", "no memory for %zu positions: %zu bytes",
				   d->room, d->bytes);
		goto out;
	}
	place(d, d->memory);
	en_rope_fill(&model->config, opts->type, d->room, d->cos, d->sin);
	*out = d;
	d = NULL;
out:
	en_decode_free(d);
	return rc;
}

void en_decode_free(struct en_decode *d)
{
	if (!d)
		return;
	en_exec_free(d->exec);
	free(d->memory);
	free(d);
}

uint32_t en_decode_at(const struct en_decode *d)
{
	return (uint32_t)d->at;
}

void en_decode_back(struct en_decode *d, uint32_t n)
{
	if (n < d->at)
		d->at = n;
}

/* ---- a layer ---- */

static void norm(const struct en_decode *d, float *y, const float *x, const float *w, size_t rows,
		 size_t n)
{
	kn_rmsnorm(y, d->rstd, x, w, rows, n, (float)d->model->config.norm_eps, d->exec->type);
}

/* What the module's adapter adds, if it has one. */
static void adapt(struct rows *r, enum en_linear linear, const float *x, float *y, size_t in,
		  size_t out, size_t ldy)
{
	const struct en_lora_of of = en_lora_of(linear, x, r->n, in, out);

	en_lora_forward(r->d->exec, &r->w, &of, y, ldy);
}

/* Queries are new; keys and values are appended to the earlier ones. */
static void project(struct rows *r)
{
	struct en_decode *d = r->d;
	const struct en_model_config *c = &d->model->config;
	const float *const *w = r->w.slot;
	const size_t n = r->n, h = c->hidden, kv = d->exec->kv;
	float *k = r->k + d->at * kv, *v = r->v + d->at * kv;
	const bool normed = w[EN_Q_NORM];
	struct en_mm mm[3];

	mm[0] = en_mm_forward(d->u, w[EN_Q], w[EN_Q_BIAS], normed ? d->q_raw : d->q, n, h,
			      d->exec->q);
	mm[1] = en_mm_forward(d->u, w[EN_K], w[EN_K_BIAS], normed ? d->k_raw : k, n, h, kv);
	mm[2] = en_mm_forward(d->u, w[EN_V], w[EN_V_BIAS], v, n, h, kv);
	en_mm_run(d->exec, mm, 3);
	adapt(r, EN_LINEAR_Q, d->u, mm[0].c, h, d->exec->q, d->exec->q);
	adapt(r, EN_LINEAR_K, d->u, mm[1].c, h, kv, kv);
	adapt(r, EN_LINEAR_V, d->u, mm[2].c, h, kv, kv);
	if (normed) {
		norm(d, d->q, d->q_raw, w[EN_Q_NORM], n * c->heads, c->head_dim);
		norm(d, k, d->k_raw, w[EN_K_NORM], n * c->kv_heads, c->head_dim);
	}
	kn_rope(d->q, d->cos, d->sin, n, d->at, d->room, c->heads, c->head_dim, 1, d->exec->type);
	kn_rope(k, d->cos, d->sin, n, d->at, d->room, c->kv_heads, c->head_dim, 1, d->exec->type);
}

/* Job: one key/value head. */
static void attend(void *arg, size_t job, uint32_t thread)
{
	const struct rows *r = arg;
	const struct en_decode *d = r->d;
	const size_t q = job * r->shape.group * r->shape.d, k = job * r->shape.d;

	kn_attn_from(&r->shape, d->at, d->o + q, d->q + q, r->k + k, r->v + k,
		     d->attn + thread * d->attn_floats);
}

static void multiply(struct en_decode *d, const float *x, const float *w, float *y, size_t n,
		     size_t in, size_t out)
{
	const struct en_mm mm = en_mm_forward(x, w, NULL, y, n, in, out);

	en_mm_run(d->exec, &mm, 1);
}

static void layer(struct en_decode *d, uint32_t i, size_t n)
{
	const struct en_model_config *c = &d->model->config;
	const enum kn_type type = d->exec->type;
	const size_t h = c->hidden, inter = c->inter, cache = i * d->room * d->exec->kv;
	struct rows r = {
		.d = d, .n = n, .k = d->keys + cache, .v = d->values + cache,
		.shape = en_layer_attn(d->exec, d->at + n),
	};
	const float *const *w = r.w.slot;
	struct en_mm mm[2];

	en_exec_layer(d->exec, i);
	en_layer_at(d->exec, NULL, d->params[i + 1], &r.w);
	norm(d, d->u, d->x, w[EN_NORM_IN], n, h);
	project(&r);
	en_pool_run(d->exec->pool, c->kv_heads, attend, &r);
	multiply(d, d->o, w[EN_O], d->t, n, d->exec->q, h);
	adapt(&r, EN_LINEAR_O, d->o, d->t, d->exec->q, h, h);
	kn_add(d->x, d->x, d->t, n * h, type);
	norm(d, d->u, d->x, w[EN_NORM_POST], n, h);
	en_mm_run(d->exec, mm, en_layer_gate_up(mm, d->u, w, d->gu, n, h, inter));
	adapt(&r, EN_LINEAR_GATE, d->u, d->gu, h, inter, 2 * inter);
	adapt(&r, EN_LINEAR_UP, d->u, d->gu + inter, h, inter, 2 * inter);
	for (size_t k = 0; k < n; k++)
		kn_swiglu(d->act + k * inter, d->gu + k * 2 * inter,
			  d->gu + k * 2 * inter + inter, inter, type);
	multiply(d, d->act, w[EN_DOWN], d->t, n, inter, h);
	adapt(&r, EN_LINEAR_DOWN, d->act, d->t, inter, h, h);
	kn_add(d->x, d->x, d->t, n * h, type);
}

/* ---- the two ends ---- */

static void embed(struct en_decode *d, const int32_t *ids, size_t n)
{
	const size_t h = d->model->config.hidden, size = kn_type_size(d->exec->type);

	for (size_t i = 0; i < n; i++)
		kn_cast(d->x + i * h, KN_F32, (const char *)d->params[0] + (size_t)ids[i] * h *
			size, d->exec->type, h, NULL);
}

/* Of the last row. */
static void head(struct en_decode *d, size_t n)
{
	const struct en_model *m = d->model;
	const size_t h = m->config.hidden, vocab = m->config.vocab;
	const struct en_block *last = &m->block[m->nblocks - 1];
	const char *params = d->params[m->nblocks - 1];
	const void *matrix = m->config.tied ? d->params[0] :
			     params + last->at[EN_HEAD] * kn_type_size(d->exec->type);

	params += last->at[EN_NORM_FINAL] * kn_type_size(d->exec->type);
	norm(d, d->u, d->x + (n - 1) * h, en_widen(d->exec, params, h, 0), 1, h);
	multiply(d, d->u, en_widen(d->exec, matrix, h * vocab, h), d->logits, 1, h, vocab);
}

static int check(const struct en_decode *d, const int32_t *ids, uint32_t n, struct ckpt_err *err)
{
	const uint32_t vocab = d->model->config.vocab;

	if (!n || n > d->room - d->at)
		return en_model_fail(err, CKPT_E_LIMIT, "",
				     "%u tokens after %zu; the context holds %zu", n, d->at,
				     d->room);
	for (uint32_t i = 0; i < n; i++)
		if (ids[i] < 0 || (uint32_t)ids[i] >= vocab)
			return en_model_fail(err, CKPT_E_MISMATCH, "", "token %ld at position %zu "
					     "is outside the vocabulary of %u", (long)ids[i],
					     d->at + i, vocab);
	return 0;
}

int en_decode_feed(struct en_decode *d, const int32_t *ids, uint32_t n, const float **logits_out,
		   struct ckpt_err *err)
{
	int rc = check(d, ids, n, err);
	size_t part = 0;

	if (rc)
		return rc;
	for (uint32_t done = 0; done < n; done += (uint32_t)part) {
		part = n - done < EN_DECODE_ROWS ? n - done : EN_DECODE_ROWS;
		embed(d, ids + done, part);
		for (uint32_t i = 0; i < d->model->config.layers; i++)
			layer(d, i, part);
		d->at += part;
	}
	head(d, part);
	*logits_out = d->logits;
	return 0;
}
