/*
 * Learning rates against DeepSpeed's and transformers' own.
 *
 * If they are wrong, a run resumed from a DeepSpeed checkpoint warms up twice or never decays;
 * no message appears, and the loss ends a little higher.
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
#include "engine/sched/en_sched.h"
#include "tests/engine/te_sched.h"
#include "tests/lib/fs/t_dir.h"

static cJSON *schedulers;

/* Python writes 7.0, which cJSON would print as 7: of such numbers the text counts. */
static char *params_text(const cJSON *entry)
{
	char *text = cJSON_PrintUnformatted(te_get(entry, "params"));

	if (strstr(text, "\"warmup_num_steps\":7}") && te_get(entry, "error")) {
		free(text);
		text = t_fmt("{\"warmup_max_lr\": 5e-05, \"warmup_num_steps\": 7.0}");
	}
	return text;
}

static void agrees(double got, double want, const char *what, int k)
{
	if (!(fabs(got - want) <= 1e-12 * fabs(want)))
		fail_msg("%s: update %d has %.17g, theirs has %.17g", what, k + 1, got, want);
}

/* Every rate of one version; returns how many were compared. */
static int hold(const cJSON *entry, const cJSON *want, unsigned minor)
{
	const double lr = te_num(entry, "optimizer_lr");
	char *params = params_text(entry);
	char *what = t_fmt("%s %s of 0.%u", te_get(entry, "type")->valuestring, params, minor);
	const cJSON *v, *error = te_get(want, "error"), *betas = te_get(want, "betas");
	struct ckpt_err err = { 0 };
	struct en_sched s;
	int n = 0, rc;

	rc = en_sched_init_deepspeed(&s, te_get(entry, "type")->valuestring, params, minor, &lr, 1,
				     &err);
	if (error) {
		/* What divides by zero in the midst of their run does not begin here. */
		if (rc != -CKPT_E_USAGE)
			fail_msg("%s: they say %s, we say %d", what, error->valuestring, rc);
		free(what);
		free(params);
		return 1;
	}
	if (rc)
		fail_msg("%s: %s", what, err.msg);
	cJSON_ArrayForEach(v, te_get(want, "lr")) {
		double b1 = -1, b2 = -1;
		const cJSON *pair = betas ? cJSON_GetArrayItem(betas, n) : NULL;

		agrees(en_sched_lr(&s, 0), v->valuedouble, what, n);
		assert_int_equal(en_sched_betas(&s, 0, &b1, &b2), pair != NULL);
		if (pair) {
			agrees(b1, cJSON_GetArrayItem(pair, 0)->valuedouble, what, n);
			agrees(b2, cJSON_GetArrayItem(pair, 1)->valuedouble, what, n);
		}
		en_sched_advance(&s);
		n++;
	}
	assert_int_equal(n, 60);
	if (te_get(want, "state_dict_after_60")) {
		struct ck_buf buf = CK_BUF_INIT(1000);

		assert_int_equal(en_sched_state(&s, &buf, NULL), 0);
		assert_string_equal(buf.p, "{\"last_batch_iteration\": 59}");
		ck_buf_release(&buf);
	}
	free(what);
	free(params);
	return n;
}

static void rates_are_those_of_deepspeed_of_three_versions(void **state)
{
	static const struct { const char *name; unsigned minor; } old[] = {
		{ "0.16.9", 16 }, { "0.18.9", 18 },
	};
	const cJSON *e;
	int settings = 0, rates = 0;

	(void)state;
	cJSON_ArrayForEach(e, te_get(schedulers, "deepspeed")) {
		rates += hold(e, e, 19);
		for (int i = 0; i < 2; i++) {
			const cJSON *other = te_get(te_get(e, "other_versions"), old[i].name);

			/* What is not listed is as in 0.19. */
			rates += hold(e, other ? other : e, old[i].minor);
		}
		settings++;
	}
	assert_int_equal(settings, 28);
	assert_true(rates > 4500);
}

