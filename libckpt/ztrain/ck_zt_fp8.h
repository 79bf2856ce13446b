/*
 * ck_zt_fp8.h -- what ztrain's products of 8 bits hold on a GPU, besides what it holds without
 * them: the engine takes these sizes, ckpt_estimate() prints their sum.
 */
#ifndef CK_ZT_FP8_H
#define CK_ZT_FP8_H

#include <stdbool.h>
#include <stdint.h>

#define CK_ZT_FP8_MATRICES 6u	/* of a layer: those that share an input may be one */
#define CK_ZT_FP8_INPUTS 4u
#define CK_ZT_FP8_SCALE 16u	/* bytes of a scale */

struct ck_zt_fp8_setup {
	/* Rows and columns; 'out' 0: part of another one, or left to 16 bits. */
	struct { uint64_t out, in; } matrix[CK_ZT_FP8_MATRICES];
	uint64_t n;		/* rows x tokens of a micro-batch */
	uint64_t layers;
	bool wgrad;		/* gradients of matrices too */
	bool stays;		/* copies of all matrices, both ways, for a step */
};

/* Bytes. */
struct ck_zt_fp8 {
	uint64_t a;		/* an input, or a gradient */
	uint64_t bt, ct;	/* both transposed, for gradients of matrices */
	uint64_t w;		/* one matrix, or all of them */
	uint64_t scale, wscale;	/* of inputs and gradients; of matrices */
	uint64_t all;
};

void ck_zt_fp8(const struct ck_zt_fp8_setup *setup, struct ck_zt_fp8 *out);

#endif
