/*
 * What the tensors of a step are: roles, groups, tied names, facts, and which states are named or
 * left out. If it is wrong, a moment goes to another parameter, a tied weight is lost, or a
 * converted model silently lacks a tensor.
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
#define COMMON " 'global_steps' 1 'dp_world_size' 1 'mp_world_size' 1 'ds_version' '0.19.8' "

/* A fixture, opened where it lies. */
static struct ckpt *fixture(const char *name)
{
	const char *root = getenv("ZCKPT_FIXTURES");
	char *path = t_fmt("%s/deepspeed/%s/ckpt", root ? root : "build/fixtures", name);
	struct ckpt *ck = t_step_open(path, NULL);

	free(path);
	return ck;
}

static void save(const char *dir, const char *name, const char *text)
{
	char *path = t_fmt("%s/%s", dir, name);

	t_pkl_save(path, text);
	free(path);
}

static struct ckpt *made(const char *model, const char *shard)
{
	char *dir = t_dir_new();
	struct ckpt *ck;

	save(dir, MODEL, model);
	if (shard)
		save(dir, "zero_pp_rank_0_mp_rank_00_optim_states.pt", shard);
	ck = t_step_open(dir, NULL);
	t_dir_remove(dir);
	free(dir);
	return ck;
}

/* ------------------------------------------------------------------- real steps */

static void three_tied_names_are_one_tensor_and_two_aliases(void **state)
{
	static const char *const names[] = { "ds0.19.8-z2-bf16-w2-tied3",
					     "ds0.19.8-z3-bf16-w2-tied3" };

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct ckpt *ck = fixture(names[i]);
		const struct ckpt_tensor_info a = t_step_tensor(ck, "emb.weight");
		const struct ckpt_tensor_info b = t_step_tensor(ck, "head.weight");
		const struct ckpt_tensor_info c = t_step_tensor(ck, "head2.weight");

		assert_int_equal(a.role, CKPT_ROLE_TRAINABLE);
		assert_int_equal(b.role, CKPT_ROLE_ALIAS);
		assert_int_equal(c.role, CKPT_ROLE_ALIAS);
		assert_int_equal(b.alias_of, c.alias_of);
		assert_int_equal(b.nstates, 0);
		assert_int_equal(b.numel, a.numel);
		assert_true(t_step_state(ck, "emb.weight", "master") >= 0);
		ckpt_close(ck);
	}
}

static void roles_and_group_numbers_are_those_of_the_run(void **state)
{
	struct ckpt *ck = fixture("ds0.19.8-z3-bf16-w2-frozengroup");
	struct ckpt_tensor_info t;
	uint64_t role[7] = { 0 }, group[3] = { 0 };

	(void)state;
	for (uint64_t i = 0; !ckpt_tensor_get(ck, i, &t, NULL); i++) {
		role[t.role]++;
		assert_int_equal(t.group >= 0, t.role == CKPT_ROLE_TRAINABLE);
		if (t.group >= 0)
			group[t.group]++;
	}
	assert_int_equal(role[CKPT_ROLE_TRAINABLE], 25);
	assert_int_equal(role[CKPT_ROLE_FROZEN], 6);
	assert_int_equal(role[CKPT_ROLE_BUFFER], 5);
	assert_int_equal(group[1], 0);	/* its parameters are frozen */
	assert_int_equal(group[0] + group[2], 25);
	assert_true(group[0] && group[2]);
	assert_string_equal(t_step_fact(ck, "group.1.lr"), "0.03");
	assert_string_equal(t_step_fact(ck, "group.2.step"), "3");
	assert_null(t_step_fact(ck, "group.1.step"));
	ckpt_close(ck);
}

static void facts_tell_steps_and_learning_rates(void **state)
{
	static const struct {
		const char *name, *step;
	} steps[] = {
		{ "ds0.19.8-z2-bf16-w2", "3" }, { "ds0.19.8-z3-bf16-w2-cpuadam", "3" },
		{ "ds0.19.8-z2-bf16-w2-legacy", "3" },
		{ "ds0.5.10-z2-bf16-w2", "4" },	/* making the states took a step then */
	};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		struct ckpt *ck = fixture(steps[i].name);

		assert_string_equal(t_step_fact(ck, "global_steps"), "3");
		assert_string_equal(t_step_fact(ck, "group.0.step"), steps[i].step);
		assert_string_equal(t_step_fact(ck, "group.1.lr"), "0.01");
		ckpt_close(ck);
	}
}

