/*
 * Which step is opened when a folder, a parent, a trainer's folder or several folders are given.
 * If it is wrong, a user converts an older step than he thinks, or one made of two.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_sys.h"

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_step.h"

#define FIXTURE "ds0.19.8-z2-bf16-w2"

/* A new folder with ROOT/global_step3 and 'latest'; at(...) makes paths below it. */
static char *dir;

static char *at(const char *path)
{
	return t_fmt("%s/%s", dir, path);
}

static int setup(void **state)
{
	(void)state;
	dir = t_step_copy(FIXTURE);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	t_dir_end(dir);
	return 0;
}

static void gone(const char *path)
{
	char *a = at(path);

	t_dir_remove(a);
	free(a);
}

static void latest(const char *root, const char *text, size_t n)
{
	char *a = t_fmt("%s/%s/latest", dir, root);

	t_file_write(a, text, n);
	free(a);
}

/* The step at 'path' is that tag; 'finding' (or NULL) is said. */
static void chosen(const char *path, const char *tag, const char *want, const char *finding)
{
	char *a = at(path);
	struct ckpt *ck = t_step_open(a, tag);
	struct ckpt_info info;

	ckpt_info_get(ck, &info);
	assert_string_equal(info.tag, want);
	if (finding)
		assert_non_null(t_step_finding(ck, finding, ""));
	else
		assert_null(t_step_finding(ck, "LATEST_ABSENT", ""));
	ckpt_close(ck);
	free(a);
}

static void fails(const char *path, const char *tag, int code, const char *words)
{
	char *a = at(path);

	t_step_fails(a, tag, code, words);
	free(a);
}

static void the_folder_above_its_latest_or_the_step_itself(void **state)
{
	(void)state;
	t_dir_copy_in(dir, "ckpt/global_step3", "ckpt/global_step10");
	chosen("ckpt", NULL, "global_step3", NULL);
	chosen("ckpt/", NULL, "global_step3", NULL);
	chosen("ckpt", "global_step10", "global_step10", NULL);
	chosen("ckpt/global_step10", NULL, "global_step10", NULL);
	chosen("ckpt/global_step10", "global_step10", "global_step10", NULL);
	fails("ckpt/global_step10", "global_step3", CKPT_E_USAGE, "is itself the step");
	latest("ckpt", " global_step10\r\n\n", 17);
	chosen("ckpt", NULL, "global_step10", NULL);
}

static void without_latest_the_highest_number_is_taken_and_said(void **state)
{
	(void)state;
	t_dir_copy_in(dir, "ckpt/global_step3", "ckpt/global_step10");
	t_dir_copy_in(dir, "ckpt/global_step3", "ckpt/global_step9");
	gone("ckpt/latest");
	chosen("ckpt", NULL, "global_step10", "LATEST_ABSENT");
}

static void a_latest_that_lies_or_is_empty_is_refused_with_what_is_there(void **state)
{
	(void)state;
	t_dir_copy_in(dir, "ckpt/global_step3", "ckpt/checkpoint-9");
	latest("ckpt", "global_step8", 12);
	fails("ckpt", NULL, CKPT_E_NOTFOUND, "LATEST_LIES|global_step8|steps here: |global_step3");
	latest("ckpt", "", 0);
	fails("ckpt", NULL, CKPT_E_NOTFOUND, "LATEST_LIES|empty|global_step3");
	latest("ckpt", "\0\0\0\0", 4);
	fails("ckpt", NULL, CKPT_E_NOTFOUND, "LATEST_LIES");
	latest("ckpt", "../ckpt/global_step3", 20);
	fails("ckpt", NULL, CKPT_E_UNSAFE, "LATEST_LIES|outside");
	latest("ckpt", "/global_step3", 13);
	fails("ckpt", NULL, CKPT_E_UNSAFE, "LATEST_LIES|outside");
	chosen("ckpt", "global_step3", "global_step3", NULL);
	fails("ckpt", "global_step4", CKPT_E_NOTFOUND, "no step global_step4|global_step3");
}

static int is_said(const char *path, const char *tag, const char *id)
{
	char *a = at(path);
	struct ckpt *ck = t_step_open(a, tag);
	const int said = t_step_finding(ck, id, "") != NULL;

	ckpt_close(ck);
	free(a);
	return said;
}

