/*
 * ck_pkl_value.c -- making nodes: scalars, containers, and the calls that are nothing but
 * a way of spelling a value (set([1, 2]), bytes, an OrderedDict of pairs).
 *
 * Depth: a node's depth is one more than that of the deepest thing in it at the time it
 * was put there.  Streams nest from the inside out, so this finds nesting when it
 * happens; knots tied through the memo are left to walkers, which bound themselves.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/pickle/ck_pkl_vm.h"

int ck_pkl_fail(struct ck_pkl_vm *vm, enum ckpt_code code, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return ck_fail(vm->err, code, vm->where, vm->op, "%s", text);
}

static int no_room(struct ck_pkl_vm *vm, uint64_t n)
{
	const struct ck_arena *arena = &vm->doc->arena;

	if (arena->limit && (n > arena->limit || arena->total > arena->limit - n))
		return ck_fail_limit(vm->err, vm->where, vm->op, "memory_bytes", arena->limit,
				     "the pickle's values take too much memory");
	return ck_fail_nomem(vm->err, "a pickle's values", n);
}

int ck_pkl_node_sized(struct ck_pkl_vm *vm, enum ck_val_kind kind, uint64_t bytes,
		      struct ck_val **out)
{
	struct ck_val *v;
	uint64_t cap = vm->depth_cap;
	int rc;

	if (vm->doc->nodes >= ck_min_u64(vm->limits->pickle_nodes, UINT32_MAX - 1))
		return ck_fail_limit(vm->err, vm->where, vm->op, "pickle_nodes",
				     vm->limits->pickle_nodes, "the pickle has too many values");
	v = ck_arena_alloc(&vm->doc->arena, bytes);
	if (!v)
		return no_room(vm, bytes);
	if (vm->doc->nodes + 2u > cap) {
		rc = ck_grow(&vm->depth, &vm->depth_cap, vm->doc->nodes + 2u, sizeof(*vm->depth),
			     vm->err);
		if (rc)
			return rc;
	}
	memset(v, 0, sizeof(*v));
	v->kind = (uint8_t)kind;
	v->serial = ++vm->doc->nodes;
	vm->depth[v->serial] = 1;
	*out = v;
	return 0;
}

int ck_pkl_node(struct ck_pkl_vm *vm, enum ck_val_kind kind, struct ck_val **out)
{
	return ck_pkl_node_sized(vm, kind, sizeof(struct ck_val), out);
}

int ck_pkl_int(struct ck_pkl_vm *vm, int64_t i, struct ck_val **out)
{
	const bool small = i >= 0 && i < CK_PKL_SMALL;
	int rc;

	if (small && vm->small[i]) {
		*out = vm->small[i];
		return 0;
	}
	rc = ck_pkl_node(vm, CK_VAL_INT, out);
	if (rc)
		return rc;
	(*out)->u.i = i;
	if (small)
		vm->small[i] = *out;
	return 0;
}

int ck_pkl_long(struct ck_pkl_vm *vm, const uint8_t *p, uint64_t n, struct ck_val **out)
{
	const uint8_t fill = n && p[n - 1] & 0x80 ? 0xff : 0;
	uint64_t u = fill ? UINT64_MAX : 0;
	int64_t i;

	/* Bytes that repeat the sign say nothing. */
	while (n > 1 && p[n - 1] == fill && (p[n - 2] & 0x80) == (fill & 0x80))
		n--;
	if (n > 8)
		return ck_pkl_str(vm, CK_VAL_BIGINT, p, n, out);
	for (uint64_t k = n; k-- > 0;)
		u = u << 8 | p[k];
	memcpy(&i, &u, sizeof(i));
	return ck_pkl_int(vm, i, out);
}

int ck_pkl_str(struct ck_pkl_vm *vm, enum ck_val_kind kind, const void *p, uint64_t n,
	       struct ck_val **out)
{
	char *text;
	int rc;

