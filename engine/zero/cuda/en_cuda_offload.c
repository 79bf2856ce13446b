/*
 * en_cuda_offload.c -- masters and moments on the host, updated by its cores; and parameters of
 * stage 3 there.
 *
 * States are ordinary memory of the host, or a file (en_offloader.h): they never go to the GPU,
 * so they need not be pinned. What goes, tile by tile, are the gradient's sums, down, and the
 * parameters, up, through a few pinned slots:
 *
 *	down	the sums of tile t + TILES - 1 and before, on a stream of its own
 *	cores	tile t, when its sums are there and the parameters of tile t - TILES have left the
 *		slot
 *	up	the parameters of tile t - 1 and before, on a stream of its own; at stages 1 and 2
 *		of several ranks a block is gathered when its last tile is up
 *
 * Sums are made on the GPU, over ranks and over micro-batches, and stay there until the norm is
 * known, since clipping needs it: the cores read and write 28 bytes an element, the bus carries 2
 * to 8, so that copies which begin with the update overlap with it all the same, and the host needs
 * no room for a whole gradient.
 *
 * Parameters of the host (stage 3): a pinned shard of each block, which the update writes, and one
 * of what is frozen in it. A gather copies both to their places in the slot of the gather first.
 */
#include <string.h>

#include "engine/zero/cuda/en_cuda_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define TILES 4u

struct slot {
	void *grads;		/* of en_cuda.sum_type */
	void *copy;		/* of opts.type; NULL where parameters stay on the host */
	cudaEvent_t there;	/* the gradients have come down */
	cudaEvent_t gone;	/* the copy has gone up */
};

struct en_cuda_off {
	cudaStream_t down, up;
	cudaEvent_t by;		/* of streams that wait for each other */
	struct en_pool *pool;
	struct slot slot[TILES];
	void **own;		/* [nown]: pinned parameters, trained or frozen */
	uint32_t nown;
};

/* ---- memory ---- */

static int pinned(struct en_cuda *c, enum en_mem_kind kind, uint64_t bytes, void *p_out,
		  struct ckpt_err *err)
{
	int rc = 0;

	if (!c->expects)
		rc = (int)cudaMallocHost((void **)p_out, bytes ? bytes : 1);
	if (rc == (int)cudaErrorMemoryAllocation) {
		cudaGetLastError();
		return ck_fail(err, CKPT_E_NOMEM, "GPU", CKPT_NO_OFFSET,
			       "cannot allocate %llu MiB of pinned host memory for %s",
			       (unsigned long long)bytes >> 20, en_mem_name(kind));
	}
	if (rc)
		return en_cuda_cuda(rc, "pinned memory", err);
	en_mem_note(&c->z.mem, kind, (int64_t)bytes);
	return 0;
}

int en_cuda_new_own(struct en_cuda *c, uint64_t bytes, void *p_out, struct ckpt_err *err)
{
	struct en_cuda_off *off = c->off;
	void *p = NULL;
	int rc = pinned(c, EN_MEM_HOST_PARAMS, bytes, &p, err);

	if (rc || c->expects)
		return rc;
	memset(p, 0, bytes);
	off->own[off->nown++] = p;
	*(void **)p_out = p;
	return 0;
}

uint64_t en_cuda_off_tile(const struct en_cuda *c)
{
	const uint64_t most = c->z.opts.off_tile ? c->z.opts.off_tile : EN_OFFLOADER_TILE;
	const uint32_t size = c->z.comm->size;
	uint64_t part = 0;

	for (uint32_t i = 0; i < c->z.model->nblocks; i++)
		part = ck_max_u64(part, en_zero_padded(c->z.model, i, size) / size);
	return ck_min_u64(part, most);
}

static int new_slots(struct en_cuda *c, struct ckpt_err *err)
{
	const uint64_t n = en_cuda_off_tile(c);
	int rc = 0;

	for (uint32_t i = 0; !rc && i < TILES; i++) {
		struct slot *r = &c->off->slot[i];

		rc = pinned(c, EN_MEM_HOST_OPTIMIZER, n * kn_type_size(c->sum_type), &r->grads,
			    err);
		if (!rc && !en_cuda_has_host_params(c))
			rc = pinned(c, EN_MEM_HOST_OPTIMIZER, n * kn_type_size(c->z.opts.type),
				    &r->copy, err);
		if (!rc && !c->expects)
			rc = en_cuda_event(&r->there, err);
		if (!rc && !c->expects)
			rc = en_cuda_event(&r->gone, err);
	}
	return rc;
}

