/*
 * The commit protocol step by step (test_torture_stage.c kills it everywhere). If this fails,
 * two runs mix their output, a damaged record is believed, or files of an earlier plan get into
 * a result.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_stage.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_stage.h"

static void leave_killed(struct t_scene *s, const struct ck_stage_opts *o, uint64_t n)
{
	ck_stage_close(t_stage_some(s, o, n));
}

static void the_result_appears_whole_at_the_end(void **state)
{
	struct t_scene s = t_scene_open("f");
	struct ck_stage_opts o = t_stage_opts(&s, false);
	struct ck_stage *stage = t_stage_some(&s, &o, T_UNITS);

	(void)state;
	assert_false(t_exists(s.dst));
	assert_int_equal(ck_stage_end(stage, NULL), 0);
	assert_false(t_exists(s.dst));
	assert_int_equal(ck_stage_commit(stage, 0, NULL), 0);
	ck_stage_abort(stage);
	t_stage_result(s.dst);
	assert_false(t_exists(s.partial));
	t_scene_close(&s);
}

static void abort_leaves_nothing(void **state)
{
	struct t_scene s = t_scene_open("d");
	struct ck_stage_opts o = t_stage_opts(&s, true);

	(void)state;
	ck_stage_abort(t_stage_some(&s, &o, 2));
	assert_false(t_exists(s.dst) || t_exists(s.partial));
	ck_stage_abort(NULL);
	t_scene_close(&s);
}

static void a_killed_run_is_continued_with_its_units(void **state)
{
	struct t_scene s = t_scene_open("f");
	struct ck_stage_opts o = t_stage_opts(&s, false);
	struct ck_hash128 h;
	char p[T_UNIT];
	struct ck_stage *stage;

	(void)state;
	leave_killed(&s, &o, 2);
	stage = t_stage_some(&s, &o, 0);
	t_stage_fill(p, 1);
	assert_true(ck_stage_noted(stage, 1, &h));
	assert_true(ck_hash128_equal(h, ck_hash128(p, T_UNIT)));
	assert_false(ck_stage_noted(stage, 2, &h));
	memset(p, 0, T_UNIT);
	assert_int_equal(ck_stage_read(stage, 0, T_UNIT, p, T_UNIT, NULL), 0);
	assert_int_equal(p[T_UNIT - 1], 'b');
	t_stage_unit(stage, 0, 2);
	t_stage_finish(&s, stage);
	t_stage_result(s.dst);
	t_scene_close(&s);
}

static void a_damaged_entry_ends_the_record(void **state)
{
	struct t_scene s = t_scene_open("f");
	struct ck_stage_opts o = t_stage_opts(&s, false);
	struct ck_hash128 h;
	struct ck_stage *stage;
	uint8_t *p;
	size_t n;

	(void)state;
	leave_killed(&s, &o, 3);
	p = t_file_read(s.rec, &n);
	assert_int_equal(n, 128 + 3 * 40);
	p[128 + 40 + 20] ^= 1;
	t_file_write(s.rec, p, n);
	free(p);
	stage = t_stage_some(&s, &o, 0);
	assert_true(ck_stage_noted(stage, 0, &h));
	assert_false(ck_stage_noted(stage, 1, &h));
	assert_false(ck_stage_noted(stage, 2, &h));
	ck_stage_close(stage);
	/* What stood behind the damage must not come back behind a new entry. */
	free(t_file_read(s.rec, &n));
	assert_int_equal(n, 128 + 40);
	t_scene_close(&s);
}

static void data_beside_a_damaged_header_does_not_get_into_the_result(void **state)
{
	struct t_scene s = t_scene_open("d");
	struct ck_stage_opts o = t_stage_opts(&s, true);
	struct ck_stage *stage;
	char *stray, *result;
	uint8_t *p;
	size_t n;

	(void)state;
	leave_killed(&s, &o, 1);
	stray = t_fmt("%s/data/stray", s.partial);
	t_file_write(stray, "x", 1);
	p = t_file_read(s.rec, &n);
	p[33] ^= 1;
	t_file_write(s.rec, p, n);
	free(p);
	stage = t_stage_some(&s, &o, T_UNITS);
	t_stage_finish(&s, stage);
	free(stray);
	stray = t_fmt("%s/stray", s.dst);
	result = t_fmt("%s/f", s.dst);
	assert_false(t_exists(stray));
	t_stage_result(result);
	free(stray);
	free(result);
	t_scene_close(&s);
}

