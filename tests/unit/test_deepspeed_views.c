/*
 * Views in a model file of DeepSpeed. If this is wrong, a transposed copy of a weight comes out as
 * the weight itself, a reshard ties the two for good, or the moments of a channels_last
 * convolution are lost without a word.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "libckpt/include/ckpt_reshard.h"
#include "tests/lib/archive/t_pkl.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_step.h"

#define COMMON " 'global_steps' 1 'dp_world_size' 1 'mp_world_size' 1 'ds_version' '0.19.8' "

/* A step of one rank in a new folder, which the caller frees and removes; 'shard' may be NULL. */
static char *step(const char *model, const char *shard)
{
	char *dir = t_dir_new(), *path = t_fmt("%s/mp_rank_00_model_states.pt", dir);

	t_pkl_save(path, model);
	free(path);
	path = t_fmt("%s/zero_pp_rank_0_mp_rank_00_optim_states.pt", dir);
	if (shard)
		t_pkl_save(path, shard);
	free(path);
	return dir;
}

static struct ckpt *opened(const char *model, const char *shard)
{
	char *dir = step(model, shard);
	struct ckpt *ck = t_step_open(dir, NULL);

	t_dir_end(dir);
	return ck;
}

/* ------------------------------------------------------------------- ties */

static struct ckpt *pair(const char *a, const char *b)
{
	char *text = t_fmt("{ 'module' { 'a' %s 'b' %s } 'optimizer' None " COMMON "}", a, b);
	struct ckpt *ck = opened(text, NULL);

	free(text);
	return ck;
}

