/*
 * en_left.h -- how long a run will take from here on, from the time of its last steps.
 *
 *	struct en_left left = { 0 };
 *	after each step:
 *		seconds = en_left_add(&left, ck_clock_seconds(), step, last_step);
 *
 * The time from step to step counts, with evaluations and saves between them.  Of the first
 * EN_LEFT_WINDOW steps it is the mean, later an exponential mean of about that many.
 */
#ifndef EN_LEFT_H
#define EN_LEFT_H

#include <stdint.h>

#define EN_LEFT_FIRST 3		/* steps without an estimate; the first of all is the slowest */
#define EN_LEFT_WINDOW 100

struct en_left {
	double at;		/* when the step before ended */
	double mean;		/* seconds a step */
	uint64_t steps;		/* that were added */
};

/* Seconds from 'now' to the end of step 'last'; 0 = not known yet, or that was the last. */
double en_left_add(struct en_left *left, double now, int64_t step, int64_t last);

#define EN_LEFT_TEXT 32
/* "45 s", "12 min", "3 h 20 min", "5 d 7 h". */
void en_left_text(double seconds, char out[EN_LEFT_TEXT]);

#endif
