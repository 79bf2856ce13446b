/*
 * ck_pkl_vm.h -- private to libckpt/pickle: the machine's state, and what its files lend
 * each other.  Every function returns 0 or -code and describes the failure in vm->err.
 */
#ifndef CK_PKL_VM_H
#define CK_PKL_VM_H

#include "libckpt/base/ck_cur.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/pickle/ck_pkl.h"

#define CK_PKL_NAME_MAX 4096u	/* bytes of module and name together */
#define CK_PKL_SMALL 256	/* integers of which one node each is kept */

/* A name with its number in doc->name. */
struct ck_pkl_global {
	struct ck_val v;
	uint64_t number;
};

/* An entry of the memo whose index is high for the stream; value NULL = free. */
struct ck_pkl_far {
	uint64_t index;
	struct ck_val *value;
};

struct ck_pkl_vm {
	struct ck_pkl *doc;
	const struct ckpt_limits *limits;
	unsigned flags;
	const char *where;
	struct ckpt_err *err;
	struct ck_cur cur;
	uint64_t op;		/* offset of the opcode at work */
	uint64_t frame_end;	/* offset, 0 = no frame */
	struct ck_val **stack;
	uint64_t n, stack_cap;
	uint64_t *mark;		/* heights of the stack */
	uint64_t nmarks, mark_cap;
	struct ck_val **memo;	/* NULL = unset */
	uint64_t memo_cap;
	struct ck_pkl_far *far;	/* entries of high index, by hash */
	uint64_t nfar, far_cap;
	uint64_t memo_next;	/* of MEMOIZE */
	uint32_t *depth;	/* nesting, by serial */
	uint64_t depth_cap;
	struct ck_map names;	/* "module\nname" -> number in 'global' */
	struct ck_pkl_global **global;
	uint64_t nglobals, global_cap;
	struct ck_val *none, *yes, *no, *empty_tuple;
	struct ck_val *small[CK_PKL_SMALL];
};

int ck_pkl_fail(struct ck_pkl_vm *vm, enum ckpt_code code, const char *fmt, ...)
	CK_PRINTF(3, 4);

/* ck_pkl_stack.c: stack and marks.  Nothing reaches below the newest mark. */
int ck_pkl_push(struct ck_pkl_vm *vm, struct ck_val *v);
/* Lend the top 'n' values. */
int ck_pkl_need(struct ck_pkl_vm *vm, uint64_t n, struct ck_val ***top_out);
/* What lies above the newest mark; the mark goes, the values stay for the caller. */
int ck_pkl_take_mark(struct ck_pkl_vm *vm, struct ck_val ***item_out, uint64_t *n_out);
int ck_pkl_push_mark(struct ck_pkl_vm *vm);
/* Drop the top value, or the mark that lies there; noted in doc->notes. */
int ck_pkl_pop(struct ck_pkl_vm *vm);

/* ck_pkl_memo.c */
/* Push entry 'i'; CORRUPT if it was never set. */
int ck_pkl_recall(struct ck_pkl_vm *vm, uint64_t i);
/* Entry 'i' is the top value; MEMOIZE numbers by the count of entries made so far. */
int ck_pkl_memoize(struct ck_pkl_vm *vm, uint64_t i);
void ck_pkl_memo_free(struct ck_pkl_vm *vm);

/* ck_pkl_call.c: opcodes. */
int ck_pkl_push_global(struct ck_pkl_vm *vm);
int ck_pkl_stack_global(struct ck_pkl_vm *vm);
int ck_pkl_call_op(struct ck_pkl_vm *vm, enum ck_val_how how);
int ck_pkl_inst(struct ck_pkl_vm *vm, bool class_on_stack);
int ck_pkl_build(struct ck_pkl_vm *vm);
int ck_pkl_push_persid(struct ck_pkl_vm *vm, bool text);
/* The entry of a name in doc->name; 'v' is CK_VAL_GLOBAL. */
struct ck_pkl_name *ck_pkl_name_of(struct ck_pkl_vm *vm, const struct ck_val *v);

/* ck_pkl_value.c */
int ck_pkl_node(struct ck_pkl_vm *vm, enum ck_val_kind kind, struct ck_val **out);
/* The same with room behind the node: 'bytes' in all. */
int ck_pkl_node_sized(struct ck_pkl_vm *vm, enum ck_val_kind kind, uint64_t bytes,
		      struct ck_val **out);
int ck_pkl_int(struct ck_pkl_vm *vm, int64_t i, struct ck_val **out);
/* 'n' bytes, little endian, two's complement; n = 0 is 0. */
int ck_pkl_long(struct ck_pkl_vm *vm, const uint8_t *p, uint64_t n, struct ck_val **out);
/* STR, BYTES, BYTEARRAY or BIGINT with a copy of the bytes (NULL: room for them). */
int ck_pkl_str(struct ck_pkl_vm *vm, enum ck_val_kind kind, const void *p, uint64_t n,
	       struct ck_val **out);
/* A string of Python 2: UTF-8, or else Latin-1. */
int ck_pkl_str2(struct ck_pkl_vm *vm, const uint8_t *p, uint64_t n, struct ck_val **out);
/* A container of the 'n' items; its depth is checked. */
int ck_pkl_seq(struct ck_pkl_vm *vm, enum ck_val_kind kind, struct ck_val *const *item,
	       uint64_t n, struct ck_val **out);
/* Items behind those of 'owner' (a list, set, dict or object), array '*arr'. */
int ck_pkl_extend(struct ck_pkl_vm *vm, struct ck_val *owner, struct ck_val ***arr,
		  uint64_t *n, uint64_t *cap, struct ck_val *const *item, uint64_t more);
/* 'owner' now holds 'item': one level deeper at least. */
int ck_pkl_deepen(struct ck_pkl_vm *vm, struct ck_val *owner, const struct ck_val *item);
/*
 * The value of a call of 'fn' with the tuple 'args': a plain value where fn is one of
 * Python's own types with literal arguments, else an object.
 */
int ck_pkl_call(struct ck_pkl_vm *vm, struct ck_val *fn, struct ck_val *args,
		struct ck_val *kwargs, enum ck_val_how how, struct ck_val **out);

/* ck_pkl_text.c: values written as text, and UTF-8. */
bool ck_pkl_is_utf8(const uint8_t *p, uint64_t n, bool *surrogates_out);
int ck_pkl_line(struct ck_pkl_vm *vm, const uint8_t **p_out, uint64_t *n_out);
int ck_pkl_text_int(struct ck_pkl_vm *vm, bool is_long, struct ck_val **out);
int ck_pkl_text_float(struct ck_pkl_vm *vm, struct ck_val **out);
int ck_pkl_text_string(struct ck_pkl_vm *vm, struct ck_val **out);
int ck_pkl_text_unicode(struct ck_pkl_vm *vm, struct ck_val **out);
int ck_pkl_text_index(struct ck_pkl_vm *vm, uint64_t *out);

/* ck_pkl_names.c */
/*
 * Map Python 2's spelling to Python 3's and a known name that is cut at another dot to
 * its usual cut; true in the latter case.  'buf' has room for both strings; the results
 * are in it or are constants.
 */
bool ck_pkl_name_normal(const char **module, const char **name, char *buf, size_t size);

#endif
