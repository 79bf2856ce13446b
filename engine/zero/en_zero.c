/* en_zero.c -- see en_zero.h: what the backends have alike. */
#include "engine/zero/en_zero_backend.h"

#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

/* ---- options and sizes ---- */

int en_zero_check(const struct en_zero_opts *o, struct ckpt_err *err)
{
	if (o->stage > 3 || !o->micro_batches || o->micro_batches >= 1u << (EN_ZERO_LEVELS - 1))
		return ck_fail(
			err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			"ZeRO stage %u with %u micro-batches per step; expected stage 0 to 3",
			o->stage, o->micro_batches);
	if (o->wire != KN_F32 && o->wire != o->type)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "gradients can be sent in the compute type or in fp32");
	if (o->as_deepspeed && o->type != KN_F16)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "--overflow deepspeed needs fp16");
	if (o->as_deepspeed && o->wire != KN_F16)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "--overflow deepspeed sums in fp16, but gradients are sent in fp32");
	if (o->nvme.dir && (!o->stage || !o->host_optimizer))
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "states on NVMe need an offloaded optimizer and stage 1 to 3");
	if (o->off_tile % EN_ZERO_CHUNK)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "tiles of %llu elements; expected a multiple of %u",
			       (unsigned long long)o->off_tile, EN_ZERO_CHUNK);
	return 0;
}

uint64_t en_zero_padded(const struct en_model *model, uint32_t block, uint32_t size)
{
	return ck_zt_padded(model->block[block].numel, size);
}

uint64_t en_zero_room(const struct en_model *model, uint32_t block, uint32_t size)
{
	return en_zero_padded(model, block, size) + ck_zt_padded(model->block[block].frozen, size);
}

int en_zero_new_blocks(struct en_zero *z, struct ckpt_err *err)
{
	z->block = ck_zalloc(z->model->nblocks * sizeof(*z->block));
	if (!z->block)
		return ck_fail_nomem(err, "blocks", z->model->nblocks);
	for (uint32_t i = 0; i < z->model->nblocks; i++) {
		struct en_zero_block *b = &z->block[i];

		b->numel = z->model->block[i].numel;
		b->padded = en_zero_padded(z->model, i, z->comm->size);
		b->shard = b->padded / z->comm->size;
		b->fnumel = z->model->block[i].frozen;
		b->fpadded = ck_zt_padded(b->fnumel, z->comm->size);
		b->fshard = b->fpadded / z->comm->size;
		b->first_sum = z->nsums;
		z->nsums += b->shard / EN_ZERO_CHUNK;
	}
	return 0;
}

void en_zero_release_shared(struct en_zero *z)
{
	en_zero_file_free_buffer(z);
	en_offloader_free(z->off);
	en_zero_slots_release(&z->slots);
	ck_free(z->gather);
	ck_free(z->block);
	ck_free(z->piece);
	ck_free(z->frozen);
}

/* ---- this rank's pieces ---- */

uint32_t en_zero_groups(const struct en_zero *z)
{
	return z->rule.one_group || !z->model->both_groups ? 1 : 2;
}

/* Of one group that is made by decay alone, all are as its first. */
bool en_zero_group_decays(const struct en_zero *z, uint32_t group)
{
	if (z->rule.one_group || z->model->both_groups)
		return !group;
	for (uint32_t i = 0; i < z->model->nparams; i++)
		if (!z->model->param[i].frozen)
			return z->model->param[i].decay;
	return true;
}

uint32_t en_zero_group_of(const struct en_zero *z, uint32_t param)
{
	return en_zero_groups(z) == 1 || z->model->param[param].decay ? 0 : 1;
}

bool en_zero_is_remote(const struct en_zero *z)
{
	return z->off ? en_offloader_is_file(z->off) : z->backend->get != NULL;
}

/* What the host has of a block's states; at stage 0 of the whole block. */
static struct en_offloader_state host_state(const struct en_zero *z, uint32_t block)
{
	const struct en_zero_block *b = &z->block[block];

