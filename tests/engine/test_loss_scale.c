/*
 * Loss scales against DeepSpeed's own.
 *
 * If they are wrong, a fp16 run skips other steps than the same run under DeepSpeed, and one that
 * resumes from a checkpoint overflows its first steps away.
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

#include "engine/sched/en_scale.h"
#include "tests/engine/te_sched.h"

static cJSON *scalers;

static int hold_trace(const cJSON *e, const cJSON *want, unsigned minor)
{
	const cJSON *config = te_get(e, "config"), *raises = te_get(want, "raises"), *after,
		    *verdict;
	const struct en_scale_opts opts = {
		.power = te_num(config, "initial_scale_power"),
		.min_scale = te_num(config, "min_loss_scale"),
		.window = (int64_t)te_num(config, "loss_scale_window"),
		.hysteresis = (int64_t)te_num(config, "hysteresis"),
		.consecutive = cJSON_IsTrue(te_get(config, "consecutive_hysteresis")),
		.ds_minor = minor,
	};
	const int raised = raises && !cJSON_IsNull(raises) ? (int)te_num(raises, "step") : 0;
	struct ckpt_err err = { 0 };
	struct en_scale s, was;
	int step = 0;

	assert_int_equal(en_scale_init_dynamic(&s, &opts, &err), 0);
	assert_true(s.scale == cJSON_GetArrayItem(te_get(e, "before_first"), 0)->valuedouble);
	assert_true(s.left == cJSON_GetArrayItem(te_get(e, "before_first"), 1)->valueint);
	cJSON_ArrayForEach(verdict, te_get(e, "overflow")) {
		const int rc = en_scale_update(&s, verdict->valueint, &err);

		step++;
		if (step == raised) {
			was = s;
			assert_int_equal(rc, -CKPT_E_LIMIT);
			assert_non_null(strstr(err.msg, "smallest loss scale"));
			assert_memory_equal(&s, &was, sizeof(s));
			return step;
		}
		assert_int_equal(rc, 0);
		after = cJSON_GetArrayItem(te_get(want, "after"), step - 1);
		if (s.scale != cJSON_GetArrayItem(after, 0)->valuedouble ||
		    s.left != cJSON_GetArrayItem(after, 1)->valueint ||
		    s.iter != cJSON_GetArrayItem(after, 2)->valueint ||
		    s.last_overflow != cJSON_GetArrayItem(after, 3)->valueint)
			fail_msg("%s, 0.%u, step %d: %g %lld %lld %lld",
				 te_get(e, "pattern")->valuestring, minor, step, s.scale,
				 (long long)s.left, (long long)s.iter, (long long)s.last_overflow);
	}
	assert_int_equal(raised, 0);
	assert_int_equal(step, cJSON_GetArraySize(te_get(want, "after")));
	return step;
}

static void scales_move_as_deepspeeds_do(void **state)
{
	const cJSON *e;
	int traces = 0, others = 0;

	(void)state;
	cJSON_ArrayForEach(e, te_get(scalers, "dynamic")) {
		const cJSON *old = te_get(te_get(e, "other_versions"), "0.16.9");

		hold_trace(e, e, 19);
		hold_trace(e, e, 18);
		hold_trace(e, old ? old : e, 16);
		traces++;
		others += old != NULL;
	}
	assert_int_equal(traces, 90);
	assert_true(others > 50);
}

static void fixed_scales_stay(void **state)
{
	const cJSON *e;
	struct ckpt_err err = { 0 };
	struct en_scale s;

	(void)state;
	cJSON_ArrayForEach(e, te_get(scalers, "static")) {
		assert_int_equal(en_scale_init_static(&s, te_num(e, "loss_scale"), NULL), 0);
		for (int i = 0; i < 5; i++)
			assert_int_equal(en_scale_update(&s, i & 1, NULL), 0);
		assert_true(s.scale == te_num(e, "scale"));
	}
	assert_int_equal(en_scale_init_static(&s, 0, &err), -CKPT_E_USAGE);
	assert_int_equal(en_scale_init_static(&s, NAN, NULL), -CKPT_E_USAGE);
}

/* The fp16 runs of DeepSpeed: the scale in force, and after each step, from their overflows. */
static void recorded_fp16_runs_had_these_scales(void **state)
{
	cJSON *doc = te_sched_json("model/train/qwen3_tied.json");
	const cJSON *run, *step;
	int runs = 0, skipped = 0;

	(void)state;
	cJSON_ArrayForEach(run, te_get(doc, "runs")) {
		const struct en_scale_opts opts = { 24, 1, 4, 1, false, 19 };
		struct en_scale s;

		if (strncmp(run->string, "deepspeed_fp16", 14))
			continue;
		assert_int_equal(en_scale_init_dynamic(&s, &opts, NULL), 0);
		cJSON_ArrayForEach(step, te_get(run, "steps")) {
			const bool overflow = cJSON_IsTrue(te_get(step, "overflow"));

			assert_true(s.scale == te_num(step, "loss_scale"));
			assert_int_equal(en_scale_update(&s, overflow, NULL), 0);
			assert_true(s.scale == te_num(step, "scale_after"));
			skipped += overflow;
		}
		runs++;
	}
	assert_int_equal(runs, 3);
	assert_true(skipped >= 18);
	cJSON_Delete(doc);
}

