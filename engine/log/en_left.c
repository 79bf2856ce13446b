/* en_left.c -- see en_left.h. */
#include "engine/log/en_left.h"

#include <math.h>
#include <stdio.h>

double en_left_add(struct en_left *left, double now, int64_t step, int64_t last)
{
	const uint64_t n = left->steps++;	/* intervals, with this one */

	if (n)
		left->mean += (now - left->at - left->mean) /
			      (double)(n < EN_LEFT_WINDOW ? n : EN_LEFT_WINDOW);
	left->at = now;
	if (n < EN_LEFT_FIRST || step >= last)
		return 0;
	return left->mean > 0 ? left->mean * (double)(last - step) : 0;
}

#define MINUTE 60.0
#define HOUR 3600.0
#define DAY 86400.0
#define MOST (99999 * DAY)

void en_left_text(double seconds, char out[EN_LEFT_TEXT])
{
	const double s = seconds < MOST ? seconds : MOST;
	long n;

	if (s < 59.5) {
		snprintf(out, EN_LEFT_TEXT, "%.0f s", s < 1 ? 1 : s);
	} else if (s < HOUR - 30) {
		snprintf(out, EN_LEFT_TEXT, "%.0f min", s / MINUTE);
	} else if (s < DAY - 30) {
		n = lround(s / MINUTE);
		snprintf(out, EN_LEFT_TEXT, "%ld h %ld min", n / 60, n % 60);
	} else {
		n = lround(s / HOUR);
		snprintf(out, EN_LEFT_TEXT, "%ld d %ld h", n / 24, n % 24);
	}
}
