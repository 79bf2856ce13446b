/*
 * ck_pkl_vm.c -- see ck_pkl.h: the opcodes, protocols 0 to 5.
 *
 * A stack machine (ck_pkl_stack.c): scalars are pushed, MARK remembers a height, containers
 * take what lies above the newest mark, the memo names values for later.  Calls become
 * objects (ck_pkl_call); before one is made its name, and the names among its direct
 * arguments, are looked up in the refused set.
 *
 * Memory: a node costs at least one byte of input; lengths are held against the bytes left.
 */
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/pickle/ck_pkl_attr.h"
#include "libckpt/pickle/ck_pkl_torch.h"
#include "libckpt/pickle/ck_pkl_vm.h"

enum {
	OP_MARK = '(', OP_STOP = '.', OP_POP = '0', OP_POP_MARK = '1', OP_DUP = '2',
	OP_FLOAT = 'F', OP_INT = 'I', OP_BININT = 'J', OP_BININT1 = 'K', OP_LONG = 'L',
	OP_BININT2 = 'M', OP_NONE = 'N', OP_PERSID = 'P', OP_BINPERSID = 'Q', OP_REDUCE = 'R',
	OP_STRING = 'S', OP_BINSTRING = 'T', OP_SHORT_BINSTRING = 'U', OP_UNICODE = 'V',
	OP_BINUNICODE = 'X', OP_APPEND = 'a', OP_BUILD = 'b', OP_GLOBAL = 'c', OP_DICT = 'd',
	OP_EMPTY_DICT = '}', OP_APPENDS = 'e', OP_GET = 'g', OP_BINGET = 'h', OP_INST = 'i',
	OP_LONG_BINGET = 'j', OP_LIST = 'l', OP_EMPTY_LIST = ']', OP_OBJ = 'o', OP_PUT = 'p',
	OP_BINPUT = 'q', OP_LONG_BINPUT = 'r', OP_SETITEM = 's', OP_TUPLE = 't',
	OP_EMPTY_TUPLE = ')', OP_SETITEMS = 'u', OP_BINFLOAT = 'G',
	OP_PROTO = 0x80, OP_NEWOBJ, OP_EXT1, OP_EXT2, OP_EXT4, OP_TUPLE1, OP_TUPLE2, OP_TUPLE3,
	OP_NEWTRUE, OP_NEWFALSE, OP_LONG1, OP_LONG4,
	OP_BINBYTES = 'B', OP_SHORT_BINBYTES = 'C',
	OP_SHORT_BINUNICODE = 0x8c, OP_BINUNICODE8, OP_BINBYTES8, OP_EMPTY_SET, OP_ADDITEMS,
	OP_FROZENSET, OP_NEWOBJ_EX, OP_STACK_GLOBAL, OP_MEMOIZE, OP_FRAME, OP_BYTEARRAY8,
	OP_NEXT_BUFFER, OP_READONLY_BUFFER,
};

/* ---- lengths and text ---- */

static int take_bytes(struct ck_pkl_vm *vm, uint64_t n, const uint8_t **p_out)
{
	if (n > vm->cur.left)
		return ck_pkl_fail(vm, CKPT_E_TRUNCATED,
				   "expected %" PRIu64 " more bytes, but only %" PRIu64 " are "
				   "left (was the file cut short?)", n, vm->cur.left);
	return ck_cur_take(&vm->cur, n, p_out, vm->err);
}

/* A little-endian number of 'width' bytes. */
static int number(struct ck_pkl_vm *vm, unsigned width, uint64_t *out)
{
	const uint8_t *p = NULL;
	uint64_t v = 0;
	int rc = take_bytes(vm, width, &p);

	if (rc)
		return rc;
	for (unsigned i = width; i-- > 0;)
		v = v << 8 | p[i];
	*out = v;
	return 0;
}

/* A length of 'width' bytes and as many bytes behind it. */
static int counted(struct ck_pkl_vm *vm, unsigned width, const uint8_t **p_out, uint64_t *n_out)
{
	int rc = number(vm, width, n_out);

	return rc ? rc : take_bytes(vm, *n_out, p_out);
}

