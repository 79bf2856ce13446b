/*
 * en_offloader.c -- see en_offloader.h.
 *
 * Of a file, tile t has slot t % nslots of a ring.  To get tile t, reads are begun of it and of
 * the nslots - 2 tiles after it; the slot of the last of these is that of tile t - 2, whose
 * writing was begun two tiles ago.  So one tile is worked on, at least one is on its way in and
 * one on its way out.  A slot remembers its tile: what is still there is not read again.  States
 * are read and written by themselves, so that who wants masters alone does not read moments.
 */
#include "engine/zero/en_offloader.h"

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define UNIT (EN_NVME_ALIGN / sizeof(float))	/* elements of a state in the file: whole ones */
#define NONE UINT64_MAX

struct slot {
	struct en_nvme_op op[3];	/* of each state */
	uint64_t tile;		/* whose slot it is; NONE */
	unsigned has;		/* states of it that are there, or on their way */
	float *p;		/* masters, exp_avg, exp_avg_sq, one after the other */
};

struct en_offloader {
	struct en_mem *mem;
	enum en_mem_kind kind;
	bool masters;
	uint32_t nblocks;
	struct en_offloader_tile *tile;
	uint64_t ntiles;
	uint64_t *first;	/* [nblocks + 1]: tiles of a block */
	struct en_offloader_state *whole;	/* [nblocks], of memory */
	/* Of a file. */
	struct en_nvme *nvme;
	uint32_t nslots;
	struct slot *slot;
	void *ring;
};

static uint64_t round_up(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

static uint64_t states(bool masters)
{
	return masters ? 3 : 2;
}

/* Elements of the largest tile, where 'largest' is the largest part. */
static uint64_t tile_of(const struct en_offloader_opts *o, uint64_t largest)
{
	return ck_min_u64(largest, o->tile ? o->tile : EN_OFFLOADER_TILE);
}

static uint64_t largest_of(const struct en_offloader_opts *o)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < o->nblocks; i++)
		most = ck_max_u64(most, o->shard[i]);
	return most;
}

static uint32_t slots_of(const struct en_offloader_opts *o)
{
	const uint32_t n = o->buffers ? o->buffers : EN_OFFLOADER_BUFFERS;

	return n < 3 ? 3 : n;
}

static uint64_t slot_bytes(const struct en_offloader_opts *o, uint64_t largest)
{
	return states(o->masters) * tile_of(o, largest) * sizeof(float);
}

uint64_t en_offloader_ring(const struct en_offloader_opts *o, uint64_t largest)
{
	return slots_of(o) * slot_bytes(o, largest) + EN_NVME_ALIGN;
}

/* ---- tiles ---- */

static int cut(struct en_offloader *off, const struct en_offloader_opts *o, uint64_t *bytes_out,
	       struct ckpt_err *err)
{
	const uint64_t most = tile_of(o, largest_of(o));
	uint64_t n = 0;

	for (uint32_t i = 0; i < o->nblocks; i++)
		n += (o->used[i] + most - 1) / most;
	off->tile = ck_alloc_array(n + 1, sizeof(*off->tile));
	off->first = ck_alloc_array(o->nblocks + 1ull, sizeof(*off->first));
	if (!off->tile || !off->first)
		return ck_fail_nomem(err, "tiles", n);
	*bytes_out = 0;
	for (uint32_t i = 0; i < o->nblocks; i++) {
		off->first[i] = off->ntiles;
		for (uint64_t at = 0; at < o->used[i]; at += most) {
			struct en_offloader_tile *t = &off->tile[off->ntiles++];

			*t = (struct en_offloader_tile){ i, at, ck_min_u64(most, o->used[i] - at),
						   *bytes_out };
			*bytes_out += states(o->masters) * round_up(t->n, UNIT) * sizeof(float);
		}
	}
	off->first[o->nblocks] = off->ntiles;
	return 0;
}

/* ---- memory ---- */

