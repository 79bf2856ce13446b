/* ck_val_new.c -- see ck_val_new.h. */
#include "libckpt/tensor/ck_val_new.h"

#include <string.h>

#define KEY_DEPTH 8	/* nesting of tuples that are keys */

static struct ck_val *node(struct ck_arena *arena, enum ck_val_kind kind, uint64_t more)
{
	struct ck_val *v = ck_arena_zalloc(arena, sizeof(*v) + more);

	if (v)
		v->kind = (uint8_t)kind;
	return v;
}

struct ck_val *ck_val_new_none(struct ck_arena *arena)
{
	return node(arena, CK_VAL_NONE, 0);
}

struct ck_val *ck_val_new_bool(struct ck_arena *arena, bool b)
{
	struct ck_val *v = node(arena, CK_VAL_BOOL, 0);

	if (v)
		v->u.b = b;
	return v;
}

struct ck_val *ck_val_new_int(struct ck_arena *arena, int64_t i)
{
	struct ck_val *v = node(arena, CK_VAL_INT, 0);

	if (v)
		v->u.i = i;
	return v;
}

struct ck_val *ck_val_new_float(struct ck_arena *arena, double f)
{
	struct ck_val *v = node(arena, CK_VAL_FLOAT, 0);

	if (v)
		v->u.f = f;
	return v;
}

static struct ck_val *text(struct ck_arena *arena, enum ck_val_kind kind, const void *p,
			   uint64_t n)
{
	struct ck_val *v = n < UINT64_MAX / 2 ? node(arena, kind, n + 1) : NULL;

	if (!v)
		return NULL;
	if (n)
		memcpy(v + 1, p, n);
	v->u.str.p = (const char *)(v + 1);
	v->u.str.len = n;
	return v;
}

struct ck_val *ck_val_new_strn(struct ck_arena *arena, const char *s, uint64_t n)
{
	return text(arena, CK_VAL_STR, s, n);
}

struct ck_val *ck_val_new_str(struct ck_arena *arena, const char *s)
{
	return text(arena, CK_VAL_STR, s, strlen(s));
}

/* Room for 'want' nodes in an array that has 'n'. */
static bool reserve(struct ck_arena *arena, struct ck_val ***item, uint64_t n, uint64_t *cap,
		    uint64_t want)
{
	struct ck_val **p;
	uint64_t room, bytes;

	if (want <= *cap)
		return true;
	room = ck_max_u64(want, 2 * *cap);
	if (ck_mul_over(room, sizeof(*p), &bytes))
		return false;
	p = ck_arena_alloc(arena, bytes);
	if (!p)
		return false;
	if (n)
		memcpy(p, *item, n * sizeof(*p));
	*item = p;
	*cap = room;
	return true;
}

struct ck_val *ck_val_new_tuple(struct ck_arena *arena, struct ck_val *const *item, uint64_t n)
{
	struct ck_val *v = node(arena, CK_VAL_TUPLE, 0);

	if (!v || !reserve(arena, &v->u.seq.item, 0, &v->u.seq.cap, n))
		return NULL;
	for (uint64_t i = 0; i < n; i++) {
		if (!item[i])
			return NULL;
		v->u.seq.item[i] = item[i];
	}
	v->u.seq.n = n;
	return v;
}

/* A tuple of the 'n' whole numbers. */
static struct ck_val *new_counts(struct ck_arena *arena, const uint64_t *count, uint64_t n)
{
	struct ck_val *v = node(arena, CK_VAL_TUPLE, 0);

	if (!v || !reserve(arena, &v->u.seq.item, 0, &v->u.seq.cap, n))
		return NULL;
	for (uint64_t i = 0; i < n; i++) {
		v->u.seq.item[i] = count[i] > INT64_MAX ? NULL :
				   ck_val_new_int(arena, (int64_t)count[i]);
		if (!v->u.seq.item[i])
			return NULL;
	}
	v->u.seq.n = n;
	return v;
}

