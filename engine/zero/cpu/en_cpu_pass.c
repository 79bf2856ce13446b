/* en_cpu_pass.c -- a micro-batch forward and backward, block by block. */
#include <string.h>

#include "engine/zero/cpu/en_cpu_priv.h"
#include "libckpt/base/ck_err.h"

struct pass {
	struct en_zero *z;
	const struct en_batch *batch;
	uint32_t m;
	float factor;
	bool back;		/* it will go backward */
	const void *embed;	/* block 0, held through the pass of a tied model */
	float *embed_grads;
	struct en_loss *loss;
};

/* Gradients of the micro-batches before are there, see en_zero_adds(). */
static unsigned grad_flags(const struct pass *p)
{
	return p->m && en_zero_adds(p->z) ? EN_ADD : 0;
}

static uint32_t head_block(const struct en_zero *z)
{
	return z->model->nblocks - 1;
}

/* ---- forward ---- */

static int embed_forward(struct pass *p, struct ckpt_err *err)
{
	struct en_zero *z = p->z;
	int rc = en_zero_take(z, 0, &p->embed, err);

	if (!rc)
		rc = en_zero_prefetch(z, 1, err);
	if (rc)
		return rc;
	en_trace_next(z->trace, EN_TRACE_COMPUTE, "embed", EN_TRACE_ALL);
	en_embed_forward(z->exec, p->batch, p->embed, z->x[0]);
	en_zero_release(z, 0);
	return 0;
}

static unsigned keep_flags(const struct en_zero *z)
{
	return z->opts.recompute ? EN_RECOMPUTE : 0;
}

/* Layer 'i' is block i + 1. */
static int layer_forward(struct pass *p, uint32_t i, struct ckpt_err *err)
{
	struct en_zero *z = p->z;
	const void *params;
	int rc = en_zero_take(z, i + 1, &params, err);

	if (!rc)
		rc = en_zero_prefetch(z, i + 2, err);
	if (rc)
		return rc;
	en_trace_next(z->trace, EN_TRACE_COMPUTE, "forward", i);
	en_layer_forward(z->exec, p->batch, params, z->x[i], z->x[i + 1], z->saved[i]);
	en_zero_release(z, i + 1);
	if (p->back && z->away[i])
		en_pack(z->exec, p->batch, z->x[i], z->saved[i], z->away[i], keep_flags(z));
	return 0;
}

static int forward(struct pass *p, struct ckpt_err *err)
{
	int rc = embed_forward(p, err);

	for (uint32_t i = 0; !rc && i < p->z->model->config.layers; i++)
		rc = layer_forward(p, i, err);
	return rc;
}

/* ---- the head ---- */

static const void *head_of(const struct en_zero *z, const void *embed, const void *last)
{
	const struct en_block *b = &z->model->block[head_block(z)];

	if (z->model->config.tied)
		return embed;
	return (const uint8_t *)last + b->at[EN_HEAD] * kn_type_size(z->opts.type);
}

/* With 'grads' NULL the loss alone. */
static int run_head(struct pass *p, float *grads, struct ckpt_err *err)
{
	struct en_zero *z = p->z;
	const uint32_t layers = z->model->config.layers, last = head_block(z);
	const bool tied = z->model->config.tied;
	struct en_head_out out = { 0 };
	const void *params, *embed = NULL;
	int rc = en_zero_take(z, last, &params, err);

	if (!rc && tied)
		rc = en_zero_take(z, 0, &embed, err);
	if (rc)
		return rc;
	if (grads) {
		out.dx = z->x[layers];
		out.grads = grads;
		out.dhead = tied ? p->embed_grads : grads + z->model->block[last].at[EN_HEAD];
	}
	en_trace_next(z->trace, EN_TRACE_COMPUTE, "head", EN_TRACE_ALL);
	en_head(z->exec, p->batch, params, head_of(z, embed, params), z->x[layers], p->factor,
		grads ? grad_flags(p) : 0, &out, p->loss);
	en_zero_release(z, last);
	if (tied)
		en_zero_release(z, 0);
	return 0;
}

