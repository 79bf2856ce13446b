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
#include "libckpt/io/ck_stage.h"
#include "tests/lib/t_dir.h"

#define UNITS 3
#define UNIT 1000

struct scene {
	char *dir, *dst, *partial, *rec;
	struct ckpt_err err;
};

static struct scene open_scene(const char *name)
{
	struct scene s = { .dir = t_dir_new() };

	s.dst = t_fmt("%s/%s", s.dir, name);
	s.partial = t_fmt("%s.zckpt-partial", s.dst);
	s.rec = t_fmt("%s/part-00000.rec", s.partial);
	return s;
}

static void close_scene(struct scene *s)
{
	t_dir_remove(s->dir);
	free(s->dir);
	free(s->dst);
	free(s->partial);
	free(s->rec);
}

static struct ck_stage_opts opts_for(const struct scene *s, bool is_dir)
{
	return (struct ck_stage_opts){
		.dst = s->dst, .is_dir = is_dir, .nparts = 1, .nunits = UNITS,
		.total_bytes = UNITS * UNIT, .plan = { 1, 2 }, .fingerprint = { 3, 4 },
	};
}

static void fill(char *p, uint64_t unit)
{
	memset(p, (int)('a' + unit), UNIT);
}

static void write_unit(struct ck_stage *stage, uint32_t file, uint64_t unit)
{
	char p[UNIT];

	fill(p, unit);
	assert_int_equal(ck_stage_write(stage, file, unit * UNIT, p, UNIT, NULL), 0);
	assert_int_equal(ck_stage_note(stage, unit, ck_hash128(p, UNIT), NULL), 0);
}

/* Begin, and write 'n' units of one file. */
static struct ck_stage *write_some(struct scene *s, const struct ck_stage_opts *o, uint64_t n)
{
	struct ck_stage *stage = NULL;
	uint32_t file;

	ck_err_clear(&s->err);
	if (ck_stage_begin(o, &stage, &s->err))
		fail_msg("begin: %s: %s", s->err.where, s->err.msg);
	assert_int_equal(ck_stage_file(stage, "f", UNITS * UNIT, &file, &s->err), 0);
	for (uint64_t u = o->part; u < n; u += o->nparts)
		write_unit(stage, file, u);
	return stage;
}

static void check_result(const char *path)
{
	size_t n = 0;
	char want[UNIT];
	uint8_t *p = t_file_read(path, &n);

	assert_non_null(p);
	assert_int_equal(n, UNITS * UNIT);
	for (uint64_t u = 0; u < UNITS; u++) {
		fill(want, u);
		assert_memory_equal(p + u * UNIT, want, UNIT);
	}
	free(p);
}

static void finish(struct scene *s, struct ck_stage *stage)
{
	ck_err_clear(&s->err);
	if (ck_stage_end(stage, &s->err) || ck_stage_commit(stage, 0, &s->err))
		fail_msg("%s: %s", s->err.where, s->err.msg);
	assert_true(ck_stage_is_done(stage));
	ck_stage_abort(stage);
	assert_false(t_exists(s->partial));
}

static int begin_fails(struct scene *s, const struct ck_stage_opts *o)
{
	struct ck_stage *stage = NULL;
	int rc;

	ck_err_clear(&s->err);
	rc = ck_stage_begin(o, &stage, &s->err);
	assert_null(stage);
	assert_int_equal(rc, -(int)s->err.code);
	assert_true(s->err.msg[0]);
	return -rc;
}

/* A run that is refused leaves no record of its own, which would keep part 0 out. */
static void parts_are_not_hurt_by_a_run_that_is_refused(void **state)
{
	struct scene s = open_scene("d");
	struct ck_stage_opts o = opts_for(&s, true);
	struct ck_stage *stage, *first;

	(void)state;
	o.nparts = 2;
	o.part = 1;
	stage = write_some(&s, &o, UNITS);
	o.nparts = 1;
	o.part = 0;
	assert_int_equal(begin_fails(&s, &o), CKPT_E_EXISTS);
	assert_false(t_exists(s.rec));
	o.restart = true;
	assert_int_equal(begin_fails(&s, &o), CKPT_E_BUSY);
	o.restart = false;
	o.nparts = 2;
	first = write_some(&s, &o, UNITS);
	assert_int_equal(ck_stage_end(stage, NULL), 0);
	ck_stage_close(stage);
	finish(&s, first);
	close_scene(&s);
}

