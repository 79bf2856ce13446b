/*
 * ck_run_to_dst.h -- a plan to its destination: through the commit protocol, or as a stream.
 * What every writing verb does once it has a plan.
 */
#ifndef CK_RUN_TO_DST_H
#define CK_RUN_TO_DST_H

#include "libckpt/format/ck_format.h"
#include "libckpt/run/ck_ckpt.h"
#include "libckpt/run/ck_run.h"

struct ck_run_to_dst {
	struct ckpt *ck;
	const struct ck_plan *plan;
	const struct ck_change *change;	/* of the plan's states; or NULL */
	const char *dst;		/* without slashes at its end */
	bool is_dir;
	bool to_stream;			/* to 'fd'; dst is not used */
	int fd;
	unsigned flags;			/* CKPT_WRITE_FORCE, _RESTART, _DRY_RUN */
	const struct ckpt_run_opts *run;	/* complete */
	uint32_t part, nparts;		/* nparts 0 or 1 = all of it */
	struct ck_hash128 fingerprint;	/* of all that the bytes follow from */
	ck_is_ours_fn *is_ours;	/* ck_stage.h */
	const char *step;		/* of ck_stage.h: its folder of a result that may go into
					   a folder with others; then 'driver' is asked for them */
	bool step_is_fixed;		/* the format names it: another name does not help */
	const struct ck_format *driver;
};

/*
 * '*stats_out' is filled on success and its arrays are the caller's (ck_free()).  A dry run looks
 * at the destination only.  Codes of ck_stage_begin() and ck_run().
 */
int ck_run_to_dst(const struct ck_run_to_dst *d, struct ck_run_stats *stats_out,
		  struct ckpt_err *err);

#endif
