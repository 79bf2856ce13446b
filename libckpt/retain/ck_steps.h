/*
 * ck_steps.h -- the steps that a run keeps in one folder, for `prune`.
 *
 * A step is a folder in it with files of a step (of any form), or a trainer's "checkpoint-N" or
 * "...step=N.ckpt" that holds one, or weights: what goes or stays as one.
 */
#ifndef CK_STEPS_H
#define CK_STEPS_H

#include <sys/types.h>

#include "libckpt/base/ck_mem.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/step/ck_step_find.h"
#include "libckpt/run/ck_ckpt.h"

struct ck_step {
	const char *name;	/* in the folder */
	const char *path;
	const char *inner;	/* folder of the step itself: 'path', or below it; NULL = unknown */
	int64_t number;		/* of steps, -1 = unknown */
	int64_t in_name;	/* the last number there, likewise */
	int64_t time_ns;	/* of its newest file */
	uint64_t bytes;		/* of its files */
	uint64_t alone;		/* of those that have no other name */
	dev_t dev;
	ino_t ino;
	const char *named_by;	/* the file that names it, as "latest" or "best"; or NULL */
	bool is_best;		/* a trainer says so */
	bool is_busy;		/* somebody writes it */
	bool is_whole;		/* it opens and verifies */
	const char *link;	/* a link in the folder that leads to it, or NULL */
	bool is_step;		/* it was opened, and is more than weights */
	const char *trouble;	/* why it is not whole, or NULL */
};

struct ck_steps {
	const struct ck_formats *formats;	/* filled by the caller */
	struct ck_arena arena;
	const char *dir;
	struct ck_step *step;	/* newest first */
	uint64_t n, cap;
	const char **left;	/* paths of what a prune left that ended early */
	uint64_t nleft, left_cap;
};

/* Names of what prune moves aside: ".NAME" and one of these. */
#define CK_STEPS_REMOVED ".zckpt-removed"
#define CK_STEPS_SLIM ".zckpt-slim"

/*
 * Look at everything in 'dir', which is listed only, not followed out of.  Each step is opened, and
 * verified as ckpt_verify() does without flags; with 'full' the newest ones with CKPT_VERIFY_FULL,
 * until one is whole.  'run' NULL: none is opened.  One that could not be looked at is a failure:
 * CKPT_E_NOTFOUND, CKPT_E_IO, CKPT_E_LIMIT, CKPT_E_NOMEM, CKPT_E_CANCELED.
 */
int ck_steps_list(struct ck_steps *steps, const char *dir, const struct ckpt_run_opts *run,
		  const struct ckpt_limits *limits, bool full, struct ckpt_err *err);
struct ck_step *ck_steps_find(const struct ck_steps *steps, const char *name);
/* As the functions of ckpt_keep.h; 'limits' are complete. */
int ck_latest_get(const struct ck_formats *formats, const char *dir,
		  const struct ckpt_limits *limits, struct ckpt_latest *out, struct ckpt_err *err);
int ck_steps_report(const struct ck_formats *formats, const char *dir,
		    const struct ckpt_run_opts *run, const struct ckpt_limits *limits,
		    struct ckpt_steps *out, struct ckpt_err *err);
/* Does it open, and verify?  '*why_out' (in 'arena') is what is wrong, NULL = nothing. */
int ck_steps_verify(const struct ck_formats *formats, const char *path, unsigned flags,
		    const struct ckpt_run_opts *run, const struct ckpt_limits *limits,
		    struct ck_arena *arena, const char **why_out, struct ckpt_err *err);
void ck_steps_release(struct ck_steps *steps);

#endif
