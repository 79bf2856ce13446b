/*
 * Saves that fail: what ranks left out, put twice, described otherwise, gave up or never ended.
 * If this fails, a step stands there with holes, a rank that died is not named, or a save that
 * failed keeps the next one from working.
 *
 * After every failure nothing of the step stands, 'latest' names what it named, and the next save
 * works and takes away what was left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "libckpt/save/ck_save.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_ranks.h"
#include "tests/lib/ops/t_save_root.h"

/* The save of 'tag' failed.  The same ranks try the same again, and another one; then a new job. */
static void goes_on(struct t_ranks *r, const char *tag, const char *latest, int kind)
{
	struct ckpt_err err = { 0 };
	struct t_trainer next = r->t;

	assert_false(t_is_there(t_root, tag));
	t_latest_check(t_root, latest);
	t_ranks_save(r, tag, kind);
	t_step_check(&r->t, tag);
	t_latest_check(t_root, tag);
	t_ranks_save(r, "after", kind);
	t_step_check(&r->t, "after");
	t_nothing_left(t_root);
	t_ranks_close(r);
	next.job = "job 2";
	next.timeout_ms = 0;
	t_must(t_save_all(&next, t_save_step(&next, "later", kind, 2, 0), &err), &err);
	t_step_check(&next, "later");
	t_latest_check(t_root, "later");
	t_nothing_left(t_root);
}

/* ---- what was put ---- */

static void what_nobody_put_is_named(void **state)
{
	struct ckpt_err err = { 0 };
	struct t_ranks r;

	(void)state;
	for (int i = 0; i < 2; i++) {
		const int kind = i ? CKPT_TO_NATIVE : CKPT_TO_DEEPSPEED;
		const float zeros[100] = { 0 };

		t_ranks_open(&r, t_root, 2, T_HELD_WHOLE);
		t_ranks_save(&r, "good", kind);
		t_ranks_begin(&r, "holed", kind, 0, 2);
		t_ranks_put(&r, "holed", 0);
		/* layers.0.w is what rank 1 holds; two pieces of it come */
		t_must(ckpt_save_put(r.sv[1], 1, "weight", 0, 100, zeros, 0, &err), &err);
		t_must(ckpt_save_put(r.sv[1], 1, "weight", 150, 40, zeros, 0, &err), &err);
		t_ranks_commit(&r, 0);
		t_ranks_commit(&r, 1);
		t_must_fail(t_ranks_wait(&r, 0, &err), &err, CKPT_E_INCOMPLETE,
			  "layers.0.w|weight|elements 100 to 149|of 7429|not saved");
		t_must_fail(t_ranks_wait(&r, 1, &err), &err, CKPT_E_INCOMPLETE,
			  "rank 0 abandoned this save|elements 100 to 149");
		t_must(t_ranks_wait(&r, 0, &err), &err);	/* told once */
		goes_on(&r, "holed", "good", kind);
		t_dir_remove(t_root);
	}
}

static void the_end_that_nobody_put_is_named(void **state)
{
	struct ckpt_err err = { 0 };
	struct t_ranks r;

	(void)state;
	t_ranks_open(&r, t_root, 3, T_HELD_WHOLE);
	t_ranks_begin(&r, "holed", CKPT_TO_NATIVE, 0, 3);
	t_ranks_put(&r, "holed", 0);
	t_ranks_put(&r, "holed", 2);
	for (uint32_t i = 3; i > 0; i--)
		t_ranks_commit(&r, i - 1);
	t_must_fail(t_ranks_wait(&r, 0, &err), &err, CKPT_E_INCOMPLETE,
		    "layers.0.w|weight|elements 0 to 7428");
	goes_on(&r, "holed", NULL, CKPT_TO_NATIVE);
}

static void what_two_put_names_both(void **state)
{
	const float bytes[64] = { 0 };
	struct ckpt_err err = { 0 };
	struct t_ranks r;

	(void)state;
	t_ranks_open(&r, t_root, 3, T_HELD_WHOLE);
	t_ranks_begin(&r, "twice", CKPT_TO_NATIVE, 0, 3);
	for (uint32_t i = 0; i < 3; i++)
		t_ranks_put(&r, "twice", i);
	/* layers.0.w is rank 1's */
	t_must(ckpt_save_put(r.sv[2], 1, "exp_avg", 1030, 64, bytes, 0, &err), &err);
	for (uint32_t i = 0; i < 3; i++)
		t_ranks_commit(&r, i);
	t_must_fail(t_ranks_wait(&r, 0, &err), &err, CKPT_E_MISMATCH,
		    "layers.0.w|ranks 1 and 2|element 1030|exp_avg|not saved");
	t_must_fail(t_ranks_wait(&r, 2, &err), &err, CKPT_E_MISMATCH, "ranks 1 and 2");
	goes_on(&r, "twice", NULL, CKPT_TO_NATIVE);
}

