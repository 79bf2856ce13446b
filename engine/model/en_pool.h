/*
 * en_pool.h -- threads that stay, for the many short parallel regions of a training step.
 *
 * Jobs are cut by the caller independently of the number of threads, and each writes what no other
 * does, so that results do not depend on threads either.
 */
#ifndef EN_POOL_H
#define EN_POOL_H

#include <stddef.h>
#include <stdint.h>

#include <ckpt.h>

struct en_pool;

/* One job.  'thread' numbers the thread from 0 and indexes per-thread memory of the caller. */
typedef void (*en_job_fn)(void *arg, size_t job, uint32_t thread);

/*
 * 'threads' in all, the caller's included; 1 to 256.  CKPT_E_USAGE, CKPT_E_NOMEM, or CKPT_E_IO when
 * the system gives no more threads.
 */
int en_pool_new(uint32_t threads, struct en_pool **pool_out, struct ckpt_err *err);
/* NULL is fine. */
void en_pool_free(struct en_pool *pool);
uint32_t en_pool_threads(const struct en_pool *pool);

/* Runs jobs 0..njobs-1 and returns when all are done.  One caller at a time; no job calls it. */
void en_pool_run(struct en_pool *pool, size_t njobs, en_job_fn fn, void *arg);

/*
 * From now on 'fn' is called on the caller's thread after each of its jobs: for what has to be
 * looked at while others wait.  NULL ends it.
 */
void en_pool_watch(struct en_pool *pool, void (*fn)(void *arg), void *arg);

#endif
