/*
 * Every call to the system fails once, in every way it can. If this fails, a full disk or a
 * failing one leaves half a result, loses the result that was there, or ends the program
 * without a word.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/run/ck_run.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_raw.h"
#include "tests/lib/torture/t_fault.h"
#include "tests/lib/torture/t_torture.h"

#define NUMEL 70000	/* two windows, and a bit */

struct made {
	struct ck_index ix;
	struct ck_fdpool *pool;
	struct ck_plan plan;
	struct ck_stage *stage;
	struct ck_run_stats stats;
	bool done;		/* the stage says that the result stands */
};

static bool is_ours(const char *name, const struct ck_tree *fresh)
{
	(void)fresh;
	return t_ends_with(name, ".safetensors");
}

static int make_plan(struct made *m, const char *raw, struct ckpt_err *err)
{
	const uint64_t shape[] = { NUMEL };
	struct ck_slot slot = {
		.name = "t", .state = "weight", .ndim = 1, .dtype = CKPT_BF16,
		.fill = UINT64_MAX,
	};
	struct ck_extent e = {
		.count = NUMEL, .off = 8, .runs = 1, .member = CK_NONE, .view = CK_NONE,
		.rank = -1, .dtype = CKPT_F32,
	};
	struct ck_src *src;
	uint32_t tensor, state, number;
	int rc = ck_src_open(m->pool, raw, &src, err);

	if (!rc)
		rc = ck_index_add_source(&m->ix, raw, src, -1, &e.source, err);
	if (!rc)
		rc = ck_index_add_tensor(&m->ix, "t", shape, 1, CKPT_ROLE_PLAIN, &tensor, err);
	if (!rc)
		rc = ck_index_state_begin(&m->ix, tensor, "weight", CKPT_F32, 0, err);
	if (!rc)
		rc = ck_index_state_extent(&m->ix, &e, err);
	if (!rc)
		rc = ck_index_state_end(&m->ix, &state, err);
	if (rc)
		return rc;
	slot.shape = m->ix.tensor[tensor].shape;
	rc = ck_plan_slot(&m->plan, &slot, &number, err);
	for (int i = 0; !rc && i < 2; i++) {
		rc = ck_plan_file(&m->plan, i ? "b.safetensors" : "a.safetensors", err);
		if (!rc)
			rc = ck_plan_literal(&m->plan, "header", 6, err);
		if (!rc)
			rc = ck_plan_state(&m->plan, &m->ix, state, CKPT_BF16, 0, NUMEL,
					   i ? CK_NONE : number, err);
	}
	return rc ? rc : ck_plan_finish(&m->plan, err);
}

static int write_all(struct made *m, const char *dst, uint32_t threads, struct ckpt_err *err)
{
	struct ckpt_run_opts o = { .size = sizeof(o), .threads = threads }, opts;
	struct ck_stage_opts so = {
		.dst = dst, .is_dir = true, .force = true, .nparts = 1, .is_ours = is_ours,
		.nunits = m->plan.nunits, .total_bytes = ck_plan_bytes(&m->plan),
	};
	struct ckpt_limits limits;
	uint32_t file[2];
	struct ck_run_job job = {
		.ix = &m->ix, .plan = &m->plan, .limits = &limits, .opts = &opts,
		.to = CK_RUN_STAGE, .stage_file = file, .nparts = 1,
	};
	int rc;

	ck_limits_fill(NULL, &limits);
	ck_run_opts_fill(&o, &opts);
	rc = ck_plan_hash(&m->plan, 1, &so.plan, err);
	if (!rc)
		rc = ck_stage_begin(&so, &m->stage, err);
	if (rc || ck_stage_is_done(m->stage))
		return rc;
	for (uint32_t i = 0; !rc && i < 2; i++)
		rc = ck_stage_file(m->stage, m->plan.file[i].name, m->plan.file[i].bytes,
				   &file[i], err);
	job.stage = m->stage;
	if (!rc)
		rc = ck_run(&job, &m->stats, err);
	if (!rc)
		rc = ck_stage_end(m->stage, err);
	return rc ? rc : ck_stage_commit(m->stage, 0, err);
}

