/*
 * Whose shard is it, and of which step? If this is wrong, a shard that was copied over another
 * rank's comes out as a model of garbage and is called whole, or an honest step of a tiny model
 * is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/include/ckpt_reshard.h"
#include "libckpt/include/ckpt_value.h"
#include "tests/lib/archive/t_pkl.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_step.h"

#define SHARD_NAME "zero_pp_rank_%d_mp_rank_00_optim_states.pt"

/* What archives of ranks are called inside. */
enum naming { NAMED, UNNAMED, LEGACY };

static void save(const char *dir, const char *kind, int rank, enum naming naming,
		 const char *text)
{
	char *name = t_fmt("zero_pp_rank_%d_mp_rank_00_%s.pt", rank, kind);
	char *path = t_fmt("%s/%s", dir, name);
	char *other = t_fmt("%s/archive.pt", dir);

	if (naming == LEGACY)
		t_pkl_save_legacy(path, text);
	else
		t_pkl_save(naming == NAMED ? path : other, text);
	if (naming == UNNAMED)
		assert_int_equal(rename(other, path), 0);
	free(other);
	free(path);
	free(name);
}

/* ------------------------------------------------------------------- stage 3 */

/* 'masters' and 'sums' of each rank, 'numel' elements in all. */
struct z3 {
	enum naming naming;
	int world, numel;
	const char *const *masters, *const *sums;	/* a sum NULL: no state */
	const char *const *frozen;	/* fragments of a frozen parameter of 'numel', or NULL */
	int count, skipped;	/* the optimizer's steps beyond the one of the model files */
	int own;		/* 1: each rank has values of its own */
};

static char *step(const struct z3 *z)
{
	char *dir = t_dir_new();

	for (int r = 0; r < z->world; r++) {
		char *sum = z->sums ? t_fmt("0 { 'step' %d 'sum' %s 'RMS' %d } ", 1 + z->count,
					     z->sums[r], z->own * r) : t_fmt(" ");
		char *shard = t_fmt("{ 'optimizer_state_dict' { 'zero_stage' 3 'partition_count' "
				    "%d 'fp32_flat_groups' [ %s ] 'optimizer_state_dict' "
				    "{ 'state' { %s } 'param_groups' [ { 'params' [ 0 ] } ] } "
				    "'extra' %d } }", z->world, z->masters[r], sum, z->own * r);
		char *frozen = z->frozen ? t_fmt("'frozen_param_shapes' { 'f' ( %d ) } "
						 "'frozen_param_fragments' { 'f' %s } ", z->numel,
						 z->frozen[r]) : t_fmt(" ");
		char *model = t_fmt("{ 'module' { 'a' <f32 0> %s } 'param_shapes' [ { 'a' ( %d ) } "
				    "] %s 'global_steps' %d 'skipped_steps' %d 'dp_world_size' %d "
				    "'mp_world_size' 1 'ds_version' '0.19.8' 'mine' <i8 4 @%d> }",
				    z->frozen ? "'f' <f32 0>" : "", z->numel, frozen,
				    1 + z->skipped, z->skipped, z->world, z->own * r);

		save(dir, "optim_states", r, z->naming, shard);
		save(dir, "model_states", r, z->naming, model);
		free(sum);
		free(shard);
		free(frozen);
		free(model);
	}
	return dir;
}

static struct ckpt *opened(const struct z3 *z)
{
	char *dir = step(z);
	struct ckpt *ck = t_step_open(dir, NULL);

	t_dir_end(dir);
	return ck;
}

static const char *const rising[] = { "<f32 16 @1>", "<f32 16 @17>" };
static const char *const same[] = { "<f32 16 @1>", "<f32 16 @1>" };

static void shards_that_hold_the_same_bytes_are_one_ranks(void **state)
{
	(void)state;
	for (int naming = UNNAMED; naming <= LEGACY; naming++) {
		const struct z3 honest = { naming, 2, 32, rising, rising, NULL, 0, 0, 0 };
		const struct z3 copied = { naming, 2, 32, same, same, NULL, 0, 0, 0 };
		struct ckpt *ck = opened(&honest);

		assert_null(t_step_finding(ck, "RANK_FILE_SWAPPED", ""));
		assert_non_null(t_step_finding(ck, "RANKS_UNNAMED", "2 files"));
		ckpt_close(ck);
		ck = opened(&copied);
		assert_non_null(t_step_finding(ck, "RANK_FILE_SWAPPED", "zero_pp_rank_1"));
		ckpt_close(ck);
	}
}

