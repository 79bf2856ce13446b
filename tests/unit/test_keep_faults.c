/*
 * audit and the explanation of sizes while every call to the system fails in turn. If this fails,
 * they leak, crash, or give half a list for a whole one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "libckpt/base/ck_sys.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/torture/t_fault.h"
#include "tests/lib/torture/t_torture.h"

static const char *step;

static int audit(uint64_t *found, struct ckpt_err *err)
{
	struct ckpt_audit list = { 0 };
	int rc = ckpt_audit(&step, 1, NULL, &list, err);

	*found = 0;
	for (uint64_t i = 0; i < list.npickles; i++)
		*found += list.pickle[i].nnames + (list.pickle[i].code ? 1000 : 0);
	ckpt_audit_free(&list);
	return rc;
}

static int sizes(uint64_t *found, struct ckpt_err *err)
{
	struct ckpt_open_opts opts = { .size = sizeof(opts), .threads = 1 };
	struct ckpt_sizes list = { 0 };
	struct ckpt *ck = NULL;
	int rc = ckpt_open(&step, 1, &opts, &ck, err);

	*found = 0;
	if (!rc) {
		struct ckpt_info info;

		ckpt_info_get(ck, &info);
		rc = ckpt_sizes_get(ck, &list, err);
		/* a file that could not be read when it was opened is a finding */
		*found = info.nfindings ? 0 : list.bytes;
	}
	ckpt_sizes_free(&list);
	ckpt_close(ck);
	return rc;
}

struct asked {
	int (*verb)(uint64_t *found, struct ckpt_err *err);
	uint64_t found;
};

static int ask(void *arg, bool *done_out, struct ckpt_err *err)
{
	struct asked *a = arg;
	const int rc = a->verb(&a->found, err);

	*done_out = !rc;
	return rc;
}

static void every_call(int (*verb)(uint64_t *found, struct ckpt_err *err))
{
	static const enum t_fault_kind kinds[] = { T_FAULT_IO, T_FAULT_SHORT, T_FAULT_MEMORY };
	struct asked a = { .verb = verb };
	struct t_try t = { .work = ask, .arg = &a };
	struct ckpt_err err = { 0 };
	uint64_t whole;
	long failed = 0;

	assert_int_equal(0, verb(&whole, &err));
	assert_true(whole > 0);
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (long n = 1; ; n++) {
			t_try_armed(&t, kinds[k], n, false);
			failed += t.rc != 0;
			if (!t.fired) {
				assert_int_equal(a.found, whole);
				break;
			}
			assert_true(n < 100000);
		}
	assert_true(failed > 10);
}

static void test_audit(void **state)
{
	(void)state;
	every_call(audit);
}

static void test_sizes(void **state)
{
	(void)state;
	every_call(sizes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_audit),
		cmocka_unit_test(test_sizes),
	};
	const char *root = getenv("ZCKPT_FIXTURES");
	int status;

	step = t_fmt("%s/deepspeed/ds0.19.8-z3-bf16-w2/ckpt/global_step3",
		     root && *root ? root : "build/fixtures");
	if (!t_is_dir(step))
		t_die("no fixtures: %s is not there", step);
	t_fault_install();
	status = cmocka_run_group_tests(tests, NULL, NULL);
	t_fault_remove();
	free((void *)(uintptr_t)step);
	return status;
}
