/*
 * The estimate of memory. If a term is wrong, a run that was planned is killed for lack of memory
 * after hours in a queue, or GPUs are paid for that were not needed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/include/ckpt_zero.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_estimate.h"

#define COMMON "'vocab_size': 301, 'hidden_size': 64, 'num_hidden_layers': 3, " \
	"'num_attention_heads': 4, 'intermediate_size': 171, 'num_key_value_heads': 2"
#define ALL CKPT_PHASE_ALL
#define GB UINT64_C(1000000000)

/* ---------------------------------------------------------------- states */

/* The worked examples that people know: 7 billion parameters in fp32, and ZeRO on 4 GPUs. */
static void textbook_numbers_come_out(void **state)
{
	struct ckpt_model *model = t_est_counted(7 * GB);
	struct ckpt_estimate *est = t_est_of(model, (struct ckpt_setup){ .gpus = 1,
								  .dtype = CKPT_F32 });

	(void)state;
	assert_int_equal(t_est_gpu(est, "parameters", ALL), 28 * GB);
	assert_int_equal(t_est_gpu(est, "gradients", CKPT_PHASE_STEP), 28 * GB);
	assert_int_equal(t_est_gpu(est, "moments", ALL), 56 * GB);
	assert_false(t_est_has(est, CKPT_PLACE_GPU, "masters"));
	free(est);
	est = t_est_of(model, (struct ckpt_setup){ .gpus = 4, .stage = 1, .dtype = CKPT_BF16 });
	assert_int_equal(t_est_gpu(est, "parameters", ALL), 14 * GB);
	assert_int_equal(t_est_gpu(est, "moments", ALL), 14 * GB);
	assert_int_equal(t_est_gpu(est, "masters", ALL), 7 * GB);
	free(est);
	est = t_est_of(model, (struct ckpt_setup){ .gpus = 4, .stage = 2 });
	assert_int_equal(t_est_gpu(est, "gradients of the partition",
			     CKPT_PHASE_LAYER | CKPT_PHASE_END), 7 * GB / 2);
	free(est);
	ckpt_model_free(model);
	model = t_est_counted(8 * GB);
	est = t_est_of(model, (struct ckpt_setup){ .gpus = 1 });
	assert_int_equal(t_est_gpu(est, "parameters", ALL), 16 * GB);
	assert_int_equal(t_est_gpu(est, "gradients", CKPT_PHASE_STEP), 16 * GB);
	assert_int_equal(t_est_gpu(est, "moments", ALL), 64 * GB);
	free(est);
	ckpt_model_free(model);
}

/* One layer of 64, vocabulary 301: embedding 19264, layer 0 ..., see the list in the test. */
static const char small[] = "{ 'model_type': 'llama', " COMMON ", 'tie_word_embeddings': false }";

/* q, k, v, o, gate, up, down, two norms. */
static const uint64_t layer[] = { 4096, 2048, 2048, 4096, 10944, 10944, 10944, 64, 64 };

/* Sums over the parameters of 'small', as ckpt_zero.h cuts each. */
static uint64_t small_sum(uint32_t world, uint64_t at_most)
{
	uint64_t sum = 2 * (19264 <= at_most ? ckpt_z3_part_numel(19264, world) : 0);

	sum += 64 <= at_most ? ckpt_z3_part_numel(64, world) : 0;
	for (int i = 0; i < 3; i++)
		for (size_t k = 0; k < sizeof(layer) / sizeof(layer[0]); k++)
			sum += layer[k] <= at_most ? ckpt_z3_part_numel(layer[k], world) : 0;
	return sum;
}

static void every_rank_has_its_padding_at_stages_1_and_2(void **state)
{
	static const uint32_t worlds[] = { 1, 2, 3, 7, 8, 64, 4096 };
	struct ckpt_model *model = t_est_model(small);

	(void)state;
	for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
		const uint64_t n = small_sum(1, UINT64_MAX);
		const uint64_t part = ckpt_z12_part_numel(n, worlds[i], 2);
		struct ckpt_estimate *est = t_est_of(model, (struct ckpt_setup){
			.stage = 2, .gpus = worlds[i] });

		assert_int_equal(t_est_gpu(est, "parameters", ALL), 2 * part * worlds[i]);
		assert_int_equal(t_est_gpu(est, "masters", ALL), 4 * part);
		assert_int_equal(t_est_gpu(est, "moments", ALL), 8 * part);
		assert_int_equal(est->save.files, worlds[i] + 1);
		assert_int_equal(est->save.model_bytes, 2 * part * worlds[i]);
		assert_int_equal(est->save.optim_bytes, 12 * part + 4);
		free(est);
	}
	ckpt_model_free(model);
}

