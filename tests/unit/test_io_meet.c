/*
 * What stands at a destination, and who else is there, when a result is staged. If this fails,
 * runs that meet harm each other, somebody's folder is replaced, or a run that could have known
 * fails when all is written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_stage.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_stage.h"

/* A run that is refused leaves no record of its own, which would keep part 0 out. */
static void parts_are_not_hurt_by_a_run_that_is_refused(void **state)
{
	struct t_scene s = t_scene_open("d");
	struct ck_stage_opts o = t_stage_opts(&s, true);
	struct ck_stage *stage, *first;

	(void)state;
	o.nparts = 2;
	o.part = 1;
	stage = t_stage_some(&s, &o, T_UNITS);
	o.nparts = 1;
	o.part = 0;
	assert_int_equal(t_stage_begin_fails(&s, &o), CKPT_E_EXISTS);
	assert_false(t_exists(s.rec));
	o.restart = true;
	assert_int_equal(t_stage_begin_fails(&s, &o), CKPT_E_BUSY);
	o.restart = false;
	o.nparts = 2;
	first = t_stage_some(&s, &o, T_UNITS);
	assert_int_equal(ck_stage_end(stage, NULL), 0);
	ck_stage_close(stage);
	t_stage_finish(&s, first);
	t_scene_close(&s);
}

/* Another one at work in the folder that was just made. */
static int (*real_mkdir)(const char *path, mode_t mode);
static struct t_scene *let_in;
static struct ck_stage *was_let_in;

static int mkdir_and_let_in(const char *path, mode_t mode)
{
	const struct ck_stage_opts o = t_stage_opts(let_in, true);
	const int rc = real_mkdir(path, mode);

	ck_sys.mkdir = real_mkdir;
	was_let_in = t_stage_some(let_in, &o, T_UNITS);
	return rc;
}

static void of_two_that_begin_at_once_one_is_refused_and_one_is_whole(void **state)
{
	struct t_scene s = t_scene_open("d");
	struct ck_stage_opts o = t_stage_opts(&s, true);

	(void)state;
	let_in = &s;
	real_mkdir = ck_sys.mkdir;
	ck_sys.mkdir = mkdir_and_let_in;
	assert_int_equal(t_stage_begin_fails(&s, &o), CKPT_E_BUSY);
	t_stage_finish(&s, was_let_in);
	t_scene_close(&s);
}

/* --force for a step is about a step, not about all that a trainer writes meanwhile. */
static void a_folder_that_came_meanwhile_is_not_replaced_by_a_step(void **state)
{
	(void)state;
	for (uint32_t parts = 1; parts < 3; parts++) {
		struct t_scene s = t_scene_open("root");
		struct ck_stage_opts o = t_stage_opts(&s, true);
		char *in = t_fmt("%s/notes", s.dst);
		struct ck_stage *stage = NULL;
		int rc;

		o.force = true;
		o.step = "step";
		o.nparts = parts;
		for (o.part = 0; o.part < parts; o.part++) {
			stage = t_stage_some(&s, &o, T_UNITS);
			assert_int_equal(ck_stage_end(stage, NULL), 0);
			if (parts > 1)
				ck_stage_close(stage);
		}
		t_dir_make(s.dst);
		t_file_write(in, "x", 1);
		ck_err_clear(&s.err);
		rc = parts > 1 ? ck_stage_finish(s.dst, 0, CKPT_SYNC_NONE, NULL, &s.err) :
		     ck_stage_commit(stage, 0, &s.err);
		assert_int_equal(rc, -CKPT_E_EXISTS);
		assert_true(t_exists(in));
		if (parts == 1)
			ck_stage_abort(stage);
		free(in);
		t_scene_close(&s);
	}
}

/* That nothing can be renamed into it shows before all is written, not after. */
static void a_root_that_cannot_be_written_is_named_first(void **state)
{
	struct t_scene s = t_scene_open("root");
	struct ck_stage_opts o = t_stage_opts(&s, true);
	char *in = t_fmt("%s/notes", s.dst);
	int status;
	pid_t pid;

	(void)state;
	o.step = "step";
	t_dir_make(s.dst);
	t_file_write(in, "x", 1);
	assert_int_equal(chmod(s.dst, 0555), 0);
	if (!geteuid())
		assert_int_equal(chown(s.dir, 65534, 65534), 0);
	pid = fork();
	if (!pid) {
		struct ck_stage *stage = NULL;

		if (!geteuid() && setuid(65534))
			_exit(9);
		ck_stage_begin(&o, &stage, &s.err);
		_exit((int)s.err.code);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), CKPT_E_IO);
	assert_false(t_exists(s.partial));
	chmod(s.dst, 0777);
	free(in);
	t_scene_close(&s);
}

