/*
 * The executor. If this fails, a run with more threads gives other bytes, a resumed run keeps
 * damaged ones, or a stream comes out of order.
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
#include <unistd.h>

#include "kernels/include/kn.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/run/ck_run.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_raw.h"

#define RAW ((size_t)24 << 20)
#define NSLOTS 5

/* Sizes in elements: less than a block, a unit and a bit, small ones, none, one. */
static const uint64_t numel[NSLOTS] = { 1000, (5 << 20) / 4 + 3, 77777, 0, 1 };

struct scene {
	struct t_raw raw;
	struct ck_plan plan;
	uint8_t *want;		/* the whole output */
	size_t want_n;
	struct ck_hash128 digest[NSLOTS];
	char *dst;
	struct ckpt_limits limits;
};

static void expect(struct scene *s, const void *p, size_t n)
{
	if (n)
		memcpy(s->want + s->want_n, p, n);
	s->want_n += n;
}

/* One file: an odd header, each tensor as f32 and then as bf16, zeros and a copied file. */
static void open_scene(struct scene *s)
{
	struct ckpt_err err = { 0 };
	char *path, zeros[100] = { 0 };
	size_t off = 4;

	memset(s, 0, sizeof(*s));
	t_raw_make(&s->raw, RAW);
	s->want = t_alloc(RAW * 2);
	s->dst = t_fmt("%s/out", s->raw.dir);
	ck_limits_fill(NULL, &s->limits);
	assert_int_equal(ck_plan_file(&s->plan, "out", NULL), 0);
	assert_int_equal(ck_plan_literal(&s->plan, "header of odd length.", 21, NULL), 0);
	expect(s, "header of odd length.", 21);
	for (uint32_t i = 0; i < NSLOTS; i++) {
		const struct ck_extent e = t_extent(&s->raw, 0, numel[i], off, CKPT_F32);
		uint8_t *half = t_alloc(numel[i] * 2 + 1);
		char *name = t_fmt("t%u", i);
		const uint32_t state = t_state(&s->raw, name, &numel[i], 1, CKPT_F32, &e,
					       numel[i] ? 1 : 0);
		const struct ck_slot slot = {
			.name = name, .state = "weight", .shape = &numel[i], .ndim = 1,
			.dtype = CKPT_F32,
		};
		uint32_t number;

		assert_int_equal(ck_plan_slot(&s->plan, &slot, &number, NULL), 0);
		assert_int_equal(ck_plan_state(&s->plan, &s->raw.ix, state, CKPT_F32, 0, numel[i],
					       number, NULL), 0);
		assert_int_equal(ck_plan_state(&s->plan, &s->raw.ix, state, CKPT_BF16, 0,
					       numel[i], CK_NONE, NULL), 0);
		expect(s, s->raw.bytes + off, numel[i] * 4);
		kn_f32_to_bf16(half, s->raw.bytes + off, numel[i]);
		expect(s, half, numel[i] * 2);
		s->digest[i] = ck_digest_close("F32", &numel[i], 1,
					       ck_digest_blocks(s->raw.bytes + off, numel[i] * 4,
								0));
		off += numel[i] * 4 + 4;
		free(half);
		free(name);
	}
	assert_int_equal(ck_plan_zero(&s->plan, 100, NULL), 0);
	expect(s, zeros, 100);
	path = t_fmt("%s/raw", s->raw.dir);
	assert_int_equal(ck_plan_copy(&s->plan, path, 0, 700000, NULL), 0);
	expect(s, s->raw.bytes, 700000);
	free(path);
	assert_int_equal(ck_plan_finish(&s->plan, &err), 0);
	assert_int_equal(ck_plan_bytes(&s->plan), s->want_n);
}

static void close_scene(struct scene *s)
{
	ck_plan_release(&s->plan);
	t_raw_free(&s->raw);
	free(s->want);
	free(s->dst);
}

static void check_digests(const struct scene *s, struct ck_run_stats *stats)
{
	for (int i = 0; i < NSLOTS; i++)
		assert_true(ck_hash128_equal(stats->digest[i], s->digest[i]));
	ck_free(stats->digest);
}

static struct ck_stage *begin(const struct scene *s, uint32_t *file)
{
	struct ck_stage_opts so = {
		.dst = s->dst, .nparts = 1, .nunits = s->plan.nunits, .sync = CKPT_SYNC_NONE,
	};
	struct ck_stage *stage;

