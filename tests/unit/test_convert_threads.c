/*
 * How many threads convert uses.  If this is wrong, the result depends on them, or threads that
 * cannot help keep the cores of a training busy.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <sys/vfs.h>

#include "libckpt/base/ck_sys.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_convert.h"

#define MIB ((uint64_t)1 << 20)
#define TMPFS 0x01021994

static char *dir, *src, *one, *other;
static struct ckpt_run_opts run;
static struct ckpt_convert_opts opts;
static struct ckpt_report report;

/* 36 MiB of output. */
static const struct t_part large[] = {
	{ .name = "a", .dtype = "BF16", .rows = 3 * MIB, .cols = 2 },
	{ .name = "b", .dtype = "F32", .rows = 2 * MIB },
	{ .name = "c", .dtype = "BF16", .rows = 1 },
	{ .name = "d", .dtype = "F32", .rows = MIB },
	{ .name = NULL },
};

/* 'one' is the result of one thread. */
static int begin(void **state)
{
	(void)state;
	dir = t_dir_new();
	src = t_fmt("%s/in.safetensors", dir);
	one = t_fmt("%s/one.safetensors", dir);
	other = t_fmt("%s/other.safetensors", dir);
	run = (struct ckpt_run_opts){ .size = sizeof(run), .threads = 1 };
	opts = (struct ckpt_convert_opts){ .size = sizeof(opts), .run = &run };
	report = (struct ckpt_report){ 0 };
	t_convert_source(src, large);
	t_convert(src, one, &opts, 0, NULL, NULL);
	return 0;
}

static int end(void **state)
{
	(void)state;
	ckpt_report_free(&report);
	t_dir_remove(dir);
	free(other);
	free(one);
	free(src);
	free(dir);
	return 0;
}

static void threads_and_memory_do_not_change_the_result(void **state)
{
	(void)state;
	run.threads = 7;
	run.mem_limit = MIB;
	t_convert(src, other, &opts, 0, &report, NULL);
	assert_true(report.threads < 7);	/* seven buffers need more */
	t_convert_same_files(one, other);
}

static struct ck_sys real;
static _Atomic unsigned populated;

static int statfs_of_memory(const char *path, struct statfs *st)
{
	const int rc = real.statfs(path, st);

	st->f_type = TMPFS;
	return rc;
}

static int count_populate(void *p, size_t n)
{
	populated++;
	return real.populate(p, n);
}

/* Several threads write it through a map; more than eight would only wait. */
static void one_file_in_memory_takes_eight_threads(void **state)
{
	(void)state;
	real = ck_sys;
	ck_sys.statfs = statfs_of_memory;
	ck_sys.populate = count_populate;
	run.threads = 16;
	t_convert(src, other, &opts, 0, &report, NULL);
	ck_sys = real;
	assert_int_equal(report.threads, 8);
	assert_true(populated > 36);
	t_convert_same_files(one, other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(threads_and_memory_do_not_change_the_result, begin,
						end),
		cmocka_unit_test_setup_teardown(one_file_in_memory_takes_eight_threads, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
