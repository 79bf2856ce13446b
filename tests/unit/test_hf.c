/*
 * Hugging Face folders: which files are taken, what an index may say, and how output is cut
 * into shards. If it is wrong, a folder loads with random or stale weights, or transformers
 * does not find what was written. (The corpus is test_formats_corpus_safetensors.c.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf_sharded/ck_hf.h"
#include "formats/safetensors/ck_st.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "tests/lib/fs/t_dir.h"

/* ------------------------------------------------------------------- writing */

static void expect_split(const uint64_t *bytes, uint64_t n, uint64_t max, const char *want)
{
	uint32_t shard[64], nshards = 0;
	char got[256] = "";
	int at = 0;

	assert_int_equal(ck_hf_split(bytes, n, max, shard, &nshards, NULL), 0);
	for (uint64_t i = 0; i < n; i++)
		at += snprintf(got + at, sizeof(got) - (size_t)at, "%u ", shard[i]);
	snprintf(got + at, sizeof(got) - (size_t)at, "of %u", nshards);
	assert_string_equal(got, want);
}

static void shards_are_cut_as_huggingface_hub_cuts_them(void **state)
{
	static const uint64_t docs[] = { 6, 6, 2, 6, 2, 2 }, full[] = { 4, 6, 10, 1 };
	static const uint64_t over[] = { 3, 11, 3, 12, 5, 13 }, zero[] = { 0, 0 };
	static const uint64_t huge[] = { UINT64_MAX, UINT64_MAX - 1, 1, UINT64_MAX };
	uint32_t shard[1], n;

	(void)state;
	expect_split(docs, 6, 10, "0 1 1 2 2 2 of 3");
	expect_split(full, 4, 10, "0 0 1 2 of 3");
	expect_split(over, 6, 10, "2 0 2 1 4 3 of 5");
	expect_split(zero, 2, 1, "0 0 of 1");
	expect_split(huge, 4, UINT64_MAX, "0 1 1 2 of 3");
	expect_split(docs, 0, 10, "of 1");
	assert_int_equal(ck_hf_split(docs, 1, 0, shard, &n, NULL), -CKPT_E_USAGE);
}

static void names_of_shards_have_five_digits_or_more(void **state)
{
	char *a = ck_hf_shard_name("model", 0, 1), *b = ck_hf_shard_name("model", 1, 12);
	char *c = ck_hf_shard_name("master", 99999, 123456), *d = ck_hf_index_name("model");
	uint64_t number, of;
	size_t stem;

	(void)state;
	assert_string_equal(a, "model.safetensors");
	assert_string_equal(b, "model-00002-of-00012.safetensors");
	assert_string_equal(c, "master-100000-of-123456.safetensors");
	assert_string_equal(d, "model.safetensors.index.json");
	assert_true(ck_hf_is_shard_name(c, ".safetensors", &stem, &number, &of));
	assert_int_equal(stem, 6);
	assert_int_equal(number, 100000);
	assert_int_equal(of, 123456);
	assert_false(ck_hf_is_shard_name(a, ".safetensors", NULL, NULL, NULL));
	assert_false(ck_hf_is_shard_name(b, ".bin", NULL, NULL, NULL));
	assert_false(ck_hf_is_shard_name("model-0001-of-00002.bin", ".bin", NULL, NULL, NULL));
	assert_false(ck_hf_is_shard_name("-of-00002.bin", ".bin", NULL, NULL, NULL));
	assert_false(ck_hf_is_shard_name("00001-of-00002.bin", ".bin", NULL, NULL, NULL));
	ck_free(a);
	ck_free(b);
	ck_free(c);
	ck_free(d);
}