/* Of names with numbers: one that the files do not say, and a later one beside 'latest'. */
static void a_later_or_renamed_step_is_said(void **state)
{
	(void)state;
	assert_false(is_said("ckpt", NULL, "LATEST_BEHIND"));
	assert_false(is_said("ckpt", NULL, "TAG_STEP_DIFFERS"));
	t_dir_make_in(dir, "ckpt/global_step11");	/* no step yet */
	t_dir_make_in(dir, "ckpt/global_step12x");
	assert_false(is_said("ckpt", NULL, "LATEST_BEHIND"));
	t_dir_copy_in(dir, "ckpt/global_step3", "ckpt/global_step10");
	t_dir_copy_in(dir, "ckpt/global_step3", "ckpt/global_step2");
	assert_true(is_said("ckpt", NULL, "LATEST_BEHIND"));
	assert_false(is_said("ckpt", NULL, "TAG_STEP_DIFFERS"));
	assert_false(is_said("ckpt", "global_step3", "LATEST_BEHIND"));
	assert_true(is_said("ckpt", "global_step2", "TAG_STEP_DIFFERS"));
	latest("ckpt", "global_step10\n", 14);
	assert_false(is_said("ckpt", NULL, "LATEST_BEHIND"));
	assert_true(is_said("ckpt", NULL, "TAG_STEP_DIFFERS"));
	latest("ckpt", "global_step3\0", 13);
	fails("ckpt", NULL, CKPT_E_NOTFOUND, "LATEST_LIES");
}

static void a_lie_is_a_lie_also_to_a_caller_who_wants_no_message(void **state)
{
	char *a = at("ckpt");
	const char *path = a;
	struct ckpt *ck;

	(void)state;
	t_dir_copy_in(dir, "ckpt", "whole");
	t_dir_copy_in(dir, "whole", "ckpt/checkpoint-9");
	gone("ckpt/global_step3");	/* which 'latest' names */
	assert_int_equal(ckpt_open(&path, 1, NULL, &ck, NULL), -CKPT_E_NOTFOUND);
	free(a);
}

