/*
 * ck_clock.h -- the monotonic clock.  It is never set, so differences are true; the zero is
 * arbitrary.
 */
#ifndef CK_CLOCK_H
#define CK_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t ck_clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t ck_clock_ms(void)
{
	return ck_clock_ns() / 1000000;
}

static inline double ck_clock_seconds(void)
{
	return (double)ck_clock_ns() / 1e9;
}

#endif