static int push_unicode(struct ck_pkl_vm *vm, unsigned width)
{
	const uint8_t *p = NULL;
	struct ck_val *v = NULL;
	bool surrogates;
	uint64_t n = 0;
	int rc = counted(vm, width, &p, &n);

	if (!rc && !ck_pkl_is_utf8(p, n, &surrogates))
		rc = ck_pkl_fail(vm, CKPT_E_CORRUPT, "a string is not UTF-8");
	if (!rc)
		rc = ck_pkl_str(vm, CK_VAL_STR, p, n, &v);
	return rc ? rc : ck_pkl_push(vm, v);
}

static int push_bytes(struct ck_pkl_vm *vm, enum ck_val_kind kind, unsigned width)
{
	const uint8_t *p = NULL;
	struct ck_val *v = NULL;
	uint64_t n = 0;
	int rc = counted(vm, width, &p, &n);

	if (!rc)
		rc = ck_pkl_str(vm, kind, p, n, &v);
	return rc ? rc : ck_pkl_push(vm, v);
}

static int push_string2(struct ck_pkl_vm *vm, unsigned width)
{
	const uint8_t *p = NULL;
	struct ck_val *v = NULL;
	uint64_t n = 0;
	int rc;

	/* BINSTRING's length is signed; a negative one is more than is left anyway. */
	rc = counted(vm, width, &p, &n);
	if (!rc)
		rc = ck_pkl_str2(vm, p, n, &v);
	return rc ? rc : ck_pkl_push(vm, v);
}

static int push_int(struct ck_pkl_vm *vm, int64_t i)
{
	struct ck_val *v = NULL;
	int rc = ck_pkl_int(vm, i, &v);

	return rc ? rc : ck_pkl_push(vm, v);
}

static int push_number(struct ck_pkl_vm *vm, unsigned width)
{
	uint64_t u = 0;
	int rc = number(vm, width, &u);

	/* BININT alone is signed. */
	return rc ? rc : push_int(vm, width == 4 ? (int32_t)(uint32_t)u : (int64_t)u);
}

static int push_long(struct ck_pkl_vm *vm, unsigned width)
{
	const uint8_t *p = NULL;
	struct ck_val *v = NULL;
	uint64_t n = 0;
	int rc = counted(vm, width, &p, &n);

	if (!rc)
		rc = ck_pkl_long(vm, p, n, &v);
	return rc ? rc : ck_pkl_push(vm, v);
}

static int push_float(struct ck_pkl_vm *vm)
{
	const uint8_t *p = NULL;
	struct ck_val *v = NULL;
	uint64_t u = 0;
	int rc = take_bytes(vm, 8, &p);

	if (!rc)
		rc = ck_pkl_node(vm, CK_VAL_FLOAT, &v);
	if (rc)
		return rc;
	for (int i = 0; i < 8; i++)
		u = u << 8 | p[i];
	memcpy(&v->u.f, &u, sizeof(u));
	return ck_pkl_push(vm, v);
}

/* ---- memo ---- */

static int memo_op(struct ck_pkl_vm *vm, bool put, unsigned width)
{
	uint64_t i = 0;
	int rc = width ? number(vm, width, &i) : ck_pkl_text_index(vm, &i);

	if (rc)
		return rc;
	return put ? ck_pkl_memoize(vm, i) : ck_pkl_recall(vm, i);
}

/* ---- containers ---- */

static bool is_hashable(const struct ck_val *v, unsigned depth)
{
	if (v->kind == CK_VAL_LIST || v->kind == CK_VAL_DICT || v->kind == CK_VAL_SET ||
	    v->kind == CK_VAL_BYTEARRAY)
		return false;
	if (v->kind != CK_VAL_TUPLE || !depth)
		return true;
	for (uint64_t i = 0; i < v->u.seq.n && i < 16; i++)
		if (!is_hashable(v->u.seq.item[i], depth - 1))
			return false;
	return true;
}