/* The whole way, as a verb goes it. */
static int convert(const char *raw, const char *dst, uint32_t threads, bool *done_out,
		   struct ckpt_err *err)
{
	struct made m = { .plan = CK_PLAN_INIT };
	int rc = ck_index_init(&m.ix, 1 << 20, err);

	if (!rc) {
		m.pool = ck_fdpool_new(0);
		rc = m.pool ? make_plan(&m, raw, err) : -CKPT_E_NOMEM;
		if (!m.pool)
			err->code = CKPT_E_NOMEM;
	}
	if (!rc)
		rc = write_all(&m, dst, threads, err);
	*done_out = m.stage && ck_stage_is_done(m.stage);
	ck_stage_abort(m.stage);
	ck_free(m.stats.digest);
	ck_plan_release(&m.plan);
	ck_index_release(&m.ix);
	ck_fdpool_free(m.pool);
	return rc;
}

struct scene {
	struct t_raw raw;
	char *file, *dst, *partial, *a, *b, *old, *config;
	uint8_t *want;
	size_t want_n;
	uint32_t threads;	/* of work() */
	bool plain;		/* t_fault_plain_renames() */
};

static void reset(void *arg)
{
	const struct scene *s = arg;

	t_dir_remove(s->dst);
	t_dir_remove(s->partial);
	t_dir_make(s->dst);
	t_file_write(s->old, "old", 3);
	t_file_write(s->config, "config", 6);
}

static void open_scene(struct scene *s)
{
	struct ckpt_err err = { 0 };
	bool done;

	t_raw_make(&s->raw, 8 + NUMEL * 4);
	s->file = t_fmt("%s/raw", s->raw.dir);
	s->dst = t_fmt("%s/dst", s->raw.dir);
	s->partial = t_fmt("%s.zckpt-partial", s->dst);
	s->a = t_fmt("%s/a.safetensors", s->dst);
	s->b = t_fmt("%s/b.safetensors", s->dst);
	s->old = t_fmt("%s/old.safetensors", s->dst);
	s->config = t_fmt("%s/config.json", s->dst);
	reset(s);
	assert_int_equal(convert(s->file, s->dst, 1, &done, &err), 0);
	s->want = t_file_read(s->a, &s->want_n);
	assert_int_equal(s->want_n, 6 + NUMEL * 2);
}

static void close_scene(struct scene *s)
{
	char **string[] = { &s->file, &s->dst, &s->partial, &s->a, &s->b, &s->old, &s->config };

	for (size_t i = 0; i < sizeof(string) / sizeof(string[0]); i++)
		free(*string[i]);
	free(s->want);
	t_raw_free(&s->raw);
}

static bool holds(const struct scene *s, const char *path)
{
	size_t n = 0;
	uint8_t *p = t_file_read(path, &n);
	const bool same = p && n == s->want_n && !memcmp(p, s->want, n);

	free(p);
	return same;
}

static bool is_new(const struct scene *s)
{
	return holds(s, s->a) && holds(s, s->b);
}

static bool is_old(const struct scene *s)
{
	return t_exists(s->old) && t_exists(s->config) && !t_exists(s->a) && !t_exists(s->b);
}

static void check_success(const struct scene *s)
{
	assert_true(is_new(s));
	assert_true(t_exists(s->config));
	assert_false(t_exists(s->old));
	assert_false(t_exists(s->partial));
}

static int work(void *arg, bool *done_out, struct ckpt_err *err)
{
	const struct scene *s = arg;

	return convert(s->file, s->dst, s->threads, done_out, err);
}

static void failed(void *arg, const struct t_try *t, long n, bool on)
{
	const struct scene *s = arg;

	(void)n;
	if (!t->rc) {
		assert_true(is_new(s));
		return;
	}
	assert_true(t->err.code == CKPT_E_NOMEM || t->err.msg[0]);
	assert_true(t->done ? is_new(s) : is_old(s));
	/* What fails while it cleans up may leave the rest. */
	if (!t->done && !on)
		assert_false(t_exists(s->partial));
}

