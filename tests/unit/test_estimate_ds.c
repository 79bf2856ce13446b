/*
 * DeepSpeed's memory estimators. If these differ from the real ones by a byte, a user who compares
 * both cannot know which of the two is wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_estimate.h"

struct zero2 {
	uint64_t params, gpus, nodes, offload, cpu, gpu;
};

struct zero3 {
	uint64_t params, largest, gpus, nodes, offload, offload_params, zero_init, cpu, gpu;
};

#define ZERO2(...) { __VA_ARGS__ },
#define ZERO3(...)
#define TINY(...)
static const struct zero2 zero2[] = {
#include "tests/fixtures/ds-estimators.inc"
};
#undef ZERO2
#undef ZERO3
#define ZERO2(...)
#define ZERO3(...) { __VA_ARGS__ },
static const struct zero3 zero3[] = {
#include "tests/fixtures/ds-estimators.inc"
};
#undef ZERO3
#undef TINY
#define ZERO3(...)
#define TINY(name, ...) { #name, __VA_ARGS__ },
static const struct {
	const char *name;
	uint64_t params, largest, cpu2, gpu2, cpu3, gpu3;
} tiny[] = {
#include "tests/fixtures/ds-estimators.inc"
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void every_number_of_stage_2_is_deepspeeds(void **state)
{
	struct ckpt_ds_estimate out;

	(void)state;
	assert_int_equal(COUNT(zero2), 132);
	for (size_t i = 0; i < COUNT(zero2); i++) {
		const struct zero2 *r = &zero2[i];

		assert_int_equal(ckpt_ds_zero2(r->params, (uint32_t)r->gpus, (uint32_t)r->nodes,
					       (int)r->offload, 1.5, &out), 0);
		if (out.cpu_bytes != r->cpu || out.gpu_bytes != r->gpu)
			fail_msg("row %zu: %llu and %llu", i, (unsigned long long)out.cpu_bytes,
				 (unsigned long long)out.gpu_bytes);
	}
}

static void every_number_of_stage_3_is_deepspeeds(void **state)
{
	struct ckpt_ds_estimate out;

	(void)state;
	assert_int_equal(COUNT(zero3), 396);
	for (size_t i = 0; i < COUNT(zero3); i++) {
		const struct zero3 *r = &zero3[i];

		assert_int_equal(ckpt_ds_zero3(r->params, r->largest, (uint32_t)r->gpus,
					       (uint32_t)r->nodes, (int)r->offload,
					       (int)r->offload_params, (int)r->zero_init, 1.5,
					       &out), 0);
		if (out.cpu_bytes != r->cpu || out.gpu_bytes != r->gpu ||
		    out.largest_layer_bytes != 4 * r->largest)
			fail_msg("row %zu: %llu and %llu", i, (unsigned long long)out.cpu_bytes,
				 (unsigned long long)out.gpu_bytes);
	}
}

/* The configurations of tiny models that transformers saved, cut to what counts. */
static const struct {
	const char *name, *text;
} configs[] = {
	{ "llama3", "{ 'model_type': 'llama', 'vocab_size': 257, 'hidden_size': 64, "
	  "'intermediate_size': 171, 'num_hidden_layers': 3, 'num_attention_heads': 4, "
	  "'num_key_value_heads': 2, 'head_dim': 16, 'attention_bias': false, 'mlp_bias': false, "
	  "'tie_word_embeddings': false }" },
	{ "llama3_tied", "{ 'model_type': 'llama', 'vocab_size': 259, 'hidden_size': 48, "
	  "'intermediate_size': 129, 'num_hidden_layers': 2, 'num_attention_heads': 4, "
	  "'num_key_value_heads': 2, 'head_dim': null, 'tie_word_embeddings': true }" },
	{ "qwen25", "{ 'model_type': 'qwen2', 'vocab_size': 257, 'hidden_size': 64, "
	  "'intermediate_size': 173, 'num_hidden_layers': 2, 'num_attention_heads': 4, "
	  "'num_key_value_heads': 2 }" },
	{ "qwen25_tied", "{ 'model_type': 'qwen2', 'vocab_size': 251, 'hidden_size': 48, "
	  "'intermediate_size': 131, 'num_hidden_layers': 3, 'num_attention_heads': 4, "
	  "'num_key_value_heads': 2, 'tie_word_embeddings': true }" },
	{ "qwen3", "{ 'model_type': 'qwen3', 'vocab_size': 263, 'hidden_size': 64, "
	  "'intermediate_size': 147, 'num_hidden_layers': 2, 'num_attention_heads': 4, "
	  "'num_key_value_heads': 2, 'head_dim': 24 }" },
	{ "qwen3_tied", "{ 'model_type': 'qwen3', 'vocab_size': 257, 'hidden_size': 48, "
	  "'intermediate_size': 153, 'num_hidden_layers': 3, 'num_attention_heads': 4, "
	  "'num_key_value_heads': 2, 'head_dim': 32, 'tie_word_embeddings': true }" },
};

