/*
 * ds_z0_match.c -- which parameter each place of a stage-0 optimizer is for.
 *
 * A name is given only where it follows from the files:
 *
 *   param_names of the groups (torch 2.6 and later keep them when they are given), if they are
 *       as many as the places, and shapes and values agree
 *   masters kept per parameter   the one parameter of the same shape whose weight the master
 *       rounds to; if two parameters fit, or none, it is left out
 *   masters kept flat            one group in the order of 'module', every piece rounding to
 *       its weight; else piece by piece the one parameter that fits there, for all of it
 *   no masters (fp32 training)   by shapes, which must come in the order of 'module' in each
 *       group: every parameter of a shape is in the optimizer, and in one group only
 *
 * Up to PREFIX elements of each are compared, by a hash of 128 bits.  That cannot name a state
 * wrongly: the true parameter always fits, so a false one that fits as well makes two, and then
 * none is taken.
 */
#include <string.h>

#include "formats/deepspeed/ds_z0.h"
#include "kernels/include/kn.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_extents.h"

#define PREFIX 4096u

static enum kn_type kn_type_of(enum ckpt_dtype dtype)
{
	return dtype == CKPT_F64 ? KN_F64 : dtype == CKPT_F16 ? KN_F16 :
	       dtype == CKPT_BF16 ? KN_BF16 : KN_F32;
}

/* The stored weight of a tensor as a slice; false if it is strided or deflated. */
static bool weight_slice(const struct ds_step *ds, uint32_t tensor, struct ds_slice *out)
{
	const uint32_t s = ck_index_state_find(ds->ix, tensor, "weight");
	const struct ck_extent *e;

	if (s == CK_NONE || ds->ix->state[s].nextents != 1)
		return false;
	e = ck_extent_stored(ds->ix, &ds->ix->state[s], 0);
	if (e->flags || e->runs != 1)
		return false;
	*out = (struct ds_slice){ .off = e->off, .numel = e->count, .dtype = e->dtype };
	return true;
}

/* The hash of the first 'n' elements of 's', from 'at' on, rounded to 'dtype'. */
static bool hash_of(struct z0 *z, const struct ds_slice *s, uint64_t at, uint64_t n,
		    enum ckpt_dtype dtype, struct ck_hash128 *out)
{
	const uint64_t es = ckpt_dtype_bits(s->dtype) / 8;
	struct ck_src *src = z->ds->ix->source[z->file->source].src;
	uint8_t in[PREFIX * 8], cast[PREFIX * 8];

	if (s->flags || !ck_dtype_is_castable(s->dtype) || !ck_dtype_is_castable(dtype) ||
	    n > PREFIX || at > s->numel || n > s->numel - at ||
	    ck_src_read(src, s->off + at * es, in, n * es, NULL))
		return false;
	kn_cast(cast, kn_type_of(dtype), in, kn_type_of(s->dtype), n, NULL);
	*out = ck_hash128(cast, n * (ckpt_dtype_bits(dtype) / 8));
	return true;
}

void ck_z0_read_weights(struct z0 *z)
{
	for (uint32_t i = 0; i < z->nparams; i++) {
		struct z0_param *p = &z->param[i];

		p->unknown = !weight_slice(z->ds, p->tensor, &p->weight);
		if (p->unknown)
			continue;
		p->prefix = ck_min_u64(p->weight.numel, PREFIX);
		p->readable = hash_of(z, &p->weight, 0, p->prefix, p->weight.dtype, &p->hash);
	}
}

/* A run of a master, and its hash for the type and length that were asked for last. */
struct piece {
	const struct ds_slice *master;
	uint64_t at;
	struct ck_hash128 hash;
	uint64_t prefix;
	uint8_t dtype;	/* 0 = none yet */
	bool ok;
};

