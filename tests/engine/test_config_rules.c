/*
 * Rules that the files of users do not reach: what is refused and by whom, what an "auto" needs,
 * what hangs together, and the screen that says all of it. A key that is dropped in silence is the
 * one that costs a week of training.
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

#include "engine/config/en_config.h"
#include "engine/config/keys/en_keys.h"
#include "tests/lib/torture/t_fault.h"

static int resolve(struct en_config *cfg, const char *text, const struct en_facts *facts,
		   struct ckpt_err *err)
{
	int rc;

	en_config_init(cfg, EN_DS_0_19);
	rc = en_config_parse_deepspeed(cfg, text, strlen(text), "t.json", err);
	return rc ? rc : en_config_resolve(cfg, facts, err);
}

static const struct en_verdict *of(const struct en_config *cfg, const char *path)
{
	const struct en_verdict *v = en_config_verdict(cfg, path);

	if (!v)
		fail_msg("%s has no verdict", path);
	return v;
}

#define B "\"train_batch_size\": 8, "
#define Z(x) "{" B "\"zero_optimization\": {" x "}}"
#define SCHED(t, p) "{" B "\"scheduler\": {\"type\": \"" t "\", \"params\": {" p "}}}"
#define OPT(t, p) "{" B "\"optimizer\": {\"type\": \"" t "\", \"params\": {" p "}}}"

static const struct {
	const char *text, *path;
	enum en_ruling ruling;
	bool theirs;
	enum ckpt_code code;
	const char *says;
} rules[] = {
	/* features that are not here */
	{ "{" B "\"tensor_parallel\": {\"autotp_size\": 2}}", "tensor_parallel", EN_REFUSED, false,
	  CKPT_E_UNSUPPORTED, "data-parallel only" },
	{ "{" B "\"data_efficiency\": {\"enabled\": true}}", "data_efficiency", EN_REFUSED, false,
	  CKPT_E_UNSUPPORTED, "samples" },
	{ "{" B "\"data_efficiency\": {\"enabled\": false}}", "data_efficiency", EN_NO_EFFECT,
	  false, 0, "off" },
	{ "{" B "\"prescale_gradients\": true}", "prescale_gradients", EN_REFUSED, false,
	  CKPT_E_UNSUPPORTED, "divided once" },
	{ "{" B "\"prescale_gradients\": false}", "prescale_gradients", EN_USED, false, 0,
	  "default" },
	{ "{" B "\"gradient_allreduce_op\": \"sum\"}", "gradient_allreduce_op", EN_REFUSED, false,
	  CKPT_E_UNSUPPORTED, "averaged" },
	{ Z("\"stage\": 2, \"load_from_fp32_weights\": false"),
	  "zero_optimization.load_from_fp32_weights", EN_REFUSED, false, CKPT_E_UNSUPPORTED,
	  "bits" },
	{ Z("\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.5}"),
	  "zero_optimization.offload_optimizer.ratio", EN_REFUSED, false, CKPT_E_UNSUPPORTED,
	  "as a whole" },
	{ OPT("OneBitAdam", "\"lr\": 1"), "optimizer.type", EN_REFUSED, false, CKPT_E_UNSUPPORTED,
	  "use Adam or AdamW" },
	{ OPT("AdamW", "\"amsgrad\": true"), "optimizer.params.amsgrad", EN_REFUSED, false,
	  CKPT_E_UNSUPPORTED, "AMSGrad" },
	{ SCHED("CosineAnnealingLR", ""), "scheduler.type", EN_REFUSED, false, CKPT_E_UNSUPPORTED,
	  "WarmupCosineLR" },
	{ "{" B "\"elasticity\": {\"enabled\": false}}", "elasticity", EN_REFUSED, true,
	  CKPT_E_UNSUPPORTED, "even if it is off" },

	/* what DeepSpeed refuses as well */
	{ OPT("AdamW", "\"learning_rate\": 1"), "optimizer.params.learning_rate", EN_REFUSED, true,
	  CKPT_E_CORRUPT, "no such key here; did you mean \"optimizer.params.lr\"?" },
	{ OPT("AdamW", "\"lr\": \"3e-5\""), "optimizer.params.lr", EN_REFUSED, true, CKPT_E_CORRUPT,
	  "fails later" },
	{ OPT("AdamW", "\"betas\": [0.9]"), "optimizer.params.betas", EN_REFUSED, true,
	  CKPT_E_CORRUPT, "two numbers" },
	{ SCHED("WarmupLR", "\"total_num_steps\": 9"), "scheduler.params.total_num_steps",
	  EN_REFUSED, true, CKPT_E_CORRUPT, "WarmupLR has no such option" },
	{ SCHED("WarmupDecayLR", ""), "scheduler.params.total_num_steps", EN_REFUSED, true,
	  CKPT_E_CORRUPT, "needs" },
	{ SCHED("OneCycle", "\"cycle_min_lr\": 0.1"), "scheduler.params.cycle_max_lr", EN_REFUSED,
	  true, CKPT_E_CORRUPT, "needs" },
	{ SCHED("WarmupLR", "\"warmup_num_steps\": 0"), "scheduler.params.warmup_num_steps",
	  EN_REFUSED, true, CKPT_E_CORRUPT, "at least 1" },
	{ Z("\"stage\": 3, \"compute_grad_norm\": false"), "zero_optimization.compute_grad_norm",
	  EN_REFUSED, true, CKPT_E_CORRUPT, "stages 1 and 2" },
	{ "{" B "\"fp16\": {\"enabled\": true, \"loss_scale_window\": 0}}",
	  "fp16.loss_scale_window", EN_REFUSED, true, CKPT_E_CORRUPT, "above 0" },
	{ "{" B "\"zero_optimization\": 3}", "zero_optimization", EN_REFUSED, true, CKPT_E_CORRUPT,
	  "block of keys" },
	{ "{" B "\"fp16\": null}", "fp16", EN_REFUSED, true, CKPT_E_CORRUPT, "block of keys" },
	{ "{" B "\"communication_data_type\": \"fp8\"}", "communication_data_type", EN_REFUSED,
	  true, CKPT_E_CORRUPT, "fp32" },
	{ "{" B "\"gradient_clipping\": -1}", "gradient_clipping", EN_REFUSED, false,
	  CKPT_E_CORRUPT, "0 (no clipping) or more" },
	{ "{" B "\"train_micro_batch_size_per_gpu\": 2.5}", "train_micro_batch_size_per_gpu",
	  EN_REFUSED, true, CKPT_E_CORRUPT, "whole number" },
	{ "{\"train_batch_size\": 9000000000}", "train_batch_size", EN_REFUSED, false,
	  CKPT_E_MISMATCH, "2^31" },
	{ "{\"train_batch_size\": -8}", "train_batch_size", EN_REFUSED, true, CKPT_E_MISMATCH,
	  "above 0" },
	{ Z("\"stage\": 3, \"offload_param\": {\"device\": \"nvme\"}"),
	  "zero_optimization.offload_param", EN_REFUSED, false, CKPT_E_CORRUPT, "nvme_path" },
	{ Z("\"stage\": 2, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/n\"}"),
	  "zero_optimization.offload_optimizer", EN_REFUSED, false, CKPT_E_UNSUPPORTED, "stage 3" },

	/* what has no effect under the other settings */
	{ Z("\"stage\": 2, \"stage3_prefetch_bucket_size\": 5"),
	  "zero_optimization.stage3_prefetch_bucket_size", EN_NO_EFFECT, false, 0, "stage 3" },
	{ Z("\"stage\": 0, \"reduce_bucket_size\": 5"), "zero_optimization.reduce_bucket_size",
	  EN_NO_EFFECT, false, 0, "partitions nothing" },
	{ Z("\"stage\": 2, \"offload_param\": {\"device\": \"cpu\"}"),
	  "zero_optimization.offload_param.device", EN_NO_EFFECT, false, 0, "stage 3" },
	{ "{" B "\"aio\": {\"block_size\": 4096}}", "aio.block_size", EN_NO_EFFECT, false, 0,
	  "NVMe" },
	{ "{" B "\"bf16\": {\"enabled\": true}, \"bfloat16\": {\"enabled\": false}}", "bfloat16",
	  EN_NO_EFFECT, false, 0, "bf16" },
	{ "{" B "\"communication_data_type\": \"bf16\"}", "communication_data_type", EN_REFUSED,
	  false, CKPT_E_UNSUPPORTED, "float32" },
	{ "{" B "\"bf16\": {\"enabled\": true}, \"communication_data_type\": \"bf16\"}",
	  "communication_data_type", EN_USED, false, 0, "" },
	{ Z("\"stage\": 2, \"parameter_alignment\": true"),
	  "zero_optimization.parameter_alignment", EN_REFUSED, false, CKPT_E_UNSUPPORTED, "gaps" },

	/* what has one on GPUs only says so */
	{ Z("\"stage\": 3, \"stage3_max_live_parameters\": 5"),
	  "zero_optimization.stage3_max_live_parameters", EN_USED, false, 0, "on GPUs" },
	{ Z("\"stage\": 2, \"overlap_comm\": false"), "zero_optimization.overlap_comm", EN_USED,
	  false, 0, "on GPUs" },

	/* what has none on CPU ranks */
	{ Z("\"stage\": 2, \"reduce_bucket_size\": 5"), "zero_optimization.reduce_bucket_size",
	  EN_NO_EFFECT, false, 0, "reduces one block" },
	{ "{" B "\"data_types\": {\"grad_accum_dtype\": \"fp16\"}}", "data_types.grad_accum_dtype",
	  EN_NO_EFFECT, false, 0, "summed in fp32" },
	{ Z("\"stage\": 3, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/n\"}"),
	  "zero_optimization.offload_optimizer.device", EN_USED, false, 0, "" },
	{ Z("\"stage\": 3, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/n\"}"),
	  "zero_optimization.offload_optimizer.nvme_path", EN_USED, false, 0, "" },
	{ Z("\"stage\": 3, \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": "
	    "\"/n\"}"),
	  "zero_optimization.offload_param.device", EN_USED, false, 0, "stay in host memory" },
	{ "{" B "\"aio\": {\"block_size\": 4096}, \"zero_optimization\": {\"stage\": 3,"
	  " \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/n\"}}}",
	  "aio.block_size", EN_NO_EFFECT, false, 0, "nothing is on NVMe" },
	{ "{" B "\"aio\": {\"block_size\": 4096}, \"zero_optimization\": {\"stage\": 3, "
	  "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/n\"}}}",
	  "aio.block_size", EN_USED, false, 0, "" },
	{ Z("\"stage\": 1, \"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}"),
	  "zero_optimization.offload_optimizer.device", EN_USED, false, 0, "" },
	{ Z("\"stage\": 1, \"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}"),
	  "zero_optimization.offload_optimizer.pin_memory", EN_NO_EFFECT, false, 0, "pinned" },
	{ SCHED("WarmupLR", "\"warmup_type\": \"cubic\""), "scheduler.params.warmup_type", EN_USED,
	  false, 0, "" },
	{ "{" B "\"optimizer\": {\"params\": {\"lr\": 1}}}", "optimizer.params", EN_IGNORED, true,
	  0, "no \"type\"" },
	{ Z("\"stage\": 3, \"cpu_offload\": \"maybe\""), "zero_optimization.cpu_offload",
	  EN_REFUSED, true, CKPT_E_CORRUPT, "true or false" },
	{ Z("\"stage\": 3, \"cpu_offload\": \"auto\""), "zero_optimization.cpu_offload", EN_IGNORED,
	  true, 0, "is ignored" },
};

