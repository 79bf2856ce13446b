/*
 * en_cuda_move.c -- parameters arrive on a stream of their own.  A gather waits until whatever used
 * its slot is done, and the parameters are those of the last update; who computes waits for the
 * gather.
 */
#include "engine/zero/cuda/en_cuda_priv.h"

ncclDataType_t en_cuda_nccl_type(enum kn_type type)
{
	return type == KN_BF16 ? ncclBfloat16 : type == KN_F16 ? ncclFloat16 : ncclFloat32;
}

void en_cuda_count_sent(struct en_cuda *c, enum en_comm_kind kind, uint64_t bytes)
{
	struct en_comm_counter *n = &c->z.comm->counter[kind];

	n->calls++;
	n->sent += (c->z.comm->size - 1) * bytes;
	n->messages += c->z.comm->size - 1;
}

/* ---- parameters ---- */

static int all_gather(struct en_cuda *c, void *full, const void *own, uint64_t n, enum kn_type type,
		      struct ckpt_err *err)
{
	en_cuda_count_sent(c, EN_COMM_GATHER, n * kn_type_size(type));
	return en_cuda_nccl(c, ncclAllGather(own, full, n, en_cuda_nccl_type(type), c->nccl,
				       c->move), "all-gather", err);
}

/* Those of all ranks, after the trained ones in 'params'. */
static int gather_frozen(struct en_cuda *c, uint32_t block, void *params, const void *frozen,
			 struct ckpt_err *err)
{
	return all_gather(c, en_zero_frozen_at(&c->z, params, block), frozen,
			  c->z.block[block].fshard, c->z.opts.type, err);
}

int en_cuda_frozen_share(struct en_zero *z, uint32_t block, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	int rc;

	if (z->comm->size == 1)
		return 0;
	rc = en_cuda_after(c->move, c->work, c->updated, err);
	if (!rc)
		rc = gather_frozen(c, block, z->block[block].params, z->block[block].frozen, err);
	if (!rc)
		rc = en_cuda_cuda((int)cudaEventRecord(c->block[block].whole, c->move), "an event",
				  err);
	return rc ? rc : en_cuda_after(c->work, c->move, c->updated, err);
}

int en_cuda_gather_begin(struct en_zero *z, uint32_t block, uint32_t slot, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	const struct en_zero_block *b = &z->block[block];
	const struct en_cuda_gather *g = &c->gather[slot];
	struct en_cuda_parts parts = { b->own, b->frozen };
	int rc;

	if (en_cuda_has_host_params(c))
		rc = en_cuda_bring(c, block, slot, &parts, err);
	else
		rc = en_cuda_cuda((int)cudaStreamWaitEvent(c->move, g->left, 0), "waiting", err);
	en_trace_next(z->trace, EN_TRACE_MOVE, "gather", block);
	if (!rc && z->comm->size > 1 && b->numel)
		rc = all_gather(c, z->gather[slot].p, parts.own, b->shard, z->opts.type, err);
	if (!rc && z->comm->size > 1 && b->fnumel)
		rc = gather_frozen(c, block, z->gather[slot].p, parts.frozen, err);
	en_trace_rest(z->trace, EN_TRACE_MOVE);
	return rc ? rc : en_cuda_cuda((int)cudaEventRecord(g->ready, c->move), "an event", err);
}

int en_cuda_gather_wait(struct en_zero *z, uint32_t block, uint32_t slot, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);

	en_trace_wait(z->trace, "gather", block);
	return en_cuda_cuda((int)cudaStreamWaitEvent(c->work, c->gather[slot].ready, 0), "waiting",
			    err);
}

int en_cuda_whole_wait(struct en_zero *z, uint32_t block, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);

	if (z->comm->size > 1)
		en_trace_wait(z->trace, "gather", block);
	return en_cuda_cuda((int)cudaStreamWaitEvent(c->work, c->block[block].whole, 0), "waiting",
			    err);
}

int en_cuda_release(struct en_zero *z, uint32_t slot, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);

	return en_cuda_cuda((int)cudaEventRecord(c->gather[slot].left, c->work), "an event", err);
}

int en_cuda_gather_params(struct en_cuda *c, uint32_t block, cudaStream_t by, struct ckpt_err *err)
{
	const uint32_t stage = c->z.opts.stage;
	const struct en_zero_block *b = &c->z.block[block];
	const cudaEvent_t whole = c->block[block].whole;
	int rc;

	if (stage == 3 || c->z.comm->size == 1 || !b->numel)
		return 0;
	rc = en_cuda_after(c->move, by, c->updated, err);
	if (stage)
		en_trace_next(c->z.trace, EN_TRACE_MOVE, "gather", block);
	if (!rc && stage)
		rc = all_gather(c, b->params, b->own, b->shard, c->z.opts.type, err);
	en_trace_rest(c->z.trace, EN_TRACE_MOVE);
	if (!rc)
		rc = en_cuda_cuda((int)cudaEventRecord(whole, c->move), "an event", err);
	if (!rc && en_zero_flow_of(&c->z.opts)->in_place)
		rc = en_cuda_cuda((int)cudaStreamWaitEvent(c->work, whole, 0), "waiting", err);
	return rc;
}
