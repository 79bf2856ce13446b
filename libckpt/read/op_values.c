/*
 * op_values.c -- paths into the value trees of a step (ckpt_value.h).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/format/ck_values.h"
#include "libckpt/read/op_read.h"
#include "libckpt/run/ck_elem_type.h"

#define MOST_TOLD 240	/* bytes of keys in a message */

struct ckpt_values {
	const struct ckpt *ck;
	struct ck_values tree;
	struct ck_arena arena;		/* what is lent */
};

/* A step of a path, without its backslashes. */
struct step {
	char *text;		/* room for the whole path */
	size_t len;
	bool by_place;		/* "#3" */
	bool arguments;		/* "()" */
	bool state;		/* "{}" */
	uint64_t number;	/* if it is one */
	bool is_number;
};

/* Where a path has led to. */
struct spot {
	const struct ck_val *v;
	bool in_model;		/* else in the optimizer */
};

/* ---------------------------------------------------------------- containers */

/* Attributes of an object: the first dictionary of its state. */
static bool attributes(const struct ck_val *v, struct ck_val *const **item_out, uint64_t *n_out)
{
	const struct ck_val *state;

	if (!v || v->kind != CK_VAL_OBJECT || v->u.obj->tensor)
		return false;
	state = v->u.obj->state;
	if (state && state->kind == CK_VAL_TUPLE)
		for (uint64_t i = 0; i < state->u.seq.n; i++)
			if (ck_val_pairs(state->u.seq.item[i], item_out, n_out))
				return true;
	return ck_val_pairs(state, item_out, n_out);
}

static bool pairs_of(const struct ck_val *v, struct ck_val *const **item_out, uint64_t *n_out)
{
	return ck_val_pairs(v, item_out, n_out) || attributes(v, item_out, n_out);
}

static bool items_of(const struct ck_val *v, struct ck_val *const **item_out, uint64_t *n_out)
{
	if (v && (v->kind == CK_VAL_SET || v->kind == CK_VAL_FROZENSET)) {
		*item_out = v->u.seq.item;
		*n_out = v->u.seq.n;
		return true;
	}
	return ck_val_seq(v, item_out, n_out);
}

static const struct ck_val *by_key(struct ck_val *const *item, uint64_t n, const struct step *s)
{
	const struct ck_val *found = NULL;

	for (uint64_t i = 0; i < n; i++) {
		const struct ck_val *k = item[2 * i];

		if (k->kind == CK_VAL_STR && k->u.str.len == s->len &&
		    !memcmp(k->u.str.p, s->text, s->len))
			found = item[2 * i + 1];
	}
	for (uint64_t i = 0; !found && s->is_number && i < n; i++)
		if (item[2 * i]->kind == CK_VAL_INT && item[2 * i]->u.i >= 0 &&
		    (uint64_t)item[2 * i]->u.i == s->number)
			found = item[2 * i + 1];
	return found;
}

static const struct ck_val *child(const struct ck_val *v, const struct step *s)
{
	struct ck_val *const *item;
	uint64_t n;

	if (s->arguments || s->state) {
		if (v->kind != CK_VAL_OBJECT || v->u.obj->tensor)
			return NULL;
		return s->state ? v->u.obj->state : v->u.obj->args;
	}
	if (pairs_of(v, &item, &n)) {
		if (s->by_place)
			return s->number < n ? item[2 * s->number + 1] : NULL;
		return by_key(item, n, s);
	}
	if ((s->by_place || s->is_number) && items_of(v, &item, &n))
		return s->number < n ? item[s->number] : NULL;
	return NULL;
}

/* ---------------------------------------------------------------- paths */

static bool digits(const char *p, size_t n, uint64_t *out)
{
	uint64_t v = 0;

	if (!n || n > 19 || (n > 1 && p[0] == '0'))
		return false;
	for (size_t i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return false;
		v = 10 * v + (uint64_t)(p[i] - '0');
	}
	*out = v;
	return true;
}

/* The next step; '*at' goes behind it and its dot. */
static int take_step(const char *path, const char **at, struct step *s, struct ckpt_err *err)
{
	const char *p = *at;
	bool bare = true;	/* without a backslash */

	s->len = 0;
	for (; *p && *p != '.'; p++) {
		if (*p == '\\') {
			bare = false;
			if (!*++p)
				return ck_fail(err, CKPT_E_USAGE, path, CKPT_NO_OFFSET,
					       "the path ends with a backslash");
		}
		s->text[s->len++] = *p;
	}
	if (!s->len)
		return ck_fail(err, CKPT_E_USAGE, path, CKPT_NO_OFFSET,
			       "the path has an empty component at byte %zu", (size_t)(p - path));
	s->text[s->len] = 0;
	s->by_place = bare && s->text[0] == '#' && digits(s->text + 1, s->len - 1, &s->number);
	s->arguments = bare && !strcmp(s->text, "()");
	s->state = bare && !strcmp(s->text, "{}");
	s->is_number = bare && digits(s->text, s->len, &s->number);
	if (*p && !p[1])
		return ck_fail(err, CKPT_E_USAGE, path, CKPT_NO_OFFSET, "the path ends with a dot");
	*at = *p ? p + 1 : p;
	return 0;
}

