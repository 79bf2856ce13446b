/*
 * ck_lora.h -- W + s B A while W is copied: a ck_change of states of the base.
 *
 * Each element is w + s * (the sum over k of l[row][k] * r[k][column]), in f64 and in the order of
 * k, and is rounded to the wanted type once.  So the bytes do not follow from threads, windows or
 * parts.  The right factor of a tensor is kept in memory as f32 while threads work on that tensor;
 * of the left one the rows that a call needs are read.
 */
#ifndef CK_LORA_H
#define CK_LORA_H

#include "libckpt/run/ck_change.h"

/* What becomes of a state of the base.  States are those of the adapter. */
struct ck_lora_part {
	uint32_t base;		/* state of the base */
	uint32_t left, right;	/* B and A; CK_NONE: 'instead' takes its place */
	uint32_t instead;
	/* W is A^T B^T: rows x r of A read down, r x columns of B read down. */
	bool flipped;
	uint64_t rows, cols, r;
	double scale;
};

struct ck_lora;

/*
 * 'part' is copied; no two have one base, all of which are below 'nstates'.  'cache_bytes' bounds
 * the right factors that are in memory at once, but for one.  'adapter' outlives it.
 */
int ck_lora_new(const struct ck_index *adapter, const struct ckpt_limits *limits,
		const struct ck_lora_part *part, uint64_t n, uint64_t nstates,
		uint64_t cache_bytes, struct ck_lora **out, struct ckpt_err *err);
/* Lent: it is valid until ck_lora_free(). */
const struct ck_change *ck_lora_change(const struct ck_lora *lora);
void ck_lora_free(struct ck_lora *lora);

#endif
