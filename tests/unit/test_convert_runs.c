/*
 * How convert runs. If this is wrong, a user loses what stood at the destination, finds half a
 * model under its name after Ctrl-C or a power cut, or a resumed run mixes two models.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_convert.h"

#define MIB ((uint64_t)1 << 20)

static char *dir;	/* fresh for each test */
static char *src, *dst, *file, *partial;
static struct ckpt_convert_opts opts;
static struct ckpt_run_opts run;
static struct ckpt_report report;
static struct ckpt_err err;

/* 36 MiB of output, so ten units or more. */
static const struct t_part large[] = {
	{ .name = "a", .dtype = "BF16", .rows = 3 * MIB, .cols = 2 },
	{ .name = "b", .dtype = "F32", .rows = 2 * MIB },
	{ .name = "c", .dtype = "BF16", .rows = 1 },
	{ .name = "d", .dtype = "F32", .rows = MIB },
	{ .name = NULL },
};

static const struct t_part small[] = {
	{ .name = "w", .dtype = "F32", .rows = 4, .cols = 4 }, { .name = NULL },
};

static int begin(void **state)
{
	(void)state;
	dir = t_dir_new();
	src = t_fmt("%s/in.safetensors", dir);
	dst = t_fmt("%s/out", dir);
	file = t_fmt("%s/out.safetensors", dir);
	partial = t_fmt("%s/out.zckpt-partial", dir);
	memset(&opts, 0, sizeof(opts));
	memset(&run, 0, sizeof(run));
	memset(&report, 0, sizeof(report));
	opts.size = sizeof(opts);
	run.size = sizeof(run);
	opts.run = &run;
	return 0;
}

static int end(void **state)
{
	(void)state;
	ckpt_report_free(&report);
	t_dir_remove(dir);
	free(partial);
	free(file);
	free(dst);
	free(src);
	free(dir);
	return 0;
}

static char *in(const char *folder, const char *name)
{
	return t_fmt("%s/%s", folder, name);
}

static void put(const char *folder, const char *name, const char *text)
{
	char *path = in(folder, name);

	t_file_write(path, text, strlen(text));
	free(path);
}

static void holds(const char *folder, const char *name, const char *text)
{
	size_t n;
	char *path = in(folder, name);
	char *have = (char *)t_file_read(path, &n);

	if (text)
		assert_non_null(have);
	if (text)
		assert_string_equal(have, text);
	else
		assert_null(have);
	free(have);
	free(path);
}

/* ------------------------------------------------------------------ destination */

static void dry_run_reports_the_files_and_writes_none(void **state)
{
	struct ckpt_report real = { 0 };

	(void)state;
	t_convert_source(src, large);
	opts.max_shard_bytes = 10 * MIB;
	opts.flags = CKPT_WRITE_DRY_RUN;
	t_convert(src, dst, &opts, 0, &report, NULL);
	assert_false(t_exists(dst));
	assert_false(t_exists(partial));
	opts.flags = 0;
	t_convert(src, dst, &opts, 0, &real, NULL);
	assert_int_equal(report.nfiles, real.nfiles);
	assert_true(real.nfiles > 2);
	for (uint64_t i = 0; i < real.nfiles; i++) {
		size_t n;
		uint8_t *bytes = t_file_read(real.files[i].path, &n);

		assert_string_equal(report.files[i].path, real.files[i].path);
		assert_int_equal(report.files[i].bytes, n);
		assert_int_equal(real.files[i].bytes, n);
		free(bytes);
	}
	opts.flags = CKPT_WRITE_DRY_RUN;
	t_convert(src, dst, &opts, CKPT_E_EXISTS, NULL, NULL);
	ckpt_report_free(&real);
}

