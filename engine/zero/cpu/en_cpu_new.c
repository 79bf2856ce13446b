/* en_cpu_new.c -- memory of every stage, taken once; nothing is allocated in a step. */
#include <string.h>

#include "engine/zero/cpu/en_cpu_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

static int new_floats(struct en_zero *z, enum en_mem_kind kind, uint64_t n, float **out,
		      struct ckpt_err *err)
{
	return en_mem_new(&z->mem, kind, n * sizeof(float), out, err);
}

/* ---- blocks ---- */

static int new_params(struct en_zero *z, struct zb *b, struct ckpt_err *err)
{
	const uint64_t es = kn_type_size(z->opts.type);
	int rc;

	if (z->opts.stage == 3)
		return en_mem_new(&z->mem, en_zero_param_kind(&z->opts), b->shard * es, &b->own,
				  err);
	rc = en_mem_new(&z->mem, EN_MEM_PARAMS, b->padded * es, &b->params, err);
	if (!rc)
		b->own = (uint8_t *)b->params + z->comm->rank * b->shard * es;
	return rc;
}

/* In fp32 the parameters themselves are the masters. */
static int new_optimizer(struct en_zero *z, struct zb *b, struct ckpt_err *err)
{
	const enum en_mem_kind kind = en_zero_optimizer_kind(&z->opts);
	const uint64_t n = en_zb_updated(z, b);
	int rc = 0;

	if (z->opts.type == KN_F32)
		b->master = z->opts.stage ? b->own : b->params;
	if (z->opts.nvme.dir)
		return 0;
	if (z->opts.type != KN_F32)
		rc = new_floats(z, kind, n, &b->master, err);
	if (!rc)
		rc = new_floats(z, kind, n, &b->m, err);
	return rc ? rc : new_floats(z, kind, n, &b->v, err);
}

static int new_block(struct en_zero *z, uint32_t number, struct ckpt_err *err)
{
	struct zb *b = &z->block[number];
	int rc;

	b->numel = z->model->block[number].numel;
	b->padded = en_zero_padded(z->model, number, z->comm->size);
	b->shard = b->padded / z->comm->size;
	z->nsums += b->shard / EN_ZERO_CHUNK;
	rc = new_params(z, b, err);
	if (!rc)
		rc = new_optimizer(z, b, err);
	if (!rc && z->opts.stage < 2)
		rc = new_floats(z, EN_MEM_GRADS, b->padded, &b->grads, err);
	for (uint32_t k = 0; !rc && k < z->levels; k++)
		rc = new_floats(z, EN_MEM_GRADS, b->shard, &b->sum[k], err);
	return rc;
}

static void free_block(struct en_zero *z, struct zb *b)
{
	const enum en_mem_kind kind = en_zero_optimizer_kind(&z->opts);

	if (z->opts.type != KN_F32)
		en_mem_free(&z->mem, kind, b->master);
	en_mem_free(&z->mem, kind, b->m);
	en_mem_free(&z->mem, kind, b->v);
	en_mem_free(&z->mem, en_zero_param_kind(&z->opts),
		    z->opts.stage == 3 ? b->own : b->params);
	en_mem_free(&z->mem, EN_MEM_GRADS, b->grads);
	for (uint32_t k = 0; k < EN_ZERO_LEVELS; k++)
		en_mem_free(&z->mem, EN_MEM_GRADS, b->sum[k]);
}

/* ---- what moves ---- */

/* Padded elements of the largest block of a room; without what a tied model has apart. */
static uint64_t room_of_gather(const struct en_zero *z, uint32_t room)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < z->model->nblocks; i++)
		if (en_zero_gather_of(z->model, i) == room)
			n = ck_max_u64(n, z->block[i].padded);
	return n;
}

static uint64_t room_of_reduce(const struct en_zero *z, uint32_t room)
{
	uint64_t n = 0;

	for (uint32_t i = z->model->config.tied; i < z->model->nblocks; i++)
		if (i % EN_ZERO_REDUCES == room)
			n = ck_max_u64(n, z->block[i].padded);
	return n;
}

