/*
 * test_torture_pack.c -- pack and unpack when calls to the system fail, or the process dies.
 *
 * If this fails, a full or dying disk leaves half a pack under its name, an unpacked step lacks a
 * file, or a run that was killed stands in the way of the next one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/archive/t_pack.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/torture/t_torture.h"

#define MORE_THAN_ENOUGH 20000

static const struct t_pack_file files[] = {
	{ "step/a", 70000 }, { "step/b/c", 0 }, { "step/b/d", 1200 }, { "latest", 4 },
};

struct scene {
	struct t_pack t;
	uint8_t *pack;		/* as it must be */
	size_t n;
	char *plain;		/* the same without an index */
};

static void open_scene(struct scene *s)
{
	const struct ckpt_run_opts run = t_pack_run(1);
	struct ckpt_err err = { 0 };

	t_pack_open(&s->t, files, 4);
	assert_int_equal(t_pack_make(&s->t, &run, 1, -1, &err), 0);
	s->pack = t_file_read(s->t.pack, &s->n);
	s->plain = t_fmt("%s/in/plain", s->t.dir);
	t_file_write(s->plain, s->pack, s->n - 9 - 16 - 8 - ck_le32(s->pack + s->n - 9 - 8));
}

static void close_scene(struct scene *s)
{
	free(s->pack);
	free(s->plain);
	t_pack_close(&s->t);
}

static bool is_packed(const struct scene *s)
{
	size_t n;
	uint8_t *p = t_file_read(s->t.pack, &n);
	const bool ok = p && n == s->n && !memcmp(p, s->pack, n);

	free(p);
	return ok;
}

static int pack(void *arg, bool *done_out, struct ckpt_err *err)
{
	struct scene *s = arg;
	struct ckpt_run_opts run = t_pack_run(1);
	int rc;

	run.sync = CKPT_SYNC_FULL;
	rc = t_pack_make(&s->t, &run, 1, -1, err);
	*done_out = !rc;
	return rc;
}

static int unpack_from(struct scene *s, const char *path, bool *done_out, struct ckpt_err *err)
{
	struct ckpt_run_opts run = t_pack_run(1);
	int rc;

	run.sync = CKPT_SYNC_FULL;
	rc = t_pack_unpack(&s->t, path, &run, 0, err);
	*done_out = !rc;
	return rc;
}

static int unpack(void *arg, bool *done_out, struct ckpt_err *err)
{
	struct scene *s = arg;

	return unpack_from(s, s->t.pack, done_out, err);
}

static int unpack_plain(void *arg, bool *done_out, struct ckpt_err *err)
{
	struct scene *s = arg;

	return unpack_from(s, s->plain, done_out, err);
}

/* The result stands whole or not at all, also after a run that did without the call that failed. */
static void look_at_pack(struct scene *s, const struct t_try *t)
{
	if (t_exists(s->t.pack))
		assert_true(is_packed(s));
	else
		assert_true(t->rc);
}

static void look_at_out(struct scene *s, const struct t_try *t)
{
	if (t_exists(s->t.out))
		assert_true(t_pack_is_out(&s->t));
	else
		assert_true(t->rc);
}

static void clear(struct scene *s, bool packs)
{
	char *partial = t_fmt("%s.zckpt-partial", packs ? s->t.pack : s->t.out);

	t_dir_remove(packs ? s->t.pack : s->t.out);
	t_dir_remove(partial);
	free(partial);
}

static void torture(int (*work)(void *arg, bool *done, struct ckpt_err *err),
		    enum t_fault_kind kind, bool on)
{
	struct scene s;
	const bool packs = work == pack;
	long n, calls = 0;

	open_scene(&s);
	for (n = 1; n < MORE_THAN_ENOUGH; n++) {
		struct t_try t = { .work = work, .arg = &s };

		clear(&s, packs);
		t_try_failing(&t, kind, n, on);
		if (packs)
			look_at_pack(&s, &t);
		else
			look_at_out(&s, &t);
		if (!t.fired)
			break;
		calls++;
	}
	assert_in_range(n, 20, MORE_THAN_ENOUGH - 1);
	print_message("%s: %ld calls\n", packs ? "pack" : work == unpack ? "unpack" : "plain",
		      calls);
	close_scene(&s);
}

static void a_call_that_fails_is_told(void **state)
{
	(void)state;
	torture(pack, T_FAULT_IO, false);
	torture(unpack, T_FAULT_IO, false);
	torture(unpack_plain, T_FAULT_IO, false);
}

static void a_disk_that_dies_or_fills_leaves_no_half_result(void **state)
{
	(void)state;
	torture(pack, T_FAULT_IO, true);
	torture(pack, T_FAULT_NOSPACE, true);
	torture(unpack, T_FAULT_IO, true);
	torture(unpack, T_FAULT_NOSPACE, true);
	torture(unpack_plain, T_FAULT_NOSPACE, true);
}

static void without_memory_nothing_is_lost(void **state)
{
	(void)state;
	torture(pack, T_FAULT_MEMORY, false);
	torture(unpack, T_FAULT_MEMORY, false);
	torture(unpack_plain, T_FAULT_MEMORY, false);
}

/* Dead at every call in turn; then the same run again. */
static void killed(int (*work)(void *arg, bool *done, struct ckpt_err *err))
{
	const bool packs = work == pack;
	struct scene s;
	long n;

	open_scene(&s);
	t_fault_install();
	for (n = 1; n < MORE_THAN_ENOUGH; n++) {
		struct t_try t = { .work = work, .arg = &s };
		struct ckpt_err err = { 0 };
		bool done;

		clear(&s, packs);
		t_fault_arm(T_FAULT_KILL, 0, false);
		if (!t_try_dying(&t, n))
			break;
		if (packs && t_exists(s.t.pack))
			assert_true(is_packed(&s));
		if (!packs && t_exists(s.t.out))
			assert_true(t_pack_is_out(&s.t));
		/* put into place but for tidying up: then the next run says that it stands there */
		if (work(&s, &done, &err) && err.code != CKPT_E_EXISTS)
			fail_msg("after dying at call %ld: %s: %s", n, err.where, err.msg);
		assert_true(packs ? is_packed(&s) : t_pack_is_out(&s.t));
	}
	t_fault_remove();
	assert_in_range(n, 40, MORE_THAN_ENOUGH - 1);
	print_message("%s: killed %ld times\n", packs ? "pack" : "unpack", n - 1);
	close_scene(&s);
}

static void who_dies_can_be_followed(void **state)
{
	(void)state;
	killed(pack);
	killed(unpack);
	killed(unpack_plain);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_call_that_fails_is_told),
		cmocka_unit_test(a_disk_that_dies_or_fills_leaves_no_half_result),
		cmocka_unit_test(without_memory_nothing_is_lost),
		cmocka_unit_test(who_dies_can_be_followed),
	};

	t_dir_in_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
