/*
 * What a model is made of, and what a configuration says of a run. If a parameter is missing in
 * the count, every number that follows from it is too small.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_estimate.h"
#include "tests/lib/torture/t_fault.h"

#define COMMON "'vocab_size': 301, 'hidden_size': 64, 'num_hidden_layers': 3, " \
	"'num_attention_heads': 4, 'intermediate_size': 171, 'num_key_value_heads': 2"

#define COMMON_MLA "'vocab_size': 301, 'hidden_size': 64, 'num_hidden_layers': 3, " \
	"'num_attention_heads': 4, 'intermediate_size': 171, 'num_key_value_heads': 4"

/* Elements as the publishers' weights have them. */
static void published_models_have_their_numbers_of_parameters(void **state)
{
	static const struct {
		const char *name;
		uint64_t params, largest;
	} all[] = {
		{ "llama-3-8b", 8030261248, 525336576 }, { "llama-3-70b", 70553706496, 1050673152 },
		{ "llama-3.2-1b", 1235814400, 262668288 },
		{ "llama-3.2-3b", 3212749824, 394002432 },
		{ "qwen2.5-0.5b", 494032768, 136134656 }, { "qwen2.5-1.5b", 1543714304, 233373696 },
		{ "qwen2.5-3b", 3085938688, 311164928 }, { "qwen2.5-7b", 7615616512, 544997376 },
		{ "qwen2.5-14b", 14770033664, 778567680 },
		{ "qwen2.5-32b", 32763876352, 778567680 }, { "qwen3-0.6b", 596049920, 155582464 },
		{ "qwen3-1.7b", 1720574976, 311164928 }, { "qwen3-4b", 4022468096, 388956160 },
		{ "QWEN3-8B", 8190735360, 622329856 }, { "qwen3-14b", 14768307200, 777912320 },
		{ "qwen3-32b", 32762123264, 777912320 },
	};
	const size_t with_experts = 5;	/* see the next test */
	struct ckpt_model_info info;
	uint32_t n = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct ckpt_model *model = t_est_named(all[i].name);

		ckpt_model_get(model, &info);
		ckpt_model_free(model);
		if (info.params != all[i].params || info.largest_module != all[i].largest)
			fail_msg("%s: %" PRIu64 ", %" PRIu64, all[i].name, info.params,
				 info.largest_module);
		model = t_est_counted(all[i].params);
		ckpt_model_get(model, &info);
		ckpt_model_free(model);
		assert_int_equal(info.assumed, 0);
		assert_int_equal(info.largest_module, all[i].largest);
	}
	while (ckpt_model_name(n))
		n++;
	assert_int_equal(n, sizeof(all) / sizeof(all[0]) + with_experts);
	assert_int_equal(ckpt_model_from_name("gpt-5", &(struct ckpt_model *){ NULL }, NULL),
			 -CKPT_E_NOTFOUND);
}

/* Counted by transformers 5.17 on the published configurations; 46.7 B with 12.9 B active, ... */
static void published_models_with_experts_have_totals_and_active_parameters(void **state)
{
	static const struct {
		const char *name;
		uint64_t params, tensors, largest, active;
	} all[] = {
		{ "mixtral-8x7b", 46702792704, 291, 1409286144, 12879925248 },
		{ "Mixtral-8x22B", 140630071296, 507, 2415919104, 39161468928 },
		{ "qwen3-30b-a3b", 30532122624, 531, 603979776, 3353032704 },
		{ "qwen3-235b-a22b", 235093634560, 1037, 2415919104, 22190763520 },
		{ "deepseek-v3", 671026404352, 909, 11274289152, 37552282624 },
	};
	struct ckpt_model_info info;

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct ckpt_model *model = t_est_named(all[i].name);

		ckpt_model_get(model, &info);
		ckpt_model_free(model);
		if (info.params != all[i].params || info.tensors != all[i].tensors ||
		    info.largest_module != all[i].largest || info.active != all[i].active)
			fail_msg("%s: %" PRIu64 " in %" PRIu64 ", %" PRIu64 ", %" PRIu64 " active",
				 all[i].name, info.params, info.tensors, info.largest_module,
				 info.active);
	}
}