static void every_rule_has_its_verdict(void **state)
{
	const struct en_facts facts = { .world = 1 };

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(rules); i++) {
		struct ckpt_err err = { 0 };
		struct en_config cfg;
		const struct en_verdict *v;
		const int rc = resolve(&cfg, rules[i].text, &facts, &err);

		v = of(&cfg, rules[i].path);
		if (v->ruling != rules[i].ruling || v->theirs != rules[i].theirs ||
		    v->code != rules[i].code || !strstr(v->why, rules[i].says))
			fail_msg("%s: %s is %d, theirs %d, %s: %s", rules[i].text, rules[i].path,
				 v->ruling, v->theirs, ckpt_code_name(v->code), v->why);
		if (rc != -(int)rules[i].code)
			fail_msg("%s: %d, %s", rules[i].text, rc, err.msg);
		en_config_release(&cfg);
	}
}

/* ------------------------------------------------------------- the settings */

static void settings_are_what_the_file_says(void **state)
{
	static const char text[] =
		"{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 3,"
		"\"fp16\": {\"enabled\": true, \"initial_scale_power\": 12, \"hysteresis\": 1},"
		"\"communication_data_type\": \"FP32\", \"data_types\": {\"grad_accum_dtype\": "
		"\"half\"},"
		"\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 1e-4, \"betas\": [0.8, "
		"0.9],"
		" \"adam_w_mode\": false, \"torch_adam\": true}},"
		"\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_type\": "
		"\"linear\"}},"
		"\"zero_optimization\": {\"stage\": 3, \"stage3_max_reuse_distance\": 7,"
		" \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/n\", \"max_in_cpu\": "
		"9}},"
		"\"checkpoint\": {\"use_node_local_storage\": true}}";
	const struct en_facts facts = { .world = 5 };
	const struct en_settings *s;
	struct ckpt_err err = { 0 };
	struct en_config cfg;

	(void)state;
	assert_int_equal(resolve(&cfg, text, &facts, &err), 0);
	s = &cfg.set;
	assert_int_equal(s->train_batch, 30);
	assert_int_equal(s->world, 5);
	assert_true(s->gradient_clipping == 1);
	assert_int_equal(s->precision, EN_FP16);
	assert_int_equal(s->initial_scale_power, 12);
	assert_int_equal(s->hysteresis, 1);
	assert_true(s->loss_scale == 0);
	assert_int_equal(s->communication_dtype, CKPT_F32);
	assert_int_equal(s->grad_accum_dtype, CKPT_F16);
	assert_int_equal(s->optimizer.type, EN_OPTIMIZER_ADAM);
	assert_false(s->optimizer.adamw);
	assert_true(s->optimizer.torch && s->optimizer.one_group && s->optimizer.bias_correction);
	assert_true(s->optimizer.lr == 1e-4 && s->optimizer.beta1 == 0.8 &&
		    s->optimizer.beta2 == 0.9);
	assert_int_equal(s->schedule.type, EN_SCHEDULER_WARMUP);
	assert_true(s->schedule.warmup_linear && isnan(s->schedule.warmup_max_lr));
	assert_int_equal(s->schedule.warmup_num_steps, 1000);
	assert_int_equal(s->max_reuse_distance, 7);
	assert_true(s->overlap_comm && s->use_node_local_storage);
	assert_int_equal(s->offload_param.device, EN_DEVICE_NVME);
	assert_string_equal(s->offload_param.nvme_path, "/n");
	assert_int_equal(s->offload_param.max_in_cpu, 9);
	assert_int_equal(s->offload_optimizer.device, EN_DEVICE_NONE);
	assert_int_equal(en_config_origin(&cfg, "fp16.hysteresis")->at.from, EN_FROM_JSON);
	assert_int_equal(en_config_origin(&cfg, "train_batch_size")->at.from, EN_FROM_DERIVED);
	assert_int_equal(en_config_origin(&cfg, "fp16.min_loss_scale")->at.from, EN_FROM_DEFAULT);
	en_config_release(&cfg);
}

