/*
 * Layouts that are not read, and no fixture has. If one is taken for a plain step, a user gets
 * weights that were put together wrongly; each must be refused by its name.
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

static char *at(const char *name)
{
	return t_fmt("%s/%s", dir, name);
}

static void save(const char *name, const char *text)
{
	char *path = at(name);

	t_pkl_save(path, text);
	free(path);
}

#define MODEL "mp_rank_00_model_states.pt"
#define SHARD "zero_pp_rank_0_mp_rank_00_optim_states.pt"
#define MODEL3 "zero_pp_rank_0_mp_rank_00_model_states.pt"

/* The end of a model file; what comes before differs. */
#define COMMON " 'buffer_names' [] 'param_shapes' [ { 'w' ( 6 ) } ] 'global_steps' 1 " \
	"'dp_world_size' 1 'mp_world_size' 1 'ds_version' '0.19.8' "
#define STATE "'base_optimizer_state' { 'state' { } 'param_groups' [ { 'params' [ 0 ] } ] } "
#define MASTER "'single_partition_of_fp32_groups' [ <f32 6 @1> ] "

static int setup(void **state)
{
	(void)state;
	dir = t_dir_new();
	save(MODEL, "{ 'module' { 'w' <bf16 6 @1> }" COMMON "}");
	save(SHARD, "{ 'optimizer_state_dict' { 'zero_stage' 2 'partition_count' [ 1 ] " STATE
	     MASTER "} }");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	t_dir_end(dir);
	return 0;
}

static void refused(const char *words)
{
	char *all = t_fmt("LAYOUT_UNSUPPORTED|%s", words);

	t_step_fails(dir, NULL, CKPT_E_LAYOUT, all);
	free(all);
}

/* Read, with an error. */
static void faulty(const char *id, const char *words)
{
	struct ckpt *ck = t_step_open(dir, NULL);

	assert_non_null(t_step_finding(ck, id, words));
	ckpt_close(ck);
}

/* A step of stage 3: what is different in the files. */
static void stage3(const char *model, const char *zero)
{
	char *path = at(MODEL), *text;

	t_dir_remove(path);
	free(path);
	text = t_fmt("{ 'module' { 'w' <bf16 0> 'ice' <bf16 0> } %s" COMMON "}", model);
	save(MODEL3, text);
	free(text);
	text = t_fmt("{ 'optimizer_state_dict' { 'zero_stage' 3 'partition_count' 1 %s "
		     "'optimizer_state_dict' { 'state' { } 'param_groups' "
		     "[ { 'params' [ 0 ] } ] } } }", zero);
	save(SHARD, text);
	free(text);
}

static void the_plain_steps_they_are_made_from_are_read(void **state)
{
	struct ckpt *ck = t_step_open(dir, NULL);

	(void)state;
	assert_true(t_step_value(ck, "w", "master", 5) == 6);
	ckpt_close(ck);
	stage3("", "'fp32_flat_groups' [ <f32 6 @1> ]");
	ck = t_step_open(dir, NULL);
	assert_true(t_step_value(ck, "w", "weight", 5) == 6);
	ckpt_close(ck);
}

static void what_lies_beside_the_shards_tells(void **state)
{
	(void)state;
	t_dir_copy_in(dir, MODEL, "mp_rank_01_model_states.pt");
	faulty("RANK_FILE_EXTRA", "of mp_rank 1, but the step has 1");
	teardown(NULL);
	setup(NULL);
	t_dir_copy_in(dir, MODEL, "layer_00-model_states.pt");
	faulty("RANK_FILE_SWAPPED", "it was saved as");
	teardown(NULL);
	setup(NULL);
	t_dir_copy_in(dir, SHARD, "expp_rank_0_mp_rank_00_optim_states.pt");
	refused("mixture of experts|num_experts");
	t_dir_copy_in(dir, MODEL, "expert_0_mp_rank_00_model_states.pt");
	refused("mixture of experts|before 0.6|expert_0");
	teardown(NULL);
	setup(NULL);
	t_dir_make_in(dir, "offloaded_tensors");
	refused("NVMe|offloaded_tensors");
	teardown(NULL);
	setup(NULL);
	t_dir_copy_in(dir, SHARD, SHARD "-0.1");
	refused("FAST|" SHARD "-0.1");
}

static void folders_with_such_names_are_no_reason(void **state)
{
	(void)state;
	t_dir_make_in(dir, "expert_3_mp_rank_00_model_states.pt");
	t_dir_make_in(dir, "layer_00-model_states.pt");
	ckpt_close(t_step_open(dir, NULL));
}

static void empty_sub_groups_are_nvme_offload(void **state)
{
	(void)state;
	stage3("", "'fp32_flat_groups' [ <f32 0> ]");
	refused("NVMe|sub-group 0");
}

