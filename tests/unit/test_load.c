/*
 * Ranges of states into memory. If this fails, a run that resumes begins with other numbers than it
 * saved, or a rank reads bytes that another one needs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/format/ck_limits.h"
#include "libckpt/run/ck_ckpt.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_load.h"
#include "tests/lib/ops/t_raw.h"
#include "tests/lib/ops/t_step.h"

static const uint32_t worlds[] = { 1, 2, 3, 7 };

static char *fixtures(void)
{
	const char *root = getenv("ZCKPT_FIXTURES");

	return t_fmt("%s", root && *root ? root : "build/fixtures");
}

static struct ckpt *try_open(const char *path)
{
	struct ckpt *ck = NULL;

	return ckpt_open(&path, 1, NULL, &ck, NULL) ? NULL : ck;
}

static bool is_damaged(const struct ckpt *ck)
{
	struct ckpt_finding f;

	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
		if (f.severity == CKPT_ERROR)
			return true;
	return false;
}

/* What reading all of it finds. */
static bool is_whole(const char *path)
{
	const struct ckpt_verify_opts o = { .size = sizeof(o), .flags = CKPT_VERIFY_FULL };
	struct ckpt *ck = try_open(path);
	struct ckpt_verified v;
	const bool whole = ck && !ckpt_verify(ck, &o, &v, NULL) && !is_damaged(ck);

	ckpt_close(ck);
	return whole;
}

/* At every world; the number of states, 0 if it cannot be opened or is damaged. */
static uint64_t load_path(const char *path, uint64_t *seed)
{
	const unsigned check = is_whole(path) ? CKPT_LOAD_CHECK : 0;
	struct ckpt *ck = try_open(path);
	struct t_loaded l = { .states = 0 };

	for (size_t i = 0; ck && !is_damaged(ck) && i < sizeof(worlds) / sizeof(worlds[0]); i++)
		t_load_ranks(ck, worlds[i], t_random(seed) % 2 ? check : 0, t_random(seed) % 2,
			     seed, &l);
	ckpt_close(ck);
	return l.states;
}

/* ---------------------------------------------------------------- all that there is */

static void steps_of_every_stage(void **state)
{
	char *root = fixtures(), *dir = t_fmt("%s/deepspeed", root);
	uint64_t seed = 1, opened = 0, states = 0;
	char **names = t_dir_list(dir, NULL);

	(void)state;
	for (char **n = names; *n; n++) {
		char *path = t_fmt("%s/%s/ckpt", dir, *n);
		const uint64_t k = t_is_dir(path) ? load_path(path, &seed) : 0;

		opened += k != 0;
		states += k;
		free(path);
	}
	assert_true(opened >= 140 && states >= 5000);
	t_list_free(names);
	free(dir);
	free(root);
}

/* Files of torch (views, deflated members, other byte orders), safetensors, folders of them. */
static void files_of_every_kind(void **state)
{
	static const char *const kinds[] = { "torch", "legacy", "zip", "safetensors", "hf" };
	uint64_t seed = 2, opened = 0;
	char *root = fixtures();

	(void)state;
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		char *dir = t_fmt("%s/formats/%s", root, kinds[k]);
		char **names = t_dir_list(dir, NULL);

		for (char **n = names; *n; n++) {
			char *path = t_fmt("%s/%s", dir, *n);

			opened += load_path(path, &seed) != 0;
			free(path);
		}
		t_list_free(names);
		free(dir);
	}
	assert_true(opened >= 100);
	free(root);
}

/* ---------------------------------------------------------------- forms made of a step */

static void native_universal_and_packs(void **state)
{
	static const char *const names[] = {
		"ds0.19.8-z1-bf16-w2-bf16opt", "ds0.19.8-z2-bf16-w3", "ds0.19.8-z3-bf16-w2-frozen",
		"ds0.19.8-z3-bf16-w3", "ds0.19.8-z2-bf16-w2-tied3", "ds0.19.8-z3-bf16-w8-tiny",
	};
	uint64_t seed = 3;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *dir = t_step_copy(names[i]), *from = t_fmt("%s/ckpt", dir);
		char *nat = t_fmt("%s/nat", dir), *uni = t_fmt("%s/uni", dir);
		char *pack = t_fmt("%s/step.tar.zst", dir), *dcp = t_fmt("%s/dcp", dir);

		t_load_reshard(from, nat, CKPT_TO_NATIVE, 3);
		t_load_reshard(from, uni, CKPT_TO_UNIVERSAL, 2);
		t_load_reshard(from, dcp, CKPT_TO_DCP, 3);
		assert_true(load_path(nat, &seed) > 0);
		assert_true(load_path(uni, &seed) > 0);
		assert_true(load_path(dcp, &seed) > 0);
		if (ckpt_has_packs()) {
			struct ckpt *ck = t_step_open(nat, NULL);

			assert_int_equal(ckpt_pack(ck, pack, NULL, NULL, NULL), 0);
			ckpt_close(ck);
			assert_true(load_path(pack, &seed) > 0);
		}
		free(dcp);
		free(pack);
		free(uni);
		free(nat);
		free(from);
		t_dir_end(dir);
	}
}

