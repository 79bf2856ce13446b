/*
 * warmup_stable_decay and reduce_lr_on_plateau against transformers 5.17 and torch 2.11: rates that
 * their classes gave, and states in the middle.
 *
 * If they are wrong, a run decays at another update than the Trainer's, or a resumed run lowers its
 * rate again for evaluations that it has counted before.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "engine/sched/en_sched.h"

#define LR 1e-3
#define UPDATES 22

static const struct {
	int64_t warmup, total;
	const char *kwargs;
	double lr[UPDATES];
} wsd[] = {
	{ 4, 20, "{\"num_decay_steps\": 6}",
	  { 0.0, 0.00025, 0.0005, 0.00075, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001,
	    0.001, 0.001, 0.001, 0.001, 0.0009330127018922195, 0.00075, 0.0005,
	    0.0002500000000000001, 6.698729810778065e-05, 0.0, 0.0 } },
	{ 3, 20, "{\"num_decay_steps\": 8, \"warmup_type\": \"cosine\", "
	  "\"decay_type\": \"1-sqrt\", \"min_lr_ratio\": 0.1}",
	  { 0.0001, 0.000325, 0.000775, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001,
	    0.001, 0.001, 0.001, 0.0006818019484660537, 0.00055, 0.000448864807873785,
	    0.00036360389693210714, 0.0002884875264621146, 0.00022057713659400527,
	    0.00015812708797586323, 0.0001, 0.0001 } },
	{ 5, 20, "{\"num_decay_steps\": 4, \"num_stable_steps\": 6, "
	  "\"warmup_type\": \"1-sqrt\", \"decay_type\": \"linear\"}",
	  { 0.0, 0.00010557280900008415, 0.0002254033307585166, 0.00036754446796632414,
	    0.0005527864045000422, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001,
	    0.00075, 0.0005, 0.00025, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0 } },
	{ 0, 20, "{\"num_decay_steps\": 10, \"num_cycles\": 1.5, "
	  "\"min_lr_ratio\": 0.05}",
	  { 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001,
	    0.0008041979948389248, 0.0003782169276719, 7.324815475980207e-05,
	    0.00014071692767189992, 0.000525, 0.0009092830723281, 0.000976751845240198,
	    0.0006717830723281002, 0.0002458020051610754, 5e-05, 5e-05 } },
};

static const double losses[] = {
	5.0, 4.0, 4.0, 3.9999, 3.5, 3.6, 3.7, 3.4999, 3.8, 3.9, 4.1, 3.0, 3.1, 3.2, 3.3, NAN, 3.4,
	3.1, 2.9, 2.95, 2.97, 2.99, 3, 3,
};
#define EVALUATIONS (sizeof(losses) / sizeof(losses[0]))

static const struct {
	const char *kwargs;
	double lr[EVALUATIONS];
} plateau[] = {
	{ "{\"patience\": 1, \"factor\": 0.5}",
	  { 0.001, 0.001, 0.001, 0.0005, 0.0005, 0.0005, 0.00025, 0.00025, 0.000125,
	    0.000125, 6.25e-05, 6.25e-05, 6.25e-05, 3.125e-05, 3.125e-05, 1.5625e-05,
	    1.5625e-05, 7.8125e-06, 7.8125e-06, 7.8125e-06, 3.90625e-06, 3.90625e-06,
	    1.953125e-06, 1.953125e-06 } },
	{ "{\"patience\": 0, \"factor\": 0.3, \"cooldown\": 2, "
	  "\"min_lr\": 0.0001}",
	  { 0.001, 0.001, 0.0003, 0.0003, 0.0003, 0.0001, 0.0001, 0.0001, 0.0001, 0.0001,
	    0.0001, 0.0001, 0.0001, 0.0001, 0.0001, 0.0001, 0.0001, 0.0001, 0.0001, 0.0001,
	    0.0001, 0.0001, 0.0001, 0.0001 } },
	{ "{\"patience\": 1, \"factor\": 0.5, \"threshold\": 0.5, "
	  "\"threshold_mode\": \"abs\"}",
	  { 0.001, 0.001, 0.001, 0.0005, 0.0005, 0.00025, 0.00025, 0.00025, 0.00025,
	    0.000125, 0.000125, 6.25e-05, 6.25e-05, 3.125e-05, 3.125e-05, 1.5625e-05,
	    1.5625e-05, 7.8125e-06, 7.8125e-06, 7.8125e-06, 3.90625e-06, 3.90625e-06,
	    1.953125e-06, 1.953125e-06 } },
	{ "{\"patience\": 2, \"factor\": 0.1, \"mode\": \"max\", "
	  "\"eps\": 1e-05}",
	  { 0.001, 0.001, 0.001, 0.0001, 0.0001, 0.0001, 1e-05, 1e-05, 1e-05, 1e-05, 1e-05,
	    1e-05, 1e-05, 1e-05, 1e-05, 1e-05, 1e-05, 1e-05, 1e-05, 1e-05, 1e-05, 1e-05,
	    1e-05, 1e-05 } },
};

static int begin(struct en_sched *s, const char *type, const char *kwargs, int64_t warmup,
		 int64_t total, struct ckpt_err *err)
{
	static const double lr[2] = { LR, LR };

	memset(err, 0, sizeof(*err));
	return en_sched_init_transformers(s, type, kwargs, warmup, total, LR, lr, 2, err);
}

static void stable_rates_are_those_of_transformers(void **state)
{
	struct ckpt_err err;
	struct en_sched s;

	(void)state;
	for (size_t i = 0; i < sizeof(wsd) / sizeof(wsd[0]); i++) {
		if (begin(&s, i % 2 ? "wsd" : "warmup_stable_decay", wsd[i].kwargs, wsd[i].warmup,
			  wsd[i].total, &err))
			fail_msg("%s: %s", wsd[i].kwargs, err.msg);
		for (int k = 0; k < UPDATES; k++) {
			const double want = wsd[i].lr[k];

			if (!(fabs(en_sched_lr(&s, 1) - want) <= 1e-12 * LR))
				fail_msg("%s: update %d has %.17g, theirs %.17g", wsd[i].kwargs,
					 k + 1, en_sched_lr(&s, 1), want);
			assert_false(en_sched_evaluated(&s, 1));
			en_sched_advance(&s);
		}
	}
	assert_string_equal(en_sched_name(s.kind), "warmup_stable_decay");
}

/* Written, and taken by a schedule that begins. */
static void pass_on(struct en_sched *s, const char *kwargs)
{
	struct ck_buf buf = CK_BUF_INIT(10000);
	struct ckpt_err err;
	struct en_sched next;

	assert_int_equal(en_sched_state(s, &buf, &err), 0);
	assert_int_equal(begin(&next, "reduce_lr_on_plateau", kwargs, 0, 100, &err), 0);
	if (en_sched_load(&next, buf.p, buf.len, &err))
		fail_msg("%s: %s", buf.p, err.msg);
	assert_memory_equal(next.now, s->now, sizeof(s->now));
	assert_memory_equal(&next.best, &s->best, sizeof(s->best));
	*s = next;
	ck_buf_release(&buf);
}