static void models_with_experts_have_the_parameters_that_transformers_makes(void **state)
{
	static const struct {
		const char *text;
		uint64_t params, tensors, active;
	} all[] = {
#include "tests/fixtures/experts.inc"
	};
	struct ckpt_model_info info;

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct ckpt_model *model = t_est_model(all[i].text);

		ckpt_model_get(model, &info);
		ckpt_model_free(model);
		if (info.params != all[i].params || info.tensors != all[i].tensors ||
		    info.active != all[i].active)
			fail_msg("%s: %" PRIu64 " in %" PRIu64 ", %" PRIu64 " active", all[i].text,
				 info.params, info.tensors, info.active);
	}
}

/* Counted by transformers 5.17 (tests/interop/plan_cases.py does so again). */
static void architectures_have_the_parameters_that_transformers_makes(void **state)
{
	static const struct {
		const char *text;
		uint64_t params, tensors;
	} all[] = {
#include "tests/fixtures/architectures.inc"
	};
	struct ckpt_model_info info;

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct ckpt_model *model = t_est_model(all[i].text);

		ckpt_model_get(model, &info);
		ckpt_model_free(model);
		if (info.params != all[i].params || info.tensors != all[i].tensors)
			fail_msg("%s: %" PRIu64 " in %" PRIu64, all[i].text, info.params,
				 info.tensors);
	}
}

static void a_number_near_a_published_model_has_its_shape_and_its_own_sum(void **state)
{
	static const uint64_t numbers[] = { 7000000000, 13000000000, 8000000001, 500000000 };
	struct ckpt_model_info info;

	(void)state;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		struct ckpt_model *model = t_est_counted(numbers[i]);

		ckpt_model_get(model, &info);
		ckpt_model_free(model);
		assert_int_equal(info.params, numbers[i]);
		assert_int_equal(info.assumed, 1);
		assert_true(info.arch.layers > 0);
		assert_true(info.largest_module < numbers[i]);
	}
}

static void a_number_far_from_all_has_no_shape_and_no_activations(void **state)
{
	static const uint64_t numbers[] = { 1, 7, 168704, UINT64_C(1) << 48 };
	struct ckpt_model_info info;

	(void)state;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		struct ckpt_model *model = t_est_counted(numbers[i]);
		struct ckpt_estimate *est = t_est_of(model, (struct ckpt_setup){ .stage = 3,
									  .gpus = 7 });

		ckpt_model_get(model, &info);
		ckpt_model_free(model);
		assert_int_equal(info.params, numbers[i]);
		assert_int_equal(info.arch.layers, 0);
		assert_int_equal(est->no_activations, 1);
		free(est);
	}
	assert_int_equal(ckpt_model_from_count(0, &(struct ckpt_model *){ NULL }, NULL),
			 -CKPT_E_USAGE);
	assert_int_equal(ckpt_model_from_count((UINT64_C(1) << 48) + 1,
					       &(struct ckpt_model *){ NULL }, NULL),
			 -CKPT_E_USAGE);
}

