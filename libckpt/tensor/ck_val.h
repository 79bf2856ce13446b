/*
 * ck_val.h -- the value tree: everything of a checkpoint that is not tensor data,
 * without loss.
 *
 * A tree is what a pickle (or another value format) says: integers of any size,
 * floats as 64 bits, strings and bytes with their length, containers in their
 * order, names of classes and functions, and *objects*: calls that were written down
 * and are never made.  The same node may hang in several places (a shared
 * reference) and a container may, through an object, contain itself: walkers bound
 * their depth.
 *
 * Nodes live in an arena of their owner.  Strings are UTF-8 as the file had them
 * and may contain NUL; they have a NUL behind their end as well.
 */
#ifndef CK_VAL_H
#define CK_VAL_H

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_mem.h"

enum ck_val_kind {
	CK_VAL_NONE = 1,
	CK_VAL_BOOL,
	CK_VAL_INT,		/* fits 64 bits */
	CK_VAL_BIGINT,		/* two's complement, little endian, in str */
	CK_VAL_FLOAT,
	CK_VAL_STR,
	CK_VAL_BYTES,
	CK_VAL_BYTEARRAY,
	CK_VAL_TUPLE,
	CK_VAL_LIST,
	CK_VAL_DICT,		/* seq: key, value, key, value, ... */
	CK_VAL_SET,
	CK_VAL_FROZENSET,
	CK_VAL_GLOBAL,		/* a name: module and qualified name */
	CK_VAL_OBJECT,		/* a call that was written down */
	CK_VAL_PERSID,		/* a persistent id, in 'pid' */
};

/* How an object was written. */
enum ck_val_how {
	CK_HOW_REDUCE = 1,	/* fn(*args) */
	CK_HOW_NEWOBJ,		/* cls.__new__(cls, *args) */
	CK_HOW_NEWOBJ_EX,	/* the same with keyword arguments */
	CK_HOW_INST,		/* INST and OBJ of protocol 0 and 1 */
};

struct ck_val;
struct ck_tensor_ref;

struct ck_obj {
	struct ck_val *fn;	/* usually CK_VAL_GLOBAL */
	struct ck_val *args;	/* CK_VAL_TUPLE (or what the file gave) */
	struct ck_val *kwargs;	/* CK_VAL_DICT, or NULL */
	struct ck_val *state;	/* of BUILD, or NULL */
	struct ck_val **list;	/* APPENDS on the object */
	uint64_t nlist, list_cap;
	struct ck_val **dict;	/* SETITEMS on the object: key, value, ... */
	uint64_t ndict, dict_cap;	/* nodes, twice the pairs */
	struct ck_tensor_ref *tensor;	/* what torch makes of it; set by formats/torch_pt */
	uint8_t how;		/* enum ck_val_how */
};

struct ck_val {
	uint8_t kind;		/* enum ck_val_kind */
	uint8_t mark;		/* free for a walker; 0 between walks */
	uint32_t serial;	/* numbers the nodes of a tree from 1 */
	union {
		bool b;
		int64_t i;
		double f;
		struct {
			const char *p;
			uint64_t len;
		} str;
		struct {
			struct ck_val **item;
			uint64_t n, cap;	/* nodes: a dict has n / 2 pairs */
		} seq;
		struct {
			const char *module, *name;
		} global;
		struct ck_obj *obj;
		struct ck_val *pid;
	} u;
};

/*
 * Tensor that a node of kind CK_VAL_OBJECT stands for.  Offsets, sizes and strides are in
 * elements of 'dtype'.  'storage' numbers the storages of the owner.
 */
struct ck_tensor_ref {
	uint32_t storage;
	uint8_t dtype;		/* enum ckpt_dtype */
	bool conj, neg;		/* lazy, still to be applied */
	bool requires_grad;
	bool parameter;		/* wrapped in nn.Parameter */
	bool args_only;		/* written as the arguments of its call alone */
	uint32_t ndim;
	const uint64_t *shape;	/* ndim */
	const uint64_t *stride;	/* ndim */
	uint64_t offset;
	uint64_t numel;		/* product of shape, checked */
};

/* ---- looking at values.  All take NULL and answer "no". ---- */

bool ck_val_is_str(const struct ck_val *v, const char *s);
/* The string if it is one without NUL inside, else NULL. */
const char *ck_val_str(const struct ck_val *v);
/* Integers, bools, floats that are whole; false otherwise. */
bool ck_val_int(const struct ck_val *v, int64_t *out);
/* Integers, bools and floats. */
bool ck_val_num(const struct ck_val *v, double *out);
bool ck_val_is_none(const struct ck_val *v);

/*
 * Items of a list, tuple, or an object that is one of those in disguise (torch.Size, a
 * subclass of list).  False if 'v' is none of these.
 */
bool ck_val_seq(const struct ck_val *v, struct ck_val *const **item_out, uint64_t *n_out);
/* Pairs of a dict, OrderedDict, defaultdict or Counter: 2n nodes. */
bool ck_val_pairs(const struct ck_val *v, struct ck_val *const **item_out, uint64_t *npairs_out);
/* Value of the last pair with that string key; NULL if there is none. */
struct ck_val *ck_val_get(const struct ck_val *v, const char *key);
struct ck_val *ck_val_get_int(const struct ck_val *v, int64_t key);
/* Item i of a sequence, or NULL. */
struct ck_val *ck_val_at(const struct ck_val *v, uint64_t i);
/* True for the name "module.name"; Python 2 names ("__builtin__") are mapped already. */
bool ck_val_is_global(const struct ck_val *v, const char *module, const char *name);
/* True for an object whose fn is that name. */
bool ck_val_is_call(const struct ck_val *v, const char *module, const char *name);
/* The tensor a node stands for, or NULL. */
const struct ck_tensor_ref *ck_val_tensor(const struct ck_val *v);

/*
 * Value equality over trees, without regard to sharing, depth at most 'depth'.
 * Tensors compare by dtype and shape only.  After 50 million nodes the answer is false.
 */
bool ck_val_equal(const struct ck_val *a, const struct ck_val *b, uint32_t depth);

#endif
