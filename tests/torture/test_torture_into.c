/*
 * A step goes into a root that holds others, and every call to the system fails once, in every
 * way it can, or is the last one of its process. If this fails, 'latest' names a step that is
 * not whole, a step that was there is lost, or the same command does not make it good.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_stage.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/torture/t_fault.h"
#include "tests/lib/torture/t_torture.h"

#define NFILES 6

/* What is written: name and contents; "STEP" stands for the step's folder. */
static const char *const file_name[NFILES] = {
	"STEP/a", "STEP/b", "notes", "deep/er/x", "deep/y", "latest",
};

struct scene {
	const char *step;	/* "new", or "old": a step of that name is there */
	bool force, plain;	/* plain: t_fault_plain_renames() */
	enum ckpt_sync sync, wanted;	/* wanted: of the runs that fail */
	char *dir, *dst, *partial;
};

static char *at(const struct scene *s, const char *name)
{
	return !strncmp(name, "STEP/", 5) ? t_fmt("%s/%s/%s", s->dst, s->step, name + 5) :
	       t_fmt("%s/%s", s->dst, name);
}

static void contents(const struct scene *s, uint32_t i, char *out, size_t n)
{
	if (i == NFILES - 1)
		snprintf(out, n, "%s", s->step);
	else
		snprintf(out, n, "new contents of %s", file_name[i]);
}

static bool is_text(const char *path, const char *want)
{
	size_t n = 0;
	uint8_t *p = t_file_read(path, &n);
	const bool same = p && n == strlen(want) && !memcmp(p, want, n);

	free(p);
	return same;
}

static void put(const struct scene *s, const char *name, const char *text)
{
	char *path = t_fmt("%s/%s", s->dst, name);

	t_file_write(path, text, strlen(text));
	free(path);
}

static bool has(const struct scene *s, const char *name, const char *text)
{
	char *path = t_fmt("%s/%s", s->dst, name);
	const bool yes = is_text(path, text);

	free(path);
	return yes;
}

/* The root as it was: two steps and files; 'deep' holds a file of somebody's. */
static void reset(void *arg)
{
	struct scene *s = arg;
	static const char *const dirs[] = { "", "/old", "/other", "/deep" };

	t_dir_remove(s->dst);
	t_dir_remove(s->partial);
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		char *path = t_fmt("%s%s", s->dst, dirs[i]);

		t_dir_make(path);
		free(path);
	}
	put(s, "old/a", "old a");
	put(s, "old/b", "old b");
	put(s, "old/c", "old c");
	put(s, "other/a", "other a");
	put(s, "deep/theirs", "theirs");
	put(s, "latest", "old");
	if (s->force)
		put(s, "notes", "old notes");
	s->sync = s->wanted;
}

static int write_files(const struct scene *s, struct ck_stage *stage, struct ckpt_err *err)
{
	uint32_t number[NFILES];
	char text[64];
	int rc = 0;

	for (uint32_t i = 0; !rc && i < NFILES; i++) {
		char *name = !strncmp(file_name[i], "STEP/", 5) ?
			     t_fmt("%s/%s", s->step, file_name[i] + 5) : t_fmt("%s", file_name[i]);

		contents(s, i, text, sizeof(text));
		rc = ck_stage_file(stage, name, strlen(text), &number[i], err);
		free(name);
	}
	for (uint32_t i = 0; !rc && i < NFILES; i++) {
		contents(s, i, text, sizeof(text));
		rc = ck_stage_write(stage, number[i], 0, text, strlen(text), err);
		if (!rc)
			rc = ck_stage_note(stage, i, ck_hash128(text, strlen(text)), err);
	}
	return rc;
}

/* A step of that name is in the way unless 'force' is on, as a verb would find. */
static int check(void *arg, struct ckpt_err *err)
{
	const struct scene *s = arg;
	char *path = t_fmt("%s/%s", s->dst, s->step);
	struct stat st;
	const bool there = !ck_sys.lstat(path, &st);

	free(path);
	return there && !s->force ? ck_fail(err, CKPT_E_EXISTS, s->dst, 0, "it is there") : 0;
}

