/*
 * ck_pkl_emit.c -- see ck_pkl_emit.h and docs/formats/pickle.md, "Written".
 *
 * One walk over the tree, depth first, as CPython's pickler walks objects: what it numbers is
 * numbered here in the same order, so a value that is met again is named by its number.
 */
#include "libckpt/pickle/ck_pkl_emit.h"

#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/pickle/ck_pkl_attr.h"
#include "libckpt/pickle/ck_pkl_out.h"

#define BATCH 1000		/* items between a MARK and its SETITEMS or APPENDS */
#define DEPTH_MOST 8000		/* of our stack */

static int save(struct ck_pkl_out *out, const struct ck_val *v);

/* ---- bytes, which protocol 2 spells as calls ---- */

/* Each byte as the character of that number, in UTF-8. */
static int put_latin1(struct ck_pkl_out *out, const struct ck_val *v)
{
	const uint8_t *p = (const uint8_t *)v->u.str.p;
	uint64_t n = v->u.str.len, at = 0;
	int rc;

	for (uint64_t i = 0; i < v->u.str.len; i++)
		n += p[i] >> 7;
	rc = n > UINT32_MAX ? ck_pkl_out_too_long(out, n) : ck_pkl_out_number(out, 'X', 4, n);
	while (!rc && at < v->u.str.len) {
		char piece[512];
		size_t k = 0;

		while (at < v->u.str.len && k + 2 <= sizeof(piece)) {
			if (p[at] >> 7)
				piece[k++] = (char)(0xc0 | p[at] >> 6);
			piece[k++] = (char)(p[at] >> 7 ? 0x80 | (p[at] & 0x3f) : p[at]);
			at++;
		}
		rc = ck_pkl_out_put(out, piece, k);
	}
	return rc ? rc : ck_pkl_out_memo(out);
}

/* A call without arguments of a builtin. */
static int empty_call(struct ck_pkl_out *out, const char *name)
{
	int rc = ck_pkl_out_global(out, "builtins", name);

	return rc ? rc : ck_pkl_out_put(out, ")R", 2);
}

/* The bytes object of the node's content, not yet numbered. */
static int bytes_call(struct ck_pkl_out *out, const struct ck_val *v)
{
	int rc;

	if (!v->u.str.len)
		return empty_call(out, "bytes");
	rc = ck_pkl_out_global(out, "_codecs", "encode");
	if (!rc)
		rc = put_latin1(out, v);
	if (!rc)
		rc = ck_pkl_out_text(out, "latin1");
	if (!rc)
		rc = ck_pkl_out_op(out, 0x86);
	if (!rc)
		rc = ck_pkl_out_memo(out);
	return rc ? rc : ck_pkl_out_op(out, 'R');
}

static int save_bytes(struct ck_pkl_out *out, const struct ck_val *v)
{
	int rc = bytes_call(out, v);

	return rc ? rc : ck_pkl_memo_put(out, v);
}

static int save_bytearray(struct ck_pkl_out *out, const struct ck_val *v)
{
	int rc;

	if (!v->u.str.len) {
		rc = empty_call(out, "bytearray");
		return rc ? rc : ck_pkl_memo_put(out, v);
	}
	rc = ck_pkl_out_global(out, "builtins", "bytearray");
	if (!rc)
		rc = bytes_call(out, v);
	if (!rc)
		rc = ck_pkl_out_memo(out);
	if (!rc)
		rc = ck_pkl_out_op(out, 0x85);
	if (!rc)
		rc = ck_pkl_out_memo(out);
	if (!rc)
		rc = ck_pkl_out_op(out, 'R');
	return rc ? rc : ck_pkl_memo_put(out, v);
}

/* ---- containers ---- */

/*
 * Items of an object, 'width' nodes each, into what lies on the stack; 'one' and 'many' are
 * its opcodes.  A batch of one goes without a MARK.
 */
static int put_items(struct ck_pkl_out *out, struct ck_val *const *item, uint64_t n,
		     uint64_t width, uint8_t one, uint8_t many)
{
	int rc = 0;

	for (uint64_t at = 0; !rc && at < n;) {
		const uint64_t k = ck_min_u64(n - at, BATCH * width);

		if (k > width)
			rc = ck_pkl_out_op(out, '(');
		for (uint64_t i = 0; !rc && i < k; i++)
			rc = save(out, item[at + i]);
		if (!rc)
			rc = ck_pkl_out_op(out, k > width ? many : one);
		at += k;
	}
	return rc;
}

/*
 * Items of a plain list or dict.  CPython writes these with a MARK from the second item on, and
 * behind a full batch of a dict one more that may be empty.
 */
static int put_plain(struct ck_pkl_out *out, const struct ck_val *v, uint64_t width, uint8_t one,
		     uint8_t many)
{
	const uint64_t n = v->u.seq.n / width * width;
	uint64_t at = 0, k;
	int rc = 0;

	if (n <= width)
		return put_items(out, v->u.seq.item, n, width, one, many);
	do {
		k = ck_min_u64(n - at, BATCH * width);
		rc = ck_pkl_out_op(out, '(');
		for (uint64_t i = 0; !rc && i < k; i++)
			rc = save(out, v->u.seq.item[at + i]);
		if (!rc)
			rc = ck_pkl_out_op(out, many);
		at += k;
	} while (!rc && (at < n || (width == 2 && k == BATCH * width)));
	return rc;
}

