/*
 * mg_apply.c -- see mg_apply.h.
 *
 * A tensor of the table has a layer {L} and an expert {E} in its key, or not.  A checkpoint has
 * one tensor of all layers, whose key lacks the layer and whose first axis is the layer; or one for
 * each layer, whose key has the number.  Of experts likewise.  So of rows [a, b) of a tensor of the
 * table the box in a native one is: the layer and the expert, where they are axes, then rows
 * [a, b), then all of the other axes.
 */
#include "formats/megatron/mg_apply.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_sys.h"

#define ALL UINT64_MAX	/* the tensor has all layers, or all experts */
#define MOST_AXES (MG_MAP_AXES + 2)
#define HINT "--naming native reads the tensors as they are"

struct applying {
	const struct mg_map *map;
	const struct mg_sizes *sizes;
	const struct mg_native *native;
	const struct mg_taker *taker;
	struct ck_arena arena;
	struct ck_map made;		/* name -> native tensor */
	struct ckpt_err *err;
};

/* A native tensor, and what it is in the table. */
struct use {
	const struct mg_native *native;
	const struct mg_map_tensor *t;
	uint64_t number;		/* of the native tensor */
	uint64_t layer, expert;		/* ALL, or the number in the key */
	uint32_t lead;			/* axes before those of the table */
	uint64_t rows, groups, per;	/* rows in all, and of a group */
};

/* ------------------------------------------------------------------------ matching */

/* Plain decimal digits up to the next dot. */
static bool read_index(const char **p, uint64_t *out)
{
	const char *s = *p;
	uint64_t n = 0;

	if (*s < '0' || *s > '9' || (*s == '0' && s[1] >= '0' && s[1] <= '9'))
		return false;
	for (; *s >= '0' && *s <= '9'; s++)
		if (ck_mul_over(n, 10, &n) || ck_add_over(n, (uint64_t)(*s - '0'), &n))
			return false;
	if (*s && *s != '.')
		return false;
	*p = s;
	*out = n;
	return true;
}

/* '*layer' and '*expert' are ALL where the key lacks them. */
static bool is_match(const char *pattern, const char *key, uint64_t *layer, uint64_t *expert)
{
	*layer = *expert = ALL;
	while (*pattern) {
		if (*pattern == '{') {
			uint64_t *at = pattern[1] == 'L' ? layer : expert;

			pattern += 3;
			if (!read_index(&key, at)) {
				*at = ALL;
				/* without the part there is no dot either */
				pattern += *pattern == '.';
			}
		} else if (*pattern++ != *key++) {
			return false;
		}
	}
	return !*key;
}

static bool find_use(const struct applying *a, uint64_t i, struct use *out)
{
	for (uint64_t k = 0; k < a->map->ntensors; k++) {
		uint64_t layer, expert;

		if (!is_match(a->map->tensor[k].key, a->native[i].key, &layer, &expert))
			continue;
		*out = (struct use){
			.native = &a->native[i], .t = &a->map->tensor[k], .number = i,
			.layer = layer, .expert = expert,
			.lead = (a->map->tensor[k].has_layer && layer == ALL) +
				(a->map->tensor[k].has_expert && expert == ALL),
		};
		return true;
	}
	return false;
}

/* ------------------------------------------------------------------------- checking */

static bool is_of_kind(const struct applying *a, const struct mg_map_tensor *t, uint64_t layer)
{
	return t->layers == MG_MAP_ALL_LAYERS ||
	       a->sizes->has_experts[layer] == (t->layers == MG_MAP_EXPERT_LAYERS);
}

static bool is_there(const struct applying *a, const struct mg_map_tensor *t)
{
	return !t->flag ||
	       a->sizes->flag[ck_mg_map_find_flag(a->map, t->flag)] != t->unless;
}

static int fail_key(const struct applying *a, const struct use *u, const char *what)
{
	return ck_fail(a->err, CKPT_E_MISMATCH, u->native->key, CKPT_NO_OFFSET,
		       "%s; is %s that of this model? " HINT, what, a->sizes->where);
}

