/*
 * Spans as they are marked: rows that go from one thing to the next, what overlaps, what is not
 * ended, a trace that is full, a device's clock; and the timeline made of them.  If this fails, a
 * timeline shows what did not happen.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "engine/base/en_trace.h"

static void rows_go_on(void **state)
{
	struct en_trace *t = NULL;
	const struct en_span *s;
	uint32_t n, a, b;

	(void)state;
	assert_int_equal(en_trace_new(&t, 16, NULL), 0);
	en_trace_next(t, EN_TRACE_COMPUTE, "forward", 0);
	a = en_trace_begin(t, EN_TRACE_MOVE, "gather", 1);
	en_trace_next(t, EN_TRACE_COMPUTE, "forward", 1);
	b = en_trace_begin(t, EN_TRACE_MOVE, "gather", 2);
	en_trace_end(t, a);
	en_trace_wait(t, "gather", 2);
	en_trace_end(t, b);
	en_trace_end(t, b);
	en_trace_rest(t, EN_TRACE_COMPUTE);
	en_trace_rest(t, EN_TRACE_COMPUTE);
	en_trace_begin(t, EN_TRACE_COPY, "never ended", 7);
	assert_int_equal(en_trace_stop(t, NULL), 0);
	s = en_trace_spans(t, &n);
	assert_int_equal(n, 5);
	assert_int_equal(en_trace_lost(t), 1);
	assert_string_equal(s[0].what, "forward");
	assert_true(s[0].to == s[2].from && s[2].to == s[4].from);
	assert_true(s[4].waits && !s[0].waits && s[4].number == 2);
	assert_true(s[1].to >= s[3].from && s[3].to >= s[1].to);
	for (uint32_t i = 0; i < n; i++)
		assert_true(s[i].from >= 0 && s[i].to >= s[i].from);
	en_trace_free(t);
	en_trace_free(NULL);
	/* no trace is wanted */
	en_trace_next(NULL, EN_TRACE_HOST, "x", 0);
	en_trace_end(NULL, en_trace_begin(NULL, EN_TRACE_HOST, "x", 0));
	en_trace_wait(NULL, "x", 0);
	en_trace_rest(NULL, EN_TRACE_HOST);
}

static void a_full_one_says_so(void **state)
{
	struct en_trace *t = NULL;
	const struct en_span *s;
	uint32_t n, late;

	(void)state;
	assert_int_equal(en_trace_new(&t, 3, NULL), 0);
	assert_int_equal(en_trace_marks(t), 6);
	for (uint32_t i = 0; i < 5; i++)
		en_trace_next(t, EN_TRACE_HOST, "step", i);
	late = en_trace_begin(t, EN_TRACE_MOVE, "gather", 0);
	en_trace_end(t, late);
	assert_int_equal(en_trace_stop(t, NULL), 0);
	s = en_trace_spans(t, &n);
	assert_int_equal(n, 3);
	assert_int_equal(s[2].number, 2);
	assert_int_equal(en_trace_lost(t), 3);
	en_trace_start(t, NULL);
	late = en_trace_begin(t, EN_TRACE_MOVE, "gather", 0);
	en_trace_start(t, NULL);
	en_trace_next(t, EN_TRACE_HOST, "again", 0);
	en_trace_end(t, late);	/* of the trace before */
	en_trace_rest(t, EN_TRACE_HOST);
	assert_int_equal(en_trace_stop(t, NULL), 0);
	s = en_trace_spans(t, &n);
	assert_string_equal(s[0].what, "again");
	assert_int_equal(n, 1);
	assert_int_equal(en_trace_lost(t), 0);
	en_trace_free(t);
	assert_int_equal(en_trace_new(&t, EN_TRACE_MOST + 1, NULL), -CKPT_E_USAGE);
}

/* A device that is asked at the end: mark k passed after k / 8 seconds. */
struct device {
	uint32_t marks;
	int fails;
};

static int device_mark(void *arg, enum en_trace_row row, uint32_t k)
{
	struct device *d = arg;

	assert_int_not_equal(row, EN_TRACE_HOST);
	d->marks++;
	return k == 3 ? d->fails : 0;
}

static int device_read(void *arg, uint32_t k, double *seconds_out)
{
	(void)arg;
	*seconds_out = k / 8.0;
	return 0;
}

