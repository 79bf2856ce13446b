/*
 * mg_places_order.c -- what the order of parameters says.
 *
 * A buffer has the parameters of a part of the model in the reverse of the order in which modules
 * register them.  That order is a walk through the tree of modules, so
 *
 *	the parameters of a layer follow each other, and layers come from the last to the first
 *	the parameters of one key, of the experts of a layer, come from the last expert to the first
 *	two parameters of a layer have the same order in every layer
 *	the two halves of a gated layer follow each other
 *
 * A buffer that contradicts this was changed after it was written: nothing of it is used.
 *
 * Blocks with the same elements are told apart by the same rules.  A tile may be a block only if
 *	its neighbours that are known are not both of another layer
 *	the known tiles of the block's layer are next to it, without another layer between
 *	the block's key is on the right side of the known keys of its layer, as other layers show
 *	the block is nowhere else in this part of the model
 * and it is that block if it may be no other one.
 */
#include <string.h>

#include "formats/megatron/mg_places.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define NEAR 256u	/* tiles of a layer whose order is compared */

struct order {
	struct mgp *p;
	struct ck_map pair;	/* family and two keys, the lesser first -> number in 'seen' */
	uint8_t *seen;		/* 1 = the lesser came first, 2 = the other one, 3 = both ways */
	uint64_t nseen, seen_cap;
	struct ck_arena arena;	/* of the keys of 'pair' */
	uint32_t *most, *here;	/* known tiles of each layer: in one buffer at most, in this one */
	uint32_t *layer, *expert;	/* of each key: the last ones */
	uint32_t nkeys;
};

static const struct mgp_chunk *known(const struct mgp *p, uint64_t tile)
{
	return p->tile[tile].chunk == MGP_NONE ? NULL : &p->chunk[p->tile[tile].chunk];
}

void ck_mgp_give_up(struct mgp *p, struct mgp_buffer *f, uint64_t tile, const char *why)
{
	const uint32_t at = p->tile[tile].bucket;

	for (uint32_t b = f->bucket; b < f->bucket + f->nbuckets; b++) {
		if (p->bucket[b].why)
			continue;
		p->bucket[b].why = why;
		p->bucket[b].at = b == at ? p->tile[tile].at : 0;
	}
	for (uint64_t t = f->tile; t < (uint64_t)f->tile + f->ntiles; t++)
		p->tile[t].chunk = MGP_NONE;
	f->ntiles = 0;
}

static bool is_whole(const struct mgp *p, const struct mgp_buffer *f)
{
	for (uint32_t b = f->bucket; b < f->bucket + f->nbuckets; b++)
		if (p->bucket[b].why)
			return false;
	return true;
}

/* Tiles whose class is of one block. */
static void name_single(struct mgp *p)
{
	for (uint64_t t = 0; t < p->ntiles; t++) {
		const struct mgp_class *c = &p->class[p->tile[t].class];

		if (c->nchunks == 1 && !c->is_odd)
			p->tile[t].chunk = c->chunk;
	}
}

/* ---- is the order possible? ---- */

/* The layers of known tiles never grow, nor do the experts of one key in a layer. */
static bool is_descending(struct order *o, const struct mgp_buffer *f, uint64_t *tile_out)
{
	const struct mgp *p = o->p;
	uint32_t layer = MGP_NONE;
	bool left = false;

	memset(o->layer, 0xff, o->nkeys * sizeof(*o->layer));
	for (uint64_t t = f->tile; t < (uint64_t)f->tile + f->ntiles; t++) {
		const struct mgp_chunk *c = known(p, t);

		*tile_out = t;
		if (!c)
			continue;
		if (c->layer == MGP_NONE) {
			left = true;
			continue;
		}
		if (layer != MGP_NONE && (c->layer > layer || (c->layer == layer && left)))
			return false;
		left = false;
		layer = c->layer;
		if (c->expert && o->layer[c->key] == layer && o->expert[c->key] < c->expert)
			return false;
		o->layer[c->key] = layer;
		o->expert[c->key] = c->expert;
	}
	return true;
}

/* A block and its other half follow each other. */
static bool are_halves_joined(const struct mgp *p, const struct mgp_buffer *f, uint64_t *tile_out)
{
	const uint64_t end = (uint64_t)f->tile + f->ntiles;

	for (uint64_t t = f->tile; t < end; t++) {
		const struct mgp_chunk *c = known(p, t), *b = t > f->tile ? known(p, t - 1) : NULL;
		const struct mgp_tile *next = t + 1 < end ? &p->tile[t + 1] : NULL;

		*tile_out = t;
		if (!c)
			continue;
		if (c->half != MGP_NONE &&
		    (!next || next->class != p->chunk[c->half].class ||
		     next->bucket != p->tile[t].bucket || next->at != p->tile[t].at + c->numel))
			return false;
		if (c->is_half && (t == f->tile || (b && b->half != p->tile[t].chunk)))
			return false;
	}
	return true;
}

/* ---- the order of keys in a layer ---- */