	if (n > vm->limits->memory_bytes)
		return no_room(vm, n);
	rc = ck_pkl_node_sized(vm, kind, sizeof(struct ck_val) + n + 1, out);
	if (rc)
		return rc;
	text = (char *)(*out + 1);
	if (p)
		memcpy(text, p, n);
	text[n] = 0;
	(*out)->u.str.p = text;
	(*out)->u.str.len = n;
	return 0;
}

int ck_pkl_str2(struct ck_pkl_vm *vm, const uint8_t *p, uint64_t n, struct ck_val **out)
{
	uint64_t high = 0;
	bool surrogates;
	char *w;
	int rc;

	if (ck_pkl_is_utf8(p, n, &surrogates))
		return ck_pkl_str(vm, CK_VAL_STR, p, n, out);
	for (uint64_t i = 0; i < n; i++)
		high += p[i] >> 7;
	rc = ck_pkl_str(vm, CK_VAL_STR, NULL, n + high, out);
	if (rc)
		return rc;
	vm->doc->notes |= CK_PKL_NOTE_LATIN1;
	w = (char *)(*out + 1);
	for (uint64_t i = 0; i < n; i++) {
		if (p[i] >> 7)
			*w++ = (char)(0xc0 | p[i] >> 6);
		*w++ = (char)(p[i] >> 7 ? 0x80 | (p[i] & 0x3f) : p[i]);
	}
	return 0;
}

int ck_pkl_deepen(struct ck_pkl_vm *vm, struct ck_val *owner, const struct ck_val *item)
{
	const uint32_t depth = vm->depth[item->serial] + 1;

	if (depth <= vm->depth[owner->serial])
		return 0;
	if (depth > vm->limits->pickle_depth)
		return ck_fail_limit(vm->err, vm->where, vm->op, "pickle_depth",
				     vm->limits->pickle_depth, "values are nested too deeply");
	vm->depth[owner->serial] = depth;
	return 0;
}

int ck_pkl_extend(struct ck_pkl_vm *vm, struct ck_val *owner, struct ck_val ***arr,
		  uint64_t *n, uint64_t *cap, struct ck_val *const *item, uint64_t more)
{
	const uint64_t want = *n + more;
	int rc;

	for (uint64_t i = 0; i < more; i++) {
		rc = ck_pkl_deepen(vm, owner, item[i]);
		if (rc)
			return rc;
	}
	if (want > *cap) {
		const uint64_t room = *cap ? ck_max_u64(want, 2 * *cap) : want;
		struct ck_val **p = ck_arena_alloc(&vm->doc->arena, room * sizeof(*p));

		if (!p)
			return no_room(vm, room * sizeof(*p));
		if (*n)
			memcpy(p, *arr, *n * sizeof(*p));
		*arr = p;
		*cap = room;
	}
	if (more)
		memcpy(*arr + *n, item, more * sizeof(*item));
	*n = want;
	return 0;
}

int ck_pkl_seq(struct ck_pkl_vm *vm, enum ck_val_kind kind, struct ck_val *const *item,
	       uint64_t n, struct ck_val **out)
{
	struct ck_val *v;
	int rc = ck_pkl_node(vm, kind, &v);

	if (!rc && n)
		rc = ck_pkl_extend(vm, v, &v->u.seq.item, &v->u.seq.n, &v->u.seq.cap, item, n);
	if (!rc)
		*out = v;
	return rc;
}

/* ---- calls that spell values ---- */

static int bad_args(struct ck_pkl_vm *vm, const struct ck_val *fn)
{
	return ck_pkl_fail(vm, CKPT_E_CORRUPT, "%s.%s is called with arguments it does not take",
			   fn->u.global.module, fn->u.global.name);
}

static bool is_plain_seq(const struct ck_val *v)
{
	return v->kind == CK_VAL_LIST || v->kind == CK_VAL_TUPLE || v->kind == CK_VAL_SET ||
	       v->kind == CK_VAL_FROZENSET;
}

static bool is_latin1(const struct ck_val *v)
{
	return ck_val_is_str(v, "latin1") || ck_val_is_str(v, "latin-1") ||
	       ck_val_is_str(v, "iso-8859-1");
}

