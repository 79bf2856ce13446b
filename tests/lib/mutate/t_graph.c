/* See t_graph.h. */
#include "tests/lib/mutate/t_graph.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/pickle/ck_pkl_emit.h"
#include "libckpt/zip/ck_zip.h"
#include "tests/lib/archive/t_zip.h"
#include "tests/lib/fs/t_dir.h"

static const struct ckpt_limits *defaults(void)
{
	static struct ckpt_limits limits;

	ck_limits_fill(NULL, &limits);
	return &limits;
}

/* ---- all nodes ---- */

static void visit(struct t_graph *g, struct ck_val *v);

static void visit_all(struct t_graph *g, struct ck_val **item, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		visit(g, item[i]);
}

static void visit(struct t_graph *g, struct ck_val *v)
{
	if (!v || v->mark)
		return;
	v->mark = 1;
	if (g->n == g->cap) {
		g->cap = 2 * g->cap + 1000;
		g->node = t_grow(g->node, g->cap * sizeof(*g->node));
	}
	g->node[g->n++] = v;
	if (v->kind == CK_VAL_PERSID) {
		visit(g, v->u.pid);
	} else if (v->kind >= CK_VAL_TUPLE && v->kind <= CK_VAL_FROZENSET) {
		visit_all(g, v->u.seq.item, v->u.seq.n);
	} else if (v->kind == CK_VAL_OBJECT) {
		visit(g, v->u.obj->fn);
		visit(g, v->u.obj->args);
		visit(g, v->u.obj->kwargs);
		visit(g, v->u.obj->state);
		visit_all(g, v->u.obj->list, v->u.obj->nlist);
		visit_all(g, v->u.obj->dict, v->u.obj->ndict);
	}
}

static struct ck_val *new_node(struct t_graph *g, uint8_t kind)
{
	struct ck_val *v = ck_arena_zalloc(&g->doc.arena, sizeof(*v));

	if (!v)
		t_die("no memory");
	v->kind = kind;
	v->serial = ++g->doc.nodes;
	return v;
}

static struct ck_val *new_seq(struct t_graph *g, uint8_t kind, struct ck_val **item, uint64_t n)
{
	struct ck_val *v = new_node(g, kind);

	v->u.seq.item = ck_arena_alloc(&g->doc.arena, (n + 1) * sizeof(*item));
	if (!v->u.seq.item)
		t_die("no memory");
	if (n)
		memcpy(v->u.seq.item, item, n * sizeof(*item));
	v->u.seq.n = v->u.seq.cap = n;
	return v;
}

struct ck_val *t_graph_global(struct t_graph *g, const char *module, const char *name)
{
	struct ck_val *v = new_node(g, CK_VAL_GLOBAL);

	v->u.global.module = module;
	v->u.global.name = name;
	return v;
}

/* A name within a class, which protocol 2 has no name for, as the call that fetches it. */
static void write_out(struct t_graph *g, struct ck_val *v)
{
	const char *dot = v->kind == CK_VAL_GLOBAL ? strchr(v->u.global.name, '.') : NULL;
	struct ck_val *args[2];
	struct ck_obj *obj;
	char *base;

	if (!dot)
		return;
	base = ck_arena_strndup(&g->doc.arena, v->u.global.name,
				(size_t)(dot - v->u.global.name));
	obj = ck_arena_zalloc(&g->doc.arena, sizeof(*obj));
	if (!base || !obj)
		t_die("no memory");
	args[0] = t_graph_global(g, v->u.global.module, base);
	args[1] = t_graph_str(g, dot + 1);
	obj->fn = t_graph_global(g, "builtins", "getattr");
	obj->args = new_seq(g, CK_VAL_TUPLE, args, 2);
	obj->how = CK_HOW_REDUCE;
	v->kind = CK_VAL_OBJECT;
	v->u.obj = obj;
}

