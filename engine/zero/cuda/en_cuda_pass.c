/*
 * en_cuda_pass.c -- a micro-batch forward and backward, block by block; everything is only
 * launched.
 */
#include "engine/zero/cuda/en_cuda_priv.h"
#include "libckpt/base/ck_err.h"

struct pass {
	struct en_cuda *c;
	const struct en_batch *batch;
	uint32_t m;
	double factor;
	void *embed_grads;	/* of a tied model: the head's part is in it */
};

static uint32_t last_block(const struct en_cuda *c)
{
	return c->z.model->nblocks - 1;
}

static int forward(struct pass *p, struct ckpt_err *err)
{
	struct en_cuda *c = p->c;
	const uint32_t layers = c->z.model->config.layers;
	const void *params;
	int rc = en_cuda_take(c, 0, &params, err);

	c->back = false;
	if (!rc)
		rc = en_cuda_ahead(c, 0, 1, err);
	en_trace_next(c->z.trace, EN_TRACE_COMPUTE, "embed", EN_TRACE_ALL);
	if (!rc)
		rc = en_cuda_embed_forward(c, p->batch, params, err);
	if (!rc)
		rc = en_cuda_release(c, 0, err);
	for (uint32_t i = 0; !rc && i < layers; i++) {
		rc = en_cuda_take(c, i + 1, &params, err);
		if (!rc)
			rc = en_cuda_ahead(c, i + 1, 1, err);
		en_trace_next(c->z.trace, EN_TRACE_COMPUTE, "forward", i);
		if (!rc)
			rc = en_cuda_layer_forward(c, p->batch, params, c->x[i], c->x[i + 1],
						   &c->kept[i], err);
		if (!rc)
			rc = en_cuda_release(c, i + 1, err);
	}
	return rc;
}

/* With 'grads' NULL the loss alone. */
static int head(struct pass *p, void *grads, void *dhead, struct ckpt_err *err)
{
	struct en_cuda *c = p->c;
	const struct en_model *m = c->z.model;
	const uint32_t last = last_block(c);
	const void *params, *table = NULL, *w;
	int rc = en_cuda_take(c, last, &params, err);

	c->back = grads != NULL;
	if (!rc && m->config.tied)
		rc = en_cuda_take(c, 0, &table, err);
	if (!rc && grads && !table)
		rc = en_cuda_ahead(c, last, -1, err);
	if (rc)
		return rc;
	w = table ? table : en_cuda_at_const(params, m->block[last].at[EN_HEAD], c->z.opts.type);
	en_trace_next(c->z.trace, EN_TRACE_COMPUTE, "head", EN_TRACE_ALL);
	rc = en_cuda_head(c, p->batch, params, w, p->factor, grads, dhead, err);
	if (!rc)
		rc = en_cuda_release(c, last, err);
	if (!rc && table)
		rc = en_cuda_release(c, 0, err);
	if (!rc && grads && table)	/* it has the room of block 0 or of block 1 */
		rc = en_cuda_ahead(c, last, -1, err);
	return rc;
}

static int head_back(struct pass *p, struct ckpt_err *err)
{
	struct en_cuda *c = p->c;
	const struct en_model *m = c->z.model;
	const uint32_t last = last_block(c);
	void *grads, *dhead;
	int rc = en_cuda_grads(c, last, &grads, err);

	if (!rc && m->config.tied)
		rc = en_cuda_grads(c, 0, &p->embed_grads, err);
	if (rc)
		return rc;
	dhead = m->config.tied ? p->embed_grads :
		en_cuda_at(grads, m->block[last].at[EN_HEAD], c->z.opts.wire);
	rc = head(p, grads, dhead, err);
	return rc ? rc : en_cuda_send(c, last, p->m, err);
}