	if (en_zero_is_remote(z))
		return (struct en_offloader_state){ NULL, NULL, NULL };
	if (z->off)
		return en_offloader_block(z->off, block);
	return (struct en_offloader_state){ b->master, b->exp_avg, b->exp_avg_sq };
}

/* The same of a frozen one: it has no states. */
static void add_frozen(struct en_zero *z, uint32_t param)
{
	const struct en_param *p = &z->model->param[param];
	const uint64_t shard = z->block[p->block].fshard, base = z->comm->rank * shard;
	const uint64_t from = ck_max_u64(base, p->offset),
		       to = ck_min_u64(base + shard, p->offset + p->numel);

	if (from < to)
		z->frozen[z->nfrozen++] = (struct en_zero_piece){
			.param = param, .block = p->block, .first = from - p->offset,
			.count = to - from, .at = from - base,
		};
}

/* The part of a parameter in this rank's shard of its block, if any. */
static void add_piece(struct en_zero *z, uint32_t param)
{
	const struct en_param *p = &z->model->param[param];
	const struct en_offloader_state s = host_state(z, p->block);
	const uint64_t shard = z->block[p->block].shard, base = z->comm->rank * shard;
	const uint64_t from = ck_max_u64(base, p->offset),
		       to = ck_min_u64(base + shard, p->offset + p->numel);
	const uint64_t at = z->opts.stage ? from - base : from;

	if (from >= to)
		return;
	z->piece[z->npieces++] = (struct en_zero_piece){
		.param = param, .block = p->block, .first = from - p->offset, .count = to - from,
		.at = from - base, .master = s.master ? s.master + at : NULL,
		.exp_avg = s.exp_avg ? s.exp_avg + at : NULL,
		.exp_avg_sq = s.exp_avg_sq ? s.exp_avg_sq + at : NULL,
	};
}

int en_zero_cut_pieces(struct en_zero *z, struct ckpt_err *err)
{
	z->piece = ck_alloc_array(z->model->nparams + 1ull, sizeof(*z->piece));
	z->frozen = ck_alloc_array(z->model->nparams + 1ull, sizeof(*z->frozen));
	if (!z->piece || !z->frozen)
		return ck_fail_nomem(err, "pieces", z->model->nparams);
	for (uint32_t i = 0; i < z->model->nparams; i++)
		(z->model->param[i].frozen ? add_frozen : add_piece)(z, i);
	return 0;
}

const struct en_zero_piece *en_zero_frozen(const struct en_zero *z, uint64_t *n_out)
{
	*n_out = z->nfrozen;
	return z->frozen;
}

const struct en_zero_piece *en_zero_pieces(const struct en_zero *z, uint64_t *n_out)
{
	*n_out = z->npieces;
	return z->piece;
}

/* ---- random weights ---- */

/* Elements of a job. */
#define JOB ((uint64_t)64 << 10)

struct init {
	const struct en_model *model;
	const struct en_zero_piece *p;
	uint64_t seed;
};

static void init_job(void *arg, size_t job, uint32_t thread)
{
	const struct init *in = arg;
	const struct en_zero_piece *p = in->p;
	const uint64_t from = job * JOB, n = ck_min_u64(JOB, p->count - from);

	(void)thread;
	en_model_init(in->model, p->param, in->seed, p->first + from, n, p->master + from);
	memset(p->exp_avg + from, 0, n * sizeof(float));
	memset(p->exp_avg_sq + from, 0, n * sizeof(float));
}

void en_zero_init_piece(const struct en_zero *z, const struct en_zero_piece *p, uint64_t seed)
{
	struct init in = { z->model, p, seed };
	const size_t jobs = (p->count + JOB - 1) / JOB;

	if (z->pool)
		en_pool_run(z->pool, jobs, init_job, &in);
	for (size_t i = 0; !z->pool && i < jobs; i++)
		init_job(&in, i, 0);
}

