/*
 * test_engine_config.c -- what a config.json may say, and folders that do not fit it.
 *
 * If this is wrong, a model with another computation is trained without a word.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/te_model.h"
#include "tests/lib/fs/t_dir.h"

#define PLAIN "\"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 10, " \
	"\"hidden_size\": 8, \"intermediate_size\": 6, \"num_hidden_layers\": 2, " \
	"\"num_attention_heads\": 2"

static int parse(const char *text, struct en_model_config *c, struct ckpt_err *err)
{
	*err = (struct ckpt_err){ 0 };
	return en_model_config_parse(text, strlen(text), "config.json", c, err);
}

/* "{" PLAIN ", " more "}" */
static int parse_with(const char *more, struct en_model_config *c, struct ckpt_err *err)
{
	char *text = t_fmt("{" PLAIN "%s%s}", more[0] ? ", " : "", more);
	int rc = parse(text, c, err);

	free(text);
	return rc;
}

static void defaults(void **state)
{
	struct en_model_config c;
	struct ckpt_err err;

	(void)state;
	assert_int_equal(parse_with("", &c, &err), 0);
	assert_int_equal(c.arch, EN_LLAMA);
	assert_int_equal(c.kv_heads, 2);
	assert_int_equal(c.head_dim, 4);
	assert_true(c.norm_eps == 1e-6 && c.init_range == 0.02 && c.rope.theta == 10000);
	assert_true(!c.tied && !c.rope.llama3 && !c.type && !c.max_positions);
}

static void values_are_read(void **state)
{
	struct en_model_config c;
	struct ckpt_err err;

	(void)state;
	assert_int_equal(parse_with("\"num_key_value_heads\": 1, \"head_dim\": 6, "
		"\"tie_word_embeddings\": true, \"rms_norm_eps\": 1e-05, \"rope_theta\": 5e5, "
		"\"torch_dtype\": \"bfloat16\", \"initializer_range\": 0.01, "
		"\"max_position_embeddings\": 4096, \"rope_scaling\": {\"type\": \"llama3\", "
		"\"factor\": 32, \"low_freq_factor\": 1, \"high_freq_factor\": 4, "
		"\"original_max_position_embeddings\": 8192}, \"attention_bias\": false, "
		"\"sliding_window\": 4096, \"pretraining_tp\": 1, \"_name_or_path\": \"x\"", &c,
		&err), 0);
	assert_int_equal(c.kv_heads, 1);
	assert_int_equal(c.head_dim, 6);
	assert_true(c.tied && c.norm_eps == 1e-5 && c.rope.theta == 5e5 && c.init_range == 0.01);
	assert_true(c.rope.llama3 && c.rope.factor == 32 && c.rope.low == 1 && c.rope.high == 4);
	assert_int_equal(c.rope.original, 8192);
	assert_int_equal(c.type, KN_BF16);
	assert_int_equal(c.max_positions, 4096);
}

/* transformers 4 and 5 describe the same models. */
static void both_versions_say_the_same(void **state)
{
	static const char *const names[] = { "llama3", "llama3_tied", "qwen25", "qwen25_tied",
					     "qwen3", "qwen3_tied" };

	(void)state;
	for (size_t i = 0; i < 6; i++) {
		char *five = t_fmt("models/%s/config.json", names[i]), *path5 = te_path(five);
		char *four = t_fmt("models/%s/config_v4.json", names[i]), *path4 = te_path(four);
		struct en_model_config a, b;
		struct ckpt_err err = { 0 };

		memset(&a, 0, sizeof(a));
		memset(&b, 0, sizeof(b));
		assert_int_equal(en_model_config_read(path5, &a, &err), 0);
		assert_int_equal(en_model_config_read(path4, &b, &err), 0);
		assert_true(a.arch == b.arch && a.vocab == b.vocab && a.hidden == b.hidden &&
			    a.inter == b.inter && a.layers == b.layers && a.heads == b.heads &&
			    a.kv_heads == b.kv_heads && a.head_dim == b.head_dim &&
			    a.norm_eps == b.norm_eps && a.tied == b.tied && a.type == b.type &&
			    a.max_positions == b.max_positions && a.init_range == b.init_range &&
			    a.rope.theta == b.rope.theta && a.rope.llama3 == b.rope.llama3 &&
			    a.rope.factor == b.rope.factor && a.rope.original == b.rope.original);
		free(five);
		free(four);
		free(path5);
		free(path4);
	}
}