/* Layer 'i' is block i + 1. */
static int layer_back(struct pass *p, uint32_t i, struct ckpt_err *err)
{
	struct en_cuda *c = p->c;
	const void *params;
	void *grads;
	int rc = en_cuda_take(c, i + 1, &params, err);

	if (!rc)
		rc = en_cuda_ahead(c, i + 1, -1, err);
	if (!rc)
		rc = en_cuda_grads(c, i + 1, &grads, err);
	en_trace_next(c->z.trace, EN_TRACE_COMPUTE, "backward", i);
	if (!rc && c->z.opts.recompute)
		rc = en_cuda_layer_forward(c, p->batch, params, c->x[i], NULL, &c->kept[i], err);
	if (!rc)
		rc = en_cuda_layer_backward(c, p->batch, params, c->x[i], &c->kept[i], grads, err);
	if (!rc)
		rc = en_cuda_release(c, i + 1, err);
	return rc ? rc : en_cuda_send(c, i + 1, p->m, err);
}

static int embed_back(struct pass *p, struct ckpt_err *err)
{
	struct en_cuda *c = p->c;
	const bool tied = c->z.model->config.tied;
	int rc = tied ? 0 : en_cuda_grads(c, 0, &p->embed_grads, err);

	en_trace_next(c->z.trace, EN_TRACE_COMPUTE, "embed backward", EN_TRACE_ALL);
	if (!rc)
		rc = en_cuda_embed_backward(c, p->batch, p->embed_grads, tied, err);
	return rc ? rc : en_cuda_send(c, 0, p->m, err);
}

/* Copies the loss down, in the order of the work; who wants it waits for 'told'. */
static int ask_loss(struct en_cuda *c, struct ckpt_err *err)
{
	int rc = (int)cudaMemcpyAsync(c->host_result, c->result, sizeof(double),
				      cudaMemcpyDeviceToHost, c->work);

	if (!rc)
		rc = (int)cudaEventRecord(c->told, c->work);
	return en_cuda_cuda(rc, "the loss", err);
}

static int take_loss(struct en_cuda *c, const struct en_batch *b, struct en_loss *out,
		     struct ckpt_err *err)
{
	int rc;

	en_trace_rest(c->z.trace, EN_TRACE_COMPUTE);
	en_trace_next(c->z.trace, EN_TRACE_HOST, "wait for the pass", EN_TRACE_ALL);
	rc = en_cuda_wait(c, NULL, c->told, "a pass", err);
	en_trace_rest(c->z.trace, EN_TRACE_HOST);
	if (rc)
		return rc;
	out->sum = c->host_result[0];
	out->count = en_cuda_label_count(c, b);
	return 0;
}

int en_cuda_unit(struct en_zero *z, uint32_t m, const struct en_zero_unit *unit,
		 struct en_loss *loss_out, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	struct pass p = { .c = c, .batch = unit->batch, .m = m, .factor = unit->factor };
	int rc = en_batch_check_for(z->model, z->opts.rows, z->opts.tokens, unit->batch, err);

	en_trace_next(z->trace, EN_TRACE_HOST, "launch", m);
	en_trace_next(z->trace, EN_TRACE_COMPUTE, "upload", EN_TRACE_ALL);
	if (!rc && m >= z->opts.units)
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			     "micro-batch %u of a step that has %u", m, z->opts.units);
	if (!rc)
		rc = en_cuda_upload(c, unit->batch, err);
	if (!rc)
		rc = forward(&p, err);
	if (!rc)
		rc = head_back(&p, err);
	if (!rc)
		rc = ask_loss(c, err);
	for (uint32_t i = z->model->config.layers; !rc && i > 0; i--)
		rc = layer_back(&p, i - 1, err);
	if (!rc)
		rc = embed_back(&p, err);
	return rc ? rc : take_loss(c, unit->batch, loss_out, err);
}

int en_cuda_eval(struct en_zero *z, const struct en_batch *batch, struct en_loss *loss_out,
		 struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	struct pass p = { .c = c, .batch = batch };
	int rc = en_batch_check_for(z->model, z->opts.rows, z->opts.tokens, batch, err);

	if (!rc)
		rc = en_cuda_upload(c, batch, err);
	if (!rc)
		rc = forward(&p, err);
	if (!rc)
		rc = head(&p, NULL, NULL, err);
	if (!rc)
		rc = ask_loss(c, err);
	return rc ? rc : take_loss(c, batch, loss_out, err);
}