int en_zero_init(struct en_zero *z, uint64_t seed, struct ckpt_err *err)
{
	int rc = en_zero_init_frozen(z, seed, err);

	if (rc)
		return rc;
	if (en_zero_is_remote(z))
		return (z->off ? en_zero_file_init : z->backend->init)(z, seed, err);
	for (uint64_t i = 0; i < z->npieces; i++)
		en_zero_init_piece(z, &z->piece[i], seed);
	return 0;
}

/* ---- the state as it is ---- */

/* Padding belongs to no piece: it is zero. */
int en_zero_read(struct en_zero *z, const struct en_zero_slice *s, float *to, struct ckpt_err *err)
{
	if (en_zero_is_remote(z))
		return (z->off ? en_zero_file_get : z->backend->get)(z, s, to, err);
	memset(to, 0, s->n * sizeof(float));
	for (uint64_t i = 0; i < z->npieces; i++) {
		const struct en_zero_piece *p = &z->piece[i];
		const uint64_t from = ck_max_u64(s->at, p->at),
			       end = ck_min_u64(s->at + s->n, p->at + p->count);

		if (p->block == s->block && from < end)
			memcpy(to + (from - s->at),
			       en_zero_memory_of(p, s->state) + (from - p->at),
			       (end - from) * sizeof(float));
	}
	return 0;
}

int en_zero_load_buffer(struct en_zero *z, uint32_t turn, float **buffer_out,
			uint64_t *elements_out, struct ckpt_err *err)
{
	return (z->off ? en_zero_file_buffer : z->backend->load_buffer)(z, turn, buffer_out,
									 elements_out, err);
}

int en_zero_load_send(struct en_zero *z, const struct en_zero_slice *s, const float *from,
		      struct ckpt_err *err)
{
	return (z->off ? en_zero_file_send : z->backend->load_send)(z, s, from, err);
}

const char *en_zero_drive(const struct en_zero *z)
{
	return z->off ? en_offloader_text(z->off) : "";
}

/* ---- copies for saves ---- */

int en_zero_snap_new(struct en_zero *z, uint64_t bytes, uint32_t threads, bool *has_out,
		     struct ckpt_err *err)
{
	*has_out = z->backend->snap_new != NULL;
	return z->backend->snap_new ? z->backend->snap_new(z, bytes, threads, err) : 0;
}

int en_zero_snap_begin(struct en_zero *z, struct ckpt_err *err)
{
	return z->backend->snap_begin(z, err);
}

int en_zero_snap_start(struct en_zero *z, struct ckpt_err *err)
{
	return z->backend->snap_start(z, err);
}

int en_zero_snap_next(struct en_zero *z, struct en_zero_copied *out, struct ckpt_err *err)
{
	return z->backend->snap_next(z, out, err);
}

void en_zero_snap_end(struct en_zero *z)
{
	z->backend->snap_end(z);
}

/* ---- what is held ---- */

/*
 * Scratch memory of collectives is kept for the next one, so it is at its peak.  Of a rank on a GPU
 * it is none of the GPU's: the table carries a few numbers there.
 */
const struct en_mem *en_zero_mem(struct en_zero *z)
{
	const uint64_t scratch = z->moves_by_comm ? z->comm->scratch_peak : 0;

	en_mem_note(&z->mem, EN_MEM_COLLECTIVES, (int64_t)(scratch - z->scratch));
	z->scratch = scratch;
	return &z->mem;
}

void en_zero_note(struct en_zero *z, enum en_mem_kind kind, int64_t bytes)
{
	en_mem_note(&z->mem, kind, bytes);
}

enum kn_type en_zero_type(const struct en_zero *z)
{
	return z->opts.type;
}

/* ---- the backend's ---- */

int en_zero_trace(struct en_zero *z, struct en_trace *t, struct ckpt_err *err)
{
	return z->backend->trace(z, t, err);
}

void en_zero_free(struct en_zero *z)
{
	if (z)
		z->backend->free(z);
}