void t_graph_load(struct t_graph *g, const void *p, size_t n)
{
	struct ckpt_err err = { 0 };

	*g = (struct t_graph){ .doc = CK_PKL_INIT };
	if (ck_pkl_load(&g->doc, p, n, defaults(), 0, "a pickle to change", &err))
		t_die("%s", err.msg);
	visit(g, g->doc.root);
	for (size_t i = 0, end = g->n; i < end; i++) {
		g->node[i]->mark = 0;
		write_out(g, g->node[i]);
	}
}

void t_graph_free(struct t_graph *g)
{
	ck_pkl_release(&g->doc);
	free(g->node);
	*g = (struct t_graph){ .doc = CK_PKL_INIT };
}

char *t_graph_pickle(const struct t_graph *g, size_t *n_out)
{
	struct ckpt_err err = { 0 };
	char *p, *copy;
	uint64_t n;

	if (ck_pkl_emit(g->doc.root, defaults(), NULL, NULL, &p, &n, &err))
		t_die("a changed pickle cannot be written: %s", err.msg);
	copy = t_alloc(n + 1);
	memcpy(copy, p, n);
	ck_free(p);
	*n_out = n;
	return copy;
}

/* ---- files ---- */

static bool is_archive(const struct t_file *f)
{
	return f->n > 4 && !memcmp(f->p, "PK\3\4", 4);
}

/* The members of an archive, with PICKLE for data.pkl, in '*made'; or, without 'made', load it. */
static void each_member(const struct t_file *f, struct t_graph *load, const char *pickle, size_t n,
			struct t_zip *made)
{
	struct ckpt_err err = { 0 };
	struct ck_src *src = NULL;
	struct ck_zip *zip = NULL;

	if (ck_src_mem(f->p, f->n, f->name, &src, &err) ||
	    ck_zip_open(src, defaults(), &zip, &err))
		t_die("%s: %s", f->name, err.msg);
	for (uint64_t i = 0; i < ck_zip_count(zip); i++) {
		const struct ck_zip_entry *e = ck_zip_entry_get(zip, i);
		const bool is_pickle = t_ends_with(e->name, "/data.pkl");
		uint8_t *data;

		if (ck_zip_read(zip, e, 1 << 28, &data, &err))
			t_die("%s: %s", e->name, err.msg);
		if (load && is_pickle)
			t_graph_load(load, data, e->bytes);
		if (made)
			t_zip_add(made, e->name, is_pickle ? (const void *)pickle : data,
				  is_pickle ? n : e->bytes);
		ck_free(data);
	}
	ck_zip_close(zip);
	ck_src_close(src);
}

void t_graph_load_file(struct t_graph *g, const struct t_file *f)
{
	if (is_archive(f))
		each_member(f, g, NULL, 0, NULL);
	else
		t_graph_load(g, f->p, f->n);
}

void t_graph_put(const struct t_graph *g, struct t_files *files, const struct t_file *f)
{
	struct t_zip zip = { .p = NULL };
	size_t n;
	char *p = t_graph_pickle(g, &n), *name = t_fmt("%s", f->name);

	if (is_archive(f)) {
		each_member(f, NULL, p, n, &zip);
		t_zip_end(&zip);
		t_files_set(files, name, zip.p, zip.n);
		free(zip.p);
	} else {
		t_files_set(files, name, p, n);
	}
	free(name);
	free(p);
}

/* ---- looking ---- */

bool t_graph_is(const struct ck_val *v, const char *class_name)
{
	return v && v->kind == CK_VAL_OBJECT && v->u.obj->fn &&
	       v->u.obj->fn->kind == CK_VAL_GLOBAL &&
	       !strcmp(v->u.obj->fn->u.global.name, class_name);
}

struct ck_val **t_graph_items(struct ck_val *v, uint64_t *n_out)
{
	struct ck_val *const *item = NULL;

