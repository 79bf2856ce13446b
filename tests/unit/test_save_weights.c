/*
 * Save sessions that write weights alone, as a folder for transformers: the tensors that `convert`
 * makes of a step, the same files whatever the ranks hold, whole or absent.  If this fails, the
 * model that a run hands out is not the one that it trained.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/fs/t_tree.h"
#include "tests/lib/ops/t_ranks.h"
#include "tests/lib/ops/t_save.h"
#include "tests/lib/ops/t_step.h"

#define CONFIG "{\n  \"model_type\": \"llama\",\n  \"dtype\": \"bfloat16\"\n}\n"

static char *dir, *root, *aux;

static void put_file(const char *in, const char *name, const char *text)
{
	char *path = t_fmt("%s/%s", in, name);

	t_file_write(path, text, strlen(text));
	free(path);
}

static int setup(void **state)
{
	(void)state;
	dir = t_dir_new();
	root = t_fmt("%s/out", dir);
	aux = t_fmt("%s/model", dir);
	mkdir(aux, 0777);
	put_file(aux, "config.json", "{\"other\": true}");
	put_file(aux, "generation_config.json", "{\"eos_token_id\": [2, 3]}");
	put_file(aux, "tokenizer.json", "{}");
	put_file(aux, "model.safetensors", "not to be copied");
	put_file(aux, "notes.txt", "nor this");
	put_file(aux, "merges.txt", "");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(root);
	free(aux);
	t_dir_end(dir);
	return 0;
}

static struct ckpt_save_step *weights(const struct t_trainer *t, const char *tag)
{
	struct ckpt_save_step *step = t_save_step(t, tag, CKPT_TO_HUGGINGFACE, 3, 0);

	step->config_json = CONFIG;
	step->aux_dir = aux;
	return step;
}

static bool is_there(const char *tag, const char *name)
{
	char *path = t_fmt("%s/%s/%s", root, tag, name);
	struct stat st;
	const bool there = !stat(path, &st);

	free(path);
	return there;
}

static void same_file(const char *a_dir, const char *b_dir, const char *name)
{
	char *a = t_fmt("%s/%s", a_dir, name), *b = t_fmt("%s/%s", b_dir, name);
	size_t n, m;
	uint8_t *x = t_file_read(a, &n), *y = t_file_read(b, &m);

	if (n != m || memcmp(x, y, n))
		fail_msg("%s and %s differ", a, b);
	free(x);
	free(y);
	free(a);
	free(b);
}

/* ---- what convert makes ---- */

/* The weights of a native step of the same elements, converted. */
static void convert(const struct t_trainer *t, enum ckpt_dtype dtype, const char *to)
{
	/* a buffer keeps its type */
	const struct ckpt_rule rules[] = { { "empty", "keep" }, { NULL, NULL } };
	const struct ckpt_convert_opts co = {
		.size = sizeof(co), .dtype = (int)dtype, .dtype_rules = rules,
	};
	char *native = t_fmt("%s/native", dir);
	struct t_trainer n = *t;
	struct ckpt_err err = { 0 };
	struct ckpt *ck;

	n.root = native;
	t_must(t_save_all(&n, t_save_step(&n, "s", CKPT_TO_NATIVE, 3, 0), &err), &err);
	t_must(ckpt_open((const char *const *)&native, 1, NULL, &ck, &err), &err);
	t_must(ckpt_convert(ck, to, &co, NULL, &err), &err);
	ckpt_close(ck);
	t_dir_remove(native);
	free(native);
}

static void as_convert(enum ckpt_dtype dtype)
{
	static const uint32_t worlds[] = { 1, 2, 3, 4, 7, 8 };
	struct t_trainer t = { .root = root, .nranks = 1, .derived = true, .weight = dtype };
	char *converted = t_fmt("%s/converted", dir), *first = t_fmt("%s/w1-0", root);
	char want[33], got[33];
	struct ckpt_err err = { 0 };

	convert(&t, dtype, converted);
	t_step_digest_at(converted, NULL, want);
	for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++)
		for (int held = T_HELD_EVEN; held <= T_HELD_FIRST; held++) {
			char *tag = t_fmt("w%u-%d", worlds[i], held);
			char *at = t_fmt("%s/%s", root, tag);

			t.nranks = worlds[i];
			t.held = (enum t_held)held;
			t.lend = held == T_HELD_BLOCKS;
			t_must(t_save_all(&t, weights(&t, tag), &err), &err);
			t_step_digest_at(at, NULL, got);
			assert_string_equal(got, want);
			same_file(at, first, "model.safetensors");
			free(at);
			free(tag);
		}
	free(converted);
	free(first);
}

