/*
 * ck_placeholder.h -- models whose tensors are placeholders.
 *
 * Under ZeRO stage 3 a parameter that was not gathered is a tensor of shape [0].  Saved like
 * that, a model file has the right names and no parameters.
 */
#ifndef CK_PLACEHOLDER_H
#define CK_PLACEHOLDER_H

#include "libckpt/format/ck_findings.h"
#include "libckpt/tensor/ck_index.h"

/*
 * Judge the empty tensors of a model's index: PLACEHOLDERS_ONLY if they are what is left of
 * the parameters, TENSORS_EMPTY for a few among full ones.  'where' is the file or folder.
 */
void ck_placeholder_check(const struct ck_index *ix, const char *where, struct ck_findings *f);

#endif
