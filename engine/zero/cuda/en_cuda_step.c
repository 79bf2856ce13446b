/* en_cuda_step.c -- the update, and what follows when the state was set. */
#include "engine/zero/cuda/en_cuda_priv.h"
#include "libckpt/base/ck_err.h"

/* ---- the update ---- */

struct update {
	struct en_cuda *c;
	const struct en_zero_hyper *hyper;
	uint64_t k;
	float grad_scale;
	struct en_cuda_block *b;
	void *copy;		/* of the new masters, or NULL */
	const void *grad;	/* of element 0 of the master */
};

/* Elements [from, to) of the master, of one group. */
static int update_run(const struct update *u, uint32_t group, uint64_t from, uint64_t to)
{
	const struct en_zero *z = &u->c->z;
	const struct en_zero_hyper *h = &u->hyper[group];
	const struct kn_adam how = {
		.rule = z->rule.rule, .decoupled = z->rule.decoupled,
		.bias_correction = z->rule.bias_correction, .step = u->k, .lr = h->lr,
		.beta1 = h->beta1, .beta2 = h->beta2, .eps = h->eps, .decay = h->decay,
		.grad_scale = u->grad_scale,
	};
	void *copy = u->copy ? en_cuda_at(u->copy, from, z->opts.type) : NULL;

	return kn_cu_adam(&how, u->b->master + from, u->b->m + from, u->b->v + from,
			  en_cuda_at_const(u->grad, from, u->c->sum_type), u->c->sum_type,
			  to - from, copy, z->opts.type, u->c->work);
}

/* Neighbours of one group are one run. */
static int update_runs(const struct update *u, uint32_t block, uint64_t base, uint64_t n)
{
	const struct en_zero *z = &u->c->z;
	const struct en_block *info = &z->model->block[block];
	uint64_t from = 0, to = 0;
	uint32_t group = 0;
	int rc = 0;

	for (uint32_t i = info->first; !rc && i < info->first + info->count; i++) {
		const struct en_param *p = &z->model->param[i];
		const uint64_t a = ck_max_u64(base, p->offset),
			       e = ck_min_u64(base + n, p->offset + p->numel);
		const uint32_t g = en_zero_group_of(z, i);

		if (a >= e)
			continue;
		if (from < to && (g != group || a - base != to)) {
			rc = update_run(u, group, from, to);
			from = to;
		}
		if (from == to)
			from = a - base;
		to = e - base;
		group = g;
	}
	return rc || from == to ? rc : update_run(u, group, from, to);
}

/* Stage 0 of several ranks: the sums of the others are gathered first. */
static int whole_total(struct en_cuda *c, struct update *u, struct ckpt_err *err)
{
	int rc;

	u->grad = u->b->total;
	if (c->z.opts.stage || c->z.comm->size == 1)
		return 0;
	rc = en_cuda_after(c->move, c->work, c->updated, err);
	en_cuda_count_sent(c, EN_COMM_GATHER, u->b->shard * kn_type_size(c->sum_type));
	en_trace_next(c->z.trace, EN_TRACE_MOVE, "gather of gradients", EN_TRACE_ALL);
	if (!rc)
		rc = en_cuda_nccl(c, ncclAllGather(u->b->total, c->whole, u->b->shard,
						   en_cuda_nccl_type(c->sum_type), c->nccl,
						   c->move),
				  "all-gather", err);
	en_trace_rest(c->z.trace, EN_TRACE_MOVE);
	u->grad = c->whole;
	en_trace_wait(c->z.trace, "gather of gradients", EN_TRACE_ALL);
	return rc ? rc : en_cuda_after(c->work, c->move, c->updated, err);
}

/*
 * Where the new parameters are made: in their place, but those of the host in the room of their
 * gather, which nobody uses between passes.
 */
static int place_copy(struct en_cuda *c, uint32_t block, void **copy_out, struct ckpt_err *err)
{
	struct en_cuda_gather *g = en_cuda_room_of(c, block);
	const struct en_cuda_block *b = &c->block[block];

	*copy_out = c->z.opts.type == KN_F32 ? NULL : c->z.opts.stage ? b->own : b->params;
	if (!en_cuda_has_host_params(c))
		return 0;
	*copy_out = g->p;
	g->block = -1;
	return en_cuda_cuda((int)cudaStreamWaitEvent(c->work, g->ready, 0), "waiting", err);
}

