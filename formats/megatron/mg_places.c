/*
 * mg_places.c -- the tiles of a bucket.
 *
 * A bucket is parameters one after the other, each from a multiple of 64 elements on, so the next
 * tile begins less than 64 elements after the end of the last one.  All ways to lay blocks that fit
 * from the first element to the last are a graph: nodes are the ends of tiles, edges are tiles.
 * The bucket is known if exactly one way leads through it.
 *
 * Where the files say where parameters begin and end, tiles begin and end there.  Where buckets are
 * joined to one row, a bucket begins where the last one ended, at any element, and counts multiples
 * of 64 from there.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/megatron/mg_places.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"

#define WORK 16u	/* elements compared in a bucket, as a multiple of its own */

struct edge {
	uint64_t at;
	uint32_t class, half;	/* 'half' follows at once, or MGP_NONE */
	uint32_t to, next;	/* node; another edge of the same one */
};

struct node {
	uint64_t end;		/* of the last tile */
	uint64_t base;		/* of the bucket in the row, modulo MGP_ALIGN */
	uint32_t edge;		/* the first one */
	bool leads;		/* to the end of the row */
};

struct walk {
	struct mgp *p;
	struct mgp_bucket *b;
	struct node *node;
	struct edge *edge;
	uint64_t nnodes, node_cap, nedges, edge_cap;
	struct ck_map by_end;
	struct ck_arena arena;	/* of its keys */
	uint64_t work;
	uint64_t *start;	/* room for the masters at a start */
};

static uint64_t aligned(uint64_t end, uint64_t base)
{
	const uint64_t over = (end - base) % MGP_ALIGN;

	return over ? end + MGP_ALIGN - over : end;
}

/* Is what follows the last tile at most the gap before a parameter that begins elsewhere? */
static bool is_end(const struct mgp_bucket *b, const struct node *n)
{
	return n->end == b->numel || aligned(n->end, n->base) == b->numel;
}

/* May a parameter begin or end there? */
static bool is_border(const struct mgp_bucket *b, uint64_t at)
{
	uint64_t lo = 0, hi = b->nruns;

	if (!b->has_borders || at == b->numel)
		return true;
	while (hi - lo > 1) {
		const uint64_t mid = lo + (hi - lo) / 2;

		if (b->run[mid].first <= at)
			lo = mid;
		else
			hi = mid;
	}
	return b->run[lo].first == at;
}

static int node_at(struct walk *w, uint64_t end, uint64_t base, uint32_t *out,
		   struct ckpt_err *err)
{
	uint64_t *key = ck_arena_alloc(&w->arena, 2 * sizeof(*key)), id = w->nnodes;
	int rc;

	if (!key)
		return ck_fail_nomem(err, "a place in a bucket", 2 * sizeof(*key));
	key[0] = end;
	key[1] = base;
	rc = ck_map_add(&w->by_end, (const char *)key, 2 * sizeof(*key), id, &id, err);
	if (!rc)
		rc = ck_grow(&w->node, &w->node_cap, w->nnodes + 1, sizeof(*w->node), err);
	if (!rc)
		w->node[w->nnodes++] = (struct node){ .end = end, .base = base, .edge = MGP_NONE };
	*out = (uint32_t)id;
	return rc < 0 ? rc : 0;
}

static int add_edge(struct walk *w, uint32_t from, struct edge e, uint64_t end, uint64_t base,
		    struct ckpt_err *err)
{
	int rc = node_at(w, end, base, &e.to, err);

	if (!rc)
		rc = ck_grow(&w->edge, &w->edge_cap, w->nedges + 1, sizeof(*w->edge), err);
	if (rc)
		return rc;
	e.next = w->node[from].edge;
	w->node[from].edge = (uint32_t)w->nedges;
	w->edge[w->nedges++] = e;
	return 0;
}

/* The other half of a block of that class, if it follows at 'at'. */
static int half_at(struct walk *w, uint32_t class, uint64_t at, uint32_t *out,
		   struct ckpt_err *err)
{
	const struct mgp *p = w->p;
	struct mgp_kind kind = { .numel = 0 };
	uint32_t found = MGP_NONE;
	int rc = 0;

	*out = MGP_NONE;
	for (uint32_t c = p->class[class].chunk; !rc && c != MGP_NONE; c = p->chunk[c].like) {
		const struct mgp_chunk *half;

		if (p->chunk[c].half == MGP_NONE)
			continue;
		half = &p->chunk[p->chunk[c].half];
		if (half->class == MGP_NONE || half->numel > w->b->numel - at ||
		    !is_border(w->b, at + half->numel))
			continue;
		if (kind.numel != half->numel || kind.dtype != half->dtype) {
			kind = (struct mgp_kind){ .numel = half->numel, .dtype = half->dtype };
			w->work += kind.numel;
			rc = ck_mgp_class_at(w->p, w->b, at, &kind, &found, err);
		}
		if (!rc && found == half->class)
			*out = found;
	}
	return rc;
}