/* ---------------------------------------------------------------- each byte once */

/* Stored bytes of all states that are no derived ones. */
static uint64_t payload_of(const struct ckpt *ck)
{
	struct ckpt_info info;
	uint64_t bytes = 0;

	ckpt_info_get(ck, &info);
	for (uint64_t t = 0; t < info.ntensors; t++) {
		struct ckpt_tensor_info tensor;
		struct ckpt_state_info s;
		struct ckpt_extent_info e;

		ckpt_tensor_get(ck, t, &tensor, NULL);
		for (uint32_t i = 0; i < tensor.nstates; i++) {
			assert_int_equal(ckpt_state_get(ck, t, i, &s, NULL), 0);
			if (s.flags & CKPT_STATE_DERIVED)
				continue;
			for (uint64_t k = 0; k < s.nextents; k++) {
				assert_int_equal(ckpt_extent_get(ck, t, i, k, &e, NULL), 0);
				bytes += e.count * e.runs * ckpt_dtype_bits(e.dtype) / 8;
			}
		}
	}
	return bytes;
}

static void every_byte_is_read_once_by_a_job(void **state)
{
	static const uint32_t to[] = { 1, 2, 3, 5, 7 };
	char *dir = t_step_copy("ds0.19.8-z3-bf16-w2-frozen"), *from = t_fmt("%s/ckpt", dir);
	char *nat = t_fmt("%s/nat", dir);
	struct ckpt_loaded sum = { .ranges = 0 };
	uint64_t payload, same;
	struct ckpt *ck;

	(void)state;
	t_load_reshard(from, nat, CKPT_TO_NATIVE, 3);
	ck = t_step_open(nat, NULL);
	payload = payload_of(ck);
	assert_true(payload > 10000);
	for (uint32_t r = 0; r < 3; r++)
		t_load_share(ck, r, 3, 1, 0, &sum);
	assert_int_equal(sum.bytes_read, payload);
	assert_int_equal(sum.bytes_made, payload);
	same = sum.reads;
	/* Another world takes more calls, but not a byte more. */
	for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++) {
		memset(&sum, 0, sizeof(sum));
		for (uint32_t r = 0; r < to[i]; r++)
			t_load_share(ck, r, to[i], 0, 0, &sum);
		assert_int_equal(sum.bytes_read, payload);
		assert_int_equal(sum.bytes_made, payload);
	}
	assert_true(sum.reads > same);
	ckpt_close(ck);
	free(nat);
	free(from);
	t_dir_end(dir);
}

/* ---------------------------------------------------------------- masters, calls, runs */

static void a_master_that_was_not_kept_is_the_weight(void **state)
{
	char *dir = t_step_copy("ds0.19.8-z3-bf16-w2-frozen"), *path = t_fmt("%s/ckpt", dir);
	struct ckpt *ck = t_step_open(path, NULL);
	struct ckpt_tensor_info t = { .numel = 0 };
	struct ckpt_load_range r = { .tensor = 0, .state = "master" };
	struct ckpt_loaded l;
	struct ckpt_err err = { 0 };
	uint8_t *want;
	size_t n;

	(void)state;
	while (!ckpt_tensor_get(ck, r.tensor, &t, NULL) && t.role != CKPT_ROLE_FROZEN)
		r.tensor++;
	assert_int_equal(t.role, CKPT_ROLE_FROZEN);
	assert_int_equal(t_step_state(ck, t.name, "master"), -1);
	want = t_load_cat(ck, r.tensor, "weight", CKPT_F32, &n);
	r.count = t.numel;
	r.dst = t_alloc(n);
	assert_int_equal(ckpt_load(ck, &r, 1, NULL, &l, &err), 0);
	assert_memory_equal(r.dst, want, n);
	assert_true(l.masters_made == 1 && l.bytes_made == n && l.bytes_read == n / 2);
	r.state = "exp_avg";
	assert_int_equal(ckpt_load(ck, &r, 1, NULL, &l, &err), -CKPT_E_USAGE);
	assert_non_null(strstr(err.msg, "has no state \"exp_avg\"; it has weight"));
	free(r.dst);
	free(want);
	ckpt_close(ck);
	free(path);
	t_dir_end(dir);
}