static void rates_are_those_of_transformers(void **state)
{
	const cJSON *e, *v;
	int settings = 0;

	(void)state;
	cJSON_ArrayForEach(e, te_get(schedulers, "transformers")) {
		const double lr = te_num(e, "lr0");
		const char *name = te_get(e, "name")->valuestring;
		char *kwargs = cJSON_PrintUnformatted(te_get(e, "kwargs"));
		struct ckpt_err err = { 0 };
		struct en_sched s;
		int n = 0;

		if (en_sched_init_transformers(
			    &s, name, kwargs, (int64_t)te_num(e, "num_warmup_steps"),
			    (int64_t)te_num(e, "num_training_steps"), lr, &lr, 1, &err))
			fail_msg("%s %s: %s", name, kwargs, err.msg);
		cJSON_ArrayForEach(v, te_get(e, "lr")) {
			agrees(en_sched_lr(&s, 0), v->valuedouble, name, n);
			en_sched_advance(&s);
			n++;
		}
		assert_int_equal(n, 60);
		free(kwargs);
		settings++;
	}
	assert_int_equal(settings, 18);
}

/* The torch runs of the engine's reference, whose schedule transformers made: 4 of 20 updates. */
static void recorded_runs_had_these_rates(void **state)
{
	static const char *const models[] = { "llama3", "qwen25_tied", "qwen3_tied" };
	int compared = 0;

	(void)state;
	for (size_t m = 0; m < 3; m++) {
		char *name = t_fmt("model/train/%s.json", models[m]);
		cJSON *doc = te_sched_json(name);
		const cJSON *run, *step;
		const double lr = 3e-3;

		cJSON_ArrayForEach(run, te_get(doc, "runs")) {
			struct en_sched s;

			if (strstr(run->string, "one_group"))
				continue;	/* those have a scheduler of DeepSpeed */
			assert_int_equal(en_sched_init_transformers(&s, "cosine", NULL, 4, 20, lr,
								    &lr, 1, NULL),
					 0);
			cJSON_ArrayForEach(step, te_get(run, "steps")) {
				agrees(en_sched_lr(&s, 0), te_num(step, "lr"), run->string,
				       compared);
				if (!cJSON_IsTrue(te_get(step, "overflow")))
					en_sched_advance(&s);
				compared++;
			}
		}
		cJSON_Delete(doc);
		free(name);
	}
	assert_true(compared >= 20 * 3 * 10);
}

static int ds(struct en_sched *s, const char *type, const char *params, unsigned minor,
	      struct ckpt_err *err)
{
	static const double lr[2] = { 1e-3, 5e-4 };

	memset(err, 0, sizeof(*err));
	return en_sched_init_deepspeed(s, type, params, minor, lr, 2, err);
}

static int hf(struct en_sched *s, const char *type, const char *kwargs, struct ckpt_err *err)
{
	static const double lr[2] = { 1e-3, 5e-4 };

	memset(err, 0, sizeof(*err));
	return en_sched_init_transformers(s, type, kwargs, 5, 20, 1e-3, lr, 2, err);
}

static void groups_have_rates_of_their_own(void **state)
{
	struct ckpt_err err;
	struct en_sched s;
	double b1, b2;

	(void)state;
	/* A maximum that is not given is that of each group; in 0.16 it was 0.001 for all. */
	assert_int_equal(ds(&s, "WarmupLR", "{\"warmup_num_steps\": 4}", 19, &err), 0);
	agrees(en_sched_lr_at(&s, 0, 5), 1e-3, "group 0", 4);
	agrees(en_sched_lr_at(&s, 1, 5), 5e-4, "group 1", 4);
	assert_int_equal(ds(&s, "WarmupLR", "{\"warmup_num_steps\": 4}", 16, &err), 0);
	agrees(en_sched_lr_at(&s, 1, 5), 1e-3, "group 1 of 0.16", 4);
	assert_int_equal(ds(&s, "WarmupLR",
			    "{\"warmup_min_lr\": [0, 1e-5], \"warmup_max_lr\": "
			    "[3e-4, 1e-4], \"warmup_num_steps\": 4, \"warmup_type\": \"linear\"}",
			    19, &err),
			 0);
	agrees(en_sched_lr_at(&s, 0, 3), 1.5e-4, "list 0", 2);
	agrees(en_sched_lr_at(&s, 1, 3), 1e-5 + (1e-4 - 1e-5) * 0.5, "list 1", 2);
	assert_int_equal(ds(&s, "OneCycle",
			    "{\"cycle_min_lr\": [1e-4, 2e-4], \"cycle_max_lr\": 1e-3, "
			    "\"cycle_first_step_size\": 4, \"cycle_min_mom\": [0.8, 0.7]}",
			    19, &err),
			 0);
	assert_true(en_sched_betas(&s, 1, &b1, &b2));
	agrees(b1, 0.7, "beta1 of group 1 at the beginning", 0);
	agrees(en_sched_lr(&s, 1), 2e-4, "rate of group 1 at the beginning", 0);
	assert_int_equal(hf(&s, "linear", NULL, &err), 0);
	agrees(en_sched_lr_at(&s, 1, 7), 5e-4 * (13.0 / 15), "linear", 6);
}