int en_cuda_update(struct en_zero *z, const struct en_zero_hyper *hyper, uint64_t k,
		   float grad_scale, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	struct update u = { .c = c, .hyper = hyper, .k = k, .grad_scale = grad_scale };
	int rc = 0;

	en_trace_next(z->trace, EN_TRACE_HOST, "launch the update", EN_TRACE_ALL);
	for (uint32_t i = 0; !rc && i < z->model->nblocks; i++) {
		u.b = &c->block[i];
		rc = whole_total(c, &u, err);
		if (c->snap)
			en_trace_wait(z->trace, "snapshot", i);
		if (!rc)
			rc = en_cuda_snap_wait(c, i, err);
		en_trace_next(z->trace, EN_TRACE_COMPUTE, "adam", i);
		if (!rc)
			rc = place_copy(c, i, &u.copy, err);
		if (!rc)
			rc = en_cuda_cuda(update_runs(&u, i, z->opts.stage ?
						      z->comm->rank * u.b->shard : 0,
						      z->opts.stage ? u.b->shard : u.b->padded),
					  "the optimizer", err);
		if (!rc && en_cuda_has_host_params(c))
			rc = en_cuda_store(c, i, en_cuda_room_of(c, i), err);
		if (!rc)
			rc = en_cuda_gather_params(c, i, c->work, err);
	}
	en_trace_rest(z->trace, EN_TRACE_COMPUTE);
	/* What is gathered from now on is new; the next pass begins with it. */
	if (!rc)
		rc = en_cuda_after(c->move, c->work, c->updated, err);
	en_cuda_forget(c);
	if (!rc)
		rc = en_cuda_begin(c, err);
	en_trace_rest(z->trace, EN_TRACE_HOST);
	return rc;
}

/* ---- the state that was set ---- */

static uint64_t updated(const struct en_cuda *c, const struct en_cuda_block *b)
{
	return c->z.opts.stage ? b->shard : b->padded;
}

/* At stage 0 each rank has set its own pieces only. */
static int share_block(struct en_cuda *c, struct en_cuda_block *b, struct ckpt_err *err)
{
	float *const device[] = { b->master, b->m, b->v };
	int rc = en_cuda_after(c->move, c->work, c->updated, err);

	for (uint32_t i = 0; !rc && i < 3; i++)
		rc = en_cuda_nccl(c, ncclAllGather(device[i] + c->z.comm->rank * b->shard,
						   device[i],
						   b->shard, ncclFloat32, c->nccl, c->move),
				  "all-gather", err);
	return rc ? rc : en_cuda_after(c->work, c->move, c->updated, err);
}

/* Elements [first, first + n) of a parameter, at 'at' on the device. */
static int init_piece(struct en_cuda *c, const struct en_zero_piece *p, float *at, uint64_t seed)
{
	const struct en_param *param = &c->z.model->param[p->param];

	if (param->init == EN_INIT_NORMAL)
		return kn_cu_random_normal(at, p->count, seed, p->param, p->first, 0,
					   c->z.model->config.init_range, c->work);
	return kn_cu_fill(at, KN_F32, param->init == EN_INIT_ONE, p->count, c->work);
}

int en_cuda_init(struct en_zero *z, uint64_t seed, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	int rc = 0;

	for (uint64_t i = 0; !rc && i < z->npieces; i++) {
		const struct en_zero_piece *p = &z->piece[i];

		rc = init_piece(c, p, en_cuda_state(c, p->block, EN_STATE_MASTER) + p->at, seed);
	}
	for (uint32_t i = 0; !rc && i < z->model->nblocks; i++) {
		const struct en_cuda_block *b = &c->block[i];

		rc = (int)cudaMemsetAsync(b->m, 0, updated(c, b) * sizeof(float), c->work);
		if (!rc)
			rc = (int)cudaMemsetAsync(b->v, 0, updated(c, b) * sizeof(float), c->work);
	}
	return en_cuda_cuda(rc, "the state", err);
}

int en_cuda_publish(struct en_zero *z, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	const enum kn_type type = z->opts.type;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < z->model->nblocks; i++) {
		struct en_cuda_block *b = &c->block[i];
		void *copy = NULL;

		if (!z->opts.stage && z->comm->size > 1)
			rc = share_block(c, b, err);
		if (!rc)
			rc = place_copy(c, i, &copy, err);
		if (!rc && copy)
			rc = en_cuda_cuda(kn_cu_cast(copy, type, b->master, KN_F32, updated(c, b),
						     c->work), "the state", err);
		if (!rc && en_cuda_has_host_params(c))
			rc = en_cuda_store(c, i, en_cuda_room_of(c, i), err);
		if (!rc)
			rc = en_cuda_gather_params(c, i, c->work, err);
	}
	if (!rc)
		rc = en_cuda_after(c->move, c->work, c->updated, err);
	if (!rc)
		rc = en_cuda_wait(c, c->work, NULL, "the state", err);
	en_cuda_forget(c);
	en_cuda_free_rooms(c);
	return rc;
}