/* Do its elements round to the first ones of the parameter? */
static bool rounds_to(struct z0 *z, struct piece *piece, const struct z0_param *p)
{
	if (!p->readable)
		return false;
	if (piece->dtype != p->weight.dtype || piece->prefix != p->prefix) {
		piece->ok = hash_of(z, piece->master, piece->at, p->prefix,
				    (enum ckpt_dtype)p->weight.dtype, &piece->hash);
		piece->dtype = p->weight.dtype;
		piece->prefix = p->prefix;
	}
	return piece->ok && ck_hash128_equal(piece->hash, p->hash);
}

static const struct ck_tensor *tensor_of(const struct z0 *z, uint32_t param)
{
	return &z->ds->ix->tensor[z->param[param].tensor];
}

static bool same_shape(const struct ck_tensor *t, const struct ck_tensor_ref *r)
{
	return t->ndim == r->ndim &&
	       (!t->ndim || !memcmp(t->shape, r->shape, t->ndim * sizeof(*t->shape)));
}

static void forget(struct z0 *z)
{
	for (uint32_t i = 0; i < z->nparams; i++)
		z->param[i].taken = false;
	z->npool = 0;
	for (uint32_t g = 0; g < z->ngroups; g++) {
		if (z->form == Z0_FLAT)
			z->group[g].nplaces = 0;
		for (uint32_t i = 0; i < z->group[g].nplaces; i++)
			z->group[g].place[i].param = CK_NONE;
	}
}

/* ---- masters of one parameter each ---- */

/* The only parameter that fits, or CK_NONE. */
static uint32_t only_match(struct z0 *z, const struct z0_place *place)
{
	struct piece piece = { .master = &place->master };
	uint32_t found = CK_NONE;

	for (uint32_t i = 0; i < z->nparams; i++) {
		if (!same_shape(tensor_of(z, i), place->like))
			continue;
		if (z->param[i].unknown)
			return CK_NONE;	/* it may be this one */
		if (!rounds_to(z, &piece, &z->param[i]))
			continue;
		if (found != CK_NONE)
			return CK_NONE;
		found = i;
	}
	return found;
}

static void match_whole(struct z0 *z)
{
	for (uint32_t g = 0; g < z->ngroups; g++)
		for (uint32_t i = 0; i < z->group[g].nplaces; i++) {
			struct z0_place *place = &z->group[g].place[i];
			uint32_t p = CK_NONE;

			if (place->like && place->master.dtype)
				p = only_match(z, place);
			if (p == CK_NONE || z->param[p].taken)
				continue;
			z->param[p].taken = true;
			place->param = p;
		}
}

/* ---- masters of a group each ---- */

/* Parameter 'p' is the next piece of the group's flat master. */
static void take_piece(struct z0 *z, struct z0_group *g, uint32_t p, uint64_t at)
{
	if (!g->nplaces)
		g->place = z->pool + z->npool;
	z->npool++;
	g->place[g->nplaces++] = (struct z0_place){
		.master = g->flat, .at = at, .state = g->state, .param = p,
	};
	z->param[p].taken = true;
}

/* Does the flat master hold every parameter in order, each rounding to its weight? */
static bool in_order(struct z0 *z, struct z0_group *g)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < z->nparams; i++) {
		const uint64_t n = tensor_of(z, i)->numel;
		struct piece piece = { .master = &g->flat, .at = at };

		if (n > g->flat.numel - at || !rounds_to(z, &piece, &z->param[i]))
			return false;
		take_piece(z, g, i, at);
		at += n;
	}
	return at == g->flat.numel;
}

/* The only parameter that the group can go on with at 'at'. */
static uint32_t only_next(struct z0 *z, const struct z0_group *g, uint64_t at)
{
	struct piece piece = { .master = &g->flat, .at = at };
	uint32_t found = CK_NONE;

	for (uint32_t i = 0; i < z->nparams; i++) {
		const uint64_t n = tensor_of(z, i)->numel;

		if (z->param[i].taken || !n || n > g->flat.numel - at)
			continue;
		if (!z->param[i].unknown && !rounds_to(z, &piece, &z->param[i]))
			continue;
		if (z->param[i].unknown || found != CK_NONE)
			return CK_NONE;
		found = i;
	}
	return found;
}