static void every_parameter_has_its_padding_at_stage_3(void **state)
{
	static const uint32_t worlds[] = { 1, 2, 3, 7, 8, 64, 4096 };
	struct ckpt_model *model = t_est_model(small);

	(void)state;
	for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
		const uint64_t part = small_sum(worlds[i], UINT64_MAX);
		struct ckpt_estimate *est = t_est_of(model, (struct ckpt_setup){
			.stage = 3, .gpus = worlds[i], .persistence = 2048 });

		assert_int_equal(t_est_gpu(est, "parameters of the partition", ALL), 2 * part);
		assert_int_equal(t_est_gpu(est, "gradients of the partition", ALL), 2 * part);
		assert_int_equal(t_est_gpu(est, "masters", ALL), 4 * part);
		assert_int_equal(t_est_gpu(est, "moments", ALL), 8 * part);
		if (worlds[i] == 1)	/* the part of one rank is the parameter */
			assert_false(t_est_has(est, CKPT_PLACE_GPU,
					       "small parameters, kept gathered"));
		else
			assert_int_equal(t_est_gpu(est, "small parameters, kept gathered", ALL),
					 2 * small_sum(1, 2048));
		assert_int_equal(t_est_gpu(est, "sub-group gradients in fp32", CKPT_PHASE_STEP),
				 4 * part);
		assert_int_equal(est->save.files, 2 * worlds[i]);
		assert_int_equal(est->save.model_bytes, 0);
		assert_int_equal(est->save.optim_bytes, 12 * part + 4);
		free(est);
	}
	ckpt_model_free(model);
}

/* Sub-groups bound the copy in fp32, and have a counter each in a save. */
static void sub_groups_bound_the_gradients_of_a_step(void **state)
{
	struct ckpt_model *model = t_est_model(small);
	struct ckpt_estimate *est = t_est_of(model, (struct ckpt_setup){
		.stage = 3, .gpus = 2, .sub_group = 1 });

	(void)state;
	assert_int_equal(t_est_gpu(est, "sub-group gradients in fp32", CKPT_PHASE_STEP),
			 4 * 19264 / 2);
	assert_int_equal(est->save.optim_bytes, 12 * small_sum(2, UINT64_MAX) + 4 * 30);
	free(est);
	ckpt_model_free(model);
}

/* What is used again soon stays: with a distance of 1, the last module only. */
static void the_reuse_distance_decides_what_stays_gathered(void **state)
{
	const unsigned when = CKPT_PHASE_LOSS | CKPT_PHASE_LAYER;
	struct ckpt_model *model = t_est_model(small);
	struct ckpt_estimate *est = t_est_of(model, (struct ckpt_setup){
		.stage = 3, .gpus = 2, .persistence = 1, .max_reuse = 1 });

	(void)state;
	assert_int_equal(t_est_gpu(est, "gathered parameters", when), 2 * 19264);
	free(est);
	est = t_est_of(model, (struct ckpt_setup){ .stage = 3, .gpus = 2, .persistence = 1 });
	assert_int_equal(t_est_gpu(est, "gathered parameters", when), 2 * small_sum(1, UINT64_MAX));
	free(est);
	est = t_est_of(model, (struct ckpt_setup){ .stage = 3, .gpus = 2, .persistence = 1,
						    .max_reuse = 2 * 19264 + 2 });
	assert_int_equal(t_est_gpu(est, "gathered parameters", when), 2 * (19264 + 64));
	free(est);
	ckpt_model_free(model);
}