/* What DeepSpeed or transformers refuse too, or what cannot be computed, with what is said. */
static void wrong_parameters_are_refused_with_a_sentence(void **state)
{
	static const struct { const char *type, *params, *words;
	} bad[] = {
		{ "warmuplr", "{}", "unknown scheduler" },
		{ "StepLR", "{}", "unknown scheduler" },
		{ "WarmupLR", "[]", "not a JSON object" },
		{ "WarmupLR", "{\"warmup_steps\": 5}", "no parameter 'warmup_steps'" },
		{ "WarmupLR", "{\"warmup_num_steps\": 0}", "whole number above 0" },
		{ "WarmupLR", "{\"warmup_num_steps\": 7.0}", "warmup_num_steps is 7.0" },
		{ "WarmupLR", "{\"warmup_num_steps\": true}", "warmup_num_steps is true" },
		{ "WarmupLR", "{\"warmup_num_steps\": \"auto\"}", "is not resolved" },
		{ "WarmupLR", "{\"warmup_num_steps\": null}", "is null" },
		{ "WarmupLR", "{\"warmup_max_lr\": [1, 2, 3]}", "3 values, and the optimizer 2" },
		{ "WarmupLR", "{\"warmup_max_lr\": [1, \"2\"]}", "list of numbers" },
		{ "WarmupLR", "{\"warmup_max_lr\": [1, []]}", "list of numbers" },
		{ "WarmupLR", "{\"warmup_max_lr\": 1e999}", "expected a number" },
		{ "WarmupLR", "{\"warmup_type\": 3}", "\"log\" or \"linear\"" },
		{ "WarmupDecayLR", "{\"warmup_num_steps\": 5}", "total_num_steps is missing" },
		{ "WarmupCosineLR", "{}", "total_num_steps is missing" },
		{ "OneCycle", "{\"cycle_max_lr\": 1}", "cycle_min_lr is missing" },
		{ "OneCycle",
		  "{\"cycle_min_lr\": 0, \"cycle_max_lr\": 1, \"cycle_first_step_size\": 0}",
		  "must be above 0" },
		{ "OneCycle",
		  "{\"cycle_min_lr\": 0, \"cycle_max_lr\": 1, \"cycle_second_step_size\": -1}",
		  "must be 0 or more" },
		{ "OneCycle", "{\"cycle_min_lr\": 0, \"cycle_max_lr\": 1, \"cycle_max_mom\": 1}",
		  "beta of Adam" },
		{ "OneCycle", "{\"cycle_min_lr\": 0, \"cycle_max_lr\": 1, \"cycle_momentum\": 1}",
		  "true or false" },
		{ "LRRangeTest", "{\"lr_range_test_step_size\": 0}", "above 0" },
	};
	static const struct { const char *type, *kwargs, *words; } bad_hf[] = {
		{ "Linear", NULL, "unknown schedule" },
		{ "greedy", NULL, "not supported" },
		{ "linear", "{\"num_cycles\": 1}", "no parameter 'num_cycles'" },
		{ "cosine_with_min_lr", NULL, "give min_lr or min_lr_rate" },
		{ "cosine_with_min_lr", "{\"min_lr\": 1e-5, \"min_lr_rate\": 0.1}", "not both" },
		{ "polynomial", "{\"lr_end\": 0.01}", "below the optimizer's rate" },
		{ "inverse_sqrt", "{\"timescale\": -3}", "above 0" },
		{ "cosine_with_restarts", "{\"num_cycles\": -1}", "must be 0 or more" },
	};
	struct ckpt_err err;
	struct en_sched s, was;

	(void)state;
	memset(&s, 7, sizeof(s));
	was = s;
	for (size_t i = 0; i < CK_ARRAY_LEN(bad); i++) {
		assert_int_equal(ds(&s, bad[i].type, bad[i].params, 19, &err), -CKPT_E_USAGE);
		if (!strstr(err.msg, bad[i].words))
			fail_msg("%s %s: '%s' does not say '%s'", bad[i].type, bad[i].params,
				 err.msg, bad[i].words);
	}
	for (size_t i = 0; i < CK_ARRAY_LEN(bad_hf); i++) {
		assert_int_not_equal(hf(&s, bad_hf[i].type, bad_hf[i].kwargs, &err), 0);
		if (!strstr(err.msg, bad_hf[i].words))
			fail_msg("%s: '%s' does not say '%s'", bad_hf[i].type, err.msg,
				 bad_hf[i].words);
	}
	assert_int_equal(ds(&s, "WarmupLR", "{", 19, &err), -CKPT_E_CORRUPT);
	assert_int_equal(ds(&s, "WarmupLR", "{\"last_batch_iteration\": 7}", 19, &err),
			 -CKPT_E_UNSUPPORTED);
	assert_int_equal(ds(&s, "WarmupLR", "{}", 17, &err), -CKPT_E_USAGE);
	assert_memory_equal(&s, &was, sizeof(s));
	/* Theirs too, and of no effect. */
	assert_int_equal(ds(&s, "WarmupLR", "{\"last_batch_iteration\": -1}", 19, &err), 0);
	assert_int_equal(ds(&s, "OneCycle", "{\"cycle_min_lr\": 0, \"cycle_max_lr\": 1, "
			    "\"cycle_second_step_size\": null}", 19, &err), 0);
	assert_int_equal(hf(&s, "inverse_sqrt", "{\"timescale\": null}", &err), 0);
	assert_int_equal(te_sched_none(&s, (const double[]){ 1 }, 17, &err), -CKPT_E_USAGE);
}