static void the_index_is_sorted_and_indented(void **state)
{
	static const char *const names[] = { "b", "a\"q", "B" };
	static const uint32_t shard[] = { 0, 1, 1 };
	static const struct ck_fact meta[] = { { "tied", "b" } };
	char *text;
	uint64_t n;

	(void)state;
	assert_int_equal(ck_hf_index_json("model", names, shard, 3, 2, 9007199254740993, meta, 1,
					  &text, &n, NULL), 0);
	assert_string_equal(text,
			    "{\n  \"metadata\": {\n    \"total_size\": 9007199254740993,\n"
			    "    \"tied\": \"b\"\n  },\n  \"weight_map\": {\n"
			    "    \"B\": \"model-00002-of-00002.safetensors\",\n"
			    "    \"a\\\"q\": \"model-00002-of-00002.safetensors\",\n"
			    "    \"b\": \"model-00001-of-00002.safetensors\"\n  }\n}\n");
	assert_int_equal(n, strlen(text));
	ck_free(text);
}

static void configs_and_tokenizers_go_along_and_weights_do_not(void **state)
{
	static const char *const wanted[] = {
		"config.json", "generation_config.json", "tokenizer.json", "tokenizer.model",
		"tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt",
		"added_tokens.json", "chat_template.jinja", "chat_template.json",
		"preprocessor_config.json", "processor_config.json", "spiece.model",
		"modeling_mine.py", "qwen.tiktoken",
	};
	static const char *const unwanted[] = {
		"model.safetensors", "pytorch_model.bin", "optimizer.pt", "README.md", "latest",
		"trainer_state.json", "model.safetensors.index.json", "zero_to_fp32.py",
		"tokenizer.safetensors", "rng_state_0.pth", "training_args.bin", "scheduler.pt",
	};

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(wanted); i++)
		if (!ck_hf_aux_is_wanted(wanted[i]))
			fail_msg("%s is left behind", wanted[i]);
	for (size_t i = 0; i < CK_ARRAY_LEN(unwanted); i++)
		if (ck_hf_aux_is_wanted(unwanted[i]))
			fail_msg("%s is copied", unwanted[i]);
}

static void only_a_models_own_files_are_replaced(void **state)
{
	(void)state;
	assert_true(ck_hf_is_model_output("model.safetensors"));
	assert_true(ck_hf_is_model_output("model-00001-of-00002.safetensors"));
	assert_true(ck_hf_is_model_output("model.safetensors.index.json"));
	assert_true(ck_hf_is_model_output("pytorch_model-00001-of-00002.bin"));
	assert_false(ck_hf_is_model_output("adapter_model.safetensors"));
	assert_false(ck_hf_is_model_output("mymodel-00001-of-00002.safetensors"));
	assert_false(ck_hf_is_model_output("model-00001-of-00002.bin"));
	assert_false(ck_hf_is_model_output("config.json"));
}

/* ------------------------------------------------------------------- reading */

static char *dir;

static int new_dir(void **state)
{
	(void)state;
	dir = t_dir_new();
	return 0;
}

static int drop_dir(void **state)
{
	(void)state;
	t_dir_remove(dir);
	free(dir);
	return 0;
}

static void put(const char *name, const void *p, size_t n)
{
	char *path = t_fmt("%s/%s", dir, name);

	t_file_write(path, p, n);
	free(path);
}

/* A safetensors file of one U8 tensor of one byte. */
static void put_st(const char *name, const char *tensor)
{
	const uint64_t one = 1;
	struct ck_st_writer *w;
	uint64_t n, off;
	char *h, *file;

	assert_int_equal(ck_st_writer_new(&w, NULL), 0);
	assert_int_equal(ck_st_writer_meta(w, "format", "pt", NULL), 0);
	assert_int_equal(ck_st_writer_tensor(w, tensor, CKPT_U8, &one, 1, &off, NULL), 0);
	assert_int_equal(ck_st_writer_finish(w, 8, &h, &n, NULL, NULL, NULL), 0);
	file = t_alloc(n + 1);
	memcpy(file, h, n);
	file[n] = 5;
	put(name, file, n + 1);
	free(file);
	ck_free(h);
	ck_st_writer_free(w);
}

static void put_index(const char *name, const char *map)
{
	char *text = t_fmt("{\"metadata\":{\"total_size\":1},\"weight_map\":%s}", map);

	put(name, text, strlen(text));
	free(text);
}

