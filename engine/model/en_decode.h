/*
 * en_decode.h -- one token after the other: the forward pass of what is new, with keys and values
 * of what was there kept.
 *
 * The numbers are those of en_exec.h, rounded in the same places; sums of matrix products run in
 * another order where fewer rows are worked on at once, so logits agree with those of the whole
 * forward pass as two orders of summation do, not to the bit.  They depend on how tokens were
 * given (one by one or several), not on the number of threads.
 *
 * Memory: taken by en_decode_new(): 2 * layers * kv_heads * head_dim floats a position, and what
 * EN_DECODE_ROWS positions need.  Calls cannot fail but for what their comments say.
 */
#ifndef EN_DECODE_H
#define EN_DECODE_H

#include "engine/model/en_exec.h"

/* Positions that are worked on at once. */
#define EN_DECODE_ROWS 64u

struct en_decode_opts {
	uint32_t tokens;	/* room: the prompt and all that follows */
	enum kn_type type;	/* KN_F32, KN_BF16, KN_F16: of the parameters, and to compute in */
	uint32_t threads;	/* 1 to 256 */
};

struct en_decode;

/*
 * 'params' has the flat buffer of each block, in 'type'; it and the model outlive '*out'.
 * CKPT_E_USAGE, CKPT_E_NOMEM, CKPT_E_IO (no thread).
 */
int en_decode_new(const struct en_model *model, const struct en_decode_opts *opts,
		  const void *const *params, struct en_decode **out, struct ckpt_err *err);
/* NULL is fine. */
void en_decode_free(struct en_decode *d);

/*
 * 'n' further tokens.  'logits' [vocab] is what comes after the last of them, lent until the next
 * call.  CKPT_E_LIMIT: more than there is room for; CKPT_E_MISMATCH: one outside the vocabulary;
 * nothing was taken then.
 */
int en_decode_feed(struct en_decode *d, const int32_t *ids, uint32_t n, const float **logits_out,
		   struct ckpt_err *err);
/* Tokens so far. */
uint32_t en_decode_at(const struct en_decode *d);
/* Back to after the first 'n' tokens. */
void en_decode_back(struct en_decode *d, uint32_t n);

#endif
