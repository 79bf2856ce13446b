/*
 * What is loaded is held against sums. If this fails, a run resumes with damaged numbers that the
 * files could have told, or takes for checked what nothing was held against.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_load.h"
#include "tests/lib/ops/t_raw.h"
#include "tests/lib/ops/t_save.h"
#include "tests/lib/ops/t_step.h"

static void what_a_rank_wrote_is_checked_when_it_comes_back(void **state)
{
	char *dir = t_step_copy("ds0.19.8-z3-bf16-w2-frozen"), *from = t_fmt("%s/ckpt", dir);
	char *nat = t_fmt("%s/nat", dir);
	struct ckpt_loaded sum = { .ranges = 0 };
	struct ckpt *ck;

	(void)state;
	t_load_reshard(from, nat, CKPT_TO_NATIVE, 3);
	ck = t_step_open(nat, NULL);
	for (uint32_t r = 0; r < 3; r++)
		t_load_share(ck, r, 3, 1, CKPT_LOAD_CHECK, &sum);
	assert_int_equal(sum.checked_bytes, sum.bytes_read);
	assert_int_equal(sum.unchecked_bytes, 0);
	assert_int_equal(sum.again_bytes, 0);
	/* Shares that no rank wrote are not all checked, and said to be so. */
	memset(&sum, 0, sizeof(sum));
	for (uint32_t r = 0; r < 7; r++)
		t_load_share(ck, r, 7, 0, CKPT_LOAD_CHECK, &sum);
	assert_true(sum.checked_bytes < sum.bytes_read && sum.unchecked_bytes > 0);
	assert_int_equal(sum.checked_bytes + sum.unchecked_bytes, sum.bytes_read);
	ckpt_close(ck);
	/*
	 * Records of an archive likewise; what is left of them, padding, is read for the sum. Of
	 * a few tiny ones too little is read.
	 */
	ck = t_step_open(from, NULL);
	memset(&sum, 0, sizeof(sum));
	t_load_share(ck, 0, 1, 0, CKPT_LOAD_CHECK, &sum);
	assert_true(sum.unchecked_bytes < 64);
	assert_true(sum.again_bytes > 0 && sum.again_bytes < sum.bytes_read / 8);
	ckpt_close(ck);
	free(nat);
	free(from);
	t_dir_end(dir);
}

/* One bit, and back again. */
static void flip(const char *path, uint64_t off)
{
	FILE *f = fopen(path, "r+b");
	int c;

	if (!f || fseek(f, (long)off, SEEK_SET) || (c = fgetc(f)) == EOF ||
	    fseek(f, (long)off, SEEK_SET) || fputc(c ^ 16, f) == EOF || fclose(f))
		fail_msg("cannot change %s", path);
}

/* All of a state as 'dtype'; what it returned. */
static int load_all(struct ckpt *ck, uint64_t tensor, const char *name, enum ckpt_dtype dtype,
		    unsigned flags, struct ckpt_err *err)
{
	const struct ckpt_load_opts o = { .size = sizeof(o), .flags = flags };
	struct ckpt_load_range r = { .tensor = tensor, .state = name, .dtype = dtype };
	struct ckpt_loaded l;
	struct ckpt_tensor_info t;
	int rc;

	ckpt_tensor_get(ck, tensor, &t, NULL);
	r.count = t.numel;
	r.dst = t_alloc(t.numel * 8 + 1);
	memset(err, 0, sizeof(*err));
	rc = ckpt_load(ck, &r, 1, &o, &l, err);
	free(r.dst);
	return rc;
}

/* Damage that is there when it is opened: a file that changes later is CKPT_E_MISMATCH. */
static struct ckpt *opened_again(struct ckpt *ck, const char *path)
{
	ckpt_close(ck);
	return t_step_open(path, NULL);
}

/* Somewhere in every state of every tensor: found with its name, as it is and in a cast. */
static void damage_is_found(const char *path, int code, const char *id, uint64_t least)
{
	struct ckpt *ck = t_step_open(path, NULL);
	uint64_t seed = 7, flips = 0;
	struct ckpt_info info;
	struct ckpt_err err;

	ckpt_info_get(ck, &info);
	for (uint64_t t = 0; t < info.ntensors; t++) {
		struct ckpt_tensor_info tensor;
		struct ckpt_state_info s;
		struct ckpt_extent_info e;

		ckpt_tensor_get(ck, t, &tensor, NULL);
		for (uint32_t i = 0; i < tensor.nstates; i++) {
			const uint64_t k = t_random(&seed);

			struct ckpt *now = t_step_open(path, NULL);

			ckpt_state_get(ck, t, i, &s, NULL);
			/* a record of the whole state: other ones are not read enough of */
			if (s.nextents != 1 || ckpt_extent_get(ck, t, i, 0, &e, NULL) ||
			    load_all(now, t, s.name, 0, CKPT_LOAD_CHECK, &err)) {
				ckpt_close(now);
				continue;
			}
			flip(e.path, e.offset + k % (tensor.numel * ckpt_dtype_bits(e.dtype) / 8));
			now = opened_again(now, path);
			assert_int_equal(load_all(now, t, s.name, 0, 0, &err), 0);
			assert_int_equal(load_all(now, t, s.name, 0, CKPT_LOAD_CHECK, &err), -code);
			assert_non_null(strstr(err.msg, id));
			assert_non_null(strstr(err.msg, tensor.name));
			/* what is derived lies there as the master */
			assert_true(strstr(err.msg, s.name) || (s.flags & CKPT_STATE_DERIVED &&
								strstr(err.msg, "master of ")));
			assert_string_equal(err.where, e.path);
			flips++;
			if (s.dtype == CKPT_F32)
				assert_int_equal(load_all(now, t, s.name, CKPT_BF16,
							  CKPT_LOAD_CHECK, &err), -code);
			flip(e.path, e.offset + k % (tensor.numel * ckpt_dtype_bits(e.dtype) / 8));
			now = opened_again(now, path);
			assert_int_equal(load_all(now, t, s.name, 0, CKPT_LOAD_CHECK, &err), 0);
			ckpt_close(now);
		}
	}
	assert_true(flips >= least);
	ckpt_close(ck);
}

