/*
 * test_torture_verify.c -- verify, and the manifest it writes, when calls to the system fail.
 *
 * If this fails, a full disk or a dying one leaves half a manifest that condemns a whole step, or
 * a run out of memory ends as "whole".
 *
 * Every call of one thread in turn, once and from then on: an error with a sentence or success,
 * nothing held, the manifest absent or whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/run/ck_ckpt.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_step.h"
#include "tests/lib/torture/t_fault.h"

#define MORE_THAN_ENOUGH 20000

struct scene {
	char *dir, *ckpt, *manifest, *tmp;
};

static void open_scene(struct scene *s, const char *fixture)
{
	s->dir = t_step_copy(fixture);
	s->ckpt = t_fmt("%s/ckpt", s->dir);
	s->manifest = t_fmt("%s/global_step3/zckpt-manifest.json", s->ckpt);
	s->tmp = t_fmt("%s.tmp", s->manifest);
}

static void close_scene(struct scene *s)
{
	t_dir_remove(s->dir);
	free(s->dir);
	free(s->ckpt);
	free(s->manifest);
	free(s->tmp);
}

/* 0, or what opening or verifying said; '*errors' counts findings that say "not whole". */
static int verify(const struct scene *s, unsigned flags, int *errors, struct ckpt_verified *v,
		  struct ckpt_err *err)
{
	const struct ckpt_run_opts run = { .size = sizeof(run), .threads = 1 };
	const struct ckpt_verify_opts opts = { sizeof(opts), &run, flags };
	const struct ckpt_open_opts open = { .size = sizeof(open), .threads = 1 };
	const char *path = s->ckpt;
	struct ckpt *ck = NULL;
	int rc = ckpt_open(&path, 1, &open, &ck, err);

	*errors = 0;
	memset(v, 0, sizeof(*v));
	if (!rc)
		rc = ckpt_verify(ck, &opts, v, err);
	if (ck)
		*errors = ck_findings_worst(&ck->findings, CKPT_ERROR) != NULL;
	ckpt_close(ck);
	return rc;
}

/* What stands there is no manifest, or one that the files agree with. */
static void check_manifest(const struct scene *s, long n)
{
	struct ckpt_verified v;
	struct ckpt_err err = { 0 };
	int errors;

	if (verify(s, CKPT_VERIFY_FULL, &errors, &v, &err) || errors)
		fail_msg("after call %ld the step is no longer whole: %s: %s", n, err.where,
			 err.msg);
	assert_int_equal(v.manifest, t_exists(s->manifest));
}

static void torture(const char *fixture, enum t_fault_kind kind, bool on)
{
	struct scene s;
	long n;

	open_scene(&s, fixture);
	for (n = 1; n < MORE_THAN_ENOUGH; n++) {
		struct ckpt_err err = { 0 };
		struct ckpt_verified v;
		bool fired;
		int rc, errors;

		t_dir_remove(s.manifest);
		t_fault_install();
		t_fault_arm(kind, n, on);
		rc = verify(&s, CKPT_VERIFY_WRITE_MANIFEST, &errors, &v, &err);
		fired = t_fault_fired();
		assert_int_equal(t_fault_blocks(), 0);
		assert_int_equal(t_fault_fds(), 0);
		t_fault_remove();
		assert_true(fired || (!rc && !errors));
		if (rc)
			assert_true(err.code == (enum ckpt_code)-rc && err.msg[0]);
		if (!rc && !errors)	/* then everything was done */
			assert_true(v.manifest == 2 && t_exists(s.manifest));
		if (!on)
			assert_false(t_exists(s.tmp));
		if (t_exists(s.manifest) || !fired)
			check_manifest(&s, n);
		if (!fired)
			break;
		t_dir_remove(s.tmp);
	}
	assert_in_range(n, 10, MORE_THAN_ENOUGH - 1);
	print_message("%s: %ld calls\n", fixture, n - 1);
	close_scene(&s);
}

static void a_call_that_fails_is_told(void **state)
{
	(void)state;
	torture("ds0.19.8-z2-bf16-w2", T_FAULT_IO, false);
	torture("ds0.19.8-z3-bf16-w2", T_FAULT_IO, false);
}

static void a_disk_that_dies_or_fills_leaves_no_half_manifest(void **state)
{
	(void)state;
	torture("ds0.19.8-z2-bf16-w2", T_FAULT_IO, true);
	torture("ds0.19.8-z2-bf16-w2", T_FAULT_NOSPACE, true);
}

static void without_memory_nothing_is_called_whole(void **state)
{
	(void)state;
	torture("ds0.19.8-z2-bf16-w2", T_FAULT_MEMORY, false);
	torture("ds0.19.8-z3-bf16-w2", T_FAULT_MEMORY, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_call_that_fails_is_told),
		cmocka_unit_test(a_disk_that_dies_or_fills_leaves_no_half_manifest),
		cmocka_unit_test(without_memory_nothing_is_called_whole),
	};

	t_dir_in_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
