/* See t_torture.h. */
#include "tests/lib/torture/t_torture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/wait.h>
#include <unistd.h>

#define ENOUGH 30	/* calls that any of them makes, at least */
#define MORE_THAN_ENOUGH 5000

static void attempt(struct t_try *t, enum t_fault_kind kind, long n, bool on)
{
	const long blocks = t_fault_blocks(), fds = t_fault_fds();

	t->err = (struct ckpt_err){ 0 };
	t_fault_arm(kind, n, on);
	t->rc = t->work(t->arg, &t->done, &t->err);
	t->fired = t_fault_fired();
	t_fault_arm(kind, 0, false);
	t->blocks = t_fault_blocks() - blocks;
	t->fds = t_fault_fds() - fds;
}

static void check(const struct t_try *t)
{
	assert_int_equal(t->blocks, 0);
	assert_int_equal(t->fds, 0);
	if (!t->fired)
		assert_int_equal(t->rc, 0);
	assert_int_equal(-t->rc, t->err.code);
}

void t_try_failing(struct t_try *t, enum t_fault_kind kind, long n, bool on)
{
	t_fault_install();
	t_fault_plain_renames(t->plain);
	attempt(t, kind, n, on);
	t_fault_plain_renames(false);
	t_fault_remove();
	check(t);
}

void t_try_armed(struct t_try *t, enum t_fault_kind kind, long n, bool on)
{
	attempt(t, kind, n, on);
	check(t);
}

int t_try_dying(const struct t_try *t, long n)
{
	const pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid) {
		struct ckpt_err err = { 0 };
		bool done;

		t_fault_arm(T_FAULT_KILL, n, false);
		_exit(t->work(t->arg, &done, &err) ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

void t_fail_everywhere(struct t_ordeal *o, enum t_fault_kind kind, bool on)
{
	long n;

	for (n = 1; n < MORE_THAN_ENOUGH; n++) {
		o->reset(o->t.arg);
		t_try_failing(&o->t, kind, n, on);
		o->failed(o->t.arg, &o->t, n, on);
		o->finish(o->t.arg, n);
		if (!o->t.fired)
			break;
	}
	assert_in_range(n, ENOUGH, MORE_THAN_ENOUGH - 1);
}

void t_kill_everywhere(const struct t_ordeal *o, bool plain, bool twice)
{
	int rc = 9;
	long n;

	t_fault_install();
	t_fault_plain_renames(plain);
	for (n = 1; rc == 9 && n < MORE_THAN_ENOUGH; n++) {
		t_fault_arm(T_FAULT_KILL, 0, false);
		o->reset(o->t.arg);
		rc = t_try_dying(&o->t, n);
		assert_true(rc == 9 || rc == 0);
		o->killed(o->t.arg);
		if (twice) {
			t_try_dying(&o->t, n / 2 + 1);
			o->killed(o->t.arg);
		}
		t_fault_arm(T_FAULT_KILL, 0, false);
		o->finish(o->t.arg, n);
	}
	t_fault_plain_renames(false);
	t_fault_remove();
	assert_int_equal(rc, 0);
	assert_in_range(n, ENOUGH, MORE_THAN_ENOUGH - 1);
}
