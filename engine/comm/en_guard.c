/* en_guard.c -- see en_guard.h. */
#include "engine/comm/en_guard.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/base/ck_sys.h"

/* In steps of a second, so that time in which this process was stopped does not count. */
static bool is_over(struct en_guard *g, const char *what)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec++;
	if (g->timeout_ms < 1000) {
		t.tv_sec--;
		t.tv_nsec += (long)g->timeout_ms * 1000000;
		t.tv_sec += t.tv_nsec / 1000000000;
		t.tv_nsec %= 1000000000;
	}
	while (!g->over && g->what == what)
		if (pthread_cond_timedwait(&g->changed, &g->lock, &t) == ETIMEDOUT)
			break;
	return g->over;
}

static void *watch(void *arg)
{
	struct en_guard *g = arg;
	const char *what = NULL;
	uint32_t waited = 0;

	pthread_mutex_lock(&g->lock);
	while (!g->over) {
		waited = what == g->what ? waited : 0;
		what = g->what;
		if (is_over(g, what) || g->what != what)
			continue;
		waited += g->timeout_ms < 1000 ? g->timeout_ms : 1000;
		if (waited < g->timeout_ms)
			continue;
		fprintf(stderr,
			"ztrain: %s: %s did not return within %g s: another rank has died, is "
			"stopped, or is unreachable\n",
			g->who, what, g->timeout_ms / 1e3);
		_exit(1);
	}
	pthread_mutex_unlock(&g->lock);
	return NULL;
}

void en_guard_begin(struct en_guard *g, const char *who, const char *what, uint32_t timeout_ms)
{
	memset(g, 0, sizeof(*g));
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->changed, NULL);
	g->what = what;
	g->timeout_ms = timeout_ms;
	snprintf(g->who, sizeof(g->who), "%s", who);
	g->has_thread = timeout_ms && !ck_thread(&g->thread, watch, g);
}

void en_guard_next(struct en_guard *g, const char *what)
{
	pthread_mutex_lock(&g->lock);
	g->what = what;
	pthread_cond_signal(&g->changed);
	pthread_mutex_unlock(&g->lock);
}

void en_guard_end(struct en_guard *g)
{
	pthread_mutex_lock(&g->lock);
	g->over = true;
	pthread_cond_signal(&g->changed);
	pthread_mutex_unlock(&g->lock);
	if (g->has_thread)
		pthread_join(g->thread, NULL);
	pthread_cond_destroy(&g->changed);
	pthread_mutex_destroy(&g->lock);
}
