/*
 * Stage 0, which stores an optimizer without names. If this is wrong, a moment goes to another
 * parameter of the same shape, and the run that goes on with it says nothing.
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
#include "tests/lib/archive/t_pt.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_step.h"

#define COMMON " 'global_steps' 1 'dp_world_size' 1 'mp_world_size' 1 'ds_version' '0.19.8' " \
	"'ds_config' { 'bf16' { 'enabled' 1 } } "

/* A model file of stage 0 in a new folder, which the caller frees and removes. */
static char *step(const char *module, const char *optimizer)
{
	char *text = t_fmt("{ 'module' { %s } 'optimizer' { %s } " COMMON "}", module, optimizer);
	char *dir = t_dir_new(), *path;

	t_dir_make_in(dir, "global_step1");
	path = t_fmt("%s/global_step1/mp_rank_00_model_states.pt", dir);
	t_pkl_save(path, text);
	free(path);
	free(text);
	return dir;
}

static struct ckpt *opened(const char *module, const char *optimizer)
{
	char *dir = step(module, optimizer);
	struct ckpt *ck = t_step_open(dir, "global_step1");

	t_dir_remove(dir);
	free(dir);
	return ck;
}

/* The result at another stage; NULL if it was refused, and then 'words' are why. */
static struct ckpt *resharded(const char *module, const char *optimizer, int stage,
			      const char *words)
{
	struct ckpt_reshard_opts opts = {
		.size = sizeof(opts), .world = 2, .stage = stage, .round_robin = -1,
	};
	char *dir = step(module, optimizer), *out = t_fmt("%s/out", dir);
	struct ckpt *ck = t_step_open(dir, "global_step1"), *result = NULL;
	struct ckpt_err err = { 0 };
	const int rc = ckpt_reshard(ck, out, &opts, NULL, &err);

	ckpt_close(ck);
	if (words) {
		assert_int_equal(rc, -CKPT_E_UNSUPPORTED);
		assert_non_null(strstr(err.msg, words));
		assert_false(t_exists(out));
	} else {
		if (rc)
			fail_msg("%s: %s", err.where, err.msg);
		result = t_step_open(out, NULL);
	}
	t_dir_remove(dir);
	free(out);
	free(dir);
	return result;
}

/* ------------------------------------------------------------------ groups */

/*
 * One list of 100 numbers in 200 groups: 20,000 places of a file with 1,000 values. A real file
 * lists each parameter once; how many places there can be is bounded by what the file has.
 */
static void a_list_that_hangs_in_many_groups_is_refused(void **state)
{
	struct t_pkl b = { 0 };
	struct t_zip zip = { 0 };
	const float data[2] = { 1, 2 };
	char *dir = t_dir_new(), *path = t_fmt("%s/global_step1/mp_rank_00_model_states.pt", dir);

	(void)state;
	T_PKL_PUT(&b, "\x80\x02}(");
	t_pt_str(&b, "module");
	T_PKL_PUT(&b, "}(");
	t_pt_str(&b, "a");
	t_pt_tensor(&b, "0", 2, 0, 1, 2, 2, 1);
	T_PKL_PUT(&b, "u");
	for (int i = 0; i < 3; i++) {
		t_pt_str(&b, (const char *const[]){ "global_steps", "dp_world_size",
						    "mp_world_size" }[i]);
		t_pt_int(&b, 1);
	}
	t_pt_str(&b, "ds_version");
	t_pt_str(&b, "0.19.8");
	t_pt_str(&b, "optimizer");
	T_PKL_PUT(&b, "}(");
	t_pt_str(&b, "state");
	T_PKL_PUT(&b, "}");
	t_pt_str(&b, "param_groups");
	T_PKL_PUT(&b, "](");
	for (int g = 0; g < 200; g++) {
		T_PKL_PUT(&b, "}(");
		t_pt_str(&b, "params");
		if (!g) {
			T_PKL_PUT(&b, "](");
			for (int i = 0; i < 100; i++)
				t_pt_int(&b, 1000 + i);
			T_PKL_PUT(&b, "eq\x05");
		} else {
			T_PKL_PUT(&b, "h\x05");
		}
		T_PKL_PUT(&b, "u");
	}
	T_PKL_PUT(&b, "euu.");
	t_zip_add(&zip, "mp_rank_00_model_states/data.pkl", b.p, b.n);
	t_zip_add(&zip, "mp_rank_00_model_states/version", "3\n", 2);
	t_zip_add(&zip, "mp_rank_00_model_states/data/0", data, sizeof(data));
	t_zip_end(&zip);
	t_dir_make_in(dir, "global_step1");
	t_file_write(path, zip.p, zip.n);
	t_step_fails(dir, "global_step1", CKPT_E_CORRUPT,
		     "the optimizer's groups list more parameters than the file has values");
	free(zip.p);
	free(b.p);
	free(path);
	t_dir_end(dir);
}

/* ------------------------------------------------------------------- names */

#define STATE(step, sum) "{ 'step' " #step " 'sum' <f32 " sum "> } "
#define TWO "'a' <bf16 4 @1> 'b' <bf16 4 @1> "
#define TWO_STATES "'state' { 0 " STATE(3, "4 @50") "1 " STATE(3, "4 @60") "} "