static int new_moves(struct en_zero *z, struct ckpt_err *err)
{
	const uint64_t es = kn_type_size(z->opts.type);
	int rc = 0;

	for (uint32_t i = 0; i < EN_ZERO_GATHERS; i++)
		z->gather[i].block = -1;
	for (uint32_t i = 0; i < EN_ZERO_REDUCES; i++)
		z->reduce[i].block = -1;
	for (uint32_t i = 0; !rc && z->opts.stage == 3 && i < EN_ZERO_GATHERS; i++)
		rc = en_mem_new(&z->mem, EN_MEM_GATHERED, room_of_gather(z, i) * es,
				&z->gather[i].p, err);
	for (uint32_t i = 0; !rc && z->opts.stage >= 2 && i < EN_ZERO_REDUCES; i++)
		rc = new_floats(z, EN_MEM_GRADS, room_of_reduce(z, i), &z->reduce[i].grads, err);
	if (!rc && z->model->config.tied && z->opts.stage >= 2)
		rc = new_floats(z, EN_MEM_GRADS, z->block[0].padded, &z->tied, err);
	return rc;
}

/* ---- activations ---- */

static int new_act(struct en_zero *z, size_t bytes, void *out, struct ckpt_err *err)
{
	return en_mem_new(&z->mem, EN_MEM_ACTIVATIONS, bytes, out, err);
}

static int new_streams(struct en_zero *z, const struct en_exec_size *size, struct ckpt_err *err)
{
	const uint32_t layers = z->model->config.layers;
	int rc = 0;

	for (uint32_t i = 0; !rc && i <= layers; i++) {
		if (z->packed && i > 1)
			z->x[i] = z->x[i - 2];
		else
			rc = new_act(z, size->stream, &z->x[i], err);
	}
	if (!rc && z->packed && z->opts.recompute && layers > 1)
		rc = new_act(z, size->stream, &z->again, err);
	return rc;
}

/* The last layer's way back begins while all that it keeps is still there. */
static int new_kept(struct en_zero *z, const struct en_exec_size *size, struct ckpt_err *err)
{
	const uint32_t layers = z->model->config.layers;
	const size_t away = z->opts.recompute ? size->packed_input : size->packed;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < layers; i++) {
		if (i && (z->packed || z->opts.recompute))
			z->saved[i] = z->saved[0];
		else
			rc = new_act(z, size->saved, &z->saved[i], err);
	}
	for (uint32_t i = 0; !rc && z->packed && i + 1 < layers; i++)
		rc = new_act(z, away, &z->away[i], err);
	return rc;
}

static int new_acts(struct en_zero *z, const struct en_exec_opts *opts, struct ckpt_err *err)
{
	const uint32_t layers = z->model->config.layers;
	struct en_exec_size size;
	int rc;

	z->packed = z->opts.type != KN_F32;
	z->x = ck_zalloc((layers + 1) * sizeof(*z->x));
	z->saved = ck_zalloc((layers + 1) * sizeof(*z->saved));
	z->away = ck_zalloc((layers + 1) * sizeof(*z->away));
	if (!z->x || !z->saved || !z->away)
		return ck_fail_nomem(err, "activations", layers);
	en_exec_expect(z->model, opts, &size);
	rc = new_streams(z, &size, err);
	return rc ? rc : new_kept(z, &size, err);
}

static void free_acts(struct en_zero *z)
{
	const uint32_t layers = z->model->config.layers;
	const bool one = z->packed || z->opts.recompute;

	for (uint32_t i = 0; z->x && i <= (z->packed ? 1 : layers); i++)
		en_mem_free(&z->mem, EN_MEM_ACTIVATIONS, z->x[i]);
	for (uint32_t i = 0; z->saved && i < (one ? 1 : layers); i++)
		en_mem_free(&z->mem, EN_MEM_ACTIVATIONS, z->saved[i]);
	for (uint32_t i = 0; z->away && i < layers; i++)
		en_mem_free(&z->mem, EN_MEM_ACTIVATIONS, z->away[i]);
	en_mem_free(&z->mem, EN_MEM_ACTIVATIONS, z->again);
	ck_free(z->x);
	ck_free(z->saved);
	ck_free(z->away);
}

/* ---- this rank's pieces ---- */

static int new_pieces(struct en_zero *z, struct ckpt_err *err)
{
	struct en_zero_where *where = ck_alloc_array(z->model->nblocks, sizeof(*where));
	int rc = where ? 0 : ck_fail_nomem(err, "blocks", z->model->nblocks);

	for (uint32_t i = 0; where && i < z->model->nblocks; i++) {
		const struct zb *b = &z->block[i];

		where[i] = (struct en_zero_where){ b->master, b->m, b->v, b->shard };
		if (z->off)	/* in fp32 the masters are in memory, and yet one way is for all */
			where[i].master = NULL;
	}
	if (!rc)
		rc = en_zero_cut_pieces(z, where, err);
	ck_free(where);
	return rc;
}

/* ---- life ---- */