/* Where 'seen' has two keys; NULL: never both in a layer. */
static int pair_of(struct order *o, uint32_t family, uint32_t a, uint32_t b, bool add,
		   uint8_t **out, struct ckpt_err *err)
{
	const uint32_t key[3] = { family, a < b ? a : b, a < b ? b : a };
	uint64_t id;
	int rc = 0;

	*out = NULL;
	if (!ck_map_find(&o->pair, (const char *)key, sizeof(key), &id)) {
		uint32_t *mine;

		if (!add)
			return 0;
		id = o->nseen;
		mine = ck_arena_alloc(&o->arena, sizeof(key));
		if (!mine)
			return ck_fail_nomem(err, "two keys", sizeof(key));
		memcpy(mine, key, sizeof(key));
		rc = ck_map_add(&o->pair, (const char *)mine, sizeof(key), id, NULL, err);
		if (!rc)
			rc = ck_grow(&o->seen, &o->seen_cap, id + 1, sizeof(*o->seen), err);
		if (rc)
			return rc;
		o->seen[o->nseen++] = 0;
	}
	*out = &o->seen[id];
	return 0;
}

/* A parameter that a layer has once, at a tile that is known. */
static const struct mgp_chunk *once(const struct mgp *p, const struct mgp_buffer *f, uint64_t tile)
{
	const struct mgp_chunk *c = known(p, tile);
	const struct mgp_chunk *before = tile > f->tile ? known(p, tile - 1) : NULL;

	if (!c || c->layer == MGP_NONE || c->expert ||
	    (before && before->half == p->tile[tile].chunk))
		return NULL;
	return c;
}

/* '*odd_out': two layers do not agree. */
static int learn(struct order *o, const struct mgp_buffer *f, bool *odd_out, struct ckpt_err *err)
{
	const struct mgp *p = o->p;
	int rc = 0;

	for (uint64_t t = f->tile; !rc && t < (uint64_t)f->tile + f->ntiles; t++) {
		const struct mgp_chunk *c = once(p, f, t);

		for (uint64_t k = t; !rc && c && k-- > f->tile && t - k < NEAR;) {
			const struct mgp_chunk *b = once(p, f, k);
			uint8_t *seen;

			if (!b || b->layer != c->layer || b->key == c->key)
				continue;
			rc = pair_of(o, f->family, b->key, c->key, true, &seen, err);
			if (!rc)
				*seen |= b->key < c->key ? 1 : 2;
			if (!rc && *seen == 3)
				*odd_out = true;
		}
	}
	return rc;
}

static int check(struct order *o, struct ckpt_err *err)
{
	struct mgp *p = o->p;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < p->nbuffers; i++) {
		struct mgp_buffer *f = &p->buffer[i];
		bool odd = false;
		uint64_t at = f->tile;

		if (!is_descending(o, f, &at))
			ck_mgp_give_up(p, f, at, "its layers or experts are not in order");
		else if (!are_halves_joined(p, f, &at))
			ck_mgp_give_up(p, f, at, "the halves of a weight are apart");
		else
			rc = learn(o, f, &odd, err);
		for (uint32_t k = 0; odd && k < p->nbuffers; k++)
			if (p->buffer[k].family == f->family && p->buffer[k].ntiles)
				ck_mgp_give_up(p, &p->buffer[k], p->buffer[k].tile,
					"its layers have their parameters in different orders");
	}
	return rc;
}

/* ---- tiles that may be several blocks ---- */

/* The known tiles next to one; the ends of the buffer are MGP_NONE and of no layer. */
struct around {
	const struct mgp_chunk *before, *after;
	uint64_t room;		/* tiles between them */
};

static struct around around(const struct mgp *p, const struct mgp_buffer *f, uint64_t tile)
{
	struct around a = { .room = 1 };

	for (uint64_t t = tile; !a.before && t-- > f->tile; a.room += !a.before)
		a.before = known(p, t);
	for (uint64_t t = tile + 1; !a.after && t < (uint64_t)f->tile + f->ntiles; t++) {
		a.after = known(p, t);
		a.room += !a.after;
	}
	return a;
}

static uint32_t layer_of(const struct mgp_chunk *c)
{
	return c ? c->layer : MGP_NONE;
}

/* Can a tile there be of that layer? */
static bool layer_fits(const struct order *o, const struct around *a, uint32_t layer)
{
	const uint32_t before = layer_of(a->before), after = layer_of(a->after);

	if (before == after && before != MGP_NONE)
		return layer == before;
	if (layer == MGP_NONE)
		return true;
	if (o->here[layer])
		return layer == before || layer == after;
	return o->most[layer] < a->room;	/* all of it would be between the two */
}

/* Is the block somewhere in this part of the model? */
static bool is_used(const struct mgp *p, const struct mgp_buffer *f, uint32_t chunk)
{
	for (uint32_t i = 0; i < p->nbuffers; i++) {
		const struct mgp_buffer *b = &p->buffer[i];

		for (uint64_t t = b->tile; b->family == f->family && b->position == f->position &&
					   t < (uint64_t)b->tile + b->ntiles; t++)
			if (p->tile[t].chunk == chunk)
				return true;
	}
	return false;
}