/* The same within one rank, and in files that are cut as held. */
static void ranges_that_are_held_twice_or_by_nobody(void **state)
{
	static const struct ckpt_save_range twice[] = { { 0, 0, 15009 }, { 0, 100, 50 } };
	static const struct ckpt_save_range holed[] = { { 0, 0, 15000 } };
	struct ckpt_err err = { 0 };
	struct t_ranks r;

	(void)state;
	t_ranks_open(&r, t_root, 2, T_HELD_FIRST);
	for (int i = 0; i < 2; i++) {
		struct ckpt_save_step *step = t_save_step(&r.t, "own", CKPT_TO_NATIVE, 2, 0);

		step->own = i ? holed : twice;
		step->nown = i ? 1 : 2;
		t_must(ckpt_save_begin(r.sv[0], step, &err), &err);
		step->own = twice;
		step->nown = 0;
		t_must(ckpt_save_begin(r.sv[1], step, &err), &err);
		t_ranks_commit(&r, 0);
		t_ranks_commit(&r, 1);
		t_must_fail(t_ranks_wait(&r, 0, &err), &err,
			    i ? CKPT_E_INCOMPLETE : CKPT_E_MISMATCH,
			  i ? "embed.weight|from 15000 on|of 15009" :
			  "embed.weight|ranks 0 and 0|element 100");
		t_ranks_wait(&r, 1, &err);
	}
	goes_on(&r, "own", NULL, CKPT_TO_NATIVE);
}

/* ---- ranks that do not end ---- */

static void a_rank_that_never_begins_is_named(void **state)
{
	struct ckpt_err err = { 0 };
	struct t_ranks r;

	(void)state;
	t_ranks_open(&r, t_root, 4, T_HELD_EVEN);
	t_ranks_begin(&r, "late", CKPT_TO_DEEPSPEED, 0, 2);
	t_ranks_begin(&r, "late", CKPT_TO_DEEPSPEED, 3, 4);
	for (uint32_t i = 0; i < 4; i++)
		if (i != 2) {
			t_ranks_put(&r, "late", i);
			t_ranks_commit(&r, i);
		}
	t_must_fail(t_ranks_wait(&r, 0, &err), &err, CKPT_E_INCOMPLETE,
		    "rank 2 of 4|300 ms|has not begun it");
	t_must_fail(t_ranks_wait(&r, 1, &err), &err, CKPT_E_INCOMPLETE, "0 abandoned|rank 2 of 4");
	t_must_fail(t_ranks_wait(&r, 3, &err), &err, CKPT_E_INCOMPLETE, "0 abandoned|rank 2 of 4");
	/* a rank counts its begins */
	t_must_fail(ckpt_save_begin(r.sv[2], t_save_step(&r.t, "bad/tag", 0, 2, 0), &err), &err,
		  CKPT_E_USAGE, "bad/tag");
	goes_on(&r, "late", NULL, CKPT_TO_DEEPSPEED);
}

static void a_rank_that_never_ends_is_named(void **state)
{
	struct ckpt_err err = { 0 };
	struct t_ranks r;

	(void)state;
	t_ranks_open(&r, t_root, 7, T_HELD_EVEN);
	t_ranks_begin(&r, "late", CKPT_TO_NATIVE, 0, 7);
	for (uint32_t i = 0; i < 7; i++) {
		t_ranks_put(&r, "late", i);
		if (i != 3 && i != 5)
			t_ranks_commit(&r, i);
	}
	t_must_fail(t_ranks_wait(&r, 0, &err), &err, CKPT_E_INCOMPLETE,
		    "ranks 3, 5 of 7|300 ms|rank 3 has begun it");
	ckpt_save_abort(r.sv[3], NULL);
	/* who ends late hears why */
	t_ranks_commit(&r, 5);
	t_must_fail(t_ranks_wait(&r, 5, &err), &err, CKPT_E_INCOMPLETE,
		    "rank 0 abandoned|ranks 3, 5 of 7");
	goes_on(&r, "late", NULL, CKPT_TO_NATIVE);
}

