/* en_cpu_new.c -- memory of every stage, taken once; nothing is allocated in a step. */
#include <string.h>

#include "engine/zero/cpu/en_cpu_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

static int new_floats(struct en_cpu *c, enum en_mem_kind kind, uint64_t n, float **out,
		      struct ckpt_err *err)
{
	return en_mem_new(&c->z.mem, kind, n * sizeof(float), out, err);
}

/* ---- blocks ---- */

static int new_params(struct en_zero *z, struct en_zero_block *b, struct ckpt_err *err)
{
	const uint64_t es = kn_type_size(z->opts.type);
	const bool parts = z->opts.stage == 3;
	const uint64_t n = parts ? b->shard + b->fshard : b->padded + b->fpadded;
	uint8_t *p = NULL;
	int rc = en_mem_new(&z->mem, en_zero_param_kind(&z->opts), n * es, &p, err);

	if (rc)
		return rc;
	b->params = parts ? NULL : p;
	b->own = p + (parts ? 0 : z->comm->rank * b->shard * es);
	b->frozen = p + (parts ? b->shard : b->padded + z->comm->rank * b->fshard) * es;
	return 0;
}

/* In fp32 the parameters themselves are the masters. */
static int new_optimizer(struct en_cpu *c, struct en_zero_block *b, struct ckpt_err *err)
{
	const struct en_zero_opts *o = &c->z.opts;
	const enum en_mem_kind kind = en_zero_optimizer_kind(o);
	const uint64_t n = en_zero_updated(&c->z, b);
	int rc = 0;

	if (o->type == KN_F32)
		b->master = o->stage ? b->own : b->params;
	if (o->nvme.dir)
		return 0;
	if (o->type != KN_F32)
		rc = new_floats(c, kind, n, &b->master, err);
	if (!rc)
		rc = new_floats(c, kind, n, &b->exp_avg, err);
	return rc ? rc : new_floats(c, kind, n, &b->exp_avg_sq, err);
}

static int new_block(struct en_cpu *c, uint32_t number, struct ckpt_err *err)
{
	struct en_zero_block *b = &c->z.block[number];
	struct en_cpu_block *g = &c->block[number];
	int rc = new_params(&c->z, b, err);

	if (!rc)
		rc = new_optimizer(c, b, err);
	if (!rc && c->z.opts.stage < 2)
		rc = new_floats(c, EN_MEM_GRADS, b->padded, &g->grads, err);
	for (uint32_t k = 0; !rc && k < c->levels; k++)
		rc = new_floats(c, EN_MEM_GRADS, b->shard, &g->sum[k], err);
	return rc;
}

static int new_blocks(struct en_cpu *c, struct ckpt_err *err)
{
	const uint32_t n = c->z.model->nblocks;
	int rc = en_zero_new_blocks(&c->z, err);

	if (rc)
		return rc;
	c->levels = ck_zt_levels(c->z.opts.stage, c->z.opts.micro_batches);
	c->block = ck_zalloc(n * sizeof(*c->block));
	if (!c->block)
		return ck_fail_nomem(err, "blocks", n);
	for (uint32_t i = 0; !rc && i < n; i++)
		rc = new_block(c, i, err);
	return rc;
}

static void free_block(struct en_cpu *c, uint32_t number)
{
	struct en_zero *z = &c->z;
	const enum en_mem_kind kind = en_zero_optimizer_kind(&z->opts);
	const struct en_zero_block *b = &z->block[number];

	if (z->opts.type != KN_F32)
		en_mem_free(&z->mem, kind, b->master);
	en_mem_free(&z->mem, kind, b->exp_avg);
	en_mem_free(&z->mem, kind, b->exp_avg_sq);
	en_mem_free(&z->mem, en_zero_param_kind(&z->opts),
		    z->opts.stage == 3 ? b->own : b->params);
	if (!c->block)
		return;
	en_mem_free(&z->mem, EN_MEM_GRADS, c->block[number].grads);
	for (uint32_t k = 0; k < EN_ZERO_LEVELS; k++)
		en_mem_free(&z->mem, EN_MEM_GRADS, c->block[number].sum[k]);
}

/* ---- what moves ---- */

static int new_gathers(struct en_cpu *c, struct ckpt_err *err)
{
	struct en_zero *z = &c->z;
	int rc;

	if (z->opts.stage != 3)
		return 0;
	rc = en_zero_new_gathers(z, en_zero_flow_of(NULL), err);
	if (rc)
		return rc;
	c->gather = ck_zalloc(z->slots.n * sizeof(*c->gather));
	if (!c->gather)
		return ck_fail_nomem(err, "slots of blocks", z->slots.n);
	for (uint32_t i = 0; !rc && i < z->slots.n; i++)
		rc = en_mem_new(&z->mem, EN_MEM_GATHERED,
				z->slots.padded[i] * kn_type_size(z->opts.type),
				&z->gather[i].p, err);
	return rc;
}

