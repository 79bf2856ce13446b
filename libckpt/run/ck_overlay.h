/* ck_overlay.h -- several folders given as one checkpoint: are they parts of one? */
#ifndef CK_OVERLAY_H
#define CK_OVERLAY_H

#include "libckpt/run/ck_ckpt.h"

/*
 * To be called once the index is complete.  A folder that adds nothing is a finding
 * (OVERLAY_UNUSED), files of two runs are one (OVERLAY_DIFFERS), in place of what follows from
 * them.  CKPT_E_USAGE: one of the folders is a checkpoint of its own; CKPT_E_NOMEM.
 */
int ck_overlay_check(struct ckpt *ck, struct ckpt_err *err);

#endif
