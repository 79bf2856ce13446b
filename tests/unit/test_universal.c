/*
 * DeepSpeed's universal checkpoints: which folder is opened, what is missing or too much in one,
 * and names that would lead out of it.  If it is wrong, a run goes on with another parameter's
 * moments, or a file outside the folder is read.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/archive/t_pkl.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_step.h"

#define MODEL "mp_rank_00_model_states.pt"
#define RANKED "zero_pp_rank_0_mp_rank_00_model_states.pt"
#define COMMON " 'global_steps' 4 'dp_world_size' 1 'mp_world_size' 1 'ds_version' '0.19.8' "

/* A folder of its own for each test: DIR/run/tag. */
static char *dir;

static char *at(const char *path)
{
	return t_fmt("%s/%s", dir, path);
}

static void save(const char *path, const char *text)
{
	char *a = t_fmt("%s/run/tag/%s", dir, path);

	t_pkl_save(a, text);
	free(a);
}

static void make(const char *path)
{
	char *a = at(path);

	t_dir_make(a);
	free(a);
}

static void gone(const char *path)
{
	char *a = t_fmt("%s/run/tag/%s", dir, path);

	assert_true(t_exists(a));
	t_dir_remove(a);
	free(a);
}

static void latest(const char *text)
{
	char *a = at("run/latest_universal");

	t_file_write(a, text, strlen(text));
	free(a);
}

/* Two parameters of stage 2, with everything that belongs to them. */
static int setup(void **state)
{
	(void)state;
	dir = t_dir_new();
	make("run");
	make("run/tag");
	make("run/tag/zero");
	make("run/tag/zero/v");
	make("run/tag/zero/w");
	save(MODEL, "{ 'module' { 'v' <bf16 2 @7> 'w' <bf16 2 3 @1> 'b' <f32 1 @3> }"
	     " 'buffer_names' [ 'b' ] 'frozen_param_shapes' None"
	     " 'param_shapes' [ { 'v' ( 2 ) 'w' ( 2 3 ) } ]" COMMON "}");
	save("zero/optimizer_state.pt",
	     "{ 'zero_stage' 2 'partition_count' [ 1 ] 'ds_version' '0.19.8'"
	     " 'param_groups' [ { 'lr' 0.5 'params' [ 0 ] } ] }");
	save("zero/v/fp32.pt", "{ 'cat_dim' 0 'param' <f32 2 @7> }");
	save("zero/v/exp_avg.pt", "{ 'cat_dim' 0 'param' <f32 2 @20> }");
	save("zero/v/step.pt", "4");
	save("zero/w/fp32.pt", "{ 'cat_dim' 0 'param' <f32 2 3 @1> }");
	save("zero/w/exp_avg.pt", "{ 'cat_dim' 0 'param' <f32 2 3 @30> }");
	save("zero/w/step.pt", "4");
	latest("tag\n");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	t_dir_end(dir);
	return 0;
}

static struct ckpt *opened(const char *path, const char *tag)
{
	char *a = at(path);
	struct ckpt *ck = t_step_open(a, tag);

	free(a);
	return ck;
}

static void fails(const char *path, const char *tag, int code, const char *words)
{
	char *a = at(path);

	t_step_fails(a, tag, code, words);
	free(a);
}

/* This finding, and no error besides it. */
static void finds(const char *id, const char *words)
{
	struct ckpt *ck = opened("run", NULL);

	if (!t_step_finding(ck, id, words))
		fail_msg("no %s with %s", id, words);
	ckpt_close(ck);
}

static void is(const char *path, const char *tag, const char *format)
{
	struct ckpt *ck = opened(path, tag);
	struct ckpt_info info;

	ckpt_info_get(ck, &info);
	assert_string_equal(info.format, format);
	assert_string_equal(info.tag, "tag");
	ckpt_close(ck);
}

