/* ck_val.c -- see ck_val.h. */
#include "libckpt/tensor/ck_val.h"

#include <string.h>

bool ck_val_is_str(const struct ck_val *v, const char *s)
{
	const size_t n = strlen(s);

	return v && v->kind == CK_VAL_STR && v->u.str.len == n && !memcmp(v->u.str.p, s, n);
}

const char *ck_val_str(const struct ck_val *v)
{
	if (!v || v->kind != CK_VAL_STR || memchr(v->u.str.p, 0, v->u.str.len))
		return NULL;
	return v->u.str.p;
}

bool ck_val_int(const struct ck_val *v, int64_t *out)
{
	if (!v)
		return false;
	if (v->kind == CK_VAL_BOOL) {
		*out = v->u.b;
		return true;
	}
	if (v->kind == CK_VAL_INT) {
		*out = v->u.i;
		return true;
	}
	if (v->kind == CK_VAL_FLOAT && v->u.f > -9e18 && v->u.f < 9e18 &&
	    (double)(int64_t)v->u.f == v->u.f) {
		*out = (int64_t)v->u.f;
		return true;
	}
	return false;
}

bool ck_val_num(const struct ck_val *v, double *out)
{
	int64_t i;

	if (v && v->kind == CK_VAL_FLOAT) {
		*out = v->u.f;
		return true;
	}
	if (!ck_val_int(v, &i))
		return false;
	*out = (double)i;
	return true;
}

bool ck_val_is_none(const struct ck_val *v)
{
	return v && v->kind == CK_VAL_NONE;
}

/* torch.Size((2, 3)): the tuple.  A file may write Size(Size(...)) as deep as it likes. */
static const struct ck_val *strip_size(const struct ck_val *v)
{
	for (int i = 0; i < 8 && ck_val_is_call(v, "torch", "Size"); i++) {
		const struct ck_val *args = v->u.obj->args;

		if (!args || args->kind != CK_VAL_TUPLE || args->u.seq.n != 1)
			break;
		v = args->u.seq.item[0];
	}
	return v;
}

bool ck_val_seq(const struct ck_val *v, struct ck_val *const **item_out, uint64_t *n_out)
{
	const struct ck_obj *o;

	v = strip_size(v);
	if (!v)
		return false;
	if (v->kind == CK_VAL_TUPLE || v->kind == CK_VAL_LIST) {
		*item_out = v->u.seq.item;
		*n_out = v->u.seq.n;
		return true;
	}
	if (v->kind != CK_VAL_OBJECT || v->u.obj->tensor)
		return false;
	o = v->u.obj;
	if (o->nlist) {
		*item_out = o->list;
		*n_out = o->nlist;
		return true;
	}
	return false;
}

static bool is_mapping_class(const struct ck_val *fn)
{
	return ck_val_is_global(fn, "collections", "OrderedDict") ||
	       ck_val_is_global(fn, "collections", "defaultdict") ||
	       ck_val_is_global(fn, "collections", "Counter");
}

bool ck_val_pairs(const struct ck_val *v, struct ck_val *const **item_out, uint64_t *npairs_out)
{
	const struct ck_obj *o;

	if (!v)
		return false;
	if (v->kind == CK_VAL_DICT) {
		*item_out = v->u.seq.item;
		*npairs_out = v->u.seq.n / 2;
		return true;
	}
	if (v->kind != CK_VAL_OBJECT || v->u.obj->tensor)
		return false;
	o = v->u.obj;
	if (!o->ndict && !is_mapping_class(o->fn))
		return false;
	*item_out = o->dict;
	*npairs_out = o->ndict / 2;
	return true;
}

struct ck_val *ck_val_get(const struct ck_val *v, const char *key)
{
	struct ck_val *const *item, *found = NULL;
	uint64_t n;

	if (!ck_val_pairs(v, &item, &n))
		return NULL;
	for (uint64_t i = 0; i < n; i++)
		if (ck_val_is_str(item[2 * i], key))
			found = item[2 * i + 1];
	return found;
}

struct ck_val *ck_val_get_int(const struct ck_val *v, int64_t key)
{
	struct ck_val *const *item, *found = NULL;
	uint64_t n;

	if (!ck_val_pairs(v, &item, &n))
		return NULL;
	for (uint64_t i = 0; i < n; i++)
		if (item[2 * i]->kind == CK_VAL_INT && item[2 * i]->u.i == key)
			found = item[2 * i + 1];
	return found;
}

