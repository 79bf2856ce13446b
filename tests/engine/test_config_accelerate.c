/*
 * Accelerate files beyond those of users: what is refused and why, what the launch gets, and
 * what the one screen says of it all.
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

#include "engine/config/en_config.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/torture/t_fault.h"

#define DS "distributed_type: DEEPSPEED\nnum_processes: 2\n"

static int resolve(struct en_config *cfg, const char *text, struct ckpt_err *err)
{
	const struct en_facts facts = { .world = 2, .has = EN_HAS_MICRO, .micro_batch = 4 };
	int rc;

	en_config_init(cfg, EN_DS_0_19);
	rc = en_config_parse_accelerate(cfg, text, strlen(text), "t.yaml", 0, err);
	return rc ? rc : en_config_resolve(cfg, &facts, err);
}

static const struct {
	const char *text, *path;
	enum en_ruling ruling;
	bool theirs;
	enum ckpt_code code;
	const char *says;
} rules[] = {
	{ "distributed_type: FSDP\nnum_processes: 2\n", "distributed_type", EN_REFUSED, false,
	  CKPT_E_UNSUPPORTED, "zero_stage 3" },
	{ "distributed_type: MULTI_GPU\nnum_processes: 2\n", "distributed_type", EN_REFUSED, false,
	  CKPT_E_UNSUPPORTED, "zero_stage 0" },
	{ "distributed_type: MEGATRON_LM\nnum_processes: 2\n", "distributed_type", EN_REFUSED,
	  false, CKPT_E_UNSUPPORTED, "DEEPSPEED" },
	{ DS "compute_environment: AMAZON_SAGEMAKER\n", "compute_environment", EN_REFUSED, false,
	  CKPT_E_UNSUPPORTED, "machines" },
	{ DS "mixed_precision: fp8\n", "mixed_precision", EN_REFUSED, false, CKPT_E_UNSUPPORTED,
	  "--fp8" },
	{ DS "mixed_precision: half\n", "mixed_precision", EN_REFUSED, true, CKPT_E_UNSUPPORTED,
	  "expected" },
	{ DS "mixed_precision: no\n", "mixed_precision", EN_USED, false, 0, "without quotes" },
	{ DS "mixed_precision: 'no'\n", "mixed_precision", EN_USED, false, 0, "" },
	{ DS "fp16: true\n", "fp16", EN_USED, false, 0, "deprecated" },
	{ DS "fsdp_config:\n  fsdp_offload_params: true\n", "fsdp_config", EN_NO_EFFECT, false, 0,
	  "not FSDP" },
	{ DS "parallelism_config:\n  tp_size: 2\n", "parallelism_config", EN_REFUSED, true,
	  CKPT_E_UNSUPPORTED, "FSDP 2" },
	{ DS "parallelism_config: {}\n", "parallelism_config", EN_NO_EFFECT, false, 0, "" },
	{ DS "gpu_ids: 0,1\n", "gpu_ids", EN_NO_EFFECT, false, 0, "CUDA_VISIBLE_DEVICES" },
	{ DS "mixed_precison: bf16\n", "mixed_precison", EN_REFUSED, true, CKPT_E_CORRUPT,
	  "did you mean \"mixed_precision\"?" },
	{ DS "zero_stage: 3\n", "zero_stage", EN_REFUSED, true, CKPT_E_CORRUPT,
	  "under deepspeed_config" },
	{ DS "deepspeed_config: 3\n", "deepspeed_config", EN_REFUSED, true, CKPT_E_CORRUPT,
	  "mapping" },
	{ DS "deepspeed_config:\n  zero_stage: three\n", "deepspeed_config.zero_stage", EN_REFUSED,
	  true, CKPT_E_CORRUPT, "whole number" },
	{ DS "deepspeed_config:\n  zero_stage: 4\n", "zero_optimization.stage", EN_REFUSED, true,
	  CKPT_E_CORRUPT, "0, 1, 2 or 3" },
	{ DS "deepspeed_config:\n  zero_stage: '3'\n", "deepspeed_config.zero_stage", EN_USED,
	  false, 0, "" },
	{ DS "deepspeed_config:\n  gradient_clipping: high\n", "deepspeed_config.gradient_clipping",
	  EN_REFUSED, true, CKPT_E_CORRUPT, "number" },
	{ DS "deepspeed_config:\n  gradient_clipping: 0\n", "deepspeed_config.gradient_clipping",
	  EN_NO_EFFECT, true, 0, "drops a 0" },
	{ DS "deepspeed_config:\n  offload_optimizer_device: gpu\n",
	  "zero_optimization.offload_optimizer.device", EN_REFUSED, true, CKPT_E_CORRUPT, "cpu" },
	{ DS "deepspeed_config:\n  zero_stag: 3\n", "deepspeed_config.zero_stag", EN_IGNORED, true,
	  0, "did you mean \"zero_stage\"?" },
	{ DS "deepspeed_config:\n  stage3_gather_16bit_weights_on_model_save: true\n",
	  "deepspeed_config.stage3_gather_16bit_weights_on_model_save", EN_IGNORED, true, 0,
	  "zero3_save_16bit_model" },
	{ DS "deepspeed_config:\n  deepspeed_multinode_launcher: pdsh\n",
	  "deepspeed_config.deepspeed_multinode_launcher", EN_NO_EFFECT, false, 0, "mpirun" },
	{ "distributed_type: DEEPSPEED\nnum_processes: -1\n", "num_processes", EN_REFUSED, true,
	  CKPT_E_USAGE, "not given" },
	{ "distributed_type: DEEPSPEED\nnum_processes: two\n", "num_processes", EN_REFUSED, true,
	  CKPT_E_CORRUPT, "number" },
	{ "distributed_type: DEEPSPEED\nnum_processes: 4\n", "num_processes", EN_REFUSED, false,
	  CKPT_E_MISMATCH, "2 ranks were started" },
	{ DS "num_machines: 3\n", "num_processes", EN_REFUSED, false, CKPT_E_MISMATCH,
	  "divided over 3 machines" },
	{ DS "num_machines: 2\nmachine_rank: 2\n", "machine_rank", EN_REFUSED, false,
	  CKPT_E_MISMATCH, "below 2, the number of machines" },
	{ DS "main_process_port: -5\n", "main_process_port", EN_REFUSED, true, CKPT_E_CORRUPT,
	  "0 or more" },
};

static void every_rule_has_its_verdict(void **state)
{
	(void)state;
	if (!en_node_has_yaml())
		skip();
	for (size_t i = 0; i < CK_ARRAY_LEN(rules); i++) {
		struct ckpt_err err = { 0 };
		struct en_config cfg;
		const struct en_verdict *v;
		const int rc = resolve(&cfg, rules[i].text, &err);

		v = en_config_verdict(&cfg, rules[i].path);
		if (!v || v->ruling != rules[i].ruling || v->theirs != rules[i].theirs ||
		    v->code != rules[i].code || !strstr(v->why, rules[i].says))
			fail_msg("%s: %s is %d, theirs %d, %d: %s", rules[i].text, rules[i].path,
				 v ? (int)v->ruling : 0, v ? v->theirs : 0, v ? (int)v->code : 0,
				 v ? v->why : "");
		if (rc != -(int)rules[i].code)
			fail_msg("%s: %d, %s", rules[i].text, rc, err.msg);
		en_config_release(&cfg);
	}
}

/* Under the Trainer an "auto" of the YAML is the Trainer's to fill in; accelerate alone fails on
 * it. */
