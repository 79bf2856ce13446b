/*
 * ds_pipe.c -- pipeline parallelism: files of layers, which have names without the layer's number,
 * become the 'module' of the position that has the layer's parameters in its optimizer.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ds_pt/ds_par.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_val_new.h"

/* ---- names in param_shapes ---- */

/* "12.up.weight" -> 12; false for another name. */
static bool layer_of(const char *name, uint32_t *out)
{
	uint32_t v = 0, n = 0;

	while (name[n] >= '0' && name[n] <= '9' && n < 6)
		v = v * 10 + (uint32_t)(name[n++] - '0');
	*out = v;
	return n && name[n] == '.';
}

/* Call 'fn' with every name and shape of a position; until it says false. */
static void for_names(const struct ds_pos *pos,
		      bool (*fn)(void *arg, const char *name, const struct ck_val *shape),
		      void *arg)
{
	struct ck_val *const *group, *const *item;
	uint64_t ngroups, n, seen = 0;

	if (!ck_val_seq(ck_val_get(pos->ds->model, "param_shapes"), &group, &ngroups))
		return;
	for (uint64_t g = 0; g < ngroups; g++) {
		if (!ck_val_pairs(group[g], &item, &n))
			continue;
		seen += n;	/* one dictionary may hang in many places */
		for (uint64_t i = 0; i < n && seen <= pos->ds->in->limits.pickle_nodes; i++)
			if (ck_val_str(item[2 * i]) &&
			    !fn(arg, ck_val_str(item[2 * i]), item[2 * i + 1]))
				return;
	}
}

struct has_layer {
	uint32_t number;
	bool found;
};

static bool see_layer(void *arg, const char *name, const struct ck_val *shape)
{
	struct has_layer *h = arg;
	uint32_t n;

	(void)shape;
	h->found |= layer_of(name, &n) && n == h->number;
	return !h->found;
}

/* ---- tied modules ---- */

#define TIED "tied_modules."

/* Does a file of a layer have all that a tied module has? */
struct tied {
	const struct ck_val *layer;
	const char *key;	/* the only one that fits */
	size_t len;
	const char *doubt;	/* another one */
	/* of the key at hand */
	const char *now;
	size_t now_len;
	bool fits;
};

static bool has_shape(const struct ck_tensor_ref *t, const struct ck_val *shape)
{
	struct ck_val *const *item;
	uint64_t n;
	int64_t d;

	if (!t || !ck_val_seq(shape, &item, &n) || n != t->ndim)
		return false;
	for (uint64_t i = 0; i < n; i++)
		if (!ck_val_int(item[i], &d) || d < 0 || (uint64_t)d != t->shape[i])
			return false;
	return true;
}

static bool see_rest(void *arg, const char *name, const struct ck_val *shape)
{
	struct tied *t = arg;
	const size_t skip = strlen(TIED) + t->now_len;

	if (strncmp(name, TIED, strlen(TIED)) ||
	    strncmp(name + strlen(TIED), t->now, t->now_len) || name[skip] != '.')
		return true;
	t->fits &= has_shape(ck_val_tensor(ck_val_get(t->layer, name + skip + 1)), shape);
	return t->fits;
}

struct tied_search {
	const struct ds_pos *pos;
	struct tied t;
};

static bool see_key(void *arg, const char *name, const struct ck_val *shape)
{
	struct tied_search *s = arg;
	const char *key = name + strlen(TIED);

	(void)shape;
	if (strncmp(name, TIED, strlen(TIED)))
		return true;
	s->t.now = key;
	s->t.now_len = strcspn(key, ".");
	if (s->t.key && s->t.len == s->t.now_len && !strncmp(s->t.key, key, s->t.len))
		return true;
	s->t.fits = true;
	for_names(s->pos, see_rest, &s->t);
	if (!s->t.fits)
		return true;
	if (s->t.key)
		s->t.doubt = key;
	s->t.key = s->t.key ? s->t.key : key;
	s->t.len = s->t.len ? s->t.len : s->t.now_len;
	return true;
}

/* ---- layers to positions ---- */