static void a_device_has_its_clock(void **state)
{
	struct device d = { 0, 0 };
	const struct en_trace_clock clock = { &d, device_mark, device_read };
	struct ckpt_err err = { 0 };
	struct en_trace *t = NULL;
	const struct en_span *s;
	uint32_t n, a;

	(void)state;
	assert_int_equal(en_trace_new(&t, 8, NULL), 0);
	for (int fails = 0; fails < 2; fails++) {
		d = (struct device){ 0, fails };
		en_trace_start(t, &clock);
		en_trace_next(t, EN_TRACE_COMPUTE, "forward", 0);	/* 0 */
		a = en_trace_begin(t, EN_TRACE_MOVE, "gather", 0);	/* 1 */
		en_trace_next(t, EN_TRACE_HOST, "launch", 0);		/* 2 */
		en_trace_end(t, a);					/* 3 */
		en_trace_rest(t, EN_TRACE_HOST);			/* 4 */
		en_trace_rest(t, EN_TRACE_COMPUTE);			/* 5 */
		assert_int_equal(d.marks, 4);
		assert_int_equal(en_trace_stop(t, &err), fails ? -CKPT_E_IO : 0);
	}
	s = en_trace_spans(t, &n);
	assert_int_equal(n, 3);
	en_trace_start(t, &clock);
	d.fails = 0;
	en_trace_next(t, EN_TRACE_COMPUTE, "forward", 0);
	en_trace_next(t, EN_TRACE_COMPUTE, "forward", 1);
	en_trace_rest(t, EN_TRACE_COMPUTE);
	assert_int_equal(en_trace_stop(t, NULL), 0);
	s = en_trace_spans(t, &n);
	assert_int_equal(n, 2);
	assert_true(s[0].from == 0 && s[0].to == 0.125 && s[1].from == 0.125 && s[1].to == 0.25);
	en_trace_free(t);
}

/* An event of rank 0. */
static bool has(const char *text, const char *name, const char *cat, const char *ts,
		const char *dur, unsigned tid)
{
	char event[256];

	snprintf(event, sizeof(event), "{\"name\": \"%s\", \"cat\": \"%s\", \"ph\": \"X\", "
		 "\"ts\": %s, \"dur\": %s, \"pid\": 0, \"tid\": %u}", name, cat, ts, dur, tid);
	return strstr(text, event) != NULL;
}

/* What overlaps is on threads of its own; what follows goes back to the first. */
static void what_overlaps_has_threads(void **state)
{
	static const struct en_span s[] = {
		{ "gather", 1, EN_TRACE_MOVE, false, 1, 3 },
		{ "forward", 0, EN_TRACE_COMPUTE, false, 0, 2.5 },
		{ "gather", 2, EN_TRACE_MOVE, false, 2, 4 },
		{ "gather", 2, EN_TRACE_COMPUTE, true, 2.5, 4 },
		{ "reduce", -1, EN_TRACE_MOVE, false, 3, 5 },
	};
	struct ck_buf buf = CK_BUF_INIT(1 << 20);
	const char *p;

	(void)state;
	assert_int_equal(ck_buf_adds(&buf, "[", NULL), 0);
	assert_int_equal(en_trace_chrome(&buf, 0, s, 5, true, NULL), 0);
	assert_int_equal(en_trace_chrome(&buf, 1, s, 0, false, NULL), 0);
	assert_int_equal(ck_buf_add(&buf, "]", 2, NULL), 0);
	p = buf.p;
	assert_true(has(p, "wait for gather 2", "wait", "2500000.000", "1500000.000", 0));
	assert_true(has(p, "forward 0", "compute", "0.000", "2500000.000", 0));
	assert_true(has(p, "gather 1", "communication", "1000000.000", "2000000.000", 16));
	assert_true(has(p, "gather 2", "communication", "2000000.000", "2000000.000", 17));
	assert_true(has(p, "reduce", "communication", "3000000.000", "2000000.000", 16));
	assert_non_null(strstr(p, "\"communication 2\""));
	assert_null(strstr(p, "\"communication 3\""));
	assert_non_null(strstr(p, "\"rank 1\""));
	ck_buf_release(&buf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_go_on), cmocka_unit_test(a_full_one_says_so),
		cmocka_unit_test(a_device_has_its_clock),
		cmocka_unit_test(what_overlaps_has_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