static void the_trainer_runs_on_top_of_accelerate(void **state)
{
	static const char text[] = DS "deepspeed_config:\n  zero_stage: 2\n"
		"  gradient_accumulation_steps: auto\n  gradient_clipping: auto\n";
	struct en_facts facts = {
		.world = 2, .filler = EN_FILL_TRAINER, .micro_batch = 3, .accumulation = 5,
		.max_grad_norm = 0.25,
		.has = EN_HAS_MICRO | EN_HAS_ACCUMULATION | EN_HAS_MAX_GRAD_NORM,
	};
	struct ckpt_err err = { 0 };
	struct en_config cfg;

	(void)state;
	if (!en_node_has_yaml())
		skip();
	assert_int_equal(resolve(&cfg, text, &err), -CKPT_E_CORRUPT);
	assert_non_null(strstr(err.msg, "deepspeed_config.gradient_accumulation_steps"));
	en_config_release(&cfg);
	en_config_init(&cfg, EN_DS_0_19);
	assert_int_equal(en_config_parse_accelerate(&cfg, text, strlen(text), "t.yaml", 0, NULL),
			 0);
	assert_int_equal(en_config_resolve(&cfg, &facts, NULL), 0);
	assert_int_equal(cfg.set.train_batch, 30);
	assert_int_equal(cfg.set.accumulation, 5);
	assert_true(cfg.set.gradient_clipping == 0.25);
	en_config_release(&cfg);
}

static void a_build_without_yaml_says_so(void **state)
{
	struct ckpt_err err = { 0 };
	struct en_config cfg;

	(void)state;
	if (en_node_has_yaml())
		return;		/* the others look at this build */
	assert_int_equal(resolve(&cfg, DS, &err), -CKPT_E_UNSUPPORTED);
	assert_non_null(strstr(err.msg, "libyaml"));
	en_config_release(&cfg);
}

static void a_deepspeed_file_that_is_not_there_is_named(void **state)
{
	struct ckpt_err err = { 0 };
	struct en_config cfg;

	(void)state;
	if (!en_node_has_yaml())
		skip();
	assert_int_equal(resolve(&cfg,
				 DS "deepspeed_config:\n  deepspeed_config_file: no/such.json\n",
				 &err),
			 -CKPT_E_NOTFOUND);
	assert_string_equal(err.where, "no/such.json");
	en_config_release(&cfg);
}

