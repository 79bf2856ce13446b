/*
 * en_cuda_wait.c -- waiting for the GPU, when it may be waiting for a rank that has died.
 *
 * NCCL's kernels wait for the others forever, and so would a thread that waits for them.  Here
 * the thread polls the GPU, NCCL and the table of collectives in turn.  Most often one of them
 * knows a rank that has died; a rank that is stopped, or hangs, is noticed when the deadline of
 * the table has passed.  Then the ranks call a barrier of the host's, and those that do not
 * arrive are named.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "engine/comm/en_watchdog.h"
#include "engine/zero/cuda/en_cuda_priv.h"
#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define YIELDS 200u		/* turns, before naps */
#define NAP 50000		/* ns */
#define ASK_EVERY 16u		/* turns between questions to NCCL and the table */
#define CALL_MS 10000u		/* for the others to answer a call */
#define ABORT_MS 5000

static void nap(void *turns, long ns)
{
	const struct timespec time = { .tv_nsec = NAP };
	unsigned *n = turns;

	(void)ns;
	if ((*n)++ < YIELDS)
		sched_yield();
	else
		nanosleep(&time, NULL);
}

/* ---- calls that may never return, on a thread that can be abandoned ---- */

struct task {
	void (*run)(struct task *task);
	int device;
	ncclComm_t nccl;
	ncclUniqueId id;
	ncclConfig_t config;
	int size, rank;
	ncclResult_t said;
	int state;		/* 1: done; 2: abandoned, and freed by the thread */
};

static void *run_task(void *arg)
{
	struct task *t = arg;
	int expected = 0;

	cudaSetDevice(t->device);
	t->run(t);
	if (!__atomic_compare_exchange_n(&t->state, &expected, 1, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE))
		ck_free(t);
	return NULL;
}

/* 0: begun. */
static int begin_task(struct task *t)
{
	pthread_t thread;
	int rc = ck_sys.thread(&thread, run_task, t);

	if (!rc)
		pthread_detach(thread);
	return rc;
}

static bool is_done(struct task *t)
{
	return __atomic_load_n(&t->state, __ATOMIC_ACQUIRE) == 1;
}

/* It is not waited for any more; true if it was done meanwhile. */
static bool leave_task(struct task *t)
{
	int expected = 0;

	return !__atomic_compare_exchange_n(&t->state, &expected, 2, false, __ATOMIC_ACQ_REL,
					    __ATOMIC_ACQUIRE);
}

static void run_abort(struct task *t)
{
	t->said = ncclCommAbort(t->nccl);
}

/* What NCCL has on the GPU ends, so that nothing of this process waits for it forever. */
static void abort_nccl(struct en_cuda *c)
{
	struct task *t = c->nccl ? ck_zalloc(sizeof(*t)) : NULL;
	const int64_t until = ck_clock_ms() + ABORT_MS;
	unsigned turns = 0;

	c->lost = true;
	if (!t)
		return;
	t->run = run_abort;
	t->device = (int)c->cuda.device;
	t->nccl = c->nccl;
	c->nccl = NULL;
	if (begin_task(t)) {
		ck_free(t);
		return;
	}
	while (!is_done(t) && ck_clock_ms() < until)
		nap(&turns, 0);
	if (is_done(t) || leave_task(t))
		ck_free(t);
}

/* ---- who is it? ---- */

/* The caller reports the ranks of this machine that are stopped or gone. */
static int fail_hung(struct en_cuda *c, const char *what, struct ckpt_err *err)
{
	struct en_comm *comm = c->z.comm;
	const uint32_t timeout_ms = comm->timeout_ms;
	struct ckpt_err said = { 0 };
	char lost[360];

	en_comm_lost(comm, lost, sizeof(lost));
	if (!lost[0]) {
		comm->timeout_ms = timeout_ms < CALL_MS ? timeout_ms : CALL_MS;
		en_comm_barrier(comm, NULL, &said);
		comm->timeout_ms = timeout_ms;
		if (!said.code)
			snprintf(said.msg, sizeof(said.msg),
				 "all ranks respond, so a GPU or a link between GPUs hangs "
				 "(NCCL_DEBUG=INFO shows more)");
	}
	return ck_fail(err, CKPT_E_IO, "GPU", CKPT_NO_OFFSET,
		       "%s did not complete within %g s%s%.300s", what, timeout_ms / 1000.0,
		       said.msg[0] ? "; " : "", said.msg);
}

static int fail_nccl(struct en_cuda *c, ncclResult_t said, const char *what, struct ckpt_err *err)
{
	const char *last = ncclGetLastError(c->nccl);

	return ck_fail(err, CKPT_E_IO, "NCCL", CKPT_NO_OFFSET, "%s: %s%s%s", what,
		       ncclGetErrorString(said), last && *last ? ": " : "", last ? last : "");
}

