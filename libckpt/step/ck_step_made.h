/*
 * ck_step_made.h -- a step of a form that is not DeepSpeed's: what DeepSpeed's files need besides
 * is made of the index.  'a' is the step's arena.
 */
#ifndef CK_STEP_MADE_H
#define CK_STEP_MADE_H

#include "libckpt/step/ck_step.h"
#include "libckpt/tensor/ck_index.h"

/* DeepSpeed calls its steps so; the folder's own name if it has no count.  NULL without memory. */
const char *ck_step_made_tag(const struct ck_index *ix, struct ck_arena *a);
/* Names of the states that trained parameters have. */
int ck_step_made_states(const struct ck_index *ix, struct ck_arena *a, struct ck_step *step,
			struct ckpt_err *err);
/*
 * The model's tree: names, buffers, frozen parameters and counts; no scheduler.  What the files do
 * not call a parameter of the optimizer is a buffer, whole for every rank, with a finding.
 */
int ck_step_made_model(const struct ck_index *ix, struct ck_arena *a, struct ck_step *step,
		       struct ckpt_err *err);
/* The names in it alone, of a tree that there is. */
int ck_step_made_names(const struct ck_index *ix, struct ck_arena *a, struct ck_step *step,
		       struct ckpt_err *err);
/* A scale of one: runs of FSDP in fp32 and bf16 scale no loss. */
int ck_step_made_scaler(struct ck_arena *a, struct ck_step *step, struct ckpt_err *err);
/* The scale of a run with weights of that type: of fp16 step->half_scaler, if there is one. */
int ck_step_made_scaler_of(struct ck_arena *a, struct ck_step *step, enum ckpt_dtype weights,
			   struct ckpt_err *err);

#endif