static int save_list(struct ck_pkl_out *out, const struct ck_val *v)
{
	int rc = ck_pkl_out_op(out, ']');

	if (!rc)
		rc = ck_pkl_memo_put(out, v);
	return rc ? rc : put_plain(out, v, 1, 'a', 'e');
}

static int save_dict(struct ck_pkl_out *out, const struct ck_val *v)
{
	int rc = ck_pkl_out_op(out, '}');

	if (!rc)
		rc = ck_pkl_memo_put(out, v);
	return rc ? rc : put_plain(out, v, 2, 's', 'u');
}

/*
 * The value that is complete on the stack gets its number; if it got one while its parts were
 * written (it contains itself), 'undo' takes it off again and the number is referred to: 1.
 */
static int number_value(struct ck_pkl_out *out, const struct ck_val *v, const char *undo)
{
	uint32_t memo;
	int rc;

	if (!ck_pkl_memo_find(out, v, &memo))
		return ck_pkl_memo_put(out, v);
	rc = ck_pkl_out_put(out, undo, strlen(undo));
	if (!rc)
		rc = ck_pkl_memo_get(out, memo);
	return rc ? rc : 1;
}

static int save_tuple(struct ck_pkl_out *out, const struct ck_val *v)
{
	static const char *const pops[] = { "", "0", "00", "000", "1" };
	const uint64_t n = v->u.seq.n;
	uint32_t memo;
	int rc = 0;

	if (!n)
		return ck_pkl_out_op(out, ')');
	if (n > 3)
		rc = ck_pkl_out_op(out, '(');
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = save(out, v->u.seq.item[i]);
	if (rc)
		return rc;
	if (ck_pkl_memo_find(out, v, &memo)) {
		rc = number_value(out, v, pops[ck_min_u64(n, 4)]);
		return rc < 0 ? rc : 0;
	}
	rc = ck_pkl_out_op(out, n > 3 ? 't' : (uint8_t)(0x84 + n));
	return rc ? rc : ck_pkl_memo_put(out, v);
}

/* set([...]), frozenset([...]): the list is made for the call. */
static int save_set(struct ck_pkl_out *out, const struct ck_val *v)
{
	int rc = ck_pkl_out_global(out, "builtins", v->kind == CK_VAL_SET ? "set" : "frozenset");

	if (!rc)
		rc = ck_pkl_out_op(out, ']');
	if (!rc)
		rc = ck_pkl_out_memo(out);
	if (!rc)
		rc = put_plain(out, v, 1, 'a', 'e');
	if (!rc)
		rc = ck_pkl_out_op(out, 0x85);
	if (!rc)
		rc = ck_pkl_out_memo(out);
	if (!rc)
		rc = ck_pkl_out_op(out, 'R');
	if (!rc)
		rc = number_value(out, v, "0");
	return rc < 0 ? rc : 0;
}

/* ---- objects ---- */

/* copyreg.__newobj_ex__(cls, args, kwargs): protocol 2 has no opcode for it. */
static int put_newobj_ex(struct ck_pkl_out *out, const struct ck_obj *o)
{
	int rc = ck_pkl_out_global(out, "copyreg", "__newobj_ex__");

	if (!rc)
		rc = save(out, o->fn);
	if (!rc)
		rc = save(out, o->args);
	if (!rc)
		rc = o->kwargs ? save(out, o->kwargs) : ck_pkl_out_op(out, '}');
	if (!rc)
		rc = ck_pkl_out_op(out, 0x87);
	if (!rc)
		rc = ck_pkl_out_memo(out);
	return rc ? rc : ck_pkl_out_op(out, 'R');
}

/* Python 2's way: class and arguments above a MARK. */
static int put_inst(struct ck_pkl_out *out, const struct ck_obj *o)
{
	int rc = ck_pkl_out_op(out, '(');

	if (!rc)
		rc = save(out, o->fn);
	for (uint64_t i = 0; !rc && o->args->kind == CK_VAL_TUPLE && i < o->args->u.seq.n; i++)
		rc = save(out, o->args->u.seq.item[i]);
	return rc ? rc : ck_pkl_out_op(out, 'o');
}

static int put_call(struct ck_pkl_out *out, const struct ck_val *v)
{
	const struct ck_obj *o = v->u.obj;
	int rc;

	if (o->how == CK_HOW_NEWOBJ_EX)
		return put_newobj_ex(out, o);
	if (o->how == CK_HOW_INST)
		return put_inst(out, o);
	rc = ck_pkl_is_attr(v) ? ck_pkl_out_getattr(out) : save(out, o->fn);
	if (!rc)
		rc = save(out, o->args);
	return rc ? rc : ck_pkl_out_op(out, o->how == CK_HOW_NEWOBJ ? 0x81 : 'R');
}