struct seen {
	int rc, bid;
	uint64_t ntensors, nfindings;
	char first_error[64], tensor[64];
	struct ckpt_err err;
};

static struct seen read_dir(void)
{
	const char *const path[] = { dir };
	struct ck_input in = { .path = path, .npaths = 1, .is_dir = true };
	struct ck_findings f = { 0 };
	const struct ckpt_finding *worst;
	struct seen s = { 0 };
	struct ck_index ix;

	in.pool = ck_fdpool_new(4);
	ck_limits_fill(NULL, &in.limits);
	assert_int_equal(ck_tree_list(&in.tree, path, 1, NULL, 100, NULL), 0);
	assert_int_equal(ck_index_init(&ix, in.limits.memory_bytes, NULL), 0);
	s.bid = ck_format_hf.probe(&in);
	s.rc = ck_format_hf.index(&in, &ix, &f, &s.err);
	s.ntensors = ix.ntensors;
	s.nfindings = f.n;
	if (ix.ntensors)
		snprintf(s.tensor, sizeof(s.tensor), "%s", ix.tensor[0].name);
	worst = ck_findings_worst(&f, CKPT_ERROR);
	if (worst)
		snprintf(s.first_error, sizeof(s.first_error), "%s", worst->id);
	ck_index_release(&ix);
	ck_findings_release(&f);
	ck_tree_release(&in.tree);
	ck_fdpool_free(in.pool);
	return s;
}

static void an_empty_index_is_refused(void **state)
{
	(void)state;
	put_st("model-00001-of-00001.safetensors", "a");
	put("model.safetensors.index.json", "", 0);
	assert_int_equal(read_dir().rc, -CKPT_E_CORRUPT);
}

static void the_order_of_precedence_is_transformers(void **state)
{
	struct seen s;

	(void)state;
	put_st("model.fp16.safetensors", "variant");
	s = read_dir();
	assert_int_equal(s.rc, 0);
	assert_string_equal(s.tensor, "variant");
	put_st("b.safetensors", "other");
	put_index("model.safetensors.index.b.json", "{\"other\":\"b.safetensors\"}");
	s = read_dir();
	assert_string_equal(s.tensor, "other");
	assert_int_equal(s.bid, 48);
	put_st("a.safetensors", "indexed");
	put_index("model.safetensors.index.json", "{\"indexed\":\"a.safetensors\"}");
	assert_string_equal(read_dir().tensor, "indexed");
	put_st("model.safetensors", "single");
	s = read_dir();
	assert_string_equal(s.tensor, "single");
	assert_int_equal(s.bid, 40);
	assert_true(s.nfindings >= 1);
	put("config.json", "{\"transformers_weights\":\"b.safetensors\"}", 40);
	assert_string_equal(read_dir().tensor, "other");
	put("config.json", "{\"transformers_weights\":\"../b.safetensors\"}", 43);
	assert_int_equal(read_dir().rc, -CKPT_E_NOTFOUND);
}

static void two_equal_candidates_are_not_guessed_between(void **state)
{
	struct seen s;

	(void)state;
	put_st("model.fp16.safetensors", "a");
	put_st("model.bf16.safetensors", "a");
	s = read_dir();
	assert_int_equal(s.rc, -CKPT_E_MISMATCH);
	assert_non_null(strstr(s.err.msg, "model.bf16.safetensors"));
}

static void a_missing_shard_is_a_finding_beside_the_others(void **state)
{
	struct seen s;

	(void)state;
	put_st("model-00001-of-00002.safetensors", "a");
	put_index("model.safetensors.index.json",
		  "{\"a\":\"model-00001-of-00002.safetensors\","
		  "\"b\":\"model-00002-of-00002.safetensors\"}");
	s = read_dir();
	assert_int_equal(s.rc, 0);
	assert_int_equal(s.ntensors, 1);
	assert_string_equal(s.first_error, "MODEL_FILE_MISSING");
	assert_int_equal(s.nfindings, 1);
}

