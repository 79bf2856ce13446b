/* See t_same_graph.h. */
#include "tests/lib/archive/t_same_graph.h"

#include "libckpt/base/ck_map.h"

struct twins {
	struct ck_map left, right;	/* address -> address of the other's node */
	struct ck_arena keys;
	const char *why;
};

static bool differ(struct twins *t, const char *why)
{
	if (!t->why)
		t->why = why;
	return false;
}

static bool pair_up(struct twins *t, struct ck_map *map, const struct ck_val *a,
		    const struct ck_val *b, bool *was_there)
{
	const uintptr_t key = (uintptr_t)a;
	uint64_t old = 0;
	char *copy = ck_arena_strndup(&t->keys, (const char *)&key, sizeof(key));

	*was_there = ck_map_add(map, copy, sizeof(key), (uint64_t)(uintptr_t)b, &old, NULL) == 1;
	return !*was_there || old == (uint64_t)(uintptr_t)b;
}

static bool same(struct twins *t, const struct ck_val *a, const struct ck_val *b);

static bool same_items(struct twins *t, struct ck_val *const *a, struct ck_val *const *b,
		       uint64_t na, uint64_t nb)
{
	if (na != nb)
		return differ(t, "another count of items");
	for (uint64_t i = 0; i < na; i++)
		if (!same(t, a[i], b[i]))
			return false;
	return true;
}

static bool same_object(struct twins *t, const struct ck_obj *a, const struct ck_obj *b)
{
	const bool ex = a->how == CK_HOW_NEWOBJ_EX;
	struct ck_val *const *arg = b->args->u.seq.item;

	if (a->how != (ex ? CK_HOW_NEWOBJ_EX : b->how) || (ex && b->how != CK_HOW_REDUCE))
		return differ(t, "made in another way");
	if (ex && (!ck_val_is_global(b->fn, "copyreg", "__newobj_ex__") ||
		   b->args->u.seq.n != 3 || !same(t, a->fn, arg[0]) ||
		   !same(t, a->args, arg[1]) || !same(t, a->kwargs, arg[2])))
		return differ(t, "keyword arguments are lost");
	if (!ex && (!same(t, a->fn, b->fn) ||
		    (a->how == CK_HOW_INST ?
		     !same_items(t, a->args->u.seq.item, arg, a->args->u.seq.n,
				 b->args->u.seq.n) :
		     !same(t, a->args, b->args))))
		return differ(t, "another call");
	return same_items(t, a->list, b->list, a->nlist, b->nlist) &&
	       same_items(t, a->dict, b->dict, a->ndict, b->ndict) &&
	       same(t, a->state, b->state);
}

/* Equal values, and the same nodes shared. */
static bool same(struct twins *t, const struct ck_val *a, const struct ck_val *b)
{
	bool seen_a = false, seen_b = false;

	if (!a || !b)
		return a == b || differ(t, "a value is missing");
	if (a->kind != b->kind)
		return differ(t, "another kind of value");
	if (a->kind == CK_VAL_TUPLE && !a->u.seq.n)
		return !b->u.seq.n || differ(t, "another count of items");
	switch ((enum ck_val_kind)a->kind) {
	case CK_VAL_NONE:
	case CK_VAL_BOOL:
	case CK_VAL_INT:
	case CK_VAL_BIGINT:
	case CK_VAL_FLOAT:
	case CK_VAL_GLOBAL:
		return ck_val_equal(a, b, 1) || differ(t, "another scalar or name");
	case CK_VAL_PERSID:
		return same(t, a->u.pid, b->u.pid);
	default:
		break;
	}
	if (!pair_up(t, &t->left, a, b, &seen_a) || !pair_up(t, &t->right, b, a, &seen_b) ||
	    seen_a != seen_b)
		return differ(t, "shared in another way");
	if (seen_a)
		return true;
	switch ((enum ck_val_kind)a->kind) {
	case CK_VAL_STR:
	case CK_VAL_BYTES:
	case CK_VAL_BYTEARRAY:
		return ck_val_equal(a, b, 1) || differ(t, "another text");
	case CK_VAL_OBJECT:
		return same_object(t, a->u.obj, b->u.obj);
	default:
		return same_items(t, a->u.seq.item, b->u.seq.item, a->u.seq.n, b->u.seq.n);
	}
}

const char *t_graphs_differ(const struct ck_val *a, const struct ck_val *b)
{
	struct twins t = { .left = CK_MAP_INIT, .right = CK_MAP_INIT, .keys = CK_ARENA_INIT };

	if (!same(&t, a, b) && !t.why)
		t.why = "no memory to compare";
	ck_map_release(&t.left);
	ck_map_release(&t.right);
	ck_arena_release(&t.keys);
	return t.why;
}