static void another_plan_or_source_is_refused_until_restart(void **state)
{
	struct t_scene s = t_scene_open("f");
	struct ck_stage_opts o = t_stage_opts(&s, false), other = o;

	(void)state;
	leave_killed(&s, &o, 2);
	other.plan.lo++;
	assert_int_equal(t_stage_begin_fails(&s, &other), CKPT_E_EXISTS);
	assert_non_null(strstr(s.err.msg, "other options"));
	other = o;
	other.fingerprint.hi++;
	assert_int_equal(t_stage_begin_fails(&s, &other), CKPT_E_EXISTS);
	assert_non_null(strstr(s.err.msg, "another source"));
	assert_true(t_exists(s.rec));
	other.restart = true;
	t_stage_finish(&s, t_stage_some(&s, &other, T_UNITS));
	t_stage_result(s.dst);
	t_scene_close(&s);
}

static void a_newer_record_is_refused_by_number(void **state)
{
	struct t_scene s = t_scene_open("f");
	struct ck_stage_opts o = t_stage_opts(&s, false);
	uint8_t *p;
	size_t n;

	(void)state;
	leave_killed(&s, &o, 1);
	p = t_file_read(s.rec, &n);
	p[8] = 7;
	ck_put_le64(p + 120, ck_hash64(p, 120));
	t_file_write(s.rec, p, n);
	free(p);
	assert_int_equal(t_stage_begin_fails(&s, &o), CKPT_E_UNSUPPORTED);
	assert_non_null(strstr(s.err.msg, "version 7"));
	t_scene_close(&s);
}

