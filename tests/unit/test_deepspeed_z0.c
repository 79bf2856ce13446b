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

#include "tests/lib/t_dir.h"
#include "tests/lib/t_pkl.h"
#include "tests/lib/t_step.h"

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
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "those of 3 parameters"));
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_that_were_given_to_the_optimizer_count),
		cmocka_unit_test(given_names_whose_values_differ_are_not_believed),
		cmocka_unit_test(flat_masters_of_two_groups_are_taken_piece_by_piece),
		cmocka_unit_test(shapes_name_fp32_states_where_there_is_one_way),
		cmocka_unit_test(shapes_that_allow_two_ways_name_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
