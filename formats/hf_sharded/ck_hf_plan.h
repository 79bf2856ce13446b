/* ck_hf_plan.h -- laying out a Hugging Face folder: shards, and an index if there are several. */
#ifndef CK_HF_PLAN_H
#define CK_HF_PLAN_H

#include "libckpt/format/ck_plan.h"

/*
 * Append the shards of 'want' (want->stem: "model") and, if there is more than one, their
 * index.  Tensors are dealt to shards in the order of the items.  Codes of ck_hf_split() and
 * ck_st_plan_file().
 */
int ck_hf_plan(const struct ck_want *want, struct ck_plan *plan, struct ckpt_err *err);

#endif