static void configs_that_cannot_be_counted_are_refused_with_the_reason(void **state)
{
	static const struct {
		const char *text;
		enum ckpt_code code;
		const char *says;
	} all[] = {
		{ "{}", CKPT_E_UNSUPPORTED, "it has no \"model_type\"" },
		{ "[]", CKPT_E_UNSUPPORTED, "it has no \"model_type\"" },
		{ "{", CKPT_E_CORRUPT, "" },
		{ "{ 'model_type': 'mamba', " COMMON " }", CKPT_E_UNSUPPORTED, "mamba" },
		{ "{ 'model_type': 'mixtral', " COMMON " }", CKPT_E_MISMATCH,
		  "num_local_experts is missing" },
		{ "{ 'model_type': 'mixtral', " COMMON ", 'num_local_experts': 4, "
		  "'num_experts_per_tok': 5 }", CKPT_E_MISMATCH,
		  "num_experts_per_tok is 5, but num_local_experts is 4" },
		{ "{ 'model_type': 'qwen3_moe', " COMMON ", 'num_experts': 4, "
		  "'num_experts_per_tok': 2 }", CKPT_E_MISMATCH, "moe_intermediate_size" },
		{ "{ 'model_type': 'qwen3_moe', " COMMON ", 'num_experts': 4, "
		  "'num_experts_per_tok': 2, 'moe_intermediate_size': 9, "
		  "'mlp_only_layers': 1 }", CKPT_E_MISMATCH, "mlp_only_layers is not a list" },
		{ "{ 'model_type': 'qwen3_moe', " COMMON ", 'num_experts': 4, "
		  "'num_experts_per_tok': 2, 'moe_intermediate_size': 9, "
		  "'mlp_only_layers': [0, 1024] }", CKPT_E_LIMIT, "number 1 of mlp_only_layers" },
		{ "{ 'model_type': 'deepseek_v3', " COMMON_MLA ", 'n_routed_experts': 4, "
		  "'num_experts_per_tok': 2, 'moe_intermediate_size': 9, "
		  "'moe_layer_freq': 2 }", CKPT_E_UNSUPPORTED, "moe_layer_freq 2" },
		{ "{ 'model_type': 'llama' }", CKPT_E_MISMATCH, "hidden_size is missing" },
		{ "{ 'model_type': 'llama', " COMMON ", 'head_dim': -1 }", CKPT_E_MISMATCH,
		  "head_dim is not a plain number" },
		{ "{ 'model_type': 'llama', " COMMON ", 'head_dim': 0 }", CKPT_E_LIMIT,
		  "head_dim" },
		{ "{ 'model_type': 'gpt2', 'vocab_size': 5, 'n_embd': 7, 'n_layer': 1, "
		  "'n_head': 3, 'n_positions': 2 }", CKPT_E_MISMATCH, "heads, 3" },
		{ "{ 'model_type': 'llama', 'vocab_size': 5, 'hidden_size': 64, "
		  "'num_hidden_layers': 99999999, 'num_attention_heads': 4, "
		  "'intermediate_size': 3 }", CKPT_E_LIMIT, "num_hidden_layers" },
		{ "{ 'model_type': 'llama', " COMMON ", 'vocab_size': 5 }", CKPT_E_CORRUPT, "" },
		{ "{ 'model_type': 'llama', 'vocab_size': 16777216, 'hidden_size': 16777216, "
		  "'num_hidden_layers': 9999, 'num_attention_heads': 1, "
		  "'intermediate_size': 16777216 }", CKPT_E_LIMIT, "2^48" },
		{ "{ 'model_type': 'opt', 'vocab_size': 5, 'hidden_size': 8, "
		  "'num_hidden_layers': 1, 'num_attention_heads': 2, 'ffn_dim': 3, "
		  "'max_position_embeddings': 4, 'word_embed_proj_dim': 5 }", CKPT_E_UNSUPPORTED,
		  "projected" },
	};
	char *dir = t_dir_new(), *path = t_fmt("%s/config.json", dir);

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		char *text = t_fmt("%s", all[i].text);
		struct ckpt_model *model = (struct ckpt_model *)text;
		struct ckpt_err err = { 0 };

		for (char *p = text; *p; p++)
			*p = *p == '\'' ? '"' : *p;
		t_file_write(path, text, strlen(text));
		if (ckpt_model_from_config(path, &model, &err) != -(int)all[i].code ||
		    !strstr(err.msg, all[i].says))
			fail_msg("%s: %d %s", text, (int)err.code, err.msg);
		assert_ptr_equal(model, text);
		free(text);
	}
	t_dir_remove(dir);
	free(path);
	free(dir);
}

/* ---------------------------------------------------------------- configurations */

