/* en_cpu_pass.c -- the blocks' own work in a pass, by engine/model. */
#include "engine/zero/cpu/en_cpu_priv.h"

/* Gradients of the micro-batches before are there, see en_cpu_adds(). */
static unsigned grad_flags(const struct en_zero_pass *p)
{
	return p->m && en_cpu_adds(p->z) ? EN_ADD : 0;
}

static unsigned keep_flags(const struct en_zero *z)
{
	return z->opts.recompute ? EN_RECOMPUTE : 0;
}

int en_cpu_embed_forward(struct en_zero_pass *p, const void *params, struct ckpt_err *err)
{
	struct en_cpu *c = en_cpu_of(p->z);

	(void)err;
	en_embed_forward(c->exec, p->batch, params, c->x[0]);
	return 0;
}

int en_cpu_layer_forward(struct en_zero_pass *p, uint32_t i, const void *params,
			 struct ckpt_err *err)
{
	struct en_cpu *c = en_cpu_of(p->z);

	(void)err;
	en_exec_layer(c->exec, i);
	en_layer_forward(c->exec, p->batch, params, c->x[i], c->x[i + 1], c->saved[i]);
	if (p->back && c->away[i])
		en_pack(c->exec, p->batch, c->x[i], c->saved[i], c->away[i], keep_flags(p->z));
	return 0;
}

/* The gradient takes the place of the last layer's output. */
int en_cpu_head(struct en_zero_pass *p, const struct en_zero_head *h, struct ckpt_err *err)
{
	struct en_cpu *c = en_cpu_of(p->z);
	float *x = c->x[p->z->model->config.layers];
	struct en_head_out out = { 0 };

	(void)err;
	if (p->back) {
		out.dx = x;
		out.dnorm = h->dnorm;
		out.dhead = h->dhead;
	}
	en_head(c->exec, p->batch, h->params, h->head, x, p->factor, p->back ? grad_flags(p) : 0,
		&out, p->loss);
	return 0;
}

/* What the last layer keeps is still there; of the others it is fetched, or computed again. */
static float *layer_again(struct en_zero_pass *p, uint32_t i, const void *params)
{
	struct en_cpu *c = en_cpu_of(p->z);
	const uint32_t layers = p->z->model->config.layers;
	float *x = c->packed ? c->x[layers - 1] : c->x[i];

	if (i + 1 == layers)
		return x;
	if (c->packed)
		en_unpack(c->exec, p->batch, c->away[i], x, c->saved[i], keep_flags(p->z));
	if (p->z->opts.recompute)
		en_layer_forward(c->exec, p->batch, params, x,
				 c->packed ? c->again : c->x[i + 1], c->saved[i]);
	return x;
}

int en_cpu_layer_backward(struct en_zero_pass *p, uint32_t i, const void *params, void *grads,
			  bool lowest, struct ckpt_err *err)
{
	struct en_cpu *c = en_cpu_of(p->z);
	float *dx = c->x[p->z->model->config.layers];

	(void)err;
	en_exec_layer(c->exec, i);
	en_layer_backward(c->exec, p->batch, params, layer_again(p, i, params), c->saved[i], dx,
			  dx, grads, grad_flags(p) | (lowest ? EN_LOWEST : 0));
	return 0;
}

int en_cpu_embed_backward(struct en_zero_pass *p, void *grads, struct ckpt_err *err)
{
	struct en_cpu *c = en_cpu_of(p->z);

	(void)err;
	en_embed_backward(c->exec, p->batch, c->x[p->z->model->config.layers], grads,
			  grad_flags(p) ? EN_ADD : p->z->model->config.tied ? EN_TIED : 0);
	return 0;
}

int en_cpu_pass_end(struct en_zero_pass *p, struct ckpt_err *err)
{
	int rc = p->back ? en_cpu_reduce_wait(en_cpu_of(p->z), err) : 0;

	en_trace_rest(p->z->trace, EN_TRACE_COMPUTE);
	return rc;
}