static void muons_momentum_is_left_out_where_it_cannot_be_joined(void **state)
{
	struct ckpt *ck = fixture("ds0.19.8-z2-bf16-w2-muon");

	(void)state;
	assert_int_equal(t_step_count(ck, "momentum_buffer"), 0);
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "momentum_buffer"));
	assert_int_equal(t_step_count(ck, "exp_avg"), 13);
	ckpt_close(ck);
	ck = fixture("ds0.19.8-z3-bf16-w2-muon");
	assert_true(t_step_count(ck, "momentum_buffer") > 0);
	ckpt_close(ck);
}

/* The root of all digests. */
static void deflate_all(const char *dir)
{
	char **names = t_dir_list(dir, NULL);

	for (size_t i = 0; names[i]; i++) {
		char *path = t_fmt("%s/%s", dir, names[i]);

		t_pkl_deflate(path);
		free(path);
	}
	t_list_free(names);
}

static void deflated_shards_give_the_same_step(void **state)
{
	static const char *const names[] = { "ds0.19.8-z2-bf16-w2", "ds0.19.8-z3-bf16-w3",
					     "ds0.19.8-z1-bf16-w2-bf16opt" };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		char *dir = t_step_copy(names[i]), *tag = t_fmt("%s/ckpt/global_step3", dir);
		struct ckpt *plain = t_step_open(tag, NULL), *packed;
		const char *step = t_step_fact(plain, "group.0.step");
		char a[33], b[33];

		t_step_digest(plain, a);
		deflate_all(tag);
		packed = t_step_open(tag, NULL);
		t_step_digest(packed, b);
		assert_string_equal(a, b);
		if (step)
			assert_string_equal(t_step_fact(packed, "group.0.step"), step);
		assert_null(t_step_finding(packed, "RANKS_DISAGREE", ""));
		ckpt_close(plain);
		ckpt_close(packed);
		t_dir_remove(dir);
		free(dir);
		free(tag);
	}
}

static void lost_shards_of_stage_0_are_an_error(void **state)
{
	char *dir = t_step_copy("ds0.15.4-z0-bf16-w2"), *root = t_fmt("%s/ckpt", dir);
	struct ckpt *ck;

	(void)state;
	for (int r = 0; r < 2; r++) {
		char *path = t_fmt("%s/global_step3/bf16_zero_pp_rank_%d_mp_rank_00_"
				   "optim_states.pt", root, r);

		t_dir_remove(path);
		free(path);
	}
	ck = t_step_open(root, NULL);
	assert_non_null(t_step_finding(ck, "RANK_FILE_MISSING",
				       "all *_optim_states.pt are missing"));
	ckpt_close(ck);
	ck = fixture("ds0.17.6-z0-bf16-w2");	/* this version never wrote them */
	assert_null(t_step_finding(ck, "RANK_FILE_MISSING", ""));
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "the optimizer was not saved"));
	ckpt_close(ck);
	t_dir_remove(dir);
	free(dir);
	free(root);
}

/* ------------------------------------------------------------------- made steps */

#define SHARD(state, params) "{ 'optimizer_state_dict' { 'zero_stage' 2 'partition_count' [ 1 ] " \
	"'base_optimizer_state' { 'state' { " state " } 'param_groups' [ { 'lr' 0.5 " \
	"'params' [ " params " ] } ] } " \
	"'single_partition_of_fp32_groups' [ <f32 8 @1> ] } }"
#define SHAPES "'param_shapes' [ { 'a' ( 4 ) 'b' ( 4 ) } ] "

static void a_parameter_that_module_lacks_comes_from_its_master(void **state)
{
	struct ckpt *ck = made("{ 'module' { 'a' <bf16 4 @1> 'b' None } " SHAPES COMMON "}",
			       SHARD("", "0"));

	(void)state;
	assert_true(t_step_value(ck, "b", "master", 3) == 8);
	assert_int_equal(t_step_state(ck, "b", "weight"), -1);
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "its fp32 master is used"));
	ckpt_close(ck);
	ck = made("{ 'module' { 'a' <bf16 4 @1> } " SHAPES COMMON "}", SHARD("", "0"));
	assert_true(t_step_value(ck, "b", "master", 0) == 5);
	ckpt_close(ck);
}