static int new_whole(struct en_offloader *off, const struct en_offloader_opts *o,
		     struct ckpt_err *err)
{
	int rc = 0;

	off->whole = ck_zalloc(o->nblocks * sizeof(*off->whole));
	if (!off->whole)
		return ck_fail_nomem(err, "blocks", o->nblocks);
	for (uint32_t i = 0; !rc && i < o->nblocks; i++) {
		struct en_offloader_state *w = &off->whole[i];
		const uint64_t bytes = o->shard[i] * sizeof(float);

		if (o->masters)
			rc = en_mem_new(off->mem, off->kind, bytes, &w->master, err);
		if (!rc)
			rc = en_mem_new(off->mem, off->kind, bytes, &w->exp_avg, err);
		if (!rc)
			rc = en_mem_new(off->mem, off->kind, bytes, &w->exp_avg_sq, err);
	}
	return rc;
}

/* ---- a file ---- */

static int new_slots(struct en_offloader *off, const struct en_offloader_opts *o,
		     struct ckpt_err *err)
{
	const uint64_t bytes = slot_bytes(o, largest_of(o));
	uint8_t *p;
	int rc;

	off->nslots = slots_of(o);
	off->slot = ck_zalloc(off->nslots * sizeof(*off->slot));
	if (!off->slot)
		return ck_fail_nomem(err, "rooms", off->nslots);
	rc = en_mem_new(off->mem, off->kind, off->nslots * bytes + EN_NVME_ALIGN, &off->ring, err);
	if (rc)
		return rc;
	p = (uint8_t *)off->ring + (EN_NVME_ALIGN - (uintptr_t)off->ring % EN_NVME_ALIGN);
	for (uint32_t i = 0; i < off->nslots; i++) {
		off->slot[i].tile = NONE;
		off->slot[i].p = (float *)(void *)(p + i * bytes);
	}
	return 0;
}

static int new_file(struct en_offloader *off, const struct en_offloader_opts *o, uint64_t bytes,
		    struct ckpt_err *err)
{
	struct en_nvme_opts no = *o->nvme;
	int rc = new_slots(off, o, err);

	no.bytes = bytes;
	no.rank = o->rank;
	return rc ? rc : en_nvme_open(&no, &off->nvme, err);
}

static struct slot *slot_of(const struct en_offloader *off, uint64_t t)
{
	return &off->slot[t % off->nslots];
}

/* Number of a state in the file; masters come first where they are there. */
static uint64_t place(const struct en_offloader *off, unsigned state)
{
	return state - (off->masters ? 0 : 1);
}

static void transfer(struct en_offloader *off, uint64_t t, unsigned state, bool write)
{
	const struct en_offloader_tile *tile = &off->tile[t];
	const uint64_t n = round_up(tile->n, UNIT), at = place(off, state) * n;
	struct slot *r = slot_of(off, t);

	en_nvme_begin(off->nvme, &r->op[state], write, r->p + at, tile->at + at * sizeof(float),
		      n * sizeof(float));
}

static int wait_for(struct en_offloader *off, struct slot *r, unsigned states, struct ckpt_err *err)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < 3; i++)
		if (states >> i & 1)
			rc = en_nvme_wait(off->nvme, &r->op[i], err);
	return rc;
}

/* The states come, or are there. */
static int bring(struct en_offloader *off, uint64_t t, unsigned states, bool fresh,
		 struct ckpt_err *err)
{
	struct slot *r = slot_of(off, t);
	int rc = r->tile == t ? 0 : wait_for(off, r, EN_OFFLOADER_ALL, err);

	if (rc)
		return rc;
	if (r->tile != t)
		r->has = 0;
	r->tile = t;
	for (unsigned i = 0; i < 3; i++)
		if ((states & ~r->has) >> i & 1 && !fresh)
			transfer(off, t, i, false);
	r->has |= states;
	return 0;
}

/* ---- life ---- */