	assert_int_equal(ck_plan_hash(&s->plan, 1, &so.plan, NULL), 0);
	assert_int_equal(ck_stage_begin(&so, &stage, NULL), 0);
	assert_int_equal(ck_stage_file(stage, "out", s->want_n, file, NULL), 0);
	return stage;
}

static int run(const struct scene *s, struct ckpt_run_opts *o, enum ck_run_to to, int fd,
	       struct ck_stage *stage, const uint32_t *file, struct ck_run_stats *stats,
	       struct ckpt_err *err)
{
	struct ckpt_run_opts opts;
	const struct ck_run_job job = {
		.ix = &s->raw.ix, .plan = &s->plan, .limits = &s->limits, .opts = &opts, .to = to,
		.stage = stage, .stage_file = file, .fd = fd, .nparts = 1,
	};

	o->size = sizeof(*o);
	ck_run_opts_fill(o, &opts);
	return ck_run(&job, stats, err);
}

static void check_file(const struct scene *s, const char *path)
{
	size_t n = 0;
	uint8_t *p = t_file_read(path, &n);

	assert_non_null(p);
	assert_int_equal(n, s->want_n);
	assert_int_equal(kn_mismatch(p, s->want, n), n);
	free(p);
}

static void every_number_of_threads_writes_the_same_bytes_and_digests(void **state)
{
	struct scene s;

	(void)state;
	open_scene(&s);
	for (uint32_t threads = 1; threads <= 4; threads++) {
		struct ckpt_run_opts o = { .threads = threads };
		struct ck_run_stats stats;
		uint32_t file;
		struct ck_stage *stage = begin(&s, &file);

		assert_int_equal(run(&s, &o, CK_RUN_STAGE, -1, stage, &file, &stats, NULL), 0);
		assert_int_equal(stats.written, s.want_n);
		assert_int_equal(stats.resumed, 0);
		assert_int_equal(stats.threads, threads);
		assert_int_equal(ck_stage_end(stage, NULL), 0);
		assert_int_equal(ck_stage_commit(stage, 0, NULL), 0);
		ck_stage_close(stage);
		check_file(&s, s.dst);
		check_digests(&s, &stats);
		t_dir_remove(s.dst);
		assert_int_equal(run(&s, &o, CK_RUN_NOWHERE, -1, NULL, NULL, &stats, NULL), 0);
		check_digests(&s, &stats);
	}
	close_scene(&s);
}

static void a_stream_comes_in_order(void **state)
{
	struct scene s;

	(void)state;
	open_scene(&s);
	for (uint32_t threads = 1; threads <= 4; threads++) {
		struct ckpt_run_opts o = { .threads = threads };
		struct ck_run_stats stats;
		const int fd = open(s.dst, O_WRONLY | O_CREAT | O_TRUNC, 0666);

		assert_int_equal(run(&s, &o, CK_RUN_STREAM, fd, NULL, NULL, &stats, NULL), 0);
		close(fd);
		check_file(&s, s.dst);
		check_digests(&s, &stats);
	}
	close_scene(&s);
}

static void a_killed_run_keeps_good_units_and_writes_damaged_ones_again(void **state)
{
	struct scene s;
	struct ckpt_run_opts o = { .threads = 3 };
	struct ck_run_stats stats;
	struct ck_stage *stage;
	uint32_t file;
	uint8_t byte;

	(void)state;
	open_scene(&s);
	stage = begin(&s, &file);
	assert_int_equal(run(&s, &o, CK_RUN_STAGE, -1, stage, &file, &stats, NULL), 0);
	ck_free(stats.digest);
	assert_int_equal(ck_stage_read(stage, file, 5000000, &byte, 1, NULL), 0);
	byte ^= 16;
	assert_int_equal(ck_stage_write(stage, file, 5000000, &byte, 1, NULL), 0);
	ck_stage_close(stage);	/* as a killed process leaves it */
	stage = begin(&s, &file);
	assert_int_equal(run(&s, &o, CK_RUN_STAGE, -1, stage, &file, &stats, NULL), 0);
	assert_in_range(stats.written, 1, CK_UNIT_BYTES);
	assert_int_equal(stats.resumed + stats.written, s.want_n);
	check_digests(&s, &stats);
	assert_int_equal(ck_stage_end(stage, NULL), 0);
	assert_int_equal(ck_stage_commit(stage, 0, NULL), 0);
	ck_stage_close(stage);
	check_file(&s, s.dst);
	close_scene(&s);
}

