/*
 * en_cpu_move.c -- gathers and reductions of one block, by the collectives of engine/comm: they are
 * under way while the host computes, and what they bring is summed when it is waited for.
 */
#include <string.h>

#include "engine/zero/cpu/en_cpu_priv.h"
#include "libckpt/base/ck_err.h"

/* ---- parameters ---- */

static int wait_gather(struct en_zero *z, struct en_cpu_gather *g, struct ckpt_err *err)
{
	int rc = en_comm_wait(z->comm, &g->work[0], err);

	return rc ? rc : en_comm_wait(z->comm, &g->work[1], err);
}

int en_cpu_gather_begin(struct en_zero *z, uint32_t block, uint32_t slot, struct ckpt_err *err)
{
	const struct en_zero_block *b = &z->block[block];
	const uint64_t es = kn_type_size(z->opts.type);
	struct en_cpu_gather *g = &en_cpu_of(z)->gather[slot];
	int rc = wait_gather(z, g, err);

	en_trace_end(z->trace, g->span);
	g->span = en_trace_begin(z->trace, EN_TRACE_MOVE, "gather", block);
	if (!rc && b->numel)
		rc = en_comm_all_gather(z->comm, z->gather[slot].p, b->own, b->shard * es,
					&g->work[0], err);
	if (!rc && b->fnumel)
		rc = en_comm_all_gather(z->comm, en_zero_frozen_at(z, z->gather[slot].p, block),
					b->frozen, b->fshard * es, &g->work[1], err);
	return rc;
}

int en_cpu_gather_wait(struct en_zero *z, uint32_t block, uint32_t slot, struct ckpt_err *err)
{
	struct en_cpu_gather *g = &en_cpu_of(z)->gather[slot];
	int rc;

	if (g->work[0] || g->work[1])
		en_trace_wait(z->trace, "gather", block);
	rc = wait_gather(z, g, err);
	en_trace_end(z->trace, g->span);
	return rc;
}

int en_cpu_frozen_share(struct en_zero *z, uint32_t block, struct ckpt_err *err)
{
	const struct en_zero_block *b = &z->block[block];

	return en_comm_all_gather(z->comm, en_zero_frozen_at(z, b->params, block), b->frozen,
				  b->fshard * kn_type_size(z->opts.type), NULL, err);
}

/* ---- gradients ---- */

/*
 * Micro-batch m's shard is there.  As a binary counter does, it is joined with the sum of as many
 * before it, and that with one of as many again; what cannot be joined yet stays on the stack, as
 * many sums as m + 1 has ones.  The last micro-batch is joined with all of these.
 */
static void count_in(struct en_cpu *c, uint32_t block, uint32_t m, float *grad)
{
	const uint64_t n = c->z.block[block].shard;
	struct en_cpu_block *b = &c->block[block];
	const bool last = m + 1 == c->z.opts.micro_batches;
	const float *own = b->grads ? b->grads + c->z.comm->rank * n : NULL;
	uint32_t top = (uint32_t)__builtin_popcount(m);

	for (uint32_t bits = m; last ? top : bits & 1; bits >>= 1) {
		top--;
		kn_add(grad, b->sum[top], grad, n, KN_F32);
	}
	if (!last || !own)
		memcpy(b->sum[top], grad, n * sizeof(float));
	else if (grad != own)
		memmove(b->grads + c->z.comm->rank * n, grad, n * sizeof(float));
}

/* One by one, each sum rounded to fp16: as DeepSpeed, and it overflows as there. */
static void add_in(struct en_cpu *c, uint32_t block, uint32_t m, float *grad)
{
	const uint64_t n = c->z.block[block].shard;
	struct en_cpu_block *b = &c->block[block];
	const bool last = m + 1 == c->z.opts.micro_batches;

	if (m && !en_cpu_adds(&c->z))
		kn_add(grad, b->sum[0], grad, n, KN_F16);
	else
		kn_round(grad, n, KN_F16);
	if (last && b->grads)
		memmove(b->grads + c->z.comm->rank * n, grad, n * sizeof(float));
	else
		memcpy(b->sum[0], grad, n * sizeof(float));
}

