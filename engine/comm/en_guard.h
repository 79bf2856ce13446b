/* en_guard.h -- a deadline for calls that block in another library. */
#ifndef EN_GUARD_H
#define EN_GUARD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct en_guard {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	const char *what;	/* "MPI_Init" */
	char who[48];		/* "rank 2 of 4" */
	uint32_t timeout_ms;
	bool has_thread, over;
};

/*
 * From now on, and until en_guard_end(), 'what' may take 'timeout_ms' (0: no limit).  At the
 * deadline the process prints a message on stderr and exits with status 1: nothing else can leave
 * such a call.  Without a thread there is no deadline.
 */
void en_guard_begin(struct en_guard *g, const char *who, const char *what, uint32_t timeout_ms);
/* Another call; its time begins now. */
void en_guard_next(struct en_guard *g, const char *what);
void en_guard_end(struct en_guard *g);

#endif
