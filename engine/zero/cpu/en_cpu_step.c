/* en_cpu_step.c -- the norm of all gradients, and the optimizer's step on what this rank holds. */
#include <math.h>
#include <string.h>

#include "engine/zero/cpu/en_cpu_priv.h"
#include "engine/zero/en_adam.h"
#include "libckpt/base/ck_err.h"

/* ---- the norm ---- */

/* Chunks of block 'b' that hold elements, counted over all ranks. */
static uint64_t real_chunks(const struct zb *b)
{
	return (b->numel + EN_ZERO_CHUNK - 1) / EN_ZERO_CHUNK;
}

static void sum_own(struct en_zero *z)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < z->model->nblocks; i++) {
		const uint64_t n = z->block[i].shard;

		kn_sumsq(z->sums + at, en_zero_total(z, i), n, EN_ZERO_CHUNK);
		at += n / EN_ZERO_CHUNK;
	}
}

/* Ranks one behind the other become blocks one behind the other, without chunks of padding. */
static uint64_t put_in_order(const struct en_zero *z, const double *by_rank, double *out)
{
	uint64_t n = 0, at = 0;

	for (uint32_t i = 0; i < z->model->nblocks; i++) {
		const uint64_t each = z->block[i].shard / EN_ZERO_CHUNK;

		for (uint64_t c = 0; c < real_chunks(&z->block[i]); c++)
			out[n++] = by_rank[c / each * z->nsums + at + c % each];
		at += each;
	}
	return n;
}

int en_cpu_norm(struct en_zero *z, double *norm_out, struct ckpt_err *err)
{
	const uint64_t all = z->nsums * z->comm->size;
	int rc;

	en_trace_next(z->trace, EN_TRACE_COMPUTE, "norm", EN_TRACE_ALL);
	sum_own(z);
	en_trace_wait(z->trace, "norm", EN_TRACE_ALL);
	rc = en_comm_gather_small(z->comm, z->all_sums, z->sums, z->nsums * sizeof(double), NULL,
				  err);
	en_trace_rest(z->trace, EN_TRACE_COMPUTE);
	if (rc)
		return rc;
	*norm_out = sqrt(kn_tree_sum(z->all_sums + all,
				     put_in_order(z, z->all_sums, z->all_sums + all)));
	return 0;
}

/* ---- the update ---- */

/* Where 16-bit copies of element 'first' of the masters go. */
static void *copy_of(const struct en_zero *z, const struct zb *b, uint64_t first)
{
	uint8_t *copy = z->opts.stage ? b->own : b->params;

	return z->opts.type == KN_F32 ? NULL : copy + first * kn_type_size(z->opts.type);
}

/* States in a file: tile by tile. */
static int update_tiles(struct en_zero *z, struct en_adam *a, const float *grad,
			struct ckpt_err *err)
{
	const struct zb *b = &z->block[a->block];
	const uint64_t base = a->base, end = en_offloader_first(z->off, a->block + 1);
	int rc = 0;

	for (uint64_t t = en_offloader_first(z->off, a->block); !rc && t < end; t++) {
		const struct en_offloader_tile *tile = en_offloader_tile(z->off, t);
		struct en_offloader_state s;

		rc = en_offloader_get(z->off, t, EN_OFFLOADER_ALL, false, &s, err);
		if (rc)
			break;
		a->base = base + tile->first;
		a->n = tile->n;
		a->master = s.master ? s.master : b->master + tile->first;
		a->m = s.m;
		a->v = s.v;
		a->grad = grad + tile->first;
		a->copy = copy_of(z, b, tile->first);
		en_adam_run(a, z->pool);
		en_offloader_put(z->off, t, EN_OFFLOADER_ALL);
	}
	return rc;
}

/* At stage 0 every rank updates all: the sums of the others are gathered first. */
static int begin_total(struct en_zero *z, uint32_t block, struct ckpt_err *err)
{
	struct zb *b = &z->block[block];

	if (z->opts.stage || block == z->model->nblocks)
		return 0;
	b->span = en_trace_begin(z->trace, EN_TRACE_MOVE, "gather of gradients", block);
	return en_comm_all_gather(z->comm, b->grads, en_zero_total(z, block),
				  b->shard * sizeof(float), &b->work, err);
}

