/*
 * Ranks begin a save at the same moment.  If this fails, a rank that finds the folder of the step
 * being made, or swept away, deletes what another rank has written there: the step is put into
 * its place without those files, and no rank says so.
 *
 * Calls on folders are delayed at random, so that ranks meet between any two of them.
 * Environment: ZCKPT_SEED, ZCKPT_LONG (2,000 saves of each kind instead of 60).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/base/ck_sys.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_ranks.h"
#include "tests/lib/ops/t_save_root.h"
#include "tests/lib/run/t_seed.h"

#define RANKS 3u
#define PATIENCE 20000		/* ms: no rank is late here */
#define MOST_NS 2000000u

static uint64_t seed;
static struct ck_sys kept;

/* ---- delays ---- */

/* One call of three, for up to 2 ms; only where a partial folder is named. */
static void delay(const char *path)
{
	uint64_t own = __atomic_add_fetch(&seed, 0x9e3779b97f4a7c15u, __ATOMIC_RELAXED);
	const uint64_t n = t_draw(&own);
	const struct timespec nap = { .tv_nsec = (long)(n / 3 % MOST_NS) };

	if (strstr(path, ".zckpt-partial") && n % 3 == 0)
		nanosleep(&nap, NULL);
}

static int late_mkdir(const char *path, mode_t mode)
{
	const int rc = kept.mkdir(path, mode);

	delay(path);
	return rc;
}

static int late_rmdir(const char *path)
{
	delay(path);
	return kept.rmdir(path);
}

static int late_open(const char *path, int flags, mode_t mode)
{
	delay(path);
	return kept.open(path, flags, mode);
}

static DIR *late_opendir(const char *path)
{
	DIR *dir = kept.opendir(path);

	delay(path);
	return dir;
}

static int late_closedir(DIR *dir)
{
	delay(".zckpt-partial");
	return kept.closedir(dir);
}

/* ---- ranks, each a thread ---- */

struct rank {
	const struct t_trainer *t;
	struct ckpt_saver *sv;
	struct ckpt_save_step step;
	pthread_barrier_t *line;
	pthread_t thread;
	uint32_t number;
	int rc;
	struct ckpt_err err;
};

static void *save(void *arg)
{
	struct rank *r = arg;

	pthread_barrier_wait(r->line);
	r->rc = t_save_begin(r->t, r->sv, &r->step, r->number, &r->err);
	if (!r->rc)
		r->rc = t_save_put(r->t, r->sv, &r->step, r->number, &r->err);
	if (!r->rc)
		r->rc = ckpt_save_commit(r->sv, &r->err);
	if (!r->rc)
		r->rc = ckpt_save_wait(r->sv, 0, NULL, &r->err);
	return NULL;
}

static void save_once(const struct t_trainer *t, int to)
{
	struct rank rank[RANKS];
	pthread_barrier_t line;
	struct ckpt_err err = { 0 };

	pthread_barrier_init(&line, NULL, RANKS);
	for (uint32_t i = 0; i < RANKS; i++) {
		rank[i] = (struct rank){
			.t = t, .step = *t_save_step(t, "s", to, 2, 0), .line = &line, .number = i,
		};
		t_must(t_saver(t, i, &rank[i].sv, &err), &err);
	}
	for (uint32_t i = 0; i < RANKS; i++)
		pthread_create(&rank[i].thread, NULL, save, &rank[i]);
	for (uint32_t i = 0; i < RANKS; i++)
		pthread_join(rank[i].thread, NULL);
	for (uint32_t i = RANKS; i-- > 0;) {
		ckpt_saver_free(rank[i].sv);
		t_must(rank[i].rc, &rank[i].err);
	}
	pthread_barrier_destroy(&line);
}

static void save_often(enum t_held held, bool own, int to)
{
	const int rounds = t_is_long() ? 2000 : 60;

	for (int i = 0; i < rounds; i++) {
		char *root = t_fmt("%s/%d", t_scratch, i);
		const struct t_trainer t = {
			.root = root, .job = "j", .nranks = RANKS, .held = held, .own = own,
			.size = 100, .frozen = 100, .timeout_ms = PATIENCE,
		};

		kept = ck_sys;
		ck_sys.mkdir = late_mkdir;
		ck_sys.rmdir = late_rmdir;
		ck_sys.open = late_open;
		ck_sys.opendir = late_opendir;
		ck_sys.closedir = late_closedir;
		save_once(&t, to);
		ck_sys = kept;
		t_step_check(&t, "s");
		t_nothing_left(root);
		t_dir_remove(root);
		free(root);
	}
}

static void files_of_equal_shares(void **state)
{
	(void)state;
	save_often(T_HELD_EVEN, false, CKPT_TO_DEEPSPEED);
}

static void files_as_held(void **state)
{
	(void)state;
	save_often(T_HELD_EVEN, true, CKPT_TO_NATIVE);
}

/* ---- files that another process removes ---- */

/* 'instead' NULL: nothing has its name then. */
static void lose_file(const char *name, const char *instead)
{
	char *path = t_fmt("%s/s.zckpt-partial/data/%s", t_root, name);

	if (unlink(path))
		t_die("cannot remove %s", path);
	if (instead)
		t_file_write(path, instead, strlen(instead));
	free(path);
}

/*
 * 'name' is lost after rank 1 has ended its part, or before; rank 0 finds it either way, also
 * where 'instead' has the name.
 */
static void lose_and_commit(const char *name, const char *instead, bool ended)
{
	struct ckpt_err err = { 0 };
	struct t_ranks r;

	t_ranks_open(&r, t_root, 2, T_HELD_EVEN);
	t_ranks_begin(&r, "s", CKPT_TO_NATIVE, 0, 2);
	t_ranks_put(&r, "s", 0);
	t_ranks_put(&r, "s", 1);
	if (ended) {
		t_ranks_commit(&r, 1);
		ckpt_saver_drain(r.sv[1], 0);
	}
	lose_file(name, instead);
	if (!ended)
		t_ranks_commit(&r, 1);
	t_ranks_commit(&r, 0);
	t_must_fail(t_ranks_wait(&r, 0, &err), &err, CKPT_E_INCOMPLETE,
		    ended ? "rank-00000.safetensors|another process removed" :
		    "rank-00001.safetensors|another process removed this file");
	if (!ended)
		t_must_fail(t_ranks_wait(&r, 1, &err), &err, CKPT_E_INCOMPLETE,
			    "rank 0 abandoned|another process removed this file");
	t_latest_check(t_root, NULL);
	t_ranks_close(&r);
	t_dir_remove(t_root);
}

/* Rank 0 made this file. */
static void a_file_goes_before_its_rank_ends(void **state)
{
	(void)state;
	lose_and_commit("rank-00001.safetensors", NULL, false);
	lose_and_commit("rank-00001.safetensors", "", false);
}

/* Rank 1 made this one. */
static void a_file_goes_after_its_rank_has_ended(void **state)
{
	(void)state;
	lose_and_commit("rank-00000.safetensors", NULL, true);
	lose_and_commit("rank-00000.safetensors", "some", true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_file_goes_before_its_rank_ends, t_root_setup,
						t_root_teardown),
		cmocka_unit_test_setup_teardown(a_file_goes_after_its_rank_has_ended,
						t_root_setup, t_root_teardown),
		cmocka_unit_test_setup_teardown(files_of_equal_shares, t_root_setup,
						t_root_teardown),
		cmocka_unit_test_setup_teardown(files_as_held, t_root_setup, t_root_teardown),
	};

	t_dir_in_memory();
	seed = t_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