struct ck_val *ck_val_at(const struct ck_val *v, uint64_t i)
{
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_seq(v, &item, &n) || i >= n)
		return NULL;
	return item[i];
}

bool ck_val_is_global(const struct ck_val *v, const char *module, const char *name)
{
	return v && v->kind == CK_VAL_GLOBAL && !strcmp(v->u.global.module, module) &&
	       !strcmp(v->u.global.name, name);
}

bool ck_val_is_call(const struct ck_val *v, const char *module, const char *name)
{
	return v && v->kind == CK_VAL_OBJECT && ck_val_is_global(v->u.obj->fn, module, name);
}

const struct ck_tensor_ref *ck_val_tensor(const struct ck_val *v)
{
	return v && v->kind == CK_VAL_OBJECT ? v->u.obj->tensor : NULL;
}

/* Nodes compared at most: shared references can make a small tree look endless. */
#define MAX_COMPARED 5000000

static bool equal(const struct ck_val *a, const struct ck_val *b, uint32_t depth,
		  uint64_t *left);

static bool nodes_equal(struct ck_val *const *a, struct ck_val *const *b, uint64_t n,
			uint32_t depth, uint64_t *left)
{
	for (uint64_t i = 0; i < n; i++)
		if (!equal(a[i], b[i], depth, left))
			return false;
	return true;
}

static bool tensors_equal(const struct ck_tensor_ref *a, const struct ck_tensor_ref *b)
{
	return a->dtype == b->dtype && a->ndim == b->ndim &&
	       (!a->ndim || !memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)));
}

static bool objects_equal(const struct ck_obj *a, const struct ck_obj *b, uint32_t depth,
			  uint64_t *left)
{
	if (!a->tensor != !b->tensor)
		return false;
	if (a->tensor)
		return tensors_equal(a->tensor, b->tensor);
	return a->nlist == b->nlist && a->ndict == b->ndict &&
	       equal(a->fn, b->fn, depth, left) && equal(a->args, b->args, depth, left) &&
	       equal(a->kwargs, b->kwargs, depth, left) &&
	       equal(a->state, b->state, depth, left) &&
	       nodes_equal(a->list, b->list, a->nlist, depth, left) &&
	       nodes_equal(a->dict, b->dict, a->ndict, depth, left);
}

static bool equal(const struct ck_val *a, const struct ck_val *b, uint32_t depth,
		  uint64_t *left)
{
	if (a == b)
		return true;
	if (!a || !b || a->kind != b->kind || !depth || !*left)
		return false;
	--*left;
	switch ((enum ck_val_kind)a->kind) {
	case CK_VAL_NONE:
		return true;
	case CK_VAL_BOOL:
		return a->u.b == b->u.b;
	case CK_VAL_INT:
		return a->u.i == b->u.i;
	case CK_VAL_FLOAT:	/* bits: NaN equals itself, 0.0 is not -0.0 */
		return !memcmp(&a->u.f, &b->u.f, sizeof(a->u.f));
	case CK_VAL_BIGINT:
	case CK_VAL_STR:
	case CK_VAL_BYTES:
	case CK_VAL_BYTEARRAY:
		return a->u.str.len == b->u.str.len &&
		       !memcmp(a->u.str.p, b->u.str.p, a->u.str.len);
	case CK_VAL_TUPLE:
	case CK_VAL_LIST:
	case CK_VAL_DICT:
	case CK_VAL_SET:
	case CK_VAL_FROZENSET:
		return a->u.seq.n == b->u.seq.n &&
		       nodes_equal(a->u.seq.item, b->u.seq.item, a->u.seq.n, depth - 1, left);
	case CK_VAL_GLOBAL:
		return !strcmp(a->u.global.module, b->u.global.module) &&
		       !strcmp(a->u.global.name, b->u.global.name);
	case CK_VAL_OBJECT:
		return objects_equal(a->u.obj, b->u.obj, depth - 1, left);
	case CK_VAL_PERSID:
		return equal(a->u.pid, b->u.pid, depth - 1, left);
	}
	return false;
}

bool ck_val_equal(const struct ck_val *a, const struct ck_val *b, uint32_t depth)
{
	uint64_t left = MAX_COMPARED;

	return equal(a, b, depth, &left);
}