static void quantised_frozen_parameters_are_refused(void **state)
{
	(void)state;
	stage3("'frozen_param_shapes' { 'ice' ( 4 ) } "
	       "'frozen_param_fragments' { 'ice' <i8 4 @1> } ",
	       "'fp32_flat_groups' [ <f32 6 @1> ]");
	refused("quantised frozen|ice|I8|BF16");
}

static void stage_1_before_0_5_9_is_refused(void **state)
{
	(void)state;
	save(SHARD, "{ 'optimizer_state_dict' { 'zero_stage' 1 'partition_count' 1 " STATE
	     "'local_sub_partitions_of_fp32_groups' [ [ <f32 6 @1> ] ] } }");
	refused("interleaved|0.5.9");
}

static void a_nebula_placeholder_is_refused_in_either_file(void **state)
{
	(void)state;
	save(SHARD, "''");
	refused("Nebula|optim_states");
	teardown(NULL);
	setup(NULL);
	save(MODEL, "''");
	refused("Nebula|model_states");
}

static void experts_are_known_by_their_keys(void **state)
{
	(void)state;
	stage3("", "'fp32_flat_groups' [ <f32 6 @1> ] 'ds_zero_partition_groups' [ 1 ]");
	refused("AutoEP");
	save(MODEL, "{ 'module' { 'w' <bf16 6 @1> } 'num_experts' 4" COMMON "}");
	refused("num_experts");
	save(MODEL, "{ 'module' { 'w' <bf16 6 @1> } 'ds_autoep_layers' [ 0 ]" COMMON "}");
	refused("num_experts");
	teardown(NULL);
	setup(NULL);
	save(MODEL, "{ 'module' { 'w' <bf16 6 @1> } 'num_experts' [ 1 ] 'ds_autoep_layers' None"
	     COMMON "}");
	ckpt_close(t_step_open(dir, NULL));
}

static void groups_cut_over_different_ranks_are_refused(void **state)
{
	(void)state;
	save(SHARD, "{ 'optimizer_state_dict' { 'zero_stage' 2 'partition_count' [ 2 1 ] " STATE
	     MASTER "} }");
	refused("partition_count");
}

static void several_model_ranks_are_refused(void **state)
{
	(void)state;
	save(MODEL, "{ 'mp_world_size' 2 'module' { 'w' <bf16 6 @1> } }");
	t_step_fails(dir, NULL, CKPT_E_INCOMPLETE, "MODEL_FILE_MISSING|mp_world_size is 2");
	save(MODEL, "{ 'mp_world_size' 1 'module' None }");
	t_step_fails(dir, NULL, CKPT_E_INCOMPLETE, "MODEL_FILE_MISSING|files of layers");
}

static void impossible_worlds_and_stages_are_refused(void **state)
{
	(void)state;
	save(SHARD, "{ 'optimizer_state_dict' { 'zero_stage' 2 'partition_count' [ -1 ] " STATE
	     MASTER "} }");
	t_step_fails(dir, NULL, CKPT_E_CORRUPT, "partition_count is -1");
	save(SHARD, "{ 'optimizer_state_dict' { 'zero_stage' 2 'partition_count' 4097 " STATE
	     MASTER "} }");
	t_step_fails(dir, NULL, CKPT_E_CORRUPT, "partition_count is 4097");
	save(SHARD, "{ 'optimizer_state_dict' { 'zero_stage' 4294967298 'partition_count' 1 "
	     STATE MASTER "} }");
	refused("zero_stage");
}

/* Names that come twice are contradictions, whatever hangs behind them. */
static void names_that_come_twice_are_an_error(void **state)
{
	struct ckpt *ck;

	(void)state;
	save(MODEL, "{ 'module' { 'w' <bf16 6 @1> } 'param_shapes' [ { 'w' ( 6 ) 'w' ( 6 ) } ] "
	     "'dp_world_size' 1 }");
	ck = t_step_open(dir, NULL);
	assert_non_null(t_step_finding(ck, "NAMES_WRONG", "param_shapes has this name twice"));
	assert_non_null(t_step_finding(ck, "LENGTH_WRONG", ""));
	ckpt_close(ck);
	save(MODEL, "{ 'module' { 'w' <bf16 6 @1> 'w' <bf16 6 @1> }" COMMON "}");
	ck = t_step_open(dir, NULL);
	assert_non_null(t_step_finding(ck, "NAMES_WRONG", "'module' has this name twice"));
	ckpt_close(ck);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_plain_steps_they_are_made_from_are_read),
		TEST(what_lies_beside_the_shards_tells),
		TEST(folders_with_such_names_are_no_reason),
		TEST(empty_sub_groups_are_nvme_offload),
		TEST(quantised_frozen_parameters_are_refused),
		TEST(stage_1_before_0_5_9_is_refused),
		TEST(a_nebula_placeholder_is_refused_in_either_file),
		TEST(experts_are_known_by_their_keys),
		TEST(groups_cut_over_different_ranks_are_refused),
		TEST(several_model_ranks_are_refused),
		TEST(impossible_worlds_and_stages_are_refused),
		TEST(names_that_come_twice_are_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