static void states_and_facts_are_read(void **state)
{
	struct ckpt *ck = opened("run", NULL);
	struct ckpt_info info;

	(void)state;
	ckpt_info_get(ck, &info);
	assert_int_equal(info.stage, 2);
	assert_int_equal(info.world, 1);
	assert_string_equal(t_step_fact(ck, "group.0.lr"), "0.5");
	assert_string_equal(t_step_fact(ck, "group.0.step"), "4");
	assert_true(t_step_value(ck, "w", "master", 5) == 6);
	assert_true(t_step_value(ck, "w", "weight", 5) == 6);
	assert_true(t_step_value(ck, "v", "exp_avg", 1) == 21);
	assert_int_equal(t_step_tensor(ck, "b").role, CKPT_ROLE_BUFFER);
	assert_int_equal(t_step_tensor(ck, "w").group, 0);
	ckpt_close(ck);
}

static void the_folder_or_the_one_above_it(void **state)
{
	(void)state;
	is("run", NULL, "universal");
	is("run/tag", NULL, "universal");
	is("run/tag", "tag", "universal");
	is("run", "tag", "universal");
	fails("run/tag", "other", CKPT_E_USAGE, "is itself the checkpoint");
	latest("away");
	fails("run", NULL, CKPT_E_NOTFOUND, "LATEST_LIES|away");
	latest("../run/tag");
	fails("run", NULL, CKPT_E_UNSAFE, "LATEST_LIES|outside");
	latest("");
	fails("run", NULL, CKPT_E_NOTFOUND, "LATEST_LIES|empty");
	is("run", "tag", "universal");
}

static void a_step_beside_it_is_opened_and_the_other_named(void **state)
{
	const char *root = getenv("ZCKPT_FIXTURES");
	char *from = t_fmt("%s/deepspeed/ds0.19.8-z2-bf16-w2/ckpt/global_step3",
			   root ? root : "build/fixtures");
	char *to = at("run/global_step3"), *file = at("run/latest");
	struct ckpt *ck;
	struct ckpt_info info;

	(void)state;
	t_dir_copy(from, to);
	for (int with = 1; with >= 0; with--) {
		if (with)
			t_file_write(file, "global_step3", 12);
		else
			t_dir_remove(file);
		ck = opened("run", with ? NULL : "global_step3");
		ckpt_info_get(ck, &info);
		assert_string_equal(info.format, "deepspeed");
		assert_string_equal(info.tag, "global_step3");
		assert_string_equal(t_step_fact(ck, "universal"), "tag");
		ckpt_close(ck);
		is("run", "tag", "universal");
	}
	free(from);
	free(to);
	free(file);
}

static void what_is_missing_is_said(void **state)
{
	(void)state;
	gone("zero/v/exp_avg.pt");
	finds("STATE_FILE_MISSING", "zero/v/exp_avg.pt");
	gone("zero/w/fp32.pt");
	finds("STATE_FILE_MISSING", "zero/w/fp32.pt");
	gone("zero/w");
	finds("STATE_FILE_MISSING", "zero/w/fp32.pt");
	gone("zero/optimizer_state.pt");
	finds("STATE_FILE_MISSING", "optimizer_state.pt");
	gone(MODEL);
	fails("run", NULL, CKPT_E_NOTFOUND, "LATEST_LIES");
}

static void what_is_too_much_is_said(void **state)
{
	(void)state;
	save("zero/w/other.pt", "{ 'param' <f32 2 3 @9> }");
	finds("STATE_FILE_MISSING", "zero/v/other.pt");
	make("run/tag/zero/b");
	save("zero/b/fp32.pt", "{ 'param' <f32 1 @3> }");	/* as DeepSpeed 0.19.8 does */
	{
		struct ckpt *ck = opened("run", NULL);

		assert_null(t_step_finding(ck, "NAMES_WRONG", ""));
		ckpt_close(ck);
	}
	make("run/tag/zero/stranger");
	save("zero/stranger/fp32.pt", "{ 'param' <f32 1 @3> }");
	finds("NAMES_WRONG", "no such parameter");
	save("zero_pp_rank_0_mp_rank_00_optim_states.pt", "{ 'optimizer_state_dict' { } }");
	finds("RANK_FILE_EXTRA", "converted into the step");
}

