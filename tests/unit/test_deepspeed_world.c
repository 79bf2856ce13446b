/*
 * A step of 4096 ranks is read and converted by a process that may hold 256 files. If it is wrong,
 * the steps of the largest runs cannot be opened at all, or come out in the wrong order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/lib/archive/t_pkl.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_convert.h"
#include "tests/lib/ops/t_step.h"

#define WORLD 4096
#define NUMEL 20000	/* 2 * 4096 * 3 >= 20000: partitions of 6, the last 762 ranks empty */
#define PART 6

static char *step_at(const char *dir)
{
	char *tag = t_fmt("%s/step", dir), *path = t_fmt("%s/mp_rank_00_model_states.pt", tag);
	char *text = t_fmt("{ 'module' { 'a' <f32 100 150 @0> 'b' <f32 5000 @15000> } "
			   "'param_shapes' [ { 'a' ( 100 150 ) 'b' ( 5000 ) } ] 'global_steps' 3 "
			   "'dp_world_size' %d 'mp_world_size' 1 'ds_version' '0.19.8' }", WORLD);

	t_dir_make(tag);
	t_pkl_save(path, text);
	free(path);
	free(text);
	for (int r = 0; r < WORLD; r++) {
		const int first = r * PART, left = NUMEL - first;
		const int n = left <= 0 ? 0 : left < PART ? left : PART;

		path = t_fmt("%s/zero_pp_rank_%d_mp_rank_00_optim_states.pt", tag, r);
		text = t_fmt("{ 'optimizer_state_dict' { 'zero_stage' 2 'partition_count' [ %d ] "
			     "'base_optimizer_state' { 'state' { 0 { 'step' 3 'exp_avg' "
			     "<f32 %d @%d> } } 'param_groups' [ { 'params' [ 0 ] } ] } "
			     "'single_partition_of_fp32_groups' [ <f32 %d @%d> ] } }",
			     WORLD, PART, 50000 + first, n, first);
		t_pkl_save(path, text);
		free(path);
		free(text);
	}
	return tag;
}

static void check_numbers(const char *dir, const char *file, float first)
{
	struct t_st st;
	float v;

	t_convert_result(&st, dir, file);
	for (uint64_t i = 0; i < NUMEL; i++) {
		const struct t_st_tensor *t = t_st_find(&st, i < 15000 ? "a" : "b");

		assert_non_null(t);
		memcpy(&v, t->data + 4 * (i < 15000 ? i : i - 15000), 4);
		if (v != first + (float)i)
			fail_msg("%s: element %d is %g", file, (int)i, (double)v);
	}
	t_st_close(&st);
}

static void a_step_of_4096_ranks_needs_few_files_at_once(void **state)
{
	static const char *const all[] = { "all", NULL };
	const struct ckpt_convert_opts opts = { .size = sizeof(opts), .states = all };
	char *dir = t_dir_new(), *tag = step_at(dir), *dst = t_fmt("%s/out", dir);
	struct rlimit before;
	struct ckpt *ck;
	struct ckpt_info info;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 256, before.rlim_max }), 0);
	ck = t_step_open(tag, NULL);
	ckpt_info_get(ck, &info);
	assert_int_equal(info.world, WORLD);
	assert_int_equal(info.nfiles, WORLD + 1);
	assert_int_equal(info.nfindings, 0);
	ckpt_close(ck);
	t_convert(tag, dst, &opts, 0, NULL, NULL);
	setrlimit(RLIMIT_NOFILE, &before);
	check_numbers(dir, "out/master.safetensors", 0);
	check_numbers(dir, "out/exp_avg.safetensors", 50000);
	t_dir_remove(dir);
	free(dir);
	free(tag);
	free(dst);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_of_4096_ranks_needs_few_files_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