/* The model has this layer and this expert, and the layer is of the kind that has the tensor. */
static int check_place(const struct applying *a, const struct use *u)
{
	const struct mg_sizes *s = a->sizes;
	const struct mg_map_tensor *t = u->t;
	char text[160];

	if (!is_there(a, t)) {
		const struct mg_map_flag *f = &a->map->flag[ck_mg_map_find_flag(a->map, t->flag)];

		snprintf(text, sizeof(text), "%s has no such tensor where %s is %s",
			 a->map->family, f->key, t->unless ? "true" : "false");
		return fail_key(a, u, text);
	}
	if (t->has_layer && u->layer != ALL && u->layer >= s->layers) {
		snprintf(text, sizeof(text), "layer %" PRIu64 " of %" PRIu64, u->layer, s->layers);
		return fail_key(a, u, text);
	}
	if (t->has_expert && u->expert != ALL && u->expert >= s->experts) {
		snprintf(text, sizeof(text), "expert %" PRIu64 " of %" PRIu64, u->expert,
			 s->experts);
		return fail_key(a, u, text);
	}
	for (uint64_t l = 0; t->has_layer && l < s->layers; l++)
		if ((u->layer == ALL || u->layer == l) && !is_of_kind(a, t, l)) {
			snprintf(text, sizeof(text), "layer %" PRIu64 " has %s experts", l,
				 s->has_experts[l] ? "" : "no");
			return fail_key(a, u, text);
		}
	return 0;
}

static void print_shape(char *out, size_t size, const uint64_t *shape, uint32_t ndim)
{
	size_t n = (size_t)snprintf(out, size, "[");

	for (uint32_t i = 0; i < ndim && n < size; i++)
		n += (size_t)snprintf(out + n, size - n, "%s%" PRIu64, i ? ", " : "", shape[i]);
	if (n < size)
		snprintf(out + n, size - n, "]");
}

static int check_shape(const struct applying *a, const struct use *u)
{
	const struct mg_map_tensor *t = u->t;
	const uint32_t ndim = u->lead + t->naxes;
	uint64_t want[MOST_AXES] = { 0 };
	char text[260], is[100], wanted[100];
	uint32_t d = 0;
	bool same;

	if (t->has_layer && u->layer == ALL)
		want[d++] = a->sizes->layers;
	if (t->has_expert && u->expert == ALL)
		want[d++] = a->sizes->experts;
	for (uint32_t i = 0; i < t->naxes; i++, d++) {
		int rc = 0;

		if (!strcmp(t->axis[i], "*"))
			want[d] = d < u->native->ndim ? u->native->shape[d] : 0;
		else
			rc = ck_mg_sizes_value(a->sizes, a->map, t->axis[i], t->line, &want[d],
					       a->err);
		if (rc)
			return rc;
	}
	same = u->native->ndim == ndim;
	for (d = 0; same && d < ndim; d++)
		same = u->native->shape[d] == want[d];
	if (same)
		return 0;
	print_shape(is, sizeof(is), u->native->shape, u->native->ndim);
	print_shape(wanted, sizeof(wanted), want, ndim);
	snprintf(text, sizeof(text), "its shape is %s, and a model of these sizes has %s", is,
		 wanted);
	return fail_key(a, u, text);
}

/* -------------------------------------------------------------------------- making */

/* "model.layers.{L}.mlp" with its numbers. */
static const char *expanded(struct applying *a, const char *name, uint64_t layer, uint64_t expert)
{
	struct ck_buf buf = CK_BUF_INIT(4096);
	const char *copy = NULL;
	int rc = 0;

	while (!rc && *name) {
		const size_t n = strcspn(name, "{");

		rc = ck_buf_add(&buf, name, n, a->err);
		name += n;
		if (!rc && *name) {
			rc = ck_buf_addf(&buf, a->err, "%" PRIu64, name[1] == 'L' ? layer : expert);
			name += 3;
		}
	}
	if (!rc) {
		copy = ck_arena_strndup(&a->arena, buf.p ? buf.p : "", buf.len);
		if (!copy)
			ck_fail_nomem(a->err, "a name", buf.len);
	}
	ck_buf_release(&buf);
	return copy;
}

/* Rows [from, from + rows) of each group. */
static uint64_t *boxes_of(const struct use *u, uint64_t layer, uint64_t expert, uint64_t from,
			  uint64_t rows, uint64_t *n_out)
{
	const bool whole = rows == u->per;
	const uint64_t n = whole ? 1 : u->groups;
	const uint32_t ndim = u->native->ndim;
	uint64_t *box = ck_alloc_array(n, 2 * ndim * sizeof(*box));

	for (uint64_t g = 0; box && g < n; g++) {
		uint64_t *off = box + g * 2 * ndim, *size = off + ndim;
		uint32_t d = 0;

		if (u->t->has_layer && u->layer == ALL) {
			off[d] = layer;
			size[d++] = 1;
		}
		if (u->t->has_expert && u->expert == ALL) {
			off[d] = expert;
			size[d++] = 1;
		}
		off[d] = g * u->per + from;
		size[d++] = whole ? u->rows : rows;
		for (; d < ndim; d++) {
			off[d] = 0;
			size[d] = u->native->shape[d];
		}
	}
	*n_out = n;
	return box;
}

