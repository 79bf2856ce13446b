/*
 * en_fingerprint.h -- the settings that decide the bits of a run, besides its data and rates, and
 * whether two runs agree in them.
 *
 * Gradients of the micro-batches of a step (docs/ztrain/collectives.md) are summed as one binary
 * tree in natural order where the number of ranks is a power of two; then neither ranks, stage,
 * threads nor recomputation change a bit, as long as ranks x accumulation, the rows and the tokens
 * of a micro-batch, the precision and the rule of the optimizer stay.  On GPUs that is so with
 * --reduction tree; else the same run has other bits within rounding.
 */
#ifndef EN_FINGERPRINT_H
#define EN_FINGERPRINT_H

#include <stdbool.h>
#include <stdint.h>

#include <ckpt_value.h>

#include "libckpt/base/ck_buf.h"

struct en_fingerprint {
	uint32_t world;
	uint64_t accumulation, rows, tokens;	/* of a micro-batch */
	int64_t precision;			/* enum en_precision */
	int64_t wire;		/* enum kn_type that gradients are sent in */
	int64_t rule;		/* enum kn_adam_rule */
	bool token_mean, cuda;
	bool tree;		/* of GPUs: EN_CUDA_SUM_TREE; on CPU ranks it is always so */
	bool as_deepspeed;	/* fp16: see struct en_zero_opts */
	bool local;		/* with it: stages 0 and 1, whose ranks sum their own ones first */
};

/* Its key among the client's values, as JSON text. */
#define EN_FINGERPRINT_KEY "ztrain_bits"

/* Adds "ztrain_bits": "..." to an object. */
int en_fingerprint_add(const struct en_fingerprint *r, struct ck_buf *buf, struct ckpt_err *err);
/* True if the step was saved by this engine and says it. */
bool en_fingerprint_read(struct en_fingerprint *r, struct ckpt_values *values);

#define EN_FINGERPRINT_TEXT 400
/*
 * Whether a run by 'now' resumed from one by 'before' (NULL = it begins) has the bits of the
 * one that never stopped, or, beginning, those of a run by one rank; and the sentence about it.
 */
bool en_fingerprint_same_bits(const struct en_fingerprint *now, const struct en_fingerprint *before,
			      char text[EN_FINGERPRINT_TEXT]);

#endif