	*n_out = 0;
	if (!v)
		return NULL;
	if (v->kind == CK_VAL_OBJECT && v->u.obj->ndict) {
		*n_out = v->u.obj->ndict;
		return v->u.obj->dict;
	}
	if (v->kind == CK_VAL_DICT) {
		*n_out = v->u.seq.n;
		return v->u.seq.item;
	}
	ck_val_seq(v, &item, n_out);
	return (struct ck_val **)(uintptr_t)item;
}

struct ck_val **t_graph_slot(struct ck_val *v, const char *key)
{
	struct ck_val **item;
	uint64_t n;

	if (v && v->kind == CK_VAL_OBJECT && v->u.obj->state)
		v = v->u.obj->state;
	if (v && v->kind == CK_VAL_TUPLE && v->u.seq.n == 2)	/* (None, state) */
		v = v->u.seq.item[1];
	if (!v || (v->kind != CK_VAL_DICT && v->kind != CK_VAL_OBJECT))
		return NULL;
	item = t_graph_items(v, &n);
	for (uint64_t i = 0; i + 1 < n; i += 2)
		if (ck_val_is_str(item[i], key))
			return &item[i + 1];
	return NULL;
}

/* ---- changing ---- */

struct ck_val *t_graph_int(struct t_graph *g, int64_t i)
{
	struct ck_val *v = new_node(g, CK_VAL_INT);

	v->u.i = i;
	return v;
}

struct ck_val *t_graph_str(struct t_graph *g, const char *s)
{
	struct ck_val *v = new_node(g, CK_VAL_STR);

	v->u.str.p = ck_arena_strdup(&g->doc.arena, s);
	v->u.str.len = strlen(s);
	return v;
}

struct ck_val *t_graph_none(struct t_graph *g)
{
	return new_node(g, CK_VAL_NONE);
}

struct ck_val *t_graph_own(struct t_graph *g, struct ck_val **slot)
{
	struct ck_val *v = *slot, *copy;

	if (!v || v->kind == CK_VAL_GLOBAL)
		return v;
	copy = new_node(g, v->kind);
	copy->u = v->u;
	*slot = copy;
	if (v->kind >= CK_VAL_TUPLE && v->kind <= CK_VAL_FROZENSET) {
		struct ck_val *seq = new_seq(g, v->kind, v->u.seq.item, v->u.seq.n);

		copy->u = seq->u;
		for (uint64_t i = 0; i < copy->u.seq.n; i++)
			t_graph_own(g, &copy->u.seq.item[i]);
	} else if (v->kind == CK_VAL_OBJECT) {
		struct ck_obj *obj = ck_arena_zalloc(&g->doc.arena, sizeof(*obj));

		if (!obj)
			t_die("no memory");
		*obj = *v->u.obj;
		copy->u.obj = obj;
		t_graph_own(g, &obj->args);
		t_graph_own(g, &obj->state);
	}
	return copy;
}

void t_graph_cut(struct ck_val *v, uint64_t at, uint64_t n)
{
	uint64_t *count = v->kind == CK_VAL_OBJECT ? &v->u.obj->ndict : &v->u.seq.n, all;
	struct ck_val **item = t_graph_items(v, &all);

	memmove(item + at, item + at + n, (all - at - n) * sizeof(*item));
	*count -= n;
}

void t_graph_add(struct t_graph *g, struct ck_val *v, struct ck_val *a, struct ck_val *b)
{
	uint64_t n;
	struct ck_val **old = t_graph_items(v, &n);
	struct ck_val **item = ck_arena_alloc(&g->doc.arena, (n + 2) * sizeof(*item));

	if (!item)
		t_die("no memory");
	if (n)
		memcpy(item, old, n * sizeof(*item));
	item[n++] = a;
	if (b)
		item[n++] = b;
	if (v->kind == CK_VAL_OBJECT) {
		v->u.obj->dict = item;
		v->u.obj->ndict = v->u.obj->dict_cap = n;
	} else {
		v->u.seq.item = item;
		v->u.seq.n = v->u.seq.cap = n;
	}
}
