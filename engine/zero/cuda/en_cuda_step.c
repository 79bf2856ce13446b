/* en_cuda_step.c -- the update on the GPU, and parameters that follow masters which were set. */
#include "engine/zero/cuda/en_cuda_priv.h"
#include "libckpt/base/ck_err.h"

int en_cuda_update_begin(struct en_adam *a, struct ckpt_err *err)
{
	(void)err;
	a->grad_type = en_cuda_of(a->z)->sum_type;
	if (a->hyper)
		en_trace_next(a->z->trace, EN_TRACE_HOST, "launch the update", EN_TRACE_ALL);
	return 0;
}

/* Stage 0 of several ranks: the sums of the others are gathered first. */
static int whole_total(struct en_adam *a, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(a->z);
	const uint64_t n = c->z.block[a->block].shard;
	const void *total = c->block[a->block].total;
	int rc;

	a->grad = total;
	if (c->z.opts.stage || c->z.comm->size == 1 || !n)
		return 0;
	rc = en_cuda_after(c->move, c->work, c->updated, err);
	en_cuda_count_sent(c, EN_COMM_GATHER, n * kn_type_size(c->sum_type));
	en_trace_next(c->z.trace, EN_TRACE_MOVE, "gather of gradients", EN_TRACE_ALL);
	if (!rc)
		rc = en_cuda_nccl(c, ncclAllGather(total, c->whole, n,
						   en_cuda_nccl_type(c->sum_type), c->nccl,
						   c->move), "all-gather", err);
	en_trace_rest(c->z.trace, EN_TRACE_MOVE);
	a->grad = c->whole;
	en_trace_wait(c->z.trace, "gather of gradients", EN_TRACE_ALL);
	return rc ? rc : en_cuda_after(c->work, c->move, c->updated, err);
}

/* At stage 0 each rank has set its own pieces only. */
static int share_block(struct en_cuda *c, const struct en_zero_block *b, struct ckpt_err *err)
{
	float *const device[] = { b->master, b->exp_avg, b->exp_avg_sq };
	int rc;

	if (c->z.opts.stage || c->z.comm->size == 1 || !b->shard)
		return 0;
	rc = en_cuda_after(c->move, c->work, c->updated, err);
	for (uint32_t i = 0; !rc && i < 3; i++)
		rc = en_cuda_nccl(c, ncclAllGather(device[i] + c->z.comm->rank * b->shard,
						   device[i],
						   b->shard, ncclFloat32, c->nccl, c->move),
				  "all-gather", err);
	return rc ? rc : en_cuda_after(c->work, c->move, c->updated, err);
}

/*
 * Where the new parameters are made: in their place, but those of the host in the slot of their
 * gather, which nothing uses between passes.
 */
static int place_copy(struct en_adam *a, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(a->z);
	const struct en_zero_block *b = &c->z.block[a->block];
	struct en_zero_gather *g = en_zero_slot_of(&c->z, a->block);

	a->copy = c->z.opts.type == KN_F32 ? NULL : c->z.opts.stage ? b->own : b->params;
	if (!en_cuda_has_host_params(c))
		return 0;
	a->copy = g->p;
	g->block = -1;
	return en_cuda_cuda((int)cudaStreamWaitEvent(c->work,
						     c->gather[g - c->z.gather].ready, 0),
			    "waiting", err);
}

int en_cuda_update_block(struct en_adam *a, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(a->z);
	int rc = a->hyper ? whole_total(a, err) : share_block(c, &c->z.block[a->block], err);

	if (a->hyper) {
		if (c->snap)
			en_trace_wait(c->z.trace, "snapshot", a->block);
		if (!rc)
			rc = en_cuda_snap_wait(c, a->block, err);
		en_trace_next(c->z.trace, EN_TRACE_COMPUTE, "adam", a->block);
	}
	return rc ? rc : place_copy(a, err);
}

int en_cuda_adam(struct en_adam *a, uint32_t group, uint64_t from, uint64_t to,
		 struct ckpt_err *err)
{
	const struct en_zero *z = a->z;
	const struct en_zero_hyper *h = &a->hyper[group];
	const struct kn_adam how = {
		.rule = z->rule.rule, .decoupled = z->rule.decoupled,
		.bias_correction = z->rule.bias_correction, .step = a->k, .lr = h->lr,
		.beta1 = h->beta1, .beta2 = h->beta2, .eps = h->eps, .decay = h->decay,
		.grad_scale = a->grad_scale,
	};
	void *copy = a->copy ? en_cuda_at(a->copy, from, z->opts.type) : NULL;

	return en_cuda_cuda(kn_cu_adam(&how, a->master + from, a->exp_avg + from,
				       a->exp_avg_sq + from,
				       en_cuda_at_const(a->grad, from, a->grad_type),
				       a->grad_type, to - from, copy, z->opts.type,
				       en_cuda_of(a->z)->work), "the optimizer", err);
}

