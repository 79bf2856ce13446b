/* en_adapt.h -- what is trained, as texts: --lora, PEFT's adapter_config.json, facts of a run. */
#ifndef EN_ADAPT_H
#define EN_ADAPT_H

#include "engine/model/en_model.h"

/*
 * "r=8,alpha=16,dropout=0.05,target=q_proj+v_proj,rslora": keys that are missing keep what '*lora'
 * has, or with r 0 PEFT's defaults (r 8, alpha 8, q_proj and v_proj).  Targets may also follow as
 * "target=q_proj,v_proj", or be "all-linear".  CKPT_E_USAGE, CKPT_E_UNSUPPORTED (a target).
 */
int en_lora_parse(const char *text, struct en_lora *lora, struct ckpt_err *err);

/*
 * The adapter_config.json of a folder; targets are 0 where they are a regular expression, which
 * --lora has none for.  CKPT_E_NOTFOUND, CKPT_E_IO, CKPT_E_LIMIT, CKPT_E_CORRUPT;
 * CKPT_E_UNSUPPORTED: a kind of adapter that is not built.
 */
int en_lora_read(const char *dir, struct en_lora *out, struct ckpt_err *err);

/* "r=8,alpha=16,dropout=0.05,target=q_proj+v_proj", without a dropout of 0; or "none". */
#define EN_LORA_TEXT 160
void en_lora_text(const struct en_lora *lora, char out[EN_LORA_TEXT]);

#endif
