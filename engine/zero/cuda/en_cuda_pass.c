/* en_cuda_pass.c -- layers of a pass, and the loss; everything is only launched. */
#include "engine/zero/cuda/en_cuda_priv.h"

int en_cuda_pass_begin(struct en_zero_pass *p, struct ckpt_err *err)
{
	int rc = en_cuda_fp8_begin(en_cuda_of(p->z), err);

	if (p->back) {
		en_trace_next(p->z->trace, EN_TRACE_HOST, "launch", p->m);
		en_trace_next(p->z->trace, EN_TRACE_COMPUTE, "upload", EN_TRACE_ALL);
	}
	return rc ? rc : en_cuda_upload(en_cuda_of(p->z), p->batch, err);
}

int en_cuda_layer_forward(struct en_zero_pass *p, uint32_t i, const void *params,
			  struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(p->z);

	return en_cuda_run_forward(c, &(struct en_cuda_run){ p->batch, i, params }, c->x[i],
				   c->x[i + 1], &c->kept[i], err);
}

int en_cuda_layer_backward(struct en_zero_pass *p, uint32_t i, const void *params, void *grads,
			   bool lowest, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(p->z);
	const struct en_cuda_run run = { p->batch, i, params };
	int rc = 0;

	if (p->z->opts.recompute)
		rc = en_cuda_run_forward(c, &run, c->x[i], NULL, &c->kept[i], err);
	return rc ? rc : en_cuda_run_backward(c, &run, c->x[i], &c->kept[i], grads, lowest, err);
}

/* Copies the loss down, in the order of the work; who wants it waits for 'loss_ready'. */
int en_cuda_loss_begin(struct en_zero_pass *p, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(p->z);
	int rc = (int)cudaMemcpyAsync(c->host_result, c->result, sizeof(double),
				      cudaMemcpyDeviceToHost, c->work);

	if (!rc)
		rc = (int)cudaEventRecord(c->loss_ready, c->work);
	return en_cuda_cuda(rc, "the loss", err);
}

int en_cuda_pass_end(struct en_zero_pass *p, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(p->z);
	struct en_trace *t = p->z->trace;
	int rc;

	en_trace_rest(t, EN_TRACE_COMPUTE);
	en_trace_next(t, EN_TRACE_HOST, "wait for the pass", EN_TRACE_ALL);
	rc = en_cuda_wait(c, NULL, c->loss_ready, "a pass", err);
	en_trace_rest(t, EN_TRACE_HOST);
	if (rc)
		return rc;
	p->loss->sum = c->host_result[0];
	p->loss->count = p->batch->labels ? en_batch_count(p->batch) : 0;
	return 0;
}