/* Those of the next block are on their way meanwhile. */
static int update_block(struct en_zero *z, struct en_adam *a, struct ckpt_err *err)
{
	struct zb *b = &z->block[a->block];
	int rc = begin_total(z, a->block + 1, err);

	if (!rc && b->work)
		en_trace_wait(z->trace, "gather of gradients", a->block);
	if (!rc)
		rc = en_comm_wait(z->comm, &b->work, err);
	en_trace_end(z->trace, b->span);
	en_trace_next(z->trace, EN_TRACE_COMPUTE, "adam", a->block);
	if (rc)
		return rc;
	a->base = z->opts.stage ? z->comm->rank * b->shard : 0;
	if (z->off)
		return update_tiles(z, a, en_zero_total(z, a->block), err);
	a->n = en_zb_updated(z, b);
	a->master = b->master;
	a->m = b->m;
	a->v = b->v;
	a->grad = z->opts.stage ? en_zero_total(z, a->block) : b->grads;
	a->copy = copy_of(z, b, 0);
	en_adam_run(a, z->pool);
	return 0;
}

/*
 * Where parameters are kept whole they are gathered while the next block is updated; not more than
 * one block at a time, for which MPI needs memory of its own.
 */
static int end_params(struct en_zero *z, uint32_t block, struct ckpt_err *err)
{
	struct zb *b = block ? &z->block[block - 1] : NULL;
	int rc;

	if (!b)
		return 0;
	if (b->work)
		en_trace_wait(z->trace, "gather", block - 1);
	rc = en_comm_wait(z->comm, &b->work, err);
	en_trace_end(z->trace, b->span);
	return rc;
}

static int begin_params(struct en_zero *z, uint32_t block, struct ckpt_err *err)
{
	struct zb *b = &z->block[block];
	int rc;

	if (!z->opts.stage || z->opts.stage == 3)
		return 0;
	rc = end_params(z, block, err);
	if (rc)
		return rc;
	b->span = en_trace_begin(z->trace, EN_TRACE_MOVE, "gather", block);
	return en_comm_all_gather(z->comm, b->params, b->own,
				  b->shard * kn_type_size(z->opts.type), &b->work, err);
}

int en_cpu_update(struct en_zero *z, const struct en_zero_hyper *hyper, uint64_t k,
		   float grad_scale, struct ckpt_err *err)
{
	struct en_adam a = {
		.z = z, .hyper = hyper, .k = k, .grad_scale = grad_scale, .grad_type = KN_F32,
	};
	int rc = begin_total(z, 0, err);

	for (; !rc && a.block < z->model->nblocks; a.block++) {
		rc = update_block(z, &a, err);
		if (!rc)
			rc = begin_params(z, a.block, err);
	}
	if (!rc)
		rc = end_params(z, z->model->nblocks, err);
	en_trace_rest(z->trace, EN_TRACE_COMPUTE);
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

/* ---- parameters that were set ---- */

static int cast_own(struct en_zero *z, uint32_t block, struct ckpt_err *err)
{
	const struct zb *b = &z->block[block];
	const uint64_t end = z->off ? en_offloader_first(z->off, block + 1) : 0;
	int rc = 0;

	if (z->opts.type == KN_F32)
		return 0;
	if (!z->off)
		kn_cast(copy_of(z, b, 0), z->opts.type, b->master, KN_F32, en_zb_updated(z, b),
			NULL);
	for (uint64_t t = z->off ? en_offloader_first(z->off, block) : 0; !rc && t < end; t++) {
		const struct en_offloader_tile *tile = en_offloader_tile(z->off, t);
		struct en_offloader_state s;

		rc = en_offloader_get(z->off, t, EN_OFFLOADER_MASTERS, false, &s, err);
		if (!rc)
			kn_cast(copy_of(z, b, tile->first), z->opts.type, s.master, KN_F32,
				tile->n, NULL);
	}
	return rc;
}

/* At stage 0 each rank has set its own pieces only. */
static int gather_all(struct en_zero *z, struct zb *b, struct ckpt_err *err)
{
	float *const each[] = { b->master, b->m, b->v };
	int rc = 0;

	for (uint32_t i = 0; !rc && !z->opts.stage && i < 3; i++)
		rc = en_comm_all_gather(z->comm, each[i], each[i] + z->comm->rank * b->shard,
					b->shard * sizeof(float), NULL, err);
	return rc;
}

int en_cpu_publish(struct en_zero *z, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < z->model->nblocks; i++) {
		rc = gather_all(z, &z->block[i], err);
		if (!rc)
			rc = cast_own(z, i, err);
		if (!rc)
			rc = begin_params(z, i, err);
	}
	en_zero_free_file_room(z);
	return rc ? rc : end_params(z, z->model->nblocks, err);
}