static int place(void *arg, bool *done_out, struct ckpt_err *err)
{
	struct scene *s = arg;
	const struct ck_stage_opts o = {
		.dst = s->dst, .is_dir = true, .force = s->force, .nparts = 1, .nunits = NFILES,
		.total_bytes = 100, .plan = { 1, 2 }, .fingerprint = { 3, 4 },
		.sync = s->sync, .step = s->step, .check = check, .check_arg = s,
	};
	struct ck_stage *stage = NULL;
	int rc = ck_stage_begin(&o, &stage, err);

	if (!rc && !ck_stage_is_done(stage)) {
		rc = write_files(s, stage, err);
		if (!rc)
			rc = ck_stage_end(stage, err);
		if (!rc)
			rc = ck_stage_commit(stage, 0, err);
	}
	*done_out = stage && ck_stage_is_done(stage);
	ck_stage_abort(stage);
	return rc;
}

static bool step_is_new(const struct scene *s)
{
	char *c = t_fmt("%s/%s/c", s->dst, s->step);
	bool yes = !t_exists(c);

	for (uint32_t i = 0; i < 2 && yes; i++) {
		char *path = at(s, file_name[i]), text[64];

		contents(s, i, text, sizeof(text));
		yes = is_text(path, text);
		free(path);
	}
	free(c);
	return yes;
}

static bool old_is_old(const struct scene *s)
{
	return has(s, "old/a", "old a") && has(s, "old/b", "old b") && has(s, "old/c", "old c");
}

/* What nobody may touch. */
static bool rest_stands(const struct scene *s)
{
	return has(s, "other/a", "other a") && has(s, "deep/theirs", "theirs") &&
	       (strcmp(s->step, "old") ? old_is_old(s) : true);
}

/* 'latest' names a step that is whole: the old one or the new one. */
static bool is_readable(const struct scene *s)
{
	if (!rest_stands(s))
		return false;
	if (!strcmp(s->step, "old"))
		return has(s, "latest", "old") && (old_is_old(s) || step_is_new(s));
	return has(s, "latest", "old") || (has(s, "latest", "new") && step_is_new(s));
}

/* As if it had never begun. */
static bool is_untouched(const struct scene *s)
{
	char *path = t_fmt("%s/new", s->dst), *x = t_fmt("%s/deep/er", s->dst);
	const bool yes = old_is_old(s) && rest_stands(s) && has(s, "latest", "old") &&
			 !t_exists(path) && !t_exists(x);

	free(path);
	free(x);
	return yes;
}

static void check_success(const struct scene *s)
{
	assert_true(step_is_new(s));
	assert_true(rest_stands(s));
	for (uint32_t i = 2; i < NFILES; i++) {
		char *path = at(s, file_name[i]), text[64];

		contents(s, i, text, sizeof(text));
		assert_true(is_text(path, text));
		free(path);
	}
	assert_false(t_exists(s->partial));
}

/*
 * The same command again. Where all is done but for the removal of the empty partial folder it
 * finds its own step in the way.
 */
static void finish(void *arg, long n)
{
	struct scene *s = arg;
	struct ckpt_err err = { 0 };
	bool done;

	s->sync = CKPT_SYNC_NONE;
	if (place(s, &done, &err)) {
		if (err.code != CKPT_E_EXISTS || s->force)
			fail_msg("after call %ld: %s: %s", n, err.where, err.msg);
	}
	check_success(s);
}

static void open_scene(struct scene *s, bool replace)
{
	s->step = replace ? "old" : "new";
	s->force = replace;
	s->dir = t_dir_new();
	s->dst = t_fmt("%s/root", s->dir);
	s->partial = t_fmt("%s.zckpt-partial", s->dst);
}

static void close_scene(struct scene *s)
{
	t_dir_remove(s->dir);
	free(s->dir);
	free(s->dst);
	free(s->partial);
}

static void failed(void *arg, const struct t_try *t, long n, bool on)
{
	const struct scene *s = arg;

	/* Without an exchange a step that is replaced is away for a moment. */
	if (!s->plain || !on)
		assert_true(is_readable(s));
	if (t->rc && !t->done && !on && !is_untouched(s))
		fail_msg("call %ld left a mixture: %s: %s", n, t->err.where, t->err.msg);
	if (t->rc && !t->done && !on)
		assert_false(t_exists(s->partial));
}

static void killed(void *arg)
{
	const struct scene *s = arg;

	if (!s->plain || !s->force)
		assert_true(is_readable(s));
	assert_true(rest_stands(s));
}