/* Keys and values into a dict or an object. */
static int set_items(struct ck_pkl_vm *vm, struct ck_val *d, struct ck_val *const *item,
		     uint64_t n)
{
	const int rc = ck_pkl_refuse_attr(vm, d, "changes");

	if (rc)
		return rc;
	if (n % 2)
		return ck_pkl_fail(vm, CKPT_E_CORRUPT, "a key has no value");
	for (uint64_t i = 0; i < n; i += 2)
		if (!is_hashable(item[i], 3))
			return ck_pkl_fail(vm, CKPT_E_CORRUPT, "the type of a value cannot be "
				"the key of a dict");
	if (d->kind == CK_VAL_DICT)
		return ck_pkl_extend(vm, d, &d->u.seq.item, &d->u.seq.n, &d->u.seq.cap, item, n);
	if (d->kind == CK_VAL_OBJECT)
		return ck_pkl_extend(vm, d, &d->u.obj->dict, &d->u.obj->ndict,
				     &d->u.obj->dict_cap, item, n);
	return ck_pkl_fail(vm, CKPT_E_CORRUPT, "SETITEMS is applied to something that is not a "
			   "dict");
}

/* Items into a list ('kind' CK_VAL_LIST) or set, or an object in its place. */
static int add_items(struct ck_pkl_vm *vm, struct ck_val *l, enum ck_val_kind kind,
		     struct ck_val *const *item, uint64_t n)
{
	const int rc = ck_pkl_refuse_attr(vm, l, "changes");

	if (rc)
		return rc;
	if (l->kind == kind)
		return ck_pkl_extend(vm, l, &l->u.seq.item, &l->u.seq.n, &l->u.seq.cap, item, n);
	if (l->kind == CK_VAL_OBJECT)
		return ck_pkl_extend(vm, l, &l->u.obj->list, &l->u.obj->nlist,
				     &l->u.obj->list_cap, item, n);
	return ck_pkl_fail(vm, CKPT_E_CORRUPT, "items are added to something that is not a %s",
			   kind == CK_VAL_LIST ? "list" : "set");
}

/* SETITEMS, APPENDS, ADDITEMS: what lies above the mark goes into what lies below it. */
static int marked_items(struct ck_pkl_vm *vm, uint8_t op)
{
	struct ck_val **item = NULL, **top = NULL;
	uint64_t n = 0;
	int rc = ck_pkl_take_mark(vm, &item, &n);

	if (!rc)
		rc = ck_pkl_need(vm, 1, &top);
	if (rc)
		return rc;
	if (op == OP_SETITEMS)
		return set_items(vm, top[0], item, n);
	return add_items(vm, top[0], op == OP_APPENDS ? CK_VAL_LIST : CK_VAL_SET, item, n);
}

static int one_item(struct ck_pkl_vm *vm, uint64_t n)
{
	struct ck_val **top = NULL;
	int rc = ck_pkl_need(vm, n + 1, &top);

	if (!rc)
		rc = n == 2 ? set_items(vm, top[0], top + 1, 2) :
			      add_items(vm, top[0], CK_VAL_LIST, top + 1, 1);
	if (!rc)
		vm->n -= n;
	return rc;
}

static int push_seq(struct ck_pkl_vm *vm, enum ck_val_kind kind, struct ck_val *const *item,
		    uint64_t n)
{
	struct ck_val *v = vm->empty_tuple;
	int rc = 0;

	if (kind != CK_VAL_TUPLE || n)
		rc = ck_pkl_seq(vm, kind, item, n, &v);
	return rc ? rc : ck_pkl_push(vm, v);
}