static void a_flipped_bit_is_found_by_name(void **state)
{
	char *dir = t_step_copy("ds0.19.8-z3-bf16-w2-frozen"), *from = t_fmt("%s/ckpt", dir);
	char *nat = t_fmt("%s/nat", dir), *uni = t_fmt("%s/uni", dir);

	(void)state;
	t_load_reshard(from, nat, CKPT_TO_NATIVE, 1);
	t_load_reshard(from, uni, CKPT_TO_UNIVERSAL, 2);
	damage_is_found(nat, CKPT_E_MISMATCH, "MANIFEST_HASH_WRONG", 20);
	damage_is_found(uni, CKPT_E_CORRUPT, "CRC_WRONG", 20);
	free(uni);
	free(nat);
	free(from);
	t_dir_end(dir);
}

/* One bit of an extent: found by who loads it. */
static void flip_is_found(const char *path, uint64_t tensor, const char *state,
			  const struct ckpt_extent_info *e, uint64_t byte)
{
	const struct ckpt_load_opts o = { .size = sizeof(o), .flags = CKPT_LOAD_CHECK };
	struct ckpt_load_range r = {
		.tensor = tensor, .state = state, .first = e->first, .count = e->count,
	};
	struct ckpt *ck = t_step_open(path, NULL);
	struct ckpt_loaded l;
	struct ckpt_err err = { 0 };

	r.dst = t_alloc(e->count * 8);
	assert_int_equal(ckpt_load(ck, &r, 1, &o, &l, &err), 0);
	assert_int_equal(l.unchecked_bytes, 0);
	assert_int_equal(l.checked_bytes, l.bytes_read);
	flip(e->path, e->offset + byte);
	ck = opened_again(ck, path);
	assert_int_equal(ckpt_load(ck, &r, 1, &o, &l, &err), -CKPT_E_MISMATCH);
	assert_non_null(strstr(err.msg, state));
	flip(e->path, e->offset + byte);
	ckpt_close(ck);
	free(r.dst);
}

/* As a trainer's ranks save: pieces begin and end anywhere, and some are smaller than a block. */
static void pieces_that_cut_blocks_are_checked_whole(void **state)
{
	char *dir = t_dir_new();
	const struct t_trainer t = {
		.root = dir, .job = "1", .nranks = 3, .threads = 1, .timeout_ms = 10000,
		.held = T_HELD_EVEN, .own = true, .sync = CKPT_SYNC_NONE,
	};
	struct ckpt_save_step *step = t_save_step(&t, "global_step3", CKPT_TO_NATIVE, 3, 0);
	struct ckpt_loaded sum = { .ranges = 0 };
	struct ckpt_tensor_info tensor;
	struct ckpt_state_info s;
	struct ckpt_extent_info e;
	struct ckpt_err err = { 0 };
	uint64_t seed = 9, cut = 0;
	struct ckpt *ck;

	(void)state;
	if (t_save_all(&t, step, &err))
		fail_msg("%s: %s", err.where, err.msg);
	ck = t_step_open(dir, NULL);
	for (uint32_t r = 0; r < 3; r++)
		t_load_share(ck, r, 3, 1, CKPT_LOAD_CHECK, &sum);
	assert_true(sum.bytes_read > 50000 && sum.checked_bytes == sum.bytes_read);
	for (uint64_t i = 0; !ckpt_tensor_get(ck, i, &tensor, NULL); i++)
		for (uint32_t k = 0; !ckpt_state_get(ck, i, k, &s, NULL); k++)
			for (uint64_t x = 0; !ckpt_extent_get(ck, i, k, x, &e, NULL); x++) {
				const uint64_t es = ckpt_dtype_bits(e.dtype) / 8;
				const uint64_t n = e.count * es;

				if (s.flags & CKPT_STATE_DERIVED)
					continue;
				cut += e.first * es % 4096 || (e.first + e.count) * es % 4096;
				flip_is_found(dir, i, s.name, &e, 0);
				flip_is_found(dir, i, s.name, &e, n - 1);
				flip_is_found(dir, i, s.name, &e, t_random(&seed) % n);
			}
	assert_true(cut >= 6);
	ckpt_close(ck);
	t_dir_end(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_rank_wrote_is_checked_when_it_comes_back),
		cmocka_unit_test(a_flipped_bit_is_found_by_name),
		cmocka_unit_test(pieces_that_cut_blocks_are_checked_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