static void rank_0_that_never_ends_is_named(void **state)
{
	struct ckpt_err err = { 0 };
	struct t_ranks r;

	(void)state;
	t_ranks_open(&r, t_root, 2, T_HELD_EVEN);
	t_ranks_begin(&r, "late", CKPT_TO_NATIVE, 0, 2);
	t_ranks_put(&r, "late", 1);
	t_ranks_commit(&r, 1);
	t_must_fail(ckpt_save_wait(r.sv[1], 50, NULL, &err), &err, CKPT_E_BUSY, "rank 0");
	t_must_fail(t_ranks_wait(&r, 1, &err), &err, CKPT_E_INCOMPLETE,
		    "rank 0 did not put|600 ms");
	ckpt_save_abort(r.sv[0], "of no use any more");
	goes_on(&r, "late", NULL, CKPT_TO_NATIVE);
}

/* A save that failed with CKPT_E_BUSY has ended; one that is waited for has not. */
static void busy_as_an_end_is_no_time_out(void **state)
{
	struct sv_part given_up = {
		.code = CKPT_E_BUSY, .why = (char *)(uintptr_t)"another run has the folder",
	};
	struct ckpt_err err = { 0 };
	struct t_ranks r;
	char *put;

	(void)state;
	t_ranks_open(&r, t_root, 2, T_HELD_EVEN);
	assert_false(ckpt_save_pending(r.sv[1]));
	t_ranks_begin(&r, "busy", CKPT_TO_NATIVE, 0, 2);
	t_ranks_put(&r, "busy", 1);
	t_ranks_commit(&r, 1);
	t_must_fail(ckpt_save_wait(r.sv[1], 50, NULL, &err), &err, CKPT_E_BUSY, "not put");
	assert_true(ckpt_save_pending(r.sv[1]));
	put = t_fmt("%s/busy.zckpt-partial/put-00000", t_root);
	t_must(ck_sv_part_write(&given_up, put, &err), &err);
	free(put);
	t_must_fail(ckpt_save_wait(r.sv[1], 5000, NULL, &err), &err, CKPT_E_BUSY,
		    "another run has the folder");
	assert_false(ckpt_save_pending(r.sv[1]));
	t_must(ckpt_save_wait(r.sv[1], 5000, NULL, &err), &err);
	ckpt_save_abort(r.sv[0], "of no use any more");
	goes_on(&r, "busy", NULL, CKPT_TO_NATIVE);
}

static void a_rank_gives_up_and_all_hear_why(void **state)
{
	struct ckpt_err err = { 0 };
	struct t_ranks r;

	(void)state;
	for (uint32_t who = 0; who < 3; who++) {
		t_ranks_open(&r, t_root, 3, T_HELD_EVEN);
		t_ranks_save(&r, "good", CKPT_TO_NATIVE);
		t_ranks_begin(&r, "given", CKPT_TO_NATIVE, 0, 3);
		for (uint32_t i = 0; i < 3; i++)
			t_ranks_put(&r, "given", i);
		for (uint32_t i = 0; i < 3; i++)
			if (i != who)
				t_ranks_commit(&r, i);
		ckpt_save_abort(r.sv[who], "a loss that is no number");
		t_must(t_ranks_wait(&r, who, &err), &err);
		for (uint32_t i = 0; i < 3; i++)
			if (i != who)
				t_must_fail(t_ranks_wait(&r, i, &err), &err,
					  who ? CKPT_E_INCOMPLETE : CKPT_E_CANCELED,
					  "a loss that is no number");
		goes_on(&r, "given", "good", CKPT_TO_NATIVE);
		t_dir_remove(t_root);
	}
}

/* Rank 0 has gone on, and what it had left is gone. */
static void a_rank_that_asks_late_hears_of_the_end(void **state)
{
	struct ckpt_err err = { 0 };
	struct t_ranks r;

	(void)state;
	t_ranks_open(&r, t_root, 2, T_HELD_EVEN);
	t_ranks_begin(&r, "a", CKPT_TO_NATIVE, 0, 2);
	t_ranks_put(&r, "a", 1);
	t_ranks_commit(&r, 1);
	t_must_fail(ckpt_save_wait(r.sv[1], 100, NULL, &err), &err, CKPT_E_BUSY, "rank 0");
	ckpt_save_abort(r.sv[0], NULL);
	t_ranks_begin(&r, "b", CKPT_TO_NATIVE, 0, 1);
	assert_false(t_is_there(t_root, "a.zckpt-partial"));
	t_must_fail(t_ranks_wait(&r, 1, &err), &err, CKPT_E_INCOMPLETE,
		    "a: the step and its data are missing: rank 0 abandoned this save");
	t_ranks_begin(&r, "b", CKPT_TO_NATIVE, 1, 2);
	for (uint32_t i = 0; i < 2; i++) {
		t_ranks_put(&r, "b", i);
		t_ranks_commit(&r, i);
	}
	for (uint32_t i = 0; i < 2; i++)
		t_must(t_ranks_wait(&r, i, &err), &err);
	goes_on(&r, "a", "b", CKPT_TO_NATIVE);
}

