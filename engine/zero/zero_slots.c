/*
 * zero_slots.c -- stage 3: which slots blocks are gathered in, found by arithmetic.
 *
 * Blocks take turns in 'rolling' slots: one that is computed with, and those of the blocks that are
 * gathered beforehand, either way.  A tied model's last block has a slot apart, as its head works
 * with block 0 at the same time.  Small blocks stay: each has a slot of its own, and is gathered
 * once a step.
 */
#include "engine/zero/en_zero_backend.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define MOST_AHEAD 15u

static const struct en_zero_flow usual = {
	.prefetch_bucket_size = 1, .model_persistence_threshold = UINT64_MAX,
	.max_live_parameters = UINT64_MAX,
};

const struct en_zero_flow *en_zero_flow_of(const struct en_zero_opts *opts)
{
	return opts && opts->flow.given ? &opts->flow : &usual;
}

/* Blocks that stay are cut off where they are too many, in order. */
static void choose(const struct en_model *m, const struct en_zero_flow *f, struct en_zero_slots *r)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < m->nblocks; i++) {
		const uint64_t n = m->block[i].numel + m->block[i].frozen;

		r->of[i] = 0;
		if (n > f->param_persistence_threshold || n > f->model_persistence_threshold - all)
			continue;
		all += n;
		r->of[i] = UINT32_MAX;		/* a slot of its own */
	}
}

/* Of blocks that take turns. */
static uint64_t largest(const struct en_model *m, const struct en_zero_slots *r)
{
	uint64_t most = 0;

	for (uint32_t i = 1; i + 1 < m->nblocks; i++)
		if (!r->of[i])
			most = ck_max_u64(most, m->block[i].numel + m->block[i].frozen);
	return most;
}

/*
 * One at least, if any; more as far as so many elements hold layers, and all slots of layers hold
 * no more than may be live.
 */
static uint32_t how_far(const struct en_model *m, const struct en_zero_flow *f,
			const struct en_zero_slots *r)
{
	const uint64_t layer = largest(m, r);
	uint64_t n = 1;

	if (f->in_place || !f->prefetch_bucket_size)
		return 0;
	while (layer && n < MOST_AHEAD && n + 2 < m->nblocks &&
	       n + 1 <= f->prefetch_bucket_size / layer &&
	       n + 2 <= f->max_live_parameters / layer)
		n++;
	return (uint32_t)n;
}

static void put(const struct en_model *m, struct en_zero_slots *r, uint32_t block, uint32_t slot,
		uint32_t size)
{
	r->of[block] = slot;
	r->padded[slot] = ck_max_u64(r->padded[slot], en_zero_room(m, block, size));
}

int en_zero_slots_plan(const struct en_model *m, const struct en_zero_flow *f, uint32_t size,
		       struct en_zero_slots *r, struct ckpt_err *err)
{
	const uint32_t last = m->nblocks - 1;
	uint32_t turn = 0;

	*r = (struct en_zero_slots){ .n = 0 };
	r->of = ck_alloc_array(m->nblocks, sizeof(*r->of));
	r->padded = ck_zalloc((m->nblocks + MOST_AHEAD + 2ull) * sizeof(*r->padded));
	if (!r->of || !r->padded)
		return ck_fail_nomem(err, "slots of blocks", m->nblocks);
	choose(m, f, r);
	r->ahead = how_far(m, f, r);
	r->reuse = f->max_reuse_distance;
	r->n = r->ahead + 2;		/* the last: of a tied model */
	for (uint32_t i = 0; i <= last; i++) {
		if (r->of[i] == UINT32_MAX)
			put(m, r, i, r->n++, size);
		else if (m->config.tied && i == last)
			put(m, r, i, r->ahead + 1, size);
		else
			put(m, r, i, turn++ % (r->ahead + 1), size);
	}
	return 0;
}

void en_zero_slots_release(struct en_zero_slots *r)
{
	ck_free(r->of);
	ck_free(r->padded);
	*r = (struct en_zero_slots){ .n = 0 };
}