/* As torch 2.11 and transformers 5.23 printed it after 7 updates. */
static const char linear_state[] =
	"{\"base_lrs\": [0.001, 0.0005], \"last_epoch\": 7, \"_step_count\": 8, \"_is_initial\": "
	"false, "
	"\"_get_lr_called_within_step\": false, \"_last_lr\": [0.0008666666666666667, "
	"0.00043333333333333337], \"lr_lambdas\": [{}, {}]}";

static void states_are_written_and_taken_as_torch_does(void **state)
{
	struct ck_buf buf = CK_BUF_INIT(10000);
	struct ckpt_err err;
	struct en_sched s, other;

	(void)state;
	assert_int_equal(hf(&s, "linear", NULL, &err), 0);
	for (int i = 0; i < 7; i++)
		en_sched_advance(&s);
	assert_int_equal(en_sched_state(&s, &buf, &err), 0);
	assert_string_equal(buf.p, linear_state);
	/* base_lrs of a checkpoint win over the rates of this run. */
	assert_int_equal(en_sched_init_transformers(&other, "linear", NULL, 5, 20, 9,
						    (double[]){ 9, 8 }, 2, &err),
			 0);
	assert_int_equal(en_sched_load(&other, buf.p, buf.len, &err), 0);
	for (uint32_t g = 0; g < 2; g++)
		assert_true(en_sched_lr(&other, g) == en_sched_lr(&s, g));
	/* A run that changes to a scheduler of DeepSpeed continues at the same update. */
	assert_int_equal(ds(&other, "WarmupLR", NULL, 19, &err), 0);
	assert_int_equal(en_sched_load(&other, buf.p, buf.len, &err), 0);
	assert_int_equal(other.done, 7);
	ck_buf_release(&buf);
	assert_int_equal(en_sched_state(&other, &buf, &err), 0);
	assert_string_equal(buf.p, "{\"last_batch_iteration\": 6}");
	assert_int_equal(hf(&other, "constant", NULL, &err), 0);
	assert_int_equal(en_sched_load(&other, buf.p, buf.len, &err), 0);
	assert_int_equal(other.done, 7);
	ck_buf_release(&buf);
	assert_int_equal(en_sched_state(&other, &buf, &err), 0);
	assert_non_null(
		strstr(buf.p, "\"_last_lr\": [0.001, 0.0005], \"lr_lambdas\": [null, null]}"));
	ck_buf_release(&buf);
	/* What a step that was made without a trainer holds. */
	assert_int_equal(en_sched_load(&other, "{\"last_batch_iteration\": -1, \"lr_lambdas\": []}",
				       46, &err),
			 0);
	assert_int_equal(other.done, 0);
	assert_int_equal(te_sched_none(&s, (const double[]){ 0.5 }, 1, &err), 0);
	assert_int_equal(en_sched_state(&s, &buf, &err), 0);
	assert_null(buf.p);
	assert_true(en_sched_lr_at(&s, 0, 1000) == 0.5);
}