static void plateau_rates_are_those_of_torch(void **state)
{
	struct ckpt_err err;
	struct en_sched s;
	uint32_t lowered = 0;

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(plateau) / sizeof(plateau[0]); i++) {
		const char *kwargs = plateau[i / 2].kwargs;

		if (begin(&s, "reduce_lr_on_plateau", kwargs, 0, 100, &err))
			fail_msg("%s: %s", kwargs, err.msg);
		for (size_t k = 0; k < EVALUATIONS; k++) {
			const double before = en_sched_lr(&s, 0);
			bool lower;

			en_sched_advance(&s);	/* updates play no part */
			lower = en_sched_evaluated(&s, losses[k]);
			assert_true(lower == (en_sched_lr(&s, 0) < before));
			lowered += lower;
			if (en_sched_lr(&s, 1) != plateau[i / 2].lr[k])
				fail_msg("%s: evaluation %zu gives %.17g, theirs %.17g", kwargs,
					 k + 1, en_sched_lr(&s, 1), plateau[i / 2].lr[k]);
			if (i % 2)	/* resumed after each */
				pass_on(&s, kwargs);
		}
		assert_int_equal(s.done, EVALUATIONS);
	}
	assert_int_equal(lowered, 2 * (9 + 2 + 9 + 2));
}

