/*
 * en_cuda_norm.c -- the norm of all gradients, from the sums of squares of chunks that
 * en_cuda_send() has made.
 *
 * With opts.tree the chunks of all ranks are summed as one tree, blocks one behind the other
 * without what only pads them: the same bits at every number of ranks, and the CPU's.  Else each
 * rank sums its own, and the ranks' sums are added as a tree.
 */
#include <math.h>

#include "engine/zero/cuda/en_cuda_priv.h"
#include "libckpt/base/ck_err.h"

static uint64_t real_chunks(const struct en_cuda_block *b)
{
	return (b->numel + EN_ZERO_CHUNK - 1) / EN_ZERO_CHUNK;
}

uint64_t en_cuda_all_chunks(const struct en_cuda *c)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < c->z.model->nblocks; i++)
		n += real_chunks(&c->block[i]);
	return n;
}

/* sums[0 .. n) as a tree, down to the host; they are used up. */
static int sum_up(struct en_cuda *c, double *sums, uint64_t n, double *out, struct ckpt_err *err)
{
	int rc;

	en_trace_next(c->z.trace, EN_TRACE_COMPUTE, "norm", EN_TRACE_ALL);
	rc = kn_cu_tree_sum(c->result + 1, sums, n, c->tree_work, c->work);
	if (!rc)
		rc = (int)cudaMemcpyAsync(c->host_result + 1, c->result + 1, sizeof(double),
					  cudaMemcpyDeviceToHost, c->work);
	en_trace_rest(c->z.trace, EN_TRACE_COMPUTE);
	en_trace_next(c->z.trace, EN_TRACE_HOST, "wait for the norm", EN_TRACE_ALL);
	rc = en_cuda_cuda(rc, "the norm", err);
	if (!rc)
		rc = en_cuda_wait(c, c->work, NULL, "the norm", err);
	en_trace_rest(c->z.trace, EN_TRACE_HOST);
	*out = c->host_result[1];
	return rc;
}

/* Ranks one behind the other become blocks one behind the other. */
static int put_in_order(struct en_cuda *c, struct ckpt_err *err)
{
	double *to = c->ordered;
	int rc = 0;

	for (uint32_t i = 0; i < c->z.model->nblocks; i++) {
		const struct en_cuda_block *b = &c->block[i];
		const uint64_t each = b->shard / EN_ZERO_CHUNK, n = real_chunks(b);

		for (uint64_t at = 0; !rc && at < n; at += each) {
			const uint64_t count = ck_min_u64(each, n - at);

			rc = (int)cudaMemcpyAsync(to, c->all_sums + at / each * c->z.nsums +
						  b->first_sum, count * sizeof(double),
						  cudaMemcpyDeviceToDevice, c->work);
			to += count;
		}
	}
	return en_cuda_cuda(rc, "the norm", err);
}

static int norm_of_all(struct en_cuda *c, double *norm_out, struct ckpt_err *err)
{
	double sum;
	int rc = en_cuda_nccl(c, ncclAllGather(c->sums, c->all_sums, c->z.nsums, ncclFloat64,
					       c->nccl, c->move), "all-gather", err);

	en_cuda_count_sent(c, EN_COMM_SMALL, c->z.nsums * sizeof(double));
	if (!rc)
		rc = en_cuda_settle(c, err);
	if (!rc)
		rc = put_in_order(c, err);
	if (!rc)
		rc = sum_up(c, c->ordered, en_cuda_all_chunks(c), &sum, err);
	if (!rc)
		*norm_out = sqrt(sum);
	return rc;
}

int en_cuda_norm(struct en_zero *z, double *norm_out, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	double own = 0, *all = z->sums;
	int rc;

	if (c->tree && z->comm->size > 1)
		return norm_of_all(c, norm_out, err);
	rc = en_cuda_settle(c, err);
	if (!rc)
		rc = sum_up(c, c->sums, z->nsums, &own, err);
	if (!rc)
		rc = en_comm_gather_small(z->comm, all, &own, sizeof(own), NULL, err);
	if (!rc)
		*norm_out = sqrt(kn_tree_sum(all, z->comm->size));
	return rc;
}