static void states_that_contradict_themselves_are_refused(void **state)
{
	static const struct { const char *text; enum ckpt_code code; } bad[] = {
		{ "{}", CKPT_E_MISMATCH }, { "[]", CKPT_E_CORRUPT }, { "null", CKPT_E_CORRUPT },
		{ "{\"last_batch_iteration\": -2}", CKPT_E_CORRUPT },
		{ "{\"last_batch_iteration\": 1.5}", CKPT_E_CORRUPT },
		{ "{\"last_batch_iteration\": \"3\"}", CKPT_E_CORRUPT },
		{ "{\"last_batch_iteration\": 9223372036854775807}", CKPT_E_CORRUPT },
		{ "{\"last_batch_iteration\": 99999999999999999999}", CKPT_E_CORRUPT },
		{ "{\"last_epoch\": -1}", CKPT_E_CORRUPT },
		{ "{\"last_epoch\": 5, \"last_batch_iteration\": 5}", CKPT_E_MISMATCH },
		{ "{\"last_epoch\": 5, \"base_lrs\": [1]}", CKPT_E_MISMATCH },
		{ "{\"last_epoch\": 5, \"base_lrs\": [1, \"x\"]}", CKPT_E_CORRUPT },
		{ "{\"last_epoch\": 5, \"base_lrs\": [1, -1]}", CKPT_E_CORRUPT },
		{ "{\"last_epoch\": 5, \"base_lrs\": 1}", CKPT_E_CORRUPT },
		{ "{\"last_epoch\": 5, \"base_lrs\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}",
		  CKPT_E_MISMATCH },
		{ "{\"last_epoch\": 5", CKPT_E_CORRUPT },
	};
	struct ckpt_err err;
	struct en_sched s, was;

	(void)state;
	assert_int_equal(hf(&s, "cosine", NULL, &err), 0);
	was = s;
	for (size_t i = 0; i < CK_ARRAY_LEN(bad); i++) {
		memset(&err, 0, sizeof(err));
		if (en_sched_load(&s, bad[i].text, strlen(bad[i].text), &err) != -(int)bad[i].code)
			fail_msg("%s: code %d, '%s'", bad[i].text, err.code, err.msg);
		assert_memory_equal(&s, &was, sizeof(s));
	}
}