static void listed_names_that_module_lacks_are_told(void **state)
{
	struct ckpt *ck = made("{ 'module' { 'a' <bf16 4 @1> 'b' <bf16 4 @5> } "
			       "'buffer_names' [ 'lost' ] 'frozen_param_shapes' { 'ice' ( 2 ) } "
			       SHAPES COMMON "}", SHARD("", "0"));

	(void)state;
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "buffer_names"));
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "frozen_param_shapes"));
	ckpt_close(ck);
	ck = made("{ 'module' { 'a' <bf16 4 @1> 'b' <bf16 4 @5> } 'buffer_names' [ 'b' ] "
		  SHAPES COMMON "}", SHARD("", "0"));
	assert_non_null(t_step_finding(ck, "NAMES_WRONG", "both param_shapes and buffer_names"));
	ckpt_close(ck);
}

static void names_that_are_aliases_of_each_other_are_an_error(void **state)
{
	struct ckpt *ck = made("{ 'module' { 'a' <bf16 4 @1> 'b' <bf16 4 @5> 'x' <bf16 2 @1> "
			       "'y' <bf16 2 @1> 'z' <bf16 2 @9> } "
			       "'shared_params' { 'x' 'y' 'y' 'x' 'z' 'z' } "
			       SHAPES COMMON "}", SHARD("", "0"));

	(void)state;
	assert_non_null(t_step_finding(ck, "NAMES_WRONG", "which is not stored either"));
	assert_true(t_step_value(ck, "z", "weight", 0) == 9);	/* of itself: no alias */
	ckpt_close(ck);
}

static void an_alias_of_an_alias_leads_to_what_is_stored(void **state)
{
	struct ckpt *ck = made("{ 'module' { 'a' <bf16 4 @1> 'b' <bf16 4 @5> 'x' <bf16 4 @1> "
			       "'y' <bf16 4 @1> 'z' <bf16 3 @1> } "
			       "'shared_params' { 'x' 'y' 'y' 'a' 'z' 'a' } "
			       SHAPES COMMON "}", SHARD("", "0"));
	uint64_t a;

	(void)state;
	assert_int_equal(ckpt_tensor_find(ck, "a", &a, NULL), 0);
	assert_int_equal(t_step_tensor(ck, "x").role, CKPT_ROLE_ALIAS);
	assert_int_equal(t_step_tensor(ck, "x").alias_of, a);
	assert_int_equal(t_step_tensor(ck, "y").alias_of, a);
	assert_int_equal(t_step_tensor(ck, "z").role, CKPT_ROLE_FROZEN);	/* another shape */
	assert_non_null(t_step_finding(ck, "ALIAS_DOUBTFUL", "shapes differ"));
	ckpt_close(ck);
}

static void shards_of_another_stage_than_the_model_files_are_an_error(void **state)
{
	struct ckpt *ck = made("{ 'module' { 'a' <bf16 4 @1> 'b' <bf16 4 @5> } " SHAPES COMMON "}",
			       "{ 'optimizer_state_dict' { 'zero_stage' 3 'partition_count' 1 "
			       "'fp32_flat_groups' [ <f32 8 @1> ] 'optimizer_state_dict' "
			       "{ 'state' { } 'param_groups' [ { 'params' [ 0 ] } ] } } }");

	(void)state;
	assert_non_null(t_step_finding(ck, "STEP_MIXED", "stage 3"));
	ckpt_close(ck);
}

static void gaps_must_be_as_many_as_parameters(void **state)
{
	char *dir = t_dir_new();

	(void)state;
	save(dir, MODEL, "{ 'module' { 'a' <bf16 4 @1> 'b' <bf16 4 @5> } " SHAPES COMMON "}");
	save(dir, "zero_pp_rank_0_mp_rank_00_optim_states.pt",
	     "{ 'optimizer_state_dict' { 'zero_stage' 2 'partition_count' [ 1 ] "
	     "'param_alignment_paddings' [ [ 0 ] ] "
	     "'single_partition_of_fp32_groups' [ <f32 8 @1> ] } }");
	t_step_fails(dir, NULL, CKPT_E_MISMATCH, "NAMES_WRONG|param_alignment_paddings");
	t_dir_remove(dir);
	free(dir);
}

