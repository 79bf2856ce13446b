/*
 * ck_pkl_emit.h -- a value tree out, as a pickle of protocol 2.
 *
 * The bytes are those that CPython's pickler writes for the same objects (docs/formats/pickle.md,
 * "Written"): a pickle of torch.save that was read and not changed comes out as it was.
 * The same tree gives the same bytes.  Nodes that hang in several places are written once
 * and referred to, and containers may contain themselves.
 */
#ifndef CK_PKL_EMIT_H
#define CK_PKL_EMIT_H

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_buf.h"
#include "libckpt/tensor/ck_val.h"

struct ck_pkl_out;

/*
 * Asked for every persistent id and every object that is a tensor, before it is written.  0: it has
 * written what makes the value, with the functions below; 1: to be written as it stands; -code.
 */
typedef int ck_pkl_special(void *arg, const struct ck_val *v, struct ck_pkl_out *out);

/*
 * 'special' may be NULL.  New memory in '*bytes_out' (ck_free).
 *	CKPT_E_UNSAFE       a name of the refused set
 *	CKPT_E_UNSUPPORTED  what protocol 2 cannot say: a name within a class, 4 GiB of text
 *	CKPT_E_LIMIT        deeper than twice limits->pickle_depth, more bytes than pickle_bytes
 *	CKPT_E_NOMEM, and what 'special' returns
 */
int ck_pkl_emit(const struct ck_val *root, const struct ckpt_limits *limits,
		ck_pkl_special *special, void *arg, char **bytes_out, uint64_t *n_out,
		struct ckpt_err *err);

/* ---- for 'special': pieces of a pickle, onto the stack ---- */

#define CK_PKL_OUT_MARK '('
#define CK_PKL_OUT_TUPLE 't'
#define CK_PKL_OUT_REDUCE 'R'
#define CK_PKL_OUT_PERSID 'Q'

struct ckpt_err *ck_pkl_out_err(struct ck_pkl_out *out);
int ck_pkl_out_op(struct ck_pkl_out *out, uint8_t op);
int ck_pkl_out_int(struct ck_pkl_out *out, int64_t i);
int ck_pkl_out_bool(struct ck_pkl_out *out, bool b);
/* A tuple of whole numbers, always a new one. */
int ck_pkl_out_counts(struct ck_pkl_out *out, const uint64_t *count, uint32_t n);
/* A name, in Python 3's spelling; a text of the writer's own.  Equal ones are written once. */
int ck_pkl_out_global(struct ck_pkl_out *out, const char *module, const char *name);
int ck_pkl_out_text(struct ck_pkl_out *out, const char *s);
/* Number what was just made, which is never referred to again. */
int ck_pkl_out_memo(struct ck_pkl_out *out);

#endif
