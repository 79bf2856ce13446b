/*
 * ck_agree.h -- do master and weight belong together?
 *
 * The master of a parameter, rounded to the type of the model's weight, is that weight.  A
 * step whose shards come from different moments, or whose pieces were put in the wrong
 * order, breaks this.  A few elements at the seams show it, without reading everything.
 */
#ifndef CK_AGREE_H
#define CK_AGREE_H

#include "libckpt/ops/ck_ckpt.h"

#define CK_AGREE_ELEMS 64u	/* looked at, at either end of every extent of both copies */

/*
 * Compare for every tensor that has both states in the files.  A difference adds the finding
 * MASTER_WEIGHT_MISMATCH (once per tensor).  Codes of reading.
 */
int ck_agree(struct ckpt *ck, uint32_t threads, struct ckpt_err *err);

#endif