static bool piece_by_piece(struct z0 *z, struct z0_group *g)
{
	uint64_t at = 0;

	while (at < g->flat.numel) {
		const uint32_t p = only_next(z, g, at);

		if (p == CK_NONE)
			return false;
		take_piece(z, g, p, at);
		at += tensor_of(z, p)->numel;
	}
	return true;
}

static void match_flat(struct z0 *z)
{
	bool fits = z->ngroups == 1 && z->group[0].flat.dtype && in_order(z, &z->group[0]);

	if (fits)
		return;
	forget(z);
	fits = true;
	for (uint32_t g = 0; fits && g < z->ngroups; g++)
		fits = z->group[g].flat.dtype && piece_by_piece(z, &z->group[g]);
	if (!fits)
		forget(z);
}

/* ---- no masters: shapes ---- */

/* Parameters and places of one shape. */
struct class {
	uint32_t params, places;
	uint32_t group;
	bool spread;	/* over several groups */
};

struct classes {
	struct ck_map by_shape;	/* ndim and sizes -> class */
	struct class *class;
	uint32_t n;
};

static int class_of(struct z0 *z, struct classes *c, const uint64_t *shape, uint32_t ndim,
		    struct class **out, struct ckpt_err *err)
{
	const size_t bytes = ((size_t)ndim + 1) * sizeof(uint64_t);
	uint64_t *key = ck_arena_alloc(&z->ds->arena, bytes), old = c->n;
	int rc;

	if (!key)
		return ck_fail_nomem(err, "a shape", bytes);
	key[0] = ndim;
	if (ndim)
		memcpy(key + 1, shape, ndim * sizeof(*shape));
	rc = ck_map_add(&c->by_shape, (const char *)key, bytes, c->n, &old, err);
	if (rc < 0)
		return rc;
	if (!rc)
		c->n++;
	*out = &c->class[old];
	return 0;
}

static int count_places(struct z0 *z, struct classes *c, bool *known_out, struct ckpt_err *err)
{
	*known_out = true;
	for (uint32_t g = 0; g < z->ngroups; g++)
		for (uint32_t i = 0; i < z->group[g].nplaces; i++) {
			const struct ck_tensor_ref *r = z->group[g].place[i].like;
			struct class *class;
			int rc;

			if (!r) {
				*known_out = false;
				return 0;
			}
			rc = class_of(z, c, r->shape, r->ndim, &class, err);
			if (rc)
				return rc;
			class->spread |= class->places && class->group != g;
			class->group = g;
			class->places++;
		}
	return 0;
}

static int count_params(struct z0 *z, struct classes *c, struct class **of, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < z->nparams; i++) {
		const struct ck_tensor *t = tensor_of(z, i);

		rc = class_of(z, c, t->shape, t->ndim, &of[i], err);
		if (!rc)
			of[i]->params++;
	}
	return rc;
}

static bool one_way(const struct classes *c)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (c->class[i].places &&
		    (c->class[i].spread || c->class[i].places != c->class[i].params))
			return false;
	return true;
}

/* Each group takes the parameters of its shapes in the order of 'module'. */
static void match_in_turn(struct z0 *z, struct class *const *of, uint32_t *next)
{
	for (uint32_t i = 0; i < z->nparams; i++) {
		struct z0_group *g = &z->group[of[i]->group];
		struct z0_place *place;

		if (!of[i]->places)
			continue;
		place = &g->place[next[of[i]->group]++];
		if (!same_shape(tensor_of(z, i), place->like)) {
			forget(z);
			return;
		}
		place->param = i;
		z->param[i].taken = true;
	}
}

