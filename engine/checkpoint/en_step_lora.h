/*
 * en_step_lora.h -- steps of adapters that another program saved: PEFT's adapter_config.json says
 * what scales them, which no tensor does.
 */
#ifndef EN_STEP_LORA_H
#define EN_STEP_LORA_H

#include <ckpt.h>

#include "engine/model/en_model.h"

/* Whether the step has tensors of adapters. */
bool en_step_lora_has(const struct ckpt *ck);
/*
 * What adapter_config.json in the folder of the step, or in the one that it is in, says of its
 * adapters; within an archive it is not looked for.
 * CKPT_E_NOTFOUND: it has no adapters, or no such file; else codes of en_lora_read().
 */
int en_step_lora_read(const struct ckpt *ck, struct en_lora *out, struct ckpt_err *err);
/* CKPT_E_MISMATCH: the model has others, or none.  No such file is no error. */
int en_step_lora_check(const struct ckpt *ck, const struct en_model *model,
		       struct ckpt_err *err);

#endif