int en_offloader_new(struct en_mem *mem, const struct en_offloader_opts *o,
		     struct en_offloader **off_out, struct ckpt_err *err)
{
	struct en_offloader *off = ck_zalloc(sizeof(*off));
	uint64_t bytes = 0;
	int rc;

	if (!off)
		return ck_fail_nomem(err, "states", sizeof(*off));
	off->mem = mem;
	off->kind = o->kind;
	off->masters = o->masters;
	off->nblocks = o->nblocks;
	rc = cut(off, o, &bytes, err);
	if (!rc)
		rc = o->nvme ? new_file(off, o, bytes, err) : new_whole(off, o, err);
	if (rc)
		en_offloader_free(off);
	else
		*off_out = off;
	return rc;
}

void en_offloader_free(struct en_offloader *off)
{
	if (!off)
		return;
	en_nvme_close(off->nvme);
	en_mem_free(off->mem, off->kind, off->ring);
	for (uint32_t i = 0; off->whole && i < off->nblocks; i++) {
		en_mem_free(off->mem, off->kind, off->whole[i].master);
		en_mem_free(off->mem, off->kind, off->whole[i].exp_avg);
		en_mem_free(off->mem, off->kind, off->whole[i].exp_avg_sq);
	}
	ck_free(off->whole);
	ck_free(off->slot);
	ck_free(off->tile);
	ck_free(off->first);
	ck_free(off);
}

bool en_offloader_is_file(const struct en_offloader *off)
{
	return off->nvme != NULL;
}

const char *en_offloader_text(const struct en_offloader *off)
{
	return off->nvme ? en_nvme_text(off->nvme) : "";
}

uint64_t en_offloader_tiles(const struct en_offloader *off)
{
	return off->ntiles;
}

const struct en_offloader_tile *en_offloader_tile(const struct en_offloader *off, uint64_t t)
{
	return &off->tile[t];
}

uint64_t en_offloader_first(const struct en_offloader *off, uint32_t block)
{
	return off->first[block];
}

struct en_offloader_state en_offloader_block(const struct en_offloader *off, uint32_t block)
{
	return off->whole[block];
}

/* ---- a tile ---- */

static float *after(float *p, uint64_t n)
{
	return p ? p + n : NULL;
}

static struct en_offloader_state state_at(const struct en_offloader *off, uint64_t t)
{
	const struct en_offloader_tile *tile = &off->tile[t];
	const uint64_t n = round_up(tile->n, UNIT);
	float *p;

	if (!off->nvme) {
		const struct en_offloader_state *w = &off->whole[tile->block];

		return (struct en_offloader_state){ after(w->master, tile->first),
						    w->exp_avg + tile->first,
						    w->exp_avg_sq + tile->first };
	}
	p = slot_of(off, t)->p;
	if (!off->masters)
		return (struct en_offloader_state){ NULL, p, p + n };
	return (struct en_offloader_state){ p, p + n, p + 2 * n };
}

int en_offloader_read(struct en_offloader *off, uint64_t t, unsigned states, bool fresh,
		     struct en_offloader_state *out, struct ckpt_err *err)
{
	const uint64_t end = !off->nvme ? 0 : fresh ? t + 1 :
			     ck_min_u64(off->ntiles, t + off->nslots - 1);
	int rc = 0;

	if (!off->masters)
		states &= ~EN_OFFLOADER_MASTERS;
	for (uint64_t i = t; !rc && i < end; i++)
		rc = bring(off, i, states, fresh, err);
	if (!rc && off->nvme)
		rc = wait_for(off, slot_of(off, t), states, err);
	if (rc)
		return rc;
	*out = state_at(off, t);
	return 0;
}

void en_offloader_write(struct en_offloader *off, uint64_t t, unsigned states)
{
	for (unsigned i = off->masters ? 0 : 1; off->nvme && i < 3; i++)
		if (states >> i & 1)
			transfer(off, t, i, true);
}