static void torture(enum t_fault_kind kind, bool on, bool replace, bool plain)
{
	struct scene s = {
		.plain = plain, .wanted = plain || on ? CKPT_SYNC_NONE : CKPT_SYNC_DATA,
	};
	struct t_ordeal o = {
		.t = { .work = place, .arg = &s, .plain = plain }, .reset = reset, .failed = failed,
		.finish = finish,
	};

	open_scene(&s, replace);
	t_fail_everywhere(&o, kind, on);
	close_scene(&s);
}

static void every_way(enum t_fault_kind kind, bool on)
{
	torture(kind, on, false, false);
	torture(kind, on, true, false);
	if (kind == T_FAULT_IO)
		torture(kind, on, true, true);
}

static void one_call_that_says_eio_leaves_old_or_new(void **state)
{
	(void)state;
	every_way(T_FAULT_IO, false);
}

static void a_disk_that_dies_leaves_old_or_new(void **state)
{
	(void)state;
	every_way(T_FAULT_IO, true);
}

static void a_disk_that_fills_for_a_moment_leaves_old_or_new(void **state)
{
	(void)state;
	every_way(T_FAULT_NOSPACE, false);
}

static void a_disk_that_is_full_leaves_old_or_new(void **state)
{
	(void)state;
	every_way(T_FAULT_NOSPACE, true);
}

static void memory_that_ends_leaves_old_or_new(void **state)
{
	(void)state;
	every_way(T_FAULT_MEMORY, false);
	every_way(T_FAULT_MEMORY, true);
}

static void kill_everywhere(bool replace, bool plain, bool twice)
{
	struct scene s = {
		.plain = plain, .wanted = plain || twice ? CKPT_SYNC_NONE : CKPT_SYNC_DATA,
	};
	const struct t_ordeal o = {
		.t = { .work = place, .arg = &s }, .reset = reset, .killed = killed,
		.finish = finish,
	};

	open_scene(&s, replace);
	t_kill_everywhere(&o, plain, twice);
	close_scene(&s);
}

static void a_run_killed_at_any_call_is_finished_by_the_next(void **state)
{
	(void)state;
	kill_everywhere(false, false, false);
	kill_everywhere(true, false, false);
}

static void a_run_killed_twice_is_finished_by_the_third(void **state)
{
	(void)state;
	kill_everywhere(false, false, true);
	kill_everywhere(true, false, true);
}

static void a_run_killed_on_a_plain_file_system_loses_nothing(void **state)
{
	(void)state;
	kill_everywhere(false, true, false);
	kill_everywhere(true, true, false);
	kill_everywhere(true, true, true);
}

/* ck_stage_settle() alone brings the end about, too. */
static void what_a_killed_run_began_is_settled(void **state)
{
	struct scene s = { .wanted = CKPT_SYNC_NONE };
	const struct t_try t = { .work = place, .arg = &s };
	bool settled = false, ever = false;
	int rc = 9;

	(void)state;
	open_scene(&s, false);
	t_fault_install();
	for (long n = 1; rc == 9; n++) {
		struct ckpt_err err = { 0 };

		t_fault_arm(T_FAULT_KILL, 0, false);
		reset(&s);
		rc = t_try_dying(&t, n);
		t_fault_arm(T_FAULT_KILL, 0, false);
		assert_int_equal(ck_stage_settle(s.dst, CKPT_SYNC_NONE, NULL, &settled, &err), 0);
		assert_true(is_readable(&s));
		if (settled)
			check_success(&s);
		else if (has(&s, "latest", "new"))
			assert_false(t_exists(s.partial) && rc == 0);
		ever |= settled;
	}
	t_fault_remove();
	assert_true(ever);
	close_scene(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_call_that_says_eio_leaves_old_or_new),
		cmocka_unit_test(a_disk_that_dies_leaves_old_or_new),
		cmocka_unit_test(a_disk_that_fills_for_a_moment_leaves_old_or_new),
		cmocka_unit_test(a_disk_that_is_full_leaves_old_or_new),
		cmocka_unit_test(memory_that_ends_leaves_old_or_new),
		cmocka_unit_test(a_run_killed_at_any_call_is_finished_by_the_next),
		cmocka_unit_test(a_run_killed_twice_is_finished_by_the_third),
		cmocka_unit_test(a_run_killed_on_a_plain_file_system_loses_nothing),
		cmocka_unit_test(what_a_killed_run_began_is_settled),
	};

	t_dir_in_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
