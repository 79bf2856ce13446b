/*
 * Steps whose files contradict themselves or each other in ways that no fixture has. If one is
 * read as it stands, a tensor is made of the bytes of another type or name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/lib/archive/t_pkl.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_step.h"

static char *dir;

static int setup(void **state)
{
	(void)state;
	dir = t_dir_new();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	t_dir_end(dir);
	return 0;
}

static void save(const char *name, const char *text)
{
	char *path = t_fmt("%s/%s", dir, name);

	t_pkl_save(path, text);
	free(path);
}

/* A step of stage 2 and two ranks: what the model file says, and the rank's masters. */
static void stage2(const char *model, const char *master0, const char *master1)
{
	char *text = t_fmt("{ 'module' { 'w' <bf16 4 @1> } 'global_steps' 1 'dp_world_size' 2 "
			   "'mp_world_size' 1 'ds_version' '0.19.8' %s }", model);

	save("mp_rank_00_model_states.pt", text);
	free(text);
	for (int rank = 0; rank < 2; rank++) {
		char *name = t_fmt("zero_pp_rank_%d_mp_rank_00_optim_states.pt", rank);

		text = t_fmt("{ 'optimizer_state_dict' { %s 'base_optimizer_state' { 'state' { } "
			     "'param_groups' [ { 'params' [ 0 ] } ] } } }",
			     rank ? master1 : master0);
		save(name, text);
		free(text);
		free(name);
	}
}

#define ZERO(t) "'zero_stage' 2 'partition_count' [ 2 ] " \
	"'single_partition_of_fp32_groups' [ <" t " 2 @1> ]"
#define W "'buffer_names' [ ] 'param_shapes' [ { 'w' ( 4 ) } ]"

static void stage3(const char *master0, const char *master1)
{
	for (int rank = 0; rank < 2; rank++) {
		char *model = t_fmt("zero_pp_rank_%d_mp_rank_00_model_states.pt", rank);
		char *shard = t_fmt("zero_pp_rank_%d_mp_rank_00_optim_states.pt", rank), *text;

		save(model, "{ 'module' { 'w' <bf16 0> } 'global_steps' 1 'dp_world_size' 2 "
		     "'mp_world_size' 1 'ds_version' '0.19.8' " W " }");
		text = t_fmt("{ 'optimizer_state_dict' { 'zero_stage' 3 'partition_count' 2 "
			     "'fp32_flat_groups' [ %s ] 'optimizer_state_dict' { 'state' { } "
			     "'param_groups' [ { 'params' [ 0 ] } ] } } }",
			     rank ? master1 : master0);
		save(shard, text);
		free(text);
		free(shard);
		free(model);
	}
}

static void ranks_of_two_types_are_not_joined(void **state)
{
	struct ckpt *ck;

	(void)state;
	stage2(W, ZERO("f32"), ZERO("f32"));
	ck = t_step_open(dir, NULL);
	assert_true(t_step_value(ck, "w", "master", 3) == 2);
	ckpt_close(ck);
	stage2(W, ZERO("f32"), ZERO("bf16"));
	t_step_fails(dir, NULL, CKPT_E_MISMATCH,
		     "RANKS_DISAGREE: this partition is BF16, an earlier rank's is F32");
	teardown(NULL);
	setup(NULL);
	stage3("<f32 2 @1>", "<f32 2 @3>");
	ck = t_step_open(dir, NULL);
	assert_true(t_step_value(ck, "w", "master", 3) == 4);
	ckpt_close(ck);
	stage3("<f32 2 @1>", "<bf16 2 @3>");
	t_step_fails(dir, NULL, CKPT_E_MISMATCH,
		     "RANKS_DISAGREE: this partition is BF16, rank 0's is F32");
}

static void names_without_shapes_are_named(void **state)
{
	(void)state;
	stage2("'buffer_names' [ ] 'param_shapes' [ 7 ]", ZERO("f32"), ZERO("f32"));
	t_step_fails(dir, NULL, CKPT_E_CORRUPT, "an entry of param_shapes is not a dictionary");
	stage2("'buffer_names' [ ] 'param_shapes' [ { 'w' 'four' } ]", ZERO("f32"), ZERO("f32"));
	t_step_fails(dir, NULL, CKPT_E_CORRUPT,
		     "entry 0 of param_shapes has no name or no shape");
	stage2("'buffer_names' [ ] 'param_shapes' [ { 'w' ( -4 ) } ]", ZERO("f32"), ZERO("f32"));
	t_step_fails(dir, NULL, CKPT_E_CORRUPT,
		     "entry 0 of param_shapes has no name or no shape");
	stage2("'buffer_names' [ ] 'param_shapes' [ { 3 ( 4 ) } ]", ZERO("f32"), ZERO("f32"));
	t_step_fails(dir, NULL, CKPT_E_CORRUPT,
		     "entry 0 of param_shapes has no name or no shape");
}

/* Versions before 0.5 wrote one dictionary, not a list of one. */
static void shapes_may_be_one_dictionary(void **state)
{
	struct ckpt *ck;

	(void)state;
	stage2("'buffer_names' [ ] 'param_shapes' { 'w' ( 4 ) }", ZERO("f32"), ZERO("f32"));
	ck = t_step_open(dir, NULL);
	assert_true(t_step_value(ck, "w", "master", 3) == 2);
	ckpt_close(ck);
}

static void expect(const char *model, const char *id, const char *words)
{
	struct ckpt *ck;

	stage2(model, ZERO("f32"), ZERO("f32"));
	ck = t_step_open(dir, NULL);
	if (!t_step_finding(ck, id, words))
		fail_msg("%s: no finding %s of '%s'", model, id, words);
	ckpt_close(ck);
}

static void lists_that_do_not_fit_are_findings(void **state)
{
	(void)state;
	expect("'buffer_names' [ 7 ] 'param_shapes' [ { 'w' ( 4 ) } ]", "NAMES_WRONG",
	       "entry 0 of buffer_names is not a plain string");
	expect(W " 'frozen_param_shapes' { 7 ( 4 ) } 'frozen_param_fragments' { }", "NAMES_WRONG",
	       "entry 0 of frozen_param_shapes is not a plain string");
	expect(W " 'frozen_param_shapes' { 'f' 5 } 'frozen_param_fragments' { }", "NAMES_WRONG",
	       "frozen_param_shapes does not give its shape");
}

static void what_no_optimizer_of_zero_is_is_refused(void **state)
{
	struct ckpt *ck;

	(void)state;
	stage2(W, "'step' 1", "'step' 1");
	t_step_fails(dir, NULL, CKPT_E_LAYOUT, "LAYOUT_UNSUPPORTED|a shard without zero_stage");
	stage2(W, ZERO("f32"), ZERO("f32"));
	t_dir_make_in(dir, "zero");	/* its universal form is looked for there */
	ck = t_step_open(dir, NULL);
	assert_non_null(t_step_finding(ck, "RANK_FILE_EXTRA", "this is a shard, but"));
	assert_non_null(t_step_finding(ck, "STATE_FILE_MISSING", "zero/optimizer_state.pt"));
	ckpt_close(ck);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(ranks_of_two_types_are_not_joined),
		TEST(names_without_shapes_are_named),
		TEST(shapes_may_be_one_dictionary),
		TEST(lists_that_do_not_fit_are_findings),
		TEST(what_no_optimizer_of_zero_is_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