static void wrong(struct ckpt *ck, const struct ckpt_load_range *r, size_t n, int code,
		  const char *words, int line)
{
	struct ckpt_loaded l = { .ranges = 77 };
	struct ckpt_err err = { 0 };
	const int rc = ckpt_load(ck, r, n, NULL, &l, &err);

	if (rc != -code || !strstr(err.msg, words) || l.ranges != 77)
		fail_msg("line %d: %d, '%s' lacks '%s'", line, rc, err.msg, words);
}
#define WRONG(r, n, words) wrong(ck, r, n, CKPT_E_USAGE, words, __LINE__)

static void calls_that_cannot_be_meant(void **state)
{
	char *dir = t_step_copy("ds0.19.8-z2-bf16-w2"), *path = t_fmt("%s/ckpt", dir);
	struct ckpt *ck = t_step_open(path, NULL);
	struct ckpt_tensor_info t;
	struct ckpt_info info;
	uint8_t buf[64];
	struct ckpt_load_range good = { .state = "master", .count = 2, .dst = buf }, r = good;
	struct ckpt_load_range two[2];

	(void)state;
	ckpt_info_get(ck, &info);
	ckpt_tensor_get(ck, 0, &t, NULL);
	memset(buf, 1, sizeof(buf));
	r.tensor = info.ntensors;
	WRONG(&r, 1, "tensor 25 does not exist");
	r = good;
	r.state = "exp_avg_cubed";
	WRONG(&r, 1, "has no state \"exp_avg_cubed\"");
	r = good;
	r.dst = NULL;
	WRONG(&r, 1, "the pointer to the buffer for 8 bytes is NULL");
	r = good;
	r.first = t.numel - 1;
	WRONG(&r, 1, "2 elements from");
	r.first = UINT64_MAX;
	WRONG(&r, 1, "2 elements from element 18446744073709551615");
	r = good;
	r.count = UINT64_MAX;
	WRONG(&r, 1, "18446744073709551615 elements from element 0");
	r = good;
	r.dtype = CKPT_I64;
	WRONG(&r, 1, "F32 cannot be converted to I64");
	r.dtype = (enum ckpt_dtype)99;
	WRONG(&r, 1, "99 is not an element type");
	r = good;
	r.dst = (void *)(UINTPTR_MAX - 3);
	WRONG(&r, 1, "would exceed the address space");
	two[0] = two[1] = good;
	two[1].dst = buf + 7;
	WRONG(two, 2, "overlaps that of range");
	two[1].dst = buf;
	two[1].first = 2;
	WRONG(two, 2, "overlaps that of range");
	/* The first range is right, and nothing of it was read. */
	two[1] = good;
	two[1].tensor = info.ntensors;
	WRONG(two, 2, "tensor 25 does not exist");
	for (size_t i = 0; i < sizeof(buf); i++)
		assert_int_equal(buf[i], 1);
	/* Neither place nor anything else is needed for nothing. */
	r = good;
	r.dst = NULL;
	r.count = 0;
	assert_int_equal(ckpt_load(ck, &r, 1, NULL, NULL, NULL), 0);
	r.first = t.numel;
	assert_int_equal(ckpt_load(ck, &r, 1, NULL, NULL, NULL), 0);
	assert_int_equal(ckpt_load(ck, NULL, 0, NULL, NULL, NULL), 0);
	ckpt_close(ck);
	free(path);
	t_dir_end(dir);
}

