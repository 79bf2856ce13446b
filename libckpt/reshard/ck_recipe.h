/*
 * ck_recipe.h -- what a run is to begin with, for `shard`: hyper-parameters, precision and layout,
 * from the caller's options and a DeepSpeed configuration.
 *
 * DeepSpeed takes learning rate, betas, eps and weight decay from the checkpoint that it resumes,
 * not from its configuration, so what is written here is what the run has.
 */
#ifndef CK_RECIPE_H
#define CK_RECIPE_H

#include "libckpt/format/ck_format.h"
#include "libckpt/run/ck_ckpt.h"

/*
 * Fill of '*out' what does not depend on the tensors (all but group, ngroups, limits).  'stored' is
 * the type of the weights.  Values are in 'arena'.
 *	CKPT_E_USAGE        there is no learning rate, no stage
 *	CKPT_E_UNSUPPORTED  an optimizer that is no Adam; a type that DeepSpeed does not train
 *	codes of reading the configuration
 */
int ck_recipe_make(const struct ckpt_shard_opts *opts, const struct ckpt_limits *limits,
		   enum ckpt_dtype stored, struct ck_arena *arena, struct ck_shard_want *out,
		   double *weight_decay_out, struct ckpt_err *err);

#endif
