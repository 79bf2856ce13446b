/* en_cpu_step.c -- the norm's sums, and what moves in an update, on CPU ranks. */
#include <string.h>

#include "engine/zero/cpu/en_cpu_priv.h"
#include "libckpt/base/ck_err.h"

/* ---- the norm ---- */

int en_cpu_norm_begin(struct en_zero *z, struct ckpt_err *err)
{
	struct en_cpu *c = en_cpu_of(z);
	int rc;

	en_trace_next(z->trace, EN_TRACE_COMPUTE, "norm", EN_TRACE_ALL);
	for (uint32_t i = 0; i < z->model->nblocks; i++)
		kn_sumsq(c->sums + z->block[i].first_sum, en_cpu_total(c, i), z->block[i].shard,
			 EN_ZERO_CHUNK);
	en_trace_wait(z->trace, "norm", EN_TRACE_ALL);
	rc = en_comm_gather_small(z->comm, c->all_sums, c->sums, z->nsums * sizeof(double), NULL,
				  err);
	en_trace_rest(z->trace, EN_TRACE_COMPUTE);
	return rc;
}

static double *ordered(struct en_zero *z)
{
	return en_cpu_of(z)->all_sums + z->nsums * z->comm->size;
}

int en_cpu_norm_order(struct en_zero *z, uint64_t to, uint64_t from, uint64_t n,
		      struct ckpt_err *err)
{
	(void)err;
	memcpy(ordered(z) + to, en_cpu_of(z)->all_sums + from, n * sizeof(double));
	return 0;
}

int en_cpu_norm_end(struct en_zero *z, uint64_t n, double *sum_out, struct ckpt_err *err)
{
	(void)err;
	*sum_out = kn_tree_sum(ordered(z), n);
	return 0;
}

/* ---- the update ---- */

/* At stage 0 every rank updates all: the sums of the others are gathered first. */
static int begin_total(struct en_zero *z, uint32_t block, struct ckpt_err *err)
{
	struct en_cpu *c = en_cpu_of(z);
	struct en_cpu_block *b = &c->block[block];

	if (z->opts.stage || block == z->model->nblocks)
		return 0;
	b->span = en_trace_begin(z->trace, EN_TRACE_MOVE, "gather of gradients", block);
	return en_comm_all_gather(z->comm, b->grads, en_cpu_total(c, block),
				  z->block[block].shard * sizeof(float), &b->work, err);
}

/* Of a gather that was begun; 'what' for the trace. */
static int end_gather(struct en_zero *z, uint32_t block, const char *what, struct ckpt_err *err)
{
	struct en_cpu_block *b = &en_cpu_of(z)->block[block];
	int rc;

	if (b->work)
		en_trace_wait(z->trace, what, block);
	rc = en_comm_wait(z->comm, &b->work, err);
	en_trace_end(z->trace, b->span);
	return rc;
}

int en_cpu_update_begin(struct en_adam *a, struct ckpt_err *err)
{
	a->grad_type = KN_F32;
	return a->hyper ? begin_total(a->z, 0, err) : 0;
}

/* Sums of the next block are on their way meanwhile. */
static int total(struct en_adam *a, struct ckpt_err *err)
{
	struct en_zero *z = a->z;
	struct en_cpu *c = en_cpu_of(z);
	int rc = begin_total(z, a->block + 1, err);

	if (!rc)
		rc = end_gather(z, a->block, "gather of gradients", err);
	en_trace_next(z->trace, EN_TRACE_COMPUTE, "adam", a->block);
	a->grad = z->opts.stage ? en_cpu_total(c, a->block) : c->block[a->block].grads;
	return rc;
}

/* At stage 0 each rank has set its own pieces only. */
static int share_block(struct en_zero *z, const struct en_zero_block *b, struct ckpt_err *err)
{
	float *const each[] = { b->master, b->exp_avg, b->exp_avg_sq };
	int rc = 0;

	for (uint32_t i = 0; !rc && !z->opts.stage && i < 3; i++)
		rc = en_comm_all_gather(z->comm, each[i], each[i] + z->comm->rank * b->shard,
					b->shard * sizeof(float), NULL, err);
	return rc;
}

/* Where 16-bit copies of element 'first' of the masters go. */
static void *copy_of(const struct en_zero *z, uint32_t block, uint64_t first)
{
	const struct en_zero_block *b = &z->block[block];
	uint8_t *copy = z->opts.stage ? b->own : b->params;

	return z->opts.type == KN_F32 ? NULL : copy + first * kn_type_size(z->opts.type);
}

int en_cpu_update_block(struct en_adam *a, struct ckpt_err *err)
{
	a->copy = copy_of(a->z, a->block, 0);
	return a->hyper ? total(a, err) : share_block(a->z, &a->z->block[a->block], err);
}

/* Not at stage 0. */
int en_cpu_tile_begin(struct en_adam *a, uint64_t t, uint64_t first, struct ckpt_err *err)
{
	(void)t;
	(void)err;
	a->grad = en_cpu_total(en_cpu_of(a->z), a->block) + first;
	a->copy = copy_of(a->z, a->block, first);
	return 0;
}

/*
 * Where parameters are kept whole they are gathered while the next block is updated; not more than
 * one block at a time, for which MPI needs memory of its own.
 */
int en_cpu_sync_block(struct en_adam *a, struct ckpt_err *err)
{
	struct en_zero *z = a->z;
	const struct en_zero_block *b = &z->block[a->block];
	struct en_cpu_block *mine = &en_cpu_of(z)->block[a->block];
	int rc = 0;

	if (!z->opts.stage || z->opts.stage == 3)
		return 0;
	if (a->block)
		rc = end_gather(z, a->block - 1, "gather", err);
	if (rc)
		return rc;
	mine->span = en_trace_begin(z->trace, EN_TRACE_MOVE, "gather", a->block);
	return en_comm_all_gather(z->comm, b->params, b->own,
				  b->shard * kn_type_size(z->opts.type), &mine->work, err);
}

int en_cpu_update_end(struct en_adam *a, struct ckpt_err *err)
{
	int rc = end_gather(a->z, a->z->model->nblocks - 1, "gather", err);

	en_trace_rest(a->z->trace, EN_TRACE_COMPUTE);
	return rc;
}

int en_cpu_trace(struct en_zero *z, struct en_trace *t, struct ckpt_err *err)
{
	struct en_trace *was = z->trace;

	z->trace = t;
	if (t)
		en_trace_start(t, NULL);
	return was ? en_trace_stop(was, err) : 0;
}
