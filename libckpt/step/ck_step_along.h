/*
 * ck_step_along.h -- what goes along with a step that is written: the files of its folder that are
 * no part of it, everything of the source's parent folder that is no step, random states for the
 * new number of ranks, and the file that names the step.
 */
#ifndef CK_STEP_ALONG_H
#define CK_STEP_ALONG_H

#include "libckpt/step/ck_step.h"

/* A file of the source that goes into the result as it is. */
struct ck_step_along_file {
	const char *name, *path;	/* in the result, of the source; in the step's arena */
	uint64_t bytes;
	bool in_tag;			/* it is in the step's folder */
};

/* 'step', 'want' and 'tag' (the step's folder in the result) are set, the rest is zero. */
struct ck_step_along {
	struct ck_step *step;
	const struct ck_reshard_want *want;
	const char *tag;
	struct ck_arena arena;
	struct ck_step_along_file *file;
	uint64_t nfiles, cap;
};

/* The name of the step's folder in the result; NULL without memory. */
const char *ck_step_tag(struct ck_step *step, const struct ck_reshard_want *want);
/*
 * List them, with a finding for each that is carried or not.  Codes of ck_look_list(),
 * CKPT_E_LIMIT.
 */
int ck_step_along_list(struct ck_step_along *b, struct ckpt_err *err);
/* They go into the plan, after the step's own files; the file that names the step is the last. */
int ck_step_along_plan(struct ck_step_along *b, struct ck_plan *plan, struct ckpt_err *err);
void ck_step_along_release(struct ck_step_along *b);

#endif
