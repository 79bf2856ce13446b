/* rep_sample.h -- private to tools/report: elements as numbers, and what they come to. */
#ifndef REP_SAMPLE_H
#define REP_SAMPLE_H

#include "report.h"

/* Whether elements of the type are numbers that rep_numbers_of() makes. */
int rep_is_number(enum ckpt_dtype dtype);
/* The type to ask ckpt_read() for: 0 = as stored. */
enum ckpt_dtype rep_read_as(enum ckpt_dtype dtype);
/* 'n' elements of 'dtype', as they are read, to doubles. */
void rep_numbers_of(enum ckpt_dtype dtype, const void *bytes, size_t n, double *out);

/*
 * Statistics of numbers that are added in any order.  Memory does not depend on their count: while
 * they are few they are kept, and bins are exact; then bins of one width cover their range, which
 * doubles when a number is outside.
 */
#define SAMPLE_KEPT 65536
#define SAMPLE_FINE 2048

struct sample {
	uint64_t seen, zeros, nans, infs, finite;
	double min, max, mean, m2;	/* of the finite ones; m2: Welford's sum of squares */
	double *kept;			/* SAMPLE_KEPT of them, the caller's */
	double low, width;		/* of the bins, once they are used */
	uint64_t fine[SAMPLE_FINE];
};

/* Empties it; 'kept' stays. */
void sample_begin(struct sample *s);
void sample_add(struct sample *s, const double *n, size_t count);
/* Counts of REPORT_BINS bins of one width from min to max. */
void sample_bins(const struct sample *s, uint64_t *bins_out);
double sample_std(const struct sample *s);

#endif
