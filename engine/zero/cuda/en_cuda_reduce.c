/*
 * en_cuda_reduce.c -- gradients go: summed over ranks and over micro-batches, on the stream that
 * moves, while the next ones are computed.  A reduction waits until the gradients are written;
 * who writes the next ones into the same buffer waits for the reduction.
 *
 * Either NCCL sums over ranks (reduce-scatter), and micro-batches are added one by one; or, with
 * en_cuda.tree, pieces are exchanged (each rank gets all gradients of its own shard, by the copy
 * engines where ranks reach each other's memory) and summed here as a tree in natural order, and
 * so are the micro-batches (a binary counter of partial sums, as on CPU ranks).
 */
#include "engine/zero/cuda/en_cuda_priv.h"
#include "libckpt/base/ck_err.h"

bool en_cuda_is_total(const struct en_cuda *c)
{
	return c->z.comm->size == 1 && c->z.opts.micro_batches == 1;
}

static struct en_cuda_reduce *reduce_of(struct en_cuda *c, uint32_t block)
{
	return &c->reduce[en_zero_is_tied(c->z.model, block) ? EN_ZERO_REDUCES : block & 1];
}

int en_cuda_grad_buffer(struct en_zero *z, uint32_t block, void **grads_out, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	const struct en_zero_block *b = &z->block[block];
	const enum kn_type wire = c->z.opts.wire;
	struct en_cuda_reduce *r = reduce_of(c, block);
	int rc = 0;

	*grads_out = en_cuda_is_total(c) ? c->block[block].total : r->grads;
	if (!en_cuda_is_total(c))
		en_trace_wait(c->z.trace, "reduce", block);
	if (!en_cuda_is_total(c))
		rc = (int)cudaStreamWaitEvent(c->work, r->gone, 0);
	if (!rc)
		rc = (int)cudaMemsetAsync(en_cuda_at(*grads_out, b->numel, wire), 0,
					  (b->padded - b->numel) * kn_type_size(wire), c->work);
	return en_cuda_cuda(rc, "gradients", err);
}

/* ---- over ranks ---- */

static int all_to_all(struct en_cuda *c, const void *from, void *to, uint64_t n,
		      struct ckpt_err *err)
{
	const ncclDataType_t type = en_cuda_nccl_type(c->z.opts.wire);
	ncclResult_t said;

#ifdef NCCL_CTA_POLICY_ZERO
	said = ncclAlltoAll(from, to, n, type, c->nccl, c->move);
#else
	said = ncclGroupStart();
	for (uint32_t r = 0; said == ncclSuccess && r < c->z.comm->size; r++) {
		said = ncclSend(en_cuda_at_const(from, r * n, c->z.opts.wire), n, type, (int)r,
				c->nccl, c->move);
		if (said == ncclSuccess)
			said = ncclRecv(en_cuda_at(to, r * n, c->z.opts.wire), n, type, (int)r,
					c->nccl, c->move);
	}
	if (said == ncclSuccess)
		said = ncclGroupEnd();
#endif
	return en_cuda_nccl(c, said, "exchange of gradients", err);
}

/* to = or += the sum over ranks of their gradients of this rank's shard; of sum_type or wire. */
static int over_ranks(struct en_cuda *c, const struct en_cuda_block *b,
		      const struct en_cuda_reduce *r, void *to,
		      enum kn_type type, bool add, struct ckpt_err *err)
{
	const enum kn_type wire = c->z.opts.wire;
	/* of a 16-bit type NCCL's average divides before it adds, as DeepSpeed does */
	const ncclRedOp_t op = c->z.opts.as_deepspeed ? ncclAvg : ncclSum;
	const uint64_t n = b->z->shard;
	int rc;

	en_cuda_count_sent(c, EN_COMM_REDUCE, n * kn_type_size(wire));
	if (c->tree) {
		rc = all_to_all(c, r->grads, r->pieces, n, err);
		return rc ? rc : en_cuda_cuda(kn_cu_add_pieces(to, type, r->pieces, wire,
							       c->z.comm->size, n, n,
							       add ? KN_CU_ADD : 0, c->move),
					      "gradients", err);
	}
	if (!add && type == wire)
		return en_cuda_nccl(c, ncclReduceScatter(r->grads, to, n, en_cuda_nccl_type(wire),
							 op,
							 c->nccl, c->move), "reduce-scatter", err);
	rc = en_cuda_nccl(c, ncclReduceScatter(r->grads, r->pieces, n, en_cuda_nccl_type(wire), op,
					       c->nccl, c->move), "reduce-scatter", err);
	if (rc)
		return rc;
	return en_cuda_cuda(add ? kn_cu_add(to, type, r->pieces, wire, n, c->move) :
			    kn_cu_cast(to, type, r->pieces, wire, n, c->move), "gradients", err);
}