/* Names that a rename cannot make into the result are taken for what they stand for. */
static void a_link_to_a_folder_and_a_dot_are_that_folder(void **state)
{
	struct t_scene s = t_scene_open("real");
	struct ck_stage_opts o = t_stage_opts(&s, true);
	char *link = t_fmt("%s/link", s.dir), *dot = t_fmt("%s/.", s.dst);
	char *in = t_fmt("%s/f", s.dst), *other = t_fmt("%s/link.zckpt-partial", s.dir);
	struct ck_stage *stage;

	(void)state;
	t_dir_make(s.dst);
	assert_int_equal(symlink("real", link), 0);
	o.dst = link;
	stage = t_stage_some(&s, &o, T_UNITS);
	assert_true(t_exists(s.partial));
	assert_false(t_exists(other));
	t_stage_finish(&s, stage);
	t_stage_result(in);
	o.force = true;
	t_stage_finish(&s, t_stage_some(&s, &o, T_UNITS));
	t_stage_result(in);
	assert_true(t_exists(link));
	/* A process may stand in it. */
	o.dst = dot;
	assert_int_equal(t_stage_begin_fails(&s, &o), CKPT_E_USAGE);
	o.step = "step";
	stage = t_stage_some(&s, &o, T_UNITS);
	assert_true(t_exists(s.partial));
	ck_stage_abort(stage);
	t_stage_result(in);
	free(other);
	free(in);
	free(dot);
	free(link);
	t_scene_close(&s);
}

static uint64_t disk_left;

static int statvfs_of_a_small_disk(const char *path, struct statvfs *st)
{
	(void)path;
	memset(st, 0, sizeof(*st));
	st->f_blocks = 1 << 20;
	st->f_frsize = 1;
	st->f_bavail = disk_left;
	return 0;
}

/* Every part takes the space of all files, and in a step they lie in folders. */
static void space_that_is_taken_already_is_not_asked_for_again(void **state)
{
	int (*const real)(const char *path, struct statvfs *st) = ck_sys.statvfs;
	struct t_scene s = t_scene_open("d");
	struct ck_stage_opts o = t_stage_opts(&s, true);
	struct ck_stage *stage = NULL;
	static char bytes[300 << 10];
	uint32_t file;

	(void)state;
	memset(bytes, 1, sizeof(bytes));
	o.total_bytes = sizeof(bytes);
	o.nparts = 2;
	ck_sys.statvfs = statvfs_of_a_small_disk;
	disk_left = sizeof(bytes);
	assert_int_equal(ck_stage_begin(&o, &stage, &s.err), 0);
	assert_int_equal(ck_stage_file(stage, "step/deep/f", sizeof(bytes), &file, &s.err), 0);
	assert_int_equal(ck_stage_write(stage, file, 0, bytes, sizeof(bytes), &s.err), 0);
	ck_stage_close(stage);
	disk_left = 10 << 10;
	o.part = 1;
	if (ck_stage_begin(&o, &stage, &s.err))
		fail_msg("the second part: %s: %s", s.err.where, s.err.msg);
	ck_stage_abort(stage);
	o.total_bytes = 400 << 10;
	assert_int_equal(t_stage_begin_fails(&s, &o), CKPT_E_NOSPACE);
	ck_sys.statvfs = real;
	t_scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts_are_not_hurt_by_a_run_that_is_refused),
		cmocka_unit_test(of_two_that_begin_at_once_one_is_refused_and_one_is_whole),
		cmocka_unit_test(a_folder_that_came_meanwhile_is_not_replaced_by_a_step),
		cmocka_unit_test(a_root_that_cannot_be_written_is_named_first),
		cmocka_unit_test(a_link_to_a_folder_and_a_dot_are_that_folder),
		cmocka_unit_test(space_that_is_taken_already_is_not_asked_for_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
