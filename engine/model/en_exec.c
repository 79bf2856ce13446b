/*
 * en_exec.c -- the memory of forward and backward, laid out once; and checks of batches.
 */
#include "engine/model/en_exec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/en_exec_priv.h"
#include "engine/model/en_model_priv.h"

#define LOGIT_ROWS 16u	/* chunks are multiples */

static const double two_pi = 6.283185307179586476925286766559;

/* Frequency k of the rotation; conventions of transformers' "default" and "llama3". */
static double frequency(const struct en_rope *rope, uint32_t k, uint32_t d)
{
	const double f = pow(rope->theta, -2.0 * k / d), wave = two_pi / f;
	double s;

	if (!rope->llama3 || wave < rope->original / rope->high)
		return f;
	if (wave > rope->original / rope->low)
		return f / rope->factor;
	s = (rope->original / wave - rope->low) / (rope->high - rope->low);
	return (1 - s) * f / rope->factor + s * f;
}

/* Frequencies and angles are fp32 numbers, as in transformers. */
void en_rope_fill(const struct en_model_config *c, enum kn_type type, size_t tokens, float *cos_out,
		  float *sin_out)
{
	const uint32_t d = c->head_dim, half = d / 2;

	for (uint32_t k = 0; k < half; k++) {
		const float f = (float)frequency(&c->rope, k, d);

		for (size_t t = 0; t < tokens; t++) {
			const float angle = (float)t * f;

			cos_out[t * half + k] = (float)cos((double)angle);
			sin_out[t * half + k] = (float)sin((double)angle);
		}
	}
	kn_round(cos_out, tokens * half, type);
	kn_round(sin_out, tokens * half, type);
}

uint32_t en_saved_parts(const struct en_exec *exec, size_t n, struct en_saved *s,
			struct en_saved_part *out)
{
	const struct en_model_config *c = &exec->model->config;
	const size_t norm = c->arch == EN_QWEN3 ? n : 0;
	const struct en_saved_part part[EN_SAVED_PARTS] = {
		{ &s->u1, n * c->hidden, true },
		{ &s->rstd1, n, false },
		{ &s->q_raw, norm * exec->q, true },
		{ &s->k_raw, norm * exec->kv, true },
		{ &s->rstd_q, norm * c->heads, false },
		{ &s->rstd_k, norm * c->kv_heads, false },
		{ &s->q, n * exec->q, true },
		{ &s->k, n * exec->kv, true },
		{ &s->v, n * exec->kv, true },
		{ &s->stat, n * c->heads * 2, false },
		{ &s->o, n * exec->q, true },
		{ &s->mid, n * c->hidden, true },
		{ &s->u2, n * c->hidden, true },
		{ &s->rstd2, n, false },
		{ &s->gu, n * c->inter * 2, true },
		{ &s->act, n * c->inter, true },
	};

	memcpy(out, part, sizeof(part));
	return EN_SAVED_PARTS;
}

size_t en_saved_place(const struct en_exec *exec, size_t n, float *memory, struct en_saved *out)
{
	struct en_saved_part part[EN_SAVED_PARTS];
	const uint32_t count = en_saved_parts(exec, n, out, part);
	size_t at = 0;

	for (uint32_t i = 0; i < count; i++)
		*part[i].p = en_floats_at(memory, &at, part[i].n);
	return at;
}

size_t en_saved_floats(const struct en_exec *exec, uint32_t rows, uint32_t tokens)
{
	struct en_saved s;

	return en_saved_place(exec, (size_t)rows * tokens, NULL, &s);
}

/* Sums over rows of one job: two norms of the layer, or norms of q and k, or three biases. */
static size_t partial_width(const struct en_exec *exec)
{
	const struct en_model_config *c = &exec->model->config;
	const size_t narrow = (size_t)exec->q + 2 * (size_t)exec->kv + 2 * (size_t)c->head_dim;

	return narrow > c->hidden ? narrow : c->hidden;
}