static void states_called_weight_or_master_are_left_out(void **state)
{
	struct ckpt *ck = made("{ 'module' { 'a' <bf16 4 @1> 'b' <bf16 4 @5> } " SHAPES COMMON "}",
			       SHARD("0 { 'step' 7 'master' <f32 8 @9> 'sum' <f32 8 @20> }", "0"));
	struct ckpt_state_info s;
	uint64_t a;

	(void)state;
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "state master is left out"));
	assert_true(t_step_value(ck, "b", "sum", 0) == 24);
	assert_int_equal(ckpt_tensor_find(ck, "a", &a, NULL), 0);
	assert_int_equal(ckpt_state_get(ck, a, (uint32_t)t_step_state(ck, "a", "master"), &s,
					NULL), 0);
	assert_int_equal(s.nreplicas, 0);
	assert_string_equal(t_step_fact(ck, "group.0.step"), "7");
	ckpt_close(ck);
}

static void states_that_are_no_runs_are_missed(void **state)
{
	struct ckpt *ck = made("{ 'module' { 'a' <bf16 4 @1> 'b' <bf16 4 @5> } " SHAPES COMMON "}",
			       SHARD("0 { 'step' 7 'odd' <f32 2 4 *1 *2> 'sum' <f32 8 @20> }",
				     "0"));

	(void)state;
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "state odd is left out"));
	assert_true(t_step_value(ck, "b", "sum", 0) == 24);
	ckpt_close(ck);
}

static void states_of_a_group_have_the_key_that_its_params_name(void **state)
{
	struct ckpt *ck = made("{ 'module' { 'a' <bf16 4 @1> 'b' <bf16 4 @5> } " SHAPES COMMON "}",
			       SHARD("0 { 'sum' <f32 8 @9> } 5 { 'sum' <f32 8 @20> }", "5 5"));

	(void)state;
	assert_true(t_step_value(ck, "a", "sum", 0) == 20);
	ckpt_close(ck);
}

/* Two ranks; 'second' is what rank 1's shard has under state[0]. */
static struct ckpt *two_ranks(const char *second)
{
	char *dir = t_dir_new(), *text;
	struct ckpt *ck;

	save(dir, MODEL, "{ 'module' { 'a' <bf16 4 @1> 'b' <bf16 4 @5> } 'dp_world_size' 2 "
	     SHAPES "'global_steps' 1 'ds_version' '0.19.8' }");
	for (int r = 0; r < 2; r++) {
		char *name = t_fmt("zero_pp_rank_%d_mp_rank_00_optim_states.pt", r);

		text = t_fmt("{ 'optimizer_state_dict' { 'zero_stage' 2 'partition_count' [ 2 ] "
			     "'base_optimizer_state' { 'state' { 0 { %s } } 'param_groups' [ ] } "
			     "'single_partition_of_fp32_groups' [ <f32 4 @%d> ] } }",
			     r ? second : "'step' 3 'sum' <f32 4 @50>", 1 + 4 * r);
		save(dir, name, text);
		free(name);
		free(text);
	}
	ck = t_step_open(dir, NULL);
	t_dir_remove(dir);
	free(dir);
	return ck;
}

static void ranks_whose_states_differ_are_an_error(void **state)
{
	struct ckpt *ck = two_ranks("'step' 3 'sum' <f32 4 @54>");

	(void)state;
	assert_true(t_step_value(ck, "b", "sum", 3) == 57);
	assert_null(t_step_finding(ck, "RANKS_DISAGREE", ""));
	ckpt_close(ck);
	ck = two_ranks("'step' 3");
	assert_non_null(t_step_finding(ck, "RANKS_DISAGREE", "state sum of group 0"));
	ckpt_close(ck);
	ck = two_ranks("'step' 3 'sum' <f32 4 @54> 'more' <f32 4 @1>");
	assert_non_null(t_step_finding(ck, "RANKS_DISAGREE", "this shard has a state more"));
	ckpt_close(ck);
	ck = two_ranks("'step' 4 'sum' <f32 4 @54>");
	assert_non_null(t_step_finding(ck, "STEP_MIXED", "at step 4 here and at 3"));
	ckpt_close(ck);
	ck = two_ranks("'step' 3 'sum' <f32 3 @54>");
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "state sum of group 0"));
	ckpt_close(ck);
}

