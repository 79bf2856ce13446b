/*
 * test_run_facts.c -- what a run keeps of itself besides its state: the fingerprint of its bits,
 * and its configuration as JSON.  If this fails, a resumed run promises bits that it does not
 * have, or a step says another configuration than the one it was made by.
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
#include "engine/checkpoint/en_run_facts.h"
#include "engine/checkpoint/en_fingerprint.h"
#include "kernels/include/kn_train.h"
#include "tests/engine/te_sched.h"

static const struct en_fingerprint base = {
	.world = 8, .accumulation = 2, .rows = 1, .tokens = 64, .precision = EN_BF16, .wire = 2,
	.rule = KN_ADAM_FUSED,
};

struct alike_row {
	const char *what;
	struct en_fingerprint now;
	bool same;
	const char *says;
};

#define ALL(w, a, r, t, p, wire_, rule_, mean) \
	{ w, a, r, t, p, wire_, rule_, mean, false, false, false, false }
#define NOW(w, a) ALL(w, a, 1, 64, EN_BF16, 2, KN_ADAM_FUSED, false)

static const struct alike_row alike[] = {
	{ "the same", NOW(8, 2), true, "8 ranks x 2" },
	{ "as many units", NOW(4, 4), true, "had not stopped" },
	{ "one rank", NOW(1, 16), true, "had not stopped" },
	{ "more units", NOW(8, 4), false, "ranks x accumulation" },
	{ "16 ranks", NOW(16, 1), true, "had not stopped" },
	{ "rows", ALL(8, 2, 2, 64, EN_BF16, 2, KN_ADAM_FUSED, false), false, "micro-batch" },
	{ "tokens", ALL(8, 2, 1, 65, EN_BF16, 2, KN_ADAM_FUSED, false), false, "length" },
	{ "precision", ALL(8, 2, 1, 64, EN_FP16, 2, KN_ADAM_FUSED, false), false, "precision" },
	{ "wire", ALL(8, 2, 1, 64, EN_BF16, 1, KN_ADAM_FUSED, false), false, "precision" },
	{ "rule", ALL(8, 2, 1, 64, EN_BF16, 2, KN_ADAM_CPU, false), false, "optimizer" },
	{ "mean", ALL(8, 2, 1, 64, EN_BF16, 2, KN_ADAM_FUSED, true), false, "--loss" },
};

static void same_bits(void **state)
{
	const struct en_fingerprint six = NOW(6, 2), four = NOW(4, 3), odd = NOW(3, 4);
	char text[EN_FINGERPRINT_TEXT];

	(void)state;
	for (size_t i = 0; i < sizeof(alike) / sizeof(alike[0]); i++) {
		if (en_fingerprint_same_bits(&alike[i].now, &base, text) != alike[i].same ||
		    !strstr(text, alike[i].says))
			fail_msg("%s: %s", alike[i].what, text);
	}
	/* 12 units: whole sub-trees of 4 at 4 ranks; at 3 and 6 the sums are of another order. */
	assert_false(en_fingerprint_same_bits(&four, &six, text));
	assert_non_null(strstr(text, "earlier number of ranks is not a power of two"));
	assert_false(en_fingerprint_same_bits(&odd, &four, text));
	assert_non_null(strstr(text, "is not a power of two"));
	assert_true(en_fingerprint_same_bits(&odd, &odd, text));
}

/* GPUs: only what is summed as a tree has the same bits. */
static void gpus(void **state)
{
	struct en_fingerprint eight = base, four;
	char text[EN_FINGERPRINT_TEXT];

	(void)state;
	eight.cuda = true;
	assert_false(en_fingerprint_same_bits(&eight, &base, text));
	assert_non_null(strstr(text, "on GPUs"));
	assert_false(en_fingerprint_same_bits(&eight, &eight, text));
	assert_non_null(strstr(text, "--reduction tree"));
	assert_false(en_fingerprint_same_bits(&eight, NULL, text));
	four = eight;
	four.world = 4;
	four.accumulation = 4;
	four.tree = true;
	assert_false(en_fingerprint_same_bits(&four, &eight, text));
	eight.tree = true;
	assert_true(en_fingerprint_same_bits(&four, &eight, text));
	assert_non_null(strstr(text, "had not stopped"));
	assert_true(en_fingerprint_same_bits(&four, NULL, text));
	assert_non_null(strstr(text, "on 1, 2, 4, 8, 16 ranks"));
	assert_non_null(strstr(text, "on GPUs of one kind"));
}

