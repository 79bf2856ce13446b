/* zero_pass.c -- a micro-batch forward and backward, block by block. */
#include "engine/zero/en_zero_backend.h"
#include "libckpt/base/ck_err.h"

static uint32_t last_block(const struct en_zero *z)
{
	return z->model->nblocks - 1;
}

/* ---- forward ---- */

static int embed_forward(struct en_zero_pass *p, struct ckpt_err *err)
{
	struct en_zero *z = p->z;
	const void *params;
	int rc = en_zero_gather(z, 0, &params, err);

	if (!rc)
		rc = en_zero_prefetch(z, 0, 1, err);
	if (rc)
		return rc;
	en_trace_next(z->trace, EN_TRACE_COMPUTE, "embed", EN_TRACE_ALL);
	rc = z->backend->embed_forward(p, params, err);
	return rc ? rc : en_zero_release(z, 0, false, err);
}

/* Layer 'i' is block i + 1. */
static int layer_forward(struct en_zero_pass *p, uint32_t i, struct ckpt_err *err)
{
	struct en_zero *z = p->z;
	const void *params;
	int rc = en_zero_gather(z, i + 1, &params, err);

	if (!rc)
		rc = en_zero_prefetch(z, i + 1, 1, err);
	if (rc)
		return rc;
	en_trace_next(z->trace, EN_TRACE_COMPUTE, "forward", i);
	rc = z->backend->layer_forward(p, i, params, err);
	return rc ? rc : en_zero_release(z, i + 1, false, err);
}

/* ---- the head ---- */

static const uint8_t *at(const void *base, uint64_t elements, enum kn_type type)
{
	return (const uint8_t *)base + elements * kn_type_size(type);
}

static bool is_trained(const struct en_zero *z, uint32_t block)
{
	return z->model->block[block].numel;
}

/* A tied model's gradients of block 0 begin here. */
static int head_grads(struct en_zero_pass *p, struct en_zero_head *h, struct ckpt_err *err)
{
	struct en_zero *z = p->z;
	const uint32_t last = last_block(z);
	const struct en_block *b = &z->model->block[last];
	void *grads = NULL;
	int rc = is_trained(z, last) ? z->backend->grad_buffer(z, last, &grads, err) : 0;

	if (!rc && z->model->config.tied && is_trained(z, 0))
		rc = z->backend->grad_buffer(z, 0, &p->embed_grads, err);
	if (rc)
		return rc;
	if (grads && b->grad[EN_NORM_FINAL] != UINT64_MAX)
		h->dnorm = (void *)at(grads, b->grad[EN_NORM_FINAL], z->grad_type);
	if (z->model->config.tied)
		h->dhead = p->embed_grads;
	else if (grads && b->grad[EN_HEAD] != UINT64_MAX)
		h->dhead = (void *)at(grads, b->grad[EN_HEAD], z->grad_type);
	return 0;
}

/* A tied model's head is block 0's, which has the slot of the block that is gathered next. */
static int head(struct en_zero_pass *p, struct ckpt_err *err)
{
	struct en_zero *z = p->z;
	const uint32_t last = last_block(z);
	const bool tied = z->model->config.tied;
	struct en_zero_head h = { NULL, NULL, NULL, NULL };
	int rc = p->back ? head_grads(p, &h, err) : 0;

	if (!rc)
		rc = en_zero_gather(z, last, &h.params, err);
	if (!rc && tied)
		rc = en_zero_gather(z, 0, &h.head, err);
	if (!rc && !tied && p->back)
		rc = en_zero_prefetch(z, last, -1, err);
	if (rc)
		return rc;
	if (!tied)
		h.head = at(h.params, z->model->block[last].at[EN_HEAD], z->opts.type);
	en_trace_next(z->trace, EN_TRACE_COMPUTE, "head", EN_TRACE_ALL);
	rc = z->backend->head(p, &h, err);
	if (!rc)
		rc = en_zero_release(z, last, p->back, err);
	if (!rc && tied)
		rc = en_zero_release(z, 0, p->back, err);
	if (!rc && tied && p->back)
		rc = en_zero_prefetch(z, last, -1, err);
	if (!rc && p->back && is_trained(z, last))
		rc = z->backend->reduce_begin(z, last, p->m, err);
	return rc || !z->backend->loss_begin ? rc : z->backend->loss_begin(p, err);
}

/* ---- backward ---- */

static int layer_backward(struct en_zero_pass *p, uint32_t i, struct ckpt_err *err)
{
	struct en_zero *z = p->z;
	const void *params;
	void *grads = NULL;
	int rc = en_zero_gather(z, i + 1, &params, err);

	if (!rc)
		rc = en_zero_prefetch(z, i + 1, -1, err);
	if (!rc && is_trained(z, i + 1))
		rc = z->backend->grad_buffer(z, i + 1, &grads, err);
	if (rc)
		return rc;
	en_trace_next(z->trace, EN_TRACE_COMPUTE, "backward", i);
	rc = z->backend->layer_backward(p, i, params, grads, z->model->lowest == i + 1, err);
	if (!rc)
		rc = en_zero_release(z, i + 1, true, err);
	return rc || !grads ? rc : z->backend->reduce_begin(z, i + 1, p->m, err);
}

static int embed_backward(struct en_zero_pass *p, struct ckpt_err *err)
{
	struct en_zero *z = p->z;
	int rc = z->model->config.tied ? 0 : z->backend->grad_buffer(z, 0, &p->embed_grads, err);

	if (rc)
		return rc;
	en_trace_next(z->trace, EN_TRACE_COMPUTE, "embed backward", EN_TRACE_ALL);
	rc = z->backend->embed_backward(p, p->embed_grads, err);
	return rc ? rc : z->backend->reduce_begin(z, 0, p->m, err);
}

/* ---- a pass ---- */

static int run(struct en_zero_pass *p, struct ckpt_err *err)
{
	struct en_zero *z = p->z;
	const uint32_t layers = z->model->config.layers;
	int rc = en_batch_check_for(z->model, z->opts.rows, z->opts.tokens, p->batch, err);

	if (!rc && z->backend->pass_begin)
		rc = z->backend->pass_begin(p, err);
	if (!rc)
		rc = embed_forward(p, err);
	for (uint32_t i = 0; !rc && i < layers; i++)
		rc = layer_forward(p, i, err);
	if (!rc)
		rc = head(p, err);
	for (uint32_t i = layers; !rc && p->back && i > 0 && i >= z->model->lowest; i--)
		rc = layer_backward(p, i - 1, err);
	if (!rc && p->back && is_trained(z, 0))
		rc = embed_backward(p, err);
	return rc ? rc : z->backend->pass_end(p, err);
}

int en_zero_micro_batch(struct en_zero *z, uint32_t m, const struct en_zero_micro_batch *of,
			struct en_loss *loss_out, struct ckpt_err *err)
{
	struct en_zero_pass p = {
		.z = z, .batch = of->batch, .m = m, .factor = (float)of->factor,
		.back = true, .loss = loss_out,
	};

	if (m >= z->opts.micro_batches)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "micro-batch %u is out of range: the step has %u", m,
			       z->opts.micro_batches);
	return run(&p, err);
}

int en_zero_eval(struct en_zero *z, const struct en_batch *batch, struct en_loss *loss_out,
		 struct ckpt_err *err)
{
	struct en_zero_pass p = { .z = z, .batch = batch, .loss = loss_out };

	return run(&p, err);
}