static void what_stands_at_the_destination_is_not_touched_without_force(void **state)
{
	(void)state;
	t_convert_source(src, small);
	t_dir_make(dst);
	put(dst, "model.safetensors", "mine");
	t_file_write(file, "mine", 4);
	t_convert(src, dst, &opts, CKPT_E_EXISTS, NULL, NULL);
	t_convert(src, file, &opts, CKPT_E_EXISTS, NULL, NULL);
	holds(dst, "model.safetensors", "mine");
	holds(dir, "out.safetensors", "mine");
	assert_false(t_exists(partial));
}

static void force_replaces_the_weights_and_keeps_everything_else(void **state)
{
	char *model = in(dst, "model.safetensors");
	struct t_st st;

	(void)state;
	t_convert_source(src, small);
	t_dir_make(dst);
	put(dst, "model.safetensors", "old");
	put(dst, "model-00001-of-00002.safetensors", "old");
	put(dst, "model.safetensors.index.json", "old");
	put(dst, "notes.txt", "mine");
	put(dst, "lora.safetensors", "mine");
	opts.flags = CKPT_WRITE_FORCE;
	t_convert(src, dst, &opts, 0, NULL, NULL);
	t_convert_result(&st, dst, "model.safetensors");
	t_convert_tensor(&st, "w", "F32 [4,4]");
	t_st_close(&st);
	holds(dst, "model-00001-of-00002.safetensors", NULL);
	holds(dst, "model.safetensors.index.json", NULL);
	holds(dst, "notes.txt", "mine");
	holds(dst, "lora.safetensors", "mine");
	t_file_write(file, "old", 3);
	t_convert(src, file, &opts, 0, NULL, NULL);
	t_convert_same_files(model, file);
	free(model);
}

static void states_and_weights_live_side_by_side_under_force(void **state)
{
	const char *all[] = { "all", NULL };

	(void)state;
	t_convert_source(src, small);
	t_dir_make(dst);
	put(dst, "model.safetensors", "mine");
	put(dst, "weight-00001-of-00002.safetensors", "old");
	opts.flags = CKPT_WRITE_FORCE;
	opts.states = all;
	t_convert(src, dst, &opts, 0, NULL, NULL);
	holds(dst, "model.safetensors", "mine");
	holds(dst, "weight-00001-of-00002.safetensors", NULL);
}

static void files_of_trainers_are_not_written(void **state)
{
	char *pt = in(dir, "x.ckpt");

	(void)state;
	t_convert_source(src, small);
	t_convert(src, pt, &opts, CKPT_E_USAGE, NULL, NULL);
	assert_false(t_exists(pt));
	free(pt);
}

static void empty_choice_is_a_wrong_call(void **state)
{
	const char *inc[] = { "nothing*", NULL };
	const struct ckpt_select sel = { .size = sizeof(sel), .include = inc };

	(void)state;
	t_convert_source(src, small);
	opts.select = &sel;
	t_convert(src, dst, &opts, CKPT_E_USAGE, NULL, NULL);
	assert_false(t_exists(dst));
}

/* ------------------------------------------------------------------- auxiliary */

static void configuration_and_tokenizer_come_along_and_weights_do_not(void **state)
{
	char *aux = in(dir, "aux"), *none = in(dir, "none");

	(void)state;
	t_convert_source(src, small);
	put(dir, "config.json", "{\"beside\":1}");
	put(dir, "notes.txt", "no");
	t_convert(src, dst, &opts, 0, NULL, NULL);
	holds(dst, "config.json", "{\"beside\":1}");
	holds(dst, "notes.txt", NULL);
	t_dir_remove(dst);
	t_dir_make(aux);
	put(aux, "config.json", "{}");
	put(aux, "tokenizer.json", "[]");
	put(aux, "model.safetensors", "not this");
	put(aux, "pytorch_model.bin", "not this");
	opts.aux_dir = aux;
	t_convert(src, dst, &opts, 0, NULL, NULL);
	holds(dst, "config.json", "{}");
	holds(dst, "tokenizer.json", "[]");
	holds(dst, "pytorch_model.bin", NULL);
	t_dir_remove(dst);
	opts.aux_dir = none;
	t_convert(src, dst, &opts, CKPT_E_NOTFOUND, NULL, NULL);
	assert_false(t_exists(dst));
	free(aux);
	free(none);
}

