/* zero_step.c -- the optimizer's step, and parameters that follow masters which were set. */
#include "engine/zero/en_zero_backend.h"
#include "libckpt/base/ck_base.h"

/* Neighbours of one group are one run. */
static int adam_runs(struct en_adam *a, struct ckpt_err *err)
{
	struct en_zero *z = a->z;
	const struct en_block *info = &z->model->block[a->block];
	uint64_t from = 0, to = 0;
	uint32_t group = 0;
	int rc = 0;

	for (uint32_t i = info->first; !rc && i < info->first + info->count; i++) {
		const struct en_param *p = &z->model->param[i];
		const uint64_t b = ck_max_u64(a->base, p->offset),
			       e = ck_min_u64(a->base + a->n, p->offset + p->numel);
		const uint32_t g = en_zero_group_of(z, i);

		if (p->frozen || b >= e)
			continue;
		if (from < to && (g != group || b - a->base != to)) {
			rc = z->backend->adam(a, group, from, to, err);
			from = to;
		}
		if (from == to)
			from = b - a->base;
		to = e - a->base;
		group = g;
	}
	return rc || from == to ? rc : z->backend->adam(a, group, from, to, err);
}

static int update_part(struct en_adam *a, struct ckpt_err *err)
{
	if (a->hyper)
		return adam_runs(a, err);
	return a->copy ? a->z->backend->cast(a, err) : 0;
}

/* States outside the block: those in a file are brought, and written again. */
static int update_tile(struct en_adam *a, uint64_t t, struct ckpt_err *err)
{
	struct en_zero *z = a->z;
	const struct en_zero_block *b = &z->block[a->block];
	const struct en_offloader_tile *tile = en_offloader_tile(z->off, t);
	struct en_offloader_state s;
	int rc = z->backend->tile_begin(a, t, tile->first, err);

	if (!rc)
		rc = en_offloader_read(z->off, t, a->hyper ? EN_OFFLOADER_ALL :
				       EN_OFFLOADER_MASTERS, false, &s, err);
	if (rc)
		return rc;
	a->base = z->comm->rank * b->shard + tile->first;
	a->n = tile->n;
	a->master = s.master ? s.master : b->master + tile->first;
	a->exp_avg = s.exp_avg;
	a->exp_avg_sq = s.exp_avg_sq;
	rc = update_part(a, err);
	if (!rc && a->hyper)
		en_offloader_write(z->off, t, EN_OFFLOADER_ALL);
	return rc || !z->backend->tile_end ? rc : z->backend->tile_end(a, t, err);
}

static int update_tiles(struct en_adam *a, struct ckpt_err *err)
{
	const struct en_offloader *off = a->z->off;
	const uint64_t end = en_offloader_first(off, a->block + 1);
	int rc = 0;

	for (uint64_t t = en_offloader_first(off, a->block); !rc && t < end; t++)
		rc = update_tile(a, t, err);
	return rc;
}

static int update_block(struct en_adam *a, struct ckpt_err *err)
{
	struct en_zero *z = a->z;
	const struct en_zero_block *b = &z->block[a->block];
	int rc = z->backend->update_block ? z->backend->update_block(a, err) : 0;

	if (rc)
		return rc;
	if (z->off) {
		rc = update_tiles(a, err);
	} else {
		a->base = z->opts.stage ? z->comm->rank * b->shard : 0;
		a->n = en_zero_updated(z, b);
		a->master = b->master;
		a->exp_avg = b->exp_avg;
		a->exp_avg_sq = b->exp_avg_sq;
		rc = update_part(a, err);
	}
	return rc ? rc : z->backend->sync_block(a, err);
}

static int update_all(struct en_adam *a, struct ckpt_err *err)
{
	struct en_zero *z = a->z;
	int rc = z->backend->update_begin(a, err);

	for (a->block = 0; !rc && a->block < z->model->nblocks; a->block++)
		rc = update_block(a, err);
	return rc ? rc : z->backend->update_end(a, err);
}

int en_zero_update(struct en_zero *z, const struct en_zero_hyper *hyper, uint64_t k,
		   float grad_scale, struct ckpt_err *err)
{
	struct en_adam a = { .z = z, .hyper = hyper, .k = k, .grad_scale = grad_scale };

	return update_all(&a, err);
}

int en_zero_sync_params(struct en_zero *z, struct ckpt_err *err)
{
	struct en_adam a = { .z = z };
	int rc = update_all(&a, err);

	for (uint32_t i = 0; !rc && z->opts.stage < 3 && i < z->model->nblocks; i++)
		if (z->block[i].fnumel)
			rc = z->backend->frozen_share(z, i, err);
	en_zero_file_free_buffer(z);
	return rc;
}