/* What it would take. */
static int expect(struct en_cuda *c, struct ckpt_err *err)
{
	const uint32_t size = c->z.comm->size;
	uint64_t n = 0, part = 0;

	if (!en_cuda_has_host_optimizer(c))
		return 0;
	for (uint32_t i = 0; i < c->z.model->nblocks; i++) {
		const uint64_t each = en_zero_padded(c->z.model, i, size) / size;

		n += each;
		part = ck_max_u64(part, each);
	}
	en_mem_note(&c->z.mem, EN_MEM_HOST_OPTIMIZER, (int64_t)(c->z.opts.nvme.dir ?
		    en_zero_ring(&c->z.opts, true, part) : 3 * sizeof(float) * n));
	return new_slots(c, err);
}

int en_cuda_off_new(struct en_cuda *c, struct ckpt_err *err)
{
	const bool optimizer = en_cuda_has_host_optimizer(c);
	struct en_cuda_off *off;
	int rc;

	if (!optimizer && !en_cuda_has_host_params(c))
		return 0;
	c->off = off = ck_zalloc(sizeof(*off));
	if (!off)
		return ck_fail_nomem(err, "offload", sizeof(*off));
	if (c->expects)
		return expect(c, err);
	off->own = ck_alloc_array(2ull * c->z.model->nblocks, sizeof(*off->own));
	if (!off->own)
		return ck_fail_nomem(err, "blocks", c->z.model->nblocks);
	rc = (int)cudaStreamCreateWithFlags(&off->down, cudaStreamNonBlocking);
	if (!rc)
		rc = (int)cudaStreamCreateWithFlags(&off->up, cudaStreamNonBlocking);
	rc = rc ? en_cuda_cuda(rc, "a stream", err) : en_cuda_event(&off->by, err);
	if (rc || !optimizer)
		return rc;
	rc = en_pool_new(c->z.opts.threads, &off->pool, err);
	c->z.pool = off->pool;
	if (!rc)
		rc = en_zero_new_off(&c->z, true, err);
	return rc ? rc : new_slots(c, err);
}

void en_cuda_off_free(struct en_cuda *c)
{
	struct en_cuda_off *off = c->off;

	if (!off)
		return;
	for (uint32_t i = 0; i < TILES; i++) {
		struct slot *r = &off->slot[i];

		if (r->there)
			en_cuda_event_free(r->there);
		if (r->gone)
			en_cuda_event_free(r->gone);
		cudaFreeHost(r->grads);
		cudaFreeHost(r->copy);
	}
	for (uint32_t i = 0; i < off->nown; i++)
		cudaFreeHost(off->own[i]);
	if (off->by)
		en_cuda_event_free(off->by);
	if (off->down)
		cudaStreamDestroy(off->down);
	if (off->up)
		cudaStreamDestroy(off->up);
	en_pool_free(off->pool);
	ck_free(off->own);
	ck_free(off);
}

cudaStream_t en_cuda_off_up(const struct en_cuda *c)
{
	return c->off ? c->off->up : c->work;
}

void en_cuda_off_wait(struct en_cuda *c)
{
	if (c->off && c->off->down)
		cudaStreamSynchronize(c->off->down);
	if (c->off && c->off->up)
		cudaStreamSynchronize(c->off->up);
}

/* ---- parameters of the host ---- */

static int copy_up(struct en_cuda *c, void *to, const void *from, uint64_t n)
{
	return n ? (int)cudaMemcpyAsync(to, from, n * kn_type_size(c->z.opts.type),
					cudaMemcpyHostToDevice, c->off->up) : 0;
}

int en_cuda_bring(struct en_cuda *c, uint32_t block, uint32_t slot, struct en_cuda_parts *parts_out,
		  struct ckpt_err *err)
{
	const struct en_zero_block *b = &c->z.block[block];
	const uint32_t rank = c->z.comm->rank;
	void *params = c->z.gather[slot].p;
	const struct en_cuda_parts to = {
		en_cuda_at(params, rank * b->shard, c->z.opts.type),
		en_cuda_at(en_zero_frozen_at(&c->z, params, block), rank * b->fshard,
			   c->z.opts.type),
	};
	int rc = (int)cudaStreamWaitEvent(c->off->up, c->gather[slot].left, 0);

	if (!rc)
		rc = copy_up(c, to.own, b->own, b->shard);
	if (!rc)
		rc = copy_up(c, to.frozen, b->frozen, b->fshard);
	if (rc)
		return en_cuda_cuda(rc, "parameters of the host", err);
	*parts_out = to;
	return en_cuda_after(c->move, c->off->up, c->off->by, err);
}

int en_cuda_store(struct en_cuda *c, uint32_t block, uint32_t slot, struct ckpt_err *err)
{
	const struct en_zero_block *b = &c->z.block[block];
	const uint64_t bytes = b->shard * kn_type_size(c->z.opts.type);
	int rc = (int)cudaMemcpyAsync(b->own, c->z.gather[slot].p, bytes,
				      cudaMemcpyDeviceToHost, c->work);

	if (!rc)
		rc = (int)cudaEventRecord(c->gather[slot].left, c->work);
	return rc ? en_cuda_cuda(rc, "parameters of the host", err) :
	       en_cuda_after(c->off->up, c->work, c->off->by, err);
}

