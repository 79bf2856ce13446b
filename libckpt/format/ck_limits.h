/*
 * ck_limits.h -- the bounds of struct ckpt_limits with their defaults filled in.
 * Every bound on input that a caller may change is here and nowhere else.
 */
#ifndef CK_LIMITS_H
#define CK_LIMITS_H

#include "libckpt/base/ck_base.h"

/*
 * Fill '*out' from 'in' (NULL = all defaults): zero fields, and fields beyond
 * in->size, become the defaults that ckpt.h states.
 */
void ck_limits_fill(const struct ckpt_limits *in, struct ckpt_limits *out);

#endif