/* The same of one rank: its own are the sum. */
static int of_micro_batch(struct en_cuda *c, const struct en_cuda_block *b,
			  const struct en_cuda_reduce *r, void *to, bool add, struct ckpt_err *err)
{
	const enum kn_type wire = c->z.opts.wire;

	if (c->z.comm->size > 1)
		return over_ranks(c, b, r, to, c->sum_type, add, err);
	return en_cuda_cuda(add ? kn_cu_add(to, c->sum_type, r->grads, wire, b->z->shard, c->move) :
			    kn_cu_cast(to, c->sum_type, r->grads, wire, b->z->shard, c->move),
			    "gradients", err);
}

/* ---- over micro-batches, as a tree ---- */

static int merge(struct en_cuda *c, struct en_cuda_block *b, uint32_t into, uint32_t from,
		 struct ckpt_err *err)
{
	return en_cuda_cuda(kn_cu_add(b->level[into], KN_F32, b->level[from], KN_F32, b->z->shard,
				      c->move), "gradients", err);
}

static void swap(struct en_cuda_block *b, uint32_t i, uint32_t k)
{
	float *p = b->level[i];

	b->level[i] = b->level[k];
	b->level[k] = p;
}

/* The count rises from m to m + 1: what carries is merged, level by level. */
static int push(struct en_cuda *c, struct en_cuda_block *b, const struct en_cuda_reduce *r,
		uint32_t m, struct ckpt_err *err)
{
	uint32_t t = 0;
	int rc = of_micro_batch(c, b, r, b->level[0], m & 1, err);

	while (m >> t & 1)
		t++;
	for (uint32_t k = 1; !rc && k < t; k++)
		rc = merge(c, b, k, k - 1, err);
	if (t)
		swap(b, t - 1, t);
	return rc;
}

/* All that is left, from the youngest; the sum is total. */
static int fold(struct en_cuda *c, struct en_cuda_block *b, struct ckpt_err *err)
{
	const uint32_t n = c->z.opts.micro_batches;
	uint32_t at = 0;
	int rc = 0;

	while (!(n >> at & 1))
		at++;
	for (uint32_t k = at + 1; !rc && n >> k; k++)
		if (n >> k & 1) {
			rc = merge(c, b, k, at, err);
			at = k;
		}
	b->total = b->level[at];
	return rc;
}

uint32_t en_cuda_levels(const struct en_zero_opts *opts)
{
	uint32_t n = 1;

	while (opts->micro_batches >> n)
		n++;
	return n;
}

/* ---- a block's way ---- */

/* The sums of squares of its chunks, as soon as the sum is there. */
static int square(struct en_cuda *c, const struct en_cuda_block *b, struct ckpt_err *err)
{
	return en_cuda_cuda(kn_cu_sumsq(c->sums + b->z->first_sum, b->total, c->sum_type,
					b->z->shard, EN_ZERO_CHUNK, c->move), "the norm", err);
}

int en_cuda_reduce_begin(struct en_zero *z, uint32_t block, uint32_t m, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	struct en_cuda_block *b = &c->block[block];
	struct en_cuda_reduce *r = reduce_of(c, block);
	const bool is_last = m + 1 == c->z.opts.micro_batches;
	int rc = en_cuda_after(c->move, c->work, r->written, err);

	en_trace_next(c->z.trace, EN_TRACE_MOVE, "reduce", block);
	if (!rc && !en_cuda_is_total(c))
		rc = c->tree ? push(c, b, r, m, err) : of_micro_batch(c, b, r, b->total, m, err);
	if (!rc)
		rc = en_cuda_cuda((int)cudaEventRecord(r->gone, c->move), "an event", err);
	if (!rc && en_zero_flow_of(&c->z.opts)->in_place)
		rc = en_cuda_cuda((int)cudaStreamWaitEvent(c->work, r->gone, 0), "waiting", err);
	if (!rc && is_last && c->tree)
		rc = fold(c, b, err);
	if (!rc && is_last)
		rc = square(c, b, err);
	en_trace_rest(c->z.trace, EN_TRACE_MOVE);
	return rc;
}

int en_cuda_reduce_wait(struct en_cuda *c, struct ckpt_err *err)
{
	en_trace_wait(c->z.trace, "reduce", EN_TRACE_ALL);
	return en_cuda_after(c->work, c->move, c->loss_ready, err);
}
