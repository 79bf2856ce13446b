/*
 * Rank files of FSDP: damaged and mixed folders, and whose an optimizer's states are. If this is
 * wrong, a user gets a model of two saves, or resumes with the moments of another parameter.
 *
 * The values of every real folder are compared in tests/cli/test_truth_fsdp.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/fsdp_ranks/rk.h"
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

static char *case_of(const char *name)
{
	char *below = t_fmt("fsdp/%s/ckpt", name), *path = t_fixture(below);

	free(below);
	return path;
}

static void save(const char *name, const char *text)
{
	char *path = t_fmt("%s/%s", dir, name);

	t_pkl_save(path, text);
	free(path);
}

static void save_file(const char *name, const char *text)
{
	char *path = t_fmt("%s/%s", dir, name);

	t_file_write(path, text, strlen(text));
	free(path);
}

/* Has DIR that finding? */
static void finds(const char *path, const char *id, const char *words)
{
	struct ckpt *ck = t_step_open(path, NULL);

	if (!t_step_finding(ck, id, words))
		fail_msg("%s: no %s with '%s'", path, id, words);
	ckpt_close(ck);
}

/* ---- real folders ---- */

static void a_run_its_step_and_its_model_are_one_checkpoint(void **state)
{
	char *run = case_of("t2.11-fsdp2-verl-w4"), *at[3];
	char digest[3][33];

	(void)state;
	at[0] = t_fmt("%s/global_step_3", run);
	at[1] = t_fmt("%s/global_step_3/actor", run);
	at[2] = NULL;
	t_step_digest_at(run, NULL, digest[0]);
	for (int i = 0; at[i]; i++) {
		t_step_digest_at(at[i], NULL, digest[1]);
		assert_string_equal(digest[0], digest[1]);
		free(at[i]);
	}
	t_step_digest_at(run, "3", digest[2]);
	assert_string_equal(digest[0], digest[2]);
	free(run);
}