static void a_living_process_keeps_others_out_and_is_named(void **state)
{
	struct t_scene s = t_scene_open("f");
	struct ck_stage_opts o = t_stage_opts(&s, false);
	int ready[2], status;
	char c, number[32];
	pid_t pid;

	(void)state;
	leave_killed(&s, &o, 1);	/* the pid in the record must not be this one */
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		struct ck_stage *stage;

		if (!ck_stage_begin(&o, &stage, NULL) && write(ready[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	assert_int_equal(t_stage_begin_fails(&s, &o), CKPT_E_BUSY);
	snprintf(number, sizeof(number), "process %d ", (int)pid);
	assert_non_null(strstr(s.err.msg, number));
	o.restart = true;
	assert_int_equal(t_stage_begin_fails(&s, &o), CKPT_E_BUSY);
	o.restart = false;
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	t_stage_finish(&s, t_stage_some(&s, &o, T_UNITS));
	t_stage_result(s.dst);
	close(ready[0]);
	close(ready[1]);
	t_scene_close(&s);
}

/* The folder's lock is held for moments: who holds it for longer must not stop all others. */
static void who_is_stopped_with_the_lock_is_not_waited_for_for_ever(void **state)
{
	struct t_scene s = t_scene_open("d");
	struct ck_stage_opts o = t_stage_opts(&s, true);
	struct ckpt_err err = { 0 };
	struct ck_stage *stage = NULL;
	int fd;

	(void)state;
	o.nparts = 2;
	o.part = 1;
	o.lock_ms = 60;
	assert_int_equal(mkdir(s.partial, 0777), 0);
	fd = open(s.partial, O_RDONLY | O_DIRECTORY);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(ck_stage_begin(&o, &stage, &err), -CKPT_E_BUSY);
	assert_string_equal(err.where, s.partial);
	assert_non_null(strstr(err.msg, "for 60 ms"));
	assert_null(stage);
	assert_false(t_exists(s.rec));
	close(fd);
	assert_int_equal(ck_stage_begin(&o, &stage, NULL), 0);
	ck_stage_abort(stage);
	t_scene_close(&s);
}

static void parts_are_put_together_and_a_missing_one_is_named(void **state)
{
	struct t_scene s = t_scene_open("d");
	struct ck_stage_opts o = t_stage_opts(&s, true);
	struct ck_stage *stage;
	char *result = t_fmt("%s/f", s.dst);

	(void)state;
	o.nparts = 3;
	assert_int_equal(ck_stage_finish(s.dst, 0, CKPT_SYNC_NONE, NULL, NULL), -CKPT_E_NOTFOUND);
	for (o.part = 0; o.part < 2; o.part++) {
		stage = t_stage_some(&s, &o, T_UNITS);
		assert_int_equal(ck_stage_end(stage, NULL), 0);
		ck_stage_close(stage);
	}
	assert_int_equal(ck_stage_finish(s.dst, 10, CKPT_SYNC_NONE, NULL, &s.err),
			 -CKPT_E_INCOMPLETE);
	assert_non_null(strstr(s.err.msg, "part 3 of 3"));
	assert_false(t_exists(s.dst));
	/* Written, but not ended: not yet. */
	stage = t_stage_some(&s, &o, T_UNITS);
	ck_err_clear(&s.err);
	assert_int_equal(ck_stage_finish(s.dst, 0, CKPT_SYNC_NONE, NULL, &s.err),
			 -CKPT_E_INCOMPLETE);
	assert_int_equal(ck_stage_end(stage, NULL), 0);
	ck_stage_close(stage);
	ck_err_clear(&s.err);
	assert_int_equal(ck_stage_finish(s.dst, 0, CKPT_SYNC_FULL, NULL, &s.err), 0);
	t_stage_result(result);
	assert_false(t_exists(s.partial));
	free(result);
	t_scene_close(&s);
}

static void a_part_that_is_continued_has_not_ended(void **state)
{
	struct t_scene s = t_scene_open("d");
	struct ck_stage_opts o = t_stage_opts(&s, true);
	struct ck_stage *stage;

	(void)state;
	o.nparts = 2;
	for (o.part = 0; o.part < 2; o.part++) {
		stage = t_stage_some(&s, &o, T_UNITS);
		assert_int_equal(ck_stage_end(stage, NULL), 0);
		ck_stage_close(stage);
	}
	o.part = 1;
	stage = t_stage_some(&s, &o, 0);
	assert_int_equal(ck_stage_finish(s.dst, 0, CKPT_SYNC_NONE, NULL, &s.err),
			 -CKPT_E_INCOMPLETE);
	ck_stage_abort(stage);	/* the other part is still there */
	assert_true(t_exists(s.rec));
	o.part = 0;
	ck_stage_abort(t_stage_some(&s, &o, 0));
	assert_false(t_exists(s.partial));
	t_scene_close(&s);
}

static void a_part_of_another_run_is_refused(void **state)
{
	struct t_scene s = t_scene_open("d");
	struct ck_stage_opts o = t_stage_opts(&s, true);

	(void)state;
	o.nparts = 2;
	leave_killed(&s, &o, 1);
	o.part = 1;
	o.plan.lo++;
	assert_int_equal(t_stage_begin_fails(&s, &o), CKPT_E_EXISTS);
	assert_true(t_exists(s.rec));
	t_scene_close(&s);
}

static bool is_weights(const char *name, const struct ck_tree *fresh)
{
	(void)fresh;
	return !strcmp(name, "f") || !strcmp(name, "old-weights");
}

static void what_is_there_is_replaced_only_by_force(void **state)
{
	struct t_scene s = t_scene_open("f");
	struct ck_stage_opts o = t_stage_opts(&s, false);
	char *in;

	(void)state;
	t_file_write(s.dst, "old", 3);
	assert_int_equal(t_stage_begin_fails(&s, &o), CKPT_E_EXISTS);
	assert_false(t_exists(s.partial));
	o.force = true;
	t_stage_finish(&s, t_stage_some(&s, &o, T_UNITS));
	t_stage_result(s.dst);
	/* Force does not turn a file into a folder. */
	o.is_dir = true;
	assert_int_equal(t_stage_begin_fails(&s, &o), CKPT_E_EXISTS);
	t_dir_remove(s.dst);
	/* An empty folder is as good as none. */
	o.force = false;
	t_dir_make(s.dst);
	t_stage_finish(&s, t_stage_some(&s, &o, T_UNITS));
	assert_int_equal(t_stage_begin_fails(&s, &o), CKPT_E_EXISTS);
	in = t_fmt("%s/old-weights", s.dst);
	t_file_write(in, "x", 1);
	free(in);
	in = t_fmt("%s/config.json", s.dst);
	t_file_write(in, "x", 1);
	o.force = true;
	o.is_ours = is_weights;
	t_stage_finish(&s, t_stage_some(&s, &o, T_UNITS));
	assert_true(t_exists(in));
	free(in);
	in = t_fmt("%s/old-weights", s.dst);
	assert_false(t_exists(in));
	free(in);
	t_scene_close(&s);
}

static int (*real_rename)(const char *from, const char *to, unsigned flags);
static bool has_exchange;

/* Dies behind the first rename that touches the old folder. */
static int rename_and_die(const char *from, const char *to, unsigned flags)
{
	if (flags && !has_exchange) {
		errno = EINVAL;
		return -1;
	}
	if (!real_rename(from, to, flags))
		_exit(9);
	return -1;
}

/* Leave what a run that replaces a folder leaves when it is killed between its renames. */
static void die_in_replacing(struct t_scene *s, const struct ck_stage_opts *o, bool exchange)
{
	const pid_t pid = fork();
	int status;

	if (!pid) {
		struct ck_stage *stage = t_stage_some(s, o, T_UNITS);

		has_exchange = exchange;
		real_rename = ck_sys.rename;
		ck_sys.rename = rename_and_die;
		ck_stage_end(stage, NULL);
		ck_stage_commit(stage, 0, NULL);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 9);
}

static void restart_loses_no_file_of_a_folder_that_was_being_replaced(void **state)
{
	(void)state;
	for (int exchange = 0; exchange < 2; exchange++) {
		struct t_scene s = t_scene_open("d");
		struct ck_stage_opts o = t_stage_opts(&s, true);
		char *config = t_fmt("%s/config.json", s.dst);

		t_dir_make(s.dst);
		t_file_write(config, "x", 1);
		o.force = true;
		o.is_ours = is_weights;
		die_in_replacing(&s, &o, exchange);
		assert_false(t_exists(config));
		o.plan.lo++;
		o.restart = true;
		ck_stage_abort(t_stage_some(&s, &o, 1));
		assert_true(t_exists(config));
		assert_false(t_exists(s.partial));
		free(config);
		t_scene_close(&s);
	}
}

static void a_link_where_output_goes_is_not_followed(void **state)
{
	struct t_scene s = t_scene_open("f");
	struct ck_stage_opts o = t_stage_opts(&s, false);
	char *home = t_fmt("%s/home", s.dir), *file = t_fmt("%s/home/file", s.dir);

	(void)state;
	t_dir_make(home);
	t_file_write(file, "x", 1);
	assert_int_equal(symlink(home, s.partial), 0);
	o.restart = true;
	t_stage_begin_fails(&s, &o);
	o.restart = false;
	assert_int_equal(t_stage_begin_fails(&s, &o), CKPT_E_EXISTS);
	assert_true(t_exists(file));
	free(home);
	free(file);
	t_scene_close(&s);
}

static void a_disk_too_small_is_said_before_anything_is_written(void **state)
{
	struct t_scene s = t_scene_open("f");
	struct ck_stage_opts o = t_stage_opts(&s, false);

	(void)state;
	o.total_bytes = (uint64_t)1 << 60;
	assert_int_equal(t_stage_begin_fails(&s, &o), CKPT_E_NOSPACE);
	assert_false(t_exists(s.partial));
	t_scene_close(&s);
}

static void a_missing_parent_is_made_and_unmade(void **state)
{
	struct t_scene s = t_scene_open("no/such/f");
	struct ck_stage_opts o = t_stage_opts(&s, false);
	char *above = t_fmt("%s/no", s.dir);
	struct ck_stage *stage;

	(void)state;
	assert_int_equal(ck_stage_begin(&o, &stage, NULL), 0);
	assert_true(t_exists(s.partial));
	ck_stage_abort(stage);
	assert_false(t_exists(above));
	o.dst = "/";
	assert_int_equal(t_stage_begin_fails(&s, &o), CKPT_E_USAGE);
	free(above);
	t_scene_close(&s);
}

/* With a file where a folder above should be, nothing is made. */
static void a_file_above_is_named(void **state)
{
	struct t_scene s = t_scene_open("file/such/f");
	struct ck_stage_opts o = t_stage_opts(&s, false);
	char *file = t_fmt("%s/file", s.dir);

	(void)state;
	t_file_write(file, "x", 1);
	assert_int_equal(t_stage_begin_fails(&s, &o), CKPT_E_EXISTS);
	assert_non_null(strstr(s.err.where, "/file"));
	free(file);
	t_scene_close(&s);
}

static void many_files_are_written_with_few_descriptors(void **state)
{
	struct t_scene s = t_scene_open("d");
	struct ck_stage_opts o = t_stage_opts(&s, true);
	const struct rlimit few = { 64, 1024 };
	struct rlimit before;
	struct ck_stage *stage;
	uint32_t file;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(ck_stage_begin(&o, &stage, NULL), 0);
	for (uint32_t i = 0; i < 200; i++) {
		char *name = t_fmt("f%03u", i);

		assert_int_equal(ck_stage_file(stage, name, 8, &file, &s.err), 0);
		assert_int_equal(file, i);
		free(name);
	}
	for (uint32_t i = 0; i < 200; i++)
		assert_int_equal(ck_stage_write(stage, i * 7 % 200, 0, &i, 4, &s.err), 0);
	t_stage_finish(&s, stage);
	for (uint32_t i = 0; i < 200; i++) {
		char *path = t_fmt("%s/f%03u", s.dst, i * 7 % 200);
		size_t n;
		uint8_t *p = t_file_read(path, &n);

		assert_int_equal(n, 8);
		assert_memory_equal(p, &i, 4);
		free(p);
		free(path);
	}
	setrlimit(RLIMIT_NOFILE, &before);
	t_scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_result_appears_whole_at_the_end),
		cmocka_unit_test(abort_leaves_nothing),
		cmocka_unit_test(a_killed_run_is_continued_with_its_units),
		cmocka_unit_test(a_damaged_entry_ends_the_record),
		cmocka_unit_test(data_beside_a_damaged_header_does_not_get_into_the_result),
		cmocka_unit_test(another_plan_or_source_is_refused_until_restart),
		cmocka_unit_test(a_newer_record_is_refused_by_number),
		cmocka_unit_test(a_living_process_keeps_others_out_and_is_named),
		cmocka_unit_test(who_is_stopped_with_the_lock_is_not_waited_for_for_ever),
		cmocka_unit_test(parts_are_put_together_and_a_missing_one_is_named),
		cmocka_unit_test(a_part_that_is_continued_has_not_ended),
		cmocka_unit_test(a_part_of_another_run_is_refused),
		cmocka_unit_test(what_is_there_is_replaced_only_by_force),
		cmocka_unit_test(restart_loses_no_file_of_a_folder_that_was_being_replaced),
		cmocka_unit_test(a_link_where_output_goes_is_not_followed),
		cmocka_unit_test(a_disk_too_small_is_said_before_anything_is_written),
		cmocka_unit_test(a_missing_parent_is_made_and_unmade),
		cmocka_unit_test(a_file_above_is_named),
		cmocka_unit_test(many_files_are_written_with_few_descriptors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