/* Stage 3 with two sub-groups of one parameter each; 'state' and 'groups' as given. */
static struct ckpt *stage3(const char *state, const char *groups)
{
	char *dir = t_dir_new();
	char *text = t_fmt("{ 'optimizer_state_dict' { 'zero_stage' 3 'partition_count' 1 "
			   "'fp32_flat_groups' [ <f32 4 @1> <f32 4 @5> ] 'optimizer_state_dict' "
			   "{ 'state' { %s } 'param_groups' [ %s ] } } }", state, groups);
	struct ckpt *ck;

	save(dir, "zero_pp_rank_0_mp_rank_00_model_states.pt",
	     "{ 'module' { 'a' <bf16 0> 'b' <bf16 0> } 'param_shapes' "
	     "[ { 'a' ( 4 ) } { 'b' ( 4 ) } ] " COMMON "}");
	save(dir, "zero_pp_rank_0_mp_rank_00_optim_states.pt", text);
	ck = t_step_open(dir, NULL);
	free(text);
	t_dir_remove(dir);
	free(dir);
	return ck;
}

static void a_placeholder_is_left_out_for_the_reason_that_its_version_has(void **state)
{
	static const struct {
		const char *version, *frozen, *words;
	} c[] = {
		{ "0.8.3", "", "before 0.9" },
		{ "0.19.8", "", "no list of frozen parameters" },
		{ "0.19.8", "'frozen_param_shapes' None", "were excluded" },
		{ "0.19.8", "'frozen_param_shapes' { }", "in no optimizer group" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		char *dir = t_dir_new();
		char *text = t_fmt("{ 'module' { 'a' <bf16 0> 'x' <bf16 0> } 'param_shapes' "
				   "[ { 'a' ( 4 ) } ] %s 'global_steps' 1 'dp_world_size' 1 "
				   "'ds_version' '%s' }", c[i].frozen, c[i].version);
		struct ckpt *ck;

		save(dir, "zero_pp_rank_0_mp_rank_00_model_states.pt", text);
		save(dir, "zero_pp_rank_0_mp_rank_00_optim_states.pt",
		     "{ 'optimizer_state_dict' { 'zero_stage' 3 'partition_count' 1 "
		     "'fp32_flat_groups' [ <f32 4 @1> ] 'optimizer_state_dict' { 'state' { } "
		     "'param_groups' [ { 'params' [ 0 ] } ] } } }");
		ck = t_step_open(dir, NULL);
		assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", c[i].words));
		ckpt_close(ck);
		free(text);
		t_dir_end(dir);
	}
}

static void sub_groups_are_found_by_position_not_by_key(void **state)
{
	/* as Adagrad numbers them before its first step: twice, from behind their number */
	struct ckpt *ck = stage3("2 { 'sum' <f32 4 @20> } 3 { 'sum' <f32 4 @30> }",
				 "{ 'lr' 0.5 'params' [ 2 3 2 3 ] }");

	(void)state;
	assert_true(t_step_value(ck, "a", "sum", 0) == 20);
	assert_true(t_step_value(ck, "b", "sum", 0) == 30);
	assert_null(t_step_finding(ck, "NAMES_WRONG", ""));
	ckpt_close(ck);
	ck = stage3("0 { 'sum' <f32 4 @20> } 1 { 'sum' <f32 4 @30> }",
		    "{ 'params' [ 0 ] } { 'params' [ ] } { 'params' [ 1 ] }");
	assert_int_equal(t_step_tensor(ck, "b").group, 2);
	assert_true(t_step_value(ck, "b", "sum", 0) == 30);
	ckpt_close(ck);
	ck = stage3("", "{ 'params' [ 0 ] }");
	assert_non_null(t_step_finding(ck, "NAMES_WRONG", "list 1 sub-groups, param_shapes has 2"));
	ckpt_close(ck);
}

/* ------------------------------------------------------------------- stage 0 */

#define TORCH "'optimizer_state_dict' { 'state' { 0 { 'step' 3 'sum' <f32 4 @50> } " \
	"1 { 'step' 3 'sum' <f32 4 @60> } } 'param_groups' [ { 'params' [ 0 1 ] } ] } "

static struct ckpt *stage0(const char *optimizer, int first_of_b)
{
	char *text = t_fmt("{ 'module' { 'a' <bf16 4 @1> 'b' <bf16 4 @%d> } 'optimizer' { %s } "
			   COMMON "}", first_of_b, optimizer);
	struct ckpt *ck = made(text, NULL);

	free(text);
	return ck;
}

static void masters_of_stage_0_are_named_by_the_weight_they_round_to(void **state)
{
	struct ckpt *ck = stage0("'fp32_groups' [ [ <f32 4 @5> <f32 4 @1> ] ] " TORCH, 5);

	(void)state;
	assert_true(t_step_value(ck, "b", "master", 0) == 5);
	assert_true(t_step_value(ck, "b", "sum", 0) == 50);	/* state 0 is the first master's */
	assert_true(t_step_value(ck, "a", "sum", 0) == 60);
	assert_int_equal(t_step_tensor(ck, "a").role, CKPT_ROLE_TRAINABLE);
	ckpt_close(ck);
}

static void masters_that_fit_two_parameters_are_left_out(void **state)
{
	struct ckpt *ck = stage0("'fp32_groups' [ [ <f32 4 @1> <f32 4 @1> ] ] " TORCH, 1);

	(void)state;
	assert_int_equal(t_step_count(ck, "master"), 0);
	assert_int_equal(t_step_count(ck, "sum"), 0);
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "have theirs left out"));
	ckpt_close(ck);
}