/* A file of a module that a lower layer has too: the last use of it. */
static bool is_used_before(const struct ds_par *par, const struct ds_layer *l)
{
	for (const struct ds_layer *o = par->layer; o < l; o++)
		if (o->tied && o->tp == l->tp && o->pos != CK_NONE && !strcmp(o->tied, l->tied))
			return true;
	return false;
}

static bool see_any(void *arg, const char *name, const struct ck_val *shape)
{
	(void)name;
	(void)shape;
	*(bool *)arg = true;
	return false;
}

/* DeepSpeed itself loads the files of its model's layers alone, and others may be beside them. */
static void doubt_layer(const struct ds_par *par, const struct ds_layer *l)
{
	struct ck_val *const *item;
	bool tensors = false, names = false;
	uint64_t n;

	ck_val_pairs(l->file.pt->doc.root, &item, &n);
	for (uint64_t i = 0; i < n; i++)
		tensors |= ck_val_tensor(item[2 * i + 1]) != NULL;
	for (uint32_t pp = 0; pp < par->npp; pp++)
		for_names(ck_ds_pos(par, pp, l->tp), see_any, &names);
	if (tensors && names)
		ck_findings_add(par->whole->f, CK_FINDING_NOT_IN_CHECKPOINT, l->file.path,
				"no param_shapes list a parameter of layer %u, so it is frozen, or "
				"left over from a run with more layers; its weights are taken as "
				"part of the model", l->number);
}

static int place(struct ds_par *par, struct ds_layer *l, struct ckpt_err *err)
{
	struct has_layer h = { .number = l->number };

	for (uint32_t pp = 0; pp < par->npp; pp++) {
		const struct ds_pos *pos = ck_ds_pos(par, pp, l->tp);

		for_names(pos, see_layer, &h);
		if (h.found) {
			l->pos = pos->ds->mp;
			return 0;
		}
	}
	for (uint32_t pp = 0; pp < par->npp; pp++) {
		struct tied_search s = {
			.pos = ck_ds_pos(par, pp, l->tp), .t.layer = l->file.pt->doc.root,
		};

		for_names(s.pos, see_key, &s);
		if (s.t.doubt)
			return ck_fail(err, CKPT_E_LAYOUT, l->file.path, CKPT_NO_OFFSET,
				       "LAYOUT_UNSUPPORTED: this layer can be of two tied modules, "
				       "%.60s and %.60s", s.t.key, s.t.doubt);
		if (!s.t.key)
			continue;
		l->tied = ck_arena_strndup(&par->whole->arena, s.t.key, s.t.len);
		if (!l->tied)
			return ck_fail_nomem(err, "a name", s.t.len);
		if (is_used_before(par, l))
			return 0;
		l->pos = s.pos->ds->mp;
		return 0;
	}
	doubt_layer(par, l);
	l->pos = l->tp;	/* nothing of it is trained, or the step has no names: stage 0 */
	return 0;
}

static int by_number(const void *a, const void *b)
{
	const struct ds_layer *x = a, *y = b;

	if (x->number != y->number)
		return x->number < y->number ? -1 : 1;
	return x->tp < y->tp ? -1 : x->tp > y->tp;
}

static int open_layers(struct ds_par *par, struct ckpt_err *err)
{
	struct ds_step *whole = par->whole;
	struct ck_val *const *item;
	uint64_t n;
	int rc = 0;

	par->layer = ck_arena_zalloc(&whole->arena, (whole->nfiles + 1) * sizeof(*par->layer));
	if (!par->layer)
		return ck_fail_nomem(err, "layers", whole->nfiles);
	for (uint64_t i = 0; i < whole->nfiles; i++) {
		struct ds_file *file = &whole->file[i];

		if (file->id.kind != DS_LAYER || file->id.mp >= par->ntp)
			continue;
		par->layer[par->nlayers++] = (struct ds_layer){
			.file = *file, .number = file->id.rank, .tp = file->id.mp, .pos = CK_NONE,
		};
	}
	qsort(par->layer, par->nlayers, sizeof(*par->layer), by_number);
	for (uint32_t i = 0; !rc && i < par->nlayers; i++) {
		struct ds_layer *l = &par->layer[i];

		rc = ck_ds_open_needed(whole, &l->file, err);
		if (!rc && !ck_val_pairs(l->file.pt->doc.root, &item, &n))
			rc = ck_fail(err, CKPT_E_CORRUPT, l->file.path, CKPT_NO_OFFSET,
				     "this file holds no dictionary of a layer");
		ck_findings_merge(whole->f, &l->file.notes, CK_FINDING_CRC_NOT_COMPUTED);
	}
	return rc;
}