static void names_of_one_view_are_tied(void **state)
{
	static const char *const same[][2] = {
		{ "<f32 2 3 @1>", "<f32 2 3 =0>" },
		{ "<f32 2 2 @1 *1 *2>", "<f32 2 2 =0 *1 *2>" },
		{ "<f32 1 4 @1>", "<f32 1 4 =0 *1 *1>" },	/* one row has no distance */
		{ "<f32 1 1 @1>", "<f32 1 1 =0 *7 *9>" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
		struct ckpt *ck = pair(same[i][0], same[i][1]);

		assert_int_equal(t_step_tensor(ck, "b").role, CKPT_ROLE_ALIAS);
		ckpt_close(ck);
	}
}

static void other_views_of_its_storage_are_tensors_of_their_own(void **state)
{
	static const struct {
		const char *a, *b;
		float want;	/* element 1 of 'b' */
	} other[] = {
		{ "<f32 2 2 @1>", "<f32 2 2 =0 *1 *2>", 3 },	/* a.t() */
		{ "<f32 2 2 @1 *1 *2>", "<f32 2 2 =0>", 2 },
		{ "<f32 2 2 @1>", "<f32 2 2 =0 *0 *0>", 1 },	/* a[0, 0].expand(2, 2) */
		{ "<f32 2 2 @1>", "<f32 2 2 =0 neg>", -2 },
		{ "<f32 4 @1>", "<f32 2 2 =0>", 2 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
		struct ckpt *ck = pair(other[i].a, other[i].b);

		assert_int_equal(t_step_tensor(ck, "b").role, t_step_tensor(ck, "a").role);
		assert_true(t_step_value(ck, "b", "weight", 1) == other[i].want);
		assert_true(t_step_value(ck, "a", "weight", 0) == 1);
		ckpt_close(ck);
	}
}

/* The parameter 'a', trained, and 'b' beside it. */
#define TRAINED(b, more) "{ 'module' { 'a' <f32 2 2 @1> 'b' " b " } " \
	"'param_shapes' [ { 'a' ( 2 2 ) } ] 'optimizer' None " more COMMON "}"
#define SHARD "{ 'optimizer_state_dict' { 'zero_stage' 1 'partition_count' [ 1 ] " \
	"'base_optimizer_state' { 'state' { 0 { 'step' 1 'sum' <f32 4 @9> } } 'param_groups' " \
	"[ { 'lr' 0.5 'params' [ 0 ] } ] } 'single_partition_of_fp32_groups' [ <f32 4 @1> ] } }"

/* shared_params as an earlier zckpt wrote it of a step of stage 0 with such a pair. */
static void shared_params_tie_no_other_view(void **state)
{
	struct ckpt *ck = opened(TRAINED("<f32 2 2 =0 *1 *2>", "'shared_params' { 'b' 'a' } "),
				 SHARD);

	(void)state;
	assert_true(t_step_tensor(ck, "b").role != CKPT_ROLE_ALIAS);
	assert_true(t_step_value(ck, "b", "weight", 1) == 3);
	assert_non_null(t_step_finding(ck, "ALIAS_DOUBTFUL", "b"));
	ckpt_close(ck);
	/* a copy of its own is the same tensor, as it always was */
	ck = opened(TRAINED("<f32 2 2 @1>", "'shared_params' { 'b' 'a' } "), SHARD);
	assert_int_equal(t_step_tensor(ck, "b").role, CKPT_ROLE_ALIAS);
	assert_null(t_step_finding(ck, "ALIAS_DOUBTFUL", ""));
	ckpt_close(ck);
}

static void a_reshard_ties_only_what_is_tied(void **state)
{
	static const char *const model[] = { TRAINED("<f32 2 2 =0 *1 *2>", ""),
					     TRAINED("<f32 2 2 =0>", "") };

	(void)state;
	for (int tied = 0; tied < 2; tied++) {
		struct ckpt_reshard_opts opts = {
			.size = sizeof(opts), .world = 2, .stage = -1, .round_robin = -1,
			.ds_version = "0.19.7",
		};
		char *dir = step(model[tied], SHARD), *out = t_fmt("%s/out", dir);
		struct ckpt *ck = t_step_open(dir, NULL), *result;
		struct ckpt_err err = { 0 };

		if (ckpt_reshard(ck, out, &opts, NULL, &err))
			fail_msg("%s: %s", err.where, err.msg);
		ckpt_close(ck);
		result = t_step_open(out, NULL);
		assert_int_equal(t_step_tensor(result, "b").role == CKPT_ROLE_ALIAS, tied);
		if (!tied)
			assert_true(t_step_value(result, "b", "weight", 1) == 3);
		assert_null(t_step_finding(result, "ALIAS_DOUBTFUL", ""));
		ckpt_close(result);
		free(out);
		t_dir_end(dir);
	}
}

/* ------------------------------------------------------------------- stage 0 */

/* 2 x 3 x 2 x 2 of channels_last: element [0, 1, 0, 0], number 4, is the second one. */
#define LAST "2 3 2 2 *12 *1 *6 *3"
#define ADAM(a, b) "'optimizer' { 'state' { 0 { 'step' 2 'exp_avg' " a " } " \
	"1 { 'step' 2 'exp_avg' " b " } } 'param_groups' [ { 'lr' 0.5 'params' [ 0 1 ] } ] } "
#define CONV(a, b) "{ 'module' { 'w' <f32 " LAST " @1> 'b' <f32 2 @1> } " ADAM(a, b) COMMON "}"

static void moments_of_strided_parameters_are_not_lost(void **state)
{
	struct ckpt_reshard_opts opts = {
		.size = sizeof(opts), .world = 2, .stage = 2, .round_robin = -1,
	};
	char *dir = step(CONV("<f32 " LAST " @100>", "<f32 2 @7>"), NULL);
	char *out = t_fmt("%s/out", dir);
	struct ckpt *ck = t_step_open(dir, NULL);
	struct ckpt_err err = { 0 };

	(void)state;
	assert_int_equal(t_step_count(ck, "exp_avg"), 2);
	assert_true(t_step_value(ck, "w", "exp_avg", 1) == 103);
	assert_true(t_step_value(ck, "w", "exp_avg", 4) == 101);
	assert_true(t_step_value(ck, "w", "weight", 4) == 2);
	assert_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", ""));
	if (ckpt_reshard(ck, out, &opts, NULL, &err))
		fail_msg("%s: %s", err.where, err.msg);
	ckpt_close(ck);
	ck = t_step_open(out, NULL);
	assert_true(t_step_value(ck, "w", "exp_avg", 1) == 103);
	assert_true(t_step_value(ck, "w", "exp_avg", 4) == 101);
	assert_true(t_step_value(ck, "w", "master", 4) == 2);
	ckpt_close(ck);
	free(out);
	t_dir_end(dir);
}

static void masters_that_are_strided_are_found_by_name(void **state)
{
	struct ckpt *ck = opened("{ 'module' { 'w' <bf16 2 2 @1 *1 *2> } 'optimizer' "
				 "{ 'fp32_groups' [ [ <f32 2 2 @1 *1 *2> ] ] "
				 "'optimizer_state_dict' { 'state' "
				 "{ 0 { 'sum' <f32 2 2 @5 *1 *2> } } "
				 "'param_groups' [ { 'params' [ 0 ] 'param_names' [ 'w' ] } ] } } "
				 COMMON "}", NULL);

	(void)state;
	assert_true(t_step_value(ck, "w", "master", 1) == 3);
	assert_true(t_step_value(ck, "w", "sum", 1) == 7);
	ckpt_close(ck);
}

static void states_of_another_shape_are_missed(void **state)
{
	struct ckpt *ck = opened(CONV("<f32 2 3 @1>", "<f32 2 @7>"), NULL);

	(void)state;
	assert_int_equal(t_step_count(ck, "exp_avg"), 0);	/* names do not follow */
	ckpt_close(ck);
	ck = opened("{ 'module' { 'a' <f32 4 @1> 'b' <f32 2 @1> } 'optimizer' { 'state' "
		    "{ 0 { 'sum' <f32 4 @1> 'row' <f32 2 @1> 'weight' <f32 4 @9> } "
		    "1 { 'sum' <f32 2 @1> 'row' <f32 3 @1> 'one' <f32 1 @1> } } "
		    "'param_groups' [ { 'params' [ 0 1 ] } ] } " COMMON "}", NULL);
	assert_int_equal(t_step_count(ck, "sum"), 2);
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "state row is left out"));
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "state weight is left out"));
	assert_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "state one"));
	assert_true(t_step_value(ck, "a", "weight", 0) == 1);
	ckpt_close(ck);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_one_view_are_tied),
		cmocka_unit_test(other_views_of_its_storage_are_tensors_of_their_own),
		cmocka_unit_test(shared_params_tie_no_other_view),
		cmocka_unit_test(a_reshard_ties_only_what_is_tied),
		cmocka_unit_test(moments_of_strided_parameters_are_not_lost),
		cmocka_unit_test(masters_that_are_strided_are_found_by_name),
		cmocka_unit_test(states_of_another_shape_are_missed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