static int make(struct en_zero *z, struct ckpt_err *err)
{
	const struct en_exec_opts eo = {
		.rows = z->opts.rows, .tokens = z->opts.tokens, .type = z->opts.type,
		.threads = z->opts.threads,
	};
	int rc = en_exec_new(z->model, &eo, &z->exec, err);

	if (rc)
		return rc;
	en_mem_note(&z->mem, EN_MEM_WORK, (int64_t)en_exec_bytes(z->exec));
	z->pool = en_exec_pool(z->exec);
	z->levels = ck_zt_levels(z->opts.stage, z->opts.units);
	z->block = ck_zalloc(z->model->nblocks * sizeof(*z->block));
	if (!z->block)
		return ck_fail_nomem(err, "blocks", z->model->nblocks);
	for (uint32_t i = 0; !rc && i < z->model->nblocks; i++)
		rc = new_block(z, i, err);
	if (!rc && z->opts.nvme.dir)
		rc = en_zero_new_off(z, z->opts.type != KN_F32, err);
	if (!rc)
		rc = new_moves(z, err);
	if (!rc)
		rc = new_acts(z, &eo, err);
	if (!rc)
		rc = new_pieces(z, err);
	if (!rc)
		rc = en_mem_new(&z->mem, EN_MEM_COLLECTIVES, z->nsums * sizeof(double), &z->sums,
				err);
	return rc ? rc : en_mem_new(&z->mem, EN_MEM_COLLECTIVES,
				    2 * z->nsums * z->comm->size * sizeof(double), &z->all_sums,
				    err);
}

/* MPI moves data while it is called: what is in flight goes on between the jobs of a layer. */
static void keep_moving(void *arg)
{
	struct en_zero *z = arg;
	struct en_comm_work *none = NULL;

	/* a failure stays in the table, and is told by whoever waits */
	(void)en_comm_test(z->comm, &none, NULL);
}

static const struct en_zero_ops cpu = {
	.name = "cpu", .free = en_cpu_free, .publish = en_cpu_publish, .unit = en_cpu_unit,
	.eval = en_cpu_eval, .norm = en_cpu_norm, .update = en_cpu_update,
	.trace = en_cpu_trace,
};

/* Masters and moments in a file. */
static const struct en_zero_ops cpu_file = {
	.name = "cpu", .free = en_cpu_free, .init = en_zero_file_init,
	.publish = en_cpu_publish, .unit = en_cpu_unit, .eval = en_cpu_eval,
	.norm = en_cpu_norm, .update = en_cpu_update, .get = en_zero_file_get,
	.room = en_zero_file_room, .send = en_zero_file_send, .trace = en_cpu_trace,
};

int en_zero_cpu_new(const struct en_model *model, struct en_comm *comm,
		    const struct en_zero_opts *opts, const struct en_zero_rule *rule,
		    struct en_zero **z_out, struct ckpt_err *err)
{
	struct en_zero *z;
	int rc = en_zero_check(opts, err);

	if (rc)
		return rc;
	z = ck_zalloc(sizeof(*z));
	if (!z)
		return ck_fail_nomem(err, "a training state", sizeof(*z));
	z->ops = opts->nvme.dir ? &cpu_file : &cpu;
	z->model = model;
	z->comm = comm;
	z->opts = *opts;
	z->rule = *rule;
	rc = make(z, err);
	if (rc) {
		en_zero_free(z);
		return rc;
	}
	if (comm->size > 1)
		en_pool_watch(en_exec_pool(z->exec), keep_moving, z);
	*z_out = z;
	return 0;
}

void en_cpu_free(struct en_zero *z)
{
	for (uint32_t i = 0; i < EN_ZERO_GATHERS; i++)
		en_mem_free(&z->mem, EN_MEM_GATHERED, z->gather[i].p);
	for (uint32_t i = 0; i < EN_ZERO_REDUCES; i++)
		en_mem_free(&z->mem, EN_MEM_GRADS, z->reduce[i].grads);
	en_mem_free(&z->mem, EN_MEM_GRADS, z->tied);
	free_acts(z);
	for (uint32_t i = 0; z->block && i < z->model->nblocks; i++)
		free_block(z, &z->block[i]);
	en_offloader_free(z->off);
	ck_free(z->block);
	ck_free(z->piece);
	en_zero_free_file_room(z);
	en_mem_free(&z->mem, EN_MEM_COLLECTIVES, z->sums);
	en_mem_free(&z->mem, EN_MEM_COLLECTIVES, z->all_sums);
	en_exec_free(z->exec);
	ck_free(z);
}
