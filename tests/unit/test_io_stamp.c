/*
 * Files that are read, looked at again (ck_stamp.h).  If this fails, a result holds bytes of two
 * saves with status 0, or an honest run is refused because a link was made or a file was only read.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_record.h"
#include "libckpt/io/ck_src.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_stage.h"

/* A file of a pool that keeps one descriptor. */
struct scene {
	char *dir, *a, *b;
	struct ck_fdpool *pool;
	struct ck_src *src;
	struct ckpt_err err;
};

static struct scene open_scene(void)
{
	struct scene s = { .dir = t_dir_new(), .pool = ck_fdpool_new(1) };

	s.a = t_fmt("%s/a", s.dir);
	s.b = t_fmt("%s/b", s.dir);
	t_file_write(s.a, "aaaa", 4);
	t_file_write(s.b, "bbbb", 4);
	assert_int_equal(ck_src_open(s.pool, s.a, &s.src, NULL), 0);
	assert_int_equal(ck_fdpool_check(s.pool, 0, NULL), 0);
	return s;
}

static void close_scene(struct scene *s)
{
	ck_src_close(s->src);
	ck_fdpool_free(s->pool);
	t_dir_end(s->dir);
	free(s->a);
	free(s->b);
}

/* Its descriptor goes to another file. */
static void evict(struct scene *s)
{
	struct ck_src *other;

	assert_int_equal(ck_src_open(s->pool, s->b, &other, NULL), 0);
	ck_src_close(other);
}