static const struct {
	const char *more, *text;
	enum ckpt_code code;
} refused[] = {
	{ "\"vocab_size\": 11", "duplicate key \"vocab_size\"", CKPT_E_CORRUPT },
	{ "\"num_key_value_heads\": 3", "2 heads cannot share 3", CKPT_E_CORRUPT },
	{ "\"num_key_value_heads\": 0", "not an integer from 1", CKPT_E_CORRUPT },
	{ "\"num_key_value_heads\": 1.5", "not an integer from 1", CKPT_E_CORRUPT },
	{ "\"num_key_value_heads\": \"1\"", "not an integer from 1", CKPT_E_CORRUPT },
	{ "\"num_key_value_heads\": 1e10", "not an integer from 1", CKPT_E_CORRUPT },
	{ "\"head_dim\": 5", "the head dimension 5 is odd", CKPT_E_CORRUPT },
	{ "\"head_dim\": -4", "\"head_dim\" is not an integer", CKPT_E_CORRUPT },
	{ "\"attention_bias\": true", "\"attention_bias\" is set", CKPT_E_UNSUPPORTED },
	{ "\"mlp_bias\": true", "\"mlp_bias\" is set", CKPT_E_UNSUPPORTED },
	{ "\"attention_dropout\": 0.1", "\"attention_dropout\" is set", CKPT_E_UNSUPPORTED },
	{ "\"use_sliding_window\": true", "\"use_sliding_window\" is set", CKPT_E_UNSUPPORTED },
	{ "\"pretraining_tp\": 2", "\"pretraining_tp\" is not 1", CKPT_E_UNSUPPORTED },
	{ "\"quantization_config\": {\"bits\": 4}", "quantization_config", CKPT_E_UNSUPPORTED },
	{ "\"partial_rotary_factor\": 0.5", "partial_rotary_factor", CKPT_E_UNSUPPORTED },
	{ "\"layer_types\": [\"full_attention\", \"sliding_attention\"]", "sliding_attention",
	  CKPT_E_UNSUPPORTED },
	{ "\"is_causal\": false", "\"is_causal\" is not true", CKPT_E_UNSUPPORTED },
	{ "\"layer_types\": 3", "not a list", CKPT_E_CORRUPT },
	{ "\"hidden_act\": \"gelu\"", "unsupported activation \"gelu\"", CKPT_E_UNSUPPORTED },
	{ "\"use_mrope\": true", "\"use_mrope\" is set", CKPT_E_UNSUPPORTED },
	{ "\"embedding_multiplier\": 0.5", "unknown key \"embedding_multiplier\"",
	  CKPT_E_UNSUPPORTED },
	{ "\"qk_norm_eps\": 0", "unknown key \"qk_norm_eps\"", CKPT_E_UNSUPPORTED },
	{ "\"logit_scale\": 0", "unknown key \"logit_scale\"", CKPT_E_UNSUPPORTED },
	{ "\"num_local_experts\": 8", "unknown key \"num_local_experts\"",
	  CKPT_E_UNSUPPORTED },
	{ "\"model_type\": \"qwen2\"", "LlamaForCausalLM and \"model_type\" qwen2",
	  CKPT_E_CORRUPT },
	{ "\"model_type\": 3", "\"model_type\" is not a string", CKPT_E_CORRUPT },
	{ "\"dtype\": \"int8\"", "of type \"int8\"", CKPT_E_UNSUPPORTED },
	{ "\"rms_norm_eps\": 0", "\"rms_norm_eps\" is not a positive", CKPT_E_CORRUPT },
	{ "\"rms_norm_eps\": \"x\"", "\"rms_norm_eps\" is not a positive", CKPT_E_CORRUPT },
	{ "\"tie_word_embeddings\": 1", "neither true nor false", CKPT_E_CORRUPT },
	{ "\"rope_scaling\": []", "not an object", CKPT_E_CORRUPT },
	{ "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4}", "rope scaling \"yarn\"",
	  CKPT_E_UNSUPPORTED },
	{ "\"rope_scaling\": {\"rope_type\": \"llama3\"}", "\"factor\" is missing",
	  CKPT_E_CORRUPT },
	{ "\"rope_scaling\": {\"rope_type\": \"default\", \"beta_fast\": 4}",
	  "unknown rope key \"beta_fast\"", CKPT_E_UNSUPPORTED },
	{ "\"rope_scaling\": {\"rope_type\": \"default\", \"rope_type\": \"llama3\"}",
	  "duplicate key \"rope_type\"", CKPT_E_CORRUPT },
	{ "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
	  "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 64}", "is not above",
	  CKPT_E_CORRUPT },
	{ "\"rope_scaling\": {\"rope_type\": \"default\"}, \"rope_parameters\": "
	  "{\"rope_type\": \"default\"}", "are given", CKPT_E_CORRUPT },
	{ "\"rope_parameters\": {\"partial_rotary_factor\": 0.25}", "partial rotation of heads",
	  CKPT_E_UNSUPPORTED },
};