static int read_setup(const char *text, struct ckpt_setup *setup, unsigned *said)
{
	char *dir = t_dir_new(), *path = t_fmt("%s/ds.json", dir);
	int rc;

	t_file_write(path, text, strlen(text));
	rc = ckpt_setup_read(path, setup, said, NULL);
	t_dir_remove(dir);
	free(path);
	free(dir);
	return rc;
}

static void a_configuration_is_read_as_deepspeed_reads_it(void **state)
{
	struct ckpt_setup s = { .size = sizeof(s), .gpus = 4, .sequence = 7 };
	unsigned said = 0;

	(void)state;
	assert_int_equal(read_setup("# a comment\n{train_batch_size: 64, "
		"\"gradient_accumulation_steps\": 2, bf16: {enabled: true},\n"
		"data_types: {grad_accum_dtype: 'fp32'}, zero_optimization: {stage: 3, "
		"offload_optimizer: {device: 'cpu', pin_memory: false}, "
		"offload_param: {device: 'cpu'}, overlap_comm: false, "
		"reduce_bucket_size: 'auto', stage3_prefetch_bucket_size: 5e7, "
		"param_persistence_threshold: 10, sub_group_size: 1e9,}}", &s, &said), 0);
	assert_int_equal(said, CKPT_SETUP_STAGE | CKPT_SETUP_OFFLOAD | CKPT_SETUP_DTYPE |
			 CKPT_SETUP_MICRO | CKPT_SETUP_ACCUMULATION);
	assert_int_equal(s.stage, 3);
	assert_int_equal(s.offload, CKPT_OFFLOAD_OPTIMIZER | CKPT_OFFLOAD_PARAMS);
	assert_int_equal(s.dtype, CKPT_BF16);
	assert_int_equal(s.grad_dtype, CKPT_F32);
	assert_int_equal(s.micro, 8);
	assert_int_equal(s.accumulation, 2);
	assert_int_equal(s.no_pin, 1);
	assert_int_equal(s.overlap, -1);
	assert_true(s.reduce_bucket == UINT64_MAX);
	assert_int_equal(s.prefetch_bucket, 50000000);
	assert_int_equal(s.persistence, 10);
	assert_int_equal(s.sub_group, 1000000000);
	assert_int_equal(s.sequence, 7);
}

static void what_a_configuration_leaves_open_stays_as_it_is(void **state)
{
	struct ckpt_setup s = { .size = sizeof(s), .gpus = 4, .stage = 2, .micro = 3,
				.dtype = CKPT_F16 };
	unsigned said = 9;

	(void)state;
	assert_int_equal(read_setup("{ \"bf16\": { \"enabled\": \"auto\" }, "
		"\"train_micro_batch_size_per_gpu\": \"auto\", \"gradient_accumulation_steps\": "
		"\"auto\", \"zero_optimization\": { \"offload_optimizer\": { \"device\": \"none\" "
		"} } }", &s, &said), 0);
	assert_int_equal(said, 0);
	assert_int_equal(s.stage, 2);
	assert_int_equal(s.micro, 3);
	assert_int_equal(s.dtype, CKPT_F16);
}

static void configurations_that_are_none_are_refused(void **state)
{
	static const struct {
		const char *text;
		enum ckpt_code code;
	} all[] = {
		{ "", CKPT_E_CORRUPT }, { "[]", CKPT_E_CORRUPT },
		{ "{ \"zero_optimization\": { \"stage\": 5 } }", CKPT_E_CORRUPT },
		{ "{ \"zero_optimization\": { \"stage\": 3, \"offload_param\": { \"device\": "
		  "\"nvme\" } } }", CKPT_E_UNSUPPORTED },
		{ "{ \"zero_optimization\": { \"reduce_bucket_size\": -5 } }", CKPT_E_CORRUPT },
		{ "{ \"train_batch_size\": 1.5 }", CKPT_E_CORRUPT },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct ckpt_setup s = { .size = sizeof(s), .gpus = 4, .stage = 2 };
		unsigned said = 9;

		if (read_setup(all[i].text, &s, &said) != -(int)all[i].code)
			fail_msg("%s is taken", all[i].text);
		assert_int_equal(said, 9);
		assert_int_equal(s.stage, 2);
	}
}