static void a_broken_folder_says_what_is_wrong(void **state)
{
	static const struct {
		const char *name, *id, *words;
	} cases[] = {
		{ "bad-2.11-fsdp2-verl-w4-missing-rank", "RANK_FILE_MISSING",
		  "model_world_size_4_rank_2.pt" },
		{ "bad-2.11-fsdp2-verl-w4-stale-world", "RANK_FILE_EXTRA", "4 of one by 4" },
		{ "bad-2.11-fsdp2-verl-w4-swapped-ranks", "RANK_FILE_SWAPPED",
		  "model_world_size_4_rank_1.pt" },
		{ "bad-2.4-fsdp1-verl-w3-flat-rank-truncated", "FILE_DAMAGED",
		  "model_world_size_3_rank_0.pt" },
		{ "t2.15-fsdp2-verl-w2-reversed", "NOT_IN_CHECKPOINT", "30 parameters" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *path = case_of(cases[i].name);

		finds(path, cases[i].id, cases[i].words);
		free(path);
	}
}

static void flat_shards_without_names_are_refused(void **state)
{
	char *path = case_of("t2.11-fsdp1-local-w2");

	(void)state;
	t_step_fails(path, NULL, CKPT_E_UNSUPPORTED, "LOCAL_STATE_DICT|_flat_param");
	free(path);
}

/* Renamed without its archive knowing: repacked, or saved through a file object. */
static void a_mesh_says_which_rank_a_file_is_of(void **state)
{
	char *from = case_of("t2.8-fsdp2-verl-w2"), *name, *path;
	uint8_t *p;
	size_t n;

	(void)state;
	for (int rank = 0; rank < 2; rank++) {
		path = t_fmt("%s/model_world_size_2_rank_%d.pt", from, 1 - rank);
		p = t_file_read(path, &n);
		assert_non_null(p);
		/* the prefix in all records: ..._rank_1/data.pkl */
		name = t_fmt("model_world_size_2_rank_%d/", 1 - rank);
		for (size_t i = 0; i + strlen(name) <= n; i++)
			if (!memcmp(p + i, name, strlen(name)))
				p[i + strlen(name) - 2] = (uint8_t)('0' + rank);
		free(path);
		path = t_fmt("%s/model_world_size_2_rank_%d.pt", dir, rank);
		t_file_write(path, p, n);
		free(path);
		free(name);
		free(p);
	}
	finds(dir, "RANK_FILE_SWAPPED", "coordinate on its device mesh");
	free(from);
}

static void a_cut_file_is_never_read(void **state)
{
	char *from = case_of("t2.11-fsdp2-verl-w2-lora"), *path;
	uint8_t *p;
	size_t n;

	(void)state;
	t_dir_remove(dir);
	t_dir_copy(from, dir);
	free(from);
	path = t_fmt("%s/model_world_size_2_rank_1.pt", dir);
	p = t_file_read(path, &n);
	for (size_t i = 0; i < 60; i++) {
		struct ckpt *ck;

		t_file_write(path, p, n * i / 60);
		ck = t_step_open(dir, NULL);
		assert_non_null(t_step_finding(ck, "FILE_DAMAGED", "rank_1.pt"));
		assert_int_equal(t_step_state(ck, "norm.weight", "weight"), -1);
		ckpt_close(ck);
	}
	free(p);
	free(path);
}

static void files_of_a_rank_that_is_none_are_too_many(void **state)
{
	char *from = case_of("t2.11-fsdp2-verl-w2-lora");

	(void)state;
	t_dir_remove(dir);
	t_dir_copy(from, dir);
	t_dir_copy_in(dir, "model_world_size_2_rank_1.pt", "model_world_size_2_rank_7.pt");
	finds(dir, "RANK_FILE_EXTRA", "rank 7");
	free(from);
}

/* ---- steps of a run ---- */

#define MODEL "model_world_size_1_rank_0.pt"
#define OPTIM "optim_world_size_1_rank_0.pt"

static void make_run_step(const char *step, const char *first)
{
	char *name = t_fmt("%s/actor", step), *text = t_fmt("{ 'w' <f32 2 @%s> }", first);
	char *file = t_fmt("%s/" MODEL, name);

	t_dir_make_in(dir, step);
	t_dir_make_in(dir, name);
	save(file, text);
	free(file);
	free(text);
	free(name);
}

static void verl_names_the_last_complete_step_in_a_file(void **state)
{
	struct ckpt_info info;
	struct ckpt *ck;
	char *actor;

	(void)state;
	make_run_step("global_step_2", "20");
	make_run_step("global_step_10", "100");
	ck = t_step_open(dir, NULL);
	assert_true(t_step_value(ck, "w", "weight", 0) == 100);
	ckpt_close(ck);
	actor = t_fmt("%s/global_step_2/actor", dir);
	ck = t_step_open(actor, NULL);
	ckpt_info_get(ck, &info);
	assert_int_equal(info.step, 2);
	ckpt_close(ck);
	free(actor);
	save_file("latest_checkpointed_iteration.txt", "2");
	ck = t_step_open(dir, NULL);
	assert_true(t_step_value(ck, "w", "weight", 0) == 20);
	assert_non_null(t_step_finding(ck, "LATEST_BEHIND", "global_step_10 is newer"));
	ckpt_close(ck);
	ck = t_step_open(dir, "10");
	assert_true(t_step_value(ck, "w", "weight", 0) == 100);
	ckpt_close(ck);
}

/* ---- whose a state is ---- */

#define MOMENTS(shape, m, v) "{ 'step' 3 'exp_avg' <f32 " shape " @" m "> 'exp_avg_sq' <f32 " \
	shape " @" v "> } "

static struct ckpt *optimizer(const char *model, const char *states, const char *groups)
{
	char *text = t_fmt("{ 'state' { %s } 'param_groups' [ %s ] }", states, groups);

	save(MODEL, model);
	save(OPTIM, text);
	free(text);
	return t_step_open(dir, NULL);
}

static void groups_are_laid_over_the_model_by_shape(void **state)
{
	struct ckpt *ck = optimizer(
		"{ 'a.w' <f32 2 3 @1> 'a.b' <f32 2 @1> 'z.w' <f32 3 2 @1> 'z.b' <f32 3 @1> }",
		"0 " MOMENTS("2 3", "10", "1") "1 " MOMENTS("3 2", "20", "1")
		"2 " MOMENTS("2", "30", "1") "3 " MOMENTS("3", "40", "1"),
		"{ 'lr' 1 'params' [ 0 1 ] } { 'lr' 2 'params' [ 2 3 ] }");

	(void)state;
	assert_true(t_step_value(ck, "a.w", "exp_avg", 0) == 10);
	assert_true(t_step_value(ck, "z.w", "exp_avg", 0) == 20);
	assert_true(t_step_value(ck, "a.b", "exp_avg", 0) == 30);
	assert_true(t_step_value(ck, "z.b", "exp_avg", 0) == 40);
	assert_string_equal(t_step_fact(ck, "group.1.step"), "3");
	ckpt_close(ck);
}

static void an_optimizer_that_fits_in_two_ways_is_left_out(void **state)
{
	struct ckpt *ck = optimizer("{ 'a' <f32 3 @1> 'b' <f32 3 @1> }",
				    "0 " MOMENTS("3", "10", "1") "1 " MOMENTS("3", "20", "1"),
				    "{ 'params' [ 0 ] } { 'params' [ 1 ] }");

	(void)state;
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "more ways than one"));
	assert_int_equal(t_step_count(ck, "exp_avg"), 0);
	assert_int_equal(t_step_count(ck, "weight"), 2);
	ckpt_close(ck);
}

