/* ck_step_check.h -- what a step that is to be written may be called, and its world. */
#ifndef CK_STEP_CHECK_H
#define CK_STEP_CHECK_H

#include "libckpt/base/ck_base.h"

/* CKPT_E_USAGE unless 1 to CKPT_ZERO_MAX_WORLD. */
int ck_step_check_world(uint32_t world, struct ckpt_err *err);
/*
 * The step is one folder of the result, and DeepSpeed's loader takes its name for a pattern:
 * CKPT_E_USAGE if the name is not fit for both.
 */
int ck_step_check_tag(const char *tag, struct ckpt_err *err);

/*
 * "2.4" or "2.4.1" as CK_TORCH() of ck_format.h has it, with the third number added; NULL is 0.
 * CKPT_E_USAGE for another text.
 */
int ck_step_torch(const char *version, uint32_t *torch_out, struct ckpt_err *err);

#endif