static void a_damaged_first_shard_does_no_harm_to_a_caller_without_err(void **state)
{
	char *a = at("ckpt");
	char *shard = at("ckpt/global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
	const char *path = a;
	struct ckpt *ck;

	(void)state;
	t_file_write(shard, "PK\3\4", 4);
	assert_int_equal(ckpt_open(&path, 1, NULL, &ck, NULL), 0);
	assert_non_null(t_step_finding(ck, "FILE_DAMAGED", "rank_0"));
	assert_null(t_step_finding(ck, "RANK_FILE_MISSING", "rank_0"));	/* it is said once */
	ckpt_close(ck);
	free(a);
	free(shard);
}

static struct ck_sys real_sys;
static const char *closed_name;

static int open_but_closed(const char *path, int flags, mode_t mode)
{
	if (!strstr(path, closed_name))
		return real_sys.open(path, flags, mode);
	errno = EACCES;
	return -1;
}

static int access_but_closed(const char *path, int mode)
{
	if (!strstr(path, closed_name))
		return real_sys.access(path, mode);
	errno = EACCES;
	return -1;
}

/* Root reads everything, so the system says it in this place. */
static void closed(const char *fixture, const char *name, bool as_warning)
{
	static const char *const ids[] = { "NO_PERMISSION", NULL };
	const struct ckpt_open_opts o = {
		.size = sizeof(o), .as_warning = as_warning ? ids : NULL,
	};
	const char *fixtures = getenv("ZCKPT_FIXTURES");
	char *path = t_fmt("%s/deepspeed/%s/ckpt", fixtures, fixture);
	uint64_t errors = 0;
	struct ckpt_finding f;
	struct ckpt *ck;

	real_sys = ck_sys;
	closed_name = name;
	ck_sys.open = open_but_closed;
	ck_sys.access = access_but_closed;
	assert_int_equal(ckpt_open((const char *const *)&path, 1, &o, &ck, NULL), 0);
	ck_sys = real_sys;
	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
		errors += f.severity == CKPT_ERROR;
	assert_non_null(t_step_finding(ck, "NO_PERMISSION", name));
	assert_int_equal(errors, 1);
	assert_int_equal(t_step_finding(ck, "RANK_FILE_MISSING", "") ||
			 t_step_finding(ck, "MODEL_FILE_MISSING", ""), as_warning);
	ckpt_close(ck);
	free(path);
}

/* It is no rank's fault, and a warning of it leaves the rank's part unknown. */
static void a_file_that_may_not_be_read_is_one_error(void **state)
{
	(void)state;
	for (int as_warning = 0; as_warning <= 1; as_warning++) {
		closed(FIXTURE, "rank_1_mp_rank_00_optim", as_warning);
		closed(FIXTURE, "rank_0_mp_rank_00_optim", as_warning);
		closed("ds0.19.8-z3-bf16-w3", "rank_2_mp_rank_00_optim", as_warning);
		closed("ds0.19.8-z3-bf16-w3", "rank_1_mp_rank_00_model", as_warning);
	}
}

/* The places of its elements are those of the file that was opened. */
static void an_element_is_of_the_files_that_were_opened(void **state)
{
	char *a = at("ckpt");
	char *shard = at("ckpt/global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
	const char *path = a;
	struct ckpt_err err = { 0 };
	struct ckpt *ck;
	uint8_t *p;
	float v;
	size_t n;
	int k;

	(void)state;
	assert_int_equal(ckpt_open(&path, 1, NULL, &ck, NULL), 0);
	k = t_step_state(ck, "blocks.0.ln1.weight", "master");
	for (uint64_t i = 0; i < 2; i++) {
		uint64_t number;

		assert_int_equal(ckpt_tensor_find(ck, "blocks.0.ln1.weight", &number, NULL), 0);
		assert_int_equal(ckpt_read(ck, number, (uint32_t)k, 0, 1, CKPT_F32, &v, sizeof(v),
					   &err), i ? -CKPT_E_MISMATCH : 0);
		p = t_file_read(shard, &n);
		p[n / 2] ^= 1;
		t_file_write(shard, p, n);
		free(p);
	}
	assert_non_null(strstr(err.where, "optim_states"));
	ckpt_close(ck);
	free(shard);
	free(a);
}

static void a_trainers_folder_opens_its_newest_checkpoint(void **state)
{
	(void)state;
	t_dir_make_in(dir, "run");
	t_dir_copy_in(dir, "ckpt", "run/checkpoint-9");
	t_dir_copy_in(dir, "ckpt", "run/checkpoint-100");
	t_dir_copy_in(dir, "ckpt/global_step3", "run/checkpoint-100/global_step100");
	latest("run/checkpoint-100", "global_step100", 14);
	chosen("run", NULL, "global_step100", NULL);
	chosen("run/checkpoint-9", NULL, "global_step3", NULL);
	latest("run/checkpoint-100", "global_step7", 12);
	fails("run", NULL, CKPT_E_NOTFOUND, "LATEST_LIES|global_step7");
	gone("run/checkpoint-100");
	chosen("run", NULL, "global_step3", NULL);
}

/* What is said of the choice has these words. */
static void why(const char *path, const char *tag, const char *words)
{
	char *a = at(path);
	struct ckpt *ck = t_step_open(a, tag);
	struct ckpt_info info;

	ckpt_info_get(ck, &info);
	if (!strstr(info.why, words))
		fail_msg("%s: not in: %s", words, info.why);
	ckpt_close(ck);
	free(a);
}

/* run/checkpoint-2 and -4, each with its own 'latest', of steps 2 and 4; -9 has weights alone. */
static void make_run(void)
{
	t_dir_make_in(dir, "run");
	t_dir_make_in(dir, "run/checkpoint-2");
	t_dir_make_in(dir, "run/checkpoint-4");
	t_dir_copy_in(dir, "ckpt/global_step3", "run/checkpoint-2/global_step2");
	t_dir_copy_in(dir, "ckpt/global_step3", "run/checkpoint-4/global_step4");
	latest("run/checkpoint-2", "global_step2", 12);
	latest("run/checkpoint-4", "global_step4", 12);
}

static void a_trainers_checkpoint_is_a_tag_of_its_folder(void **state)
{
	(void)state;
	make_run();
	chosen("run", NULL, "global_step4", NULL);
	why("run", NULL, "the highest checkpoint is checkpoint-4; in it, 'latest' names it");
	chosen("run", "checkpoint-2", "global_step2", NULL);
	why("run", "checkpoint-2", "--tag names checkpoint-2; in it, 'latest' names it");
	fails("run", "checkpoint-3", CKPT_E_NOTFOUND,
	      "no step checkpoint-3|checkpoint-4, checkpoint-2");
	latest("run", "checkpoint-2", 12);
	chosen("run", NULL, "global_step2", "LATEST_BEHIND");
	why("run", NULL, "'latest' names checkpoint-2; in it, 'latest' names it");
	chosen("run", "checkpoint-4", "global_step4", NULL);
	latest("run", "checkpoint-7", 12);
	fails("run", NULL, CKPT_E_NOTFOUND, "LATEST_LIES|checkpoint-7|checkpoint-4, checkpoint-2");
}

static void a_checkpoint_without_a_step_is_passed_over_and_said(void **state)
{
	(void)state;
	make_run();
	assert_false(is_said("run", NULL, "STEP_PASSED_OVER"));
	t_dir_make_in(dir, "run/checkpoint-9");
	t_dir_make_in(dir, "run/checkpoint-10");
	t_dir_make_in(dir, "run/checkpoint-1");
	chosen("run", NULL, "global_step4", "STEP_PASSED_OVER");
	why("run", NULL, "the highest checkpoint with a step is checkpoint-4;");
	assert_false(is_said("run", "checkpoint-4", "STEP_PASSED_OVER"));
	fails("run", "checkpoint-9", CKPT_E_NOTFOUND, "no step checkpoint-9");
	latest("run", "checkpoint-9", 12);
	fails("run", NULL, CKPT_E_NOTFOUND, "LATEST_LIES|checkpoint-9");
}

static void tags_may_have_slashes_and_brackets(void **state)
{
	char *a = at("ckpt/run [7]");

	(void)state;
	t_dir_make_in(dir, "ckpt/sub");
	t_dir_copy_in(dir, "ckpt/global_step3", "ckpt/sub/global_step3");
	chosen("ckpt", "sub/global_step3", "sub/global_step3", NULL);
	t_dir_copy_in(dir, "ckpt/global_step3", "ckpt/run [7]");
	chosen("ckpt", "run [7]", "run [7]", "TAG_UNLOADABLE");
	chosen("ckpt/run [7]", NULL, "run [7]", "TAG_UNLOADABLE");
	free(a);
}

/* Opens two folders laid over each other; the caller closes. */
static struct ckpt *both(const char *one, const char *two)
{
	char *a = at(one), *b = at(two);
	const char *paths[] = { a, b };
	struct ckpt_err err = { 0 };
	struct ckpt *ck;

	if (ckpt_open(paths, 2, NULL, &ck, &err))
		fail_msg("%s: %s", err.where, err.msg);
	free(a);
	free(b);
	return ck;
}

static void shards_of_two_nodes_make_one_step(void **state)
{
	static const char *const levels[][2] = {
		{ "ckpt", "node1" }, { "ckpt/global_step3", "node1/global_step3" },
		{ "run0", "run1" },
	};

	(void)state;
	t_dir_copy_in(dir, "ckpt", "node1");
	gone("ckpt/global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
	gone("node1/global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
	gone("node1/global_step3/mp_rank_00_model_states.pt");
	t_dir_make_in(dir, "run0");
	t_dir_make_in(dir, "run1");
	t_dir_copy_in(dir, "ckpt", "run0/checkpoint-5");
	t_dir_copy_in(dir, "node1", "run1/checkpoint-5");
	for (size_t i = 0; i < 3; i++) {
		struct ckpt *ck = both(levels[i][0], levels[i][1]);

		assert_null(t_step_finding(ck, "RANK_FILE_MISSING", ""));
		assert_int_equal(t_step_count(ck, "master"), 19);
		ckpt_close(ck);
	}
}

static void one_name_with_two_sizes_is_an_error(void **state)
{
	char *shard = at("node1/global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
	struct ckpt *ck;

	(void)state;
	t_dir_copy_in(dir, "ckpt", "node1");
	ck = both("ckpt", "node1");
	assert_null(t_step_finding(ck, "OVERLAY_DIFFERS", ""));
	ckpt_close(ck);
	t_file_write(shard, "x", 1);
	ck = both("ckpt", "node1");
	assert_non_null(t_step_finding(ck, "OVERLAY_DIFFERS", "rank_1"));
	ckpt_close(ck);
	free(shard);
}

static void two_files_of_one_rank_are_an_error(void **state)
{
	struct ckpt *ck;
	char *a = at("ckpt");

	(void)state;
	t_dir_copy_in(dir, "ckpt/global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
		      "ckpt/global_step3/bf16_zero_pp_rank_01_mp_rank_00_optim_states.pt");
	ck = t_step_open(a, NULL);
	assert_non_null(t_step_finding(ck, "RANK_FILE_EXTRA", "a second file of the same rank"));
	ckpt_close(ck);
	free(a);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_folder_above_its_latest_or_the_step_itself),
		TEST(without_latest_the_highest_number_is_taken_and_said),
		TEST(a_latest_that_lies_or_is_empty_is_refused_with_what_is_there),
		TEST(a_later_or_renamed_step_is_said),
		TEST(a_lie_is_a_lie_also_to_a_caller_who_wants_no_message),
		TEST(a_damaged_first_shard_does_no_harm_to_a_caller_without_err),
		TEST(a_file_that_may_not_be_read_is_one_error),
		TEST(an_element_is_of_the_files_that_were_opened),
		TEST(a_trainers_folder_opens_its_newest_checkpoint),
		TEST(a_trainers_checkpoint_is_a_tag_of_its_folder),
		TEST(a_checkpoint_without_a_step_is_passed_over_and_said),
		TEST(tags_may_have_slashes_and_brackets),
		TEST(shards_of_two_nodes_make_one_step),
		TEST(one_name_with_two_sizes_is_an_error),
		TEST(two_files_of_one_rank_are_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