static void shards_that_name_their_rank_are_believed(void **state)
{
	const struct z3 z = { NAMED, 2, 32, same, same, NULL, 0, 0, 0 };
	struct ckpt *ck = opened(&z);

	(void)state;
	assert_null(t_step_finding(ck, "RANK_FILE_SWAPPED", ""));
	assert_null(t_step_finding(ck, "RANKS_UNNAMED", ""));
	ckpt_close(ck);
}

/* Masters alike and moments not, as halves of a parameter that was made of two equal ones. */
static void shards_that_differ_in_a_moment_alone_are_of_two_ranks(void **state)
{
	const struct z3 z = { UNNAMED, 2, 32, same, rising, NULL, 0, 0, 0 };
	struct ckpt *ck = opened(&z);

	(void)state;
	assert_null(t_step_finding(ck, "RANK_FILE_SWAPPED", ""));
	ckpt_close(ck);
}

/* Before the first step a model of norms and biases is constants; of padding nothing is said. */
static void constants_and_padding_may_be_alike_on_ranks(void **state)
{
	static const char *const zeros[] = { "<f32 16 !0>", "<f32 16 !0>" };
	static const char *const ragged[] = { "<f32 2 @1>", "<f32 2 @1>", "<f32 2 @1>",
					      "<f32 2 @1>" };
	const struct z3 one_value = { UNNAMED, 2, 32, zeros, NULL, NULL, 0, 0, 0 };
	const struct z3 padding = { UNNAMED, 4, 1, ragged, NULL, NULL, 0, 0, 0 };

	(void)state;
	for (int i = 0; i < 2; i++) {
		const struct z3 *z = i ? &padding : &one_value;
		struct z3 legacy = *z;
		struct ckpt *ck = opened(z);

		assert_null(t_step_finding(ck, "RANK_FILE_SWAPPED", ""));
		ckpt_close(ck);
		legacy.naming = LEGACY;
		ck = opened(&legacy);
		assert_null(t_step_finding(ck, "RANK_FILE_SWAPPED", ""));
		ckpt_close(ck);
	}
}

static void fragments_of_frozen_parameters_tell_model_files_apart(void **state)
{
	const struct z3 honest = { UNNAMED, 2, 32, rising, NULL, rising, 0, 0, 0 };
	const struct z3 copied = { UNNAMED, 2, 32, rising, NULL, same, 0, 0, 0 };
	struct ckpt *ck = opened(&honest);

	(void)state;
	assert_null(t_step_finding(ck, "RANK_FILE_SWAPPED", ""));
	assert_non_null(t_step_finding(ck, "RANKS_UNNAMED", "4 files"));
	ckpt_close(ck);
	ck = opened(&copied);
	assert_non_null(t_step_finding(ck, "RANK_FILE_SWAPPED", "rank_1_mp_rank_00_model"));
	ckpt_close(ck);
}

/* ------------------------------------------------------------------- of which step */

static void an_optimizer_that_counts_other_steps_is_a_warning(void **state)
{
	static const struct {
		int count, skipped, odd;
	} c[] = { { 0, 0, 0 }, { 1, 0, 0 }, { 0, 5, 0 }, { 2, 0, 1 }, { -1, 0, 0 }, { 5, 5, 1 } };

	(void)state;
	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		const struct z3 z = {
			.naming = NAMED, .world = 2, .numel = 32, .masters = rising, .sums = rising,
			.count = c[i].count, .skipped = c[i].skipped,
		};
		struct ckpt *ck = opened(&z);

		assert_int_equal(t_step_finding(ck, "OPTIMIZER_STEP_DIFFERS", "") != NULL,
				 c[i].odd);
		ckpt_close(ck);
	}
}

/* ------------------------------------------------------------------- values of a rank */

static int64_t number(const struct ckpt *ck, uint32_t rank, const char *path)
{
	struct ckpt_values *v = NULL;
	struct ckpt_err err = { 0 };
	int64_t n = -1;

	if (ckpt_values_open(ck, rank, 0, &v, &err) || ckpt_value_int(v, path, &n, &err))
		fail_msg("%s: %s", err.where, err.msg);
	ckpt_values_close(v);
	return n;
}

