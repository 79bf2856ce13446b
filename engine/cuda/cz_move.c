/*
 * cz_move.c -- parameters come, gradients go: on a stream of their own, one block at a time, with
 * the next one under way.
 *
 *	a gather waits until whoever used its room is done, and the parameters are those of the
 *	last update; who computes waits for the gather
 *	a reduction waits until the gradients are written; who writes the next ones into the same
 *	room waits for the reduction
 */
#include "engine/cuda/cz_priv.h"
#include "libckpt/base/ck_err.h"

static ncclDataType_t nccl_type(enum kn_type type)
{
	return type == KN_BF16 ? ncclBfloat16 : type == KN_F16 ? ncclFloat16 : ncclFloat32;
}

static void count(struct cz *c, enum en_comm_kind kind, uint64_t bytes)
{
	struct en_comm_counter *n = &c->z.comm->counter[kind];

	n->calls++;
	n->sent += (c->z.comm->size - 1) * bytes;
	n->messages += c->z.comm->size - 1;
}

/* ---- parameters ---- */

static struct cz_gather *room(struct cz *c, uint32_t block)
{
	return &c->gather[en_zero_gather_of(c->z.model, block)];
}

static int all_gather(struct cz *c, void *full, const void *own, uint64_t n, enum kn_type type,
		      struct ckpt_err *err)
{
	count(c, EN_COMM_GATHER, n * kn_type_size(type));
	return cz_nccl(c, ncclAllGather(own, full, n, nccl_type(type), c->nccl, c->move),
		       "all-gather", err);
}

static int begin_gather(struct cz *c, uint32_t block, struct ckpt_err *err)
{
	struct cz_gather *g = room(c, block);
	const struct cz_block *b = &c->block[block];
	int rc;

	if (g->users)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "block %u is asked for while block %u, which has its room, is in "
			       "use", block, (unsigned)g->block);
	rc = cz_cuda((int)cudaStreamWaitEvent(c->move, g->left, 0), "waiting", err);
	if (!rc)
		rc = all_gather(c, g->p, b->own, b->shard, c->z.opts.type, err);
	if (!rc)
		rc = cz_cuda((int)cudaEventRecord(g->ready, c->move), "an event", err);
	if (!rc)
		g->block = block;
	return rc;
}

int cz_prefetch(struct cz *c, uint32_t block, struct ckpt_err *err)
{
	if (cz_is_whole(c) || room(c, block)->block == (int64_t)block)
		return 0;
	return begin_gather(c, block, err);
}

int cz_take(struct cz *c, uint32_t block, const void **params_out, struct ckpt_err *err)
{
	struct cz_gather *g = room(c, block);
	const struct cz_block *b = &c->block[block];
	int rc = 0;

	if (cz_is_whole(c)) {
		*params_out = b->params;
		return cz_cuda((int)cudaStreamWaitEvent(c->work, b->whole, 0), "waiting", err);
	}
	if (g->block != (int64_t)block)
		rc = begin_gather(c, block, err);
	if (!rc)
		rc = cz_cuda((int)cudaStreamWaitEvent(c->work, g->ready, 0), "waiting", err);
	if (rc)
		return rc;
	g->users++;
	*params_out = g->p;
	return 0;
}

int cz_release(struct cz *c, uint32_t block, struct ckpt_err *err)
{
	struct cz_gather *g = room(c, block);

	if (cz_is_whole(c) || --g->users)
		return 0;
	g->block = -1;
	return cz_cuda((int)cudaEventRecord(g->left, c->work), "an event", err);
}

int cz_gather_params(struct cz *c, uint32_t block, struct ckpt_err *err)
{
	const uint32_t stage = c->z.opts.stage;
	struct cz_block *b = &c->block[block];
	int rc;

	if (stage == 3 || c->z.comm->size == 1)
		return 0;
	rc = cz_after(c->move, c->work, c->updated, err);
	if (!rc && stage)
		rc = all_gather(c, b->params, b->own, b->shard, c->z.opts.type, err);
	return rc ? rc : cz_cuda((int)cudaEventRecord(b->whole, c->move), "an event", err);
}

/* ---- gradients ---- */

/* A single unit of a single rank is the sum already. */
static bool is_total(const struct cz *c)
{
	return c->z.comm->size == 1 && c->z.opts.units == 1;
}

static struct cz_reduce *reduce_of(struct cz *c, uint32_t block)
{
	return &c->reduce[en_zero_is_tied(c->z.model, block) ? EN_ZERO_REDUCES : block & 1];
}

int cz_grads(struct cz *c, uint32_t block, void **grads_out, struct ckpt_err *err)
{
	const struct cz_block *b = &c->block[block];
	const enum kn_type wire = c->z.opts.wire;
	struct cz_reduce *r = reduce_of(c, block);
	int rc = 0;

	*grads_out = is_total(c) ? b->total : r->grads;
	if (!is_total(c))
		rc = (int)cudaStreamWaitEvent(c->work, r->gone, 0);
	if (!rc)
		rc = (int)cudaMemsetAsync(cz_at(*grads_out, b->numel, wire), 0,
					  (b->padded - b->numel) * kn_type_size(wire), c->work);
	return cz_cuda(rc, "gradients", err);
}

/* What this micro-batch gives goes to what the ones before gave. */
static int add_up(struct cz *c, struct cz_block *b, const void *piece, uint32_t m,
		  struct ckpt_err *err)
{
	const enum kn_type wire = c->z.opts.wire;

	if (!m)
		return cz_cuda(kn_cu_cast(b->total, c->sum_type, piece, wire, b->shard, c->move),
			       "gradients", err);
	return cz_cuda(kn_cu_add(b->total, c->sum_type, piece, wire, b->shard, c->move),
		       "gradients", err);
}

static int reduce(struct cz *c, struct cz_block *b, struct cz_reduce *r, void *to,
		  struct ckpt_err *err)
{
	count(c, EN_COMM_REDUCE, b->shard * kn_type_size(c->z.opts.wire));
	return cz_nccl(c, ncclReduceScatter(r->grads, to, b->shard, nccl_type(c->z.opts.wire),
					    ncclSum, c->nccl, c->move), "reduce-scatter", err);
}

int cz_send(struct cz *c, uint32_t block, void *grads, uint32_t m, struct ckpt_err *err)
{
	struct cz_block *b = &c->block[block];
	struct cz_reduce *r = reduce_of(c, block);
	const bool one = c->z.comm->size == 1, several = c->z.opts.units > 1;
	int rc;

	if (is_total(c))
		return 0;
	rc = cz_after(c->move, c->work, r->written, err);
	if (!rc && !one)
		rc = reduce(c, b, r, several ? r->piece : b->total, err);
	if (!rc && several)
		rc = add_up(c, b, one ? grads : r->piece, m, err);
	return rc ? rc : cz_cuda((int)cudaEventRecord(r->gone, c->move), "an event", err);
}

int cz_settle(struct cz *c, struct ckpt_err *err)
{
	return cz_after(c->work, c->move, c->told, err);
}
