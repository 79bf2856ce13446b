/*
 * Runs that torch and DeepSpeed made, as the fixtures recorded them (tests/fixtures/model.md), and
 * how far another run of the same may be from them.
 */
#ifndef TE_RECORDED_H
#define TE_RECORDED_H

#include <cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/model/en_model.h"

#define TE_TOKENS 33u	/* of a row of the samples */
#define TE_STEPS 20	/* of each run */

/* Opens train/data.safetensors for te_samples(); ends the program (77) without fixtures. */
void te_recorded_begin(void);
void te_recorded_end(void);
/* A tensor of it, or the program ends. */
const int32_t *te_samples(const char *name);

/* Of an object; NAN, and "", where there is none. */
double te_number(const cJSON *o, const char *name);
const char *te_text(const cJSON *o, const char *name);

struct te_recorded {
	const char *model, *name;
	const cJSON *run, *hyper;
};

/*
 * Calls 'one' for the runs of a model, numbered from 0, but for those whose rope frequencies were
 * rounded to bf16.  There must be 'want' of them.
 */
void te_recorded_each(const char *model, unsigned want,
		      void (*one)(const struct te_recorded *r, unsigned n, void *arg), void *arg);

struct te_deviation {
	double loss, norm;	/* the worst of all steps: absolute; relative */
	double l2, l2_k_bias;	/* of the final weights' norms, relative */
};

/* The larger one, and a NAN where there is one. */
double te_most(double a, double b);
/* The final weights 'w' of a parameter. */
void te_deviation_of(struct te_deviation *d, const struct te_recorded *r, const struct en_param *p,
		     const float *w);
/* Fails the test where it is beyond the limits of the fixtures. */
void te_deviation_check(const struct te_deviation *d, bool fp32);

#endif
