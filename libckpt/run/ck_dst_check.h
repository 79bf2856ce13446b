/* ck_dst_check.h -- may a result go into the folder that stands at its destination? */
#ifndef CK_DST_CHECK_H
#define CK_DST_CHECK_H

#include "libckpt/run/ck_run_to_dst.h"

/*
 * d->dst is a folder that holds something.  CKPT_E_EXISTS names what stands in the way: the
 * step, a file beside it with other bytes, or that it is no place for steps; with
 * CKPT_WRITE_FORCE only what would cost the source, a folder for a file or a file for a folder.
 */
int ck_dst_check(const struct ck_run_to_dst *d, struct ckpt_err *err);

#endif
