/* en_adam.h -- the optimizer on a run of a block's elements, by all threads of a pool. */
#ifndef EN_ADAM_H
#define EN_ADAM_H

#include "engine/model/en_pool.h"
#include "engine/zero/en_zero.h"

struct en_adam {
	const struct en_zero *z;
	const struct en_zero_hyper *hyper;	/* by group */
	uint64_t k;		/* number of the update, from 1 */
	float grad_scale;
	/* Elements [base, base + n) of a block; everything below begins at 'base'. */
	uint32_t block;
	uint64_t base, n;
	float *master, *m, *v;
	const void *grad;
	enum kn_type grad_type;
	void *copy;		/* of the new masters, of the type that is computed with; or NULL */
};

/* Each element by the rates of its parameter's group; what is no parameter's stays. */
void en_adam_run(const struct en_adam *a, struct en_pool *pool);
/* The copy alone, of masters that were set: all n elements. */
void en_adam_copy(const struct en_adam *a, struct en_pool *pool);

#endif
