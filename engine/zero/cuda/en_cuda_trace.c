/*
 * en_cuda_trace.c -- when a GPU did what: an event for each mark, of which the driver says when it
 * passed.  All are made before the trace begins, and there are none without one.
 */
#include "engine/zero/cuda/en_cuda_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

static int mark(void *arg, enum en_trace_row row, uint32_t k)
{
	struct en_cuda *c = arg;

	return (int)cudaEventRecord(c->trace_mark[k], row == EN_TRACE_MOVE ? c->move :
				    row == EN_TRACE_COPY ? en_cuda_off_up(c) : c->work);
}

static int read_mark(void *arg, uint32_t k, double *seconds_out)
{
	struct en_cuda *c = arg;
	float ms = 0;
	const int rc = (int)cudaEventElapsedTime(&ms, c->trace_begin, c->trace_mark[k]);

	*seconds_out = (double)ms / 1e3;
	return rc;
}

static void free_marks(struct en_cuda *c)
{
	for (uint32_t i = 0; c->trace_mark && i < c->trace_marks; i++)
		en_cuda_event_free(c->trace_mark[i]);
	if (c->trace_begin)
		en_cuda_event_free(c->trace_begin);
	ck_free(c->trace_mark);
	c->trace_mark = NULL;
	c->trace_begin = NULL;
	c->trace_marks = 0;
}

static int new_marks(struct en_cuda *c, uint32_t n, struct ckpt_err *err)
{
	int rc = (int)cudaEventCreate(&c->trace_begin);

	c->trace_mark = ck_zalloc((n + 1ull) * sizeof(*c->trace_mark));
	if (!c->trace_mark)
		return ck_fail_nomem(err, "a trace", n);
	while (!rc && c->trace_marks < n) {
		rc = (int)cudaEventCreate(&c->trace_mark[c->trace_marks]);
		c->trace_marks += !rc;
	}
	return en_cuda_cuda(rc, "the events of a trace", err);
}

/* Both streams are idle, so that the device's clock and the host's begin together. */
static int begin(struct en_cuda *c, struct en_trace *t, struct ckpt_err *err)
{
	const struct en_trace_clock clock = { c, mark, read_mark };
	int rc = new_marks(c, en_trace_marks(t), err);

	if (!rc)
		rc = en_cuda_cuda((int)cudaEventRecord(c->trace_begin, c->work), "a trace", err);
	if (!rc)
		rc = en_cuda_wait(c, c->work, NULL, "a trace", err);
	if (rc) {
		free_marks(c);
		return rc;
	}
	en_trace_start(t, &clock);
	c->z.trace = t;
	return 0;
}

int en_cuda_trace(struct en_zero *z, struct en_trace *t, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	struct en_trace *was = z->trace;
	int rc = 0;

	z->trace = NULL;
	if (was || t) {
		rc = en_cuda_wait(c, c->work, NULL, "a trace", err);
		if (!rc)
			rc = en_cuda_wait(c, c->move, NULL, "a trace", err);
	}
	if (!rc && was)
		rc = en_trace_stop(was, err);
	free_marks(c);
	return rc || !t ? rc : begin(c, t, err);
}