/* torch 2.6 and later, of an optimizer that was made of named_parameters(). */
static void names_beside_the_numbers_prove_what_shapes_do_not(void **state)
{
	struct ckpt *ck = optimizer("{ 'a' <f32 3 @1> 'b' <f32 3 @1> }",
				    "0 " MOMENTS("3", "10", "1") "1 " MOMENTS("3", "20", "1"),
				    "{ 'params' [ 0 ] 'param_names' [ '_orig_mod.b' ] } "
				    "{ 'params' [ 1 ] 'param_names' [ 'a' ] }");

	(void)state;
	assert_true(t_step_value(ck, "b", "exp_avg", 0) == 10);
	assert_true(t_step_value(ck, "a", "exp_avg", 0) == 20);
	ckpt_close(ck);
	ck = optimizer("{ 'a' <f32 3 @1> 'b' <f32 3 @1> }",
		       "0 " MOMENTS("3", "10", "1") "1 " MOMENTS("3", "20", "1"),
		       "{ 'params' [ 0 ] 'param_names' [ 'b' ] } "
		       "{ 'params' [ 1 ] 'param_names' [ 'gone' ] }");
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "more ways than one"));
	ckpt_close(ck);
	ck = optimizer("{ 'a' <f32 3 @1> 'b' <f32 2 @1> }",
		       "0 " MOMENTS("3", "10", "1") "1 " MOMENTS("2", "20", "1"),
		       "{ 'params' [ 0 1 ] 'param_names' [ 'b' 'a' ] }");
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "another shape"));
	ckpt_close(ck);
}

static void an_optimizer_in_another_order_is_left_out(void **state)
{
	struct ckpt *ck = optimizer("{ 'a' <f32 3 @1> 'b' <f32 2 @1> }",
				    "0 " MOMENTS("2", "10", "1") "1 " MOMENTS("3", "20", "1"),
				    "{ 'params' [ 0 1 ] }");

	(void)state;
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "do not fit the order"));
	assert_int_equal(t_step_count(ck, "exp_avg"), 0);
	ckpt_close(ck);
}