/* TUPLE, LIST, FROZENSET, DICT: of what lies above the mark. */
static int marked_seq(struct ck_pkl_vm *vm, enum ck_val_kind kind)
{
	struct ck_val **item = NULL;
	uint64_t n = 0;
	int rc = ck_pkl_take_mark(vm, &item, &n);

	if (!rc && kind == CK_VAL_DICT) {
		struct ck_val *v = NULL;

		rc = ck_pkl_seq(vm, kind, NULL, 0, &v);
		if (!rc)
			rc = set_items(vm, v, item, n);
		return rc ? rc : ck_pkl_push(vm, v);
	}
	return rc ? rc : push_seq(vm, kind, item, n);
}

static int small_tuple(struct ck_pkl_vm *vm, uint64_t n)
{
	struct ck_val **top = NULL;
	int rc = ck_pkl_need(vm, n, &top);

	if (rc)
		return rc;
	vm->n -= n;
	return push_seq(vm, CK_VAL_TUPLE, top, n);
}

/* ---- the rest ---- */

static int proto(struct ck_pkl_vm *vm)
{
	uint64_t v = 0;
	int rc = number(vm, 1, &v);

	if (rc)
		return rc;
	if (v > 5)
		return ck_pkl_fail(vm, CKPT_E_UNSUPPORTED,
				   "unsupported pickle protocol %" PRIu64 "; 5 is the highest", v);
	if (vm->op)
		vm->doc->notes |= CK_PKL_NOTE_PROTO;
	vm->doc->protocol = (uint8_t)ck_max_u64(vm->doc->protocol, v);
	return 0;
}

/* A frame is a hint for readers of streams; but one that lies is nothing a pickler wrote. */
static int frame(struct ck_pkl_vm *vm)
{
	uint64_t n = 0;
	int rc = number(vm, 8, &n);

	if (!rc && n > vm->cur.left)
		rc = ck_pkl_fail(vm, CKPT_E_TRUNCATED,
				 "a frame has %" PRIu64 " bytes, but only %" PRIu64 " are left",
				 n, vm->cur.left);
	if (!rc && vm->frame_end)
		rc = ck_pkl_fail(vm, CKPT_E_CORRUPT, "a frame begins inside another frame");
	if (!rc)
		vm->frame_end = vm->cur.off + n;
	return rc;
}

static int text_op(struct ck_pkl_vm *vm, uint8_t op)
{
	struct ck_val *v = NULL;
	int rc;

	switch (op) {
	case OP_FLOAT:
		rc = ck_pkl_text_float(vm, &v);
		break;
	case OP_STRING:
		rc = ck_pkl_text_string(vm, &v);
		break;
	case OP_UNICODE:
		rc = ck_pkl_text_unicode(vm, &v);
		break;
	default:
		rc = ck_pkl_text_int(vm, op == OP_LONG, &v);
	}
	return rc ? rc : ck_pkl_push(vm, v);
}

static int dup(struct ck_pkl_vm *vm)
{
	struct ck_val **top = NULL;
	int rc = ck_pkl_need(vm, 1, &top);

	return rc ? rc : ck_pkl_push(vm, top[0]);
}

static int pop_mark(struct ck_pkl_vm *vm)
{
	struct ck_val **item = NULL;
	uint64_t n = 0;

	vm->doc->notes |= CK_PKL_NOTE_POP;
	return ck_pkl_take_mark(vm, &item, &n);
}