/* Is the block's key on the right side of the known ones of its layer? */
static int key_fits(struct order *o, const struct mgp_buffer *f, uint64_t tile,
		    const struct mgp_chunk *c, bool *out, struct ckpt_err *err)
{
	const struct mgp *p = o->p;
	int rc = 0;

	*out = true;
	for (uint64_t t = f->tile; !rc && *out && t < (uint64_t)f->tile + f->ntiles; t++) {
		const struct mgp_chunk *k = once(p, f, t);
		uint8_t *seen;

		if (!k || c->expert || k->layer != c->layer || k->key == c->key)
			continue;
		rc = pair_of(o, f->family, c->key, k->key, false, &seen, err);
		if (!rc && seen && *seen)
			*out = *seen == ((c->key < k->key) == (tile < t) ? 1 : 2);
	}
	return rc;
}

static int settle(struct order *o, const struct mgp_buffer *f, uint64_t tile, bool *done_out,
		  struct ckpt_err *err)
{
	struct mgp *p = o->p;
	const struct mgp_class *class = &p->class[p->tile[tile].class];
	const struct around a = around(p, f, tile);
	uint32_t only = MGP_NONE, n = 0;
	int rc = 0;

	for (uint32_t c = class->chunk; !rc && c != MGP_NONE && n < 2; c = p->chunk[c].like) {
		bool fits = layer_fits(o, &a, p->chunk[c].layer);

		if (fits && p->chunk[c].layer != MGP_NONE)
			rc = key_fits(o, f, tile, &p->chunk[c], &fits, err);
		if (rc || !fits || is_used(p, f, c))
			continue;
		only = c;
		n++;
	}
	if (!rc && n == 1) {
		p->tile[tile].chunk = only;
		*done_out = true;
		o->here[p->chunk[only].layer == MGP_NONE ? p->nlayers : p->chunk[only].layer]++;
	}
	return rc;
}

/* Known tiles of each layer in buffers of the same kind. */
static void count_layers(struct order *o, const struct mgp_buffer *f)
{
	const struct mgp *p = o->p;
	const size_t bytes = ((size_t)p->nlayers + 1) * sizeof(*o->here);

	memset(o->most, 0, bytes);
	for (uint32_t i = 0; i <= p->nbuffers; i++) {
		const struct mgp_buffer *b = i < p->nbuffers ? &p->buffer[i] : f;

		if (!b->ntiles || b->family != f->family ||
		    p->class[p->tile[b->tile].class].dtype !=
			    p->class[p->tile[f->tile].class].dtype)
			continue;
		memset(o->here, 0, bytes);
		for (uint64_t t = b->tile; t < (uint64_t)b->tile + b->ntiles; t++) {
			const struct mgp_chunk *c = known(p, t);
			const uint32_t l = c && c->layer != MGP_NONE ? c->layer : p->nlayers;

			if (c && ++o->here[l] > o->most[l])
				o->most[l] = o->here[l];
		}
	}
}

static int settle_buffer(struct order *o, const struct mgp_buffer *f, bool *done_out,
			 struct ckpt_err *err)
{
	const struct mgp *p = o->p;
	bool counted = false;
	int rc = 0;

	for (uint64_t t = f->tile; !rc && t < (uint64_t)f->tile + f->ntiles; t++) {
		if (p->tile[t].chunk != MGP_NONE || p->class[p->tile[t].class].is_odd)
			continue;
		if (!counted)
			count_layers(o, f);
		counted = true;
		rc = settle(o, f, t, done_out, err);
	}
	return rc;
}

static int settle_all(struct order *o, struct ckpt_err *err)
{
	struct mgp *p = o->p;
	bool again = true;
	int rc = 0;

	while (!rc && again) {
		again = false;
		for (uint32_t i = 0; !rc && i < p->nbuffers; i++)
			if (p->buffer[i].ntiles && is_whole(p, &p->buffer[i]))
				rc = settle_buffer(o, &p->buffer[i], &again, err);
		if (!rc && again)
			rc = check(o, err);
	}
	return rc;
}

int ck_mgp_order_settle(struct mgp *p, struct ckpt_err *err)
{
	struct order o = { .p = p };
	int rc = 0;

	for (uint32_t i = 0; i < p->nchunks; i++)
		if (p->chunk[i].key >= o.nkeys)
			o.nkeys = p->chunk[i].key + 1;
	o.most = ck_alloc_array((uint64_t)p->nlayers + 1, sizeof(*o.most));
	o.here = ck_alloc_array((uint64_t)p->nlayers + 1, sizeof(*o.here));
	o.layer = ck_alloc_array(o.nkeys, sizeof(*o.layer));
	o.expert = ck_alloc_array(o.nkeys, sizeof(*o.expert));
	if (!o.most || !o.here || !o.layer || !o.expert)
		rc = ck_fail_nomem(err, "the order of parameters", p->nchunks);
	if (!rc) {
		name_single(p);
		rc = check(&o, err);
	}
	if (!rc)
		rc = settle_all(&o, err);
	ck_free(o.most);
	ck_free(o.here);
	ck_free(o.layer);
	ck_free(o.expert);
	ck_free(o.seen);
	ck_map_release(&o.pair);
	ck_arena_release(&o.arena);
	return rc;
}
