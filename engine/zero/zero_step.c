/* zero_step.c -- the norm of all gradients, and the optimizer's step on what this rank holds. */
#include <math.h>
#include <string.h>

#include "engine/zero/en_zero_priv.h"
#include "libckpt/base/ck_err.h"

/* Elements of a job of the optimizer. */
#define JOB ((uint64_t)64 << 10)

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

int en_zcpu_norm(struct en_zero *z, double *norm_out, struct ckpt_err *err)
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

struct update {
	struct en_zero *z;
	const struct en_zero_hyper *hyper;
	uint64_t k;
	float grad_scale;
	uint32_t block;
	const float *grad;	/* of element 0 of the master */
	uint64_t base;		/* that element's number in the block */
	uint64_t n;
};

/* Elements [from, to) of the master, which lie in one parameter. */
static void update_run(const struct update *u, uint32_t param, uint64_t from, uint64_t to)
{
	struct en_zero *z = u->z;
	const struct zb *b = &z->block[u->block];
	const struct en_zero_hyper *h = &u->hyper[en_zero_group_of(z, param)];
	const struct kn_adam how = {
		.rule = z->rule.rule, .decoupled = z->rule.decoupled,
		.bias_correction = z->rule.bias_correction, .step = u->k, .lr = h->lr,
		.beta1 = h->beta1, .beta2 = h->beta2, .eps = h->eps, .decay = h->decay,
		.grad_scale = u->grad_scale,
	};
	uint8_t *copy = z->opts.type == KN_F32 ? NULL : z->opts.stage ? b->own : b->params;

	if (copy)
		copy += from * kn_type_size(z->opts.type);
	kn_adam(&how, b->master + from, b->m + from, b->v + from, u->grad + from, to - from, copy,
		z->opts.type);
}

static void update_job(void *arg, size_t job, uint32_t thread)
{
	const struct update *u = arg;
	const struct en_model *model = u->z->model;
	const struct en_block *block = &model->block[u->block];
	const uint64_t from = u->base + job * JOB, to = ck_min_u64(from + JOB, u->base + u->n);

	(void)thread;
	for (uint32_t i = block->first; i < block->first + block->count; i++) {
		const struct en_param *p = &model->param[i];
		const uint64_t a = ck_max_u64(from, p->offset),
			       b = ck_min_u64(to, p->offset + p->numel);

		if (a < b)
			update_run(u, i, a - u->base, b - u->base);
	}
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
static int update_block(struct en_zero *z, struct update *u, struct ckpt_err *err)
{
	struct zb *b = &z->block[u->block];
	int rc = begin_total(z, u->block + 1, err);

	if (!rc && b->work)
		en_trace_wait(z->trace, "gather of gradients", u->block);
	if (!rc)
		rc = en_comm_wait(z->comm, &b->work, err);
	en_trace_end(z->trace, b->span);
	en_trace_next(z->trace, EN_TRACE_COMPUTE, "adam", u->block);
	u->grad = z->opts.stage ? en_zero_total(z, u->block) : b->grads;
	u->base = z->opts.stage ? z->comm->rank * b->shard : 0;
	u->n = en_zb_updated(z, b);
	if (!rc)
		en_pool_run(en_exec_pool(z->exec), (u->n + JOB - 1) / JOB, update_job, u);
	return rc;
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

int en_zcpu_update(struct en_zero *z, const struct en_zero_hyper *hyper, uint64_t k,
		   float grad_scale, struct ckpt_err *err)
{
	struct update u = { .z = z, .hyper = hyper, .k = k, .grad_scale = grad_scale };
	int rc = begin_total(z, 0, err);

	for (; !rc && u.block < z->model->nblocks; u.block++) {
		rc = update_block(z, &u, err);
		if (!rc)
			rc = begin_params(z, u.block, err);
	}
	if (!rc)
		rc = end_params(z, z->model->nblocks, err);
	en_trace_rest(z->trace, EN_TRACE_COMPUTE);
	return rc;
}

int en_zcpu_trace(struct en_zero *z, struct en_trace *t, struct ckpt_err *err)
{
	struct en_trace *was = z->trace;

	z->trace = t;
	if (t)
		en_trace_start(t, NULL);
	return was ? en_trace_stop(was, err) : 0;
}

/* ---- parameters that were set ---- */

static void cast_own(struct en_zero *z, struct zb *b)
{
	void *to = z->opts.stage ? b->own : b->params;

	if (z->opts.type != KN_F32)
		kn_cast(to, z->opts.type, b->master, KN_F32, en_zb_updated(z, b), NULL);
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

int en_zcpu_publish(struct en_zero *z, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < z->model->nblocks; i++) {
		rc = gather_all(z, &z->block[i], err);
		if (!rc) {
			cast_own(z, &z->block[i]);
			rc = begin_params(z, i, err);
		}
	}
	return rc ? rc : end_params(z, z->model->nblocks, err);
}
