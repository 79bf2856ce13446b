/*
 * zero_move.c -- parameters come, gradients go: gathers and reductions of one block at a time, with
 * the next one under way.
 */
#include <string.h>

#include "engine/zero/en_zero_priv.h"
#include "libckpt/base/ck_err.h"

/* ---- parameters ---- */

static struct zgather *find(struct en_zero *z, int64_t block)
{
	for (uint32_t i = 0; i < EN_ZERO_GATHERS; i++)
		if (z->gather[i].block == block)
			return &z->gather[i];
	return NULL;
}

/* One that nobody uses: a free one, else one that was gathered ahead in vain. */
static struct zgather *room(struct en_zero *z)
{
	struct zgather *g = find(z, -1);

	for (uint32_t i = 0; !g && i < EN_ZERO_GATHERS; i++)
		if (!z->gather[i].users && !z->gather[i].work)
			g = &z->gather[i];
	return g;
}

static int begin_gather(struct en_zero *z, uint32_t block, struct zgather **out,
			struct ckpt_err *err)
{
	const struct zb *b = &z->block[block];
	struct zgather *g = room(z);
	int rc;

	if (!g)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "more than %u blocks are in use at once", EN_ZERO_GATHERS);
	rc = en_comm_all_gather(z->comm, g->p, b->own, b->shard * kn_type_size(z->opts.type),
				&g->work, err);
	if (rc)
		return rc;
	g->block = block;
	*out = g;
	return 0;
}

int en_zero_prefetch(struct en_zero *z, uint32_t block, struct ckpt_err *err)
{
	struct zgather *g;

	if (z->opts.stage != 3 || find(z, block))
		return 0;
	return begin_gather(z, block, &g, err);
}

int en_zero_take(struct en_zero *z, uint32_t block, const void **params_out, struct ckpt_err *err)
{
	struct zgather *g;
	int rc = 0;

	if (z->opts.stage != 3) {
		*params_out = z->block[block].params;
		return 0;
	}
	g = find(z, block);
	if (!g)
		rc = begin_gather(z, block, &g, err);
	if (!rc)
		rc = en_comm_wait(z->comm, &g->work, err);
	if (rc)
		return rc;
	g->users++;
	*params_out = g->p;
	return 0;
}

/* Dropped at once: what comes next needs the room. */
void en_zero_release(struct en_zero *z, uint32_t block)
{
	struct zgather *g = z->opts.stage == 3 ? find(z, block) : NULL;

	if (g && !--g->users)
		g->block = -1;
}

/* ---- gradients ---- */

/* The sum of 2^level units is there; with that of as many before it, it is one of twice as many. */
static void count_in(struct en_zero *z, struct zb *b, uint32_t m, float *piece)
{
	uint32_t level = 0;

	for (; m >> level & 1; level++)
		kn_add(piece, b->sum[level], piece, b->shard, KN_F32);
	memcpy(b->sum[level], piece, b->shard * sizeof(float));
	(void)z;
}

static int end_reduce(struct en_zero *z, struct zreduce *r, struct ckpt_err *err)
{
	int rc;

	if (r->block < 0)
		return 0;
	rc = en_comm_wait(z->comm, &r->work, err);
	if (rc)
		return rc;
	count_in(z, &z->block[r->block], r->m, r->piece);
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

int en_zero_reduce(struct en_zero *z, uint32_t block, float *grads, uint32_t m,
		   struct ckpt_err *err)
{
	const struct zb *b = &z->block[block];
	struct zreduce *r = next_reduce(z, block);
	const void *wire = grads;
	int rc = end_reduce(z, r, err);

	if (rc)
		return rc;
	if (z->opts.wire != KN_F32) {	/* they were rounded to it: nothing is lost */
		kn_cast(r->wire, z->opts.wire, grads, KN_F32, b->padded, NULL);
		wire = r->wire;
	}
	rc = en_comm_reduce_scatter(z->comm, r->piece, wire, z->opts.wire, b->shard, 1, &r->work,
				    err);
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

/* What is left in the counter, the youngest first: each has more units than all before it. */
static void join_levels(struct en_zero *z, struct zb *b)
{
	const uint32_t n = z->opts.units;
	float *young = NULL;

	for (uint32_t k = 0; k < z->levels; k++) {
		if (!(n >> k & 1))
			continue;
		if (young)
			kn_add(b->sum[k], b->sum[k], young, b->shard, KN_F32);
		young = b->sum[k];
	}
}

float *en_zero_total(const struct en_zero *z, uint32_t block)
{
	return z->block[block].sum[z->levels - 1];
}

void en_zero_join(struct en_zero *z)
{
	for (uint32_t i = 0; i < z->model->nblocks; i++)
		join_levels(z, &z->block[i]);
}