/* Blocks of one kind that begin at 'at'. */
static int try_kind(struct walk *w, uint32_t from, uint64_t at, uint64_t base,
		    const struct mgp_kind *kind, struct ckpt_err *err)
{
	const uint64_t end = at + kind->numel;
	struct edge e = { .at = at, .half = MGP_NONE };
	int rc;

	w->work += kind->numel;
	rc = ck_mgp_class_at(w->p, w->b, at, kind, &e.class, err);
	if (rc || e.class == MGP_NONE)
		return rc;
	if (kind->has_halves)
		rc = half_at(w, e.class, end, &e.half, err);
	if (!rc && e.half != MGP_NONE)
		return add_edge(w, from, e, end + w->p->class[e.half].numel, base, err);
	if (!rc && is_border(w->b, end))
		rc = add_edge(w, from, e, end, base, err);
	return rc;
}

static int try_start(struct walk *w, uint32_t from, uint64_t at, uint64_t base,
		     struct ckpt_err *err)
{
	const struct mgp_bucket *b = w->b;
	const uint64_t left = b->numel - at, n = ck_min_u64(left, MGP_START);
	const size_t es = ckpt_dtype_bits((enum ckpt_dtype)b->dtype) / 8;
	int rc = ck_mgp_read(b->run, b->nruns, es, at, n, w->start, err);

	w->work += n;
	for (uint64_t i = 0; !rc && i < w->p->nkinds; i++) {
		const struct mgp_kind kind = w->p->kind[i];

		if (kind.numel > left || (!kind.has_halves && !is_border(b, at + kind.numel)))
			continue;
		memcpy(w->p->raw, w->start, n * es);
		if (ck_mgp_may_start(w->p, b, n, &kind))
			rc = try_kind(w, from, at, base, &kind, err);
	}
	return rc;
}

/* All edges, from the front on. */
static int draw(struct walk *w, struct ckpt_err *err)
{
	struct mgp_bucket *b = w->b;
	uint32_t id;
	int rc = node_at(w, 0, 0, &id, err);

	for (uint32_t i = 0; !rc && i < w->nnodes; i++) {
		const struct node n = w->node[i];
		const uint64_t at = aligned(n.end, n.base);

		if (w->work / WORK > b->numel) {
			b->why = "too much of it is the same";
			b->at = n.end;
			return 0;
		}
		if (at < b->numel && is_border(b, at))
			rc = try_start(w, i, at, n.base, err);
		if (!rc && !b->has_borders && at != n.end && n.end < b->numel)
			rc = try_start(w, i, n.end, n.end % MGP_ALIGN, err);
	}
	return rc;
}

struct by_end {
	uint64_t end;
	uint32_t node;
};

static int from_behind(const void *a, const void *b)
{
	const struct by_end *x = a, *y = b;

	return x->end > y->end ? -1 : x->end < y->end;
}

/* Which nodes lead to the end; why it is unknown if the first one does not. */
static int mark(struct walk *w, struct ckpt_err *err)
{
	struct mgp_bucket *b = w->b;
	struct by_end *order = ck_alloc_array(w->nnodes, sizeof(*order));

	if (!order)
		return ck_fail_nomem(err, "places in a bucket", w->nnodes * sizeof(*order));
	for (uint32_t i = 0; i < w->nnodes; i++)
		order[i] = (struct by_end){ w->node[i].end, i };
	qsort(order, w->nnodes, sizeof(*order), from_behind);
	for (uint64_t i = 0; i < w->nnodes; i++) {
		struct node *n = &w->node[order[i].node];

		n->leads = is_end(b, n);
		for (uint32_t e = n->edge; e != MGP_NONE; e = w->edge[e].next)
			n->leads |= w->node[w->edge[e].to].leads;
	}
	if (!w->node[0].leads) {
		b->why = "no weight rounds to what is";
		b->at = ck_min_u64(aligned(order[0].end, w->node[order[0].node].base), b->numel);
	}
	ck_free(order);
	return 0;
}

static int add_tile(struct mgp *p, uint32_t bucket, uint32_t class, uint64_t at,
		    struct ckpt_err *err)
{
	int rc = ck_grow(&p->tile, &p->tile_cap, p->ntiles + 1, sizeof(*p->tile), err);

	if (!rc)
		p->tile[p->ntiles++] = (struct mgp_tile){
			.bucket = bucket, .class = class, .chunk = MGP_NONE, .next = MGP_NONE,
			.at = at,
		};
	return rc;
}

