/*
 * ck_pkl.h -- pickles, protocols 0 to 5: bytes in, a value tree out.
 *
 * The machine is closed.  It builds data, and writes down what the pickle would
 * call as objects (module, name, arguments, state); it never calls anything and knows
 * neither archives nor torch.  Names fall into three sets (docs/formats/pickle.md):
 *
 *   data      builds values or is understood by a layer above
 *   refused   modules and functions that no checkpoint needs and an attacker does (os,
 *             subprocess, eval, ...): calling or building one ends with CKPT_E_UNSAFE
 *   opaque    everything else: kept by name, never in the way of the tensors
 */
#ifndef CK_PKL_H
#define CK_PKL_H

#include "libckpt/base/ck_base.h"
#include "libckpt/tensor/ck_val.h"

enum ck_pkl_class {
	CK_PKL_DATA = 1,
	CK_PKL_OPAQUE,
	CK_PKL_REFUSED,
};

/* A name the pickle mentions, once each, in order of first mention. */
struct ck_pkl_name {
	const char *module, *name;	/* Python 2 spellings mapped to Python 3's */
	enum ck_pkl_class cls;
	bool called;			/* by REDUCE, NEWOBJ, INST, OBJ or BUILD */
	bool nested;			/* getattr that fetched an attribute of a class, */
	bool unknown;			/* of one that is no data: not ProcessGroupState alone */
	bool attribute;			/* what it fetched: the pickle names its class only */
	uint64_t offset;		/* byte of the first mention */
};

struct ck_pkl {
	struct ck_arena arena;
	struct ck_val *root;
	struct ck_pkl_name *name;
	uint64_t nnames, name_cap;
	uint64_t used;		/* bytes of the input up to and with STOP */
	uint32_t nodes;		/* values made */
	uint8_t protocol;	/* highest PROTO met, 0 if none */
	uint16_t notes;		/* CK_PKL_NOTE_* */
	bool alien;		/* an opcode that torch's weights_only reader does not take: */
	uint8_t alien_op;	/* the first */
};

/* What was let pass, in ck_pkl.notes. */
#define CK_PKL_NOTE_PROTO 1u	/* PROTO twice, or not at the beginning */
#define CK_PKL_NOTE_LEFT 2u	/* more than one value was left at STOP */
#define CK_PKL_NOTE_POP 4u	/* a value was made and thrown away */
#define CK_PKL_NOTE_INST 8u	/* INST or OBJ: objects of Python 2 classes */
#define CK_PKL_NOTE_LATIN1 16u	/* a Python 2 string that is not UTF-8, read as Latin-1 */
#define CK_PKL_NOTE_SPLIT 32u	/* a known name cut into module and name at another dot */
#define CK_PKL_NOTE_MENTION 64u	/* a refused name is mentioned, but not called */

#define CK_PKL_INIT { .root = NULL }

#define CK_PKL_AUDIT 1u		/* write refused calls down instead of stopping */
#define CK_PKL_KEEP 2u		/* on failure 'doc' keeps the names met; ck_pkl_release() it */

/*
 * Run the pickle at p[0..n).  Bytes after STOP are not looked at: doc->used says where
 * it ended.  'where' names the input in messages and is lent for the call.
 * CKPT_E_TRUNCATED, CKPT_E_CORRUPT (an opcode or stack that makes no sense), CKPT_E_UNSUPPORTED
 * (extension registry, out-of-band buffers), CKPT_E_LIMIT, CKPT_E_UNSAFE, CKPT_E_NOMEM; the error's
 * offset is the byte of the opcode.  On failure 'doc' is empty, but for CK_PKL_KEEP.
 */
int ck_pkl_load(struct ck_pkl *doc, const void *p, uint64_t n, const struct ckpt_limits *limits,
		unsigned flags, const char *where, struct ckpt_err *err);
void ck_pkl_release(struct ck_pkl *doc);

/* Which set a name belongs to. */
enum ck_pkl_class ck_pkl_class_of(const char *module, const char *name);

#endif