static int fail_step(const struct ck_val *v, const char *path, const char *at,
		     const struct step *s, struct ckpt_err *err)
{
	char list[MOST_TOLD + 1] = "nothing";
	struct ck_val *const *item;
	size_t n = 0;
	uint64_t k;

	if (items_of(v, &item, &k))
		snprintf(list, sizeof(list), "a list of %" PRIu64, k);
	else if (pairs_of(v, &item, &k))
		for (uint64_t i = 0; i < k && n < MOST_TOLD; i++) {
			const char *key = ck_val_str(item[2 * i]);

			if (key)
				n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s",
						      n ? ", " : "", key);
		}
	return ck_fail(err, CKPT_E_NOTFOUND, path, CKPT_NO_OFFSET,
		       "\"%.80s\" (byte %zu of the path) does not exist; there is %s", s->text,
		       (size_t)(at - path), list);
}

/* A root by its name: 1, and what it is; 0 for another name; -1 if the step has none. */
static int root_of(const struct ckpt_values *values, const char *name, struct spot *out)
{
	const struct ck_values *t = &values->tree;
	const struct {
		const char *name;
		const struct ck_val *v;
	} roots[] = {
		{ "param_groups", t->groups }, { "loss_scaler", t->scaler },
		{ "optimizer", t->optimizer }, { "model", t->model },
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(roots); i++)
		if (!strcmp(roots[i].name, name)) {
			*out = (struct spot){ roots[i].v, roots[i].v == t->model };
			return roots[i].v ? 1 : -1;
		}
	return 0;
}

static int walk(const struct ckpt_values *values, const char *path, char *room, struct spot *out,
		struct ckpt_err *err)
{
	const char *at = path, *begin;
	struct step s = { .text = room };
	struct spot spot;
	int known = 0, rc = 0;

	*out = (struct spot){ values->tree.model, true };
	for (bool first = true; !rc && *at; first = false) {
		begin = at;
		rc = take_step(path, &at, &s, err);
		if (rc)
			return rc;
		known = first ? root_of(values, s.text, &spot) : 0;
		if (known < 0)
			return ck_fail(err, CKPT_E_NOTFOUND, path, CKPT_NO_OFFSET,
				       "the step has no %s: it was saved without one", s.text);
		if (!known) {
			spot = *out;
			spot.v = child(out->v, &s);
		}
		if (!spot.v)
			return fail_step(out->v, path, begin, &s, err);
		*out = spot;
	}
	return rc;
}

static int find(struct ckpt_values *values, const char *path, struct spot *out,
		struct ckpt_err *err)
{
	char *room = ck_alloc(strlen(path) + 1);
	const int rc = room ? walk(values, path, room, out, err) :
			      ck_fail_nomem(err, "a path", strlen(path));

	ck_free(room);
	return rc;
}

/* ---------------------------------------------------------------- what lies there */

/* One element as a number. */
static void take_number(struct ckpt_value *out)
{
	const struct ck_elem_type num = ck_elem_type_of(out->dtype);
	const unsigned up = 64 - ckpt_dtype_bits(out->dtype);
	uint64_t u = 0;

	if (out->numel != 1 || num.parts != 1)
		return;
	if (num.type >= KN_NUM_I8 && num.type <= KN_NUM_U64) {
		memcpy(&u, out->bytes, ckpt_dtype_bits(out->dtype) / 8);
		out->i = num.type <= KN_NUM_I64 ? (int64_t)(u << up) >> up : (int64_t)u;
		out->f = kn_num_value(num.type, out->bytes);
	} else if (num.type != KN_NUM_BYTE) {
		out->f = kn_num_value(num.type, out->bytes);
		out->i = out->f > -9e18 && out->f < 9e18 ? (int64_t)out->f : 0;
	} else if (out->dtype == CKPT_BOOL) {
		out->i = *(const uint8_t *)out->bytes != 0;
		out->f = (double)out->i;
	}
}

