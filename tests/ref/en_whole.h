/* The blocks of a model one after the other, in one process: what engine/zero is compared with. */
#ifndef EN_WHOLE_H
#define EN_WHOLE_H

#include "engine/model/en_exec.h"

struct en_whole;

/* Memory for the activations of 'exec's largest batch.  CKPT_E_NOMEM. */
int en_whole_new(struct en_exec *exec, unsigned flags, struct en_whole **whole_out,
		 struct ckpt_err *err);
void en_whole_free(struct en_whole *whole);

/*
 * One process, one micro-batch: params[b] and grads[b] are the buffers of block b; 'grads' NULL for
 * the loss alone.  Gradients are of factor * (sum of token losses); 'flags' EN_ADD or 0.
 * 'logits', 'token_loss' may be NULL.
 */
void en_whole_run(struct en_whole *whole, const struct en_batch *batch,
		  const void *const *params, float *const *grads, float factor, unsigned flags,
		  float *token_loss, float *logits, struct en_loss *loss);

#endif