/* The bytes of a string of code points below 256. */
static int latin1_encode(struct ck_pkl_vm *vm, enum ck_val_kind kind, const struct ck_val *text,
			 struct ck_val **out)
{
	const uint8_t *p = (const uint8_t *)text->u.str.p;
	const uint64_t n = text->u.str.len;
	uint64_t high = 0;
	uint8_t *w;
	int rc;

	for (uint64_t i = 0; i < n; i++)
		high += p[i] >= 0xc0;
	for (uint64_t i = 0; i < n; i++)
		if (p[i] > 0xc3)
			return ck_pkl_fail(vm, CKPT_E_CORRUPT,
					   "text with characters above 255 cannot become "
					   "Latin-1 bytes");
	rc = ck_pkl_str(vm, kind, NULL, n - high, out);
	if (rc)
		return rc;
	w = (uint8_t *)(*out + 1);
	for (uint64_t i = 0; i < n; i++) {
		if (p[i] < 0x80) {
			*w++ = p[i];
		} else {
			*w++ = (uint8_t)(p[i] << 6 | (p[i + 1] & 0x3f));
			i++;
		}
	}
	return 0;
}

/* bytes(), bytes(b), bytearray(text, "latin1"), bytes([1, 2]) */
static int call_bytes(struct ck_pkl_vm *vm, enum ck_val_kind kind, const struct ck_val *fn,
		      struct ck_val *const *arg, uint64_t n, struct ck_val **out)
{
	uint8_t *w;
	int rc;

	if (!n)
		return ck_pkl_str(vm, kind, NULL, 0, out);
	if (n == 1 && (arg[0]->kind == CK_VAL_BYTES || arg[0]->kind == CK_VAL_BYTEARRAY))
		return ck_pkl_str(vm, kind, arg[0]->u.str.p, arg[0]->u.str.len, out);
	if (n == 2 && arg[0]->kind == CK_VAL_STR && is_latin1(arg[1]))
		return latin1_encode(vm, kind, arg[0], out);
	if (n != 1 || (arg[0]->kind != CK_VAL_LIST && arg[0]->kind != CK_VAL_TUPLE))
		return bad_args(vm, fn);
	rc = ck_pkl_str(vm, kind, NULL, arg[0]->u.seq.n, out);
	if (rc)
		return rc;
	w = (uint8_t *)(*out + 1);
	for (uint64_t i = 0; i < arg[0]->u.seq.n; i++) {
		const struct ck_val *b = arg[0]->u.seq.item[i];

		if (b->kind != CK_VAL_INT || b->u.i < 0 || b->u.i > 255)
			return bad_args(vm, fn);
		*w++ = (uint8_t)b->u.i;
	}
	return 0;
}

/* list(), set([...]), frozenset(...), tuple(...) */
static int call_seq(struct ck_pkl_vm *vm, enum ck_val_kind kind, const struct ck_val *fn,
		    struct ck_val *const *arg, uint64_t n, struct ck_val **out)
{
	if (!n)
		return ck_pkl_seq(vm, kind, NULL, 0, out);
	if (n != 1 || !is_plain_seq(arg[0]))
		return bad_args(vm, fn);
	return ck_pkl_seq(vm, kind, arg[0]->u.seq.item, arg[0]->u.seq.n, out);
}

static int call_dict(struct ck_pkl_vm *vm, const struct ck_val *fn, struct ck_val *const *arg,
		     uint64_t n, struct ck_val **out)
{
	if (!n)
		return ck_pkl_seq(vm, CK_VAL_DICT, NULL, 0, out);
	if (n != 1 || arg[0]->kind != CK_VAL_DICT)
		return bad_args(vm, fn);
	return ck_pkl_seq(vm, CK_VAL_DICT, arg[0]->u.seq.item, arg[0]->u.seq.n, out);
}