struct ck_val *ck_val_new_list(struct ck_arena *arena)
{
	return node(arena, CK_VAL_LIST, 0);
}

struct ck_val *ck_val_new_dict(struct ck_arena *arena)
{
	return node(arena, CK_VAL_DICT, 0);
}

struct ck_val *ck_val_new_global(struct ck_arena *arena, const char *module, const char *name)
{
	struct ck_val *v = node(arena, CK_VAL_GLOBAL, 0);

	if (!v)
		return NULL;
	v->u.global.module = ck_arena_strdup(arena, module);
	v->u.global.name = ck_arena_strdup(arena, name);
	return v->u.global.module && v->u.global.name ? v : NULL;
}

struct ck_val *ck_val_new_object(struct ck_arena *arena, enum ck_val_how how, struct ck_val *fn,
				 struct ck_val *args)
{
	struct ck_val *v = fn && args ? node(arena, CK_VAL_OBJECT, sizeof(struct ck_obj)) : NULL;

	if (!v)
		return NULL;
	v->u.obj = (struct ck_obj *)(v + 1);
	v->u.obj->fn = fn;
	v->u.obj->args = args;
	v->u.obj->how = (uint8_t)how;
	return v;
}

struct ck_val *ck_val_new_ordered(struct ck_arena *arena)
{
	return ck_val_new_object(arena, CK_HOW_REDUCE,
				 ck_val_new_global(arena, "collections", "OrderedDict"),
				 ck_val_new_tuple(arena, NULL, 0));
}

struct ck_val *ck_val_new_size(struct ck_arena *arena, const uint64_t *dim, uint64_t n)
{
	struct ck_val *dims = new_counts(arena, dim, n);

	return ck_val_new_object(arena, CK_HOW_REDUCE, ck_val_new_global(arena, "torch", "Size"),
				 ck_val_new_tuple(arena, &dims, 1));
}

static const uint64_t *copy_counts(struct ck_arena *arena, const uint64_t *a, uint32_t n)
{
	uint64_t *p = ck_arena_alloc(arena, n * sizeof(*p));

	if (p && n)
		memcpy(p, a, n * sizeof(*p));
	return p;
}

struct ck_val *ck_val_new_tensor(struct ck_arena *arena, const struct ck_tensor_ref *ref)
{
	struct ck_val *v = ck_val_new_object(
		arena, CK_HOW_REDUCE,
		ck_val_new_global(arena, "torch._utils", "_rebuild_tensor_v2"),
		ck_val_new_tuple(arena, NULL, 0));
	struct ck_tensor_ref *t = ck_arena_alloc(arena, sizeof(*t));

	if (!v || !t)
		return NULL;
	*t = *ref;
	t->shape = copy_counts(arena, ref->shape, ref->ndim);
	t->stride = copy_counts(arena, ref->stride, ref->ndim);
	v->u.obj->tensor = t;
	return t->shape && t->stride ? v : NULL;
}

/* ---- copies and edits ---- */

static bool own_array(struct ck_arena *arena, struct ck_val ***item, uint64_t n, uint64_t *cap)
{
	*cap = 0;
	return reserve(arena, item, n, cap, n);
}

struct ck_val *ck_val_clone(struct ck_arena *arena, const struct ck_val *v)
{
	const bool is_object = v && v->kind == CK_VAL_OBJECT;
	struct ck_val *copy;
	struct ck_obj *o;

