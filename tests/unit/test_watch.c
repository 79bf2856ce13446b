/*
 * What verify --full cannot compare in passing: masters, weights and buffers that are stored
 * deflated are read once more at the end (ck_copy_check_rest). If this fails, a step whose files
 * some archiver packed anew is called whole whatever its masters hold.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ckpt.h>

#include "tests/lib/archive/t_pkl.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_step.h"

/* Two jobs of a million elements and a rest. */
#define MANY "2200003"

static char *dir;

static int setup(void **state)
{
	(void)state;
	dir = t_dir_new();
	t_dir_make_in(dir, "global_step7");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	t_dir_end(dir);
	return 0;
}

/* A file of the step, as torch writes it or packed; 'spoil' changes one byte in its middle. */
static void save(const char *name, const char *text, bool packed, bool spoil)
{
	char *path = t_fmt("%s/global_step7/%s", dir, name);

	t_pkl_save(path, text);
	if (spoil) {
		size_t n;
		uint8_t *p = t_file_read(path, &n);

		p[n / 2] ^= 0x40;
		t_file_write(path, p, n);
		free(p);
	}
	if (packed)
		t_pkl_deflate(path);
	free(path);
}

#define MODEL "{ 'module' { 'v' <bf16 " MANY " @1> 'w' <bf16 5 @2200004> } " \
	"'param_shapes' [ { 'v' ( " MANY " ) 'w' ( 5 ) } ] 'buffer_names' [ ] 'global_steps' 7 " \
	"'dp_world_size' 1 'mp_world_size' 1 'ds_version' '0.19.8' }"
#define SHARD "{ 'optimizer_state_dict' { 'base_optimizer_state' { 'state' { } 'param_groups' " \
	"[ { 'params' [ 0 ] } ] } 'single_partition_of_fp32_groups' [ <f32 2200008 @1> ] " \
	"'partition_count' [ 1 ] 'zero_stage' 2 'ds_version' '0.19.8' } }"
#define MODEL_FILE "mp_rank_00_model_states.pt"
#define SHARD_FILE "zero_pp_rank_0_mp_rank_00_optim_states.pt"

static struct ckpt *verified(struct ckpt_verified *v)
{
	const struct ckpt_run_opts run = { .size = sizeof(run), .threads = 2 };
	const struct ckpt_verify_opts opts = { .size = sizeof(opts), .run = &run,
					       .flags = CKPT_VERIFY_FULL };
	struct ckpt *ck = t_step_open(dir, "global_step7");
	struct ckpt_err err = { 0 };

	if (ckpt_verify(ck, &opts, v, &err))
		fail_msg("%s: %s", err.where, err.msg);
	return ck;
}

static void a_packed_master_is_held_against_its_weight(void **state)
{
	(void)state;
	for (int packed = 0; packed < 4; packed++) {
		struct ckpt_verified v;
		struct ckpt *ck;

		save(SHARD_FILE, SHARD, packed & 1, false);
		save(MODEL_FILE, MODEL, packed & 2, false);
		ck = verified(&v);
		assert_int_equal(v.elements, 2200008);
		if (t_step_finding(ck, "MASTER_WEIGHT_MISMATCH", ""))
			fail_msg("packed %d: %s", packed,
				 t_step_finding(ck, "MASTER_WEIGHT_MISMATCH", ""));
		ckpt_close(ck);
	}
}

/* In the middle, where only the comparison of all elements looks; always the same element. */
static void one_element_of_a_packed_tensor_is_found(void **state)
{
	(void)state;
	for (int spoilt = 0; spoilt < 2; spoilt++) {
		char *first = NULL;

		for (int packed = 0; packed < 4; packed++) {
			struct ckpt_verified v;
			struct ckpt *ck;
			const char *says;

			save(SHARD_FILE, SHARD, packed & 1, spoilt == 0);
			save(MODEL_FILE, MODEL, packed & 2, spoilt == 1);
			ck = verified(&v);
			assert_int_equal(v.elements, 2200008);
			says = t_step_finding(ck, "MASTER_WEIGHT_MISMATCH", "v");
			assert_non_null(says);
			if (!first)
				first = t_fmt("%s", says);
			assert_string_equal(says, first);
			ckpt_close(ck);
		}
		free(first);
	}
}

#define MODEL3 "{ 'module' { 'v' <f32 0 @1> 'b' <i64 70 @%d> } 'param_shapes' [ { 'v' ( 4 ) } ] " \
	"'buffer_names' [ 'b' ] 'global_steps' 7 'dp_world_size' 2 'mp_world_size' 1 " \
	"'ds_version' '0.19.8' }"
#define SHARD3 "{ 'optimizer_state_dict' { 'optimizer_state_dict' { 'state' { } 'param_groups' " \
	"[ { 'params' [ 0 ] } ] } 'fp32_flat_groups' [ <f32 2 @20> ] 'partition_count' 2 " \
	"'zero_stage' 3 'ds_version' '0.19.8' } }"

/* Buffers of two ranks, which are copies of each other. */
static void packed_copies_are_compared(void **state)
{
	(void)state;
	for (int packed = 0; packed < 4; packed++) {
		struct ckpt_verified v;
		struct ckpt *ck;

		for (int rank = 0; rank < 2; rank++) {
			char *model = t_fmt("zero_pp_rank_%d_mp_rank_00_model_states.pt", rank);
			char *shard = t_fmt("zero_pp_rank_%d_mp_rank_00_optim_states.pt", rank);
			char *text = t_fmt(MODEL3, 5 + (packed >= 2 ? rank : 0));

			save(model, text, packed & 1, false);
			save(shard, SHARD3, packed & 1, false);
			free(text);
			free(shard);
			free(model);
		}
		ck = verified(&v);
		assert_int_equal(v.copies, 70);
		assert_int_equal(t_step_finding(ck, "BUFFERS_DIFFER", "b") != NULL, packed >= 2);
		ckpt_close(ck);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_packed_master_is_held_against_its_weight, setup,
						teardown),
		cmocka_unit_test_setup_teardown(one_element_of_a_packed_tensor_is_found, setup,
						teardown),
		cmocka_unit_test_setup_teardown(packed_copies_are_compared, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
