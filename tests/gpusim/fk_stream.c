/* fk_stream.c -- CUDA's streams and events, over fk_queue.c. */
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpusim/fk_queue.h"

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
	(void)priority;
	fk_enter();
	*out = fk_new_stream(false, !(flags & cudaStreamNonBlocking));
	fk_leave();
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
	return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
	return cudaStreamCreateWithPriority(out, cudaStreamDefault, 0);
}

/* What is queued will still be done. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	if (!stream)
		return fk_error(cudaErrorInvalidResourceHandle);
	fk_enter();
	fk_stream_of(stream)->alive = false;
	fk_leave();
	return cudaSuccess;
}

static void wait_for_stream(struct CUstream_st *s)
{
	uint64_t seen[FK_STREAMS];

	fk_seen_of(seen, s);
	fk_run_until(s, s->queued);
	fk_seen_by_host(seen);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	struct CUstream_st *s;

	fk_enter();
	s = fk_stream_of(stream);
	wait_for_stream(s);
	fk_leave();
	return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
	fk_enter();
	for (uint32_t i = 0; i < fk_queue.nstreams; i++)
		fk_mark(fk_queue.stream[i], fk_queue.stream[i]->queued);
	for (uint32_t i = 0; i < fk_queue.nstreams; i++)
		wait_for_stream(fk_queue.stream[i]);
	fk_leave();
	return cudaSuccess;
}

/* Who asks again and again gets on. */
static cudaError_t ask(struct CUstream_st *s, uint64_t at)
{
	if (s->done >= at)
		return cudaSuccess;
	fk_mark(s, at);
	fk_step();
	return s->done >= at ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	uint64_t seen[FK_STREAMS];
	cudaError_t rc;
	struct CUstream_st *s;

	fk_enter();
	s = fk_stream_of(stream);
	rc = ask(s, s->queued);
	fk_seen_of(seen, s);
	if (!rc)
		fk_seen_by_host(seen);
	fk_leave();
	return rc;
}

struct call {
	cudaHostFn_t fn;
	void *data;
};

static void run_call(const void *args)
{
	const struct call *c = args;

	c->fn(c->data);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *data)
{
	const struct call c = { fn, data };

	return (cudaError_t)fk_launch(stream, "a host function", run_call, &c, sizeof(c), NULL, 0);
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
	(void)flags;
	*out = fk_room(sizeof(**out));
	memset(*out, 0, sizeof(**out));
	(*out)->refs = 1;
	return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
	return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	if (!event)
		return fk_error(cudaErrorInvalidResourceHandle);
	fk_enter();
	if (!--event->refs)
		free(event);
	fk_leave();
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	struct CUstream_st *s;
	struct op *op;

	if (!event)
		return fk_error(cudaErrorInvalidResourceHandle);
	fk_enter();
	s = fk_stream_of(stream);
	fk_wait_legacy(s);
	op = fk_append(s, "record");
	op->event = event;
	event->refs++;
	event->stream = s->index + 1;
	event->at = s->queued;
	fk_seen_join(s->seen, fk_queue.host);
	fk_seen_of(event->seen, s);
	fk_queue.records++;
	fk_after(s);
	fk_leave();
	return cudaSuccess;
}

/* addr2line -fe PROGRAM decodes the numbers. */
static void tell_where(void)
{
	void *frame[8];

	fprintf(stderr, "fake GPU: wait %llu is forgotten:\n", (unsigned long long)fk_queue.drop);
	backtrace_symbols_fd(frame, backtrace(frame, FK_LEN(frame)), 2);
}

/* For the last record that there is now; without one there is nothing to wait for. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
	struct CUstream_st *s;

	(void)flags;
	if (!event)
		return fk_error(cudaErrorInvalidResourceHandle);
	fk_enter();
	s = fk_stream_of(stream);
	if (event->stream && ++fk_queue.waits == fk_queue.drop) {
		tell_where();
	} else if (event->stream) {
		fk_wait_for(s, event->stream - 1, event->at);
		fk_seen_join(s->seen, event->seen);
	}
	fk_leave();
	return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	uint64_t seen[FK_STREAMS];

	if (!event)
		return fk_error(cudaErrorInvalidResourceHandle);
	fk_enter();
	if (event->stream) {
		memcpy(seen, event->seen, sizeof(seen));	/* another thread may record */
		fk_run_until(fk_queue.stream[event->stream - 1], event->at);
		fk_seen_by_host(seen);
	}
	fk_leave();
	return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	cudaError_t rc;

	if (!event)
		return fk_error(cudaErrorInvalidResourceHandle);
	fk_enter();
	rc = event->stream ? ask(fk_queue.stream[event->stream - 1], event->at) : cudaSuccess;
	if (!rc)
		fk_seen_by_host(event->seen);
	fk_leave();
	return rc;
}

static bool is_done(const struct CUevent_st *e)
{
	return fk_queue.stream[e->stream - 1]->done >= e->at;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
	cudaError_t rc = cudaSuccess;

	if (!from || !to || !from->stream || !to->stream)
		return fk_error(cudaErrorInvalidResourceHandle);
	fk_enter();
	if (!is_done(from) || !is_done(to))
		rc = cudaErrorNotReady;
	else
		*ms = (float)((to->time - from->time) * 1e3);
	fk_leave();
	return rc;
}
