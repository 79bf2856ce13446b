/*
 * mg_buckets_spots.c -- the blocks of all weights, and what their keys say of the order.
 *
 * A rank stores its part of a parameter as one block for each layer and expert; of a gated
 * linear_fc1 as two, at rows t F / T and F + t F / T, which follow each other in the rank's tensor.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/megatron/mg_buckets.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define LAYERS "decoder.layers."
#define EXPERTS ".experts.experts."
#define MAX_LAYERS (1u << 20)

/* What a key says: which axes count layers and experts, or which numbers they have. */
struct shape_of {
	const char *plain;	/* the key without numbers */
	bool layer_axis, expert_axis;
	int64_t layer, expert;	/* -1 = none */
	bool is_gated;
	const char *other;	/* of a key that is the first half alone: the second one's */
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Cut the number that follows 'word' out of a key, with its dot; -1 if there is none. */
static int64_t cut_number(char *key, const char *word)
{
	char *at = strstr(key, word), *end;
	int64_t v = 0;

	if (!at || !is_digit(at[strlen(word)]))
		return -1;
	at += strlen(word);
	for (end = at; is_digit(*end) && v < INT32_MAX; end++)
		v = v * 10 + (*end - '0');
	if (*end != '.' || v >= INT32_MAX)
		return -1;
	memmove(at, end + 1, strlen(end + 1) + 1);
	return v;
}

static bool ends_in(const char *s, const char *end)
{
	const size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

static int look_at(struct mg_find *s, const char *key, struct shape_of *out, struct ckpt_err *err)
{
	char *plain = ck_arena_strdup(&s->arena, key);

	if (!plain)
		return ck_fail_nomem(err, "a key", strlen(key));
	*out = (struct shape_of){ .plain = plain, .layer = -1, .expert = -1 };
	if (!strncmp(key, LAYERS, strlen(LAYERS))) {
		out->layer = cut_number(plain, LAYERS);
		out->layer_axis = out->layer < 0;
	}
	if (strstr(key, EXPERTS)) {
		out->expert = cut_number(plain, EXPERTS);
		out->expert_axis = out->expert < 0;
	}
	if (s->mg->model.has_args && !s->mg->model.swiglu)
		return 0;
	out->is_gated = ends_in(key, "linear_fc1.weight") || ends_in(key, "linear_fc1.bias");
	if (ends_in(key, "linear_fc1.weight_w") || ends_in(key, "linear_fc1.bias_w")) {
		char *other = ck_arena_strdup(&s->arena, key);

		if (!other)
			return ck_fail_nomem(err, "a key", strlen(key));
		other[strlen(other) - 1] = 'v';
		out->other = other;
	}
	return 0;
}

/* The number of a plain key. */
static int key_number(struct mg_find *s, const char *plain, uint32_t *out, struct ckpt_err *err)
{
	uint64_t id = s->families.n;
	int rc = ck_map_add(&s->families, plain, strlen(plain), id, &id, err);

	*out = (uint32_t)id;
	return rc < 0 ? rc : 0;
}

static int add_chunk(struct mg_find *s, const struct shape_of *k, uint32_t key, uint64_t param,
		     uint64_t piece, struct ckpt_err *err)
{
	const struct mg_param *p = &s->mg->param[param];
	const struct mg_piece *pc = &p->state[MG_W].piece[piece];
	struct mgp *pl = &s->places;
	struct mgp_chunk c = {
		.src = s->mg->fs.ix->source[pc->extent.source].src, .off = pc->extent.off,
		.numel = pc->count, .key = key, .layer = MGP_NONE, .half = MGP_NONE,
		.dtype = pc->extent.dtype,
	};
	const char *name = p->key;
	uint64_t cap = s->chunk_cap, layer = k->layer < 0 ? UINT64_MAX : (uint64_t)k->layer;
	int rc;

	if (k->layer_axis && pc->offset && p->ndim && pc->size[0] == 1)
		layer = pc->offset[0];
	c.side = !strncmp(name, "embedding.", 10) ? MGP_BEFORE :
		 !strncmp(name, "output_layer.", 13) || !strncmp(name, "decoder.final_", 14) ?
			 MGP_AFTER : MGP_ANYWHERE;
	if (k->expert >= 0)
		c.expert = (uint32_t)k->expert + 1;
	if (k->expert_axis && pc->offset && p->ndim > k->layer_axis)
		c.expert = (uint32_t)ck_min_u64(pc->offset[k->layer_axis], INT32_MAX) + 1;
	if (layer < MAX_LAYERS) {
		c.layer = (uint32_t)layer;
		pl->nlayers = pl->nlayers > c.layer ? pl->nlayers : c.layer + 1;
	}
	rc = ck_grow(&pl->chunk, &s->chunk_cap, pl->nchunks + (uint64_t)1, sizeof(*pl->chunk), err);
	if (!rc)
		rc = ck_grow(&s->spot, &cap, pl->nchunks + (uint64_t)1, sizeof(*s->spot), err);
	if (rc)
		return rc;
	pl->chunk[pl->nchunks] = c;
	s->spot[pl->nchunks++] = (struct mg_spot){ param, piece };
	return 0;
}

/* Parameter and first element of a block -> chunk. */
static int map_chunks(struct mg_find *s, struct ck_map *map, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; rc >= 0 && i < s->places.nchunks; i++) {
		const struct mg_param *p = &s->mg->param[s->spot[i].param];
		const struct mg_piece *pc = &p->state[MG_W].piece[s->spot[i].piece];
		const size_t bytes = (p->ndim + (size_t)1) * sizeof(uint64_t);
		uint64_t *key = ck_arena_zalloc(&s->arena, bytes);

		if (!key)
			return ck_fail_nomem(err, "a block's key", bytes);
		key[0] = s->spot[i].param;
		if (pc->offset && p->ndim)
			memcpy(key + 1, pc->offset, p->ndim * sizeof(*key));
		rc = ck_map_add(map, (const char *)key, bytes, i, NULL, err);
	}
	return rc < 0 ? rc : 0;
}

/* The second half of a gated block; MGP_NONE if it is none. */
static uint32_t half_of(const struct mg_find *s, const struct ck_map *map,
			const struct shape_of *k, uint32_t chunk, uint64_t *room)
{
	const struct mg_param *p = &s->mg->param[s->spot[chunk].param], *o = p;
	const struct mg_piece *pc = &p->state[MG_W].piece[s->spot[chunk].piece];
	const uint32_t row = (uint32_t)k->layer_axis + (uint32_t)k->expert_axis;
	uint64_t id;

	if (k->other)
		o = ck_mg_param_find(s->mg, k->other);
	if (!o || o->ndim != p->ndim || row >= p->ndim || (!pc->offset && !k->other))
		return MGP_NONE;
	memset(room, 0, (p->ndim + (size_t)1) * sizeof(*room));
	room[0] = (uint64_t)(o - s->mg->param);
	if (pc->offset)
		memcpy(room + 1, pc->offset, p->ndim * sizeof(*room));
	if (!k->other) {
		if (p->shape[row] % 2 || pc->offset[row] >= p->shape[row] / 2)
			return MGP_NONE;
		room[1 + row] += p->shape[row] / 2;
	}
	return ck_map_find(map, (const char *)room, (p->ndim + (size_t)1) * sizeof(*room), &id) &&
	       s->places.chunk[id].numel == s->places.chunk[chunk].numel ?
		       (uint32_t)id : MGP_NONE;
}

static int join_halves(struct mg_find *s, struct ckpt_err *err)
{
	struct ck_map map = CK_MAP_INIT;
	struct shape_of k = { .plain = NULL };
	uint64_t last = UINT64_MAX, *room = NULL;
	int rc = map_chunks(s, &map, err);

	for (uint32_t i = 0; !rc && i < s->places.nchunks; i++) {
		const struct mg_param *p = &s->mg->param[s->spot[i].param];

		if (s->spot[i].param != last) {
			last = s->spot[i].param;
			rc = look_at(s, p->key, &k, err);
			room = ck_arena_alloc(&s->arena, (p->ndim + (size_t)1) * sizeof(*room));
			if (!rc && !room)
				rc = ck_fail_nomem(err, "a block's key", p->ndim);
		}
		if (!rc && (k.is_gated || k.other))
			s->places.chunk[i].half = half_of(s, &map, &k, i, room);
	}
	ck_map_release(&map);
	return rc;
}

struct by_block {
	const struct mg_find *s;
	uint32_t chunk;
};

static int compare_blocks(const struct mg_find *s, uint32_t a, uint32_t b, bool *same_out)
{
	const struct mgp_chunk *x = &s->places.chunk[a], *y = &s->places.chunk[b];
	const struct mg_param *p = &s->mg->param[s->spot[a].param];
	const struct mg_piece *m = &p->state[MG_W].piece[s->spot[a].piece], *n;

	*same_out = false;
	if (s->spot[a].param != s->spot[b].param)
		return s->spot[a].param < s->spot[b].param ? -1 : 1;
	if (x->layer != y->layer)
		return x->layer < y->layer ? -1 : 1;
	if (x->expert != y->expert)
		return x->expert < y->expert ? -1 : 1;
	*same_out = true;
	n = &p->state[MG_W].piece[s->spot[b].piece];
	for (uint32_t d = 0; m->offset && n->offset && d < p->ndim; d++)
		if (m->offset[d] != n->offset[d])
			return m->offset[d] < n->offset[d] ? -1 : 1;
	return 0;
}

static int by_block(const void *a, const void *b)
{
	const struct by_block *x = a, *y = b;
	bool same;

	return compare_blocks(x->s, x->chunk, y->chunk, &same);
}

/* Blocks of one parameter, layer and expert are slices of as many ranks, in their order. */
static int number_slices(struct mg_find *s, struct ckpt_err *err)
{
	struct mgp *p = &s->places;
	struct by_block *all = ck_alloc_array(p->nchunks, sizeof(*all));
	bool same;

	if (!all)
		return ck_fail_nomem(err, "slices", p->nchunks);
	for (uint32_t i = 0; i < p->nchunks; i++) {
		all[i] = (struct by_block){ s, i };
		if (p->chunk[i].half != MGP_NONE)
			p->chunk[p->chunk[i].half].is_half = true;
	}
	qsort(all, p->nchunks, sizeof(*all), by_block);
	for (uint32_t i = 0, end; i < p->nchunks; i = end) {
		uint32_t n = 0;

		for (end = i; end < p->nchunks; end++) {
			compare_blocks(s, all[i].chunk, all[end].chunk, &same);
			if (!same)
				break;
			if (!p->chunk[all[end].chunk].is_half)
				p->chunk[all[end].chunk].slice = n++;
		}
		for (uint32_t k = i; k < end; k++)
			p->chunk[all[k].chunk].nslices = n;
	}
	for (uint32_t i = 0; i < p->nchunks; i++)
		if (p->chunk[i].half != MGP_NONE) {
			p->chunk[p->chunk[i].half].slice = p->chunk[i].slice;
			p->chunk[p->chunk[i].half].nslices = p->chunk[i].nslices;
		}
	ck_free(all);
	return 0;
}

int ck_mg_spots_make(struct mg_find *s, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < s->mg->nparams; i++) {
		const struct mg_param *p = &s->mg->param[i];
		const struct mg_state *w = &p->state[MG_W];
		struct shape_of k;
		uint32_t key;

		rc = look_at(s, p->key, &k, err);
		if (!rc)
			rc = key_number(s, k.plain, &key, err);
		for (uint64_t n = 0; !rc && n < w->n; n++) {
			if (w->piece[n].first || w->piece[n].extent.flags ||
			    w->piece[n].extent.runs > 1)
				continue;
			if (s->places.nchunks >= MGP_NONE - 1)
				return ck_fail(err, CKPT_E_LIMIT, p->key, CKPT_NO_OFFSET,
					       "more blocks than can be numbered");
			rc = add_chunk(s, &k, key, i, n, err);
		}
	}
	s->places.is_tied = !ck_mg_param_find(s->mg, "output_layer.weight");
	if (!rc)
		rc = join_halves(s, err);
	return rc ? rc : number_slices(s, err);
}
