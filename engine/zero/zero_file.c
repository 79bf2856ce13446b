/*
 * zero_file.c -- states that are in a file: set from a seed, and seen and set from outside slice by
 * slice, tile by tile of each.
 */
#include <string.h>

#include "engine/zero/en_zero_backend.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define BUFFER ((uint64_t)4 << 20)	/* elements that are read at once */

static struct en_offloader_opts opts_of(const struct en_zero_opts *o, bool masters)
{
	return (struct en_offloader_opts){
		.masters = masters, .tile = o->off_tile, .nvme = o->nvme.dir ? &o->nvme : NULL,
		.buffers = o->off_buffers, .kind = EN_MEM_HOST_OPTIMIZER,
	};
}

uint64_t en_zero_ring(const struct en_zero_opts *o, bool masters, uint64_t part)
{
	const struct en_offloader_opts oo = opts_of(o, masters);

	return en_offloader_ring(&oo, part);
}

static uint64_t part_of(const struct en_zero *z, uint32_t block)
{
	return en_zero_padded(z->model, block, z->comm->size) / z->comm->size;
}

int en_zero_new_off(struct en_zero *z, bool masters, struct ckpt_err *err)
{
	const uint32_t n = z->model->nblocks;
	struct en_offloader_opts oo = opts_of(&z->opts, masters);
	uint64_t *shard = ck_alloc_array(2ull * n, sizeof(*shard)), *used = shard + n;
	int rc = shard ? 0 : ck_fail_nomem(err, "blocks", n);

	for (uint32_t i = 0; !rc && i < n; i++) {
		const uint64_t part = part_of(z, i), from = z->comm->rank * part;
		const uint64_t numel = z->model->block[i].numel;

		shard[i] = part;
		used[i] = numel <= from ? 0 : ck_min_u64(part, numel - from);
	}
	oo.nblocks = n;
	oo.shard = shard;
	oo.used = used;
	oo.rank = z->comm->rank;
	if (!rc)
		rc = en_offloader_new(&z->mem, &oo, &z->off, err);
	ck_free(shard);
	return rc;
}

/* ---- from a seed ---- */

/* In fp32 CPU ranks have the masters in memory. */
static float *masters_of(const struct en_zero *z, const struct en_offloader_tile *t,
			 const struct en_offloader_state *s)
{
	return s->master ? s->master : z->block[t->block].master + t->first;
}

static void init_tile(struct en_zero *z, const struct en_offloader_tile *t,
		      const struct en_offloader_state *s, uint64_t seed)
{
	float *master = masters_of(z, t, s);

	for (uint64_t i = 0; i < z->npieces; i++) {
		struct en_zero_piece p = z->piece[i];
		const uint64_t from = ck_max_u64(p.at, t->first),
			       to = ck_min_u64(p.at + p.count, t->first + t->n);

		if (p.block != t->block || from >= to)
			continue;
		p.first += from - p.at;
		p.count = to - from;
		p.master = master + (from - t->first);
		p.exp_avg = s->exp_avg + (from - t->first);
		p.exp_avg_sq = s->exp_avg_sq + (from - t->first);
		en_zero_init_piece(z, &p, seed);
	}
}

int en_zero_file_init(struct en_zero *z, uint64_t seed, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t t = 0; !rc && t < en_offloader_tiles(z->off); t++) {
		struct en_offloader_state s;

		rc = en_offloader_read(z->off, t, EN_OFFLOADER_ALL, true, &s, err);
		if (rc)
			break;
		init_tile(z, en_offloader_tile(z->off, t), &s, seed);
		en_offloader_write(z->off, t, EN_OFFLOADER_ALL);
	}
	return rc;
}

/* ---- slices ---- */

/* What of a slice is in a tile. */
struct cut {
	uint64_t t, from, to;	/* elements of the part */
	unsigned states;	/* a bit of EN_OFFLOADER_ALL; 0: in memory */
};

/* The next tile of it, after cut->t; begins with 'first'. */
static bool next_cut(const struct en_zero *z, const struct en_zero_slice *s, bool first,
		     struct cut *c)
{
	c->t = first ? en_offloader_first(z->off, s->block) : c->t + 1;
	for (; c->t < en_offloader_first(z->off, s->block + 1); c->t++) {
		const struct en_offloader_tile *t = en_offloader_tile(z->off, c->t);

		c->from = ck_max_u64(s->at, t->first);
		c->to = ck_min_u64(s->at + s->n, t->first + t->n);
		if (c->from < c->to)
			return true;
	}
	return false;
}

/* Element cut->from, in memory; 'fresh': it is to be set. */
static int find(struct en_zero *z, const struct en_zero_slice *s, const struct cut *c, bool fresh,
		float **p_out, struct ckpt_err *err)
{
	const struct en_offloader_tile *t = en_offloader_tile(z->off, c->t);
	const bool whole = c->from == t->first && c->to == t->first + t->n;
	struct en_offloader_state got;
	int rc = en_offloader_read(z->off, c->t, c->states, fresh && whole, &got, err);
	float *p;

	if (rc)
		return rc;
	p = s->state == EN_STATE_MASTER ? masters_of(z, t, &got) :
	    s->state == EN_STATE_EXP_AVG ? got.exp_avg : got.exp_avg_sq;
	*p_out = p + (c->from - t->first);
	return 0;
}

/* Padding is in no tile: it is zero. */
int en_zero_file_get(struct en_zero *z, const struct en_zero_slice *s, float *to,
		     struct ckpt_err *err)
{
	struct cut c = { .states = 1u << s->state };
	int rc = 0;

	memset(to, 0, s->n * sizeof(float));
	for (bool is = next_cut(z, s, true, &c); !rc && is; is = next_cut(z, s, false, &c)) {
		float *p = NULL;

		rc = find(z, s, &c, false, &p, err);
		if (!rc)
			memcpy(to + (c.from - s->at), p, (c.to - c.from) * sizeof(float));
	}
	return rc;
}

int en_zero_file_send(struct en_zero *z, const struct en_zero_slice *s, const float *from,
		      struct ckpt_err *err)
{
	struct cut c = { .states = 1u << s->state };
	int rc = 0;

	for (bool is = next_cut(z, s, true, &c); !rc && is; is = next_cut(z, s, false, &c)) {
		const uint64_t bytes = (c.to - c.from) * sizeof(float);
		float *p = NULL;

		rc = find(z, s, &c, true, &p, err);
		if (rc)
			break;
		if (from)
			memcpy(p, from + (c.from - s->at), bytes);
		else
			memset(p, 0, bytes);
		en_offloader_write(z->off, c.t, c.states);
	}
	return rc;
}

/* What is sent is copied at once, so one buffer does. */
int en_zero_file_buffer(struct en_zero *z, uint32_t turn, float **buffer_out,
			uint64_t *elements_out, struct ckpt_err *err)
{
	int rc = 0;

	(void)turn;
	if (!z->file_buffer)
		rc = en_mem_new(&z->mem, EN_MEM_SAVE, BUFFER * sizeof(float), &z->file_buffer, err);
	if (rc)
		return rc;
	*buffer_out = z->file_buffer;
	*elements_out = BUFFER;
	return 0;
}

void en_zero_file_free_buffer(struct en_zero *z)
{
	en_mem_free(&z->mem, EN_MEM_SAVE, z->file_buffer);
	z->file_buffer = NULL;
}
