/*
 * What a save finds where its step should go: a step of that name, what a job that was killed left,
 * another job at work.  If this fails, a step that was good is lost for one that fails, a folder
 * fills with what nobody needs, or two jobs write into one step.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_commit.h"
#include "tests/lib/fs/t_calls.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_ranks.h"
#include "tests/lib/ops/t_save_root.h"

/* ---- what stands there already ---- */

static void a_step_is_replaced_as_a_whole(void **state)
{
	struct ckpt_err err = { 0 };
	struct ckpt_save_step *step;
	struct t_ranks r;
	char *extra;

	(void)state;
	t_ranks_open(&r, t_root, 3, T_HELD_EVEN);
	t_ranks_save(&r, "s", CKPT_TO_NATIVE);
	extra = t_fmt("%s/s/of.the.old", t_root);
	t_file_write(extra, "x", 1);
	for (uint32_t i = 0; i < 3; i++)
		t_must_fail(t_save_begin(&r.t, r.sv[i], t_save_step(&r.t, "s", 0, 2, 0), i, &err),
			  &err, CKPT_E_EXISTS, "s: |CKPT_SAVE_FORCE");
	t_step_check(&r.t, "s");
	t_nothing_left(t_root);
	for (int turn = 0; turn < 3; turn++) {	/* again and again: no rank is too early */
		r.t.seed = 8 + (uint64_t)turn;
		step = t_save_step(&r.t, "s", turn ? CKPT_TO_NATIVE : CKPT_TO_DEEPSPEED, 2, 0);
		step->flags = CKPT_SAVE_FORCE;
		for (uint32_t i = 0; i < 3; i++)
			t_must(t_save_begin(&r.t, r.sv[i], step, i, &err), &err);
		for (uint32_t i = 0; i < 3; i++) {
			t_ranks_put(&r, "s", i);
			t_ranks_commit(&r, i);
		}
		for (uint32_t i = 3; i > 0; i--)
			t_must(t_ranks_wait(&r, i - 1, &err), &err);
		t_step_check(&r.t, "s");
		assert_false(t_exists(extra));
		t_nothing_left(t_root);
	}
	free(extra);
	t_ranks_close(&r);
}

/* Fails behind the rename: the step is there, and the sentence says so. */
static void a_failure_behind_the_rename_says_so(void **state)
{
	struct ckpt_err err = { 0 };
	struct t_ranks r;
	char *latest = t_fmt("%s/latest", t_root);

	(void)state;
	t_dir_make(t_root);
	t_dir_make(latest);
	t_ranks_open(&r, t_root, 2, T_HELD_EVEN);
	t_ranks_begin(&r, "s", CKPT_TO_NATIVE, 0, 2);
	for (uint32_t i = 0; i < 2; i++) {
		t_ranks_put(&r, "s", i);
		t_ranks_commit(&r, i);
	}
	t_must_fail(t_ranks_wait(&r, 0, &err), &err, CKPT_E_IO, "latest|step s is in place");
	t_must(t_ranks_wait(&r, 1, &err), &err);
	t_step_check(&r.t, "s");
	rmdir(latest);
	free(latest);
	t_ranks_save(&r, "t", CKPT_TO_NATIVE);
	t_latest_check(t_root, "t");
	t_nothing_left(t_root);
	t_ranks_close(&r);
}

/* ---- leftovers and the living ---- */

/* A job whose processes are killed within a save: its ranks are in a child. */
static void leave(const char *job, const char *tag, uint32_t n)
{
	const pid_t pid = fork();

	if (!pid) {
		struct ckpt_err err = { 0 };
		struct ckpt_saver *sv;

		for (uint32_t i = 0; i < n; i++) {
			struct t_trainer t = {
				.root = t_root, .nranks = n, .job = job, .seed = 99,
			};
			struct ckpt_save_step *s = t_save_step(&t, tag, CKPT_TO_NATIVE, 2, 0);

			if (t_saver(&t, i, &sv, &err) || t_save_begin(&t, sv, s, i, &err) ||
			    t_save_put(&t, sv, s, i, &err) || (i && ckpt_save_commit(sv, &err)) ||
			    (i && ckpt_save_wait(sv, 60, NULL, &err) != -CKPT_E_BUSY))
				_exit(1);
		}
		kill(getpid(), SIGKILL);
	}
	assert_true(pid > 0 && waitpid(pid, NULL, 0) == pid);
}

static void put_file(const char *name)
{
	char *path = t_fmt("%s/%s", t_root, name);

	t_file_write(path, "x", 1);
	free(path);
}

static void take_away(const char *name)
{
	char *path = t_fmt("%s/%s", t_root, name);

	assert_true(t_exists(path));
	t_dir_remove(path);
	free(path);
}

