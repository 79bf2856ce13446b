/* Runs a program and keeps what it said. */
#ifndef T_RUN_H
#define T_RUN_H

#include <stddef.h>

struct t_run {
	int exit;		/* exit code; -1 when a signal ended it */
	int signal;		/* that signal, else 0 */
	int timed_out;		/* 1: killed by the time guard */
	char *out, *err;	/* stdout and stderr, each ends with NUL */
	size_t out_n, err_n;
	double seconds;
};

/* Path of zckpt: $ZCKPT, else build/zckpt. */
const char *t_zckpt(void);

/* Runs argv[0] (no search in PATH) with /dev/null as stdin, at most SECONDS
 * long, then kills it. Ends the test program only when it cannot fork. Free
 * with t_run_free. */
void t_run(struct t_run *r, const char *const argv[], unsigned seconds);
/* The same for zckpt with these arguments, the last one NULL; 30 seconds. */
void t_run_zckpt(struct t_run *r, ...) __attribute__((sentinel));
void t_run_free(struct t_run *r);

/* For tests that stop a program at a chosen moment. */
struct t_trace {
	int exit;		/* as in t_run */
	int signal;
	int refused;		/* 1: this machine does not allow tracing */
	int fired;		/* 1: the call was reached, the signal sent */
	long calls;		/* calls seen before that, or all of them */
};

/* Runs argv with its output thrown away and counts the system calls by which
 * it changes files (make, write, size, sync, rename, remove; not on fd 0-2), in
 * all its threads. On entry to number AT (from 1) sends SIG; AT = 0 counts. */
void t_trace(struct t_trace *t, const char *const argv[], long at, int sig);

#endif
