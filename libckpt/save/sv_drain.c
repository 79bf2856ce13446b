/*
 * sv_drain.c -- what ends the process waits for saves that were committed: exit(), or a signal.
 *
 * A signal handler may do next to nothing, so it wakes a thread, which waits and then lets the
 * signal do what it did before.  A process that was forked has none of these threads, and saves of
 * its parent are not its own: there exit() and the signal do what they did before at once.
 */
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/save/ck_saver.h"

static struct {
	pthread_mutex_t lock;
	struct ckpt_saver *first;
	bool at_exit;
	pid_t pid;		/* a process that was forked has the list, and no threads */
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct {
	sem_t come;
	int sig;
	uint32_t budget_ms;
	struct sigaction before;
	pid_t pid;
	_Atomic int taken;
} drain;

static void settle_all(double until, bool exit_only)
{
	pthread_mutex_lock(&all.lock);
	for (struct ckpt_saver *sv = all.first; sv; sv = sv->next)
		if (!exit_only || (sv->opts.flags & CKPT_SAVER_AT_EXIT))
			ck_saver_settle(sv, until);
	pthread_mutex_unlock(&all.lock);
}

static void at_exit(void)
{
	if (getpid() == all.pid)
		settle_all(0, true);
}

void ck_drain_add(struct ckpt_saver *sv)
{
	pthread_mutex_lock(&all.lock);
	sv->next = all.pid == getpid() ? all.first : NULL;
	all.first = sv;
	all.pid = getpid();
	if ((sv->opts.flags & CKPT_SAVER_AT_EXIT) && !all.at_exit)
		all.at_exit = !atexit(at_exit);
	pthread_mutex_unlock(&all.lock);
}

void ck_drain_remove(struct ckpt_saver *sv)
{
	pthread_mutex_lock(&all.lock);
	for (struct ckpt_saver **at = &all.first; *at; at = &(*at)->next)
		if (*at == sv) {
			*at = sv->next;
			break;
		}
	pthread_mutex_unlock(&all.lock);
}

static void on_signal(int sig)
{
	const int kept = errno;

	if (getpid() == drain.pid) {
		sem_post(&drain.come);
	} else {
		sigaction(sig, &drain.before, NULL);
		raise(sig);
	}
	errno = kept;
}

static void *wait_for_signal(void *arg)
{
	(void)arg;
	while (sem_wait(&drain.come))
		;	/* interrupted */
	settle_all(ck_clock_seconds() + drain.budget_ms / 1e3, false);
	sigaction(drain.sig, &drain.before, NULL);
	kill(getpid(), drain.sig);
	return NULL;
}

int ckpt_saver_drain_on(int sig, uint32_t budget_ms, struct ckpt_err *err)
{
	struct sigaction act;
	pthread_t thread;
	int failed;

	if (atomic_exchange(&drain.taken, 1))
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "a signal is waited for already (%d)", drain.sig);
	drain.sig = sig;
	drain.pid = getpid();
	drain.budget_ms = budget_ms;
	memset(&act, 0, sizeof(act));
	act.sa_handler = on_signal;
	act.sa_flags = SA_RESTART;
	sem_init(&drain.come, 0, 0);
	if (sigaction(sig, &act, &drain.before)) {
		failed = errno;
		drain.taken = 0;
		return ck_fail_sys(err, failed, "wait for", "a signal");
	}
	failed = ck_thread(&thread, wait_for_signal, NULL);
	if (failed) {
		sigaction(sig, &drain.before, NULL);
		drain.taken = 0;
		return ck_fail_sys(err, failed, "start", "a thread that waits for a signal");
	}
	pthread_detach(thread);
	return 0;
}