/* Another one at work in the folder that was just made. */
static int (*real_mkdir)(const char *path, mode_t mode);
static struct scene *let_in;
static struct ck_stage *was_let_in;

static int mkdir_and_let_in(const char *path, mode_t mode)
{
	const struct ck_stage_opts o = opts_for(let_in, true);
	const int rc = real_mkdir(path, mode);

	ck_sys.mkdir = real_mkdir;
	was_let_in = write_some(let_in, &o, UNITS);
	return rc;
}

static void of_two_that_begin_at_once_one_is_refused_and_one_is_whole(void **state)
{
	struct scene s = open_scene("d");
	struct ck_stage_opts o = opts_for(&s, true);

	(void)state;
	let_in = &s;
	real_mkdir = ck_sys.mkdir;
	ck_sys.mkdir = mkdir_and_let_in;
	assert_int_equal(begin_fails(&s, &o), CKPT_E_BUSY);
	finish(&s, was_let_in);
	close_scene(&s);
}

/* --force for a step is about a step, not about all that a trainer writes meanwhile. */
static void a_folder_that_came_meanwhile_is_not_replaced_by_a_step(void **state)
{
	(void)state;
	for (uint32_t parts = 1; parts < 3; parts++) {
		struct scene s = open_scene("root");
		struct ck_stage_opts o = opts_for(&s, true);
		char *in = t_fmt("%s/notes", s.dst);
		struct ck_stage *stage = NULL;
		int rc;

		o.force = true;
		o.step = "step";
		o.nparts = parts;
		for (o.part = 0; o.part < parts; o.part++) {
			stage = write_some(&s, &o, UNITS);
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
		close_scene(&s);
	}
}

/* That nothing can be renamed into it shows before all is written, not after. */
static void a_root_that_cannot_be_written_is_named_first(void **state)
{
	struct scene s = open_scene("root");
	struct ck_stage_opts o = opts_for(&s, true);
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
	close_scene(&s);
}

/* Names that a rename cannot make into the result are taken for what they stand for. */
static void a_link_to_a_folder_and_a_dot_are_that_folder(void **state)
{
	struct scene s = open_scene("real");
	struct ck_stage_opts o = opts_for(&s, true);
	char *link = t_fmt("%s/link", s.dir), *dot = t_fmt("%s/.", s.dst);
	char *in = t_fmt("%s/f", s.dst), *other = t_fmt("%s/link.zckpt-partial", s.dir);
	struct ck_stage *stage;

	(void)state;
	t_dir_make(s.dst);
	assert_int_equal(symlink("real", link), 0);
	o.dst = link;
	stage = write_some(&s, &o, UNITS);
	assert_true(t_exists(s.partial));
	assert_false(t_exists(other));
	finish(&s, stage);
	check_result(in);
	o.force = true;
	finish(&s, write_some(&s, &o, UNITS));
	check_result(in);
	assert_true(t_exists(link));
	/* A process may stand in it. */
	o.dst = dot;
	assert_int_equal(begin_fails(&s, &o), CKPT_E_USAGE);
	o.step = "step";
	stage = write_some(&s, &o, UNITS);
	assert_true(t_exists(s.partial));
	ck_stage_abort(stage);
	check_result(in);
	free(other);
	free(in);
	free(dot);
	free(link);
	close_scene(&s);
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
	struct scene s = open_scene("d");
	struct ck_stage_opts o = opts_for(&s, true);
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
	assert_int_equal(begin_fails(&s, &o), CKPT_E_NOSPACE);
	ck_sys.statvfs = real;
	close_scene(&s);
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
