/*
 * 'latest' is replaced while every call to the system fails in turn. If this fails, the file is
 * lost, or holds neither the old name nor the new one, or something is left beside it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/ck_sys.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/torture/t_fault.h"
#include "tests/lib/torture/t_torture.h"

static char *root;

/* 'root/name' until the next call. */
static const char *in_root(const char *name)
{
	static char path[4096];

	assert_true((size_t)snprintf(path, sizeof(path), "%s/%s", root, name) < sizeof(path));
	return path;
}

static bool names(const char *want)
{
	size_t n = 0;
	uint8_t *p = t_file_read(in_root("latest"), &n);
	const bool same = p && n == strlen(want) && !memcmp(p, want, n);

	free(p);
	return same;
}

static void begin(void)
{
	root = t_dir_new();
	assert_int_equal(0, mkdir(in_root("old"), 0777));
	assert_int_equal(0, mkdir(in_root("new"), 0777));
	t_file_write(in_root("latest"), "old", 3);
}

static void end(void)
{
	t_dir_remove(root);
	free(root);
}

static int set_new(void *arg, bool *done_out, struct ckpt_err *err)
{
	const int rc = ckpt_latest_set(arg, "new", 0, CKPT_SYNC_DATA, err);

	*done_out = !rc;
	return rc;
}

static void test_every_call_fails(void **state)
{
	static const enum t_fault_kind kinds[] = { T_FAULT_IO, T_FAULT_NOSPACE, T_FAULT_SHORT,
						   T_FAULT_MEMORY };
	struct t_try t = { .work = set_new };
	long worked = 0;

	(void)state;
	begin();
	t.arg = root;
	t_fault_install();
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (long n = 1; ; n++) {
			t_try_armed(&t, kinds[k], n, kinds[k] == T_FAULT_SHORT);
			assert_true(names("new") || (t.rc && names("old")));
			assert_int_equal(-1, ck_sys.unlink(in_root("latest.zckpt-new")));
			worked += !t.rc;
			assert_int_equal(0, ckpt_latest_set(root, "old", 0, CKPT_SYNC_NONE, NULL));
			assert_true(names("old"));
			if (!t.fired)
				break;
			assert_true(n < 200);
		}
	t_fault_remove();
	assert_true(worked >= 4);
	end();
}

static void test_names_that_no_loader_finds(void **state)
{
	static const char *const bad[] = { "", " old", "old\t", "old\n", "a/b", "..", ".", "/old" };
	struct ckpt_err err;

	(void)state;
	begin();
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		err = (struct ckpt_err){ 0 };
		assert_int_equal(-CKPT_E_USAGE,
				 ckpt_latest_set(root, bad[i], 0, CKPT_SYNC_NONE, &err));
		assert_non_null(strstr(err.msg, "would not find it"));
	}
	assert_int_equal(-CKPT_E_NOTFOUND,
			 ckpt_latest_set(root, "none", 0, CKPT_SYNC_NONE, NULL));
	assert_true(names("old"));
	/* what a killed run left is in nobody's way */
	t_file_write(in_root("latest.zckpt-new"), "ne", 2);
	assert_int_equal(0, ckpt_latest_set(root, "new", 0, CKPT_SYNC_FULL, NULL));
	assert_true(names("new"));
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_call_fails),
		cmocka_unit_test(test_names_that_no_loader_finds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