static bool placed;

static void die_when_placed(const char *call, const char *path)
{
	if (placed)
		kill(getpid(), SIGKILL);
	placed = !strcmp(call, "rename") && t_ends_with(path, "/s");
}

/* Killed behind the rename: nothing of the old step, which is set aside, gets into the new one. */
static void a_step_that_was_replaced_is_not_kept(void **state)
{
	struct t_trainer t = { .root = t_root, .nranks = 1 };
	struct ckpt_err err = { 0 };
	char *dst = t_fmt("%s/s", t_root);
	struct ckpt_save_step *s;

	(void)state;
	for (int turn = 0; turn < 2; turn++) {
		pid_t pid;

		t.seed = 0;
		t_must(t_save_all(&t, t_save_step(&t, "s", CKPT_TO_NATIVE, 2, 0), &err), &err);
		t.seed = 1;
		s = t_save_step(&t, "s", CKPT_TO_DEEPSPEED, 2, 0);
		s->flags = CKPT_SAVE_FORCE;
		pid = fork();
		if (!pid) {
			t_calls_watch(die_when_placed);
			_exit(t_save_all(&t, s, &err) ? 1 : 0);
		}
		assert_true(pid > 0 && waitpid(pid, NULL, 0) == pid);
		assert_true(t_is_there(t_root, "s.zckpt-partial"));
		if (turn) {
			t.job = "next";
			t_must(t_save_all(&t, t_save_step(&t, "t", CKPT_TO_NATIVE, 2, 0), &err),
			       &err);
		} else {
			t_must(ckpt_discard(dst, &err), &err);
		}
		t_step_check(&t, "s");
		assert_false(t_is_there(t_root, "s/manifest.json"));
		t_nothing_left(t_root);
		t_dir_remove(t_root);
	}
	free(dst);
}

static void leftovers_are_dropped(void **state)
{
	struct t_ranks r;

	(void)state;
	t_dir_make(t_root);
	for (uint32_t n = 1; n <= 4; n += 3) {
		leave("old job", "a", n);
		leave("old job", "b", n);
		assert_true(t_is_there(t_root, "a.zckpt-partial"));
		/* what a kill leaves of a begin, and of an end */
		t_dir_make_in(t_root, "c.zckpt-partial");
		t_dir_make_in(t_root, "d.zckpt-partial");
		put_file("d.zckpt-partial/part-00001.rec");
		put_file("d.zckpt-partial/put-00001");
		/* of somebody else: a file of that name, and data that no record speaks of */
		put_file("e.zckpt-partial");
		t_dir_make_in(t_root, "f.zckpt-partial");
		put_file("f.zckpt-partial/data");
		t_ranks_open(&r, t_root, 2, T_HELD_EVEN);
		t_ranks_save(&r, "a", CKPT_TO_NATIVE);
		t_step_check(&r.t, "a");
		take_away("e.zckpt-partial");
		take_away("f.zckpt-partial");
		t_nothing_left(t_root);
		t_ranks_close(&r);
		t_dir_remove(t_root);
		t_dir_make(t_root);
	}
}

/* Another job at work at the same step is not disturbed. */
static void a_living_saver_keeps_its_step(void **state)
{
	struct ckpt_err err = { 0 };
	struct t_ranks r;
	struct t_trainer other = {
		.root = t_root, .nranks = 2, .job = "another", .timeout_ms = T_SOON,
	};
	struct t_trainer alone = {
		.root = t_root, .nranks = 1, .job = "third", .timeout_ms = T_SOON,
	};
	struct ckpt_saver *sv;

	(void)state;
	t_ranks_open(&r, t_root, 2, T_HELD_EVEN);
	t_ranks_begin(&r, "s", CKPT_TO_NATIVE, 0, 2);
	for (uint32_t i = 0; i < 3; i++) {
		const struct t_trainer *t = i < 2 ? &other : &alone;

		t_must(t_saver(t, i % 2, &sv, &err), &err);
		t_must_fail(t_save_begin(t, sv, t_save_step(t, "s", CKPT_TO_NATIVE, 2, 0), i % 2,
				       &err), &err, CKPT_E_BUSY, "s.zckpt-partial|process");
		ckpt_saver_free(sv);
	}
	t_must(t_save_all(&other, t_save_step(&other, "t", CKPT_TO_NATIVE, 2, 0), &err), &err);
	for (uint32_t i = 0; i < 2; i++) {
		t_ranks_put(&r, "s", i);
		t_ranks_commit(&r, i);
	}
	t_must(t_ranks_wait(&r, 0, &err), &err);
	t_step_check(&r.t, "s");
	t_nothing_left(t_root);
	t_ranks_close(&r);
}