/* ----------------------------------------------------------------- interruption */

struct stopper {
	volatile int cancel;
	uint64_t at;		/* bytes */
};

static void stop_at(void *arg, const struct ckpt_progress *p)
{
	struct stopper *s = arg;

	if (p->done_bytes >= s->at)
		__atomic_store_n(&s->cancel, 1, __ATOMIC_RELAXED);
}

static void canceled_run_leaves_nothing_behind(void **state)
{
	struct stopper s = { .at = 6 * MIB };

	(void)state;
	t_convert_source(src, large);
	run.cancel = &s.cancel;
	run.progress = stop_at;
	run.progress_arg = &s;
	t_convert(src, dst, &opts, CKPT_E_CANCELED, NULL, NULL);
	assert_false(t_exists(dst));
	assert_false(t_exists(partial));
}

static void canceled_run_with_much_behind_it_keeps_its_work(void **state)
{
	char *whole = in(dir, "whole");
	char *a = in(dst, "model.safetensors"), *b = in(whole, "model.safetensors");
	struct stopper s = { .at = 6 * MIB };

	(void)state;
	t_convert_source(src, large);
	t_convert(src, whole, &opts, 0, NULL, NULL);
	run.cancel = &s.cancel;
	run.progress = stop_at;
	run.progress_arg = &s;
	run.keep_bytes = 100 * MIB;
	t_convert(src, dst, &opts, CKPT_E_CANCELED, NULL, NULL);
	assert_false(t_exists(partial));
	run.keep_bytes = 4 * MIB;
	s.cancel = 0;
	t_convert(src, dst, &opts, CKPT_E_CANCELED, NULL, NULL);
	assert_false(t_exists(dst));
	assert_true(t_exists(partial));
	/* what an earlier run did is not lost by one that is canceled at once */
	t_convert(src, dst, &opts, CKPT_E_CANCELED, NULL, NULL);
	assert_true(t_exists(partial));
	run.cancel = NULL;
	t_convert(src, dst, &opts, 0, NULL, NULL);
	assert_false(t_exists(partial));
	t_convert_same_files(a, b);
	free(a);
	free(b);
	free(whole);
}

static void killed_at(uint64_t bytes, uint32_t threads)
{
	struct ckpt_convert_opts o = opts;
	struct ckpt_run_opts with = run;

	with.threads = threads;
	o.run = &with;
	t_convert_killed(src, dst, &o, bytes);
	assert_false(t_exists(dst));
	assert_true(t_exists(partial));
}

static void killed_run_is_continued_and_gives_the_same_files(void **state)
{
	char *whole = in(dir, "whole"), *a = in(dst, "model.safetensors");
	char *b = in(whole, "model.safetensors");

	(void)state;
	t_convert_source(src, large);
	t_convert(src, whole, &opts, 0, NULL, NULL);
	for (uint64_t i = 0; i < 8; i++) {
		const uint64_t at = MIB + i / 2 * 9 * MIB;
		const uint32_t threads = 1 + i % 2;

		opts.flags = CKPT_CONVERT_DIGEST * (at > 20 * MIB);
		killed_at(at, threads);
		t_convert(src, dst, &opts, 0, &report, NULL);
		assert_true(report.resumed_bytes >= at / 2);
		assert_true(report.written_bytes > 0 || threads > 1);
		assert_int_equal(report.resumed_bytes + report.written_bytes,
				 report.files[0].bytes);
		if (!opts.flags)
			t_convert_same_files(a, b);
		assert_false(t_exists(partial));
		ckpt_report_free(&report);
		t_dir_remove(dst);
	}
	free(a);
	free(b);
	free(whole);
}