static void settings_of_a_configuration_make_the_same_schedule(void **state)
{
	static const char *const params[] = {
		"\"WarmupLR\", \"params\": {\"warmup_num_steps\": 10, \"warmup_type\": \"linear\"}",
		"\"WarmupDecayLR\", \"params\": {\"total_num_steps\": 40, \"warmup_num_steps\": 5}",
		"\"WarmupCosineLR\", \"params\": {\"total_num_steps\": 40, \"warmup_num_steps\": "
		"5}",
		"\"LRRangeTest\", \"params\": {\"lr_range_test_step_size\": 7, "
		"\"lr_range_test_staircase\": true}",
		"\"OneCycle\", \"params\": {\"cycle_min_lr\": 1e-5, \"cycle_max_lr\": 5e-4, "
		"\"cycle_first_step_size\": 10, \"cycle_second_step_size\": 20, "
		"\"cycle_first_stair_count\": 5, \"decay_step_size\": 3, \"decay_lr_rate\": 0.1}",
	};
	const struct en_facts facts = { .world = 2, .has = EN_HAS_LR, .lr = 1e-3 };

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(params); i++) {
		const double lr[2] = { 1e-3, 5e-4 };
		char *text = t_fmt("{\"train_batch_size\": 8, \"scheduler\": {\"type\": %s}}",
				   params[i]);
		char *type = t_fmt("%s", params[i] + 1);
		char *own = strstr(params[i], "{");
		struct ckpt_err err = { 0 };
		struct en_config cfg;
		struct en_sched a, b;

		*strchr(type, '"') = 0;
		en_config_init(&cfg, EN_DS_0_19);
		if (en_config_parse_deepspeed(&cfg, text, strlen(text), "t.json", &err) ||
		    en_config_resolve(&cfg, &facts, &err) ||
		    en_sched_init_config(&a, &cfg.set.schedule, cfg.version, lr, 2, &err) ||
		    en_sched_init_deepspeed(&b, type, own, 19, lr, 2, &err))
			fail_msg("%s: %s", text, err.msg);
		for (int64_t k = 0; k < 70; k++)
			for (uint32_t g = 0; g < 2; g++)
				assert_true(en_sched_lr_at(&a, g, k) == en_sched_lr_at(&b, g, k));
		en_config_release(&cfg);
		free(text);
		free(type);
	}
}

static void schedules_of_real_steps_go_on(void **state)
{
	struct ckpt *ck;
	struct ckpt_values *v = te_values("ds0.19.8-z2-bf16-w2-warmup/ckpt", &ck);
	struct ckpt_err err = { 0 };
	struct en_sched s;
	double lr;
	bool found = false;

	(void)state;
	assert_int_equal(ds(&s, "WarmupLR", NULL, 19, &err), 0);
	if (en_sched_load_values(&s, v, &found, &err))
		fail_msg("%s", err.msg);
	assert_true(found);
	assert_int_equal(s.done, 3);
	assert_int_equal(ckpt_value_float(v, "param_groups.0.lr", &lr, NULL), 0);
	/* The configuration of that run; the step holds the rate of its next update. */
	assert_int_equal(
		ds(&s, "WarmupLR", "{\"warmup_num_steps\": 7, \"warmup_max_lr\": 0.01}", 19, &err),
		0);
	agrees(en_sched_lr_at(&s, 0, 3), lr, "the rate in the step", 3);
	ckpt_values_close(v);
	ckpt_close(ck);
	found = false;
	v = te_values("ds0.19.8-z2-fp16-w2-static/ckpt", &ck);
	assert_int_equal(en_sched_load_values(&s, v, &found, &err), 0);
	assert_false(found);
	ckpt_values_close(v);
	ckpt_close(ck);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rates_are_those_of_deepspeed_of_three_versions),
		cmocka_unit_test(rates_are_those_of_transformers),
		cmocka_unit_test(recorded_runs_had_these_rates),
		cmocka_unit_test(groups_have_rates_of_their_own),
		cmocka_unit_test(wrong_parameters_are_refused_with_a_sentence),
		cmocka_unit_test(states_are_written_and_taken_as_torch_does),
		cmocka_unit_test(states_that_contradict_themselves_are_refused),
		cmocka_unit_test(settings_of_a_configuration_make_the_same_schedule),
		cmocka_unit_test(schedules_of_real_steps_go_on),
	};
	int rc;

	schedulers = te_sched_json("sched/schedulers.json");
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	cJSON_Delete(schedulers);
	return rc;
}