static struct ckpt_model *tiny_model(const char *name)
{
	for (size_t i = 0; i < COUNT(configs); i++)
		if (!strcmp(configs[i].name, name))
			return t_est_model(configs[i].text);
	t_die("there is no model %s", name);
}

static void a_config_gives_the_numbers_that_the_model_itself_gave(void **state)
{
	struct ckpt_ds_estimate out;
	struct ckpt_model_info info;

	(void)state;
	assert_int_equal(COUNT(tiny), COUNT(configs));
	for (size_t i = 0; i < COUNT(tiny); i++) {
		struct ckpt_model *model = tiny_model(tiny[i].name);

		ckpt_model_get(model, &info);
		ckpt_model_free(model);
		assert_int_equal(info.params, tiny[i].params);
		assert_int_equal(info.largest_module, tiny[i].largest);
		assert_int_equal(ckpt_ds_zero2(info.params, 8, 1, 0, 1.5, &out), 0);
		assert_int_equal(out.cpu_bytes, tiny[i].cpu2);
		assert_int_equal(out.gpu_bytes, tiny[i].gpu2);
		assert_int_equal(ckpt_ds_zero3(info.params, info.largest_module, 8, 1, 0, 0, 1, 1.5,
					       &out), 0);
		assert_int_equal(out.cpu_bytes, tiny[i].cpu3);
		assert_int_equal(out.gpu_bytes, tiny[i].gpu3);
	}
}

/* Python cuts 18 x 7 / 8 = 15.75 off; so does this, and nothing else is rounded. */
static void odd_divisions_are_cut_off_as_python_does(void **state)
{
	struct ckpt_ds_estimate out;

	(void)state;
	assert_int_equal(ckpt_ds_zero2(7, 8, 1, 0, 1.5, &out), 0);
	assert_int_equal(out.gpu_bytes, 14 + 15);
	assert_int_equal(ckpt_ds_zero3(7, 3, 8, 3, 1, 0, 1, 1.5, &out), 0);
	assert_int_equal(out.gpu_bytes, 12 + 0);
	assert_int_equal(out.cpu_bytes, 55);	/* int(7 * 16 * (1 / 3) * 1.5) in doubles */
}

static void what_has_no_answer_is_refused_and_leaves_the_output(void **state)
{
	struct ckpt_ds_estimate out = { .gpu_bytes = 5 };

	(void)state;
	assert_int_equal(ckpt_ds_zero2(7, 0, 1, 0, 1.5, &out), -CKPT_E_USAGE);
	assert_int_equal(ckpt_ds_zero2(7, 1, 0, 0, 1.5, &out), -CKPT_E_USAGE);
	assert_int_equal(ckpt_ds_zero2(UINT64_MAX, 1, 1, 0, 1.5, &out), -CKPT_E_USAGE);
	assert_int_equal(ckpt_ds_zero2(7, 1, 1, 0, -1, &out), -CKPT_E_USAGE);
	assert_int_equal(ckpt_ds_zero2(7, 1, 1, 0, 1.5, NULL), -CKPT_E_USAGE);
	assert_int_equal(ckpt_ds_zero3(7, 8, 1, 1, 0, 0, 1, 1.5, &out), -CKPT_E_USAGE);
	assert_int_equal(ckpt_ds_zero3(7, 3, 1, 0, 0, 0, 1, 1.5, &out), -CKPT_E_USAGE);
	assert_int_equal(out.gpu_bytes, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_number_of_stage_2_is_deepspeeds),
		cmocka_unit_test(every_number_of_stage_3_is_deepspeeds),
		cmocka_unit_test(a_config_gives_the_numbers_that_the_model_itself_gave),
		cmocka_unit_test(odd_divisions_are_cut_off_as_python_does),
		cmocka_unit_test(what_has_no_answer_is_refused_and_leaves_the_output),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