static void offload_moves_states_and_pins_in_powers_of_two(void **state)
{
	struct ckpt_model *model = t_est_model(small);
	const uint64_t part = ckpt_z12_part_numel(small_sum(1, UINT64_MAX), 8, 2);
	uint64_t pinned = 1;
	struct ckpt_setup setup = { .stage = 2, .gpus = 16, .gpus_per_node = 8,
				    .offload = CKPT_OFFLOAD_OPTIMIZER };
	struct ckpt_estimate *est;

	(void)state;
	setup.gpus = 8;
	est = t_est_of(model, setup);
	while (pinned < 4 * part)
		pinned *= 2;
	assert_true(pinned > 4 * part);
	assert_int_equal(t_est_term(est, CKPT_PLACE_HOST, "masters", ALL), 8 * pinned);
	assert_int_equal(t_est_term(est, CKPT_PLACE_HOST, "gradients in fp32", ALL), 8 * pinned);
	assert_int_equal(t_est_term(est, CKPT_PLACE_HOST, "moments", ALL), 8 * 8 * part);
	assert_false(t_est_has(est, CKPT_PLACE_GPU, "masters"));
	assert_false(t_est_has(est, CKPT_PLACE_GPU, "moments"));
	free(est);
	setup.no_pin = 1;
	est = t_est_of(model, setup);
	assert_int_equal(t_est_term(est, CKPT_PLACE_HOST, "masters", ALL), 8 * 4 * part);
	free(est);
	setup.stage = 3;
	setup.offload |= CKPT_OFFLOAD_PARAMS;
	est = t_est_of(model, setup);
	assert_false(t_est_has(est, CKPT_PLACE_GPU, "parameters of the partition"));
	assert_int_equal(t_est_term(est, CKPT_PLACE_HOST, "parameters", ALL),
			 8 * 2 * small_sum(8, UINT64_MAX));
	free(est);
	ckpt_model_free(model);
}

/*
 * Bytes that PyTorch 2.11 had allocated on an H200 on top of the weights of a model of
 * transformers 5.17 in bf16: behind the forward pass, and at the peak of the backward pass.
 */
static const struct measured {
	const char *type;
	int h, layers, inter, heads, kv, d, vocab, micro, seq, recompute, matrix;
	uint64_t kept, peak;
} measured[] = {
	{ "llama", 2048, 8, 8192, 32, 8, 64, 128256, 1, 4096, 0, 0, 5730788352, 9933447680 },
	{ "llama", 2048, 8, 8192, 32, 8, 64, 128256, 1, 4096, 1, 0, 2303804416, 6506463744 },
	{ "llama", 2048, 16, 8192, 32, 8, 64, 32000, 2, 2048, 0, 0, 7714439680, 8762982912 },
	{ "llama", 2048, 16, 8192, 32, 8, 64, 32000, 2, 2048, 0, 1, 33878491648, 35875971584 },
	{ "llama", 2048, 16, 8192, 32, 8, 64, 32000, 2, 2048, 1, 0, 860422656, 2602743296 },
	{ "qwen2", 3584, 6, 18944, 28, 4, 128, 152064, 1, 4096, 0, 0, 8151489536, 13134289408 },
	{ "qwen2", 3584, 6, 18944, 28, 4, 128, 152064, 1, 4096, 1, 0, 2787197952, 7769997824 },
	{ "qwen3", 4096, 6, 12288, 32, 8, 128, 151936, 1, 4096, 0, 0, 7917788160, 12896393728 },
	{ "qwen3", 4096, 6, 12288, 32, 8, 128, 151936, 1, 4096, 1, 0, 2827043840, 7805649408 },
	{ "qwen3", 1024, 12, 3072, 16, 8, 128, 1024, 4, 1024, 0, 0, 3582390784, 3634772480 },
	{ "qwen3", 1024, 12, 3072, 16, 8, 128, 1024, 4, 1024, 1, 0, 151577088, 716409344 },
};

static struct ckpt_model *measured_model(const struct measured *r)
{
	char *text = t_fmt("{ 'model_type': '%s', 'hidden_size': %d, 'num_hidden_layers': %d, "
			   "'intermediate_size': %d, 'num_attention_heads': %d, "
			   "'num_key_value_heads': %d, 'head_dim': %d, 'vocab_size': %d }", r->type,
			   r->h, r->layers, r->inter, r->heads, r->kv, r->d, r->vocab);
	struct ckpt_model *model = t_est_model(text);