/* ---------------------------------------------------------------- faults */

/* One of the calls that allocate or read; what it made is released. */
static int act(int what, const char *dir, struct ckpt_err *err)
{
	char path[4096];
	struct ckpt_setup setup = { .size = sizeof(setup), .gpus = 3, .stage = 3 };
	static struct ckpt_estimate est;
	struct ckpt_model *model = NULL;
	int rc;

	snprintf(path, sizeof(path), "%s/%s", dir, what == 3 ? "ds.json" : "config.json");
	if (what == 0)
		rc = ckpt_model_from_config(path, &model, err);
	else if (what == 1)
		rc = ckpt_model_from_count(UINT64_C(3000000000), &model, err);
	else if (what == 2)
		rc = ckpt_model_from_name("qwen3-0.6b", &model, err);
	else
		return ckpt_setup_read(path, &setup, NULL, err);
	if (!rc)
		rc = ckpt_estimate(model, &setup, &est, err);
	else
		assert_null(model);
	ckpt_model_free(model);
	return rc;
}

static void every_failing_call_is_told_and_nothing_leaks(void **state)
{
	static const char config[] = "{ \"model_type\": \"gpt2\", \"vocab_size\": 5, \"n_embd\": "
		"6, \"n_layer\": 40, \"n_head\": 3, \"n_positions\": 2 }";
	static const char ds[] = "{ \"zero_optimization\": { \"stage\": 2 } }";
	char *dir = t_dir_new(), *path = t_fmt("%s/config.json", dir);
	long failed = 0;

	(void)state;
	t_file_write(path, config, strlen(config));
	free(path);
	path = t_fmt("%s/ds.json", dir);
	t_file_write(path, ds, strlen(ds));
	t_fault_install();
	for (int what = 0; what < 8; what++)	/* each of four, in two ways */
		for (long n = 1;; n++) {
			const long blocks = t_fault_blocks(), fds = t_fault_fds();
			struct ckpt_err err = { 0 };
			int rc;

			t_fault_arm(what % 2 ? T_FAULT_MEMORY : T_FAULT_IO, n, false);
			rc = act(what / 2, dir, &err);
			if (t_fault_blocks() != blocks || t_fault_fds() != fds)
				fail_msg("call %ld of %d leaks", n, what);
			if (!t_fault_fired()) {
				assert_int_equal(rc, 0);
				break;
			}
			if (rc && (rc != -(int)err.code || !err.msg[0]))
				fail_msg("call %ld of %d: %d, %s", n, what, rc, err.msg);
			failed += rc != 0;
		}
	t_fault_arm(T_FAULT_IO, 0, false);
	t_fault_remove();
	assert_true(failed > 40);
	t_dir_remove(dir);
	free(path);
	free(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_models_have_their_numbers_of_parameters),
		cmocka_unit_test(published_models_with_experts_have_totals_and_active_parameters),
		cmocka_unit_test(models_with_experts_have_the_parameters_that_transformers_makes),
		cmocka_unit_test(architectures_have_the_parameters_that_transformers_makes),
		cmocka_unit_test(a_number_near_a_published_model_has_its_shape_and_its_own_sum),
		cmocka_unit_test(a_number_far_from_all_has_no_shape_and_no_activations),
		cmocka_unit_test(configs_that_cannot_be_counted_are_refused_with_the_reason),
		cmocka_unit_test(a_configuration_is_read_as_deepspeed_reads_it),
		cmocka_unit_test(what_a_configuration_leaves_open_stays_as_it_is),
		cmocka_unit_test(configurations_that_are_none_are_refused),
		cmocka_unit_test(every_failing_call_is_told_and_nothing_leaks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
