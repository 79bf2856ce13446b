/*
 * en_sample.h -- the next token from logits: the likeliest, or drawn.  Pure: what comes out depends
 * on the arguments alone.
 */
#ifndef EN_SAMPLE_H
#define EN_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

struct en_sample_how {
	double temperature;	/* divides logits; 0: the likeliest, the first of equals */
	uint32_t top_k;		/* of the likeliest so many; 0 = all */
	double top_p;		/* of the fewest that reach this probability together; 1 = all */
	uint64_t seed;
};

/* What a draw works with: 'n' entries. */
struct en_sample_entry {
	double p;
	int32_t id;
};

/*
 * A token of 'n' logits (at least one).  top_k comes first, then top_p of what it left, as in
 * transformers.  'draw' numbers the draw within a run: it takes random number 'draw' of stream 0 of
 * the seed.  'work' has room for n entries.  '*logprob_out': of the token among all, at
 * temperature 1.  A logit that is NaN is never taken unless all are.
 */
int32_t en_sample(const struct en_sample_how *how, const float *logits, uint32_t n, uint64_t draw,
		  struct en_sample_entry *work, double *logprob_out);

#endif
