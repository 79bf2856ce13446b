/*
 * en_cuda_move.c -- parameters come: on a stream of their own, one block at a time, with the next
 * one under way.  A gather waits until whoever used its room is done, and the parameters are
 * those of the last update; who computes waits for the gather.  What lies in a room is good until
 * another block takes it, or the parameters change; opts.flow says what is made of that.
 */
#include "engine/zero/cuda/en_cuda_priv.h"
#include "libckpt/base/ck_err.h"

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

struct en_cuda_gather *en_cuda_room_of(struct en_cuda *c, uint32_t block)
{
	return c->gather ? &c->gather[c->seats.of[block]] : NULL;
}

static int all_gather(struct en_cuda *c, void *full, const void *own, uint64_t n, enum kn_type type,
		      struct ckpt_err *err)
{
	en_cuda_count_sent(c, EN_COMM_GATHER, n * kn_type_size(type));
	return en_cuda_nccl(c, ncclAllGather(own, full, n, en_cuda_nccl_type(type), c->nccl,
				       c->move), "all-gather", err);
}

static int begin_gather(struct en_cuda *c, uint32_t block, struct ckpt_err *err)
{
	struct en_cuda_gather *g = en_cuda_room_of(c, block);
	const struct en_cuda_block *b = &c->block[block];
	void *own = b->own;
	int rc;

	if (g->users)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "block %u is asked for while block %u, which has its room, is in "
			       "use", block, (unsigned)g->block);
	if (en_cuda_has_host_params(c))
		rc = en_cuda_bring(c, block, g, &own, err);
	else
		rc = en_cuda_cuda((int)cudaStreamWaitEvent(c->move, g->left, 0), "waiting", err);
	en_trace_next(c->z.trace, EN_TRACE_MOVE, "gather", block);
	if (!rc && c->z.comm->size > 1)
		rc = all_gather(c, g->p, own, b->shard, c->z.opts.type, err);
	en_trace_rest(c->z.trace, EN_TRACE_MOVE);
	if (!rc)
		rc = en_cuda_cuda((int)cudaEventRecord(g->ready, c->move), "an event", err);
	if (!rc)
		g->block = block;
	return rc;
}

static int prefetch(struct en_cuda *c, uint32_t block, struct ckpt_err *err)
{
	return en_cuda_room_of(c, block)->block == (int64_t)block ? 0 : begin_gather(c, block, err);
}

int en_cuda_ahead(struct en_cuda *c, uint32_t block, int step, struct ckpt_err *err)
{
	int64_t at = block;
	int rc = 0;

	if (en_cuda_is_whole(c))
		return 0;
	for (uint32_t k = 0; !rc && k < c->seats.ahead; k++) {
		at += step;
		if (step < 0 ? at < 1 : at >= (int64_t)c->z.model->nblocks)
			break;
		rc = prefetch(c, (uint32_t)at, err);
	}
	return rc;
}

int en_cuda_begin(struct en_cuda *c, struct ckpt_err *err)
{
	int rc = en_cuda_is_whole(c) || !c->seats.ahead ? 0 : prefetch(c, 0, err);

	return rc ? rc : en_cuda_ahead(c, 0, 1, err);
}

void en_cuda_forget(struct en_cuda *c)
{
	for (uint32_t i = 0; i < c->seats.n; i++)
		c->gather[i].block = -1;
}

/* Elements of the blocks that come before 'block' is used again. */
static uint64_t until_again(const struct en_cuda *c, uint32_t block)
{
	const uint32_t n = c->z.model->nblocks;
	uint64_t sum = 0;

	for (uint32_t i = c->back ? 0 : block + 1; i < (c->back ? block : n); i++)
		sum += 2 * c->block[i].numel;
	return sum;
}

static bool is_kept(const struct en_cuda *c, uint32_t block)
{
	const struct en_zero_flow *f = en_cuda_flow_of(&c->z.opts);

	return c->seats.of[block] > c->seats.ahead + 1 ||
	       (f->reuse && until_again(c, block) <= f->reuse);
}

int en_cuda_take(struct en_cuda *c, uint32_t block, const void **params_out, struct ckpt_err *err)
{
	const struct en_cuda_block *b = &c->block[block];
	struct en_cuda_gather *g;
	int rc = 0;

	if (en_cuda_is_whole(c)) {
		*params_out = b->params;
		if (c->z.comm->size > 1)
			en_trace_wait(c->z.trace, "gather", block);
		return en_cuda_cuda((int)cudaStreamWaitEvent(c->work, b->whole, 0), "waiting", err);
	}
	g = en_cuda_room_of(c, block);
	if (g->block != (int64_t)block)
		rc = begin_gather(c, block, err);
	en_trace_wait(c->z.trace, "gather", block);
	if (!rc)
		rc = en_cuda_cuda((int)cudaStreamWaitEvent(c->work, g->ready, 0), "waiting", err);
	if (rc)
		return rc;
	g->users++;
	*params_out = g->p;
	return 0;
}

int en_cuda_release(struct en_cuda *c, uint32_t block, struct ckpt_err *err)
{
	struct en_cuda_gather *g;

	if (en_cuda_is_whole(c))
		return 0;
	g = en_cuda_room_of(c, block);
	if (--g->users)
		return 0;
	if (!is_kept(c, block))
		g->block = -1;
	return en_cuda_cuda((int)cudaEventRecord(g->left, c->work), "an event", err);
}

int en_cuda_gather_params(struct en_cuda *c, uint32_t block, cudaStream_t by, struct ckpt_err *err)
{
	const uint32_t stage = c->z.opts.stage;
	struct en_cuda_block *b = &c->block[block];
	int rc;

	if (stage == 3 || c->z.comm->size == 1)
		return 0;
	rc = en_cuda_after(c->move, by, c->updated, err);
	if (stage)
		en_trace_next(c->z.trace, EN_TRACE_MOVE, "gather", block);
	if (!rc && stage)
		rc = all_gather(c, b->params, b->own, b->shard, c->z.opts.type, err);
	en_trace_rest(c->z.trace, EN_TRACE_MOVE);
	if (!rc)
		rc = en_cuda_cuda((int)cudaEventRecord(b->whole, c->move), "an event", err);
	if (!rc && en_cuda_flow_of(&c->z.opts)->in_place)
		rc = en_cuda_cuda((int)cudaStreamWaitEvent(c->work, b->whole, 0), "waiting", err);
	return rc;
}