/* ---- ranks that meet over a leftover ---- */

static struct t_ranks *meeting;
static int locks, comes_at;
static int (*real_flock)(int fd, int op);

/* Rank 1 begins its part of 's', puts all it has and ends it. */
static void end_rank_1(struct t_ranks *r)
{
	const struct timespec nap = { .tv_nsec = 1000000 };
	char *path = t_fmt("%s/s.zckpt-partial/part-00001.rec", t_root);
	struct ck_record_seen seen = { 0 };
	struct ck_record *rec = NULL;
	struct ckpt_err err = { 0 };

	t_must(t_save_begin(&r->t, r->sv[1], t_save_step(&r->t, "s", CKPT_TO_NATIVE, 2, 0),
			    1, &err), &err);
	t_ranks_put(r, "s", 1);
	t_ranks_commit(r, 1);
	for (int i = 0; i < 20000 && !seen.ended; i++) {
		if (!ck_record_claim(path, &rec, &seen, NULL))
			ck_record_close(rec);
		rec = NULL;
		nanosleep(&nap, NULL);
	}
	assert_true(seen.ended);
	free(path);
}

/* The sweep locks the folder to judge it, to settle it and to remove it: then rank 1 comes. */
static int flock_and_let_in(int fd, int op)
{
	struct stat st;

	if (meeting && !fstat(fd, &st) && S_ISDIR(st.st_mode) && ++locks == comes_at) {
		end_rank_1(meeting);
	}
	return real_flock(fd, op);
}

/* Rank 0 judges what a kill left; rank 1 ends its part there before rank 0 takes it away. */
static int meet_at(int lock)
{
	struct ckpt_err err = { 0 };
	struct t_ranks r;

	t_dir_make(t_root);
	leave("old job", "s", 2);
	t_ranks_open(&r, t_root, 2, T_HELD_EVEN);
	real_flock = ck_sys.flock;
	locks = 0;
	comes_at = lock;
	meeting = &r;
	ck_sys.flock = flock_and_let_in;
	t_must(t_save_begin(&r.t, r.sv[0], t_save_step(&r.t, "s", CKPT_TO_NATIVE, 2, 0), 0, &err),
	       &err);
	meeting = NULL;
	ck_sys.flock = real_flock;
	if (locks < lock)
		end_rank_1(&r);
	t_ranks_put(&r, "s", 0);
	t_ranks_commit(&r, 0);
	t_must(t_ranks_wait(&r, 0, &err), &err);
	t_must(t_ranks_wait(&r, 1, &err), &err);
	t_step_check(&r.t, "s");
	t_nothing_left(t_root);
	t_ranks_close(&r);
	t_dir_remove(t_root);
	return locks;
}

static void a_part_that_ended_meanwhile_stays(void **state)
{
	int lock = 2;

	(void)state;
	while (meet_at(lock) >= lock)
		lock++;
	assert_true(lock > 4);
}

/* ---- the lock of a folder that goes ---- */

static int remove_and_lock(int fd, int op)
{
	char *path = t_fmt("%s/s.zckpt-partial", t_root);

	ck_sys.flock = real_flock;
	t_dir_remove(path);
	t_dir_make(path);
	free(path);
	return real_flock(fd, op);
}

/* Another one may lock the folder that is there now: ours must be a lock on that one. */
static void a_lock_is_one_of_the_folder_that_is_there(void **state)
{
	struct ck_commit c = { .dst = NULL };
	char *dst = t_fmt("%s/s", t_root);
	struct stat mine, there;
	int lock = -1, other = -1;

	(void)state;
	t_dir_make(t_root);
	assert_int_equal(ck_commit_init(&c, dst, true, NULL), 0);
	t_dir_make(c.partial);
	real_flock = ck_sys.flock;
	ck_sys.flock = remove_and_lock;
	assert_true(ck_commit_try_lock(&c, &lock));
	assert_true(lock >= 0);
	assert_int_equal(fstat(lock, &mine), 0);
	assert_int_equal(stat(c.partial, &there), 0);
	assert_true(mine.st_ino == there.st_ino && mine.st_dev == there.st_dev);
	assert_false(ck_commit_try_lock(&c, &other));
	ck_commit_unlock(lock);
	ck_commit_release(&c);
	free(dst);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, t_root_setup, t_root_teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_step_is_replaced_as_a_whole),
		TEST(a_failure_behind_the_rename_says_so),
		TEST(a_step_that_was_replaced_is_not_kept),
		TEST(leftovers_are_dropped),
		TEST(a_living_saver_keeps_its_step),
		TEST(a_part_that_ended_meanwhile_stays),
		TEST(a_lock_is_one_of_the_folder_that_is_there),
	};

	t_dir_in_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