static void schedules_have_deepspeeds_defaults(void **state)
{
	static const struct {
		const char *text;
		enum en_ds_version version;
		enum en_scheduler_type type;
		double max_lr;		/* NAN: the optimizer's */
	} rows[] = {
		{ SCHED("WarmupLR", ""), EN_DS_0_19, EN_SCHEDULER_WARMUP, NAN },
		{ SCHED("WarmupLR", "\"warmup_max_lr\": null"), EN_DS_0_19, EN_SCHEDULER_WARMUP,
		  NAN },
		{ SCHED("WarmupLR", ""), EN_DS_0_16, EN_SCHEDULER_WARMUP, 0.001 },
		{ SCHED("WarmupLR", "\"warmup_max_lr\": 0.5"), EN_DS_0_16, EN_SCHEDULER_WARMUP,
		  0.5 },
		{ SCHED("WarmupDecayLR", "\"total_num_steps\": 9"), EN_DS_0_19,
		  EN_SCHEDULER_WARMUP_DECAY, 0.001 },
		{ SCHED("WarmupLR", "\"warmup_num_steps\": 0"), EN_DS_0_18, EN_SCHEDULER_WARMUP,
		  NAN },
		{ SCHED("OneCycle", "\"cycle_min_lr\": 0, \"cycle_max_lr\": 1"), EN_DS_0_19,
		  EN_SCHEDULER_ONE_CYCLE, NAN },
		{ SCHED("LRRangeTest", ""), EN_DS_0_19, EN_SCHEDULER_RANGE_TEST, NAN },
		{ SCHED("WarmupCosineLR", "\"total_num_steps\": 9"), EN_DS_0_19,
		  EN_SCHEDULER_WARMUP_COSINE, NAN },
	};
	const struct en_facts facts = { .world = 1 };

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(rows); i++) {
		const struct en_schedule *s;
		struct ckpt_err err = { 0 };
		struct en_config cfg;

		en_config_init(&cfg, rows[i].version);
		assert_int_equal(en_config_parse_deepspeed(&cfg, rows[i].text,
							   strlen(rows[i].text), "t", &err), 0);
		if (en_config_resolve(&cfg, &facts, &err))
			fail_msg("%s: %s", rows[i].text, err.msg);
		s = &cfg.set.schedule;
		assert_int_equal(s->type, rows[i].type);
		if (isnan(rows[i].max_lr) ? !isnan(s->warmup_max_lr) :
		    s->warmup_max_lr != rows[i].max_lr)
			fail_msg("%s: %g", rows[i].text, s->warmup_max_lr);
		assert_int_equal(s->cycle_second_step_size, -1);
		assert_int_equal(s->cycle_second_stair_count, -1);
		assert_int_equal(s->cycle_first_step_size, 2000);
		assert_true(s->cos_min_ratio == 0.0001 && s->cycle_max_mom == 0.9);
		en_config_release(&cfg);
	}
}

