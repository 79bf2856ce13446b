/*
 * report.h -- one page, without network or framework, that shows a checkpoint or compares two.
 *
 *	struct report_opts opts = { .path = &path, .n_paths = 1 };
 *
 *	if (report_write(&opts, out, &err))
 *		... err.where, err.msg; what was written so far is to be dropped ...
 *
 * One call at a time in a process: texts are made in the static buffers of cli.h.
 */
#ifndef REPORT_H
#define REPORT_H

#include "../cli.h"

/* Which elements the statistics are made of.  REPORT_SAMPLE is the default. */
enum report_stats {
	/* At most REPORT_PER_STATE of each state, of REPORT_STATES states, in REPORT_SECONDS. */
	REPORT_SAMPLE = 0,
	REPORT_ALL,		/* every element of every state */
	REPORT_NONE,
};

#define REPORT_PER_STATE 4096u
#define REPORT_STATES 120000u
#define REPORT_SECONDS 20.0
#define REPORT_BINS 32

struct report_opts {
	const char *const *path;	/* of one checkpoint, or of two that are compared */
	size_t n_paths;
	const char *tag, *tag2;	/* steps of the two; NULL = latest */
	const char *log;		/* of the training run; NULL = one beside it */
	const struct ckpt_limits *limits;	/* NULL = defaults */
	const struct ckpt_run_opts *run;	/* NULL = defaults */
	enum report_stats stats;
	uint64_t seed;			/* of the sample */
	int verify;			/* 1: verify every byte first */
	int json;			/* 1: the data alone, as --json prints them */
};

/*
 * Write the page.  Memory does not grow with the bytes of tensors: about 100 bytes for each
 * tensor and each extent.  Returns 0, or the negative code of opening, verifying, comparing or
 * writing; CKPT_E_USAGE for a number of paths that is not 1 or 2.
 */
int report_write(const struct report_opts *opts, FILE *out, struct ckpt_err *err);
/* The same of checkpoints that are open: 'b' is NULL where there is one.  Neither is closed. */
int report_write_of(const struct report_opts *opts, struct ckpt *a, struct ckpt *b, FILE *out,
		    struct ckpt_err *err);

#endif