/* The only way; without a tile if there are two. */
static int follow(struct walk *w, struct ckpt_err *err)
{
	struct mgp *p = w->p;
	const uint64_t had = p->ntiles;
	const uint32_t bucket = (uint32_t)(w->b - p->bucket);
	uint32_t i = 0;
	int rc = 0;

	while (!rc) {
		const struct node *n = &w->node[i];
		const struct edge *only = NULL;
		bool forks = false;

		for (uint32_t e = n->edge; e != MGP_NONE; e = w->edge[e].next)
			if (w->node[w->edge[e].to].leads) {
				forks |= only != NULL;
				only = &w->edge[e];
			}
		if (forks || (only && is_end(w->b, n))) {
			w->b->why = "more than one way fits";
			w->b->at = n->end;
			p->ntiles = had;
			return 0;
		}
		if (!only)
			return 0;
		rc = add_tile(p, bucket, only->class, only->at, err);
		if (!rc && only->half != MGP_NONE)
			rc = add_tile(p, bucket, only->half,
				      only->at + p->class[only->class].numel, err);
		i = only->to;
	}
	return rc;
}

static int tile(struct mgp *p, struct mgp_bucket *b, struct ckpt_err *err)
{
	struct walk w = { .p = p, .b = b };
	struct ckpt_err inner = { 0 };
	int rc;

	if (b->why)
		return 0;
	if (!ck_dtype_is_castable((enum ckpt_dtype)b->dtype)) {
		b->why = "its masters are of no type that weights are rounded from";
		return 0;
	}
	w.start = ck_alloc(MGP_START * sizeof(*w.start));
	rc = w.start ? draw(&w, &inner) :
		       ck_fail_nomem(&inner, "masters", MGP_START * sizeof(*w.start));
	if (!rc && !b->why)
		rc = mark(&w, &inner);
	if (!rc && !b->why)
		rc = follow(&w, &inner);
	if (rc) {
		b->why = "its file is damaged";
		rc = ck_err_take_system(rc, &inner, err);
	}
	ck_free(w.start);
	ck_free(w.node);
	ck_free(w.edge);
	ck_map_release(&w.by_end);
	ck_arena_release(&w.arena);
	return rc;
}

/* Positions that have more blocks of a class than there are: then it is not known which. */
static int count(struct mgp *p, struct ckpt_err *err)
{
	uint32_t *n = ck_alloc_array(p->nclasses, sizeof(*n));

	if (!n)
		return ck_fail_nomem(err, "counts of blocks", p->nclasses * sizeof(*n));
	for (uint32_t i = 0; i < p->nbuffers; i++) {
		const struct mgp_buffer *f = &p->buffer[i];
		bool first = true;

		for (uint32_t k = 0; k < i; k++)
			first &= p->buffer[k].family != f->family ||
				 p->buffer[k].position != f->position;
		if (!first)
			continue;
		memset(n, 0, p->nclasses * sizeof(*n));
		for (uint32_t k = i; k < p->nbuffers; k++) {
			const struct mgp_buffer *o = &p->buffer[k];

			if (o->family != f->family || o->position != f->position)
				continue;
			for (uint32_t t = o->tile; t < o->tile + o->ntiles; t++)
				if (++n[p->tile[t].class] > p->class[p->tile[t].class].nchunks)
					p->class[p->tile[t].class].is_odd = true;
		}
	}
	ck_free(n);
	return 0;
}

static void link_tiles(struct mgp *p)
{
	for (uint64_t t = p->ntiles; t-- > 0;) {
		struct mgp_chunk *c;

		if (p->tile[t].chunk == MGP_NONE)
			continue;
		c = &p->chunk[p->tile[t].chunk];
		p->tile[t].next = c->tile;
		c->tile = (uint32_t)t;
	}
}

static int find(struct mgp *p, struct ckpt_err *err)
{
	int rc = ck_mgp_classes_make(p, err);

	for (uint32_t i = 0; !rc && i < p->nbuffers; i++) {
		struct mgp_buffer *f = &p->buffer[i];

		f->tile = (uint32_t)p->ntiles;
		for (uint32_t b = f->bucket; !rc && b < f->bucket + f->nbuckets; b++)
			rc = tile(p, &p->bucket[b], err);
		f->ntiles = (uint32_t)p->ntiles - f->tile;
	}
	if (!rc)
		rc = count(p, err);
	if (!rc)
		rc = ck_mgp_order_settle(p, err);
	if (!rc)
		rc = ck_mgp_whole_check(p, err);
	if (!rc)
		link_tiles(p);
	return rc;
}

int ck_mgp_find(struct mgp *p, struct ckpt_err *err)
{
	int rc = 0;

	p->raw = ck_alloc(MGP_BLOCK * sizeof(uint64_t));
	p->cast = ck_alloc(MGP_BLOCK * sizeof(uint64_t));
	p->hasher = ck_hasher_new();
	if (!p->raw || !p->cast || !p->hasher)
		rc = ck_fail_nomem(err, "blocks to compare", 2 * MGP_BLOCK * sizeof(uint64_t));
	if (!rc)
		rc = find(p, err);
	return rc;
}

void ck_mgp_release(struct mgp *p)
{
	ck_free(p->raw);
	ck_free(p->cast);
	ck_hasher_free(p->hasher);
	ck_free(p->tile);
	ck_free(p->class);
	ck_free(p->kind);
	ck_map_release(&p->by_start);
	ck_map_release(&p->by_content);
	ck_arena_release(&p->arena);
}