int en_cuda_cast(struct en_adam *a, struct ckpt_err *err)
{
	if (!a->n)
		return 0;
	return en_cuda_cuda(kn_cu_cast(a->copy, a->z->opts.type, a->master, KN_F32, a->n,
				       en_cuda_of(a->z)->work), "the state", err);
}

int en_cuda_sync_block(struct en_adam *a, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(a->z);
	int rc = 0;

	if (en_cuda_has_host_params(c))
		rc = en_cuda_store(c, a->block, c->z.slots.of[a->block], err);
	return rc ? rc : en_cuda_gather_params(c, a->block, c->work, err);
}

/* What is gathered from now on is new; the next pass begins with it. */
int en_cuda_update_end(struct en_adam *a, struct ckpt_err *err)
{
	struct en_zero *z = a->z;
	struct en_cuda *c = en_cuda_of(z);
	int rc;

	en_cuda_fp8_stale(c);
	en_trace_rest(z->trace, EN_TRACE_COMPUTE);
	rc = en_cuda_after(c->move, c->work, c->updated, err);
	if (!rc && !a->hyper)
		rc = en_cuda_wait(c, c->work, NULL, "the state", err);
	en_zero_forget(z);
	if (!a->hyper)
		en_cuda_free_load(c);
	else if (!rc)
		rc = en_zero_prefetch_first(z, err);
	en_trace_rest(z->trace, EN_TRACE_HOST);
	return rc;
}

/* ---- random weights ---- */

/* Adapters are small: the host makes them. */
static int init_uniform(struct en_cuda *c, const struct en_zero_piece *p, float *at, uint64_t seed)
{
	float some[4096];
	int rc = 0;

	for (uint64_t i = 0, n; !rc && i < p->count; i += n) {
		n = ck_min_u64(p->count - i, 4096);
		en_model_init(c->z.model, p->param, seed, p->first + i, n, some);
		rc = (int)cudaMemcpyAsync(at + i, some, n * sizeof(float), cudaMemcpyHostToDevice,
					  c->work);
		if (!rc)
			rc = (int)cudaStreamSynchronize(c->work);
	}
	return rc;
}

/* Elements [first, first + n) of a parameter, at 'at' on the device. */
static int init_piece(struct en_cuda *c, const struct en_zero_piece *p, float *at, uint64_t seed)
{
	const struct en_param *param = &c->z.model->param[p->param];

	if (param->init == EN_INIT_NORMAL)
		return kn_cu_random_normal(at, p->count, seed, param->stream, p->first, 0,
					   c->z.model->config.init_range, c->work);
	if (param->init == EN_INIT_UNIFORM)
		return init_uniform(c, p, at, seed);
	return kn_cu_fill(at, KN_F32, param->init == EN_INIT_ONE, p->count, c->work);
}

/* n elements from element 'first' of a parameter on, of the type; in fp32 through c->dgu. */
static int make_frozen(struct en_cuda *c, const struct en_param *param, uint64_t seed,
		       uint64_t first, uint64_t n, void *to)
{
	const enum kn_type type = c->z.opts.type;
	int rc;

	if (param->init != EN_INIT_NORMAL)
		return kn_cu_fill(to, type, param->init == EN_INIT_ONE, n, c->work);
	rc = kn_cu_random_normal(c->dgu, n, seed, param->stream, first, 0,
				 c->z.model->config.init_range, c->work);
	return rc ? rc : kn_cu_cast(to, type, c->dgu, KN_F32, n, c->work);
}

/* Of the host they are made in c->act first. */
int en_cuda_frozen_init(struct en_zero *z, const struct en_zero_piece *p, uint64_t seed,
			struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	const struct en_param *param = &z->model->param[p->param];
	const uint64_t es = kn_type_size(z->opts.type);
	const uint64_t most = (uint64_t)z->opts.rows * z->opts.tokens * z->model->config.inter;
	const bool host = en_cuda_has_host_params(c);
	uint8_t *to = en_cuda_at(z->block[p->block].frozen, p->at, z->opts.type);
	uint64_t n;
	int rc = 0;

	for (uint64_t at = 0; !rc && at < p->count; at += n) {
		n = ck_min_u64(p->count - at, most);
		rc = make_frozen(c, param, seed, p->first + at, n, host ? c->act : to + at * es);
		if (!rc && host)
			rc = (int)cudaMemcpyAsync(to + at * es, c->act, n * es,
						  cudaMemcpyDeviceToHost, c->work);
	}
	if (!rc && host)
		rc = (int)cudaStreamSynchronize(c->work);
	return en_cuda_cuda(rc, "frozen parameters", err);
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
		const struct en_zero_block *b = &z->block[i];
		const size_t bytes = en_zero_updated(z, b) * sizeof(float);

		rc = (int)cudaMemsetAsync(b->exp_avg, 0, bytes, c->work);
		if (!rc)
			rc = (int)cudaMemsetAsync(b->exp_avg_sq, 0, bytes, c->work);
	}
	return en_cuda_cuda(rc, "the state", err);
}