static void a_damaged_step_is_refused_unless_it_is_wanted(void **state)
{
	char *dir = t_step_copy("ds0.19.8-z2-bf16-w2"), *path = t_fmt("%s/ckpt", dir);
	char *gone = t_fmt("%s/global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", path);
	const struct ckpt_load_opts o = { .size = sizeof(o), .flags = CKPT_LOAD_DESPITE_FINDINGS };
	struct ckpt_load_range r = { .state = NULL, .count = 1 };
	struct ckpt_loaded l;
	struct ckpt_err err = { 0 };
	struct ckpt_state_info s;
	struct ckpt *ck;
	uint8_t one[16], *want;
	size_t n;

	(void)state;
	t_dir_remove(gone);
	ck = t_step_open(path, NULL);
	r.dst = one;
	assert_int_equal(ckpt_load(ck, &r, 1, NULL, &l, &err), -CKPT_E_INCOMPLETE);
	assert_non_null(strstr(err.msg, "RANK_FILE_MISSING"));
	assert_int_equal(ckpt_load(ck, &r, 1, &o, &l, NULL), 0);
	ckpt_state_get(ck, 0, 0, &s, NULL);
	want = t_load_cat(ck, 0, "weight", 0, &n);
	assert_memory_equal(one, want, ckpt_dtype_bits(s.dtype) / 8);
	free(want);
	ckpt_close(ck);
	free(gone);
	free(path);
	t_dir_end(dir);
}

struct counting {
	uint64_t calls, last, total;
	int cancel, cancel_at;
};

static void count(void *arg, const struct ckpt_progress *p)
{
	struct counting *c = arg;

	c->calls++;
	c->last = p->done_bytes;
	c->total = p->total_bytes;
	if (c->cancel_at && c->calls >= (uint64_t)c->cancel_at)
		__atomic_store_n(&c->cancel, 1, __ATOMIC_RELAXED);
}

/* A file larger than a few jobs: progress, cancel, threads, one type of many. */
static void a_large_state_is_shared_by_threads(void **state)
{
	const uint64_t shape[] = { 3000001 };
	struct counting c = { .calls = 0 };
	struct ckpt_run_opts run = {
		.size = sizeof(run), .threads = 3, .progress = count, .progress_arg = &c,
		.cancel = &c.cancel,
	};
	const struct ckpt_load_opts o = { .size = sizeof(o), .run = &run };
	struct t_raw raw;
	struct ckpt ck = { .threads = 1 };
	struct ck_extent e;
	struct ckpt_load_range r[2] = { { .state = "weight", .first = 1, .count = 3000000 } };
	struct ckpt_loaded l;
	struct ckpt_err err = { 0 };
	float *got, *wide;

	(void)state;
	t_raw_make(&raw, 12000017);
	for (uint64_t i = 0; i < 3000001; i++) {
		const float v = (float)i;

		memcpy(raw.bytes + 13 + 4 * i, &v, 4);
	}
	t_raw_put(&raw);
	e = t_extent(&raw, 0, 3000001, 13, CKPT_F32);
	t_state(&raw, "big", shape, 1, CKPT_F32, &e, 1);
	ck.ix = raw.ix;
	ck.pool = raw.pool;
	ck_limits_fill(NULL, &ck.limits);
	got = t_alloc(12000000);
	wide = t_alloc(24000000);
	r[0].dst = got;
	r[1] = r[0];
	r[1].dtype = CKPT_F64;
	r[1].dst = wide;
	if (ckpt_load(&ck, r, 2, &o, &l, &err))
		fail_msg("%s: %s", err.where, err.msg);
	for (uint64_t i = 0; i < 3000000; i++) {
		double v;

		memcpy(&v, (uint8_t *)wide + 8 * i, 8);
		if (got[i] != (float)(i + 1) || v != (double)(i + 1))
			fail_msg("element %d is another one", (int)i);
	}
	assert_true(l.threads == 3 && l.bytes_read == 24000000 && l.bytes_made == 36000000);
	assert_true(c.calls > 3 && c.total == 36000000 && c.last <= c.total);
	/* canceled from the outside, and before anything */
	c = (struct counting){ .cancel_at = 2 };
	assert_int_equal(ckpt_load(&ck, r, 2, &o, &l, &err), -CKPT_E_CANCELED);
	assert_true(c.last < c.total);
	c = (struct counting){ .cancel = 1 };
	memset(&err, 0, sizeof(err));
	assert_int_equal(ckpt_load(&ck, r, 2, &o, &l, &err), -CKPT_E_CANCELED);
	assert_int_equal(c.calls, 0);
	free(got);
	free(wide);
	t_raw_free(&raw);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_that_cannot_be_meant),
		cmocka_unit_test(a_master_that_was_not_kept_is_the_weight),
		cmocka_unit_test(a_damaged_step_is_refused_unless_it_is_wanted),
		cmocka_unit_test(a_large_state_is_shared_by_threads),
		cmocka_unit_test(every_byte_is_read_once_by_a_job),
		cmocka_unit_test(native_universal_and_packs),
		cmocka_unit_test(files_of_every_kind),
		cmocka_unit_test(steps_of_every_stage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