static void names_that_were_given_to_the_optimizer_count(void **state)
{
	struct ckpt *ck = opened(TWO, "'fp32_groups' [ [ <f32 4 @1> <f32 4 @1> ] ] "
				      "'optimizer_state_dict' { " TWO_STATES "'param_groups' "
				      "[ { 'params' [ 0 1 ] 'param_names' [ 'b' 'a' ] } ] }");

	(void)state;
	assert_true(t_step_value(ck, "b", "sum", 0) == 50);
	assert_true(t_step_value(ck, "a", "sum", 0) == 60);
	ckpt_close(ck);
}

static void given_names_whose_values_differ_are_not_believed(void **state)
{
	struct ckpt *ck = opened("'a' <bf16 4 @1> 'b' <bf16 4 @5> ",
				 "'fp32_groups' [ [ <f32 4 @1> <f32 4 @5> ] ] "
				 "'optimizer_state_dict' { " TWO_STATES "'param_groups' "
				 "[ { 'params' [ 0 1 ] 'param_names' [ 'b' 'a' ] } ] }");

	(void)state;
	assert_true(t_step_value(ck, "a", "sum", 0) == 50);
	ckpt_close(ck);
	ck = opened(TWO, "'fp32_groups' [ [ <f32 4 @1> <f32 4 @1> ] ] "
			 "'optimizer_state_dict' { " TWO_STATES "'param_groups' "
			 "[ { 'params' [ 0 1 ] 'param_names' [ 'a' 'a' ] } ] }");
	assert_int_equal(t_step_count(ck, "sum"), 0);
	ckpt_close(ck);
}

static void flat_masters_of_two_groups_are_taken_piece_by_piece(void **state)
{
	struct ckpt *ck = opened("'a' <bf16 3 @1> 'b' <bf16 2 2 @5> 'c' <bf16 2 @9> ",
				 "'fp32_groups_flat' [ <f32 4 @5> [ ] ] "
				 "'optimizer_state_dict' { }");

	(void)state;
	assert_int_equal(t_step_count(ck, "master"), 0);	/* one is no tensor */
	ckpt_close(ck);
	ck = opened("'a' <bf16 3 @1> 'b' <bf16 2 2 @4> 'c' <bf16 2 @9> ",
		    "'fp32_groups_flat' [ <f32 2 @9> <f32 7 @1> ] 'optimizer_state_dict' { 'state' "
		    "{ 0 { 'sum' <f32 2 @20> } 1 { 'sum' <f32 7 @30> } } 'param_groups' "
		    "[ { 'params' [ 0 ] } { 'params' [ 1 ] } ] }");
	assert_true(t_step_value(ck, "b", "master", 0) == 4);
	assert_true(t_step_value(ck, "b", "sum", 3) == 36);
	assert_true(t_step_value(ck, "c", "sum", 1) == 21);
	assert_int_equal(t_step_tensor(ck, "c").group, 0);
	assert_int_equal(t_step_tensor(ck, "a").group, 1);
	ckpt_close(ck);
	/* 'd' begins as 'b' does: either may come next */
	ck = opened("'a' <bf16 3 @1> 'b' <bf16 2 2 @4> 'c' <bf16 2 @9> 'd' <bf16 1 @4> ",
		    "'fp32_groups_flat' [ <f32 2 @9> <f32 7 @1> ] 'optimizer_state_dict' { }");
	assert_int_equal(t_step_count(ck, "master"), 0);
	ckpt_close(ck);
}

#define FP32 "'a' <f32 4 @1> 'b' <f32 2 2 @5> 'c' <f32 4 @9> 'd' <f32 3 @9> "
#define FP32_STATES "'state' { 0 " STATE(3, "2 2 @50") "1 " STATE(3, "4 @60") "2 " \
	STATE(3, "4 @70") "} "

static void shapes_name_fp32_states_where_there_is_one_way(void **state)
{
	struct ckpt *ck = opened(FP32, FP32_STATES "'param_groups' [ { 'params' [ 0 ] } "
						   "{ 'params' [ 1 2 ] } ]");

	(void)state;
	assert_true(t_step_value(ck, "b", "sum", 0) == 50);
	assert_true(t_step_value(ck, "a", "sum", 0) == 60);
	assert_true(t_step_value(ck, "c", "sum", 0) == 70);
	assert_int_equal(t_step_tensor(ck, "d").role, CKPT_ROLE_FROZEN);
	ckpt_close(ck);
}