static int match_shapes(struct z0 *z, struct ckpt_err *err)
{
	uint64_t most = (uint64_t)z->nparams + 1;
	struct classes c = { .n = 0 };
	struct class **of;
	uint32_t *next;
	bool known = false;
	int rc;

	for (uint32_t g = 0; g < z->ngroups; g++)
		most += z->group[g].nplaces;
	c.class = ck_arena_zalloc(&z->ds->arena, most * sizeof(*c.class));
	of = ck_arena_zalloc(&z->ds->arena, most * sizeof(*of));
	next = ck_arena_zalloc(&z->ds->arena, ((uint64_t)z->ngroups + 1) * sizeof(*next));
	if (!c.class || !of || !next)
		return ck_fail_nomem(err, "shapes", most);
	rc = count_places(z, &c, &known, err);
	if (!rc && known)
		rc = count_params(z, &c, of, err);
	if (!rc && known && one_way(&c))
		match_in_turn(z, of, next);
	ck_map_release(&c.by_shape);
	return rc;
}

/* ---- names that the optimizer was given ---- */

static int map_params(const struct z0 *z, struct ck_map *map, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; rc >= 0 && i < z->nparams; i++)
		rc = ck_map_add(map, tensor_of(z, i)->name, strlen(tensor_of(z, i)->name), i, NULL,
				err);
	return rc < 0 ? rc : 0;
}

/* The parameter of that name, or of the name that it is tied to, that is not taken yet. */
static uint32_t param_named(const struct z0 *z, const struct ck_map *map, const char *name)
{
	const struct ck_index *ix = z->ds->ix;
	uint32_t tensor;
	uint64_t i;

	if (name && ck_index_find(ix, name, &tensor) && ix->tensor[tensor].role == CKPT_ROLE_ALIAS)
		name = ix->tensor[ix->tensor[tensor].alias_of].name;
	if (!name || !ck_map_find(map, name, strlen(name), &i) || z->param[i].taken)
		return CK_NONE;
	return (uint32_t)i;
}

/* Shape and value, as far as they are there, must be those of the parameter. */
static bool name_fits(struct z0 *z, uint32_t p, const struct ck_tensor_ref *like,
		      const struct ds_slice *master, uint64_t at)
{
	struct piece piece = { .master = master, .at = at };

	if (p == CK_NONE || (like && !same_shape(tensor_of(z, p), like)))
		return false;
	return !master->dtype || z->param[p].unknown || rounds_to(z, &piece, &z->param[p]);
}

static bool name_group(struct z0 *z, struct z0_group *g, const struct ck_map *map)
{
	struct ck_val *const *item;
	uint64_t n, at = 0;

	if (!ck_val_seq(g->names, &item, &n) || n > z->nparams ||
	    (z->form != Z0_FLAT && n != g->nplaces))
		return false;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t p = param_named(z, map, ck_val_str(item[i]));
		struct z0_place *place;

		if (z->form == Z0_FLAT) {
			if (!name_fits(z, p, NULL, &g->flat, at))
				return false;
			take_piece(z, g, p, at);
			at += tensor_of(z, p)->numel;
			continue;
		}
		place = &g->place[i];
		if (!name_fits(z, p, place->like, &place->master, 0))
			return false;
		place->param = p;
		z->param[p].taken = true;
	}
	return z->form != Z0_FLAT || (at == g->flat.numel && g->flat.dtype);
}

/* All groups by their param_names, or none; '*done_out' says which. */
static int match_names(struct z0 *z, bool *done_out, struct ckpt_err *err)
{
	struct ck_map map = CK_MAP_INIT;
	bool ok = z->ngroups > 0;
	int rc = 0;

	*done_out = false;
	for (uint32_t g = 0; ok && g < z->ngroups; g++)
		ok = z->group[g].names != NULL;
	if (!ok)
		return 0;
	rc = map_params(z, &map, err);
	for (uint32_t g = 0; !rc && ok && g < z->ngroups; g++)
		ok = name_group(z, &z->group[g], &map);
	ck_map_release(&map);
	if (!rc && !ok)
		forget(z);
	*done_out = !rc && ok;
	return rc;
}

int ck_z0_match(struct z0 *z, struct ckpt_err *err)
{
	bool done;
	int rc = match_names(z, &done, err);

	if (rc || done)
		return rc;
	if (z->form == Z0_TORCH)
		return match_shapes(z, err);
	if (z->form == Z0_WHOLE)
		match_whole(z);
	else
		match_flat(z);
	return 0;
}
