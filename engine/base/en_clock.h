/* en_clock.h -- seconds on a clock that nobody sets: only differences mean something. */
#ifndef EN_CLOCK_H
#define EN_CLOCK_H

#include <time.h>

static inline double en_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

#endif