static void shapes_that_allow_two_ways_name_nothing(void **state)
{
	/* 'a' and 'c' in groups of their own: which is which? */
	struct ckpt *ck = opened(FP32, FP32_STATES "'param_groups' [ { 'params' [ 0 1 ] } "
						   "{ 'params' [ 2 ] } ]");

	(void)state;
	assert_int_equal(t_step_count(ck, "sum"), 0);
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "have theirs left out"));
	ckpt_close(ck);
	/* one of the two is frozen: which? */
	ck = opened(FP32, FP32_STATES "'param_groups' [ { 'params' [ 0 1 ] } ]");
	assert_int_equal(t_step_count(ck, "sum"), 0);
	ckpt_close(ck);
	/* not in the order of 'module' */
	ck = opened(FP32, FP32_STATES "'param_groups' [ { 'params' [ 1 2 0 ] } ]");
	assert_int_equal(t_step_count(ck, "sum"), 0);
	ckpt_close(ck);
	/* a parameter without states has no shape */
	ck = opened(FP32, FP32_STATES "'param_groups' [ { 'params' [ 1 0 2 3 ] } ]");
	assert_int_equal(t_step_count(ck, "sum"), 0);
	ckpt_close(ck);
}

/* ------------------------------------------------------------------- to another stage */

#define ONE_GROUP(states) "'fp32_groups' [ [ <f32 4 @5> <f32 4 @1> ] ] 'optimizer_state_dict' { " \
	"'state' { " states "} 'param_groups' [ { 'lr' 0.5 'params' [ 0 1 ] } ] } "
#define AB "'a' <bf16 4 @1> 'b' <bf16 4 @5> "

static void an_order_of_its_own_goes_into_the_shards_and_back(void **state)
{
	struct ckpt *ck;

	(void)state;
	for (int stage = 1; stage <= 4; stage++) {
		ck = resharded(AB, ONE_GROUP("0 " STATE(3, "4 @50") "1 " STATE(3, "4 @60")), stage,
			       NULL);
		assert_true(t_step_value(ck, "b", "master", 0) == 5);
		assert_true(t_step_value(ck, "b", "sum", 3) == 53);
		assert_true(t_step_value(ck, "a", "sum", 0) == 60);
		assert_string_equal(t_step_fact(ck, "group.0.step"), "3");
		assert_string_equal(t_step_fact(ck, "group.0.lr"), "0.5");
		ckpt_close(ck);
	}
}

static void what_a_group_cannot_share_is_refused(void **state)
{
	(void)state;
	resharded(AB, ONE_GROUP("0 " STATE(3, "4 @50") "1 " STATE(4, "4 @60")), 2,
		  "'step' of its optimizer state differs");
	resharded(AB, ONE_GROUP("0 " STATE(3, "4 @50")), 2, "some parameters of its group only");
	resharded(AB, ONE_GROUP("0 " STATE(3, "4 @50") "1 { 'step' 3 'row' <f32 4 @60> } "), 2,
		  "'row' of its optimizer state differs");
	resharded(AB, ONE_GROUP("0 { 'row' <f32 2 @1> } 1 { 'row' <f32 2 @1> } "), 3,
		  "does not have the parameter's shape");
	resharded(AB, "'fp32_groups' [ [ <f32 4 @5> <f32 4 @1> ] ] 'optimizer_state_dict' { "
		      "'state' { } 'param_groups' [ { 'use_muon' 1 'params' [ 0 1 ] } ] }", 1,
		  "Muon");
}

static void fused_adam_counts_in_the_last_parameter_of_a_group(void **state)
{
	const char *states = "'state' { 0 " STATE(0, "4 @50") "1 " STATE(0, "2 2 @60")
			     "2 " STATE(0, "4 @70") "3 " STATE(7, "3 @80") "} ";
	char *optimizer = t_fmt("%s 'param_groups' [ { 'bias_correction' 1 "
				"'params' [ 0 1 2 3 ] } ]", states);
	struct ckpt *ck = resharded(FP32, optimizer, 1, NULL);

	(void)state;
	assert_string_equal(t_step_fact(ck, "group.0.step"), "7");
	assert_true(t_step_value(ck, "d", "sum", 2) == 82);
	ckpt_close(ck);
	free(optimizer);
}

static void without_names_only_the_number_of_ranks_changes(void **state)
{
	const char *optimizer = "'fp32_groups' [ [ <f32 4 @1> <f32 4 @1> ] ] "
				"'optimizer_state_dict' { " TWO_STATES "'param_groups' "
				"[ { 'params' [ 0 1 ] } ] }";
	struct ckpt *ck = resharded(TWO, optimizer, -1, NULL);

	(void)state;
	assert_string_equal(t_step_fact(ck, "dp_world_size"), "2");
	ckpt_close(ck);
	resharded(TWO, optimizer, 1, "without names");
	resharded(TWO, optimizer, 3, "without names");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_that_hangs_in_many_groups_is_refused),
		cmocka_unit_test(names_that_were_given_to_the_optimizer_count),
		cmocka_unit_test(given_names_whose_values_differ_are_not_believed),
		cmocka_unit_test(flat_masters_of_two_groups_are_taken_piece_by_piece),
		cmocka_unit_test(shapes_name_fp32_states_where_there_is_one_way),
		cmocka_unit_test(shapes_that_allow_two_ways_name_nothing),
		cmocka_unit_test(an_order_of_its_own_goes_into_the_shards_and_back),
		cmocka_unit_test(what_a_group_cannot_share_is_refused),
		cmocka_unit_test(fused_adam_counts_in_the_last_parameter_of_a_group),
		cmocka_unit_test(without_names_only_the_number_of_ranks_changes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