static void without_an_optimizer_the_caller_says_what_it_is(void **state)
{
	const struct en_facts facts = {
		.world = 1, .has = EN_HAS_LR | EN_HAS_BETAS, .lr = 0.5, .beta1 = 0.1, .beta2 = 0.2,
		.eps = 7,	/* not stated */
	};
	struct en_config cfg;

	(void)state;
	assert_int_equal(resolve(&cfg, "{" B "}", &facts, NULL), 0);
	assert_int_equal(cfg.set.optimizer.type, EN_OPTIMIZER_CLIENT);
	assert_true(cfg.set.optimizer.adamw && !cfg.set.optimizer.one_group);
	assert_true(cfg.set.optimizer.lr == 0.5 && cfg.set.optimizer.beta2 == 0.2);
	assert_true(cfg.set.optimizer.eps == 1e-8);
	en_config_release(&cfg);
}

/* -------------------------------------------------------------------- auto */

static void an_auto_that_nobody_fills_is_refused(void **state)
{
	static const char text[] = "{\"train_micro_batch_size_per_gpu\": \"auto\","
		"\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": \"auto\"}}";
	struct en_facts facts = { .world = 2, .filler = EN_FILL_TRAINER };
	struct ckpt_err err = { 0 };
	struct en_config cfg;

	(void)state;
	assert_int_equal(resolve(&cfg, text, &facts, &err), -CKPT_E_USAGE);
	assert_non_null(
		strstr(of(&cfg, "train_micro_batch_size_per_gpu")->why, "which is not given"));
	assert_non_null(
		strstr(of(&cfg, "zero_optimization.reduce_bucket_size")->why, "hidden_size"));
	assert_non_null(strstr(err.msg, "(and 1 more)"));
	assert_int_equal(cfg.set.world, 0);
	en_config_release(&cfg);
	facts.has = EN_HAS_MICRO;
	facts.micro_batch = 3;
	facts.hidden_size = 10;
	assert_int_equal(resolve(&cfg, text, &facts, NULL), 0);
	assert_int_equal(cfg.set.train_batch, 6);
	assert_int_equal(cfg.set.reduce_bucket_size, 100);
	assert_non_null(strstr(
		en_config_origin(&cfg, "zero_optimization.reduce_bucket_size")->at.why, "squared"));
	en_config_release(&cfg);
}