static void beginning(void **state)
{
	const struct en_fingerprint twelve = NOW(4, 3), five = NOW(5, 1);
	char text[EN_FINGERPRINT_TEXT];

	(void)state;
	assert_true(en_fingerprint_same_bits(&twelve, NULL, text));
	assert_non_null(strstr(text, "on 1, 2, 4 ranks"));
	assert_false(en_fingerprint_same_bits(&five, NULL, text));
	assert_non_null(strstr(text, "5 ranks is not a power of two"));
}

/* The tree that DeepSpeed would be given, and read again: the same settings, nothing "auto". */
static void config_as_json(void **state)
{
	static const char text[] =
		"{train_batch_size: \"auto\", # a comment\n"
		" \"train_micro_batch_size_per_gpu\": \"auto\", gradient_accumulation_steps: 2,\n"
		" \"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 5e8,\n"
		"  \"stage3_prefetch_bucket_size\": \"auto\"},\n"
		" \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\", "
		"\"betas\": \"auto\", \"eps\": 1e-7}}, \"comment \\u0007 \\\"q\\\"\": [null, 1.5]}";
	const struct en_facts facts = {
		.world = 4, .filler = EN_FILL_TRAINER, .hidden_size = 64, .has = EN_HAS_MICRO,
		.fills = EN_HAS_ALL, .micro_batch = 3, .accumulation = 7, .lr = 5e-5, .beta1 = 0.9,
		.beta2 = 0.999, .eps = 1e-8, .steps = 10,
	};
	const struct en_facts none = { .world = 4 };
	struct ck_buf buf = CK_BUF_INIT(1 << 16);
	struct en_config one, two;
	struct ckpt_err err = { 0 };

	(void)state;
	en_config_init(&one, EN_DS_0_19);
	if (en_config_parse_deepspeed(&one, text, strlen(text), "t.json", &err) ||
	    en_config_resolve(&one, &facts, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(one.set.train_batch, 24);	/* the file has 2: a default loses */
	assert_int_equal(en_node_write(one.tree, &buf, &err), 0);
	assert_null(memmem(buf.p, buf.len, "auto", 4));
	assert_non_null(memmem(buf.p, buf.len, "comment \\u0007 \\\"q\\\"\": [null, 1.5]", 33));
	en_config_init(&two, EN_DS_0_19);
	if (en_config_parse_deepspeed(&two, buf.p, buf.len, "again", &err) ||
	    en_config_resolve(&two, &none, &err))
		fail_msg("%s\n%.*s", err.msg, (int)buf.len, buf.p);
	assert_true(two.strict);
	assert_int_equal(two.set.train_batch, 24);
	assert_int_equal(two.set.prefetch_bucket_size, one.set.prefetch_bucket_size);
	assert_true(two.set.optimizer.lr == 5e-5 && two.set.optimizer.eps == 1e-7);
	ck_buf_release(&buf);
	en_config_release(&one);
	en_config_release(&two);
}

/* What was stated must agree with the file; a default need not. */
static void stated_or_default(void **state)
{
	static const char text[] = "{\"train_micro_batch_size_per_gpu\": 2, "
				   "\"gradient_clipping\": 0.3}";
	struct en_facts f = { .world = 1, .filler = EN_FILL_TRAINER, .max_grad_norm = 1,
			      .micro_batch = 2, .fills = EN_HAS_ALL };

	(void)state;
	for (int stated = 0; stated < 2; stated++) {
		struct ckpt_err err = { 0 };
		struct en_config c;

		f.has = stated ? EN_HAS_MAX_GRAD_NORM | EN_HAS_MICRO : 0;
		en_config_init(&c, EN_DS_0_19);
		assert_int_equal(en_config_parse_deepspeed(&c, text, strlen(text), "t", &err), 0);
		assert_int_equal(en_config_resolve(&c, &f, &err), stated ? -CKPT_E_MISMATCH : 0);
		if (!stated)
			assert_true(c.set.gradient_clipping == 0.3);
		en_config_release(&c);
	}
}

/* A step of another program, or of an older ztrain: resumed, with a word on what was not seen. */
static void steps_that_do_not_say(void **state)
{
	const struct en_model_config model = { .arch = EN_QWEN3, .hidden = 64, .rope.theta = 1e6 };
	const double lr[2] = { 1e-3, 1e-3 };
	struct en_zero_hyper group[2] = { { .beta1 = 0.9, .beta2 = 0.95, .decay = 0.1 },
					   { .lr = 0 } };
	const struct en_in_force nothing = { 0 };
	const struct en_in_force old = {
		.ngroups = 2, .group = { { 5e-4, 0.9, 0.95, 0, 0.2 }, { 5e-4, NAN, NAN, NAN, 0 } },
	};
	struct en_settings set = { .gradient_clipping = 1 };
	struct en_differ d = { .n = 0 };
	struct en_sched sched, own;
	struct en_run_facts now;
	struct ckpt_err err = { 0 };

	(void)state;
	assert_int_equal(te_sched_none(&sched, lr, 2, &err), 0);
	own = sched;
	en_run_facts_fill(&now, &model, &set, &sched);
	assert_int_equal(en_differ_model(&d, &now, NULL, false, "step", &err), 0);
	assert_int_equal(d.n, 1);
	assert_non_null(strstr(d.line[0], "does not record the rest of config.json"));
	assert_string_equal(d.keys, "");
	/* Two groups that say nothing of theirs stay as they are, and the rest is the step's. */
	en_differ_groups(&d, group, 2, &sched, &own, 0, &old);
	assert_int_equal(d.n, 4);
	assert_true(sched.base[0] == 5e-4 && sched.base[1] == 5e-4 && group[0].decay == 0.2);
	assert_true(group[1].beta1 == 0 && group[0].beta2 == 0.95);
	assert_string_equal(d.keys, "");
	d.n = 0;
	en_differ_groups(&d, group, 2, &sched, &own, EN_HAS_LR, &old);
	assert_true(sched.base[0] == 1e-3);
	assert_string_equal(d.keys, "lr");
	d = (struct en_differ){ .n = 0 };
	en_differ_groups(&d, group, 2, &sched, &own, 0, &nothing);
	assert_string_equal(d.keys, "param_groups");
	assert_int_equal(d.n, 1);
}

/* A step without the key was trained without 8-bit products, and no line says so twice. */
static void fp8_is_noted(void **state)
{
	const double lr[2] = { 1e-3, 1e-3 };
	const struct en_model_config model = { .arch = EN_QWEN3, .vocab = 8, .layers = 1 };
	const struct en_settings set = { .gradient_clipping = 1 };
	struct en_differ d = { .n = 0 };
	struct en_run_facts plain, with;
	struct en_sched sched;
	struct ckpt_err err = { 0 };

	(void)state;
	assert_int_equal(te_sched_none(&sched, lr, 2, &err), 0);
	en_run_facts_fill(&plain, &model, &set, &sched);
	en_run_facts_fill(&with, &model, &set, &sched);
	en_run_facts_fp8(&with, "tensorwise");
	en_differ_run(&d, &with, &with);
	en_differ_run(&d, &plain, &plain);
	assert_int_equal(d.n, 0);
	en_differ_run(&d, &with, &plain);
	assert_int_equal(d.n, 1);
	assert_string_equal(d.line[0],
			    "fp8: the step has off, this run tensorwise; using this run's");
	assert_string_equal(d.keys, "fp8");
	en_differ_run(&d, &plain, &with);
	assert_int_equal(d.n, 2);
	assert_string_equal(d.line[1],
			    "fp8: the step has tensorwise, this run off; using this run's");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_bits),
		cmocka_unit_test(gpus),
		cmocka_unit_test(beginning),
		cmocka_unit_test(config_as_json),
		cmocka_unit_test(stated_or_default),
		cmocka_unit_test(steps_that_do_not_say),
		cmocka_unit_test(fp8_is_noted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
