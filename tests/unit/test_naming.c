/*
 * test_naming.c -- tables of names of modules: which one a model has, what becomes of a name and
 * back, what is no table; and the configuration of a language model alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_text.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/naming/ck_language.h"
#include "libckpt/naming/ck_naming.h"
#include "tests/lib/fs/t_dir.h"

#define QWEN "model.language_model.layers.0.mlp.up_proj.weight", "model.visual.merger.ln_q.weight"
#define INTERN "model.language_model.norm.weight", "model.vision_tower.encoder.layer.0.lambda_1", \
	"model.multi_modal_projector.linear_1.weight", "lm_head.weight"

static void fill(struct ck_index *ix, const char *const *name)
{
	const uint64_t shape[1] = { 2 };
	uint32_t t;

	assert_int_equal(ck_index_init(ix, 0, NULL), 0);
	for (; *name; name++)
		assert_int_equal(ck_index_add_tensor(ix, *name, shape, 1, CKPT_ROLE_PLAIN, &t,
						     NULL), 0);
}

/* The family of the table for 'config' (NULL = none) and these names, "" = none, or the message. */
static char *chosen(const char *which, const char *config, const char *const *name)
{
	struct ck_naming naming = CK_NAMING_INIT;
	struct ck_fdpool *pool = ck_fdpool_new(0);
	struct ckpt_err err = { 0 };
	char *dir = t_dir_new(), *path = t_fmt("%s/config.json", dir), *out;
	struct ck_index ix;

	if (config)
		t_file_write(path, config, strlen(config));
	fill(&ix, name);
	if (ck_naming_choose(which, path, &ix, pool, &naming, &err))
		out = t_fmt("%s", err.msg);
	else
		out = t_fmt("%s", naming.family ? naming.family : "");
	ck_naming_release(&naming);
	ck_index_release(&ix);
	ck_fdpool_free(pool);
	t_dir_remove(dir);
	free(path);
	free(dir);
	return out;
}

static void is_chosen(const char *which, const char *config, const char *const *name,
		      const char *want)
{
	char *got = chosen(which, config, name);

	assert_string_equal(got, want);
	free(got);
}

static void the_model_chooses(void **state)
{
	static const char *const qwen[] = { QWEN, NULL }, *const intern[] = { INTERN, NULL };
	static const char *const other[] = { "model.layers.0.mlp.up_proj.weight", NULL };

	(void)state;
	is_chosen(NULL, "{\"architectures\": [\"Qwen2VLForConditionalGeneration\"]}", other,
		  "Qwen2-VL");
	is_chosen("hf", "{\"model_type\": \"internvl\"}", other, "InternVL");
	is_chosen(NULL, "{\"architectures\": [\"Qwen3VLForConditionalGeneration\"], "
		  "\"model_type\": \"qwen2_vl\"}", qwen, "");
	is_chosen(NULL, "{\"model_type\": \"llama\"}", qwen, "");
	is_chosen("native", "{\"model_type\": \"internvl\"}", intern, "");
	/* without a configuration, or one of no model, by the names */
	is_chosen(NULL, NULL, qwen, "Qwen2-VL");
	is_chosen(NULL, NULL, intern, "InternVL");
	is_chosen(NULL, NULL, other, "");
	is_chosen(NULL, "{\"architectures\": 3", qwen, "Qwen2-VL");
	is_chosen(NULL, "[1]", qwen, "Qwen2-VL");
	is_chosen(NULL, "{\"architectures\": [], \"model_type\": null}", intern, "InternVL");
}

/* What becomes of a published name, or a module's, in memory. */
static void names_have_one_way_back(void **state)
{
	static const char *const qwen[] = { QWEN, NULL };
	static const char *const pair[][2] = {
		{ "model.layers.3.x", "model.language_model.layers.3.x" },
		{ "visual.blocks.0.x", "model.visual.blocks.0.x" },
		{ "model.visual.x", "model.visual.x" }, { "lm_head.weight", "lm_head.weight" },
		{ "model.language_model.norm.weight", "model.language_model.norm.weight" },
	};
	struct ck_naming naming = CK_NAMING_INIT;
	struct ck_arena arena = CK_ARENA_INIT;
	struct ck_index ix;

	(void)state;
	fill(&ix, qwen);
	assert_int_equal(ck_naming_of_index(&ix, &naming, NULL), 0);
	for (size_t i = 0; i < sizeof(pair) / sizeof(*pair); i++)
		assert_string_equal(ck_naming_module(&naming, &arena, pair[i][0]), pair[i][1]);
	ck_naming_release(&naming);
	ck_arena_release(&arena);
	ck_index_release(&ix);
}

