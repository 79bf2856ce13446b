/* en_adam.h -- the optimizer on a part of a block's elements; and as the host does it. */
#ifndef EN_ADAM_H
#define EN_ADAM_H

#include "engine/zero/en_zero.h"

struct en_adam {
	struct en_zero *z;
	const struct en_zero_hyper *hyper;	/* by group; NULL: the copy alone is made */
	uint64_t k;		/* number of the update, from 1 */
	float grad_scale;
	/* Elements [base, base + n) of a block; everything below begins at 'base'. */
	uint32_t block;
	uint64_t base, n;
	float *master, *exp_avg, *exp_avg_sq;
	const void *grad;
	enum kn_type grad_type;
	void *copy;		/* of the new masters, of the type that is computed with; or NULL */
};

/* As adam() and cast() of a backend, by all threads of a->z->pool; they cannot fail. */
int en_adam_host(struct en_adam *a, uint32_t group, uint64_t from, uint64_t to,
		 struct ckpt_err *err);
int en_adam_host_cast(struct en_adam *a, struct ckpt_err *err);

#endif