static void is_what_convert_makes_in_fp32(void **state)
{
	(void)state;
	as_convert(CKPT_F32);
}

static void is_what_convert_makes_in_bf16(void **state)
{
	(void)state;
	as_convert(CKPT_BF16);
}

static void is_what_convert_makes_in_fp16(void **state)
{
	(void)state;
	as_convert(CKPT_F16);
}

/* ---- the folder ---- */

static void the_model_s_files_go_along(void **state)
{
	const struct t_trainer t = { .root = root, .nranks = 3, .derived = true };
	struct ckpt_err err = { 0 };
	char *at = t_fmt("%s/hf", root), *config = t_fmt("%s/hf/config.json", root);
	uint8_t *text;
	size_t n;

	(void)state;
	t_must(t_save_all(&t, weights(&t, "hf"), &err), &err);
	text = t_file_read(config, &n);
	assert_int_equal(n, strlen(CONFIG));
	assert_memory_equal(text, CONFIG, n);
	same_file(at, aux, "generation_config.json");
	same_file(at, aux, "tokenizer.json");
	same_file(at, aux, "merges.txt");
	assert_false(is_there("hf", "notes.txt"));
	assert_false(is_there("hf", "model.safetensors.index.json"));
	assert_false(is_there("", "latest"));
	free(text);
	free(at);
	free(config);
}

static void shards_have_an_index(void **state)
{
	struct t_trainer t = { .root = root, .nranks = 4, .derived = true };
	struct ckpt_save_step *step = weights(&t, "whole");
	struct ckpt_err err = { 0 };
	char *a = t_fmt("%s/whole", root), *b = t_fmt("%s/cut", root);
	char x[33], y[33];

	(void)state;
	t_must(t_save_all(&t, step, &err), &err);
	step = weights(&t, "cut");
	step->max_shard_bytes = 30000;
	t_must(t_save_all(&t, step, &err), &err);
	assert_true(is_there("cut", "model.safetensors.index.json"));
	assert_true(is_there("cut", "model-00001-of-00003.safetensors"));
	assert_false(is_there("cut", "model.safetensors"));
	t_step_digest_at(a, NULL, x);
	t_step_digest_at(b, NULL, y);
	assert_string_equal(x, y);
	free(a);
	free(b);
}

static void what_else_is_there_stays(void **state)
{
	const struct t_trainer t = { .root = root, .nranks = 2, .derived = true };
	struct ckpt_save_step *step = weights(&t, "hf");
	struct ckpt_err err = { 0 };
	char *at = t_fmt("%s/hf", root);

	(void)state;
	step->max_shard_bytes = 30000;
	t_must(t_save_all(&t, step, &err), &err);
	put_file(at, "README.md", "mine");
	step = weights(&t, "hf");
	assert_int_equal(t_save_all(&t, step, &err), -CKPT_E_EXISTS);
	assert_true(is_there("hf", "model-00001-of-00003.safetensors"));
	step->flags = CKPT_SAVE_FORCE;
	err.code = 0;
	t_must(t_save_all(&t, step, &err), &err);
	assert_true(is_there("hf", "README.md"));
	assert_true(is_there("hf", "model.safetensors"));
	assert_false(is_there("hf", "model-00001-of-00003.safetensors"));
	assert_false(is_there("hf", "model.safetensors.index.json"));
	free(at);
}

/* ---- failures ---- */

