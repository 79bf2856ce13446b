/* The whole model in double, made of the laws of kn_ref_train.h: the reference for any shape. */
#ifndef TE_LAW_H
#define TE_LAW_H

#include "tests/engine/te_model.h"

/*
 * Sum of the token losses, and the gradient of factor * sum into 'grad': a double for each element
 * of each block.  'weight' is fp32.
 */
double te_law(const struct en_model *model, const struct te_buffers *weight,
	      const struct en_batch *batch, double factor, struct te_buffers *grad);

#endif