static int end_reduce(struct en_cpu *c, struct en_cpu_reduce *r, struct ckpt_err *err)
{
	struct en_zero *z = &c->z;
	int rc;

	if (r->block < 0)
		return 0;
	if (r->work)
		en_trace_wait(z->trace, "reduce", (uint32_t)r->block);
	rc = en_comm_wait(z->comm, &r->work, err);
	en_trace_end(z->trace, r->span);
	if (rc)
		return rc;
	en_trace_next(z->trace, EN_TRACE_COMPUTE, "sum", (uint32_t)r->block);
	(z->opts.as_deepspeed ? add_in : count_in)(c, (uint32_t)r->block, r->m, r->shard);
	r->block = -1;
	return 0;
}

/* The one that has been under way for longest. */
static struct en_cpu_reduce *next_reduce(struct en_cpu *c, uint32_t block)
{
	return &c->reduce[block % EN_ZERO_REDUCES];
}

static float *grads_of(struct en_cpu *c, uint32_t block)
{
	const struct en_cpu_block *b = &c->block[block];

	return b->grads ? b->grads : !block && c->tied ? c->tied : next_reduce(c, block)->grads;
}

int en_cpu_grad_buffer(struct en_zero *z, uint32_t block, void **grads_out, struct ckpt_err *err)
{
	const struct en_zero_block *b = &z->block[block];
	struct en_cpu *c = en_cpu_of(z);
	struct en_cpu_reduce *r = next_reduce(c, block);
	float *g = grads_of(c, block);
	int rc = g == r->grads ? end_reduce(c, r, err) : 0;

	if (rc)
		return rc;
	memset(g + b->numel, 0, (b->padded - b->numel) * sizeof(float));
	*grads_out = g;
	return 0;
}

/*
 * To 16 bits, in place: element i goes to byte 2 i, of which no later one is read.  They were
 * rounded to the type, so nothing is lost.
 */
static void narrow(float *grads, uint64_t n, enum kn_type type)
{
	const uint64_t size = kn_type_size(type);
	uint8_t some[1024 * sizeof(float)];

	for (uint64_t i = 0; i < n; i += 1024) {
		kn_cast(some, type, grads + i, KN_F32, 1024, NULL);
		memcpy((uint8_t *)grads + i * size, some, 1024 * size);
	}
}

/* One rank has nothing to send.  What comes of 16 bits goes to the half that they left. */
int en_cpu_reduce_begin(struct en_zero *z, uint32_t block, uint32_t m, struct ckpt_err *err)
{
	const struct en_zero_block *b = &z->block[block];
	const bool narrowed = z->opts.wire != KN_F32 && z->comm->size > 1;
	struct en_cpu *c = en_cpu_of(z);
	struct en_cpu_reduce *r = next_reduce(c, block);
	float *grads = grads_of(c, block);
	int rc = end_reduce(c, r, err);

	if (rc)
		return rc;
	if (en_cpu_adds(z) && m)
		kn_round(grads, b->numel, KN_F16);
	if (en_cpu_adds(z) && m + 1 < z->opts.micro_batches)
		return 0;
	if (narrowed)
		narrow(grads, b->padded, z->opts.wire);
	r->shard = grads + (narrowed ? b->padded / 2 : z->comm->rank * b->shard);
	r->span = en_trace_begin(z->trace, EN_TRACE_MOVE, "reduce", block);
	rc = en_comm_reduce_scatter(z->comm, r->shard, grads, narrowed ? z->opts.wire : KN_F32,
				    b->shard, z->opts.as_deepspeed ? 1.0f / (float)z->comm->size :
				    1, &r->work, err);
	if (rc)
		return rc;
	r->block = block;
	r->m = m;
	return 0;
}

int en_cpu_reduce_wait(struct en_cpu *c, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < EN_ZERO_REDUCES; i++)
		rc = end_reduce(c, &c->reduce[i], err);
	return rc;
}

/* Stages 0 and 1 have it in its place among the whole gradients. */
float *en_cpu_total(const struct en_cpu *c, uint32_t block)
{
	const struct en_cpu_block *b = &c->block[block];

	return b->grads ? b->grads + c->z.comm->rank * c->z.block[block].shard : b->sum[0];
}