static int take_tensor(struct ckpt_values *values, const struct spot *spot, struct ckpt_value *out,
		       struct ckpt_err *err)
{
	const struct ck_tensor_ref *t = ck_val_tensor(spot->v);
	uint8_t *p = NULL, *lent = NULL;
	int rc;

	*out = (struct ckpt_value){
		.kind = CKPT_VALUE_TENSOR, .dtype = (enum ckpt_dtype)t->dtype, .ndim = t->ndim,
		.shape = t->shape, .numel = t->numel,
	};
	rc = values->tree.bytes(&values->tree, t, spot->in_model, CKPT_VALUE_TENSOR_BYTES, &p, err);
	if (rc || !p)
		return rc;
	out->n = t->numel * (ckpt_dtype_bits(out->dtype) / 8);
	lent = ck_arena_alloc(&values->arena, out->n + 1);
	if (lent) {
		memcpy(lent, p, out->n);
		out->bytes = lent;
		take_number(out);
	}
	ck_free(p);
	return lent ? 0 : ck_fail_nomem(err, "a tensor", out->n);
}

static int take_name(struct ckpt_values *values, const struct ck_val *name, struct ckpt_value *out,
		     struct ckpt_err *err)
{
	const bool is = name && name->kind == CK_VAL_GLOBAL;
	const char *text = is ? ck_arena_printf(&values->arena, "%s.%s", name->u.global.module,
						name->u.global.name) : "";

	if (!text)
		return ck_fail_nomem(err, "a name", 0);
	out->bytes = text;
	return 0;
}

static void take_text(const struct ck_val *v, enum ckpt_value_kind kind, struct ckpt_value *out)
{
	*out = (struct ckpt_value){ .kind = kind, .n = v->u.str.len, .bytes = v->u.str.p };
}

static int take_object(struct ckpt_values *values, const struct spot *spot, struct ckpt_value *out,
		       struct ckpt_err *err)
{
	const struct ck_val *v = spot->v;
	struct ck_val *const *item;
	uint64_t n = 0;

	if (ck_val_tensor(v))
		return take_tensor(values, spot, out, err);
	if (ck_val_pairs(v, &item, &n)) {
		*out = (struct ckpt_value){ .kind = CKPT_VALUE_DICT, .n = n };
		return 0;
	}
	if (!attributes(v, &item, &n) && ck_val_seq(v, &item, &n)) {
		*out = (struct ckpt_value){ .kind = CKPT_VALUE_LIST, .n = n };
		return 0;
	}
	*out = (struct ckpt_value){ .kind = CKPT_VALUE_OBJECT, .n = n };
	return take_name(values, v->u.obj->fn, out, err);
}

static int describe(struct ckpt_values *values, const struct spot *spot, struct ckpt_value *out,
		    struct ckpt_err *err)
{
	const struct ck_val *v = spot->v;

	switch ((enum ck_val_kind)v->kind) {
	case CK_VAL_NONE:
		*out = (struct ckpt_value){ .kind = CKPT_VALUE_NONE };
		return 0;
	case CK_VAL_BOOL:
		*out = (struct ckpt_value){ .kind = CKPT_VALUE_BOOL, .i = v->u.b, .f = v->u.b };
		return 0;
	case CK_VAL_INT:
		*out = (struct ckpt_value){
			.kind = CKPT_VALUE_INT, .i = v->u.i, .f = (double)v->u.i,
		};
		return 0;
	case CK_VAL_FLOAT:
		*out = (struct ckpt_value){ .kind = CKPT_VALUE_FLOAT, .f = v->u.f };
		return 0;
	case CK_VAL_BIGINT:
		take_text(v, CKPT_VALUE_BIGINT, out);
		return 0;
	case CK_VAL_STR:
		take_text(v, CKPT_VALUE_STRING, out);
		return 0;
	case CK_VAL_BYTES:
	case CK_VAL_BYTEARRAY:
		take_text(v, CKPT_VALUE_BYTES, out);
		return 0;
	case CK_VAL_TUPLE:
	case CK_VAL_LIST:
	case CK_VAL_SET:
	case CK_VAL_FROZENSET:
		*out = (struct ckpt_value){ .kind = CKPT_VALUE_LIST, .n = v->u.seq.n };
		return 0;
	case CK_VAL_DICT:
		*out = (struct ckpt_value){ .kind = CKPT_VALUE_DICT, .n = v->u.seq.n / 2 };
		return 0;
	case CK_VAL_GLOBAL:
		*out = (struct ckpt_value){ .kind = CKPT_VALUE_NAME };
		return take_name(values, v, out, err);
	case CK_VAL_OBJECT:
		return take_object(values, spot, out, err);
	case CK_VAL_PERSID:
		break;
	}
	*out = (struct ckpt_value){ .kind = CKPT_VALUE_OBJECT, .bytes = "" };
	return 0;
}

