/* en_trace.c -- see en_trace.h. */
#include "engine/base/en_trace.h"

#include <string.h>

#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define NONE UINT32_MAX
/* What begins has a number of its trace, so that an end that comes too late ends nothing else. */
#define NUMBER_BITS 20u
#define TRACES ((1u << (32 - NUMBER_BITS)) - 1)

/* A span's marks; what it ends at may be what the next one begins at. */
struct ends {
	uint32_t from, to;	/* NONE: it has not ended */
};

struct en_trace {
	struct en_trace_clock clock;	/* 'mark' NULL: there is none */
	double since;			/* of the machine's clock */
	uint32_t most, n;
	struct en_span *span;		/* [most] */
	struct ends *ends;		/* [most] */
	double *at;			/* [2 most] */
	bool *by_clock;			/* [2 most]: 'at' is the clock's to say */
	uint32_t marks;
	uint32_t open[EN_TRACE_ROWS];	/* what a row is at, NONE = nothing */
	uint64_t lost;
	uint32_t trace;			/* from 1 */
	int rc;				/* of the clock, the first */
};

const char *en_trace_row_name(enum en_trace_row row)
{
	static const char *const name[EN_TRACE_ROWS] = {
		[EN_TRACE_COMPUTE] = "compute", [EN_TRACE_MOVE] = "communication",
		[EN_TRACE_COPY] = "copies", [EN_TRACE_HOST] = "host",
	};

	return (unsigned)row < EN_TRACE_ROWS ? name[row] : "?";
}

int en_trace_new(struct en_trace **trace_out, uint32_t most, struct ckpt_err *err)
{
	struct en_trace *t = ck_zalloc(sizeof(*t));

	if (most > EN_TRACE_MOST) {
		ck_free(t);
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "a trace of %u spans; the limit is %u", most, EN_TRACE_MOST);
	}
	if (t) {
		t->most = most;
		t->span = ck_alloc_array(most, sizeof(*t->span));
		t->ends = ck_alloc_array(most, sizeof(*t->ends));
		t->at = ck_alloc_array(2ull * most, sizeof(*t->at));
		t->by_clock = ck_alloc_array(2ull * most, sizeof(*t->by_clock));
	}
	if (!t || !t->span || !t->ends || !t->at || !t->by_clock) {
		en_trace_free(t);
		return ck_fail_nomem(err, "a trace", most);
	}
	en_trace_start(t, NULL);
	*trace_out = t;
	return 0;
}

void en_trace_free(struct en_trace *t)
{
	if (!t)
		return;
	ck_free(t->span);
	ck_free(t->ends);
	ck_free(t->at);
	ck_free(t->by_clock);
	ck_free(t);
}

uint32_t en_trace_marks(const struct en_trace *t)
{
	return 2 * t->most;
}

void en_trace_start(struct en_trace *t, const struct en_trace_clock *clock)
{
	t->clock = clock ? *clock : (struct en_trace_clock){ .mark = NULL };
	t->n = t->marks = 0;
	t->lost = 0;
	t->rc = 0;
	for (uint32_t i = 0; i < EN_TRACE_ROWS; i++)
		t->open[i] = NONE;
	t->trace = t->trace % TRACES + 1;
	t->since = ck_clock_seconds();
}

/* ---- marks ---- */

static uint32_t mark(struct en_trace *t, enum en_trace_row row)
{
	const uint32_t k = t->marks++;	/* a span has two at most */
	int rc;

	t->by_clock[k] = t->clock.mark && row != EN_TRACE_HOST;
	if (!t->by_clock[k]) {
		t->at[k] = ck_clock_seconds() - t->since;
		return k;
	}
	rc = t->clock.mark(t->clock.arg, row, k);
	if (!t->rc)
		t->rc = rc;
	return k;
}

/* Its first mark is there. */
static uint32_t add(struct en_trace *t, enum en_trace_row row, const char *what, int32_t number,
		    bool waits, uint32_t from)
{
	const uint32_t i = t->n++;

	t->span[i] = (struct en_span){
		.what = what, .number = number, .row = row, .waits = waits,
	};
	t->ends[i] = (struct ends){ from, NONE };
	return i;
}

uint32_t en_trace_mark_begin(struct en_trace *t, enum en_trace_row row, const char *what,
			     int32_t number)
{
	if (t->n == t->most) {
		t->lost++;
		return 0;
	}
	return add(t, row, what, number, false, mark(t, row)) | t->trace << NUMBER_BITS;
}

void en_trace_mark_end(struct en_trace *t, uint32_t span)
{
	const uint32_t i = span & (EN_TRACE_MOST - 1);

	if (span >> NUMBER_BITS == t->trace && i < t->n && t->ends[i].to == NONE)
		t->ends[i].to = mark(t, t->span[i].row);
}

void en_trace_mark_next(struct en_trace *t, enum en_trace_row row, const char *what,
			int32_t number, bool waits)
{
	const bool full = what && t->n == t->most;
	uint32_t k;

	t->lost += full;
	if (t->open[row] == NONE && (!what || full))
		return;
	k = mark(t, row);
	if (t->open[row] != NONE)
		t->ends[t->open[row]].to = k;
	t->open[row] = what && !full ? add(t, row, what, number, waits, k) : NONE;
}

/* ---- the end ---- */

int en_trace_stop(struct en_trace *t, struct ckpt_err *err)
{
	uint32_t n = 0;

	for (uint32_t i = 0; !t->rc && i < t->marks; i++)
		if (t->by_clock[i])
			t->rc = t->clock.read(t->clock.arg, i, &t->at[i]);
	for (uint32_t i = 0; i < t->n; i++) {
		if (t->ends[i].to == NONE) {
			t->lost++;
			continue;
		}
		t->span[n] = t->span[i];
		t->span[n].from = t->at[t->ends[i].from];
		t->span[n++].to = t->at[t->ends[i].to];
	}
	t->n = n;
	t->clock.mark = NULL;
	return t->rc ? ck_fail(err, CKPT_E_IO, "trace", CKPT_NO_OFFSET,
			       "the device's clock failed (%d)", t->rc) : 0;
}

const struct en_span *en_trace_spans(const struct en_trace *t, uint32_t *n_out)
{
	*n_out = t->n;
	return t->span;
}

uint64_t en_trace_lost(const struct en_trace *t)
{
	return t->lost;
}