static void a_tensor_in_another_shard_than_the_map_says_is_an_error(void **state)
{
	struct seen s;

	(void)state;
	put_st("x.safetensors", "a");
	put_st("y.safetensors", "b");
	put_index("model.safetensors.index.json",
		  "{\"b\":\"x.safetensors\",\"a\":\"y.safetensors\"}");
	s = read_dir();
	assert_int_equal(s.ntensors, 2);
	assert_string_equal(s.first_error, "NAMES_WRONG");
}

static void names_that_leave_the_folder_are_not_followed(void **state)
{
	static const char *const maps[] = {
		"{\"a\":\"../x.safetensors\"}", "{\"a\":\"/etc/x.safetensors\"}",
		"{\"a\":\"..\\\\x.safetensors\"}", "{\"a\":\"C:x.safetensors\"}",
		"{\"a\":\"x.safetensors\\u0000\"}", "{\"a\":\"\"}", "{\"a\":\"x.bin\"}",
		"{\"a\":\".safetensors\"}", "{\"a\":7}", "{\"a\\u0000\":\"x.safetensors\"}", "{}",
		"[]", "null",
	};

	(void)state;
	put_st("x.safetensors", "a");
	for (size_t i = 0; i < CK_ARRAY_LEN(maps); i++) {
		put_index("model.safetensors.index.json", maps[i]);
		if (read_dir().rc != -CKPT_E_CORRUPT)
			fail_msg("accepted: %s", maps[i]);
	}
	put_index("model.safetensors.index.json", "{\"a\":\"x.safetensors\"}");
	assert_int_equal(read_dir().rc, 0);
}

static void a_shard_that_differs_between_two_folders_is_an_error(void **state)
{
	char *second = t_dir_new(), *copy = t_fmt("%s/model.safetensors", second);
	const char *const path[] = { dir, second };
	struct ck_input in = { .path = path, .npaths = 2, .is_dir = true };
	struct ck_findings f = { 0 };
	struct ck_index ix;

	(void)state;
	put_st("model.safetensors", "a");
	t_file_write(copy, "x", 1);
	in.pool = ck_fdpool_new(4);
	ck_limits_fill(NULL, &in.limits);
	assert_int_equal(ck_tree_list(&in.tree, path, 2, NULL, 100, NULL), 0);
	assert_int_equal(ck_index_init(&ix, in.limits.memory_bytes, NULL), 0);
	assert_int_equal(ck_format_hf.index(&in, &ix, &f, NULL), 0);
	assert_int_equal(ix.ntensors, 1);
	assert_string_equal(ck_findings_worst(&f, CKPT_ERROR)->id, "OVERLAY_DIFFERS");
	ck_index_release(&ix);
	ck_findings_release(&f);
	ck_tree_release(&in.tree);
	ck_fdpool_free(in.pool);
	t_dir_remove(second);
	free(second);
	free(copy);
}

static void shards_without_an_index_say_what_is_missing(void **state)
{
	struct seen s;

	(void)state;
	put_st("model-00001-of-00002.safetensors", "a");
	s = read_dir();
	assert_int_equal(s.bid, 8);
	assert_int_equal(s.rc, -CKPT_E_INCOMPLETE);
	assert_non_null(strstr(s.err.msg, "index"));
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, new_dir, drop_dir)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shards_are_cut_as_huggingface_hub_cuts_them),
		cmocka_unit_test(names_of_shards_have_five_digits_or_more),
		cmocka_unit_test(the_index_is_sorted_and_indented),
		cmocka_unit_test(configs_and_tokenizers_go_along_and_weights_do_not),
		cmocka_unit_test(only_a_models_own_files_are_replaced),
		IN_DIR(an_empty_index_is_refused),
		IN_DIR(the_order_of_precedence_is_transformers),
		IN_DIR(two_equal_candidates_are_not_guessed_between),
		IN_DIR(a_missing_shard_is_a_finding_beside_the_others),
		IN_DIR(a_tensor_in_another_shard_than_the_map_says_is_an_error),
		IN_DIR(names_that_leave_the_folder_are_not_followed),
		IN_DIR(a_shard_that_differs_between_two_folders_is_an_error),
		IN_DIR(shards_without_an_index_say_what_is_missing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