static void warmup_of_a_run_is_counted_or_a_part(void **state)
{
	static const char text[] = SCHED("WarmupLR", "\"warmup_num_steps\": \"auto\"");
	static const struct {
		double said;
		int64_t is;
	} rows[] = { { 10, 10 }, { 0, 1 }, { 0.1, 10 }, { 0.101, 11 }, { 0.999, 100 }, { 1, 1 } };

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(rows); i++) {
		const struct en_facts facts = {
			.world = 1, .filler = EN_FILL_TRAINER, .steps = 100,
			.has = EN_HAS_WARMUP | EN_HAS_STEPS, .warmup_steps = rows[i].said,
		};
		struct en_config cfg;

		assert_int_equal(resolve(&cfg, text, &facts, NULL), 0);
		assert_int_equal(cfg.set.schedule.warmup_num_steps, rows[i].is);
		en_config_release(&cfg);
	}
}

/* -------------------------------------------------------------------- worlds */

/* Each triple that is accepted multiplies; each that is not, does not. */
static void batches_multiply_at_every_world(void **state)
{
	(void)state;
	for (uint32_t world = 1; world <= 9; world++)
		for (unsigned tb = 0; tb <= 12; tb++)
			for (unsigned mb = 0; mb <= 4; mb++) {
				const struct en_facts facts = { .world = world };
				struct en_config cfg;
				char text[128];
				int rc;

				snprintf(text, sizeof(text), "{%s%u, %s%u}",
					 tb ? "\"train_batch_size\": " : "\"x\": ", tb,
					 mb ? "\"train_micro_batch_size_per_gpu\": " : "\"y\": ",
					 mb);
				rc = resolve(&cfg, text, &facts, NULL);
				if (!tb && !mb)
					assert_int_equal(rc, -CKPT_E_MISMATCH);
				else if (tb && tb % (world * (mb ? mb : 1)))
					assert_int_equal(rc, -CKPT_E_MISMATCH);
				else
					assert_int_equal(cfg.set.train_batch,
							 cfg.set.micro_batch *
								 cfg.set.accumulation * world);
				en_config_release(&cfg);
			}
}