static void put_times_back(const char *path, const struct stat *st)
{
	const struct timespec t[2] = { st->st_atim, st->st_mtim };

	assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static void overwrite(const char *path, const char *text)
{
	const int fd = open(path, O_WRONLY);

	assert_int_equal(pwrite(fd, text, strlen(text), 0), (int)strlen(text));
	close(fd);
}

static void refused(struct scene *s, const char *words)
{
	s->err = (struct ckpt_err){ 0 };
	assert_int_equal(ck_fdpool_check(s->pool, 0, &s->err), -CKPT_E_MISMATCH);
	if (!strstr(s->err.msg, words))
		fail_msg("%s has no \"%s\"", s->err.msg, words);
	assert_string_equal(s->err.where, s->a);
}

static void bytes_of_the_same_length_are_noticed(void **state)
{
	struct scene s = open_scene();

	(void)state;
	overwrite(s.a, "AAAA");
	refused(&s, "mtime");
	evict(&s);
	refused(&s, "mtime");
	ck_src_close(s.src);	/* closed, and a source all the same */
	s.src = NULL;
	refused(&s, "mtime");
	assert_int_equal(ck_src_open(s.pool, s.a, &s.src, &s.err), -CKPT_E_MISMATCH);
	close_scene(&s);
}

static unsigned long disk;

static int some_disk(const char *path, struct statfs *st)
{
	(void)path;
	*st = (struct statfs){ 0 };
	memcpy(&st->f_type, &disk, sizeof(st->f_type));
	return 0;
}

/*
 * The second write may come within the tick of the clock in which the file was made.  Where the
 * kernel gives it another time (tmpfs, of late), where it does not, on NFS.
 */
static void a_write_at_once_after_another_is_noticed(void **state)
{
	int (*const was)(const char *path, struct statfs *st) = ck_sys.statfs;
	static const unsigned long kind[] = { 0x01021994, 0xbeef, 0x6969 };

	(void)state;
	ck_sys.statfs = some_disk;
	for (int i = 0; i < 60; i++) {
		struct scene s;

		disk = kind[i % 3];
		s = open_scene();
		overwrite(s.a, "AAAA");
		refused(&s, "mtime");
		close_scene(&s);
	}
	ck_sys.statfs = was;
}

static void an_mtime_that_was_put_back_does_not_help(void **state)
{
	struct scene s = open_scene();
	struct stat st;

	(void)state;
	assert_int_equal(stat(s.a, &st), 0);
	overwrite(s.a, "AAAA");
	put_times_back(s.a, &st);
	refused(&s, "ctime");
	/* its contents are fixed by sums elsewhere, which find such bytes */
	ck_src_known(s.src, CK_KNOWN_SUMS);
	assert_int_equal(ck_fdpool_check(s.pool, 0, NULL), 0);
	overwrite(s.a, "BBBB");
	refused(&s, "mtime");
	close_scene(&s);
}

static void another_file_or_another_size_is_noticed(void **state)
{
	struct scene s = open_scene();
	struct stat st;

	(void)state;
	assert_int_equal(stat(s.a, &st), 0);
	overwrite(s.a, "aaaaaa");
	refused(&s, "had 4 bytes and has 6 now");
	assert_int_equal(rename(s.b, s.a), 0);
	put_times_back(s.a, &st);
	refused(&s, "another file replaced this one");
	close_scene(&s);
}

/* The sanitizers' build falls here if nanoseconds of such a year are counted as they are. */
static void files_may_have_any_time(void **state)
{
	const struct timespec t[2] = { { .tv_sec = INT64_C(13569465600) },
				       { .tv_sec = INT64_C(13569465600) } };	/* 2400 */
	struct scene s = open_scene();

	(void)state;
	assert_int_equal(utimensat(AT_FDCWD, s.a, t, 0), 0);
	refused(&s, "mtime");
	close_scene(&s);
}

static void reading_and_linking_change_nothing(void **state)
{
	struct scene s = open_scene();
	char *c = t_fmt("%s/c", s.dir), buf[4];
	struct timespec t[2] = { { .tv_sec = 1000 }, { .tv_nsec = UTIME_OMIT } };
	struct stat st;

	(void)state;
	assert_int_equal(ck_src_read(s.src, 0, buf, 4, NULL), 0);
	assert_int_equal(ck_fdpool_check(s.pool, 0, NULL), 0);
	assert_int_equal(link(s.a, c), 0);
	assert_int_equal(ck_fdpool_check(s.pool, 0, NULL), 0);
	/* a mode or an atime that somebody sets shows in the ctime alone: better safe */
	assert_int_equal(unlink(c), 0);
	assert_int_equal(stat(s.a, &st), 0);
	assert_int_equal(utimensat(AT_FDCWD, s.a, t, 0), 0);
	refused(&s, "ctime");
	free(c);
	close_scene(&s);
}

static void a_file_that_is_removed_is_there_while_it_is_open(void **state)
{
	struct scene s = open_scene();

	(void)state;
	assert_int_equal(unlink(s.a), 0);
	assert_int_equal(ck_fdpool_check(s.pool, 0, NULL), 0);
	evict(&s);
	refused(&s, "removed or renamed");
	close_scene(&s);
}

static void what_a_changed_source_explains_is_said_so(void **state)
{
	struct scene s = open_scene();

	(void)state;
	assert_int_equal(ck_fdpool_check(s.pool, -CKPT_E_CORRUPT, &s.err), -CKPT_E_CORRUPT);
	overwrite(s.a, "AAAA");
	s.err = (struct ckpt_err){ .code = CKPT_E_CORRUPT };
	assert_int_equal(ck_fdpool_check(s.pool, -CKPT_E_CORRUPT, &s.err), -CKPT_E_MISMATCH);
	assert_int_equal(s.err.code, CKPT_E_MISMATCH);
	s.err = (struct ckpt_err){ .code = CKPT_E_NOSPACE };
	assert_int_equal(ck_fdpool_check(s.pool, -CKPT_E_NOSPACE, &s.err), -CKPT_E_NOSPACE);
	assert_int_equal(s.err.code, CKPT_E_NOSPACE);
	close_scene(&s);
}

/* ---------------------------------------------------------------- results */

/* A scene of staging with a source beside it. */
struct staged {
	struct t_scene t;
	char *source;
	struct ck_fdpool *pool;
};

static struct staged open_staged(void)
{
	struct staged s = { .t = t_scene_open("f") };

	s.source = t_fmt("%s/source", s.t.dir);
	t_file_write(s.source, "aaaa", 4);
	return s;
}

/* As a process that begins now. */
static struct ck_stage_opts look(struct staged *s, uint32_t part, uint32_t nparts)
{
	struct ck_stage_opts o = t_stage_opts(&s->t, false);

	ck_fdpool_free(s->pool);
	s->pool = ck_fdpool_new(0);
	assert_int_equal(ck_src_watch(s->pool, s->source, NULL), 0);
	o.sources = s->pool;
	o.part = part;
	o.nparts = nparts;
	return o;
}

static void close_staged(struct staged *s)
{
	ck_fdpool_free(s->pool);
	free(s->source);
	t_scene_close(&s->t);
}

static void a_killed_run_goes_on_with_the_same_source_only(void **state)
{
	struct staged s = open_staged();
	struct ck_stage_opts o = look(&s, 0, 1);
	struct ck_hash128 h;
	struct ck_stage *stage;

	(void)state;
	ck_stage_close(t_stage_some(&s.t, &o, 2));
	o = look(&s, 0, 1);
	stage = t_stage_some(&s.t, &o, 0);
	assert_true(ck_stage_noted(stage, 1, &h));
	ck_stage_close(stage);
	overwrite(s.source, "AAAA");
	o = look(&s, 0, 1);
	stage = t_stage_some(&s.t, &o, 0);
	assert_false(ck_stage_noted(stage, 0, &h));
	assert_false(ck_stage_noted(stage, 1, &h));
	ck_stage_close(stage);
	close_staged(&s);
}

static void a_source_that_changes_keeps_its_result_from_its_place(void **state)
{
	struct staged s = open_staged();
	struct ck_stage_opts o = look(&s, 0, 1);
	struct ck_stage *stage = t_stage_some(&s.t, &o, T_UNITS);

	(void)state;
	overwrite(s.source, "AAAA");
	assert_int_equal(ck_stage_end(stage, &s.t.err), -CKPT_E_MISMATCH);
	assert_string_equal(s.t.err.where, s.source);
	ck_stage_abort(stage);
	assert_false(t_exists(s.t.dst));
	assert_false(t_exists(s.t.partial));
	close_staged(&s);
}

/* The first of two parts is there; how the second one ends. */
static int second_part(struct staged *s)
{
	struct ck_stage_opts o = look(s, 1, 2);
	struct ck_stage *stage = NULL;
	int rc;

	s->t.err = (struct ckpt_err){ 0 };
	rc = ck_stage_begin(&o, &stage, &s->t.err);
	if (!rc)
		ck_stage_abort(stage);
	return rc;
}

static void parts_are_of_one_source(void **state)
{
	struct staged s = open_staged();
	struct ck_stage_opts o = look(&s, 0, 2);
	char *copy = t_fmt("%s/copy/source", s.t.dir), *was = s.source;
	struct stat st;

	(void)state;
	t_dir_make_in(s.t.dir, "copy");
	assert_int_equal(stat(s.source, &st), 0);
	ck_stage_close(t_stage_some(&s.t, &o, 1));
	assert_int_equal(second_part(&s), 0);
	/* a copy on another machine has another inode and ctime, and may keep the mtime */
	t_dir_copy(s.source, copy);
	s.source = copy;
	put_times_back(copy, &st);
	assert_int_equal(second_part(&s), 0);
	t_file_write(copy, "AAAA", 4);
	assert_int_equal(second_part(&s), -CKPT_E_MISMATCH);
	assert_non_null(strstr(s.t.err.msg, "cp -p"));
	s.source = was;
	overwrite(s.source, "AAAA");
	assert_int_equal(second_part(&s), -CKPT_E_MISMATCH);
	/* the very file with the very mtime, and another ctime */
	put_times_back(s.source, &st);
	assert_int_equal(second_part(&s), -CKPT_E_MISMATCH);
	assert_non_null(strstr(s.t.err.msg, "other ctimes"));
	free(copy);
	close_staged(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_of_the_same_length_are_noticed),
		cmocka_unit_test(a_write_at_once_after_another_is_noticed),
		cmocka_unit_test(an_mtime_that_was_put_back_does_not_help),
		cmocka_unit_test(another_file_or_another_size_is_noticed),
		cmocka_unit_test(files_may_have_any_time),
		cmocka_unit_test(reading_and_linking_change_nothing),
		cmocka_unit_test(a_file_that_is_removed_is_there_while_it_is_open),
		cmocka_unit_test(what_a_changed_source_explains_is_said_so),
		cmocka_unit_test(a_killed_run_goes_on_with_the_same_source_only),
		cmocka_unit_test(a_source_that_changes_keeps_its_result_from_its_place),
		cmocka_unit_test(parts_are_of_one_source),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