static void bytes_damaged_since_the_kill_are_written_again(void **state)
{
	char *half = in(partial, "data/model.safetensors"), *whole = in(dir, "whole");
	char *a = in(dst, "model.safetensors"), *b = in(whole, "model.safetensors");
	int fd;

	(void)state;
	t_convert_source(src, large);
	t_convert(src, whole, &opts, 0, NULL, NULL);
	killed_at(20 * MIB, 2);
	fd = open(half, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "damage", 6, (off_t)MIB), 6);
	close(fd);
	t_convert(src, dst, &opts, 0, NULL, NULL);
	t_convert_same_files(a, b);
	free(a);
	free(b);
	free(half);
	free(whole);
}

static void another_plan_does_not_continue_a_killed_run(void **state)
{
	(void)state;
	t_convert_source(src, large);
	killed_at(9 * MIB, 2);
	opts.dtype = CKPT_BF16;
	t_convert(src, dst, &opts, CKPT_E_EXISTS, NULL, NULL);
	assert_true(t_exists(partial));
	opts.flags = CKPT_WRITE_RESTART;
	t_convert(src, dst, &opts, 0, &report, NULL);
	assert_int_equal(report.resumed_bytes, 0);
	assert_false(t_exists(partial));
}

/* ------------------------------------------------------------- streams and parts */