static void states_of_plateaus_are_torchs(void **state)
{
	static const char theirs[] =	/* the Trainer's, as JSON */
		"{\"factor\": 0.5, \"default_min_lr\": 0, \"min_lrs\": [0, 0], \"patience\": 1, "
		"\"cooldown\": 0, \"eps\": 1e-08, \"last_epoch\": 24, \"_last_lr\": [1.953125e-06, "
		"2e-06], \"mode\": \"min\", \"threshold\": 0.0001, \"threshold_mode\": \"rel\", "
		"\"best\": 2.9, \"cooldown_counter\": 3, \"num_bad_epochs\": 1}";
	struct ck_buf buf = CK_BUF_INIT(10000);
	struct ckpt_err err;
	struct en_sched s, linear;

	(void)state;
	assert_int_equal(begin(&s, "reduce_lr_on_plateau", "{\"patience\": 5}", 0, 100, &err), 0);
	assert_int_equal(en_sched_state(&s, &buf, &err), 0);
	assert_null(strstr(buf.p, "\"best\""));	/* infinite: torch has it by itself */
	assert_non_null(strstr(buf.p, "\"num_bad_epochs\": 0"));
	ck_buf_release(&buf);
	assert_int_equal(en_sched_load(&s, theirs, sizeof(theirs) - 1, &err), 0);
	assert_true(en_sched_lr(&s, 0) == 1.953125e-06 && en_sched_lr(&s, 1) == 2e-06);
	assert_true(s.best == 2.9 && s.bad == 1 && s.cooling == 3 && s.done == 24);
	assert_true(s.patience == 5);	/* this run's */
	en_sched_set_base(&s, 0, LR);	/* the same rate is no new one */
	assert_true(en_sched_lr(&s, 0) == 1.953125e-06);
	en_sched_set_base(&s, 0, 2 * LR);
	assert_true(en_sched_lr(&s, 0) == 2 * LR);
	/* Evaluations are not taken for updates, nor the other way round. */
	assert_int_equal(begin(&linear, "linear", NULL, 0, 100, &err), 0);
	en_sched_advance(&linear);
	assert_int_equal(en_sched_load(&linear, theirs, sizeof(theirs) - 1, &err), 0);
	assert_int_equal(linear.done, 1);
	assert_int_equal(en_sched_state(&linear, &buf, &err), 0);
	assert_int_equal(begin(&s, "reduce_lr_on_plateau", NULL, 0, 100, &err), 0);
	assert_int_equal(en_sched_load(&s, buf.p, buf.len, &err), 0);
	assert_true(s.done == 0 && en_sched_lr(&s, 0) == LR);
	ck_buf_release(&buf);
}

static void wrong_values_are_refused(void **state)
{
	static const struct { const char *type, *kwargs, *words; } bad[] = {
		{ "wsd", NULL, "num_decay_steps is missing" },
		{ "wsd", "{\"num_decay_steps\": -1}", "must be 0 or more" },
		{ "wsd", "{\"num_decay_steps\": 101}", "longer than the run" },
		{ "wsd", "{\"num_decay_steps\": 1, \"decay_type\": \"exp\"}",
		  "expected \"linear\", \"cosine\" or \"1-sqrt\"" },
		{ "wsd", "{\"num_decay_steps\": 1, \"warmup_type\": 3}", "expected \"linear\"" },
		{ "reduce_lr_on_plateau", "{\"factor\": 1}", "factor is out of range" },
		{ "reduce_lr_on_plateau", "{\"patience\": -1}", "patience is out of range" },
		{ "reduce_lr_on_plateau", "{\"mode\": \"mid\"}", "\"min\" or \"max\"" },
		{ "reduce_lr_on_plateau", "{\"threshold_mode\": \"x\"}", "\"rel\" or \"abs\"" },
		{ "reduce_lr_on_plateau", "{\"min_lr\": [1]}", "1 values, and the optimizer 2" },
		{ "reduce_lr_on_plateau", "{\"num_cycles\": 1}", "no parameter 'num_cycles'" },
	};
	struct ckpt_err err;
	struct en_sched s;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(begin(&s, bad[i].type, bad[i].kwargs, 0, 100, &err),
				 -CKPT_E_USAGE);
		if (!strstr(err.msg, bad[i].words))
			fail_msg("%s %s: %s", bad[i].type, bad[i].kwargs, err.msg);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stable_rates_are_those_of_transformers),
		cmocka_unit_test(plateau_rates_are_those_of_torch),
		cmocka_unit_test(states_of_plateaus_are_torchs),
		cmocka_unit_test(wrong_values_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