static int make_one(struct applying *a, const struct use *u, const struct mg_map_part *p,
		    uint64_t layer, uint64_t expert, uint64_t from, uint64_t rows)
{
	uint64_t shape[MG_MAP_AXES], old, *box;
	struct mg_made made = {
		.name = expanded(a, p->name, layer, expert), .shape = shape,
		.ndim = u->t->naxes, .native = u->number,
	};
	int rc;

	if (!made.name)
		return -CKPT_E_NOMEM;
	rc = ck_map_add(&a->made, made.name, strlen(made.name), u->number, &old, a->err);
	if (rc == 1)
		return ck_fail(a->err, CKPT_E_MISMATCH, made.name, CKPT_NO_OFFSET,
			       "two tensors of the checkpoint would be this one, %.100s and "
			       "%.100s; " HINT, a->native[old].key, u->native->key);
	if (rc)
		return rc;
	shape[0] = rows * u->groups;
	for (uint32_t d = 1; d < made.ndim; d++)
		shape[d] = u->native->shape[u->lead + d];
	box = boxes_of(u, layer, expert, from, rows, &made.nboxes);
	if (!box)
		return ck_fail_nomem(a->err, "parts of a tensor", u->groups);
	made.box = box;
	rc = a->taker->fn(a->taker->arg, &made, a->err);
	ck_free(box);
	return rc;
}

static int make_all(struct applying *a, const struct use *u, const struct mg_map_part *p,
		    uint64_t from, uint64_t rows)
{
	const struct mg_map_tensor *t = u->t;
	const uint64_t layers = t->has_layer && u->layer == ALL ? a->sizes->layers : 1;
	const uint64_t experts = t->has_expert && u->expert == ALL ? a->sizes->experts : 1;
	int rc = 0;

	for (uint64_t l = 0; !rc && l < layers; l++)
		for (uint64_t e = 0; !rc && e < experts; e++)
			rc = make_one(a, u, p, u->layer == ALL ? l : u->layer,
				      u->expert == ALL ? e : u->expert, from, rows);
	return rc;
}

/* Rows of a group that are taken by the parts before. */
static int fail_rows(const struct applying *a, const struct use *u, const struct mg_map_part *p,
		     uint64_t from, uint64_t rows)
{
	const bool cut = !u->t->part[u->t->nparts - 1].name;

	if (cut && u->groups == 1)
		return ck_fail(a->err, CKPT_E_MISMATCH, u->native->key, CKPT_NO_OFFSET,
			       "%s asks for %" PRIu64 " rows (%s), and the checkpoint has %" PRIu64
			       ", with its padding; is it that of this model? " HINT,
			       a->sizes->vocab_given ? "--vocab" : a->sizes->where, from + rows,
			       p->rows, u->per);
	return ck_fail(a->err, CKPT_E_FORMAT, a->map->where, CKPT_NO_OFFSET,
		       "line %" PRIu32 ": parts of %" PRIu64 " rows, and %.100s has %" PRIu64,
		       p->line, from + rows, u->native->key, u->per);
}

static int make_parts(struct applying *a, const struct use *u)
{
	const struct mg_map_tensor *t = u->t;
	uint64_t from = 0;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < t->nparts; i++) {
		const struct mg_map_part *p = &t->part[i];
		uint64_t rows = u->per - from;

		if (!p->name)
			return 0;
		if (p->rows)
			rc = ck_mg_sizes_value(a->sizes, a->map, p->rows, p->line, &rows, a->err);
		if (!rc && (!rows || rows > u->per - from))
			rc = fail_rows(a, u, p, from, rows);
		if (!rc)
			rc = make_all(a, u, p, from, rows);
		from += rows;
	}
	if (!rc && from != u->per)
		rc = fail_rows(a, u, &t->part[t->nparts - 1], from, 0);
	return rc;
}