static void a_flat_master_must_fit_whole(void **state)
{
	struct ckpt *ck = stage0("'fp32_groups_flat' [ <f32 8 @1> ] 'optimizer_state_dict' "
				 "{ 'state' { 0 { 'sum' <f32 8 @70> } } 'param_groups' "
				 "[ { 'params' [ 0 ] } ] }", 5);

	(void)state;
	assert_true(t_step_value(ck, "b", "master", 0) == 5);
	assert_true(t_step_value(ck, "b", "sum", 3) == 77);
	ckpt_close(ck);
	ck = stage0("'fp32_groups_flat' [ <f32 9 @1> ] 'optimizer_state_dict' { }", 5);
	assert_int_equal(t_step_count(ck, "master"), 0);
	ckpt_close(ck);
	ck = stage0("'fp32_groups_flat' [ <f32 8 @1> ] 'optimizer_state_dict' { }", 6);
	assert_int_equal(t_step_count(ck, "master"), 0);
	ckpt_close(ck);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(three_tied_names_are_one_tensor_and_two_aliases),
		cmocka_unit_test(roles_and_group_numbers_are_those_of_the_run),
		cmocka_unit_test(facts_tell_steps_and_learning_rates),
		cmocka_unit_test(muons_momentum_is_left_out_where_it_cannot_be_joined),
		cmocka_unit_test(deflated_shards_give_the_same_step),
		cmocka_unit_test(lost_shards_of_stage_0_are_an_error),
		cmocka_unit_test(a_parameter_that_module_lacks_comes_from_its_master),
		cmocka_unit_test(listed_names_that_module_lacks_are_told),
		cmocka_unit_test(names_that_are_aliases_of_each_other_are_an_error),
		cmocka_unit_test(an_alias_of_an_alias_leads_to_what_is_stored),
		cmocka_unit_test(shards_of_another_stage_than_the_model_files_are_an_error),
		cmocka_unit_test(gaps_must_be_as_many_as_parameters),
		cmocka_unit_test(states_called_weight_or_master_are_left_out),
		cmocka_unit_test(states_that_are_no_runs_are_missed),
		cmocka_unit_test(states_of_a_group_have_the_key_that_its_params_name),
		cmocka_unit_test(ranks_whose_states_differ_are_an_error),
		cmocka_unit_test(a_placeholder_is_left_out_for_the_reason_that_its_version_has),
		cmocka_unit_test(sub_groups_are_found_by_position_not_by_key),
		cmocka_unit_test(masters_of_stage_0_are_named_by_the_weight_they_round_to),
		cmocka_unit_test(masters_that_fit_two_parameters_are_left_out),
		cmocka_unit_test(a_flat_master_must_fit_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