static void stream_through_a_pipe_is_the_file_byte_for_byte(void **state)
{
	char *got = in(dir, "got");
	uint8_t buf[65536];
	int fd[2], to, status;
	ssize_t n;
	pid_t pid;

	(void)state;
	t_convert_source(src, large);
	opts.flags = CKPT_CONVERT_NO_SUMS;	/* a stream cannot have any */
	t_convert(src, file, &opts, 0, NULL, NULL);
	opts.flags = 0;
	fflush(NULL);
	assert_int_equal(pipe(fd), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		close(fd[0]);
		opts.out_fd = fd[1];
		run.threads = 3;
		t_convert(src, "-", &opts, 0, NULL, NULL);
		_exit(0);
	}
	close(fd[1]);
	to = open(got, O_WRONLY | O_CREAT, 0600);
	assert_true(to >= 0);
	while ((n = read(fd[0], buf, sizeof(buf))) > 0)
		assert_int_equal(write(to, buf, (size_t)n), n);
	close(to);
	close(fd[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	t_convert_same_files(got, file);
	free(got);
}

static void reader_that_goes_away_is_an_error_and_not_a_hang(void **state)
{
	int fd[2];

	(void)state;
	t_convert_source(src, large);
	assert_int_equal(pipe(fd), 0);
	close(fd[0]);
	signal(SIGPIPE, SIG_IGN);
	opts.out_fd = fd[1];
	run.threads = 3;
	t_convert(src, "-", &opts, CKPT_E_IO, NULL, NULL);
	signal(SIGPIPE, SIG_DFL);
	close(fd[1]);
}

static void parts_make_the_whole_when_they_are_committed(void **state)
{
	char *whole = in(dir, "whole"), *a = in(dst, "model.safetensors");
	char *b = in(whole, "model.safetensors");

	(void)state;
	t_convert_source(src, large);
	t_convert(src, whole, &opts, 0, NULL, NULL);
	opts.nparts = 3;
	for (opts.part = 0; opts.part < 2; opts.part++)
		t_convert(src, dst, &opts, 0, NULL, NULL);
	assert_int_equal(ckpt_commit(dst, 0, CKPT_SYNC_DATA, &err), -CKPT_E_INCOMPLETE);
	assert_non_null(strstr(err.msg, "part 3 of 3"));
	assert_false(t_exists(dst));
	t_convert(src, dst, &opts, 0, NULL, NULL);
	assert_false(t_exists(dst));
	assert_int_equal(ckpt_commit(dst, 0, CKPT_SYNC_DATA, NULL), 0);
	t_convert_same_files(a, b);
	assert_false(t_exists(partial));
	free(a);
	free(b);
	free(whole);
}

static void parts_are_given_up_when_none_is_at_work(void **state)
{
	char *record = in(partial, "part-00002.rec");
	int fd;

	(void)state;
	t_convert_source(src, large);
	assert_int_equal(ckpt_discard(dst, &err), -CKPT_E_NOTFOUND);
	opts.nparts = 3;
	for (opts.part = 1; opts.part < 3; opts.part++)
		t_convert(src, dst, &opts, 0, NULL, NULL);
	/* as a process that is writing holds it */
	fd = open(record, O_RDWR);
	assert_true(fd >= 0 && !flock(fd, LOCK_EX));
	err = (struct ckpt_err){ 0 };
	assert_int_equal(ckpt_discard(dst, &err), -CKPT_E_BUSY);
	assert_string_equal(err.where, record);
	assert_true(t_exists(partial));
	close(fd);
	assert_int_equal(ckpt_discard(dst, NULL), 0);
	assert_false(t_exists(partial));
	assert_false(t_exists(dst));
	free(record);
}

static void digests_need_the_whole_and_a_place_to_go_back_to(void **state)
{
	(void)state;
	t_convert_source(src, small);
	opts.flags = CKPT_CONVERT_DIGEST;
	t_convert(src, "-", &opts, CKPT_E_USAGE, NULL, NULL);
	opts.nparts = 2;
	t_convert(src, dst, &opts, CKPT_E_USAGE, NULL, NULL);
	assert_false(t_exists(partial));
}

/* Options of a caller that was compiled against another version. */
static void option_structs_of_other_versions_are_understood(void **state)
{
	struct { struct ckpt_convert_opts o; uint64_t later; } newer = { 0 };
	struct ckpt *ck;

	(void)state;
	t_convert_source(src, small);
	ck = t_convert_open(src);
	newer.o.size = sizeof(newer);
	newer.o.flags = CKPT_WRITE_DRY_RUN;
	assert_int_equal(ckpt_convert(ck, dst, &newer.o, NULL, NULL), 0);
	newer.later = 1;
	assert_int_equal(ckpt_convert(ck, dst, &newer.o, NULL, &err), -CKPT_E_USAGE);
	newer.o.size = offsetof(struct ckpt_convert_opts, dtype);	/* an early version */
	newer.o.dtype = 12345;
	newer.o.flags = 0;
	assert_int_equal(ckpt_convert(ck, dst, &newer.o, NULL, NULL), 0);
	newer.o.size = 0;
	assert_int_equal(ckpt_convert(ck, dst, &newer.o, NULL, NULL), -CKPT_E_USAGE);
	ckpt_close(ck);
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(dry_run_reports_the_files_and_writes_none),
		T(what_stands_at_the_destination_is_not_touched_without_force),
		T(force_replaces_the_weights_and_keeps_everything_else),
		T(states_and_weights_live_side_by_side_under_force),
		T(files_of_trainers_are_not_written),
		T(empty_choice_is_a_wrong_call),
		T(configuration_and_tokenizer_come_along_and_weights_do_not),
		T(canceled_run_leaves_nothing_behind),
		T(canceled_run_with_much_behind_it_keeps_its_work),
		T(killed_run_is_continued_and_gives_the_same_files),
		T(bytes_damaged_since_the_kill_are_written_again),
		T(another_plan_does_not_continue_a_killed_run),
		T(stream_through_a_pipe_is_the_file_byte_for_byte),
		T(reader_that_goes_away_is_an_error_and_not_a_hang),
		T(parts_make_the_whole_when_they_are_committed),
		T(parts_are_given_up_when_none_is_at_work),
		T(digests_need_the_whole_and_a_place_to_go_back_to),
		T(option_structs_of_other_versions_are_understood),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
