/*
 * The thread pool. If this fails, a job is left out or done twice, or the failure that is told
 * changes from run to run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_pool.h"

#define JOBS 1000

struct count {
	_Atomic int done[JOBS];
	_Atomic uint32_t most;
	uint64_t fail_from;
};

static int count_job(void *arg, uint64_t job, uint32_t worker, struct ckpt_err *err)
{
	struct count *c = arg;

	(void)err;
	atomic_fetch_add(&c->done[job], 1);
	if (worker > atomic_load(&c->most))
		atomic_store(&c->most, worker);
	return 0;
}

static void every_job_is_done_once_by_a_worker_that_exists(void **state)
{
	(void)state;
	for (uint32_t threads = 0; threads < 9; threads++) {
		struct count c = { .fail_from = JOBS };
		struct ckpt_err err = { 0 };

		assert_int_equal(ck_pool_run(threads, JOBS, count_job, &c, &err), 0);
		for (int i = 0; i < JOBS; i++)
			assert_int_equal(atomic_load(&c.done[i]), 1);
		assert_true(c.most < (threads ? threads : 1));
		assert_int_equal(err.code, CKPT_OK);
	}
	assert_int_equal(ck_pool_run(4, 0, count_job, NULL, NULL), 0);
}

/* Later jobs fail at once, the first of them late. */
static int fail_late(void *arg, uint64_t job, uint32_t worker, struct ckpt_err *err)
{
	const struct count *c = arg;
	const struct timespec nap = { .tv_nsec = 3000000 };

	(void)worker;
	if (job < c->fail_from)
		return 0;
	if (job == c->fail_from)
		nanosleep(&nap, NULL);
	return ck_fail(err, CKPT_E_CORRUPT, "job", job, "job %d failed", (int)job);
}

static void the_failure_of_the_lowest_job_is_told(void **state)
{
	(void)state;
	for (uint64_t from = 0; from < 40; from++) {
		struct count c = { .fail_from = from };
		struct ckpt_err err = { 0 };

		assert_int_equal(ck_pool_run(4, JOBS, fail_late, &c, &err), -CKPT_E_CORRUPT);
		assert_int_equal(err.offset, from);
		assert_int_equal(ck_pool_run(4, JOBS, fail_late, &c, NULL), -CKPT_E_CORRUPT);
	}
}

static int fail_first(void *arg, uint64_t job, uint32_t worker, struct ckpt_err *err)
{
	(void)worker;
	atomic_fetch_add(&((struct count *)arg)->done[job], 1);
	return ck_fail(err, CKPT_E_IO, NULL, 0, "no");
}

static void nothing_new_begins_after_a_failure(void **state)
{
	struct count c = { .fail_from = 0 };
	int begun = 0;

	(void)state;
	assert_int_equal(ck_pool_run(3, JOBS, fail_first, &c, NULL), -CKPT_E_IO);
	for (int i = 0; i < JOBS; i++)
		begun += atomic_load(&c.done[i]);
	assert_in_range(begun, 1, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_job_is_done_once_by_a_worker_that_exists),
		cmocka_unit_test(the_failure_of_the_lowest_job_is_told),
		cmocka_unit_test(nothing_new_begins_after_a_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
