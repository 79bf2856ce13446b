/*
 * Sources and their shared descriptors. If this fails, a step of thousands of ranks stops at
 * "too many open files", or bytes of a file that was replaced meanwhile get into the result.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/ck_pool.h"
#include "libckpt/io/ck_src.h"
#include "tests/lib/fs/t_dir.h"

#define FILES 300
#define INTS 64

static int read_one(void *arg, uint64_t job, uint32_t worker, struct ckpt_err *err)
{
	struct ck_src **src = arg;
	const uint64_t file = job * 7 % FILES, at = job % (INTS - 1);
	uint64_t v[2];
	int rc = ck_src_read(src[file], at * 8, v, 16, err);

	(void)worker;
	if (!rc && (v[0] != file * 1000 + at || v[1] != v[0] + 1))
		rc = -CKPT_E_CORRUPT;
	return rc;
}

static void three_hundred_files_are_read_by_threads_with_eight_descriptors(void **state)
{
	const struct rlimit few = { 40, 1024 };
	struct rlimit before;
	struct ckpt_err err = { 0 };
	struct ck_fdpool *pool = ck_fdpool_new(8);
	struct ck_src *src[FILES];
	char *dir = t_dir_new();

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	for (uint64_t i = 0; i < FILES; i++) {
		char *path = t_fmt("%s/%d", dir, (int)i);
		uint64_t v[INTS];

		for (uint64_t k = 0; k < INTS; k++)
			v[k] = i * 1000 + k;
		t_file_write(path, v, sizeof(v));
		assert_int_equal(ck_src_open(pool, path, &src[i], &err), 0);
		assert_int_equal(ck_src_size(src[i]), sizeof(v));
		assert_string_equal(ck_src_name(src[i]), path);
		free(path);
	}
	assert_int_equal(ck_pool_run(12, 6000, read_one, src, &err), 0);
	assert_int_equal(ck_fdpool_bytes(pool), 6000 * 16);
	for (int i = 0; i < FILES; i++)
		ck_src_close(src[i]);
	ck_fdpool_free(pool);
	setrlimit(RLIMIT_NOFILE, &before);
	t_dir_remove(dir);
	free(dir);
}

static void a_limit_lower_than_the_pool_is_lived_with(void **state)
{
	const struct rlimit few = { 20, 1024 };
	struct rlimit before;
	struct ckpt_err err = { 0 };
	struct ck_fdpool *pool = ck_fdpool_new(0);
	struct ck_src *src[50];
	char *dir = t_dir_new();

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	for (int i = 0; i < 50; i++) {
		char *path = t_fmt("%s/%d", dir, i);

		/* The test itself needs one to write. */
		if (i < 5)
			t_file_write(path, "x", 1);
		else
			assert_int_equal(symlink("0", path), 0);
		assert_int_equal(ck_src_open(pool, path, &src[i], &err), 0);
		free(path);
	}
	for (int i = 0; i < 50; i++)
		ck_src_close(src[i]);
	ck_fdpool_free(pool);
	setrlimit(RLIMIT_NOFILE, &before);
	t_dir_remove(dir);
	free(dir);
}

static void reading_beyond_the_end_names_both_numbers(void **state)
{
	struct ckpt_err err = { 0 };
	struct ck_src *src;
	char p[8];

	(void)state;
	assert_int_equal(ck_src_mem("abcdef", 6, "name", &src, NULL), 0);
	assert_int_equal(ck_src_read(src, 2, p, 4, NULL), 0);
	assert_memory_equal(p, "cdef", 4);
	assert_int_equal(ck_src_read(src, 6, p, 0, NULL), 0);
	assert_int_equal(ck_src_read(src, 3, p, 4, &err), -CKPT_E_TRUNCATED);
	assert_string_equal(err.where, "name");
	assert_int_equal(err.offset, 3);
	assert_non_null(strstr(err.msg, "4 bytes"));
	assert_non_null(strstr(err.msg, "has 6 bytes"));
	assert_int_equal(ck_src_read(src, UINT64_MAX, p, 2, NULL), -CKPT_E_TRUNCATED);
	ck_src_close(src);
	ck_src_close(NULL);
}

static void what_is_no_file_is_refused(void **state)
{
	struct ck_fdpool *pool = ck_fdpool_new(0);
	char *dir = t_dir_new(), *path = t_fmt("%s/p", dir);
	struct ck_src *src;

	(void)state;
	assert_int_equal(ck_src_open(pool, dir, &src, NULL), -CKPT_E_FORMAT);
	assert_int_equal(ck_src_open(pool, path, &src, NULL), -CKPT_E_NOTFOUND);
	assert_int_equal(mkfifo(path, 0666), 0);
	assert_int_equal(ck_src_open(pool, path, &src, NULL), -CKPT_E_FORMAT);
	ck_fdpool_free(pool);
	t_dir_remove(dir);
	free(path);
	free(dir);
}

/* Opening 'other' closes the first file, for the pool holds one. */
static int read_again(struct ck_fdpool *pool, struct ck_src *src, const char *other,
		      struct ckpt_err *err)
{
	struct ck_src *second;
	char c;

	assert_int_equal(ck_src_open(pool, other, &second, NULL), 0);
	ck_src_close(second);
	return ck_src_read(src, 0, &c, 1, err);
}

static void a_file_that_is_replaced_while_it_is_read_is_noticed(void **state)
{
	struct ck_fdpool *pool = ck_fdpool_new(1);
	char *dir = t_dir_new(), *a = t_fmt("%s/a", dir), *b = t_fmt("%s/b", dir);
	char *c = t_fmt("%s/c", dir);
	struct ckpt_err err = { 0 };
	struct ck_src *src;

	(void)state;
	t_file_write(a, "aaaa", 4);
	t_file_write(b, "bbbb", 4);
	t_file_write(c, "cccc", 4);
	assert_int_equal(ck_src_open(pool, a, &src, NULL), 0);
	assert_int_equal(read_again(pool, src, b, &err), 0);
	t_file_write(a, "aaaaa", 5);
	assert_int_equal(read_again(pool, src, b, &err), -CKPT_E_MISMATCH);
	t_file_write(a, "aaaa", 4);
	assert_int_equal(rename(c, a), 0);
	assert_int_equal(read_again(pool, src, b, NULL), -CKPT_E_MISMATCH);
	ck_src_close(src);
	ck_fdpool_free(pool);
	t_dir_remove(dir);
	free(a);
	free(b);
	free(c);
	free(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(three_hundred_files_are_read_by_threads_with_eight_descriptors),
		cmocka_unit_test(a_limit_lower_than_the_pool_is_lived_with),
		cmocka_unit_test(reading_beyond_the_end_names_both_numbers),
		cmocka_unit_test(what_is_no_file_is_refused),
		cmocka_unit_test(a_file_that_is_replaced_while_it_is_read_is_noticed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
