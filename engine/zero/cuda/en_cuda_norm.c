/*
 * en_cuda_norm.c -- the norm of all gradients, from the sums of squares of chunks that
 * en_cuda_reduce_begin() has made.  Without opts.tree each rank sums its own, and the ranks' sums
 * are added as a tree.
 */
#include "engine/zero/cuda/en_cuda_priv.h"
#include "libckpt/base/ck_err.h"

int en_cuda_norm_begin(struct en_zero *z, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	int rc;

	if (!z->sums_of_all)
		return en_cuda_reduce_wait(c, err);
	rc = en_cuda_nccl(c, ncclAllGather(c->sums, c->all_sums, z->nsums, ncclFloat64, c->nccl,
					   c->move), "all-gather", err);
	en_cuda_count_sent(c, EN_COMM_SMALL, z->nsums * sizeof(double));
	return rc ? rc : en_cuda_reduce_wait(c, err);
}

int en_cuda_norm_order(struct en_zero *z, uint64_t to, uint64_t from, uint64_t n,
		       struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);

	return en_cuda_cuda((int)cudaMemcpyAsync(c->ordered + to, c->all_sums + from,
						 n * sizeof(double), cudaMemcpyDeviceToDevice,
						 c->work), "the norm", err);
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

int en_cuda_norm_end(struct en_zero *z, uint64_t n, double *sum_out, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	double own = 0;
	int rc;

	if (z->sums_of_all)
		return sum_up(c, c->ordered, n, sum_out, err);
	rc = sum_up(c, c->sums, n, &own, err);
	if (!rc)
		rc = en_comm_gather_small(z->comm, c->rank_sums, &own, sizeof(own), NULL, err);
	if (!rc)
		*sum_out = kn_tree_sum(c->rank_sums, z->comm->size);
	return rc;
}
