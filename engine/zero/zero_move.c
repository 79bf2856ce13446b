/*
 * zero_move.c -- parameters come: one block at a time, with the next ones under way.  What is in a
 * slot is good until another block takes it, or the parameters change; the flow says what is made
 * of that.
 */
#include "engine/zero/en_zero_backend.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

int en_zero_new_gathers(struct en_zero *z, const struct en_zero_flow *flow, struct ckpt_err *err)
{
	int rc = en_zero_slots_plan(z->model, flow, z->comm->size, &z->slots, err);

	if (rc)
		return rc;
	z->gather = ck_zalloc(z->slots.n * sizeof(*z->gather));
	if (!z->gather)
		return ck_fail_nomem(err, "slots of blocks", z->slots.n);
	en_zero_forget(z);
	return 0;
}

struct en_zero_gather *en_zero_slot_of(struct en_zero *z, uint32_t block)
{
	return z->gather ? &z->gather[z->slots.of[block]] : NULL;
}

/* What was gathered ahead in vain gives way. */
static int begin_gather(struct en_zero *z, uint32_t block, struct ckpt_err *err)
{
	struct en_zero_gather *g = en_zero_slot_of(z, block);
	int rc;

	if (g->users)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "block %u requested while block %u still uses its buffer", block,
			       (unsigned)g->block);
	g->block = -1;
	rc = z->backend->gather_begin(z, block, z->slots.of[block], err);
	if (!rc)
		g->block = block;
	return rc;
}

static int prefetch(struct en_zero *z, uint32_t block, struct ckpt_err *err)
{
	return en_zero_slot_of(z, block)->block == block ? 0 : begin_gather(z, block, err);
}

int en_zero_prefetch(struct en_zero *z, uint32_t block, int step, struct ckpt_err *err)
{
	int64_t at = block;
	int rc = 0;

	for (uint32_t k = 0; !rc && k < z->slots.ahead; k++) {
		at += step;
		if (step < 0 ? at < 1 || at < z->model->lowest : at >= z->model->nblocks)
			break;
		rc = prefetch(z, (uint32_t)at, err);
	}
	return rc;
}

int en_zero_prefetch_first(struct en_zero *z, struct ckpt_err *err)
{
	int rc = z->slots.ahead ? prefetch(z, 0, err) : 0;

	return rc ? rc : en_zero_prefetch(z, 0, 1, err);
}

void en_zero_forget(struct en_zero *z)
{
	for (uint32_t i = 0; i < z->slots.n; i++)
		z->gather[i].block = -1;
}

int en_zero_gather(struct en_zero *z, uint32_t block, const void **params_out,
		   struct ckpt_err *err)
{
	struct en_zero_gather *g = en_zero_slot_of(z, block);
	int rc;

	if (!g) {
		*params_out = z->block[block].params;
		return z->backend->whole_wait ? z->backend->whole_wait(z, block, err) : 0;
	}
	rc = prefetch(z, block, err);
	if (!rc)
		rc = z->backend->gather_wait(z, block, z->slots.of[block], err);
	if (rc)
		return rc;
	g->users++;
	*params_out = g->p;
	return 0;
}

/* Elements of the blocks that come before 'block' is used again. */
static uint64_t until_again(const struct en_zero *z, uint32_t block, bool back)
{
	const uint32_t n = z->model->nblocks;
	uint64_t sum = 0;

	for (uint32_t i = back ? 0 : block + 1; i < (back ? block : n); i++)
		sum += 2 * (z->block[i].numel + z->block[i].fnumel);
	return sum;
}

static bool is_kept(const struct en_zero *z, uint32_t block, bool back)
{
	const uint64_t reuse = z->slots.reuse;

	return z->slots.of[block] > z->slots.ahead + 1 ||
	       (reuse && until_again(z, block, back) <= reuse);
}

int en_zero_release(struct en_zero *z, uint32_t block, bool back, struct ckpt_err *err)
{
	struct en_zero_gather *g = en_zero_slot_of(z, block);

	if (!g || --g->users)
		return 0;
	if (!is_kept(z, block, back))
		g->block = -1;
	return z->backend->release ? z->backend->release(z, z->slots.of[block], err) : 0;
}