static void killed(void *arg)
{
	const struct scene *s = arg;

	/* Without an exchange of folders there is a moment without dst. */
	if (!s->plain)
		assert_true(is_new(s) || is_old(s));
}

/* The same command again makes it good. */
static void finish(void *arg, long n)
{
	const struct scene *s = arg;
	struct ckpt_err err = { 0 };
	bool done;

	if (convert(s->file, s->dst, 1, &done, &err))
		fail_msg("call %ld: %s: %s", n, err.where, err.msg);
	check_success(s);
}

static void torture(enum t_fault_kind kind, bool on, uint32_t threads)
{
	struct scene s = { .threads = threads };
	struct t_ordeal o = {
		.t = { .work = work, .arg = &s }, .reset = reset, .failed = failed,
		.finish = finish,
	};

	open_scene(&s);
	t_fail_everywhere(&o, kind, on);
	close_scene(&s);
}

static void one_call_that_says_eio_leaves_old_or_new(void **state)
{
	(void)state;
	torture(T_FAULT_IO, false, 1);
}

static void a_disk_that_dies_leaves_old_or_new(void **state)
{
	(void)state;
	torture(T_FAULT_IO, true, 1);
}

static void a_disk_that_fills_for_a_moment_leaves_old_or_new(void **state)
{
	(void)state;
	torture(T_FAULT_NOSPACE, false, 1);
}

static void a_disk_that_is_full_leaves_old_or_new(void **state)
{
	(void)state;
	torture(T_FAULT_NOSPACE, true, 1);
}

static void one_allocation_that_fails_leaks_nothing(void **state)
{
	(void)state;
	torture(T_FAULT_MEMORY, false, 1);
}

static void no_more_memory_leaks_nothing(void **state)
{
	(void)state;
	torture(T_FAULT_MEMORY, true, 2);
}

static void reads_and_writes_of_one_byte_are_gone_on_with(void **state)
{
	struct scene s;
	struct ckpt_err err = { 0 };
	bool done;

	(void)state;
	open_scene(&s);
	for (long n = 1; n < 120; n++) {
		reset(&s);
		t_fault_install();
		t_fault_arm(T_FAULT_SHORT, n, false);
		assert_int_equal(convert(s.file, s.dst, 1, &done, &err), 0);
		t_fault_remove();
		check_success(&s);
	}
	close_scene(&s);
}

static void kill_everywhere(bool plain, bool twice)
{
	struct scene s = { .threads = 1, .plain = plain };
	const struct t_ordeal o = {
		.t = { .work = work, .arg = &s }, .reset = reset, .killed = killed,
		.finish = finish,
	};

	open_scene(&s);
	t_kill_everywhere(&o, plain, twice);
	close_scene(&s);
}

static void a_run_killed_at_any_call_is_finished_by_the_next(void **state)
{
	(void)state;
	kill_everywhere(false, false);
}

static void a_run_killed_twice_is_finished_by_the_third(void **state)
{
	(void)state;
	kill_everywhere(false, true);
}

static void a_run_killed_on_a_plain_file_system_loses_nothing(void **state)
{
	(void)state;
	kill_everywhere(true, false);
	kill_everywhere(true, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_call_that_says_eio_leaves_old_or_new),
		cmocka_unit_test(a_disk_that_dies_leaves_old_or_new),
		cmocka_unit_test(a_disk_that_fills_for_a_moment_leaves_old_or_new),
		cmocka_unit_test(a_disk_that_is_full_leaves_old_or_new),
		cmocka_unit_test(one_allocation_that_fails_leaks_nothing),
		cmocka_unit_test(no_more_memory_leaks_nothing),
		cmocka_unit_test(reads_and_writes_of_one_byte_are_gone_on_with),
		cmocka_unit_test(a_run_killed_at_any_call_is_finished_by_the_next),
		cmocka_unit_test(a_run_killed_twice_is_finished_by_the_third),
		cmocka_unit_test(a_run_killed_on_a_plain_file_system_loses_nothing),
	};

	t_dir_in_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
