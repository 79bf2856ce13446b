/*
 * en_cpu_expect.c -- what a rank will hold, by arithmetic.  docs/ztrain/memory.md has the formulas;
 * this file takes as little as it can from those that take the memory.
 */
#include "engine/comm/en_work.h"
#include "engine/zero/cpu/en_cpu_priv.h"
#include "libckpt/base/ck_err.h"

struct expecting {
	const struct en_model *model;
	const struct en_zero_opts *opts;
	uint32_t rank, size;
	struct en_mem *out;
};

static void add(struct expecting *e, enum en_mem_kind kind, uint64_t bytes)
{
	en_mem_note(e->out, kind, (int64_t)bytes);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* ---- states ---- */

static void block_states(struct expecting *e, uint32_t block)
{
	const struct en_zero_opts *o = e->opts;
	const uint64_t padded = en_zero_padded(e->model, block, e->size), part = padded / e->size;
	const uint64_t held = o->stage ? part : padded, es = kn_type_size(o->type);

	add(e, en_zero_param_kind(o), es * (o->stage == 3 ? part : padded));
	if (!o->nvme.dir)
		add(e, en_zero_optimizer_kind(o), (o->type == KN_F32 ? 8 : 12) * held);
	if (o->stage < 2)
		add(e, EN_MEM_GRADS, 4 * padded);
	add(e, EN_MEM_GRADS, 4 * part * en_zero_levels(o));
	/* a sum a chunk: of this rank, of all, and those in order */
	add(e, EN_MEM_COLLECTIVES, 8 * (part + 2 * padded) / EN_ZERO_CHUNK);
}

/* Of states in a file the tiles that are being worked on. */
static void file_states(struct expecting *e)
{
	uint64_t part = 0;

	for (uint32_t i = 0; i < e->model->nblocks; i++)
		part = larger(part, en_zero_padded(e->model, i, e->size) / e->size);
	if (e->opts->nvme.dir)
		add(e, EN_MEM_HOST_OPTIMIZER,
		    en_zero_ring(e->opts, e->opts->type != KN_F32, part));
}

/* Rooms for blocks on their way: the largest even one, the largest odd one, and what is tied. */
static void rooms(struct expecting *e)
{
	const uint32_t n = e->model->nblocks;
	uint64_t gather[EN_ZERO_GATHERS] = { 0 }, reduce[EN_ZERO_REDUCES] = { 0 }, tied = 0;

	for (uint32_t i = 0; i < n; i++) {
		const uint64_t padded = en_zero_padded(e->model, i, e->size);
		uint64_t *g = &gather[en_zero_gather_of(e->model, i)];
		uint64_t *r = en_zero_is_tied(e->model, i) ? &tied : &reduce[i % EN_ZERO_REDUCES];

		*g = larger(*g, padded);
		*r = larger(*r, padded);
	}
	for (uint32_t i = 0; e->opts->stage == 3 && i < EN_ZERO_GATHERS; i++)
		add(e, EN_MEM_GATHERED, gather[i] * kn_type_size(e->opts->type));
	for (uint32_t i = 0; e->opts->stage >= 2 && i < EN_ZERO_REDUCES; i++)
		add(e, EN_MEM_GRADS, 4 * reduce[i]);
	if (e->opts->stage >= 2)
		add(e, EN_MEM_GRADS, 4 * tied);
}

/* ---- activations ---- */

static void activations(struct expecting *e)
{
	const struct en_zero_opts *o = e->opts;
	const struct en_exec_opts eo = { .rows = o->rows, .tokens = o->tokens, .type = o->type,
					 .threads = o->threads };
	const uint64_t layers = e->model->config.layers;
	struct en_exec_size size;

	en_exec_expect(e->model, &eo, &size);
	add(e, EN_MEM_WORK, size.work);
	if (o->type == KN_F32) {
		add(e, EN_MEM_ACTIVATIONS, (layers + 1) * size.stream);
		add(e, EN_MEM_ACTIVATIONS, (o->recompute ? 1 : layers) * size.saved);
		return;
	}
	add(e, EN_MEM_ACTIVATIONS, (o->recompute && layers > 1 ? 3 : 2) * size.stream + size.saved);
	add(e, EN_MEM_ACTIVATIONS,
	    (layers - 1) * (o->recompute ? size.packed_input : size.packed));
}

/* ---- scratch of collectives ---- */

/* As en_scratch_take(), with two operations under way: the younger memory is looked at first. */
struct pair {
	uint64_t size[2];	/* the younger one, the older one; 0 = none */
	bool used[2];
	uint64_t peak;
};

static uint64_t take(struct pair *p, uint64_t need)
{
	for (int i = 0; i < 2; i++) {
		if (!p->size[i] || p->used[i])
			continue;
		if (p->size[i] >= need) {
			p->used[i] = true;
			return p->size[i];
		}
		p->size[i] = 0;
	}
	if (p->size[0]) {
		p->size[1] = p->size[0];
		p->used[1] = p->used[0];
	}
	p->size[0] = need;
	p->used[0] = true;
	p->peak = larger(p->peak, p->size[0] + p->size[1]);
	return need;
}

static void give_back(struct pair *p, uint64_t size)
{
	const int i = p->used[0] && p->size[0] == size ? 0 : 1;

	p->used[i] = false;
}

/* Blocks go backward; each operation waits for the one before the last. */
static void scratch(struct expecting *e)
{
	const struct en_zero_opts *o = e->opts;
	const uint64_t ws = e->size > 1 ? kn_type_size(o->wire) : 4;
	uint64_t held[EN_ZERO_REDUCES] = { 0 };
	struct pair p = { .peak = 0 };

	for (uint32_t m = 0; m < (o->units > 1 ? 2 : 1); m++) {
		for (uint32_t i = e->model->nblocks; i-- > 0;) {
			const uint64_t part = en_zero_padded(e->model, i, e->size) / e->size;
			uint64_t *h = &held[i % EN_ZERO_REDUCES];

			if (*h)
				give_back(&p, *h);
			*h = take(&p, en_work_scratch(e->size, part * ws));
		}
		for (uint32_t i = 0; i < EN_ZERO_REDUCES; i++) {
			give_back(&p, held[i]);
			held[i] = 0;
		}
	}
	add(e, EN_MEM_COLLECTIVES, p.peak);
}

/* ---- all ---- */

/* Elements of this rank's shards that are no padding. */
static uint64_t real_elements(const struct expecting *e)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < e->model->nblocks; i++) {
		const uint64_t part = en_zero_padded(e->model, i, e->size) / e->size;
		const uint64_t from = e->rank * part, numel = e->model->block[i].numel;

		n += numel <= from ? 0 : numel - from < part ? numel - from : part;
	}
	return n;
}

int en_zero_cpu_expect(const struct en_model *model, const struct en_zero_opts *opts,
		       uint32_t rank, uint32_t size, bool messages, struct en_mem *out,
		       uint64_t *state_out, struct ckpt_err *err)
{
	struct en_mem mem = { .total = 0 };
	struct expecting e = { model, opts, rank, size, &mem };
	int rc = en_zero_check(opts, err);

	if (!rc && rank >= size)
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "rank %u of %u", rank, size);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < model->nblocks; i++)
		block_states(&e, i);
	file_states(&e);
	rooms(&e);
	activations(&e);
	if (messages && size > 1)
		scratch(&e);
	*out = mem;
	if (state_out)
		*state_out = 12 * real_elements(&e);
	return 0;
}
