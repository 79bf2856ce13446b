/*
 * ck_hollow.h -- models whose tensors are placeholders.
 *
 * Under ZeRO stage 3 a parameter that was not gathered is a tensor of shape [0].  Saved like
 * that, a model file has the right names and no parameters.
 */
#ifndef CK_HOLLOW_H
#define CK_HOLLOW_H

#include "libckpt/format/ck_findings.h"
#include "libckpt/tensor/ck_index.h"

/*
 * Judge the empty tensors of a model's index: PLACEHOLDERS_ONLY if they are what is left of
 * the parameters, TENSORS_EMPTY for a few among full ones.  'where' is the file or folder.
 */
void ck_hollow_judge(const struct ck_index *ix, const char *where, struct ck_findings *f);

#endif
