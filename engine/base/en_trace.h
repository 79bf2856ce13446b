/*
 * en_trace.h -- a trace: spans on a few rows, for a timeline, and the time that computation waited
 * for communication and copies.
 *
 * The engine marks where an operation begins and ends.  With a trace of NULL, as in every
 * ordinary run, each call here is one comparison.
 *
 *	en_trace_new(&t, 10000, &err);
 *	en_zero_trace(z, t, &err);	... steps ...	en_zero_trace(z, NULL, &err);
 *	... en_trace_spans(t, &n) ...
 *	en_trace_free(t);
 *
 * Times are those of the device that a row belongs to.  On CPU ranks all rows use the clock of the
 * machine.  On GPUs all rows but EN_TRACE_HOST use events, which are created beforehand and read
 * when the trace ends.  One thread calls.
 */
#ifndef EN_TRACE_H
#define EN_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "libckpt/base/ck_buf.h"

enum en_trace_row { EN_TRACE_COMPUTE, EN_TRACE_MOVE, EN_TRACE_COPY, EN_TRACE_HOST, EN_TRACE_ROWS };

#define EN_TRACE_ALL UINT32_MAX	/* it has no number */

struct en_trace;

struct en_span {
	const char *what;	/* "forward", "gather"; a static string */
	int32_t number;		/* of a block or layer, -1 = none */
	enum en_trace_row row;
	bool waits;		/* nothing is computed: what is waited for */
	double from, to;	/* seconds since the trace began */
};

/* A clock of rows other than this machine's; marks are numbered from 0. */
struct en_trace_clock {
	void *arg;
	int (*mark)(void *arg, enum en_trace_row row, uint32_t mark);
	/* All marks are over.  Seconds since the trace began. */
	int (*read)(void *arg, uint32_t mark, double *seconds_out);
};

/* "compute", "communication", "copies", "host"; a static string. */
const char *en_trace_row_name(enum en_trace_row row);

#define EN_TRACE_MOST (1u << 20)
/* Room for 'most' spans; later ones are counted and left out.  CKPT_E_NOMEM, CKPT_E_USAGE. */
int en_trace_new(struct en_trace **trace_out, uint32_t most, struct ckpt_err *err);
/* NULL is fine. */
void en_trace_free(struct en_trace *t);

/* The maximum number of marks. */
uint32_t en_trace_marks(const struct en_trace *t);
/* The trace begins now, empty.  'clock' NULL: the machine's clock for all rows. */
void en_trace_start(struct en_trace *t, const struct en_trace_clock *clock);
/* All that was marked has run: times are read.  CKPT_E_IO of the clock, also of a mark before. */
int en_trace_stop(struct en_trace *t, struct ckpt_err *err);

/* After en_trace_stop(), in the order in which they began to be marked; lent. */
const struct en_span *en_trace_spans(const struct en_trace *t, uint32_t *n_out);
/* Spans that did not fit. */
uint64_t en_trace_lost(const struct en_trace *t);

/*
 * Adds the events of rank 'rank' to an array of Chrome's trace format: ", " in front of each but
 * the first of the array ('first').  Spans that overlap on a row get additional rows.
 */
int en_trace_chrome(struct ck_buf *buf, uint32_t rank, const struct en_span *span, uint32_t n,
		    bool first, struct ckpt_err *err);

/* ---- where it is marked; not to be called with NULL ---- */

uint32_t en_trace_mark_begin(struct en_trace *t, enum en_trace_row row, const char *what,
			     int32_t number);
void en_trace_mark_end(struct en_trace *t, uint32_t span);
void en_trace_mark_next(struct en_trace *t, enum en_trace_row row, const char *what,
			int32_t number, bool waits);

/*
 * Something begins that others may overlap; the number that ends it.  Ending it again, or in a
 * later trace, is nothing.
 */
static inline uint32_t en_trace_begin(struct en_trace *t, enum en_trace_row row, const char *what,
				      uint32_t number)
{
	return t ? en_trace_mark_begin(t, row, what, (int32_t)number) : 0;
}
static inline void en_trace_end(struct en_trace *t, uint32_t span)
{
	if (t)
		en_trace_mark_end(t, span);
}
/* This span begins in the row, and the one before it ends. */
static inline void en_trace_next(struct en_trace *t, enum en_trace_row row, const char *what,
				 uint32_t number)
{
	if (t)
		en_trace_mark_next(t, row, what, (int32_t)number, false);
}
/* Computation waits until a transfer is complete. */
static inline void en_trace_wait(struct en_trace *t, const char *what, uint32_t number)
{
	if (t)
		en_trace_mark_next(t, EN_TRACE_COMPUTE, what, (int32_t)number, true);
}
/* The row has nothing to do. */
static inline void en_trace_rest(struct en_trace *t, enum en_trace_row row)
{
	if (t)
		en_trace_mark_next(t, row, NULL, -1, false);
}

#endif