static int head(struct pass *p, struct ckpt_err *err)
{
	struct en_zero *z = p->z;
	float *grads;
	int rc = 0;

	if (z->model->config.tied)
		rc = en_zero_grads(z, 0, &p->embed_grads, err);
	if (!rc)
		rc = en_zero_grads(z, head_block(z), &grads, err);
	if (!rc)
		rc = run_head(p, grads, err);
	if (!rc)
		rc = en_zero_prefetch(z, z->model->config.layers, err);
	return rc ? rc : en_zero_reduce(z, head_block(z), grads, p->m, err);
}

/* ---- backward ---- */

/*
 * The gradient takes the place of the last layer's output.  What the last layer keeps is still
 * there; of the others it is fetched, or computed again.
 */
static float *layer_again(struct pass *p, uint32_t i, const void *params)
{
	struct en_zero *z = p->z;
	const uint32_t layers = z->model->config.layers;
	float *x = z->packed ? z->x[layers - 1] : z->x[i];

	if (i + 1 == layers)
		return x;
	if (z->packed)
		en_unpack(z->exec, p->batch, z->away[i], x, z->saved[i], keep_flags(z));
	if (z->opts.recompute)
		en_layer_forward(z->exec, p->batch, params, x,
				 z->packed ? z->again : z->x[i + 1], z->saved[i]);
	return x;
}

static int layer_backward(struct pass *p, uint32_t i, struct ckpt_err *err)
{
	struct en_zero *z = p->z;
	float *grads, *dx = z->x[z->model->config.layers];
	const void *params;
	int rc = en_zero_take(z, i + 1, &params, err);

	if (!rc && i)
		rc = en_zero_prefetch(z, i, err);
	if (!rc)
		rc = en_zero_grads(z, i + 1, &grads, err);
	if (rc)
		return rc;
	en_trace_next(z->trace, EN_TRACE_COMPUTE, "backward", i);
	en_layer_backward(z->exec, p->batch, params, layer_again(p, i, params), z->saved[i], dx,
			  dx, grads, grad_flags(p));
	en_zero_release(z, i + 1);
	return en_zero_reduce(z, i + 1, grads, p->m, err);
}

static int embed_backward(struct pass *p, struct ckpt_err *err)
{
	struct en_zero *z = p->z;
	const bool tied = z->model->config.tied;
	int rc = tied ? 0 : en_zero_grads(z, 0, &p->embed_grads, err);

	if (rc)
		return rc;
	en_trace_next(z->trace, EN_TRACE_COMPUTE, "embed backward", EN_TRACE_ALL);
	en_embed_backward(z->exec, p->batch, z->x[z->model->config.layers], p->embed_grads,
			  grad_flags(p) ? EN_ADD : tied ? EN_TIED : 0);
	return en_zero_reduce(z, 0, p->embed_grads, p->m, err);
}

int en_cpu_unit(struct en_zero *z, uint32_t m, const struct en_zero_unit *unit,
		 struct en_loss *loss_out, struct ckpt_err *err)
{
	struct pass p = {
		.z = z, .batch = unit->batch, .m = m, .factor = (float)unit->factor,
		.back = true, .loss = loss_out,
	};
	int rc = en_batch_check(z->exec, unit->batch, err);

	if (!rc && m >= z->opts.units)
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			     "micro-batch %u of a step that has %u", m, z->opts.units);
	if (!rc)
		rc = forward(&p, err);
	if (!rc)
		rc = head(&p, err);
	for (uint32_t i = z->model->config.layers; !rc && i > 0; i--)
		rc = layer_backward(&p, i - 1, err);
	if (!rc)
		rc = embed_backward(&p, err);
	if (!rc)
		rc = en_zero_settle(z, err);
	en_trace_rest(z->trace, EN_TRACE_COMPUTE);
	return rc;
}

int en_cpu_eval(struct en_zero *z, const struct en_batch *batch, struct en_loss *loss_out,
		 struct ckpt_err *err)
{
	struct pass p = { .z = z, .batch = batch, .loss = loss_out };
	int rc = en_batch_check(z->exec, batch, err);

	if (!rc)
		rc = forward(&p, err);
	if (!rc)
		rc = run_head(&p, NULL, err);
	en_trace_rest(z->trace, EN_TRACE_COMPUTE);
	return rc;
}
