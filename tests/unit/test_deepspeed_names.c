/*
 * The grammar of DeepSpeed's file names. If it is wrong, a rank's file is overlooked, or a file
 * that is none of the step's is read as one: weights with a hole, or a refusal without reason.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "formats/ds_pt/ck_ds.h"

static void expect(const char *name, enum ds_kind kind, uint32_t rank, uint32_t mp, bool bf16)
{
	const struct ds_name id = ck_ds_name_parse(name);

	if (id.kind != kind || id.rank != rank || id.mp != mp || id.bf16 != bf16)
		fail_msg("%s: kind %d rank %u mp %u bf16 %d", name, (int)id.kind, id.rank, id.mp,
			 id.bf16);
}

static void names_of_all_versions_are_taken_apart(void **state)
{
	(void)state;
	expect("mp_rank_00_model_states.pt", DS_MODEL, 0, 0, false);
	expect("mp_rank_12_model_states.pt", DS_MODEL, 0, 12, false);
	expect("zero_pp_rank_0_mp_rank_00_model_states.pt", DS_MODEL_RANK, 0, 0, false);
	expect("zero_pp_rank_4095_mp_rank_00_optim_states.pt", DS_OPTIM, 4095, 0, false);
	expect("bf16_zero_pp_rank_17_mp_rank_03_optim_states.pt", DS_OPTIM, 17, 3, true);
	expect("zero_pp_rank_2_mp_rank_00optim_states.pt", DS_OPTIM, 2, 0, false);
	expect("layer_01-model_00-model_states.pt", DS_LAYER, 1, 0, false);
	expect("layer_12-model_03-model_states.pt", DS_LAYER, 12, 3, false);
	expect("layer_01-model_states.pt", DS_LAYER, 1, 0, false);
	expect("layer_0_expert_3_mp_rank_00_model_states.pt", DS_EXPERT, 3, 0, false);
	expect("expert_3_mp_rank_00_model_states.pt", DS_EXPERT, 3, 0, false);
	expect("expp_rank_1_mp_rank_02_optim_states.pt", DS_EXPERT_OPTIM, 1, 2, false);
	expect("zero_pp_rank_0_mp_rank_00_optim_states.pt-3.1", DS_PIECE, 0, 0, false);
}

static void other_names_are_no_part_of_a_step(void **state)
{
	static const char *const names[] = {
		"", ".pt", "latest", "zero_to_fp32.py", "model.safetensors", "rng_state_0.pth",
		"mp_rank_00_model_states", "mp_rank_00_model_states.pt.tmp",
		"mp_rank_00_model_states.pt~", "old_mp_rank_00_model_states.pt",
		"mp_rank__model_states.pt", "mp_rank_00_model_states.bin",
		"zero_pp_rank_0_mp_rank_00_optim_states.pt.bak",
		"zero_pp_rank_x_mp_rank_00_optim_states.pt",
		"zero_pp_rank_12345678_mp_rank_00_optim_states.pt",
		"zero_pp_rank_0_optim_states.pt", "bf16_mp_rank_00_model_states.pt",
		"expert_notes.txt", "expert_advice.pt", "layer_norms.pt", "layer_3.pt",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		expect(names[i], DS_OTHER, 0, 0, false);
}

static void a_prefix_is_a_name_without_its_ending(void **state)
{
	(void)state;
	assert_int_equal(ck_ds_prefix_parse("bf16_zero_pp_rank_3_mp_rank_00_optim_states").rank, 3);
	assert_int_equal(ck_ds_prefix_parse("mp_rank_00_model_states").kind, DS_MODEL);
	assert_int_equal(ck_ds_prefix_parse("archive").kind, DS_OTHER);
	assert_int_equal(ck_ds_prefix_parse("mp_rank_00_model_states.pt").kind, DS_OTHER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_all_versions_are_taken_apart),
		cmocka_unit_test(other_names_are_no_part_of_a_step),
		cmocka_unit_test(a_prefix_is_a_name_without_its_ending),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