static const struct {
	const char *name;
	enum ck_val_kind kind;
} literals[] = {
	{ "set", CK_VAL_SET },	  { "frozenset", CK_VAL_FROZENSET },
	{ "bytes", CK_VAL_BYTES },	  { "bytearray", CK_VAL_BYTEARRAY },
	{ "list", CK_VAL_LIST },	  { "tuple", CK_VAL_TUPLE },
	{ "dict", CK_VAL_DICT },
};

/* 1 when 'fn' is none of these and an object is to be made. */
static int call_literal(struct ck_pkl_vm *vm, const struct ck_val *fn, const struct ck_val *args,
			struct ck_val **out)
{
	struct ck_val *const *arg = args->u.seq.item;
	const uint64_t n = args->u.seq.n;

	if (ck_val_is_global(fn, "_codecs", "encode")) {
		if (n != 2 || arg[0]->kind != CK_VAL_STR || !is_latin1(arg[1]))
			return bad_args(vm, fn);
		return latin1_encode(vm, CK_VAL_BYTES, arg[0], out);
	}
	if (fn->kind != CK_VAL_GLOBAL || strcmp(fn->u.global.module, "builtins"))
		return 1;
	for (size_t i = 0; i < CK_ARRAY_LEN(literals); i++) {
		if (strcmp(fn->u.global.name, literals[i].name))
			continue;
		switch (literals[i].kind) {
		case CK_VAL_BYTES:
		case CK_VAL_BYTEARRAY:
			return call_bytes(vm, literals[i].kind, fn, arg, n, out);
		case CK_VAL_DICT:
			return call_dict(vm, fn, arg, n, out);
		default:
			return call_seq(vm, literals[i].kind, fn, arg, n, out);
		}
	}
	return 1;
}

/* Python 2 spells OrderedDict([[k, v], ...]): the pairs become its items. */
static int ordered_items(struct ck_pkl_vm *vm, struct ck_val *v)
{
	struct ck_obj *o = v->u.obj;
	const struct ck_val *pairs;

	if (!ck_val_is_global(o->fn, "collections", "OrderedDict") || !o->args->u.seq.n)
		return 0;
	pairs = o->args->u.seq.item[0];
	if (o->args->u.seq.n != 1 || !is_plain_seq(pairs))
		return bad_args(vm, o->fn);
	for (uint64_t i = 0; i < pairs->u.seq.n; i++) {
		const struct ck_val *pair = pairs->u.seq.item[i];
		int rc;

		if (!is_plain_seq(pair) || pair->u.seq.n != 2)
			return bad_args(vm, o->fn);
		rc = ck_pkl_extend(vm, v, &o->dict, &o->ndict, &o->dict_cap, pair->u.seq.item, 2);
		if (rc)
			return rc;
	}
	o->args = vm->empty_tuple;
	return 0;
}

int ck_pkl_call(struct ck_pkl_vm *vm, struct ck_val *fn, struct ck_val *args,
		struct ck_val *kwargs, enum ck_val_how how, struct ck_val **out)
{
	struct ck_val *v;
	int rc = how == CK_HOW_REDUCE ? call_literal(vm, fn, args, out) : 1;

	if (rc <= 0)
		return rc;
	rc = ck_pkl_node_sized(vm, CK_VAL_OBJECT, sizeof(struct ck_val) + sizeof(struct ck_obj),
			       &v);
	if (rc)
		return rc;
	v->u.obj = (struct ck_obj *)(v + 1);
	memset(v->u.obj, 0, sizeof(*v->u.obj));
	v->u.obj->fn = fn;
	v->u.obj->args = args;
	v->u.obj->kwargs = kwargs;
	v->u.obj->how = (uint8_t)how;
	rc = ck_pkl_deepen(vm, v, args);
	if (!rc)
		rc = ck_pkl_deepen(vm, v, fn);
	if (!rc && kwargs)
		rc = ck_pkl_deepen(vm, v, kwargs);
	if (!rc)
		rc = ordered_items(vm, v);
	if (!rc)
		*out = v;
	return rc;
}