	free(text);
	return model;
}

/* Weights, masters, moments and CUDA stand beside what was measured. */
static uint64_t largest_pass(const struct ckpt_estimate *est)
{
	uint64_t most = 0;

	for (int i = 0; i < 3; i++)
		most = est->phase_bytes[i] > most ? est->phase_bytes[i] : most;
	return most - t_est_gpu(est, "parameters", ALL) - t_est_gpu(est, "masters", ALL) -
	       t_est_gpu(est, "moments", ALL) -
	       t_est_gpu(est, "CUDA context, libraries, NCCL", ALL);
}

static void within_one_percent(size_t row, const char *what, uint64_t said, uint64_t measured_bytes)
{
	const uint64_t off = said > measured_bytes ? said - measured_bytes : measured_bytes - said;

	if (off > measured_bytes / 100)
		fail_msg("row %zu: %s is %" PRIu64 ", %" PRIu64 " was measured", row, what, said,
			 measured_bytes);
}

static void activations_are_within_one_percent_of_what_a_gpu_allocated(void **state)
{
	const unsigned both = CKPT_PHASE_LOSS | CKPT_PHASE_LAYER;

	(void)state;
	for (size_t i = 0; i < sizeof(measured) / sizeof(measured[0]); i++) {
		const struct measured *r = &measured[i];
		struct ckpt_model *model = measured_model(r);
		struct ckpt_estimate *est = t_est_of(model, (struct ckpt_setup){
			.micro = (uint64_t)r->micro, .sequence = (uint64_t)r->seq,
			.recompute = (uint32_t)r->recompute,
			.attention_matrix = (uint32_t)r->matrix });
		const char *layers = r->recompute ? "inputs of the layers" : "activations";
		uint64_t kept = t_est_gpu(est, layers, both);

		/* one of three matrices of logits is there behind the forward pass */
		kept += t_est_gpu(est, "logits and their gradients", CKPT_PHASE_LOSS) / 3;
		kept += t_est_gpu(est, "final norm", CKPT_PHASE_LOSS);
		within_one_percent(i, "what is kept", kept, r->kept);
		within_one_percent(i, "the peak", largest_pass(est), r->peak);
		free(est);
		ckpt_model_free(model);
	}
}

/* ---------------------------------------------------------------- sums */

static void a_phase_is_the_sum_of_its_terms_and_the_largest_is_the_peak(void **state)
{
	struct ckpt_model *model = t_est_named("qwen2.5-7b");

	(void)state;
	for (unsigned i = 0; i < 64; i++) {
		struct ckpt_setup setup = {
			.stage = i % 4, .gpus = i & 4 ? 8 : 1, .micro = i & 8 ? 4 : 1,
			.recompute = i >> 4 & 1, .accumulation = i & 32 ? 4 : 1,
			.offload = i % 4 == 3 && i & 8 ? CKPT_OFFLOAD_OPTIMIZER : 0,
		};
		struct ckpt_estimate *est = t_est_of(model, setup);
		uint64_t sum[CKPT_NPHASES] = { 0 }, host = 0, most = 0;

		for (uint32_t k = 0; k < est->nterms; k++) {
			assert_true(est->term[k].bytes > 0 && est->term[k].name[0]);
			assert_true(est->term[k].formula[0] &&
				    strlen(est->term[k].formula) < 159);
			if (est->term[k].place == CKPT_PLACE_HOST)
				host += est->term[k].bytes;
			for (unsigned j = 0; j < CKPT_NPHASES; j++)
				if (est->term[k].place == CKPT_PLACE_GPU &&
				    est->term[k].phases >> j & 1)
					sum[j] += est->term[k].bytes;
		}
		for (unsigned j = 0; j < CKPT_NPHASES; j++) {
			assert_int_equal(sum[j], est->phase_bytes[j]);
			most = sum[j] > most ? sum[j] : most;
			if (est->peak == 1u << j)
				assert_int_equal(sum[j], est->gpu_bytes);
		}
		assert_int_equal(most, est->gpu_bytes);
		assert_int_equal(host, est->host_bytes);
		assert_int_equal(!!host, !!setup.offload);
		assert_true(est->nterms < CKPT_MAX_TERMS);
		free(est);
	}
	ckpt_model_free(model);
}

