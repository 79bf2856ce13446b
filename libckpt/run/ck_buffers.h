/*
 * ck_buffers.h -- do the ranks' copies of a buffer agree?  At stage 3 every rank's model file
 * has its own; rank 0's is the one that is written.
 */
#ifndef CK_BUFFERS_H
#define CK_BUFFERS_H

#include "libckpt/run/ck_ckpt.h"

/* Elements at the beginning of a buffer that are compared. */
#define CK_BUFFERS_ELEMS 4096

/* A BUFFERS_DIFFER finding for each buffer of which a copy differs.  Once a handle. */
int ck_buffers_compare(struct ckpt *ck, struct ckpt_err *err);

#endif
