/*
 * en_pool.c -- see en_pool.h.
 *
 * A run is announced by raising 'run' under the lock; each worker takes part in every run once and
 * counts itself off.  Job numbers are drawn from one counter.
 */
#include "engine/model/en_pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/en_model_priv.h"

#define MAX_THREADS 256u

struct worker {
	struct en_pool *pool;
	uint32_t number;
	pthread_t thread;
};

struct en_pool {
	pthread_mutex_t lock;
	pthread_cond_t begun, ended;
	uint64_t run;		/* number of the current or last run */
	uint32_t busy;		/* workers still at it */
	bool quit;
	en_job_fn fn;
	void *arg;
	void (*watch)(void *arg);	/* NULL: none */
	void *watch_arg;
	size_t njobs;
	_Atomic size_t next;
	uint32_t nworkers;	/* besides the caller */
	struct worker worker[];
};

static void draw(struct en_pool *pool, uint32_t thread)
{
	for (;;) {
		const size_t job = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);

		if (job >= pool->njobs)
			return;
		pool->fn(pool->arg, job, thread);
		if (!thread && pool->watch)
			pool->watch(pool->watch_arg);
	}
}

static void *work(void *p)
{
	struct worker *w = p;
	struct en_pool *pool = w->pool;
	uint64_t done = 0;

	pthread_mutex_lock(&pool->lock);
	for (;;) {
		while (pool->run == done && !pool->quit)
			pthread_cond_wait(&pool->begun, &pool->lock);
		if (pool->quit)
			break;
		done = pool->run;
		pthread_mutex_unlock(&pool->lock);
		draw(pool, w->number);
		pthread_mutex_lock(&pool->lock);
		if (!--pool->busy)
			pthread_cond_signal(&pool->ended);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

/* Signals are for the program's own thread. */
static int start(struct worker *w)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&w->thread, NULL, work, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}

int en_pool_new(uint32_t threads, struct en_pool **pool_out, struct ckpt_err *err)
{
	struct en_pool *pool;

	if (!threads || threads > MAX_THREADS)
		return en_model_fail(err, CKPT_E_USAGE, "", "%u threads; expected 1 to %u", threads,
				     MAX_THREADS);
	pool = calloc(1, sizeof(*pool) + threads * sizeof(pool->worker[0]));
	if (!pool)
		return en_model_fail(err, CKPT_E_NOMEM, "", "no memory for %u threads", threads);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->begun, NULL);
	pthread_cond_init(&pool->ended, NULL);
	for (uint32_t i = 1; i < threads; i++) {
		struct worker *w = &pool->worker[i - 1];
		int rc;

		*w = (struct worker){ .pool = pool, .number = i };
		rc = start(w);
		if (rc) {
			en_pool_free(pool);
			return en_model_fail(err, CKPT_E_IO, "", "cannot start thread %u of %u: %s",
					     i + 1, threads, strerror(rc));
		}
		pool->nworkers++;
	}
	*pool_out = pool;
	return 0;
}

void en_pool_free(struct en_pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->quit = true;
	pthread_cond_broadcast(&pool->begun);
	pthread_mutex_unlock(&pool->lock);
	for (uint32_t i = 0; i < pool->nworkers; i++)
		pthread_join(pool->worker[i].thread, NULL);
	pthread_cond_destroy(&pool->ended);
	pthread_cond_destroy(&pool->begun);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

uint32_t en_pool_threads(const struct en_pool *pool)
{
	return pool->nworkers + 1;
}

void en_pool_watch(struct en_pool *pool, void (*fn)(void *arg), void *arg)
{
	pool->watch = fn;
	pool->watch_arg = arg;
}

void en_pool_run(struct en_pool *pool, size_t njobs, en_job_fn fn, void *arg)
{
	if (!pool->nworkers || njobs <= 1) {
		for (size_t i = 0; i < njobs; i++) {
			fn(arg, i, 0);
			if (pool->watch)
				pool->watch(pool->watch_arg);
		}
		return;
	}
	pthread_mutex_lock(&pool->lock);
	pool->fn = fn;
	pool->arg = arg;
	pool->njobs = njobs;
	atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
	pool->busy = pool->nworkers;
	pool->run++;
	pthread_cond_broadcast(&pool->begun);
	pthread_mutex_unlock(&pool->lock);
	draw(pool, 0);
	pthread_mutex_lock(&pool->lock);
	while (pool->busy)
		pthread_cond_wait(&pool->ended, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
}