/* A wide net and samples as long as there can be: sums that are too large stay too large. */
static void numbers_beyond_reason_do_not_wrap_around(void **state)
{
	struct ckpt_model *model = t_est_model("{ 'model_type': 'llama', 'vocab_size': 16777216, "
		"'hidden_size': 1048576, 'num_hidden_layers': 9, 'num_attention_heads': 1048576, "
		"'head_dim': 1, 'intermediate_size': 4194304 }");
	uint64_t before = 0;

	(void)state;
	for (uint64_t n = 1; n <= 1 << 24; n *= 16) {
		struct ckpt_estimate *est = t_est_of(model, (struct ckpt_setup){ .stage = 3,
			.gpus = 4096, .gpus_per_node = 4096, .micro = n, .sequence = n,
			.attention_matrix = 1, .offload = CKPT_OFFLOAD_OPTIMIZER });

		assert_true(est->gpu_bytes >= before);
		assert_true(est->host_bytes > UINT64_C(1) << 45);
		assert_true(est->save.resume_same > UINT64_C(1) << 46);
		before = est->gpu_bytes;
		free(est);
	}
	ckpt_model_free(model);
}

static void setups_that_do_not_exist_are_refused(void **state)
{
	static const struct ckpt_setup bad[] = {
		{ .stage = 4 }, { .gpus = 4097 }, { .dtype = CKPT_I8 },
		{ .dtype = CKPT_F32, .grad_dtype = CKPT_BF16 },
		{ .offload = CKPT_OFFLOAD_OPTIMIZER },
		{ .stage = 2, .offload = CKPT_OFFLOAD_OPTIMIZER | CKPT_OFFLOAD_PARAMS },
		{ .micro = UINT64_C(1) << 40 }, { .sequence = UINT64_C(1) << 40 },
		{ .stage = 1, .max_reuse = UINT64_MAX },
	};
	struct ckpt_model *model = t_est_named("qwen3-0.6b"), *none = t_est_counted(5);
	struct ckpt_estimate *est = t_alloc(sizeof(*est));
	struct ckpt_err err = { 0 };
	struct ckpt_setup setup;

	(void)state;
	memset(est, 0x5a, sizeof(*est));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		setup = bad[i];
		setup.size = sizeof(setup);
		if (ckpt_estimate(model, &setup, est, &err) != -CKPT_E_USAGE)
			fail_msg("setup %zu is taken", i);
		memset(&err, 0, sizeof(err));
	}
	setup = (struct ckpt_setup){ .size = sizeof(setup), .reduce_bucket = UINT64_MAX };
	assert_int_equal(ckpt_estimate(model, &setup, est, NULL), 0);
	memset(est, 0x5a, sizeof(*est));
	assert_int_equal(ckpt_estimate(none, &setup, est, NULL), -CKPT_E_USAGE);
	setup.size = 0;
	assert_int_equal(ckpt_estimate(model, &setup, est, NULL), -CKPT_E_USAGE);
	assert_int_equal(ckpt_estimate(NULL, &setup, est, NULL), -CKPT_E_USAGE);
	assert_int_equal(est->gpu_bytes, UINT64_C(0x5a5a5a5a5a5a5a5a));
	free(est);
	ckpt_model_free(none);
	ckpt_model_free(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(textbook_numbers_come_out),
		cmocka_unit_test(every_rank_has_its_padding_at_stages_1_and_2),
		cmocka_unit_test(every_parameter_has_its_padding_at_stage_3),
		cmocka_unit_test(sub_groups_bound_the_gradients_of_a_step),
		cmocka_unit_test(the_reuse_distance_decides_what_stays_gathered),
		cmocka_unit_test(offload_moves_states_and_pins_in_powers_of_two),
		cmocka_unit_test(activations_are_within_one_percent_of_what_a_gpu_allocated),
		cmocka_unit_test(a_phase_is_the_sum_of_its_terms_and_the_largest_is_the_peak),
		cmocka_unit_test(numbers_beyond_reason_do_not_wrap_around),
		cmocka_unit_test(setups_that_do_not_exist_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
