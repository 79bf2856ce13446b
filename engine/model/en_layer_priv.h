/* en_layer_priv.h -- what a layer's two directions share. */
#ifndef EN_LAYER_PRIV_H
#define EN_LAYER_PRIV_H

#include "engine/model/en_exec_priv.h"

/* The slots of a layer's fp32 parameters. */
void en_layer_at(const struct en_exec *exec, const float *params, struct en_layer_const *out);

/* Turns the heads of rows first..first+count of the batch; q and k begin at row 'first'. */
void en_layer_rope(const struct en_exec *exec, const struct en_batch *batch, float *q, float *k,
		   size_t first, size_t count, float sign);

/* The shape of attention for rows of 'tokens'. */
struct kn_attn en_layer_attn(const struct en_exec *exec, size_t tokens);

#endif
