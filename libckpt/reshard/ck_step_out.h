/*
 * ck_step_out.h -- a step that was laid out, to its destination, with the report: what `reshard`
 * and `shard` have in common.
 */
#ifndef CK_STEP_OUT_H
#define CK_STEP_OUT_H

#include "libckpt/format/ck_plan.h"
#include "libckpt/run/ck_ckpt.h"

struct ck_step_out {
	struct ckpt *ck;
	const struct ck_plan *plan;
	const char *dst;		/* as the caller gave it */
	unsigned flags;			/* CKPT_WRITE_* */
	const struct ckpt_run_opts *run;	/* may be NULL */
	uint32_t part, nparts;
	bool is_file;			/* 'dst' is one file, not a folder with steps */
	bool step_is_fixed;		/* the step's name is the format's, not the caller's */
	double began;			/* ck_clock_seconds() and bytes read when the verb began; */
	uint64_t read_before;		/* began 0 = now */
};

/* '*report_out' (may be NULL) is filled on success.  Codes of ck_run_to_dst(). */
int ck_step_deliver(const struct ck_step_out *out, struct ckpt_report *report_out,
		    struct ckpt_err *err);

#endif