static void ranks_at_other_steps_are_two_saves(void **state)
{
	(void)state;
	save("model_world_size_2_rank_0.pt", "{ 'w' <f32 2 @1> }");
	save("model_world_size_2_rank_1.pt", "{ 'w' <f32 2 @1> }");
	save("optim_world_size_2_rank_0.pt", "{ 'state' { 0 " MOMENTS("2", "1", "1")
	     "} 'param_groups' [ { 'params' [ 0 ] } ] }");
	save("optim_world_size_2_rank_1.pt", "{ 'state' { 0 { 'step' 4 'exp_avg' <f32 2 @1> } } "
	     "'param_groups' [ { 'params' [ 0 ] } ] }");
	finds(dir, "STEP_MIXED", "step 4 here and at 3");
}

static void a_name_that_one_rank_lacks_is_found(void **state)
{
	(void)state;
	save("model_world_size_2_rank_0.pt", "{ 'w' <f32 2 @1> 'b' <f32 2 @3> }");
	save("model_world_size_2_rank_1.pt", "{ 'w' <f32 2 @1> 'c' <f32 2 @3> }");
	finds(dir, "RANKS_DISAGREE", "files of 1 of 2 ranks");
}

static void states_with_names_are_those_of_the_names(void **state)
{
	struct ckpt *ck;

	(void)state;
	save("pytorch_model_fsdp.bin", "{ '_fsdp_wrapped_module.a' <f32 2 @1> 'b' <f32 2 @3> "
	     "'<script>\"&' <f32 1 @5> }");
	save("optimizer.bin",
	     "{ 'state' { 'b' " MOMENTS("2", "7", "1") "'a' " MOMENTS(
		     "2", "9", "2") "'gone' " MOMENTS("2", "1",
						      "0") "} 'param_groups' [ { 'params' [ 'a' "
							   "'b' 'gone' ] } ] }");
	ck = t_step_open(dir, NULL);
	assert_true(t_step_value(ck, "b", "exp_avg", 0) == 7);
	assert_true(t_step_value(ck, "a", "exp_avg", 1) == 10);
	assert_true(t_step_value(ck, "<script>\"&", "weight", 0) == 5);
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "gone"));
	ckpt_close(ck);
}

/* ---- reshard ---- */

/* 'code' 0: it must succeed, with a finding that has these words.  The result is DIR/out. */
static void reshards(int to, enum ckpt_code code, const char *words)
{
	const struct ckpt_run_opts run = { .size = sizeof(run), .sync = CKPT_SYNC_NONE };
	const struct ckpt_reshard_opts opts = {
		.size = sizeof(opts), .run = &run, .world = 2, .stage = -1, .round_robin = -1,
		.to = to,
	};
	char *dst = t_fmt("%s/out", dir);
	struct ckpt *ck = t_step_open(dir, NULL);
	struct ckpt_err err = { 0 };
	const int rc = ckpt_reshard(ck, dst, &opts, NULL, &err);

	if (rc != -(int)code || (code && !strstr(err.msg, words)))
		fail_msg("%d, wanted %d with '%s': %s", rc, -(int)code, words, err.msg);
	if (!code && *words && !t_step_finding(ck, "NOT_CARRIED", words))
		fail_msg("no finding with '%s'", words);
	ckpt_close(ck);
	free(dst);
}

static void a_step_needs_every_state_of_its_optimizer(void **state)
{
	(void)state;
	save(MODEL, "{ 'a' <f32 2 @1> }");
	reshards(CKPT_TO_NATIVE, CKPT_E_INCOMPLETE, "no file of the optimizer");
	ckpt_close(optimizer("{ 'a' <f32 2 @1> 'b' <f32 2 @1> }", "",
			     "{ 'lr' 1 'params' [ 0 1 ] }"));
	reshards(CKPT_TO_NATIVE, CKPT_E_INCOMPLETE, "has no states");
	ckpt_close(optimizer("{ 'a' <f32 2 @1> 'b' <f32 2 @1> }",
			     "0 " MOMENTS("2", "1", "1") "1 " MOMENTS("2", "2", "1"),
			     "{ 'params' [ 0 ] } { 'params' [ 1 ] }"));
	reshards(CKPT_TO_DEEPSPEED, CKPT_E_INCOMPLETE, "more ways than one");
	ckpt_close(optimizer("{ 'a' <f32 2 @1> }", "0 " MOMENTS("2", "1", "1")
			     "7 " MOMENTS("2", "1", "1"), "{ 'lr' 1 'params' [ 0 ] }"));
	reshards(CKPT_TO_FSDP_RANKS, CKPT_E_INCOMPLETE, "1 states of the optimizer are left out");
}