static size_t place(struct en_exec *e, float *memory)
{
	const struct en_model *m = e->model;
	const struct en_model_config *c = &m->config;
	const struct kn_attn shape = { .t = e->most_tokens };
	const size_t n = e->most, half = c->head_dim / 2;
	size_t at = 0, wide = (size_t)c->hidden * c->vocab + c->hidden;

	for (uint32_t i = 1; i + 1 < m->nblocks; i++)
		if (en_block_span(&m->block[i]) > wide)
			wide = en_block_span(&m->block[i]);
	e->attn_floats = kn_attn_work(&shape);
	e->cos = en_floats_at(memory, &at, e->most_tokens * half);
	e->sin = en_floats_at(memory, &at, e->most_tokens * half);
	e->wide = e->type == KN_F32 ? NULL : en_floats_at(memory, &at, wide);
	e->t = en_floats_at(memory, &at, n * c->hidden);
	e->dmid = en_floats_at(memory, &at, n * c->hidden);
	e->du = en_floats_at(memory, &at, n * c->hidden);
	e->dact = en_floats_at(memory, &at, n * c->inter);
	e->dgu = en_floats_at(memory, &at, n * c->inter * 2);
	e->dgo = en_floats_at(memory, &at, n * e->q);
	e->dq = en_floats_at(memory, &at, n * e->q);
	e->dk = en_floats_at(memory, &at, n * e->kv);
	e->dv = en_floats_at(memory, &at, n * e->kv);
	e->lora = en_floats_at(memory, &at, n * m->lora.r);
	e->dlora = en_floats_at(memory, &at, n * m->lora.r);
	e->dropped = en_floats_at(memory, &at, n * m->drop);
	e->partial = en_floats_at(memory, &at, en_row_jobs(n) * partial_width(e));
	e->attn = en_floats_at(memory, &at, e->attn_floats * e->threads);
	e->norm = en_floats_at(memory, &at, n * c->hidden);
	e->rstd = en_floats_at(memory, &at, n);
	e->logits = en_floats_at(memory, &at, e->chunk * c->vocab);
	e->loss = en_floats_at(memory, &at, n);
	e->target = (int32_t *)(void *)en_floats_at(memory, &at, n);
	return at;
}

size_t en_chunk_rows(const struct en_model_config *c, size_t n)
{
	const size_t most = ck_zt_logit_rows(c->vocab), chunks = (n + most - 1) / most;
	const size_t rows = chunks ? (n + chunks - 1) / chunks : 0;

	return rows < n ? (rows + LOGIT_ROWS - 1) / LOGIT_ROWS * LOGIT_ROWS : n;
}

/* The largest chunk of any batch that fits. */
static size_t chunk_room(const struct en_model_config *c, size_t n)
{
	const size_t most = ck_zt_logit_rows(c->vocab);

	return most < n ? most : n;
}

static void shape(struct en_exec *e, const struct en_model *model, const struct en_exec_opts *opts)
{
	const struct en_model_config *c = &model->config;

	e->model = model;
	e->type = opts->type;
	e->threads = opts->threads;
	e->most_rows = opts->rows;
	e->most_tokens = opts->tokens;
	e->most = (size_t)opts->rows * opts->tokens;
	e->q = c->heads * c->head_dim;
	e->kv = c->kv_heads * c->head_dim;
	e->chunk = chunk_room(c, e->most);
	e->bytes = place(e, NULL) * sizeof(float);
}

void en_exec_expect(const struct en_model *model, const struct en_exec_opts *opts,
		    struct en_exec_size *out)
{
	struct en_exec e = { .model = NULL };

	shape(&e, model, opts);
	*out = (struct en_exec_size){
		.work = e.bytes,
		.stream = e.most * model->config.hidden * sizeof(float),
		.saved = en_saved_floats(&e, opts->rows, opts->tokens) * sizeof(float),
		.packed = en_packed_bytes(&e, opts->rows, opts->tokens, 0),
		.packed_input = en_packed_bytes(&e, opts->rows, opts->tokens, EN_RECOMPUTE),
	};
}

int en_exec_new(const struct en_model *model, const struct en_exec_opts *opts,
		struct en_exec **exec_out, struct ckpt_err *err)
{
	struct en_exec *e;
	int rc;