static int apply_use(struct applying *a, struct use *u)
{
	int rc = check_place(a, u);

	if (!rc)
		rc = check_shape(a, u);
	if (rc)
		return rc;
	u->rows = u->native->shape[u->lead];
	u->groups = 1;
	if (u->t->groups)
		rc = ck_mg_sizes_value(a->sizes, a->map, u->t->groups, u->t->line, &u->groups,
				       a->err);
	if (rc)
		return rc;
	if (!u->groups || u->rows % u->groups)
		return ck_fail(a->err, CKPT_E_MISMATCH, u->native->key, CKPT_NO_OFFSET,
			       "%" PRIu64 " rows are not %" PRIu64 " equal groups; is %s that of "
			       "this model? " HINT, u->rows, u->groups, a->sizes->where);
	u->per = u->rows / u->groups;
	return make_parts(a, u);
}

/* ------------------------------------------------------------------- what is missing */

struct missing {
	uint64_t n;
	const char *name;		/* the first */
	const struct mg_map_tensor *of;
};

static int look_for(struct applying *a, const struct mg_map_tensor *t, uint64_t layer,
		    struct missing *m)
{
	const uint64_t experts = t->has_expert ? a->sizes->experts : 1;

	for (uint64_t e = 0; e < experts; e++)
		for (uint64_t i = 0; i < t->nparts; i++) {
			const char *name;

			if (!t->part[i].name)
				continue;
			name = expanded(a, t->part[i].name, layer, e);
			if (!name)
				return -CKPT_E_NOMEM;
			if (ck_map_find(&a->made, name, strlen(name), NULL))
				continue;
			/* a second line for the same name counts it once */
			if (ck_map_add(&a->made, name, strlen(name), 0, NULL, a->err) < 0)
				return -CKPT_E_NOMEM;
			if (!m->n++) {
				m->name = name;
				m->of = t;
			}
		}
	return 0;
}

static int check_missing(struct applying *a)
{
	struct missing m = { .n = 0 };
	int rc = 0;

	for (uint64_t k = 0; !rc && k < a->map->ntensors; k++) {
		const struct mg_map_tensor *t = &a->map->tensor[k];
		const uint64_t layers = t->has_layer ? a->sizes->layers : 1;

		if (t->unused || t->optional || !is_there(a, t))
			continue;
		for (uint64_t l = 0; !rc && l < layers; l++)
			if (!t->has_layer || is_of_kind(a, t, l))
				rc = look_for(a, t, l, &m);
	}
	if (!rc && m.n)
		rc = ck_fail(a->err, CKPT_E_MISMATCH, m.name, CKPT_NO_OFFSET,
			     "the checkpoint lacks %" PRIu64 " tensor%s of %s that %s asks for; "
			     "the first would be in %.100s. " HINT, m.n, m.n == 1 ? "" : "s",
			     a->map->family, a->sizes->where, m.of->key);
	return rc;
}

/* ------------------------------------------------------------------------------- all */

/* What the names count must be known. */
static int check_counts(const struct applying *a)
{
	uint64_t n;
	int rc = 0;

	for (uint64_t k = 0; !rc && k < a->map->ntensors; k++) {
		const struct mg_map_tensor *t = &a->map->tensor[k];

		if (t->has_layer)
			rc = ck_mg_sizes_value(a->sizes, a->map, "L", t->line, &n, a->err);
		if (!rc && t->has_expert)
			rc = ck_mg_sizes_value(a->sizes, a->map, "E", t->line, &n, a->err);
	}
	return rc;
}

int ck_mg_apply(const struct mg_map *map, const struct mg_sizes *sizes,
		const struct mg_native *native, uint64_t n, const struct mg_taker *taker,
		struct ckpt_err *err)
{
	struct applying a = {
		.map = map, .sizes = sizes, .native = native, .taker = taker,
		.made = CK_MAP_INIT, .err = err,
	};
	int rc = check_counts(&a);

	for (uint64_t i = 0; !rc && i < n; i++) {
		struct use u;

		if (!find_use(&a, i, &u))
			rc = ck_fail(err, CKPT_E_UNSUPPORTED, native[i].key, CKPT_NO_OFFSET,
				     "the names of %s have no place for this tensor; --naming FILE "
				     "takes a table that has, and " HINT, map->family);
		else if (!u.t->unused)
			rc = apply_use(&a, &u);
	}
	if (!rc)
		rc = check_missing(&a);
	ck_map_release(&a.made);
	ck_arena_release(&a.arena);
	return rc;
}
