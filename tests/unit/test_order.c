/*
 * test_order.c -- the order in which a model names its parameters.
 *
 * ZeRO cuts them in that order and no file tells another one from the right one: a wrong order is
 * a model of shifted weights that trains without a message.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/step/ck_order.h"
#include "tests/lib/fs/t_dir.h"

#define QWEN "{\"model_type\": \"qwen3\", \"num_hidden_layers\": 2}"

static const bool none[32];

/* Shuffled, and layer 10 sorts before layer 2 as text. */
static const char *const qwen[] = {
	"lm_head.weight", "model.layers.1.self_attn.q_norm.weight", "model.norm.weight",
	"model.layers.0.self_attn.v_proj.bias", "model.layers.0.self_attn.v_proj.weight",
	"model.layers.0.input_layernorm.weight", "model.layers.1.self_attn.v_proj.weight",
	"model.layers.1.self_attn.v_proj.bias", "model.layers.1.input_layernorm.weight",
	"model.embed_tokens.weight", "model.layers.0.self_attn.q_norm.weight",
	"model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight", NULL,
};

static void fill(struct ck_index *ix, const char *const *name)
{
	const uint64_t shape[1] = { 2 };
	uint32_t t;

	assert_int_equal(ck_index_init(ix, 0, NULL), 0);
	for (; *name; name++)
		assert_int_equal(ck_index_add_tensor(ix, *name, shape, 1, CKPT_ROLE_PLAIN, &t,
						     NULL), 0);
}

/* What comes out as one line of names, or the message. */
static char *ordered(const char *const *name, const char *config, const bool *aside)
{
	struct ckpt_err err = { 0 };
	struct ckpt_limits limits;
	struct ck_order order;
	struct ck_index ix;
	char *dir = t_dir_new(), *path = t_fmt("%s/config.json", dir), *out;

	ck_limits_fill(NULL, &limits);
	t_file_write(path, config, strlen(config));
	fill(&ix, name);
	if (ck_order_by_config(&ix, path, &limits, aside, &order, &err)) {
		out = t_fmt("%s: %s", err.where, err.msg);
	} else {
		out = t_fmt("%s", "");
		for (uint64_t i = 0; i < order.n; i++) {
			char *more = t_fmt("%s%s\n", out, ix.tensor[order.tensor[i]].name);

			free(out);
			out = more;
		}
		if (order.alias) {
			char *more = t_fmt("%stied %s\n", out, order.alias);

			free(out);
			out = more;
		}
		ck_order_release(&order);
	}
	ck_index_release(&ix);
	t_dir_remove(dir);
	free(path);
	free(dir);
	return out;
}

static void expect(const char *const *name, const char *config, const char *part)
{
	char *out = ordered(name, config, none);

	if (!strstr(out, part))
		fail_msg("\"%s\" is not in \"%s\"", part, out);
	free(out);
}

static void parameters_come_in_the_order_of_the_modules(void **state)
{
	char *out = ordered(qwen, QWEN, none);

	(void)state;
	assert_string_equal(out, "model.embed_tokens.weight\n"
			    "model.layers.0.self_attn.v_proj.weight\n"
			    "model.layers.0.self_attn.v_proj.bias\n"
			    "model.layers.0.self_attn.q_norm.weight\n"
			    "model.layers.0.mlp.up_proj.weight\n"
			    "model.layers.0.input_layernorm.weight\n"
			    "model.layers.1.self_attn.v_proj.weight\n"
			    "model.layers.1.self_attn.v_proj.bias\n"
			    "model.layers.1.self_attn.q_norm.weight\n"
			    "model.layers.1.mlp.up_proj.weight\n"
			    "model.layers.1.input_layernorm.weight\n"
			    "model.norm.weight\nlm_head.weight\n");
	free(out);
}

static void a_tied_head_is_a_second_name_of_the_embedding(void **state)
{
	char *out = ordered(qwen, "{\"model_type\": \"qwen3\", \"num_hidden_layers\": 2, "
			    "\"tie_word_embeddings\": true}", none);
	const char *end = "model.norm.weight\ntied lm_head.weight\n";

	(void)state;
	assert_true(strlen(out) > strlen(end));
	assert_string_equal(out + strlen(out) - strlen(end), end);
	free(out);
	expect(qwen, "{\"model_type\": \"gemma\", \"num_hidden_layers\": 2}",
	       "tied lm_head.weight");
}

static void what_is_missing_or_too_much_is_named(void **state)
{
	const char *names[16];

	(void)state;
	expect(qwen, "{\"model_type\": \"qwen3\", \"num_hidden_layers\": 3}",
	       "3 layers, but the weights have 2");
	expect(qwen, "{\"model_type\": \"qwen3\"}", "num_hidden_layers is missing");
	expect(qwen, "{\"model_type\": \"mamba\", \"num_hidden_layers\": 2}", "--order FILE");
	expect(qwen, "{\"num_hidden_layers\": 2}", "model of type \"?\"");
	memcpy(names, qwen, sizeof(qwen));
	names[1] = "model.layers.2.self_attn.q_norm.weight";
	expect(names, QWEN,
	       "has other parameters than layer 0");
	names[1] = "model.layers.1.self_attn.rotary_emb.inv_freq";
	expect(names, QWEN,
	       "rotary_emb.inv_freq: a model of type \"qwen3\" has no parameter of this name");
	memcpy(names, qwen, sizeof(qwen));
	names[0] = "model.layers.01.input_layernorm.weight";
	expect(names, QWEN, "no parameter of this");
	expect(qwen + 1, QWEN,
	       "lm_head.weight is missing");
	memcpy(names, qwen, sizeof(qwen));
	names[9] = "model.embed_tokens.bogus";
	expect(names, QWEN, "model.embed_tokens.bogus");
}

static void the_trainer_gives_biases_and_norms_no_decay(void **state)
{
	(void)state;
	assert_true(ck_order_is_undecayed("model.layers.0.self_attn.q_proj.bias"));
	assert_true(ck_order_is_undecayed("model.layers.0.input_layernorm.weight"));
	assert_true(ck_order_is_undecayed("model.layers.0.self_attn.q_norm.weight"));
	assert_true(ck_order_is_undecayed("model.norm.weight"));
	assert_false(ck_order_is_undecayed("model.layers.0.self_attn.q_proj.weight"));
	assert_false(ck_order_is_undecayed("model.embed_tokens.weight"));
	assert_false(ck_order_is_undecayed("model.normal.weight"));
	assert_false(ck_order_is_undecayed("model.enorm_x.weight"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parameters_come_in_the_order_of_the_modules),
		cmocka_unit_test(a_tied_head_is_a_second_name_of_the_embedding),
		cmocka_unit_test(what_is_missing_or_too_much_is_named),
		cmocka_unit_test(the_trainer_gives_biases_and_norms_no_decay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