static void lengths_shapes_and_steps_must_fit(void **state)
{
	(void)state;
	save("zero/w/exp_avg.pt", "{ 'cat_dim' 0 'param' <f32 2 2 @30> }");
	finds("LENGTH_WRONG", "4 elements|w has 6");
	save("zero/w/exp_avg.pt", "{ 'cat_dim' 0 'param' <f32 3 2 @30> }");
	finds("NAMES_WRONG", "dimensions");
	save("zero/w/exp_avg.pt", "{ 'cat_dim' 0 'param' 'text' }");
	finds("FILE_DAMAGED", "'param'");
	save("zero/w/step.pt", "5");
	finds("STEP_MIXED", "5|4");
}

static void a_damaged_file_is_a_finding(void **state)
{
	char *a = at("run/tag/zero/w/exp_avg.pt");

	(void)state;
	t_file_write(a, "PK", 2);
	finds("FILE_DAMAGED", "exp_avg.pt");
	free(a);
	a = at("run/tag/zero/optimizer_state.pt");
	t_file_write(a, "", 0);
	finds("FILE_DAMAGED", "optimizer_state.pt");
	free(a);
}

static void other_layouts_are_refused_by_name(void **state)
{
	(void)state;
	save("zero/w/exp_avg.pt", "{ 'is_expert_param' 1 'param' <f32 2 3 @30> }");
	fails("run", NULL, CKPT_E_LAYOUT, "experts|exp_avg.pt");
	save("zero/w/exp_avg.pt", "{ 'vocab_tensor' 1 'param' <f32 1 3 @30> }");
	fails("run", NULL, CKPT_E_LAYOUT, "vocabulary|exp_avg.pt");
	save("zero/w/exp_avg.pt", "{ 'param' <f32 2 3 @30> }");
	save("mp_rank_01_model_states.pt", "{ 'module' { } }");
	finds("RANK_FILE_EXTRA", "of mp_rank 1");
}

#define PARALLEL " 'global_steps' 4 'dp_world_size' 1 'mp_world_size' 2 'ds_version' '0.19.8'"
#define RULES " 'universal_checkpoint_info' { 'universal_checkpoint_version' 0.2" \
	" 'tp_replicated_parameter_patterns' [ 'v' 'b' ]" \
	" 'vocabulary_parameter_patterns' [ 'w' ] 'original_vocab_size' 3 }"

/* Tensor rank 'tp' of two: v is whole, w has two of four rows, which end with one of padding. */
static void save_rank(int tp, const char *rules)
{
	char *name = t_fmt("mp_rank_%02d_model_states.pt", tp);
	char *text = t_fmt("{ 'module' { 'v' <bf16 2 @7> 'w' <bf16 2 3 @%d> 'b' <f32 1 @3> }"
			   " 'buffer_names' [ 'b' ] 'frozen_param_shapes' None"
			   " 'param_shapes' [ { 'v' ( 2 ) 'w' ( 2 3 ) } ]" PARALLEL "%s }",
			   1 + 6 * tp, rules);

	save(name, text);
	free(name);
	free(text);
}

static void save_ranks(const char *rules)
{
	save_rank(0, rules);
	save_rank(1, rules);
	save("zero/w/fp32.pt", "{ 'cat_dim' 0 'vocab_tensor' 1 'param' <f32 3 3 @1> }");
	save("zero/w/exp_avg.pt", "{ 'cat_dim' 0 'vocab_tensor' 1 'param' <f32 3 3 @30> }");
}

/* States are whole, weights are joined, and both end where the vocabulary does. */
static void weights_of_tensor_ranks_are_joined(void **state)
{
	struct ckpt *ck;

	(void)state;
	save_ranks(RULES);
	ck = opened("run", NULL);
	assert_string_equal(t_step_fact(ck, "layout"), "tp 2");
	assert_true(t_step_value(ck, "v", "weight", 1) == 8);
	assert_true(t_step_value(ck, "w", "weight", 0) == 1);
	assert_true(t_step_value(ck, "w", "weight", 8) == 9);
	assert_true(t_step_value(ck, "w", "master", 8) == 9);
	assert_true(t_step_value(ck, "w", "exp_avg", 8) == 38);
	assert_true(t_step_value(ck, "b", "weight", 0) == 3);
	ckpt_close(ck);
	save("zero/w/fp32.pt", "{ 'cat_dim' 0 'param' <f32 4 3 @1> }");
	finds("LENGTH_WRONG", "12 elements|w has 9");
}