/* The screen of a file with a DeepSpeed file of its own, line by line. */
static void the_screen_says_all_of_it(void **state)
{
	static const char *const want[] = {
		"config      t.yaml (accelerate), as accelerate 1.15 and DeepSpeed 0.19.8",
		"            read it, with ds.json",
		"            HJSON, not plain JSON (comments, commas, quotes or braces):",
		"            DeepSpeed reads it, accelerate and transformers do not",
		"batch       8 samples a step = micro-batch 4 x accumulation 1 x 2 ranks,",
		"            gradients clipped to 1",
		"precision   bf16, fp32 masters, gradients summed in fp32, sent as bf16",
		"zero        stage 2",
		"optimizer   AdamW (not in the file): lr 0.001, betas 0.9 0.999, eps 1e-08,",
		"            decay 0; schedule: none in the file",
		"used        distributed_type \"DEEPSPEED\", num_processes 2,",
		"            deepspeed_config.deepspeed_config_file \"ds.json\", bf16.enabled",
		"            true",
		"no effect   steps_per_print 5: accelerate sets it to infinity: DeepSpeed",
		"            prints nothing",
		"            zero_optimization.reduce_bucket_size 5e8: ztrain reduces one",
		"            block at a time, whatever its size",
		"            zero_optimization.contiguous_gradients true: gradients of a",
		"            block are always one buffer",
		"unknown     gradient_cliping 0.5: DeepSpeed ignores it; did you mean",
		"            \"gradient_clipping\"?",
		"filled in   train_micro_batch_size_per_gpu 4 (batch size of the data",
		"            loader), zero_optimization.stage 2 (accelerate's default if the",
		"            YAML has no value)",
	};
	static const char json[] =
		"{ # c\n\"train_micro_batch_size_per_gpu\": \"auto\",\n"
		"\"bf16\": {\"enabled\": true}, \"steps_per_print\": 5, \"gradient_cliping\": "
		"0.5,\n"
		"\"zero_optimization\": {\"stage\": \"auto\", \"reduce_bucket_size\": 5e8,\n"
		"\"contiguous_gradients\": true}}\n";
	static const char text[] = DS "deepspeed_config:\n  deepspeed_config_file: ds.json\n";
	char *dir;
	const char *const *line;
	struct ckpt_err err = { 0 };
	struct en_config cfg;
	size_t n = 0;

	(void)state;
	if (!en_node_has_yaml())
		skip();
	dir = t_dir_new();
	assert_int_equal(chdir(dir), 0);
	t_file_write("ds.json", json, sizeof(json) - 1);
	if (resolve(&cfg, text, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(en_config_screen(&cfg, 76, &line, &n, &err), 0);
	assert_true(n >= CK_ARRAY_LEN(want));
	for (size_t i = 0; i < CK_ARRAY_LEN(want); i++)
		if (strcmp(line[i], want[i]) != 0)
			fail_msg("line %zu: \"%s\", not \"%s\"", i, line[i], want[i]);
	for (size_t i = 0; i < n; i++)
		assert_true(strlen(line[i]) <= 76 || !strchr(line[i] + 12, ' '));
	en_config_release(&cfg);
	assert_int_equal(chdir("/"), 0);
	t_dir_end(dir);
}

static void no_memory_is_said(void **state)
{
	static const char text[] = DS "zero_stage: 1\nmixed_precision: bf16\ndeepspeed_config:\n"
		"  zero_stage: 3\n  overlap_comm: true\n  gradient_clipping: 0\n"
		"  offload_param_device: nvme\n  offload_param_nvme_path: /n\n";
	long n;

	(void)state;
	if (!en_node_has_yaml())
		skip();
	t_fault_install();
	for (n = 1; n < 1000; n++) {
		struct ckpt_err err = { 0 };
		struct en_config cfg;
		int rc;

		t_fault_arm(T_FAULT_MEMORY, n, false);
		rc = resolve(&cfg, text, &err);
		en_config_release(&cfg);
		assert_int_equal(t_fault_blocks(), 0);
		if (!t_fault_fired())
			break;
		if (rc != -CKPT_E_NOMEM || !err.msg[0])
			fail_msg("allocation %ld: %d, %s", n, rc, err.msg);
	}
	t_fault_arm(T_FAULT_MEMORY, 0, false);
	t_fault_remove();
	assert_true(n > 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rule_has_its_verdict),
		cmocka_unit_test(the_trainer_runs_on_top_of_accelerate),
		cmocka_unit_test(a_build_without_yaml_says_so),
		cmocka_unit_test(a_deepspeed_file_that_is_not_there_is_named),
		cmocka_unit_test(the_screen_says_all_of_it),
		cmocka_unit_test(no_memory_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