static void what_is_not_built_is_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		struct en_model_config c = { .vocab = 77 };
		struct ckpt_err err;
		const int rc = parse_with(refused[i].more, &c, &err);

		if (rc != -(int)refused[i].code || !strstr(err.msg, refused[i].text))
			fail_msg("%s: %d, %s", refused[i].more, rc, err.msg);
		assert_string_equal(err.where, "config.json");
		assert_int_equal(c.vocab, 77);
	}
}

/* Published files have keys that this reader has not heard of; what is off changes nothing. */
static void what_is_off_is_noted(void **state)
{
	static const char published[] = "{\"architectures\": [\"Qwen2ForCausalLM\"], "
		"\"attention_dropout\": 0.0, \"bos_token_id\": 151643, \"eos_token_id\": 151643, "
		"\"hidden_act\": \"silu\", \"hidden_size\": 3584, \"initializer_range\": 0.02, "
		"\"intermediate_size\": 18944, \"max_position_embeddings\": 131072, "
		"\"max_window_layers\": 28, \"model_type\": \"qwen2\", "
		"\"num_attention_heads\": 28, \"num_hidden_layers\": 28, "
		"\"num_key_value_heads\": 4, \"rms_norm_eps\": 1e-06, \"rope_theta\": 10000, "
		"\"sliding_window\": 4096, \"tie_word_embeddings\": false, "
		"\"torch_dtype\": \"bfloat16\", \"transformers_version\": \"4.44.0\", "
		"\"use_cache\": true, \"use_mrope\": false, \"use_sliding_window\": false, "
		"\"vocab_size\": 152064}";
	struct en_model_config c;
	struct ckpt_err err;

	(void)state;
	assert_int_equal(parse(published, &c, &err), 0);
	assert_string_equal(c.noted, "");
	assert_int_equal(parse_with("\"new_a\": false, \"new_b\": null, \"new_c\": {}, "
				    "\"new_d\": 0, \"new_e\": 0.0, \"unsloth_fixed\": true, "
				    "\"is_causal\": true", &c, &err), 0);
	assert_string_equal(c.noted, "new_a, new_b, new_c, new_d, new_e");
	assert_int_equal(parse_with("", &c, &err), 0);
	assert_string_equal(c.noted, "");
}

static const struct {
	const char *text, *what;
	enum ckpt_code code;
} texts[] = {
	{ "", "not a JSON object", CKPT_E_CORRUPT },
	{ "[]", "not a JSON object", CKPT_E_CORRUPT },
	{ "{" PLAIN "} x", "not a JSON object", CKPT_E_CORRUPT },
	{ "{" PLAIN, "not a JSON object", CKPT_E_CORRUPT },
	{ "{}", "architecture: not given", CKPT_E_UNSUPPORTED },
	{ "{\"model_type\": \"gpt2\"}", "architecture: gpt2", CKPT_E_UNSUPPORTED },
	{ "{\"architectures\": [\"MixtralForCausalLM\"]}", "architecture: MixtralForCausalLM",
	  CKPT_E_UNSUPPORTED },
	{ "{\"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"], "
	  "\"vision_config\": {\"a\": 1}, "
	  "\"model_type\": \"qwen2_5_vl\", \"attention_bias\": true}",
	  "Qwen2_5_VLForConditionalGeneration is a vision-language model", CKPT_E_UNSUPPORTED },
	{ "{\"architectures\": []}", "not a list of one name", CKPT_E_CORRUPT },
	{ "{\"architectures\": [\"LlamaForCausalLM\"]}", "\"vocab_size\" is missing",
	  CKPT_E_CORRUPT },
	{ "{\"architectures\": [\"Qwen2ForCausalLM\"], \"vocab_size\": 10, \"hidden_size\": 8, "
	  "\"intermediate_size\": 6, \"num_hidden_layers\": 2, \"num_attention_heads\": 2}",
	  "\"num_key_value_heads\" is missing", CKPT_E_CORRUPT },
	{ "{\"architectures\": [\"Qwen3ForCausalLM\"], \"vocab_size\": 10, \"hidden_size\": 8, "
	  "\"intermediate_size\": 6, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
	  "\"num_key_value_heads\": 2}", "\"head_dim\" is missing", CKPT_E_CORRUPT },
	{ "{\"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 10, \"hidden_size\": 9, "
	  "\"intermediate_size\": 6, \"num_hidden_layers\": 2, \"num_attention_heads\": 2}",
	  "9 is not divisible", CKPT_E_CORRUPT },
	{ "{\"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 2147483647, "
	  "\"hidden_size\": 2147483646, \"intermediate_size\": 6, \"num_hidden_layers\": 2, "
	  "\"num_attention_heads\": 1}", "exceeds the limits of ztrain", CKPT_E_UNSUPPORTED },
};