/* No model file has the weights of a pipeline's layers: masters are rounded to their type. */
static void weights_of_a_pipeline_are_those_of_its_masters(void **state)
{
	struct ckpt *ck;

	(void)state;
	save(MODEL, "{ 'module' None 'param_shapes' [ { 'v' ( 2 ) } ]"
	     " 'ds_config' { 'bf16' { 'enabled' 1 } }"
	     " 'checkpoint_parallel_dimensions' { 'pp_degree' 2 'tp_degree' 1 }" PARALLEL " }");
	save("mp_rank_01_model_states.pt", "{ 'module' None"
	     " 'param_shapes' [ { 'v' ( 2 ) 'w' ( 2 3 ) } ]"
	     " 'ds_config' { 'bf16' { 'enabled' 1 } }"
	     " 'checkpoint_parallel_dimensions' { 'pp_degree' 2 'tp_degree' 1 }" PARALLEL " }");
	ck = opened("run", NULL);
	assert_string_equal(t_step_fact(ck, "layout"), "pp 2");
	assert_true(t_step_value(ck, "v", "weight", 1) == 8);
	assert_true(t_step_value(ck, "w", "weight", 5) == 6);
	assert_true(t_step_value(ck, "w", "exp_avg", 5) == 35);
	ckpt_close(ck);
}

static void what_parallel_model_files_lack_is_said(void **state)
{
	(void)state;
	save_ranks("");
	fails("run", NULL, CKPT_E_LAYOUT, "universal_checkpoint_info|--tp-rules");
	save_ranks(" 'universal_checkpoint_info' { 'vocabulary_parameter_patterns' [ 'w' ]"
		   " 'tp_replicated_parameter_patterns' [ 'v' 'b' ] }");
	fails("run", NULL, CKPT_E_CORRUPT, "original_vocab_size");
	save_ranks(RULES);
	gone("mp_rank_01_model_states.pt");
	fails("run", NULL, CKPT_E_INCOMPLETE, "mp_world_size is 2");
}

static void names_do_not_lead_out_of_the_folder(void **state)
{
	static const char *const names[] = { "..", "../../../etc", "/etc", "a/../..", "a//b", "" };

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *text = t_fmt("{ 'module' { } 'param_shapes' [ { '%s' ( 2 ) } ]" COMMON "}",
				   names[i]);

		save(MODEL, text);
		fails("run", NULL, CKPT_E_UNSAFE, "outside");
		free(text);
	}
	save(MODEL, "{ 'module' { } 'param_shapes' [ { '..w' ( 2 3 ) } ]" COMMON "}");
	finds("STATE_FILE_MISSING", "..w/fp32.pt");
}

/* A step of one parameter of that name, to be written in the universal form. */
static int to_universal(const char *name, struct ckpt_err *err)
{
	const struct ckpt_reshard_opts o = {
		.size = sizeof(o), .stage = -1, .round_robin = -1, .to = CKPT_TO_UNIVERSAL,
	};
	char *model = t_fmt("{ 'module' { '%s' <bf16 2 @7> } 'buffer_names' [ ]"
			    " 'param_shapes' [ { '%s' ( 2 ) } ]" COMMON "}", name, name);
	char *dst = at("dst");
	struct ckpt *ck;
	int rc;

	gone("zero");
	save(MODEL, model);
	save("zero_pp_rank_0_mp_rank_00_optim_states.pt",
	     "{ 'optimizer_state_dict' { 'zero_stage' 2 'partition_count' [ 1 ]"
	     " 'single_partition_of_fp32_groups' [ <f32 2 @7> ] 'ds_version' '0.19.8'"
	     " 'base_optimizer_state' { 'state' { } 'param_groups' [ { 'params' [ 0 ] } ] } } }");
	ck = opened("run/tag", NULL);
	rc = ckpt_reshard(ck, dst, &o, NULL, err);
	ckpt_close(ck);
	free(dst);
	free(model);
	return rc;
}

