/* ck_pool.c -- see ck_pool.h. */
#include "libckpt/base/ck_pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define MAX_THREADS 256

struct pool {
	ck_job_fn fn;
	void *arg;
	uint64_t njobs;
	_Atomic uint64_t next;
	_Atomic bool stop;
	pthread_mutex_t lock;	/* guards the two below */
	uint64_t failed_job;
	int failed_rc;
	struct ckpt_err err;
};

struct worker {
	struct pool *pool;
	uint32_t number;
	pthread_t thread;
};

static void note_failure(struct pool *pool, uint64_t job, int rc, const struct ckpt_err *err)
{
	pthread_mutex_lock(&pool->lock);
	if (!pool->failed_rc || job < pool->failed_job) {
		pool->failed_rc = rc;
		pool->failed_job = job;
		pool->err = *err;
	}
	pthread_mutex_unlock(&pool->lock);
	atomic_store(&pool->stop, true);
}

static void *work(void *p)
{
	struct worker *w = p;
	struct pool *pool = w->pool;

	while (!atomic_load(&pool->stop)) {
		const uint64_t job = atomic_fetch_add(&pool->next, 1);
		struct ckpt_err err = { 0 };
		int rc;

		if (job >= pool->njobs)
			break;
		rc = pool->fn(pool->arg, job, w->number, &err);
		if (rc)
			note_failure(pool, job, rc, &err);
	}
	return NULL;
}

int ck_pool_run(uint32_t threads, uint64_t njobs, ck_job_fn fn, void *arg,
		struct ckpt_err *err)
{
	struct pool pool = { .fn = fn, .arg = arg, .njobs = njobs };
	struct worker w[MAX_THREADS];
	uint32_t n = 0;

	if (threads > MAX_THREADS)
		threads = MAX_THREADS;
	if (threads > njobs)
		threads = (uint32_t)njobs;
	pthread_mutex_init(&pool.lock, NULL);
	for (uint32_t i = 1; i < threads; i++) {
		w[n + 1] = (struct worker){ .pool = &pool, .number = n + 1 };
		if (ck_thread(&w[n + 1].thread, work, &w[n + 1]))
			break;
		n++;
	}
	w[0] = (struct worker){ .pool = &pool };
	work(&w[0]);
	for (uint32_t i = 1; i <= n; i++)
		pthread_join(w[i].thread, NULL);
	pthread_mutex_destroy(&pool.lock);
	if (pool.failed_rc && err && !err->code)
		*err = pool.err;
	return pool.failed_rc;
}
