/*
 * ck_vision.h -- vision-language models whose modules have other names than the files that
 * transformers saves of them.
 */
#ifndef CK_VISION_H
#define CK_VISION_H

#include "libckpt/select/ck_select.h"

/*
 * The renames that turn the chosen names into those of the files, up to one with pattern NULL;
 * they are constants.  NULL for all other models.
 */
const struct ckpt_rule *ck_vision_renames(const struct ck_selection *s);

#endif