/* Resharded to 'world' ranks of 'stage'; 'said': how many values have no place. */
static struct ckpt *resharded(const struct z3 *z, uint32_t world, int stage, unsigned said)
{
	struct ckpt_reshard_opts opts = {
		.size = sizeof(opts), .world = world, .stage = stage, .round_robin = -1,
	};
	char *dir = step(z), *out = t_fmt("%s/out", dir);
	struct ckpt *ck = t_step_open(dir, NULL), *result;
	struct ckpt_finding f;
	struct ckpt_err err = { 0 };
	unsigned n = 0;

	if (ckpt_reshard(ck, out, &opts, NULL, &err))
		fail_msg("%s: %s", err.where, err.msg);
	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
		n += !strcmp(f.id, "NOT_CARRIED");
	assert_int_equal(n, said);
	ckpt_close(ck);
	result = t_step_open(out, NULL);
	free(out);
	t_dir_end(dir);
	return result;
}

static void values_of_a_rank_stay_where_the_ranks_do(void **state)
{
	const struct z3 z = {
		.naming = NAMED, .world = 2, .numel = 32, .masters = rising, .sums = rising,
		.own = 7,
	};
	struct ckpt *ck = resharded(&z, 2, -1, 0);

	(void)state;
	for (uint32_t r = 0; r < 2; r++) {
		assert_int_equal(number(ck, r, "optimizer.extra"), 7 * r);
		assert_int_equal(number(ck, r, "optimizer.optimizer_state_dict.state.0.RMS"),
				 7 * r);
	}
	assert_true(t_step_value(ck, "a", "sum", 20) == 21);
	assert_true(t_step_value(ck, "a", "master", 31) == 32);
	ckpt_close(ck);
}

static void values_of_a_rank_that_have_no_place_are_said(void **state)
{
	struct z3 z = {
		.naming = NAMED, .world = 2, .numel = 32, .masters = rising, .sums = rising,
		.own = 1,
	};

	(void)state;
	for (uint32_t world = 1; world <= 3; world += 2)
		ckpt_close(resharded(&z, world, -1, 2));
	ckpt_close(resharded(&z, 2, 2, 2));
	z.own = 0;
	for (uint32_t world = 1; world <= 3; world++)
		ckpt_close(resharded(&z, world, -1, 0));
	ckpt_close(resharded(&z, 2, 2, 0));
}

/* ------------------------------------------------------------------- real steps */

static void a_real_shard_that_bears_no_name_is_not_copied_in_silence(void **state)
{
	char *dir = t_step_copy("ds0.6.7-z3-bf16-w3"), *tag = t_fmt("%s/ckpt/global_step3", dir);
	char *from = t_fmt("%s/bf16_" SHARD_NAME, tag, 0);
	char *to = t_fmt("%s/bf16_" SHARD_NAME, tag, 2);
	struct ckpt *ck = t_step_open(tag, NULL);
	uint8_t *bytes;
	size_t n;

	(void)state;
	assert_null(t_step_finding(ck, "RANK_FILE_SWAPPED", ""));
	assert_non_null(t_step_finding(ck, "RANKS_UNNAMED", "3 files"));
	ckpt_close(ck);
	bytes = t_file_read(from, &n);
	t_file_write(to, bytes, n);
	free(bytes);
	ck = t_step_open(tag, NULL);
	assert_non_null(t_step_finding(ck, "RANK_FILE_SWAPPED", "zero_pp_rank_2"));
	ckpt_close(ck);
	free(tag);
	free(from);
	free(to);
	t_dir_end(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shards_that_hold_the_same_bytes_are_one_ranks),
		cmocka_unit_test(shards_that_name_their_rank_are_believed),
		cmocka_unit_test(shards_that_differ_in_a_moment_alone_are_of_two_ranks),
		cmocka_unit_test(constants_and_padding_may_be_alike_on_ranks),
		cmocka_unit_test(fragments_of_frozen_parameters_tell_model_files_apart),
		cmocka_unit_test(an_optimizer_that_counts_other_steps_is_a_warning),
		cmocka_unit_test(values_of_a_rank_stay_where_the_ranks_do),
		cmocka_unit_test(values_of_a_rank_that_have_no_place_are_said),
		cmocka_unit_test(a_real_shard_that_bears_no_name_is_not_copied_in_silence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