static void a_scale_goes_on_where_it_was_saved(void **state)
{
	const struct en_scale_opts opts = { 16, 1, 5, 3, true, 19 },
				   others = { 8, 2, 9, 2, true, 19 };
	struct ckpt_save_scaler saved;
	struct ckpt_err err = { 0 };
	struct en_scale a, b, was;

	(void)state;
	assert_int_equal(en_scale_init_dynamic(&a, &opts, NULL), 0);
	for (int i = 0; i < 23; i++)
		en_scale_update(&a, i % 7 == 3 || i == 11, NULL);
	en_scale_save(&a, &saved);
	assert_int_equal(en_scale_init_dynamic(&b, &others, NULL), 0);
	assert_int_equal(en_scale_load(&b, &saved, &err), 0);
	for (int i = 0; i < 40; i++) {
		assert_memory_equal(&a, &b, sizeof(a));
		en_scale_update(&a, i % 5 == 2, NULL);
		en_scale_update(&b, i % 5 == 2, NULL);
	}
	was = b;
	saved.window = 0;
	assert_int_equal(en_scale_load(&b, &saved, &err), -CKPT_E_CORRUPT);
	saved.window = 5;
	saved.scale = INFINITY;
	assert_int_equal(en_scale_load(&b, &saved, NULL), -CKPT_E_CORRUPT);
	saved.scale = 2;
	saved.last_overflow = saved.iter + 1;
	assert_int_equal(en_scale_load(&b, &saved, NULL), -CKPT_E_CORRUPT);
	saved.dynamic = 0;
	assert_int_equal(en_scale_load(&b, &saved, NULL), -CKPT_E_MISMATCH);
	assert_memory_equal(&b, &was, sizeof(b));
}

static void scales_of_real_steps_are_taken(void **state)
{
	/* What DeepSpeed said of them when it saved (case.json; the counters of the scaler). */
	static const struct {
		const char *name;
		bool dynamic;
		double scale;
		int64_t iter, last, left;
	} step[] = {
		{ "ds0.16.9-z2-fp16-w2-overflow/ckpt", true, 64, 4, 1, 1 },
		{ "ds0.19.8-z2-fp16-w2-overflow/ckpt", true, 32, 5, 2, 1 },
		{ "ds0.19.8-z3-fp16-w2-overflow/ckpt", true, 64, 4, 1, 1 },
		{ "ds0.19.8-z2-fp16-w2-static/ckpt", false, 128, 0, -1, 1 },
	};
	const struct en_scale_opts opts = { 16, 4, 1000, 3, false, 19 };

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(step); i++) {
		struct ckpt_err err = { 0 };
		struct en_scale s, fixed;
		struct ckpt *ck;
		struct ckpt_values *v = te_values(step[i].name, &ck);
		bool found = false;

		assert_int_equal(en_scale_init_dynamic(&s, &opts, NULL), 0);
		assert_int_equal(en_scale_init_static(&fixed, 7, NULL), 0);
		if (step[i].dynamic)
			assert_int_equal(en_scale_load_values(&fixed, v, &found, NULL),
					 -CKPT_E_MISMATCH);
		else
			assert_int_equal(en_scale_load_values(&s, v, &found, NULL),
					 -CKPT_E_MISMATCH);
		assert_false(found);
		if (!step[i].dynamic)
			s = fixed;
		if (en_scale_load_values(&s, v, &found, &err))
			fail_msg("%s: %s", step[i].name, err.msg);
		assert_true(found);
		assert_true(s.scale == step[i].scale);
		assert_int_equal(s.iter, step[i].iter);
		assert_int_equal(s.last_overflow, step[i].last);
		assert_int_equal(s.left, step[i].left);
		if (s.dynamic) {
			assert_int_equal(s.window, 3);
			assert_int_equal(s.hysteresis, 2);
			assert_true(s.min_scale == 1);
		}
		ckpt_values_close(v);
		ckpt_close(ck);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scales_move_as_deepspeeds_do),
		cmocka_unit_test(fixed_scales_stay),
		cmocka_unit_test(recorded_fp16_runs_had_these_scales),
		cmocka_unit_test(a_scale_goes_on_where_it_was_saved),
		cmocka_unit_test(scales_of_real_steps_are_taken),
	};
	int rc;

	scalers = te_sched_json("sched/loss_scaler.json");
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	cJSON_Delete(scalers);
	return rc;
}
