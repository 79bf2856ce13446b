/*
 * en_cpu_move.c -- parameters come, gradients go: gathers and reductions of one block at a time,
 * with the next one under way.
 */
#include <string.h>

#include "engine/zero/cpu/en_cpu_priv.h"
#include "libckpt/base/ck_err.h"

/* ---- parameters ---- */

/* A tied model's head is used together with block 0. */
uint32_t en_zero_gather_of(const struct en_model *model, uint32_t block)
{
	return model->config.tied && block == model->nblocks - 1 ? 2 : block & 1;
}

static struct zgather *room(struct en_zero *z, uint32_t block)
{
	return &z->gather[en_zero_gather_of(z->model, block)];
}

/* What was gathered ahead in vain gives way. */
static int begin_gather(struct en_zero *z, uint32_t block, struct ckpt_err *err)
{
	const struct zb *b = &z->block[block];
	struct zgather *g = room(z, block);
	int rc;

	if (g->users)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "block %u is asked for while block %u, which has its room, is in "
			       "use", block, (unsigned)g->block);
	rc = en_comm_wait(z->comm, &g->work, err);
	en_trace_end(z->trace, g->span);
	g->block = -1;
	g->span = en_trace_begin(z->trace, EN_TRACE_MOVE, "gather", block);
	if (!rc)
		rc = en_comm_all_gather(z->comm, g->p, b->own,
					b->shard * kn_type_size(z->opts.type), &g->work, err);
	if (!rc)
		g->block = block;
	return rc;
}

int en_zero_prefetch(struct en_zero *z, uint32_t block, struct ckpt_err *err)
{
	if (z->opts.stage != 3 || room(z, block)->block == block)
		return 0;
	return begin_gather(z, block, err);
}

int en_zero_take(struct en_zero *z, uint32_t block, const void **params_out, struct ckpt_err *err)
{
	struct zgather *g = room(z, block);
	int rc = 0;

	if (z->opts.stage != 3) {
		*params_out = z->block[block].params;
		return 0;
	}
	if (g->block != block)
		rc = begin_gather(z, block, err);
	if (!rc && g->work)
		en_trace_wait(z->trace, "gather", block);
	if (!rc)
		rc = en_comm_wait(z->comm, &g->work, err);
	en_trace_end(z->trace, g->span);
	if (rc)
		return rc;
	g->users++;
	*params_out = g->p;
	return 0;
}

/* Dropped at once: what comes next needs the room. */
void en_zero_release(struct en_zero *z, uint32_t block)
{
	struct zgather *g = room(z, block);

	if (z->opts.stage == 3 && !--g->users)
		g->block = -1;
}

/* ---- gradients ---- */

/*
 * Unit m's piece is there.  As a binary counter does, it is joined with the sum of as many units
 * before it, and that with one of as many again; what cannot be joined yet stands on the stack, as
 * many as m + 1 has ones.  The last unit is joined with all that stands there.
 */
static void count_in(struct en_zero *z, struct zb *b, uint32_t m, float *piece)
{
	const bool last = m + 1 == z->opts.units;
	const float *own = b->grads ? b->grads + z->comm->rank * b->shard : NULL;
	uint32_t top = (uint32_t)__builtin_popcount(m);

	for (uint32_t bits = m; last ? top : bits & 1; bits >>= 1) {
		top--;
		kn_add(piece, b->sum[top], piece, b->shard, KN_F32);
	}
	if (!last || !own)
		memcpy(b->sum[top], piece, b->shard * sizeof(float));
	else if (piece != own)
		memmove(b->grads + z->comm->rank * b->shard, piece, b->shard * sizeof(float));
}

/* One by one, each sum rounded to fp16: as DeepSpeed, and it overflows as there. */
static void add_in(struct en_zero *z, struct zb *b, uint32_t m, float *piece)
{
	const bool last = m + 1 == z->opts.units;

	if (m && !en_zero_adds(z))
		kn_add(piece, b->sum[0], piece, b->shard, KN_F16);
	else
		kn_round(piece, b->shard, KN_F16);
	if (last && b->grads)
		memmove(b->grads + z->comm->rank * b->shard, piece, b->shard * sizeof(float));
	else
		memcpy(b->sum[0], piece, b->shard * sizeof(float));
}

static int end_reduce(struct en_zero *z, struct zreduce *r, struct ckpt_err *err)
{
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
	(z->opts.as_deepspeed ? add_in : count_in)(z, &z->block[r->block], r->m, r->piece);
	r->block = -1;
	return 0;
}

/* The one that has been under way for longest. */
static struct zreduce *next_reduce(struct en_zero *z, uint32_t block)
{
	return &z->reduce[block % EN_ZERO_REDUCES];
}

int en_zero_grads(struct en_zero *z, uint32_t block, float **grads_out, struct ckpt_err *err)
{
	const struct zb *b = &z->block[block];
	struct zreduce *r = next_reduce(z, block);
	float *g = b->grads ? b->grads : !block && z->tied ? z->tied : r->grads;
	int rc = g == r->grads ? end_reduce(z, r, err) : 0;

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
int en_zero_reduce(struct en_zero *z, uint32_t block, float *grads, uint32_t m,
		   struct ckpt_err *err)
{
	const struct zb *b = &z->block[block];
	const bool narrowed = z->opts.wire != KN_F32 && z->comm->size > 1;
	struct zreduce *r = next_reduce(z, block);
	int rc = end_reduce(z, r, err);

	if (rc)
		return rc;
	if (en_zero_adds(z) && m)
		kn_round(grads, b->numel, KN_F16);
	if (en_zero_adds(z) && m + 1 < z->opts.units)
		return 0;
	if (narrowed)
		narrow(grads, b->padded, z->opts.wire);
	r->piece = grads + (narrowed ? b->padded / 2 : z->comm->rank * b->shard);
	r->span = en_trace_begin(z->trace, EN_TRACE_MOVE, "reduce", block);
	rc = en_comm_reduce_scatter(z->comm, r->piece, grads, narrowed ? z->opts.wire : KN_F32,
				    b->shard, z->opts.as_deepspeed ? 1.0f / (float)z->comm->size :
				    1, &r->work, err);
	if (rc)
		return rc;
	r->block = block;
	r->m = m;
	return 0;
}

int en_zero_settle(struct en_zero *z, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < EN_ZERO_REDUCES; i++)
		rc = end_reduce(z, &z->reduce[i], err);
	return rc;
}

/* Stages 0 and 1 have it in its place among the whole gradients. */
float *en_zero_total(const struct en_zero *z, uint32_t block)
{
	const struct zb *b = &z->block[block];

	return b->grads ? b->grads + z->comm->rank * b->shard : b->sum[0];
}