/* ---- what is missing ---- */

#define MOST_NAMED 200u		/* layers of a position */

struct missing {
	const struct ds_par *par;
	struct ds_pos *pos;
	const char *name;	/* of the lowest such layer from 'from' on, or NULL */
	uint32_t from, number;
};

static bool has_file(const struct ds_par *par, uint32_t number, uint32_t tp)
{
	for (uint32_t i = 0; i < par->nlayers; i++)
		if (par->layer[i].number == number && par->layer[i].tp == tp)
			return true;
	return false;
}

static bool has_tied(const struct ds_par *par, const char *key, uint32_t tp)
{
	const size_t n = strcspn(key, ".");

	for (uint32_t i = 0; i < par->nlayers; i++)
		if (par->layer[i].tied && par->layer[i].tp == tp &&
		    strlen(par->layer[i].tied) == n && !strncmp(par->layer[i].tied, key, n))
			return true;
	return false;
}

static bool has_layer(const struct ds_par *par, uint32_t number)
{
	for (uint32_t t = 0; t < par->ntp; t++)
		if (has_file(par, number, t))
			return true;
	return false;
}

static bool see_missing(void *arg, const char *name, const struct ck_val *shape)
{
	struct missing *m = arg;
	const bool tied = !strncmp(name, TIED, strlen(TIED));
	uint32_t number;

	(void)shape;
	if (tied ? has_tied(m->par, name + strlen(TIED), m->pos->tp) :
		   !layer_of(name, &number) || has_file(m->par, number, m->pos->tp))
		return true;
	m->pos->incomplete = true;
	if (tied && m->from)
		return true;
	if (tied) {
		ck_findings_add(m->par->whole->f, CK_FINDING_MODEL_FILE_MISSING,
				m->par->whole->at.where, "no layer file has %.100s on tensor rank "
				"%u, which param_shapes of %s list (was the copy partial?)", name,
				m->pos->tp, m->pos->ds->model_file->name);
		return true;
	}
	if (number >= m->from && (!m->name || number < m->number) &&
	    !has_layer(m->par, number)) {
		m->name = name;
		m->number = number;
	}
	return true;
}

/* Each layer of a position that no tensor rank has a file of, in rising order. */
static void check_position(struct ds_par *par, struct ds_pos *pos)
{
	struct missing m = { .par = par, .pos = pos };

	for (unsigned i = 0; i < MOST_NAMED; i++) {
		m.name = NULL;
		for_names(pos, see_missing, &m);
		if (!m.name)
			return;
		ck_findings_add(par->whole->f, CK_FINDING_MODEL_FILE_MISSING, par->whole->at.where,
				"layer_%02u-model_%02u-model_states.pt is missing; param_shapes of "
				"%s list %.100s (was the copy partial?)", m.number, pos->tp,
				pos->ds->model_file->name, m.name);
		m.from = m.number + 1;
	}
}

/* Every layer is on every tensor rank, and every parameter in a layer. */
static void check_layers(struct ds_par *par)
{
	for (uint32_t i = 0; i < par->nlayers; i++)
		for (uint32_t t = 0; t < par->ntp; t++)
			if (!has_file(par, par->layer[i].number, t))
				ck_findings_add(par->whole->f, CK_FINDING_MODEL_FILE_MISSING,
						par->whole->at.where,
						"layer_%02u-model_%02u-model_states.pt is missing; "
						"another tensor rank has this layer (was the copy "
						"partial?)",
						par->layer[i].number, t);
	for (uint32_t i = 0; i < par->npos; i++)
		check_position(par, &par->pos[i]);
}