	if (!opts->rows || !opts->tokens || (uint64_t)opts->rows * opts->tokens > INT32_MAX)
		return en_model_fail(err, CKPT_E_USAGE, "",
				     "a batch of %u rows of %u tokens; expected 1 to %d tokens",
				     opts->rows, opts->tokens, INT32_MAX);
	if (opts->type != KN_F32 && opts->type != KN_BF16 && opts->type != KN_F16)
		return en_model_fail(err, CKPT_E_USAGE, "", "type %d is not a compute type",
				     (int)opts->type);
	e = calloc(1, sizeof(*e));
	if (!e)
		return en_model_fail(err, CKPT_E_NOMEM, "", "no memory to compute");
	rc = en_pool_new(opts->threads, &e->pool, err);
	if (rc)
		goto out;
	shape(e, model, opts);
	if (posix_memalign((void **)&e->memory, 64, e->bytes)) {
		e->memory = NULL;
		rc = en_model_fail(err, CKPT_E_NOMEM, "", "no memory to compute: %zu bytes for "
				   "%u rows of %u tokens", e->bytes, opts->rows, opts->tokens);
		goto out;
	}
	place(e, e->memory);
	en_rope_fill(&model->config, e->type, e->most_tokens, e->cos, e->sin);
	*exec_out = e;
	e = NULL;
out:
	en_exec_free(e);
	return rc;
}

void en_exec_free(struct en_exec *exec)
{
	if (!exec)
		return;
	en_pool_free(exec->pool);
	free(exec->memory);
	free(exec);
}

void en_exec_layer(struct en_exec *exec, uint32_t layer)
{
	exec->layer = layer;
}

struct en_pool *en_exec_pool(struct en_exec *exec)
{
	return exec->pool;
}

size_t en_exec_bytes(const struct en_exec *exec)
{
	return exec->bytes;
}

/* A document begins at 0, and each token begins one or is in that of the token before. */
static int check_starts(const struct en_batch *batch, struct ckpt_err *err)
{
	const size_t n = batch->starts ? (size_t)batch->rows * batch->tokens : 0;

	for (size_t i = 0; i < n; i++) {
		const int32_t at = (int32_t)(i % batch->tokens), start = batch->starts[i];

		if (start == at || (at && start == batch->starts[i - 1]))
			continue;
		return en_model_fail(err, CKPT_E_MISMATCH, "", "the document of row %zu, position "
				     "%d begins at %d; expected %d%s", i / batch->tokens, at, start,
				     at, at ? ", or where the document before it begins" : "");
	}
	return 0;
}

int en_batch_check_for(const struct en_model *model, uint32_t rows, uint32_t tokens,
		       const struct en_batch *batch, struct ckpt_err *err)
{
	const int64_t vocab = model->config.vocab;
	const size_t n = (size_t)batch->rows * batch->tokens;

	if (batch->tokens > tokens || n > (size_t)rows * tokens)
		return en_model_fail(err, CKPT_E_LIMIT, "",
				     "a batch of %u rows of %u tokens; buffers hold %u rows of %u",
				     batch->rows, batch->tokens, rows, tokens);
	for (size_t i = 0; i < n; i++) {
		const int64_t id = batch->ids[i], label = batch->labels ? batch->labels[i] : -100;
		const size_t row = i / batch->tokens, at = i % batch->tokens;

		if (id < 0 || id >= vocab)
			return en_model_fail(err, CKPT_E_MISMATCH, "", "token %lld at row %zu, "
					     "position %zu is outside the vocabulary of %lld",
					     (long long)id, row, at, (long long)vocab);
		if (label != -100 && (label < 0 || label >= vocab))
			return en_model_fail(err, CKPT_E_MISMATCH, "", "label %lld at row %zu, "
					     "position %zu is neither -100 nor in the vocabulary "
					     "of %lld", (long long)label, row, at,
					     (long long)vocab);
	}
	return check_starts(batch, err);
}

int en_batch_check(const struct en_exec *exec, const struct en_batch *batch,
		   struct ckpt_err *err)
{
	return en_batch_check_for(exec->model, (uint32_t)exec->most_rows,
				  (uint32_t)exec->most_tokens, batch, err);
}

size_t en_batch_document_end(const struct en_batch *batch, size_t row, size_t i)
{
	const size_t t = batch->tokens;
	const int32_t *start = batch->starts ? batch->starts + row * t : NULL;

	if (!start)
		return t;
	for (i++; i < t && start[i] == start[i - 1]; i++)
		;
	return i;
}

bool en_batch_has_seams(const struct en_batch *batch)
{
	const size_t n = batch->starts ? (size_t)batch->rows * batch->tokens : 0;

	for (size_t i = 0; i < n; i++)
		if (batch->starts[i])
			return true;
	return false;
}

uint64_t en_batch_count(const struct en_batch *batch)
{
	uint64_t count = 0;

	for (size_t i = 0; i < (size_t)batch->rows * batch->tokens; i++)
		count += i % batch->tokens && batch->labels[i] != -100;
	return count;
}