static int step(struct ck_pkl_vm *vm, uint8_t op)
{
	switch (op) {
	case OP_BINPUT: return memo_op(vm, true, 1);
	case OP_BINGET: return memo_op(vm, false, 1);
	case OP_BININT1: return push_number(vm, 1);
	case OP_BININT2: return push_number(vm, 2);
	case OP_BININT: return push_number(vm, 4);
	case OP_BINUNICODE: return push_unicode(vm, 4);
	case OP_LONG_BINPUT: return memo_op(vm, true, 4);
	case OP_LONG_BINGET: return memo_op(vm, false, 4);
	case OP_MARK: return ck_pkl_push_mark(vm);
	case OP_REDUCE: return ck_pkl_call_op(vm, CK_HOW_REDUCE);
	case OP_TUPLE1: return small_tuple(vm, 1);
	case OP_TUPLE2: return small_tuple(vm, 2);
	case OP_TUPLE3: return small_tuple(vm, 3);
	case OP_TUPLE: return marked_seq(vm, CK_VAL_TUPLE);
	case OP_EMPTY_TUPLE: return ck_pkl_push(vm, vm->empty_tuple);
	case OP_EMPTY_DICT: return push_seq(vm, CK_VAL_DICT, NULL, 0);
	case OP_EMPTY_LIST: return push_seq(vm, CK_VAL_LIST, NULL, 0);
	case OP_EMPTY_SET: return push_seq(vm, CK_VAL_SET, NULL, 0);
	case OP_NEWFALSE: return ck_pkl_push(vm, vm->no);
	case OP_NEWTRUE: return ck_pkl_push(vm, vm->yes);
	case OP_NONE: return ck_pkl_push(vm, vm->none);
	case OP_BINPERSID: return ck_pkl_push_persid(vm, false);
	case OP_SETITEMS: return marked_items(vm, op);
	case OP_SETITEM: return one_item(vm, 2);
	case OP_GLOBAL: return ck_pkl_push_global(vm);
	case OP_BINFLOAT: return push_float(vm);
	case OP_BUILD: return ck_pkl_build(vm);
	case OP_NEWOBJ: return ck_pkl_call_op(vm, CK_HOW_NEWOBJ);
	case OP_APPENDS: return marked_items(vm, op);
	case OP_APPEND: return one_item(vm, 1);
	case OP_PROTO: return proto(vm);
	case OP_LONG1: return push_long(vm, 1);
	case OP_LONG4: return push_long(vm, 4);
	case OP_SHORT_BINUNICODE: return push_unicode(vm, 1);
	case OP_BINUNICODE8: return push_unicode(vm, 8);
	case OP_MEMOIZE: return ck_pkl_memoize(vm, vm->memo_next);
	case OP_STACK_GLOBAL: return ck_pkl_stack_global(vm);
	case OP_FRAME: return frame(vm);
	case OP_SHORT_BINBYTES: return push_bytes(vm, CK_VAL_BYTES, 1);
	case OP_BINBYTES: return push_bytes(vm, CK_VAL_BYTES, 4);
	case OP_BINBYTES8: return push_bytes(vm, CK_VAL_BYTES, 8);
	case OP_BYTEARRAY8: return push_bytes(vm, CK_VAL_BYTEARRAY, 8);
	case OP_ADDITEMS: return marked_items(vm, op);
	case OP_FROZENSET: return marked_seq(vm, CK_VAL_FROZENSET);
	case OP_NEWOBJ_EX: return ck_pkl_call_op(vm, CK_HOW_NEWOBJ_EX);
	case OP_SHORT_BINSTRING: return push_string2(vm, 1);
	case OP_BINSTRING: return push_string2(vm, 4);
	case OP_LIST: return marked_seq(vm, CK_VAL_LIST);
	case OP_DICT: return marked_seq(vm, CK_VAL_DICT);
	case OP_POP: return ck_pkl_pop(vm);
	case OP_POP_MARK: return pop_mark(vm);
	case OP_DUP: return dup(vm);
	case OP_GET: return memo_op(vm, false, 0);
	case OP_PUT: return memo_op(vm, true, 0);
	case OP_INST: return ck_pkl_inst(vm, false);
	case OP_OBJ: return ck_pkl_inst(vm, true);
	case OP_PERSID: return ck_pkl_push_persid(vm, true);
	case OP_INT:
	case OP_LONG:
	case OP_FLOAT:
	case OP_STRING:
	case OP_UNICODE:
		return text_op(vm, op);
	case OP_EXT1:
	case OP_EXT2:
	case OP_EXT4:
		return ck_pkl_fail(vm, CKPT_E_UNSUPPORTED, "the pickle uses a code of Python's "
				   "extension registry, which is not supported");
	case OP_NEXT_BUFFER:
	case OP_READONLY_BUFFER:
		return ck_pkl_fail(vm, CKPT_E_UNSUPPORTED, "the pickle uses a buffer outside of "
				   "it, which is not supported");
	default:
		return ck_pkl_fail(vm, CKPT_E_CORRUPT, "%#04x is not an opcode", op);
	}
}