/* A layer may be of any stage if its file is another one's, or only a tensor rank has it. */
static bool has_odd_layer(const struct ds_par *par)
{
	for (uint32_t i = 0; i < par->nlayers; i++)
		if (ck_ds_is_swapped(&par->layer[i].file))
			return true;
	for (uint32_t i = 0; i < par->nlayers; i++)
		for (uint32_t t = 0; t < par->ntp; t++)
			if (!has_file(par, par->layer[i].number, t))
				return true;
	return false;
}

int ck_ds_pipe_open(struct ds_par *par, struct ckpt_err *err)
{
	int rc = open_layers(par, err);
	bool odd;

	for (uint32_t i = 0; !rc && i < par->nlayers; i++)
		rc = place(par, &par->layer[i], err);
	odd = !rc && has_odd_layer(par);
	for (uint32_t i = 0; i < par->npos; i++)
		par->pos[i].incomplete = odd;
	par->no_layers = !par->nlayers && par->whole->no_shards;
	if (!rc && !par->no_layers && ck_val_is_none(ck_val_get(par->pos[0].ds->model, "module")))
		check_layers(par);
	return rc;
}

/* ---- a position's module ---- */

static int add_layer(struct ds_step *ds, struct ds_layer *l, struct ck_val *module,
		     struct ckpt_err *err)
{
	struct ck_arena *a = &ds->arena;
	struct ck_val *const *item;
	uint64_t n;

	ck_val_pairs(l->file.pt->doc.root, &item, &n);
	for (uint64_t i = 0; i < n; i++) {
		const char *key = ck_val_str(item[2 * i]), *name;
		const struct ck_tensor_ref *t = ck_val_tensor(item[2 * i + 1]);
		struct ck_val *v = item[2 * i + 1];

		if (!key)
			continue;
		name = l->tied ? ck_arena_printf(a, "%s%s.%s", TIED, l->tied, key) :
				 ck_arena_printf(a, "%u.%s", l->number, key);
		if (t) {
			struct ck_tensor_ref ref = *t;

			ref.storage += l->first;
			v = ck_val_new_tensor(a, &ref);
		}
		if (!name || !ck_val_dict_add(a, module, ck_val_new_str(a, name), v))
			return ck_fail_nomem(err, "a layer", n);
	}
	return 0;
}

int ck_ds_pipe_module(struct ds_step *ds, struct ckpt_err *err)
{
	struct ck_val *module = ck_val_new_dict(&ds->arena);
	struct ds_par *par = ds->par;
	uint64_t first = 0;
	int rc = module ? 0 : ck_fail_nomem(err, "a module", 0);

	for (uint32_t i = 0; !rc && i < par->nlayers; i++) {
		struct ds_layer *l = &par->layer[i];

		if (l->pos != ds->mp)
			continue;
		l->first = (uint32_t)first;
		first += l->file.pt->nstorages;
		if (first >= CK_NONE)
			return ck_fail(err, CKPT_E_LIMIT, l->file.path, CKPT_NO_OFFSET,
				       "too many storages in the layers of a stage");
		rc = add_layer(ds, l, module, err);
	}
	if (!rc) {
		ds->module = module;
		ds->piped = true;
	}
	return rc;
}

int ck_ds_pipe_add_sources(struct ds_step *ds, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < ds->par->nlayers; i++)
		if (ds->par->layer[i].pos == ds->mp)
			rc = ck_ds_add_source(ds, &ds->par->layer[i].file, err);
	return rc;
}

int ck_ds_pipe_add_weight(struct ds_step *ds, uint32_t tensor, const struct ck_tensor_ref *t,
			  struct ckpt_err *err)
{
	for (uint32_t i = 0; i < ds->par->nlayers; i++) {
		const struct ds_layer *l = &ds->par->layer[i];
		struct ck_tensor_ref ref = *t;

		if (l->pos != ds->mp || t->storage < l->first ||
		    t->storage - l->first >= l->file.pt->nstorages)
			continue;
		ref.storage -= l->first;
		return ck_pt_add_state(l->file.pt, &ref, tensor, "weight", l->file.source, ds->ix,
				       err);
	}
	return 0;
}