static int save_object(struct ck_pkl_out *out, const struct ck_val *v)
{
	const struct ck_obj *o = v->u.obj;
	int rc = o->tensor && out->special ? out->special(out->arg, v, out) : 1;

	if (rc < 0)
		return rc;
	if (!rc) {
		rc = number_value(out, v, "0");
		return rc < 0 ? rc : 0;
	}
	rc = put_call(out, v);
	if (!rc)
		rc = number_value(out, v, "0");
	if (rc)		/* 1: whoever wrote it within itself wrote all of it */
		return rc < 0 ? rc : 0;
	rc = put_items(out, o->list, o->nlist, 1, 'a', 'e');
	if (!rc)
		rc = put_items(out, o->dict, o->ndict / 2 * 2, 2, 's', 'u');
	if (rc || !o->state)
		return rc;
	rc = save(out, o->state);
	return rc ? rc : ck_pkl_out_op(out, 'b');
}

static int save_persid(struct ck_pkl_out *out, const struct ck_val *v)
{
	int rc = out->special ? out->special(out->arg, v, out) : 1;

	if (rc <= 0)
		return rc;
	rc = save(out, v->u.pid);
	return rc ? rc : ck_pkl_out_op(out, 'Q');
}

/* ---- the walk ---- */

static int save_new(struct ck_pkl_out *out, const struct ck_val *v)
{
	int rc;

	switch ((enum ck_val_kind)v->kind) {
	case CK_VAL_NONE:
		return ck_pkl_out_op(out, 'N');
	case CK_VAL_BOOL:
		return ck_pkl_out_bool(out, v->u.b);
	case CK_VAL_INT:
		return ck_pkl_out_int(out, v->u.i);
	case CK_VAL_BIGINT:
		return ck_pkl_out_bigint(out, v);
	case CK_VAL_FLOAT:
		return ck_pkl_out_float(out, v->u.f);
	case CK_VAL_STR:
		rc = ck_pkl_out_str(out, v->u.str.p, v->u.str.len);
		return rc ? rc : ck_pkl_memo_put(out, v);
	case CK_VAL_BYTES:
		return save_bytes(out, v);
	case CK_VAL_BYTEARRAY:
		return save_bytearray(out, v);
	case CK_VAL_TUPLE:
		return save_tuple(out, v);
	case CK_VAL_LIST:
		return save_list(out, v);
	case CK_VAL_DICT:
		return save_dict(out, v);
	case CK_VAL_SET:
	case CK_VAL_FROZENSET:
		return save_set(out, v);
	case CK_VAL_GLOBAL:
		return ck_pkl_out_global(out, v->u.global.module, v->u.global.name);
	case CK_VAL_OBJECT:
		return save_object(out, v);
	case CK_VAL_PERSID:
		return save_persid(out, v);
	}
	return ck_fail(out->err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "a pickle cannot hold a "
		       "value of kind %u", v->kind);
}

static int save(struct ck_pkl_out *out, const struct ck_val *v)
{
	uint32_t memo;
	int rc;

	if (ck_pkl_memo_find(out, v, &memo))
		return ck_pkl_memo_get(out, memo);
	if (out->depth >= out->depth_most)
		return ck_fail_limit(out->err, NULL, CKPT_NO_OFFSET, "pickle_depth",
				     out->limits->pickle_depth,
				     "values are nested more than %u levels deep", out->depth_most);
	out->depth++;
	rc = save_new(out, v);
	out->depth--;
	return rc;
}

int ck_pkl_out_counts(struct ck_pkl_out *out, const uint64_t *count, uint32_t n)
{
	int rc = n > 3 ? ck_pkl_out_op(out, '(') : 0;

	if (!n)
		return ck_pkl_out_op(out, ')');
	for (uint32_t i = 0; !rc && i < n; i++)
		rc = ck_pkl_out_int(out, (int64_t)count[i]);
	if (!rc)
		rc = ck_pkl_out_op(out, n > 3 ? 't' : (uint8_t)(0x84 + n));
	return rc ? rc : ck_pkl_out_memo(out);
}

int ck_pkl_emit(const struct ck_val *root, const struct ckpt_limits *limits,
		ck_pkl_special *special, void *arg, char **bytes_out, uint64_t *n_out,
		struct ckpt_err *err)
{
	struct ck_pkl_out out = {
		.buf = CK_BUF_INIT(limits->pickle_bytes), .limits = limits, .special = special,
		.arg = arg, .err = err, .names = CK_MAP_INIT, .keys = CK_ARENA_INIT,
	};
	int rc;

	/* A pickle counts what contains what; here a call's arguments are a level of their own. */
	out.depth_most = (uint32_t)ck_min_u64(2 * (uint64_t)limits->pickle_depth + 8, DEPTH_MOST);
	rc = ck_pkl_out_put(&out, "\x80\x02", 2);
	if (!rc)
		rc = save(&out, root);
	if (!rc)
		rc = ck_pkl_out_op(&out, '.');
	if (!rc) {
		*n_out = out.buf.len;
		*bytes_out = ck_buf_take(&out.buf);
	}
	ck_buf_release(&out.buf);
	ck_map_release(&out.names);
	ck_arena_release(&out.keys);
	ck_free(out.seen);
	return rc;
}