/* What is known of the others, without waiting. */
static int ask_others(struct en_cuda *c, const char *what, struct ckpt_err *err)
{
	struct en_collective *none = NULL;
	ncclResult_t said = ncclSuccess;
	int rc = en_comm_test(c->z.comm, &none, err);

	if (rc || !c->nccl || ncclCommGetAsyncError(c->nccl, &said) != ncclSuccess ||
	    said == ncclSuccess || said == ncclInProgress)
		return rc;
	return fail_nccl(c, said, what, err);
}

struct wait {
	struct en_watchdog watchdog;
	unsigned turns, naps;
};

/* One turn of waiting. */
static int rest(struct en_cuda *c, struct wait *w, const char *what, struct ckpt_err *err)
{
	const uint32_t most = c->z.comm->timeout_ms;
	int rc = 0;

	if (++w->turns % ASK_EVERY == 0)
		rc = ask_others(c, what, err);
	if (rc)
		return rc;
	en_watchdog_rest(&w->watchdog, false);
	if (most && w->watchdog.silent > (int64_t)most * 1000000)
		return fail_hung(c, what, err);
	return 0;
}

static void begin_wait(struct wait *w)
{
	w->turns = w->naps = 0;
	en_watchdog_begin(&w->watchdog, nap, &w->naps);
}

/* ---- for the GPU ---- */

static cudaError_t ask(cudaStream_t stream, cudaEvent_t event)
{
	const cudaError_t e = event ? cudaEventQuery(event) : cudaStreamQuery(stream);

	/* it is remembered as the last error, and is none */
	if (e == cudaErrorNotReady)
		cudaGetLastError();
	return e;
}

int en_cuda_wait(struct en_cuda *c, cudaStream_t stream, cudaEvent_t event, const char *what,
		 struct ckpt_err *err)
{
	struct wait w;
	cudaError_t e;
	int rc = 0;

	if (c->lost)
		return ck_fail(err, CKPT_E_IO, "GPU", CKPT_NO_OFFSET,
			       "%s cannot complete: a peer rank has exited", what);
	if (c->z.comm->size == 1)
		return en_cuda_cuda((int)(event ? cudaEventSynchronize(event) :
					  cudaStreamSynchronize(stream)), what, err);
	begin_wait(&w);
	while (!rc && (e = ask(stream, event)) != cudaSuccess) {
		if (e != cudaErrorNotReady)
			return en_cuda_cuda((int)e, what, err);
		rc = rest(c, &w, what, err);
	}
	if (rc)
		abort_nccl(c);
	return rc;
}

static bool is_idle(cudaStream_t stream)
{
	return !stream || ask(stream, NULL) != cudaErrorNotReady;
}

bool en_cuda_drain(struct en_cuda *c)
{
	const int64_t until = ck_clock_ms() + CALL_MS;
	unsigned turns = 0;

	if (c->lost)
		return false;
	if (c->z.comm->size == 1 && c->work && c->move) {
		cudaStreamSynchronize(c->work);
		cudaStreamSynchronize(c->move);
	}
	while (!is_idle(c->work) || !is_idle(c->move)) {
		if (c->z.comm->broken.code || ck_clock_ms() > until) {
			abort_nccl(c);
			return false;
		}
		nap(&turns, 0);
	}
	return true;
}

/* ---- for the ranks ---- */

static void run_join(struct task *t)
{
	t->said = ncclCommInitRankConfig(&t->nccl, t->size, t->id, t->rank, &t->config);
}

int en_cuda_join_nccl(struct en_cuda *c, const ncclUniqueId *id, const ncclConfig_t *config,
		      struct ckpt_err *err)
{
	static const char what[] = "joining the ranks";
	struct task *t = ck_zalloc(sizeof(*t));
	struct wait w;
	int rc;

	if (!t)
		return ck_fail_nomem(err, what, sizeof(*t));
	t->run = run_join;
	t->device = (int)c->cuda.device;
	t->id = *id;
	t->config = *config;
	t->size = (int)c->z.comm->size;
	t->rank = (int)c->z.comm->rank;
	rc = begin_task(t);
	if (rc) {
		ck_free(t);
		return ck_fail(err, CKPT_E_NOMEM, "NCCL", CKPT_NO_OFFSET,
			       "%s: cannot start a thread", what);
	}
	begin_wait(&w);
	while (!rc && !is_done(t))
		rc = rest(c, &w, what, err);
	if (rc && !leave_task(t)) {
		c->lost = true;
		return rc;
	}
	c->nccl = t->nccl;
	if (!rc)
		rc = en_cuda_nccl(c, t->said, what, err);
	ck_free(t);
	return rc;
}