	if (!v)
		return NULL;
	copy = node(arena, v->kind, is_object ? sizeof(struct ck_obj) : 0);
	if (!copy)
		return NULL;
	copy->u = v->u;
	switch ((enum ck_val_kind)v->kind) {
	case CK_VAL_TUPLE:
	case CK_VAL_LIST:
	case CK_VAL_DICT:
	case CK_VAL_SET:
	case CK_VAL_FROZENSET:
		return own_array(arena, &copy->u.seq.item, copy->u.seq.n, &copy->u.seq.cap) ?
		       copy : NULL;
	case CK_VAL_OBJECT:
		o = (struct ck_obj *)(copy + 1);
		*o = *v->u.obj;
		copy->u.obj = o;
		return own_array(arena, &o->list, o->nlist, &o->list_cap) &&
		       own_array(arena, &o->dict, o->ndict, &o->dict_cap) ? copy : NULL;
	default:
		return copy;
	}
}

struct ck_val *ck_val_list_add(struct ck_arena *arena, struct ck_val *list, struct ck_val *item)
{
	struct ck_val ***arr;
	uint64_t *n, *cap;

	if (!list || !item)
		return NULL;
	if (list->kind == CK_VAL_OBJECT) {
		arr = &list->u.obj->list;
		n = &list->u.obj->nlist;
		cap = &list->u.obj->list_cap;
	} else if (list->kind == CK_VAL_LIST) {
		arr = &list->u.seq.item;
		n = &list->u.seq.n;
		cap = &list->u.seq.cap;
	} else {
		return NULL;
	}
	if (!reserve(arena, arr, *n, cap, *n + 1))
		return NULL;
	(*arr)[(*n)++] = item;
	return list;
}

/* The pairs of a dict or object; false for anything else. */
static bool pairs_of(struct ck_val *dict, struct ck_val ****arr, uint64_t **n, uint64_t **cap)
{
	if (dict->kind == CK_VAL_OBJECT) {
		*arr = &dict->u.obj->dict;
		*n = &dict->u.obj->ndict;
		*cap = &dict->u.obj->dict_cap;
	} else if (dict->kind == CK_VAL_DICT) {
		*arr = &dict->u.seq.item;
		*n = &dict->u.seq.n;
		*cap = &dict->u.seq.cap;
	} else {
		return false;
	}
	return true;
}

struct ck_val *ck_val_dict_add(struct ck_arena *arena, struct ck_val *dict, struct ck_val *key,
			       struct ck_val *value)
{
	struct ck_val ***arr;
	uint64_t *n, *cap;

	if (!dict || !key || !value || !pairs_of(dict, &arr, &n, &cap) ||
	    !reserve(arena, arr, *n, cap, *n + 2))
		return NULL;
	(*arr)[(*n)++] = key;
	(*arr)[(*n)++] = value;
	return dict;
}

struct ck_val *ck_val_dict_set(struct ck_arena *arena, struct ck_val *dict, struct ck_val *key,
			       struct ck_val *value)
{
	struct ck_val ***arr;
	uint64_t *n, *cap;

	if (!dict || !key || !value || !pairs_of(dict, &arr, &n, &cap))
		return NULL;
	for (uint64_t i = *n; i >= 2; i -= 2)
		if (ck_val_equal((*arr)[i - 2], key, KEY_DEPTH)) {
			(*arr)[i - 1] = value;
			return dict;
		}
	return ck_val_dict_add(arena, dict, key, value);
}

struct ck_val *ck_val_dict_sets(struct ck_arena *arena, struct ck_val *dict, const char *key,
				struct ck_val *value)
{
	return ck_val_dict_set(arena, dict, ck_val_new_str(arena, key), value);
}

bool ck_val_dict_drop(struct ck_val *dict, const char *key)
{
	struct ck_val ***arr;
	uint64_t *n, *cap, kept = 0, had;

	if (!dict || !pairs_of(dict, &arr, &n, &cap))
		return false;
	had = *n;
	for (uint64_t i = 0; i + 1 < had; i += 2) {
		if (ck_val_is_str((*arr)[i], key))
			continue;
		(*arr)[kept] = (*arr)[i];
		(*arr)[kept + 1] = (*arr)[i + 1];
		kept += 2;
	}
	*n = kept;
	return kept != had;
}