int ck_value_get(struct ckpt_values *values, const char *path, struct ckpt_value *out,
		 struct ckpt_err *err)
{
	struct ckpt_value value;
	struct spot spot;
	int rc = find(values, path, &spot, err);

	if (!rc)
		rc = describe(values, &spot, &value, err);
	if (!rc)
		*out = value;
	return rc;
}

/* ---------------------------------------------------------------- steps */

/* Does the step lead to that item? */
static bool leads_to(const struct ck_val *v, const char *text, const struct ck_val *item)
{
	struct step s = { .text = (char *)text, .len = strlen(text) };

	s.is_number = digits(text, s.len, &s.number);
	return child(v, &s) == item;
}

static char *escape(struct ck_arena *arena, const char *key)
{
	char *text = ck_arena_alloc(arena, 2 * strlen(key) + 1), *p = text;

	if (!text)
		return NULL;
	for (const char *c = key; *c; c++) {
		if (*c == '.' || *c == '\\' || (c == key && strchr("#({", *c)))
			*p++ = '\\';
		*p++ = *c;
	}
	*p = 0;
	return text;
}

/* The key, where it is one that a path can name and that leads to this item; else its place. */
static const char *step_of(struct ck_arena *arena, const struct ck_val *v,
			   struct ck_val *const *item, uint64_t i)
{
	const struct ck_val *k = item[2 * i];
	const char *text = ck_val_str(k);
	char number[24];

	if (text && *text && leads_to(v, text, item[2 * i + 1]))
		return escape(arena, text);
	if (k->kind == CK_VAL_INT && k->u.i >= 0) {
		snprintf(number, sizeof(number), "%" PRId64, k->u.i);
		if (leads_to(v, number, item[2 * i + 1]))
			return ck_arena_strdup(arena, number);
	}
	return ck_arena_printf(arena, "#%" PRIu64, i);
}

int ck_value_step(struct ckpt_values *values, const char *path, uint64_t item,
		  const char **step_out, struct ckpt_err *err)
{
	struct ck_val *const *list;
	struct spot spot;
	const char *text;
	bool pairs;
	uint64_t n;
	int rc = find(values, path, &spot, err);

	if (rc)
		return rc;
	pairs = pairs_of(spot.v, &list, &n);
	if (!pairs && !items_of(spot.v, &list, &n))
		return ck_fail(err, CKPT_E_USAGE, path, CKPT_NO_OFFSET,
			       "this value is neither a list nor a dictionary, so it has no "
			       "item %" PRIu64, item);
	if (item >= n)
		return ck_fail(err, CKPT_E_USAGE, path, CKPT_NO_OFFSET,
			       "item %" PRIu64 " does not exist: there are %" PRIu64 ", counted "
			       "from 0", item, n);
	text = pairs ? step_of(&values->arena, spot.v, list, item) :
		       ck_arena_printf(&values->arena, "%" PRIu64, item);
	if (!text)
		return ck_fail_nomem(err, "a step", 0);
	*step_out = text;
	return 0;
}

/* ---------------------------------------------------------------- opening */

static int open_tree(const struct ckpt *ck, uint32_t rank, struct ckpt_values *values,
		     struct ckpt_err *err)
{
	const struct ck_format *driver = ck->driver;
	const uint32_t world = ck->ix.world ? ck->ix.world : 1;

	if (!driver->values)
		return ck_fail(err, CKPT_E_UNSUPPORTED, ck->ix.path, CKPT_NO_OFFSET,
			       "a checkpoint of format %s has no training values; give a "
			       "DeepSpeed, universal, native or DCP step", ck->ix.format);
	return driver->values(&ck->ix, &ck->limits, rank % world, &values->tree, err);
}

int ck_values_open(const struct ckpt *ck, uint32_t rank, struct ckpt_values **out,
		   struct ckpt_err *err)
{
	struct ckpt_values *values = ck_zalloc(sizeof(*values));
	int rc;

	if (!values)
		return ck_fail_nomem(err, "values", sizeof(*values));
	values->ck = ck;
	values->arena.limit = ck->limits.memory_bytes;
	rc = open_tree(ck, rank, values, err);
	if (rc)
		ck_values_free(values);
	else
		*out = values;
	return rc;
}

void ck_values_free(struct ckpt_values *values)
{
	if (!values)
		return;
	if (values->tree.close)
		values->tree.close(&values->tree);
	ck_arena_release(&values->arena);
	ck_free(values);
}