static void a_world_that_is_none_is_refused(void **state)
{
	struct en_facts facts = { .world = 0 };
	struct en_config cfg;

	(void)state;
	assert_int_equal(resolve(&cfg, "{" B "}", &facts, NULL), -CKPT_E_USAGE);
	en_config_release(&cfg);
	facts.world = UINT32_MAX;
	assert_int_equal(resolve(&cfg, "{" B "}", &facts, NULL), -CKPT_E_USAGE);
	en_config_release(&cfg);
}

static void versions_have_names(void **state)
{
	(void)state;
	assert_string_equal(en_ds_version_name(EN_DS_0_16), "0.16.9");
	assert_string_equal(en_ds_version_name(EN_DS_0_18), "0.18.9");
	assert_string_equal(en_ds_version_name(EN_DS_0_19), "0.19.8");
}

/* -------------------------------------------------------------------- memory */

/* Every allocation fails once: an error with a sentence, and nothing is kept. */
static void no_memory_is_said(void **state)
{
	static const char text[] = "{" B "\"x\": 1, \"amp\": {}, \"bf16\": {\"enabled\": true},"
				   "\"zero_optimization\": {\"stage\": 3, \"zenflow\": {\"a\": 1}, "
				   "\"cpu_offload\": true}}";
	const struct en_facts facts = { .world = 3 };
	long n;

	(void)state;
	t_fault_install();
	for (n = 1; n < 1000; n++) {
		const char *const *line;
		struct ckpt_err err = { 0 };
		struct en_config cfg;
		size_t lines;
		int rc;

		t_fault_arm(T_FAULT_MEMORY, n, false);
		rc = resolve(&cfg, text, &facts, &err);
		if (rc == -CKPT_E_UNSUPPORTED || rc == -CKPT_E_MISMATCH)
			rc = en_config_screen(&cfg, 0, &line, &lines, &err);
		en_config_release(&cfg);
		assert_int_equal(t_fault_blocks(), 0);
		if (!t_fault_fired())
			break;
		if (rc && rc != -CKPT_E_NOMEM)
			fail_msg("allocation %ld: %d, %s", n, rc, err.msg);
		if (rc == -CKPT_E_NOMEM)
			assert_true(err.msg[0] != 0);
	}
	t_fault_arm(T_FAULT_MEMORY, 0, false);
	t_fault_remove();
	assert_true(n > 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rule_has_its_verdict),
		cmocka_unit_test(settings_are_what_the_file_says),
		cmocka_unit_test(schedules_have_deepspeeds_defaults),
		cmocka_unit_test(without_an_optimizer_the_caller_says_what_it_is),
		cmocka_unit_test(an_auto_that_nobody_fills_is_refused),
		cmocka_unit_test(warmup_of_a_run_is_counted_or_a_part),
		cmocka_unit_test(batches_multiply_at_every_world),
		cmocka_unit_test(a_world_that_is_none_is_refused),
		cmocka_unit_test(versions_have_names),
		cmocka_unit_test(no_memory_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
