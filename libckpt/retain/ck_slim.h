/* ck_slim.h -- a smaller copy of a checkpoint, for `slim` and `prune`. */
#ifndef CK_SLIM_H
#define CK_SLIM_H

#include "libckpt/run/ck_ckpt.h"

struct ck_slim_ask {
	const char *dst;	/* without slashes at its end; NULL: only say what it would be */
	const struct ckpt_run_opts *run;	/* may be NULL */
	unsigned what;		/* CKPT_SLIM_* */
	unsigned flags;		/* CKPT_WRITE_* */
	bool bare;		/* the folder itself, not a root with the step in it */
};

/* Whether steps of its format are rewritten. */
bool ck_slim_rewrites(const struct ckpt *ck);
/* As ckpt_slim(). */
int ck_slim(struct ckpt *ck, const struct ck_slim_ask *ask, struct ckpt_slimmed *out,
	    struct ckpt_err *err);

#endif
