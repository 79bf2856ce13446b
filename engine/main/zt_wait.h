/*
 * zt_wait.h -- a progress line on a terminal while a run prints nothing: weights or a step are
 * read, a step takes long, the last save is written.
 *
 * It comes after two seconds, is written again twice a second, and goes before anything else is
 * printed.  Bytes are those that this process has read and written since.
 */
#ifndef ZT_WAIT_H
#define ZT_WAIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct zt_wait {
	bool runs;		/* a thread shows it; zeroed: nothing is shown, ever */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool over, shown;	/* guarded by the lock, as all below */
	char what[120];
	double since;		/* seconds of ck_clock */
	uint64_t read, written;	/* by then */
};

/* From now on, where stderr is a terminal.  Without a thread there is no line. */
void zt_wait_begin(struct zt_wait *wait, const char *what);
/* Clears the line, as something else is printed now, and counts from now on. */
void zt_wait_for(struct zt_wait *wait, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Clears it for good. */
void zt_wait_end(struct zt_wait *wait);

#endif
