/*
 * ck_master_check.h -- do master and weight belong together?
 *
 * The master of a parameter, rounded to the type of the model's weight, is that weight.  A
 * step whose shards come from different moments, or whose pieces were put in the wrong
 * order, breaks this.  A few elements at the seams show it, without reading everything.
 */
#ifndef CK_MASTER_CHECK_H
#define CK_MASTER_CHECK_H

#include "libckpt/run/ck_ckpt.h"

#define CK_MASTER_CHECK_ELEMS 64u	/* compared at either end of every extent of both */

/*
 * Compare for every tensor that has both states in the files.  A difference adds the finding
 * MASTER_WEIGHT_MISMATCH (once per tensor).  Codes of reading.
 *
 * 'before_writing': every element where a copy is in a file without checksums and the checkpoint
 * states no sums of it, as nothing else would show that a bit of it flipped; and all further
 * copies of what is no buffer, which must be the same: else REPLICA_DIFFERS.
 */
int ck_master_check(struct ckpt *ck, uint32_t threads, bool before_writing, struct ckpt_err *err);

/* Where they differ: the element, and both values. */
struct ck_master_check_at {
	uint64_t elem;
	double m, w;
};

/* Have the two states elements that can be compared? */
bool ck_master_check_is_pair(const struct ck_state *m, const struct ck_state *w);
/* Does one of 'n' elements of 'dtype' differ?  Two NaN are the same. */
bool ck_master_check_differ(enum ckpt_dtype dtype, const void *mine, const void *theirs, uint64_t n,
			    struct ck_master_check_at *out);
/* The finding, once per tensor. */
void ck_master_check_report(struct ckpt *ck, uint32_t tensor, const struct ck_master_check_at *at);

#endif