struct seen {
	int *cancel;
	uint64_t last, total;
	int calls, cancel_at;
};

static void on_progress(void *arg, const struct ckpt_progress *p)
{
	struct seen *seen = arg;

	assert_true(p->done_bytes >= seen->last);
	seen->last = p->done_bytes;
	seen->total = p->total_bytes;
	if (++seen->calls == seen->cancel_at)
		__atomic_store_n(seen->cancel, 1, __ATOMIC_RELAXED);
}

static void progress_only_grows_and_ends_at_the_whole(void **state)
{
	struct scene s;
	struct seen seen = { 0 };
	struct ckpt_run_opts o = { .threads = 4, .progress = on_progress, .progress_arg = &seen };
	struct ck_run_stats stats;

	(void)state;
	open_scene(&s);
	assert_int_equal(run(&s, &o, CK_RUN_NOWHERE, -1, NULL, NULL, &stats, NULL), 0);
	ck_free(stats.digest);
	assert_int_equal(seen.last, s.want_n);
	assert_int_equal(seen.total, s.want_n);
	close_scene(&s);
}

static void cancel_stops_every_kind_of_run(void **state)
{
	struct scene s;

	(void)state;
	open_scene(&s);
	for (uint32_t threads = 1; threads <= 3; threads++)
		for (int to = CK_RUN_STAGE; to <= CK_RUN_NOWHERE; to++) {
			int cancel = 0;
			struct seen seen = { .cancel = &cancel, .cancel_at = 1 };
			struct ckpt_run_opts o = {
				.threads = threads, .progress = on_progress,
				.progress_arg = &seen, .cancel = &cancel,
			};
			struct ckpt_err err = { 0 };
			struct ck_run_stats stats;
			uint32_t file;
			struct ck_stage *stage = begin(&s, &file);
			const int fd = open("/dev/null", O_WRONLY);

			if (threads > 1)
				cancel = 1;	/* before it begins: no unit is luckier */
			assert_int_equal(run(&s, &o, (enum ck_run_to)to, fd, stage, &file, &stats,
					     &err), -CKPT_E_CANCELED);
			assert_true(err.msg[0]);
			close(fd);
			ck_stage_abort(stage);
		}
	close_scene(&s);
}

/* The source of the second half is cut off: the units there fail, whichever thread has them. */
static void the_failure_told_is_the_real_one(void **state)
{
	struct scene s;
	char *path;

	(void)state;
	open_scene(&s);
	path = t_fmt("%s/raw", s.raw.dir);
	assert_int_equal(truncate(path, 3 << 20), 0);
	for (int i = 0; i < 20; i++)
		for (int to = CK_RUN_STREAM; to <= CK_RUN_NOWHERE; to++) {
			struct ckpt_run_opts o = { .threads = 1 + (uint32_t)i % 4 };
			struct ckpt_err err = { 0 };
			struct ck_run_stats stats;
			const int fd = open("/dev/null", O_WRONLY);
			const int rc = run(&s, &o, (enum ck_run_to)to, fd, NULL, NULL, &stats,
					   &err);

			close(fd);
			assert_int_equal(rc, -CKPT_E_TRUNCATED);
			assert_string_equal(err.where, path);
		}
	free(path);
	close_scene(&s);
}

static void a_part_that_is_none_is_refused(void **state)
{
	struct scene s;
	struct ckpt_run_opts opts;
	struct ck_run_job job = { .to = CK_RUN_STREAM, .nparts = 2, .opts = &opts };
	struct ck_run_stats stats;

	(void)state;
	open_scene(&s);
	ck_run_opts_fill(NULL, &opts);
	job.plan = &s.plan;
	assert_int_equal(ck_run(&job, &stats, NULL), -CKPT_E_USAGE);
	job.to = CK_RUN_NOWHERE;
	job.part = 2;
	assert_int_equal(ck_run(&job, &stats, NULL), -CKPT_E_USAGE);
	close_scene(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_number_of_threads_writes_the_same_bytes_and_digests),
		cmocka_unit_test(a_stream_comes_in_order),
		cmocka_unit_test(a_killed_run_keeps_good_units_and_writes_damaged_ones_again),
		cmocka_unit_test(progress_only_grows_and_ends_at_the_whole),
		cmocka_unit_test(cancel_stops_every_kind_of_run),
		cmocka_unit_test(the_failure_told_is_the_real_one),
		cmocka_unit_test(a_part_that_is_none_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