/* Padded elements of the largest block of a buffer; without what a tied model has apart. */
static uint64_t largest_reduce(const struct en_zero *z, uint32_t buffer)
{
	uint64_t n = 0;

	for (uint32_t i = z->model->config.tied; i < z->model->nblocks; i++)
		if (i % EN_ZERO_REDUCES == buffer)
			n = ck_max_u64(n, z->block[i].padded);
	return n;
}

static int new_reduces(struct en_cpu *c, struct ckpt_err *err)
{
	const struct en_zero *z = &c->z;
	int rc = 0;

	for (uint32_t i = 0; i < EN_ZERO_REDUCES; i++)
		c->reduce[i].block = -1;
	for (uint32_t i = 0; !rc && z->opts.stage >= 2 && i < EN_ZERO_REDUCES; i++)
		rc = new_floats(c, EN_MEM_GRADS, largest_reduce(z, i), &c->reduce[i].grads, err);
	if (!rc && z->model->config.tied && z->opts.stage >= 2)
		rc = new_floats(c, EN_MEM_GRADS, z->block[0].padded, &c->tied, err);
	return rc;
}

/* ---- activations ---- */

/* With nothing to train, no pass goes back: a layer's input gives way to its output's. */
static bool goes_back(const struct en_cpu *c)
{
	return c->z.model->trained;
}

static bool has_two_streams(const struct en_cpu *c)
{
	return c->packed || !goes_back(c);
}

static bool keeps_one(const struct en_cpu *c)
{
	return c->packed || c->z.opts.recompute || !goes_back(c);
}

static int new_act(struct en_cpu *c, size_t bytes, void *out, struct ckpt_err *err)
{
	return en_mem_new(&c->z.mem, EN_MEM_ACTIVATIONS, bytes, out, err);
}

static int new_streams(struct en_cpu *c, const struct en_exec_size *size, struct ckpt_err *err)
{
	const uint32_t layers = c->z.model->config.layers;
	int rc = 0;

	for (uint32_t i = 0; !rc && i <= layers; i++) {
		if (has_two_streams(c) && i > 1)
			c->x[i] = c->x[i - 2];
		else
			rc = new_act(c, size->stream, &c->x[i], err);
	}
	if (!rc && c->packed && goes_back(c) && c->z.opts.recompute && layers > 1)
		rc = new_act(c, size->stream, &c->again, err);
	return rc;
}

/* The last layer's way back begins while all that it keeps is still there. */
static int new_kept(struct en_cpu *c, const struct en_exec_size *size, struct ckpt_err *err)
{
	const uint32_t layers = c->z.model->config.layers;
	const size_t away = c->z.opts.recompute ? size->packed_input : size->packed;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < layers; i++) {
		if (i && keeps_one(c))
			c->saved[i] = c->saved[0];
		else
			rc = new_act(c, size->saved, &c->saved[i], err);
	}
	for (uint32_t i = 0; !rc && c->packed && goes_back(c) && i + 1 < layers; i++)
		rc = new_act(c, away, &c->away[i], err);
	return rc;
}

static int new_acts(struct en_cpu *c, const struct en_exec_opts *opts, struct ckpt_err *err)
{
	const uint32_t layers = c->z.model->config.layers;
	struct en_exec_size size;
	int rc;

	c->packed = c->z.opts.type != KN_F32;
	c->x = ck_zalloc((layers + 1) * sizeof(*c->x));
	c->saved = ck_zalloc((layers + 1) * sizeof(*c->saved));
	c->away = ck_zalloc((layers + 1) * sizeof(*c->away));
	if (!c->x || !c->saved || !c->away)
		return ck_fail_nomem(err, "activations", layers);
	en_exec_expect(c->z.model, opts, &size);
	rc = new_streams(c, &size, err);
	return rc ? rc : new_kept(c, &size, err);
}

static void free_acts(struct en_cpu *c)
{
	const uint32_t layers = c->z.model->config.layers;
	const bool one = keeps_one(c);

	for (uint32_t i = 0; c->x && i <= (has_two_streams(c) ? 1 : layers); i++)
		en_mem_free(&c->z.mem, EN_MEM_ACTIVATIONS, c->x[i]);
	for (uint32_t i = 0; c->saved && i < (one ? 1 : layers); i++)
		en_mem_free(&c->z.mem, EN_MEM_ACTIVATIONS, c->saved[i]);
	for (uint32_t i = 0; c->away && i < layers; i++)
		en_mem_free(&c->z.mem, EN_MEM_ACTIVATIONS, c->away[i]);
	en_mem_free(&c->z.mem, EN_MEM_ACTIVATIONS, c->again);
	ck_free(c->x);
	ck_free(c->saved);
	ck_free(c->away);
}

/* ---- life ---- */