static void a_saver_that_is_freed_gives_up(void **state)
{
	struct ckpt_err err = { 0 };
	struct t_ranks r;

	(void)state;
	t_ranks_open(&r, t_root, 2, T_HELD_EVEN);
	t_ranks_begin(&r, "freed", CKPT_TO_NATIVE, 0, 2);
	t_ranks_put(&r, "freed", 0);
	t_ranks_put(&r, "freed", 1);
	t_ranks_commit(&r, 0);
	ckpt_saver_free(r.sv[1]);
	t_must_fail(t_ranks_wait(&r, 0, &err), &err, CKPT_E_INCOMPLETE,
		    "rank 1 abandoned this save|freed before");
	ckpt_saver_free(r.sv[0]);
	r.sv[0] = r.sv[1] = NULL;
	t_ranks_open(&r, t_root, 2, T_HELD_EVEN);
	goes_on(&r, "freed", NULL, CKPT_TO_NATIVE);
}

/* ---- descriptions ---- */

static void change(struct ckpt_save_step *s, int how)
{
	static struct ckpt_save_tensor t[16];
	static struct ckpt_save_group g[2];
	static uint64_t other[3] = { 23, 19, 17 };

	memcpy(t, s->tensor, s->ntensors * sizeof(*t));
	memcpy(g, s->group, sizeof(g));
	if (how == 0)
		s->steps++;
	else if (how == 1)
		g[1].lr *= 2;
	else if (how == 2)
		t[1].shape = other;
	else if (how == 3)
		t[1].name = "layers.0.v";
	else if (how == 4)
		t[1].derived = 1;
	else if (how == 5)
		s->client = "{\"epoch\": 4}";
	else if (how == 6)
		s->stage = 1;
	else if (how == 7)
		s->ntensors--;
	s->tensor = t;
	s->group = g;
}

/* Whoever comes second says so; rank 0 says so if it came first. */
static void ranks_must_describe_the_same(void **state)
{
	struct ckpt_err err = { 0 };
	struct t_ranks r;

	(void)state;
	for (int how = 0; how < 16; how++) {
		const int kind = how & 8 ? CKPT_TO_DEEPSPEED : CKPT_TO_NATIVE;
		const uint32_t first = how & 1;
		struct ckpt_save_step *step;
		int rc;

		t_ranks_open(&r, t_root, 2, T_HELD_WHOLE);
		r.t.weight = CKPT_F32;
		step = t_save_step(&r.t, "other", kind, 2, 0);
		t_must(ckpt_save_begin(r.sv[first], step, &err), &err);
		change(step, how & 7);
		err = (struct ckpt_err){ 0 };
		rc = ckpt_save_begin(r.sv[!first], step, &err);
		if (!rc)
			fail_msg("change %d goes unnoticed", how);
		t_must_fail(rc, &err, CKPT_E_MISMATCH, first ? "rank 1|rank 0" : "rank 0|rank 1");
		ckpt_save_abort(r.sv[first], NULL);
		goes_on(&r, "other", NULL, kind);
		t_dir_remove(t_root);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, t_root_setup, t_root_teardown)
	const struct CMUnitTest tests[] = {
		TEST(what_nobody_put_is_named),
		TEST(the_end_that_nobody_put_is_named),
		TEST(what_two_put_names_both),
		TEST(ranges_that_are_held_twice_or_by_nobody),
		TEST(a_rank_that_never_begins_is_named),
		TEST(a_rank_that_never_ends_is_named),
		TEST(rank_0_that_never_ends_is_named),
		TEST(busy_as_an_end_is_no_time_out),
		TEST(a_rank_gives_up_and_all_hear_why),
		TEST(a_rank_that_asks_late_hears_of_the_end),
		TEST(a_saver_that_is_freed_gives_up),
		TEST(ranks_must_describe_the_same),
	};

	t_dir_in_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