static void a_group_has_one_count_of_steps(void **state)
{
	(void)state;
	ckpt_close(optimizer("{ 'a' <f32 2 @1> 'b' <f32 3 @1> }", "0 " MOMENTS("2", "1", "1")
			     "1 { 'step' 5 'exp_avg' <f32 3 @1> 'exp_avg_sq' <f32 3 @1> }",
			     "{ 'lr' 1 'params' [ 0 1 ] }"));
	reshards(CKPT_TO_NATIVE, CKPT_OK, "(3 to 5)");
}

#define EXTRA "extra_state_world_size_1_rank_0.pt"

static void the_extra_state_has_the_clients_values(void **state)
{
	char *out = t_fmt("%s/out/global_step3", dir), *path;
	struct ckpt *ck;

	(void)state;
	ckpt_close(optimizer("{ 'a' <f32 2 @1> }", "0 " MOMENTS("2", "1", "1"),
			     "{ 'lr' 1 'params' [ 0 ] }"));
	save(EXTRA, "{ 'lr_scheduler' { 'last_epoch' 3 } 'rng' { 'cpu' <i8 4 @1> } 'epoch' 7 "
	     "'noise' <f32 1 @1> 'module' 1 }");
	reshards(CKPT_TO_FSDP_RANKS, CKPT_OK, "'noise'");
	path = t_fmt("%s/extra_state_world_size_2_rank_1.pt", out);
	ck = t_step_open(path, NULL);
	ckpt_close(ck);
	free(path);
	t_dir_remove(out);
	/* what no tensor needs does not stop those who want tensors */
	save_file(EXTRA, "not a file of torch");
	ck = t_step_open(dir, NULL);
	assert_true(t_step_value(ck, "a", "exp_avg", 0) == 1);
	ckpt_close(ck);
	reshards(CKPT_TO_NATIVE, CKPT_E_FORMAT, "");
	free(out);
}

/* torch gathers all states of a parameter into one buffer, and saves views of it. */
static void moments_that_are_one_buffer_are_left_out(void **state)
{
	struct ckpt *ck;

	(void)state;
	save("pytorch_model_fsdp.bin", "{ 'a' <f32 2 @1> 'b' <f32 2 @3> 'c' <f32 2 @3> }");
	save("optimizer.bin",
	     "{ 'state' { 'a' { 'exp_avg' <f32 2 @5> 'exp_avg_sq' <f32 2 =0> } 'b' "
	     "{ 'exp_avg' <f32 2 !0> 'exp_avg_sq' <f32 2 !0> } 'c' " MOMENTS(
		     "2", "1", "2") "} 'param_groups' [ { 'params' [ 'a' 'b' 'c' ] } ] }");
	ck = t_step_open(dir, NULL);
	assert_non_null(t_step_finding(ck, "NOT_IN_CHECKPOINT", "same bytes"));
	assert_int_equal(t_step_state(ck, "a", "exp_avg"), -1);
	assert_int_equal(t_step_state(ck, "a", "exp_avg_sq"), -1);
	assert_true(t_step_value(ck, "b", "exp_avg", 0) == 0);
	assert_true(t_step_value(ck, "c", "exp_avg_sq", 0) == 2);
	ckpt_close(ck);
}

/* ---- the search ---- */

static enum ck_step_verdict match(const char *items, const char *groups, char *out)
{
	uint32_t item[32], entry[32], of[32];
	uint64_t first[9] = { 0 }, n = 0;
	struct ck_step_match m = {
		.item = item, .nitems = strlen(items), .entry = entry, .first = first,
	};
	enum ck_step_verdict verdict;