static int new_sums(struct en_cpu *c, struct ckpt_err *err)
{
	const uint64_t bytes = c->z.nsums * sizeof(double);
	int rc = en_mem_new(&c->z.mem, EN_MEM_COLLECTIVES, bytes, &c->sums, err);

	return rc ? rc : en_mem_new(&c->z.mem, EN_MEM_COLLECTIVES, 2 * bytes * c->z.comm->size,
				    &c->all_sums, err);
}

static int make(struct en_cpu *c, struct ckpt_err *err)
{
	const struct en_zero_opts *o = &c->z.opts;
	const struct en_exec_opts eo = {
		.rows = o->rows, .tokens = o->tokens, .type = o->type, .threads = o->threads,
	};
	int rc = en_exec_new(c->z.model, &eo, &c->exec, err);

	if (rc)
		return rc;
	en_mem_note(&c->z.mem, EN_MEM_WORK, (int64_t)en_exec_bytes(c->exec));
	c->z.pool = en_exec_pool(c->exec);
	rc = new_blocks(c, err);
	if (!rc && o->nvme.dir)
		rc = en_zero_new_off(&c->z, o->type != KN_F32, err);
	if (!rc)
		rc = new_gathers(c, err);
	if (!rc)
		rc = new_reduces(c, err);
	if (!rc)
		rc = new_acts(c, &eo, err);
	if (!rc)
		rc = en_zero_cut_pieces(&c->z, err);
	return rc ? rc : new_sums(c, err);
}

/* MPI moves data while it is called: what is in flight advances between the jobs of a layer. */
static void keep_moving(void *arg)
{
	struct en_zero *z = arg;
	struct en_collective *none = NULL;

	/* a failure stays in the table, and the waiting caller reports it */
	(void)en_comm_test(z->comm, &none, NULL);
}

static void free_cpu(struct en_zero *z)
{
	struct en_cpu *c = en_cpu_of(z);

	for (uint32_t i = 0; z->gather && i < z->slots.n; i++)
		en_mem_free(&z->mem, EN_MEM_GATHERED, z->gather[i].p);
	for (uint32_t i = 0; i < EN_ZERO_REDUCES; i++)
		en_mem_free(&z->mem, EN_MEM_GRADS, c->reduce[i].grads);
	en_mem_free(&z->mem, EN_MEM_GRADS, c->tied);
	free_acts(c);
	for (uint32_t i = 0; z->block && i < z->model->nblocks; i++)
		free_block(c, i);
	en_mem_free(&z->mem, EN_MEM_COLLECTIVES, c->sums);
	en_mem_free(&z->mem, EN_MEM_COLLECTIVES, c->all_sums);
	en_exec_free(c->exec);
	ck_free(c->gather);
	ck_free(c->block);
	en_zero_release_shared(z);
	ck_free(c);
}

static const struct en_zero_backend cpu = {
	.name = "cpu", .free = free_cpu, .trace = en_cpu_trace,
	.gather_begin = en_cpu_gather_begin, .gather_wait = en_cpu_gather_wait,
	.grad_buffer = en_cpu_grad_buffer, .reduce_begin = en_cpu_reduce_begin,
	.embed_forward = en_cpu_embed_forward, .layer_forward = en_cpu_layer_forward,
	.head = en_cpu_head, .layer_backward = en_cpu_layer_backward,
	.embed_backward = en_cpu_embed_backward, .pass_end = en_cpu_pass_end,
	.frozen_share = en_cpu_frozen_share,
	.norm_begin = en_cpu_norm_begin, .norm_order = en_cpu_norm_order,
	.norm_end = en_cpu_norm_end,
	.update_begin = en_cpu_update_begin, .update_block = en_cpu_update_block,
	.tile_begin = en_cpu_tile_begin, .adam = en_adam_host, .cast = en_adam_host_cast,
	.sync_block = en_cpu_sync_block, .update_end = en_cpu_update_end,
};

int en_zero_cpu_new(const struct en_model *model, struct en_comm *comm,
		    const struct en_zero_opts *opts, const struct en_zero_rule *rule,
		    struct en_zero **z_out, struct ckpt_err *err)
{
	struct en_cpu *c;
	int rc = en_zero_check(opts, err);

	if (rc)
		return rc;
	c = ck_zalloc(sizeof(*c));
	if (!c)
		return ck_fail_nomem(err, "a training state", sizeof(*c));
	c->z = (struct en_zero){
		.backend = &cpu, .model = model, .comm = comm, .opts = *opts, .rule = *rule,
		.moves_by_comm = true, .grad_type = KN_F32, .sums_of_all = true,
	};
	rc = make(c, err);
	if (rc) {
		free_cpu(&c->z);
		return rc;
	}
	if (comm->size > 1)
		en_pool_watch(c->z.pool, keep_moving, &c->z);
	*z_out = &c->z;
	return 0;
}
