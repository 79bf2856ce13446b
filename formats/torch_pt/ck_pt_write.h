/* ck_pt_write.h -- private to formats/torch_pt: a step as a training file. */
#ifndef CK_PT_WRITE_H
#define CK_PT_WRITE_H

#include "libckpt/format/ck_format.h"

/*
 * The driver's write_step(): one file want->file, {model, optimizer, ...} as
 * docs/formats/torch.md has it under "Written".
 */
int ck_pt_write_step(struct ck_step *step, const struct ck_index *ix,
		     const struct ck_reshard_want *want, struct ck_plan *plan,
		     struct ckpt_err *err);

#endif