static void texts_that_are_no_configuration(void **state)
{
	struct en_model_config c;
	struct ckpt_err err;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		const int rc = parse(texts[i].text, &c, &err);

		if (rc != -(int)texts[i].code || !strstr(err.msg, texts[i].what))
			fail_msg("%s: %d, %s", texts[i].text, rc, err.msg);
	}
	err = (struct ckpt_err){ 0 };
	assert_int_equal(en_model_config_parse("{\0}", 3, "x", &c, &err), -CKPT_E_CORRUPT);
	assert_non_null(strstr(err.msg, "binary data"));
	assert_int_equal(parse("{" PLAIN "}\n \t", &c, &err), 0);
}

static void files(void **state)
{
	char *dir = t_dir_new(), *path = t_fmt("%s/config.json", dir);
	char *large = t_alloc((1 << 20) + 1);
	struct en_model_config c;
	struct ckpt_err err = { 0 };

	(void)state;
	assert_int_equal(en_model_config_read(path, &c, &err), -CKPT_E_NOTFOUND);
	assert_string_equal(err.where, path);
	memset(large, ' ', (1 << 20) + 1);
	t_file_write(path, large, (1 << 20) + 1);
	err = (struct ckpt_err){ 0 };
	assert_int_equal(en_model_config_read(path, &c, &err), -CKPT_E_LIMIT);
	memcpy(large, "{" PLAIN "}", strlen("{" PLAIN "}"));
	t_file_write(path, large, 1 << 20);
	err = (struct ckpt_err){ 0 };
	assert_int_equal(en_model_config_read(path, &c, &err), 0);
	err = (struct ckpt_err){ 0 };
	assert_int_equal(en_model_config_read(dir, &c, &err), -CKPT_E_IO);
	free(large);
	free(path);
	t_dir_end(dir);
}

/* The weights of 'folder' against the configuration of 'config', changed by 'change'. */
static int match(const char *folder, const char *config, void (*change)(struct en_model_config *),
		 struct ckpt_err *err)
{
	char *a = t_fmt("models/%s", folder), *dir = te_path(a);
	char *b = t_fmt("models/%s/config.json", config), *path = te_path(b);
	const char *paths[] = { dir };
	struct en_model_config c;
	struct en_model *m;
	struct ckpt *ck;
	int rc;

	*err = (struct ckpt_err){ 0 };
	assert_int_equal(en_model_config_read(path, &c, err), 0);
	if (change)
		change(&c);
	assert_int_equal(en_model_new(&c, &m, err), 0);
	assert_int_equal(ckpt_open(paths, 1, NULL, &ck, err), 0);
	rc = en_model_match(m, ck, err);
	ckpt_close(ck);
	en_model_free(m);
	free(a);
	free(b);
	free(dir);
	free(path);
	return rc;
}

static void fewer_layers(struct en_model_config *c)
{
	c->layers--;
}

static void more_layers(struct en_model_config *c)
{
	c->layers++;
}

static void wider(struct en_model_config *c)
{
	c->inter++;
}

static void untie(struct en_model_config *c)
{
	c->tied = false;
}

static void weights_must_fit(void **state)
{
	struct ckpt_err err;

	(void)state;
	assert_int_equal(match("llama3", "llama3", NULL, &err), 0);
	assert_int_equal(match("qwen3_tied", "qwen3_tied", NULL, &err), 0);
	assert_int_equal(match("llama3", "llama3", fewer_layers, &err), -CKPT_E_MISMATCH);
	assert_non_null(strstr(err.msg, "model.layers.2."));
	assert_non_null(strstr(err.msg, "is not a parameter of the LlamaForCausalLM"));
	assert_int_equal(match("llama3", "llama3", more_layers, &err), -CKPT_E_MISMATCH);
	assert_non_null(strstr(err.msg, "missing tensor model.layers.3.self_attn.q_proj.weight"));
	assert_int_equal(match("llama3", "llama3", wider, &err), -CKPT_E_MISMATCH);
	assert_non_null(strstr(err.msg, "mlp.gate_proj.weight has 10944 elements"));
	assert_int_equal(match("qwen3_tied", "qwen3_tied", untie, &err), -CKPT_E_MISMATCH);
	assert_non_null(strstr(err.msg, "missing tensor lm_head.weight"));
	assert_int_equal(match("qwen3", "qwen3_tied", NULL, &err), -CKPT_E_MISMATCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults),
		cmocka_unit_test(values_are_read),
		cmocka_unit_test(both_versions_say_the_same),
		cmocka_unit_test(what_is_not_built_is_refused),
		cmocka_unit_test(what_is_off_is_noted),
		cmocka_unit_test(texts_that_are_no_configuration),
		cmocka_unit_test(files),
		cmocka_unit_test(weights_must_fit),
	};

	te_need_fixtures();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
