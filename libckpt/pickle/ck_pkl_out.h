/*
 * ck_pkl_out.h -- private to the writing side of libckpt/pickle: a pickle in the making.
 */
#ifndef CK_PKL_OUT_H
#define CK_PKL_OUT_H

#include "libckpt/base/ck_map.h"
#include "libckpt/pickle/ck_pkl_emit.h"

/* A node and its number in the memo, by address. */
struct seen {
	const struct ck_val *v;	/* NULL = free */
	uint32_t memo;
};

struct ck_pkl_out {
	struct ck_buf buf;
	const struct ckpt_limits *limits;
	ck_pkl_special *special;
	void *arg;
	struct ckpt_err *err;
	struct seen *seen;
	uint64_t nseen, nslots;		/* nslots: a power of two, or 0 */
	struct ck_map names;		/* "module\nname", and "\ntext" -> memo */
	struct ck_arena keys;
	uint64_t memo;			/* numbers given */
	uint32_t depth, depth_most;
};

int ck_pkl_out_put(struct ck_pkl_out *out, const void *p, size_t n);
/* An opcode and a little-endian number of 'width' bytes. */
int ck_pkl_out_number(struct ck_pkl_out *out, uint8_t op, unsigned width, uint64_t v);
int ck_pkl_out_bigint(struct ck_pkl_out *out, const struct ck_val *v);
int ck_pkl_out_float(struct ck_pkl_out *out, double f);
/* A string, not yet numbered. */
int ck_pkl_out_str(struct ck_pkl_out *out, const char *p, uint64_t n);
int ck_pkl_out_too_long(struct ck_pkl_out *out, uint64_t n);

/* builtins.getattr, for the calls of ck_pkl_is_attr(): in no other use it is written. */
int ck_pkl_out_getattr(struct ck_pkl_out *out);

/* The number a node has; false if it has none yet. */
bool ck_pkl_memo_find(const struct ck_pkl_out *out, const struct ck_val *v, uint32_t *memo_out);
/* The next number to the node, which is complete on the stack. */
int ck_pkl_memo_put(struct ck_pkl_out *out, const struct ck_val *v);
/* A reference to what has that number. */
int ck_pkl_memo_get(struct ck_pkl_out *out, uint32_t i);

#endif
