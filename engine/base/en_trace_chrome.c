/*
 * en_trace_chrome.c -- spans as Chrome's trace format: "complete" events, a process for each rank
 * and a thread for each row.  Such events nest or follow each other on a thread, so what
 * overlaps on a row is dealt to threads beside it.
 *
 * https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/en_trace.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define LANES 16u		/* of a row; more than are ever under way together */

static int add_name(struct ck_buf *buf, uint32_t rank, enum en_trace_row row, uint32_t lane,
		    struct ckpt_err *err)
{
	const char *name = en_trace_row_name(row);
	const unsigned tid = row * LANES + lane;
	int rc = ck_buf_addf(buf, err, ",\n{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": %u, "
			     "\"tid\": %u, \"args\": {\"name\": \"%s", rank, tid, name);

	if (!rc && lane)
		rc = ck_buf_addf(buf, err, " %u", lane + 1);
	return rc ? rc : ck_buf_addf(buf, err, "\"}},\n{\"name\": \"thread_sort_index\", \"ph\": "
				     "\"M\", \"pid\": %u, \"tid\": %u, \"args\": "
				     "{\"sort_index\": %u}}", rank, tid, tid);
}

static int add_span(struct ck_buf *buf, uint32_t rank, uint32_t lane, const struct en_span *s,
		    struct ckpt_err *err)
{
	int rc = ck_buf_addf(buf, err, ",\n{\"name\": \"%s%s", s->waits ? "wait for " : "",
			     s->what);

	if (!rc && s->number >= 0)
		rc = ck_buf_addf(buf, err, " %d", s->number);
	return rc ? rc : ck_buf_addf(buf, err, "\", \"cat\": \"%s\", \"ph\": \"X\", \"ts\": %.3f, "
				     "\"dur\": %.3f, \"pid\": %u, \"tid\": %u}",
				     s->waits ? "wait" : en_trace_row_name(s->row), 1e6 * s->from,
				     1e6 * (s->to - s->from), rank, s->row * LANES + lane);
}

static int by_time(const void *a, const void *b)
{
	const struct en_span *x = *(const struct en_span *const *)a,
			     *y = *(const struct en_span *const *)b;

	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* The first thread of the row that is free. */
static uint32_t lane_of(const struct en_span *s, double until[LANES])
{
	uint32_t lane = 0;

	while (lane + 1 < LANES && until[lane] > s->from)
		lane++;
	until[lane] = s->to;
	return lane;
}

static int add_all(struct ck_buf *buf, uint32_t rank, const struct en_span **order, uint32_t n,
		   struct ckpt_err *err)
{
	double until[EN_TRACE_ROWS][LANES];
	bool named[EN_TRACE_ROWS][LANES] = { { false } };
	int rc = 0;

	for (uint32_t i = 0; i < EN_TRACE_ROWS * LANES; i++)
		until[i / LANES][i % LANES] = -1e300;
	for (uint32_t i = 0; !rc && i < n; i++) {
		const enum en_trace_row row = order[i]->row;
		const uint32_t lane = lane_of(order[i], until[row]);

		if (!named[row][lane])
			rc = add_name(buf, rank, row, lane, err);
		named[row][lane] = true;
		if (!rc)
			rc = add_span(buf, rank, lane, order[i], err);
	}
	return rc;
}

int en_trace_chrome(struct ck_buf *buf, uint32_t rank, const struct en_span *span, uint32_t n,
		    bool first, struct ckpt_err *err)
{
	const struct en_span **order = ck_alloc_array(n + 1ull, sizeof(*order));
	int rc;

	if (!order)
		return ck_fail_nomem(err, "a timeline", n);
	for (uint32_t i = 0; i < n; i++)
		order[i] = &span[i];
	qsort(order, n, sizeof(*order), by_time);
	rc = ck_buf_addf(buf, err, "%s{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": %u, "
			 "\"args\": {\"name\": \"rank %u\"}}", first ? "" : ",\n", rank, rank);
	if (!rc)
		rc = add_all(buf, rank, order, n, err);
	ck_free(order);
	return rc;
}