	for (uint64_t i = 0; i < m.nitems; i++)
		item[i] = (uint32_t)items[i];
	for (const char *p = groups; *p; p++) {
		if (*p == ' ')
			first[++m.ngroups] = n;
		else
			entry[n++] = *p == '?' ? CK_MATCH_ANY : (uint32_t)*p;
	}
	first[++m.ngroups] = n;
	m.nentries = n;
	assert_int_equal(ck_step_match_run(&m, of, &verdict, NULL), 0);
	for (uint64_t i = 0; i < n; i++)
		out[i] = of[i] == CK_NONE ? '-' : (char)('0' + of[i]);
	out[n] = 0;
	return verdict;
}

static void a_search_knows_what_all_ways_agree_on(void **state)
{
	static const struct {
		const char *items, *groups, *of;
		enum ck_step_verdict verdict;
	} cases[] = {
		{ "aabb", "aabb", "0123", CK_MATCH_UNIQUE },
		{ "abab", "aa bb", "0213", CK_MATCH_UNIQUE },
		{ "aa", "a a", NULL, CK_MATCH_SEVERAL },
		{ "ab", "ba", NULL, CK_MATCH_NONE },
		{ "abc", "abcd", NULL, CK_MATCH_NONE },
		{ "xaxb", "ab", "13", CK_MATCH_UNIQUE },	/* two have no number */
		{ "aab", "ab", NULL, CK_MATCH_SEVERAL },
		{ "aab", "a?b", "012", CK_MATCH_UNIQUE },
		{ "axa", "a a ?", NULL, CK_MATCH_SEVERAL },
		/* whose the others are does not matter */
		{ "xby", "b ? ?", "1--", CK_MATCH_UNIQUE },
		{ "", "", "", CK_MATCH_UNIQUE },
	};
	char of[33];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(match(cases[i].items, cases[i].groups, of), cases[i].verdict);
		if (cases[i].of)
			assert_string_equal(of, cases[i].of);
	}
}

int main(void)
{
	const struct CMUnitTest real[] = {
		cmocka_unit_test(a_run_its_step_and_its_model_are_one_checkpoint),
		cmocka_unit_test(a_broken_folder_says_what_is_wrong),
		cmocka_unit_test(flat_shards_without_names_are_refused),
		cmocka_unit_test_setup_teardown(a_mesh_says_which_rank_a_file_is_of, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_cut_file_is_never_read, setup, teardown),
		cmocka_unit_test_setup_teardown(files_of_a_rank_that_is_none_are_too_many, setup,
						teardown),
	};
	const struct CMUnitTest made[] = {
		cmocka_unit_test_setup_teardown(verl_names_the_last_complete_step_in_a_file, setup,
						teardown),
		cmocka_unit_test_setup_teardown(groups_are_laid_over_the_model_by_shape, setup,
						teardown),
		cmocka_unit_test_setup_teardown(an_optimizer_that_fits_in_two_ways_is_left_out,
						setup, teardown),
		cmocka_unit_test_setup_teardown(an_optimizer_in_another_order_is_left_out, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			names_beside_the_numbers_prove_what_shapes_do_not, setup, teardown),
		cmocka_unit_test_setup_teardown(a_step_needs_every_state_of_its_optimizer, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_group_has_one_count_of_steps, setup, teardown),
		cmocka_unit_test_setup_teardown(the_extra_state_has_the_clients_values, setup,
						teardown),
		cmocka_unit_test_setup_teardown(ranks_at_other_steps_are_two_saves, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_name_that_one_rank_lacks_is_found, setup,
						teardown),
		cmocka_unit_test_setup_teardown(states_with_names_are_those_of_the_names, setup,
						teardown),
		cmocka_unit_test_setup_teardown(moments_that_are_one_buffer_are_left_out, setup,
						teardown),
		cmocka_unit_test(a_search_knows_what_all_ways_agree_on),
	};
	int bad = cmocka_run_group_tests_name("made", made, NULL, NULL);

	if (getenv("ZCKPT_FIXTURES"))
		bad += cmocka_run_group_tests_name("real", real, NULL, NULL);
	else
		printf("skipped: the real folders: ZCKPT_FIXTURES is not set\n");
	return bad;
}
