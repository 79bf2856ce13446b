/* watch_fall.c -- see watch.h: a rank that stops or dies in a phase. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/run/en_run.h"
#include "libckpt/base/ck_sys.h"
#include "tests/engine/watch.h"

static const char *const phase_name[WATCH_PHASES] = {
	"forward", "backward", "reduce", "gather", "small", "begin", "put", "write", "wait",
	"init", "dup", "finalize",
};

static struct {
	int signal;		/* 0 = this rank does not fall */
	enum watch_phase phase;
	unsigned after, n;
} plan;
static unsigned steps, seen;	/* 'seen' is counted by several threads */

void watch_step(void)
{
	__atomic_fetch_add(&steps, 1, __ATOMIC_SEQ_CST);
}

void watch_pass(enum watch_phase phase)
{
	if (!plan.signal || phase != plan.phase ||
	    __atomic_load_n(&steps, __ATOMIC_SEQ_CST) < plan.after)
		return;
	if (__atomic_add_fetch(&seen, 1, __ATOMIC_SEQ_CST) == plan.n)
		kill(getpid(), plan.signal);
}

static ssize_t (*real_pwrite)(int fd, const void *p, size_t n, off_t off);

static ssize_t pass_write(int fd, const void *p, size_t n, off_t off)
{
	watch_pass(WATCH_WRITE);
	return real_pwrite(fd, p, n, off);
}

/* Before main(): the launcher has set the rank. */
__attribute__((constructor)) static void read_plan(void)
{
	const char *text = getenv("WATCH_FALL");
	unsigned rank, after, n, k = 0;
	char phase[16];
	int32_t self;
	int sig;

	real_pwrite = ck_sys.pwrite;
	ck_sys.pwrite = pass_write;
	if (!text)
		return;
	if (sscanf(text, "%u %d %15s %u %u", &rank, &sig, phase, &after, &n) != 5)
		k = WATCH_PHASES;
	while (k < WATCH_PHASES && strcmp(phase, phase_name[k]))
		k++;
	if (k == WATCH_PHASES) {
		fprintf(stderr, "WATCH_FALL=%s: see tests/engine/watch.h\n", text);
		exit(3);
	}
	en_comm_launched(&self);
	if (self < 0 && getenv("RANK"))
		self = atoi(getenv("RANK"));
	if (self != (int32_t)rank)
		return;
	plan.signal = sig;
	plan.phase = (enum watch_phase)k;
	plan.after = after;
	plan.n = n;
}

/* ---- the parts of a run ---- */

WATCH_WRAP(void, en_layer_forward,
	   (struct en_exec *exec, const struct en_batch *batch, const void *params, const float *x,
	    float *y, float *saved))
{
	watch_pass(WATCH_FORWARD);
	__real_en_layer_forward(exec, batch, params, x, y, saved);
}

WATCH_WRAP(void, en_layer_backward,
	   (struct en_exec *exec, const struct en_batch *batch, const void *params, const float *x,
	    const float *saved, const float *dy, float *dx, float *grads, unsigned flags))
{
	watch_pass(WATCH_BACKWARD);
	__real_en_layer_backward(exec, batch, params, x, saved, dy, dx, grads, flags);
}

WATCH_WRAP(int, en_zero_update,
	   (struct en_zero *z, const struct en_zero_hyper *hyper, uint64_t k, float grad_scale,
	    struct ckpt_err *err))
{
	int rc = __real_en_zero_update(z, hyper, k, grad_scale, err);

	watch_step();
	return rc;
}

WATCH_WRAP(int, ckpt_save_begin,
	   (struct ckpt_saver *sv, const struct ckpt_save_step *step, struct ckpt_err *err))
{
	watch_pass(WATCH_BEGIN);
	return __real_ckpt_save_begin(sv, step, err);
}

WATCH_WRAP(int, ckpt_save_put,
	   (struct ckpt_saver *sv, uint64_t tensor, const char *state, uint64_t first, uint64_t n,
	    const void *p, unsigned flags, struct ckpt_err *err))
{
	watch_pass(WATCH_PUT);
	return __real_ckpt_save_put(sv, tensor, state, first, n, p, flags, err);
}

WATCH_WRAP(int, ckpt_save_wait,
	   (struct ckpt_saver *sv, uint32_t timeout_ms, struct ckpt_saved *out,
	    struct ckpt_err *err))
{
	watch_pass(WATCH_WAIT);
	return __real_ckpt_save_wait(sv, timeout_ms, out, err);
}