static int stop(struct ck_pkl_vm *vm)
{
	struct ck_pkl *doc = vm->doc;
	struct ck_val **top = NULL;
	int rc = ck_pkl_need(vm, 1, &top);

	if (rc)
		return rc;
	doc->root = top[0];
	doc->used = vm->cur.off;
	if (vm->n > 1 || vm->nmarks)
		doc->notes |= CK_PKL_NOTE_LEFT;
	for (uint64_t i = 0; i < doc->nnames; i++) {
		struct ck_pkl_name *name = &doc->name[i];

		if (name->cls != CK_PKL_REFUSED || name->called)
			continue;
		if (name->nested) {	/* and in no other way */
			name->cls = name->unknown ? CK_PKL_OPAQUE : CK_PKL_DATA;
			name->called = true;
		} else {
			doc->notes |= CK_PKL_NOTE_MENTION;
		}
	}
	return 0;
}

static int run(struct ck_pkl_vm *vm)
{
	int rc;

	for (;;) {
		uint8_t op;

		vm->op = vm->cur.off;
		if (vm->op >= vm->frame_end)
			vm->frame_end = 0;
		if (!vm->cur.left)
			return ck_pkl_fail(vm, CKPT_E_TRUNCATED, "the pickle ends without STOP");
		op = *vm->cur.p++;
		vm->cur.left--;
		vm->cur.off++;
		if (!vm->doc->alien && !ck_pkl_torch_op(op)) {
			vm->doc->alien = true;
			vm->doc->alien_op = op;
		}
		if (op == OP_STOP)
			return stop(vm);
		rc = step(vm, op);
		if (rc)
			return rc;
		if (vm->frame_end && vm->cur.off > vm->frame_end)
			return ck_pkl_fail(vm, CKPT_E_CORRUPT, "a frame ends inside this opcode");
	}
}

/* The values of which one node serves all. */
static int constants(struct ck_pkl_vm *vm)
{
	int rc = ck_pkl_node(vm, CK_VAL_NONE, &vm->none);

	if (!rc)
		rc = ck_pkl_node(vm, CK_VAL_BOOL, &vm->yes);
	if (!rc)
		rc = ck_pkl_node(vm, CK_VAL_BOOL, &vm->no);
	if (!rc)
		rc = ck_pkl_seq(vm, CK_VAL_TUPLE, NULL, 0, &vm->empty_tuple);
	if (!rc)
		vm->yes->u.b = true;
	return rc;
}

int ck_pkl_load(struct ck_pkl *doc, const void *p, uint64_t n, const struct ckpt_limits *limits,
		unsigned flags, const char *where, struct ckpt_err *err)
{
	struct ck_pkl_vm vm = { .doc = doc, .limits = limits, .flags = flags, .where = where,
				.err = err };
	int rc;

	*doc = (struct ck_pkl)CK_PKL_INIT;
	if (n > limits->pickle_bytes)
		return ck_fail_limit(err, where, 0, "pickle_bytes", limits->pickle_bytes,
				     "the pickle has %" PRIu64 " bytes", n);
	doc->arena.limit = limits->memory_bytes;
	ck_cur_init(&vm.cur, p, n, where);
	rc = constants(&vm);
	if (!rc)
		rc = run(&vm);
	ck_map_release(&vm.names);
	ck_free(vm.stack);
	ck_free(vm.mark);
	ck_pkl_memo_free(&vm);
	ck_free(vm.depth);
	ck_free(vm.global);
	if (rc && !(flags & CK_PKL_KEEP))
		ck_pkl_release(doc);
	return rc;
}

void ck_pkl_release(struct ck_pkl *doc)
{
	ck_arena_release(&doc->arena);
	ck_free(doc->name);
	*doc = (struct ck_pkl)CK_PKL_INIT;
}