/* A table in a file: its family, or the message. */
static char *table(const char *text)
{
	static const char *const other[] = { "a.b", NULL };
	char *dir = t_dir_new(), *path = t_fmt("%s/own.map", dir), *out, *cut;

	t_file_write(path, text, strlen(text));
	out = chosen(path, NULL, other);
	cut = !strcmp(out, path) ? t_fmt("its path") : t_fmt("%s", out);
	free(out);
	t_dir_remove(dir);
	free(path);
	free(dir);
	return cut;
}

static void lines_of_a_table(void **state)
{
	static const char *const pair[][2] = {
		{ "# x\n\n  family  Own\r\na.* b.* # y\r\n", "Own" }, { "a b", "its path" },
		{ "family Own\n", "it has no pair of names (docs/formats/name-maps.md)" },
		{ "", "it has no pair of names (docs/formats/name-maps.md)" },
		{ "a.* b.*\nfamily X Y", "line 2: \"family\" takes one name, once" },
		{ "a.*b* c*", "line 1: \"a.*b*\" and the name after it need one '*' each, or "
			      "none" },
		{ "a c*", "line 1: \"a\" and the name after it need one '*' each, or none" },
		{ "a", "line 1: \"a\" is no word of a table, and no pair of names either: the name "
		       "of modules, then the published one" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(pair) / sizeof(*pair); i++) {
		char *got = table(pair[i][0]);

		assert_string_equal(got, pair[i][1]);
		free(got);
	}
}

static void a_star_is_all_the_rest(void **state)
{
	struct ck_arena arena = CK_ARENA_INIT;

	(void)state;
	assert_string_equal(ck_star_replace(&arena, "a.x.b", "a.*.b", "*"), "x");
	assert_string_equal(ck_star_replace(&arena, "a..b", "a.*.b", "c*c"), "cc");
	assert_string_equal(ck_star_replace(&arena, "a.b", "a.*.b", "c*"), "a.b");
	assert_string_equal(ck_star_replace(&arena, "ab", "ab", "c"), "c");
	assert_string_equal(ck_star_replace(&arena, "abc", "ab", "c"), "abc");
	ck_arena_release(&arena);
}

/* The configuration of the language model, or the message. */
static void language_is(const char *config, const char *want)
{
	struct ck_json doc = CK_JSON_INIT;
	struct ck_buf buf = CK_BUF_INIT(1 << 16);
	struct ckpt_limits limits;
	struct ckpt_err err = { 0 };

	ck_limits_fill(NULL, &limits);
	assert_int_equal(ck_json_parse(&doc, config, strlen(config), &limits, 0, "x", NULL), 0);
	if (ck_language_config(&doc, "x", NULL, &buf, &err))
		assert_non_null(strstr(err.msg, want));
	else
		assert_memory_equal(buf.p, want, buf.len);
	ck_buf_release(&buf);
	ck_json_release(&doc);
}

static void a_language_model_is_configured(void **state)
{
	(void)state;
	language_is("{\"model_type\": \"internvl\", \"text_config\": {\"model_type\": \"qwen3\", "
		    "\"a\": [1, {}], \"rope_parameters\": {\"rope_type\": \"yarn\", \"x\": 1}}}",
		    "{\n  \"architectures\": [\"Qwen3ForCausalLM\"],\n"
		    "  \"model_type\": \"qwen3\",\n"
		    "  \"tie_word_embeddings\": true,\n"
		    "  \"rope_parameters\": {\"rope_type\": \"yarn\", \"x\": 1},\n"
		    "  \"a\": [1, {}]\n}\n");
	language_is("{\"model_type\": \"qwen2_5_vl\", \"tie_word_embeddings\": false, \"h\": 2, "
		    "\"rope_scaling\": {\"type\": \"mrope\"}, \"vision_config\": {\"x\": 1}}",
		    "{\n  \"architectures\": [\"Qwen2ForCausalLM\"],\n"
		    "  \"model_type\": \"qwen2\",\n"
		    "  \"tie_word_embeddings\": false,\n  \"h\": 2\n}\n");
	language_is("{\"model_type\": \"x\", \"text_config\": [1]}", "is of type \"\"");
	language_is("{\"model_type\": \"x\", \"llm_config\": {\"model_type\": 3}}",
		    "is of type \"\"");
	language_is("{\"text_config\": {\"model_type\": \"mamba_text\"}}", "\"mamba_text\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_model_chooses),
		cmocka_unit_test(names_have_one_way_back),
		cmocka_unit_test(lines_of_a_table),
		cmocka_unit_test(a_star_is_all_the_rest),
		cmocka_unit_test(a_language_model_is_configured),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
