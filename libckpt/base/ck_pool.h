/*
 * ck_pool.h -- run a numbered list of jobs on a few threads.
 *
 * Threads are started for one list and joined before the call returns: no thread
 * of the library outlives a call.  Jobs are handed out in ascending order.  The
 * first failure stops the handing out; jobs already running finish.
 */
#ifndef CK_POOL_H
#define CK_POOL_H

#include "libckpt/base/ck_base.h"

/*
 * One job.  'worker' numbers the thread from 0 and indexes per-thread buffers of
 * the caller.  0 or -code with '*err' filled ('err' is the worker's own).
 */
typedef int (*ck_job_fn)(void *arg, uint64_t job, uint32_t worker, struct ckpt_err *err);

/*
 * Run fn for jobs 0..njobs-1 on up to 'threads' threads (1 = the caller's own).
 * Returns 0, or the code of the failed job with the lowest number, whose '*err' is
 * handed out.  A thread that cannot be started is done without.
 */
int ck_pool_run(uint32_t threads, uint64_t njobs, ck_job_fn fn, void *arg,
		struct ckpt_err *err);

#endif