static void names_that_are_no_paths_are_not_written(void **state)
{
	static const char *const names[] = { "..", "a/../../b", "/etc/b", "a//b", "a/",
					     "optimizer_state.pt" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct ckpt_err err = { 0 };

		assert_int_equal(to_universal(names[i], &err), -CKPT_E_UNSUPPORTED);
		assert_string_equal(err.where, names[i]);
		teardown(state);
		setup(state);
	}
}

static void names_with_slashes_and_dots_in_front_go_there_and_back(void **state)
{
	static const char *const names[] = { "a/b.c", ".w", "..w", "sp ace", "\xc3\xbc" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct ckpt_err err = { 0 };
		struct ckpt *ck;

		if (to_universal(names[i], &err))
			fail_msg("%s: %s", err.where, err.msg);
		ck = opened("dst", NULL);
		assert_true(t_step_value(ck, names[i], "master", 1) == 8);
		assert_null(t_step_finding(ck, "NAMES_WRONG", ""));
		ckpt_close(ck);
		teardown(state);
		setup(state);
	}
}

/* Stage 3: bare tensors, a count of steps in optimizer_state.pt, weights from masters. */
static void make_stage_3(const char *w)
{
	teardown(NULL);
	dir = t_dir_new();
	make("run");
	make("run/tag");
	make("run/tag/zero");
	make("run/tag/zero/w");
	save(RANKED, "{ 'module' { 'w' <bf16 0> } 'buffer_names' [ ] 'frozen_param_shapes' None"
	     " 'param_shapes' [ { 'w' ( 2 3 ) } ]" COMMON "}");
	save("zero/optimizer_state.pt",
	     "{ 'zero_stage' 3 'optimizer_state_dict' { 'state' { } 'param_groups' [ ] }"
	     " 'param_groups' [ { 'lr' 0.5 'params' [ 0 ] } ] }");
	save("zero/w/fp32.pt", w);
	latest("tag");
}

static void stage_3_has_bare_tensors_and_derived_weights(void **state)
{
	struct ckpt *ck;

	(void)state;
	make_stage_3("<f32 6 @1>");
	ck = opened("run", NULL);
	assert_true(t_step_value(ck, "w", "weight", 5) == 6);
	assert_non_null(t_step_finding(ck, "STATE_EMPTY", ""));
	ckpt_close(ck);
}

static void padding_that_the_converter_left_is_cut_off(void **state)
{
	struct ckpt *ck;

	(void)state;
	make_stage_3("<f32 8 @1>");
	ck = opened("run", NULL);
	assert_true(t_step_value(ck, "w", "master", 5) == 6);
	assert_non_null(t_step_finding(ck, "FORMAT_NOTE", "8 elements|last 2"));
	ckpt_close(ck);
	make_stage_3("<f32 5 @1>");
	finds("LENGTH_WRONG", "5 elements|w has 6");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(states_and_facts_are_read),
		TEST(the_folder_or_the_one_above_it),
		TEST(a_step_beside_it_is_opened_and_the_other_named),
		TEST(what_is_missing_is_said),
		TEST(what_is_too_much_is_said),
		TEST(lengths_shapes_and_steps_must_fit),
		TEST(a_damaged_file_is_a_finding),
		TEST(other_layouts_are_refused_by_name),
		TEST(weights_of_tensor_ranks_are_joined),
		TEST(weights_of_a_pipeline_are_those_of_its_masters),
		TEST(what_parallel_model_files_lack_is_said),
		TEST(names_do_not_lead_out_of_the_folder),
		TEST(names_that_are_no_paths_are_not_written),
		TEST(names_with_slashes_and_dots_in_front_go_there_and_back),
		TEST(stage_3_has_bare_tensors_and_derived_weights),
		TEST(padding_that_the_converter_left_is_cut_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