/* ---- a tile ---- */

static struct slot *slot_of(const struct en_cuda *c, uint64_t t)
{
	return &c->off->slot[t % TILES];
}

static int send_down(const struct en_adam *a, uint64_t t, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(a->z);
	const struct slot *r = slot_of(c, t);
	const struct en_offloader_tile *tile;
	int rc;

	if (!a->hyper || t >= en_offloader_tiles(c->z.off))
		return 0;
	tile = en_offloader_tile(c->z.off, t);
	rc = (int)cudaMemcpyAsync(r->grads, en_cuda_at_const(c->block[tile->block].total,
							     tile->first, c->sum_type),
				  tile->n * kn_type_size(c->sum_type), cudaMemcpyDeviceToHost,
				  c->off->down);
	if (!rc)
		rc = (int)cudaEventRecord(r->there, c->off->down);
	return en_cuda_cuda(rc, "gradients to the host", err);
}

static int send_up(struct en_cuda *c, uint64_t t, struct ckpt_err *err)
{
	const struct slot *r = slot_of(c, t);
	const struct en_offloader_tile *tile = en_offloader_tile(c->z.off, t);
	const enum kn_type type = c->z.opts.type;
	void *own = c->z.block[tile->block].own;
	uint32_t span;
	int rc;

	if (!r->copy)
		return 0;
	span = en_trace_begin(c->z.trace, EN_TRACE_COPY, "parameters up", tile->block);
	rc = (int)cudaMemcpyAsync(en_cuda_at(own, tile->first, type), r->copy,
				  tile->n * kn_type_size(type), cudaMemcpyHostToDevice, c->off->up);
	en_trace_end(c->z.trace, span);
	if (!rc)
		rc = (int)cudaEventRecord(r->gone, c->off->up);
	return en_cuda_cuda(rc, "parameters from the host", err);
}

int en_cuda_off_tile_begin(struct en_adam *a, uint64_t t, uint64_t first, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(a->z);
	const struct slot *r = slot_of(c, t);
	int rc = 0;

	en_trace_next(c->z.trace, EN_TRACE_HOST, "wait for gradients", a->block);
	if (a->hyper)
		rc = (int)cudaEventSynchronize(r->there);
	if (!rc)
		rc = (int)cudaEventSynchronize(r->gone);
	en_trace_next(c->z.trace, EN_TRACE_HOST, "adam", a->block);
	a->grad = r->grads;
	a->copy = r->copy ? r->copy :
		  en_cuda_at(c->z.block[a->block].own, first, c->z.opts.type);
	return en_cuda_cuda(rc, "gradients to the host", err);
}

/* The slot of its sums is then free for those of a later tile. */
int en_cuda_off_tile_end(struct en_adam *a, uint64_t t, struct ckpt_err *err)
{
	int rc = send_up(en_cuda_of(a->z), t, err);

	return rc ? rc : send_down(a, t + TILES, err);
}

/* ---- all of them ---- */

/* Sums are there, and nothing reads parameters that are to be overwritten. */
int en_cuda_off_begin(struct en_adam *a, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(a->z);
	struct en_cuda_off *off = c->off;
	int rc = en_cuda_after(off->up, c->work, off->by, err);

	a->grad_type = c->sum_type;
	if (!rc)
		rc = en_cuda_after(off->up, c->move, off->by, err);
	if (!rc && a->hyper)
		rc = en_cuda_after(off->down, c->work, off->by, err);
	if (!rc && en_cuda_has_host_params(c))
		rc = en_cuda_wait(c, off->up, NULL, "parameters of the host", err);
	en_zero_forget(a->z);		/* what was gathered ahead is old */
	for (uint64_t t = 0; !rc && t < TILES; t++)
		rc = send_down(a, t, err);
	return rc;
}

int en_cuda_off_sync_block(struct en_adam *a, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(a->z);

	return en_cuda_gather_params(c, a->block, c->off->up, err);
}

int en_cuda_off_end(struct en_adam *a, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(a->z);
	int rc;

	en_cuda_fp8_stale(c);
	en_trace_rest(c->z.trace, EN_TRACE_HOST);
	rc = en_cuda_after(c->work, c->off->up, c->off->by, err);
	if (!rc)
		rc = en_cuda_after(c->move, c->off->up, c->off->by, err);
	if (!rc)
		rc = en_zero_prefetch_first(a->z, err);
	return rc || a->hyper ? rc : en_cuda_wait(c, c->work, NULL, "the state", err);
}