static void is_whole_or_absent(void **state)
{
	struct t_trainer t = { .root = root, .nranks = 2, .derived = true, .timeout_ms = 200 };
	const struct ckpt_save_range own = { 0, 0, 1 };
	struct ckpt_save_step *step;
	struct ckpt_saver *sv;
	struct ckpt_err err = { 0 };

	(void)state;
	step = weights(&t, "hf");
	t_must(t_saver(&t, 0, &sv, &err), &err);		/* rank 1 never comes */
	t_must(ckpt_save_begin(sv, step, &err), &err);
	t_must(t_save_put(&t, sv, step, 0, &err), &err);
	t_must(ckpt_save_commit(sv, &err), &err);
	assert_int_equal(ckpt_save_wait(sv, 0, NULL, &err), -CKPT_E_INCOMPLETE);
	ckpt_saver_free(sv);
	assert_false(is_there("hf", ""));

	err.code = 0;
	step->aux_dir = "/nowhere";
	assert_int_equal(t_save_all(&t, step, &err), -CKPT_E_NOTFOUND);
	assert_string_equal(err.where, "/nowhere");
	step = weights(&t, "hf");
	step->own = &own;
	step->nown = 1;
	t_must(t_saver(&t, 0, &sv, &err), &err);
	err.code = 0;
	assert_int_equal(ckpt_save_begin(sv, step, &err), -CKPT_E_USAGE);
	ckpt_saver_free(sv);
	assert_false(is_there("hf", ""));
}

static void has_key(const char *file, const char *key, const char *value)
{
	char *want = t_fmt("\"%s\":\"%s\"", key, value);
	size_t n;
	uint8_t *p = t_file_read(file, &n);

	if (!memmem(p, n, want, strlen(want)))
		fail_msg("%s has no %s", file, want);
	free(p);
	free(want);
}

static void an_alias_that_cannot_be_a_key_is_refused(void **state)
{
	static const char *const taken[] = {
		"format", "zckpt.header", "zckpt.global_step", "zckpt.version", "zckpt.sum.x",
		"zckpt.", "DCP_SHARDING_INFO",
	};
	static const char *const free_names[] = { "formats", "zckpt", "format.weight" };
	struct t_trainer t = { .root = root, .nranks = 1, .derived = true };
	struct ckpt_save_tensor tensor[9];
	struct ckpt_save_step *step = weights(&t, "hf");
	struct ckpt_err err = { 0 };
	char *at = t_fmt("%s/hf/model.safetensors", root);

	(void)state;
	assert_int_equal(step->ntensors, 9);
	memcpy(tensor, step->tensor, sizeof(tensor));
	assert_int_equal(tensor[7].role, CKPT_ROLE_ALIAS);
	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
		struct ckpt_saver *sv;

		step = weights(&t, "hf");
		tensor[7].name = taken[i];
		step->tensor = tensor;
		t_must(t_saver(&t, 0, &sv, &err), &err);
		assert_int_equal(ckpt_save_begin(sv, step, &err), -CKPT_E_USAGE);
		assert_string_equal(err.where, taken[i]);
		assert_non_null(strstr(err.msg, "an alias of embed.weight"));
		ckpt_saver_free(sv);
		memset(&err, 0, sizeof(err));
		assert_false(is_there("hf", ""));
	}
	for (size_t i = 0; i < sizeof(free_names) / sizeof(free_names[0]); i++) {
		step = weights(&t, "hf");
		step->flags = CKPT_SAVE_FORCE;
		tensor[7].name = free_names[i];
		step->tensor = tensor;
		t_must(t_save_all(&t, step, &err), &err);
		has_key(at, free_names[i], "embed.weight");
	}
	free(at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(is_what_convert_makes_in_fp32, setup, teardown),
		cmocka_unit_test_setup_teardown(is_what_convert_makes_in_bf16, setup, teardown),
		cmocka_unit_test_setup_teardown(is_what_convert_makes_in_fp16, setup, teardown),
		cmocka_unit_test_setup_teardown(the_model_s_files_go_along, setup, teardown),
		cmocka_unit_test_setup_teardown(shards_have_an_index, setup, teardown),
		cmocka_unit_test_setup_teardown(what_else_is_there_stays, setup, teardown),
		cmocka_unit_test_setup_teardown(is_whole_or_absent, setup, teardown),
		cmocka_unit_test_setup_teardown(an_alias_that_cannot_be_a_key_is_refused, setup,
						teardown),
	};

	t_dir_in_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
