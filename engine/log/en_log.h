/*
 * en_log.h -- the log of a run: a JSON line per step in a file, and a line for people.
 *
 *	en_log_open(&log, "run/log.jsonl", EN_LOG_NEW, NULL, &err);
 *	for each step:
 *		en_log_write(log, &step, &err);
 *	en_log_close(log, &err);
 *
 * A resumed run opens with the step it resumes from in place of EN_LOG_NEW.  Only one rank writes.
 * A line is written by one write() where the system takes it whole, so a reader that follows the
 * file sees whole lines, and a killed run leaves at most one torn line, at the end.  Opening for a
 * resumed run drops that line and the lines of later steps: the log has each step once, however
 * often the run was resumed.  The format: docs/ztrain/log.md.
 */
#ifndef EN_LOG_H
#define EN_LOG_H

#include "libckpt/base/ck_buf.h"

struct en_log_step {
	int64_t step;		/* from 1 */
	double loss;
	double lr;		/* of the first param group, in force at this update */
	double grad_norm;	/* before clipping */
	double loss_scale;	/* of this step; 0 = none, left out */
	bool skipped;		/* it overflowed */
	int64_t samples;	/* consumed by the run, this step included */
	int64_t rows, tokens;	/* of this step; 'rows' 0 = not known */
	double seconds;		/* that it took */
	double left;		/* seconds until the run ends (en_left.h); 0 = not known */
	uint64_t memory;	/* bytes, at most so far; 0 = not known, left out */
	bool has_eval;
	double eval_loss;
	double time;		/* when it ended, in seconds since 1970; 0 = left out */
	bool resumed;		/* the first step after a resume; false is left out */
	/*
	 * Peaks of 'ranks' ranks in bytes: of their processes, and on GPUs of their devices.  NULL
	 * is left out, and so is all of it above EN_LOG_RANKS; en_log_parse() sets NULL.
	 */
	const double *rank_memory, *rank_device;
	uint32_t ranks;
};

#define EN_LOG_RANKS 1024	/* a line has at most 64 KiB */

/* Adds the line with its newline.  Every number reads back as it was. */
int en_log_line(const struct en_log_step *step, struct ck_buf *buf, struct ckpt_err *err);
/*
 * Reads a line (without newline).  Unknown keys are ignored.  CKPT_E_CORRUPT with 'where' for
 * what is no such line.
 */
int en_log_parse(const char *text, uint64_t len, const char *where, struct en_log_step *out,
		 struct ckpt_err *err);

#define EN_LOG_CONSOLE 272
/*
 * The line for people, without newline; 'steps' of the whole run, 0 = not known.
 */
void en_log_console(const struct en_log_step *step, int64_t steps, char out[EN_LOG_CONSOLE]);

struct en_log;

#define EN_LOG_NEW (-1)

/* What opening found. */
struct en_log_found {
	int64_t last_step;	/* that stays in the log, 0 = none */
	uint64_t lines;		/* that stay */
	uint64_t cut_bytes;	/* that went: later steps, a torn line */
};

/*
 * Open for appending.  'after' is EN_LOG_NEW, or the step that a run resumes from (0 to start
 * over): lines of later steps, and a torn one at the end, are cut off.  '*found_out' may be NULL.
 * The log may end before that step (its file system lost lines): found_out->last_step says so.
 *
 *	CKPT_E_EXISTS    EN_LOG_NEW, and there are lines already
 *	CKPT_E_CORRUPT   a line that is not of such a log, or steps that do not ascend: the file is
 *	                 not changed
 *	CKPT_E_BUSY      another process writes it
 *	CKPT_E_FORMAT    not a regular file
 *	CKPT_E_NOTFOUND, CKPT_E_IO, CKPT_E_NOMEM
 */
int en_log_open(struct en_log **log_out, const char *path, int64_t after,
		struct en_log_found *found_out, struct ckpt_err *err);

/*
 * Append a step, later than the last.  After a failure (CKPT_E_NOSPACE, CKPT_E_IO) the file is as
 * it was before, if the system lets it be; CKPT_E_USAGE for a step that is not later.
 */
int en_log_write(struct en_log *log, const struct en_log_step *step, struct ckpt_err *err);

/* Frees in any case; NULL is fine.  CKPT_E_IO, CKPT_E_NOSPACE if the system lost something. */
int en_log_close(struct en_log *log, struct ckpt_err *err);

#endif
