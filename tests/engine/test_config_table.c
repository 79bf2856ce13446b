/*
 * Every configuration that users published, and 78 with one oddity each, against what the real
 * DeepSpeed 0.19.8 (and 0.16.9, 0.18.9), accelerate 1.15 and transformers 5.17 made of it
 * (config/expected.json of the fixtures). If we read one otherwise, a user's file trains another
 * model here than there, or is refused for no reason.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_base.h"
#include "tests/engine/te_expected.h"

static struct te_expected expected;

/* Where we say no although they say yes, and why that is right. */
static const struct {
	const char *file, *path;
	enum en_ds_version from, to;
} refused_here[] = {
	/* They take both as they are, and fail in the first step. */
	{ "odd/clipping_string.json", "gradient_clipping", EN_DS_0_16, EN_DS_0_19 },
	{ "odd/nulls.json", "gradient_clipping", EN_DS_0_16, EN_DS_0_19 },
	/* deepspeed.initialize() fails on it; the configuration alone does not. */
	{ "odd/optimizer_max_grad_norm.json", "optimizer.params.max_grad_norm", EN_DS_0_19,
	  EN_DS_0_19 },
	/* No class reads these in 0.16, and a string is true in Python: it would run by accident.
	 */
	{ "odd/auto_zero_only.json", "bf16.enabled", EN_DS_0_16, EN_DS_0_16 },
	{ "odd/fp16_strings.json", "fp16.enabled", EN_DS_0_16, EN_DS_0_16 },
	/* Not built. */
	{ "odd/zeropp.json", "zero_optimization.zero_hpz_partition_size", EN_DS_0_16, EN_DS_0_19 },
};

static const char *refusal_here(const char *file, enum en_ds_version version)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(refused_here); i++)
		if (!strcmp(refused_here[i].file, file) && version >= refused_here[i].from &&
		    version <= refused_here[i].to)
			return refused_here[i].path;
	return NULL;
}

/* ------------------------------------------------------- verdicts we look for */

static const struct en_verdict *refusal(const struct en_config *cfg, bool theirs)
{
	for (uint64_t i = 0; i < cfg->n_verdicts; i++)
		if (cfg->verdict[i].ruling == EN_REFUSED && cfg->verdict[i].theirs == theirs)
			return &cfg->verdict[i];
	return NULL;
}

/* Numbers of DeepSpeed's own message: what follows "world_size ". */
static void same_numbers(const char *file, const char *message, const struct en_config *cfg)
{
	static const char mark[] = "* world_size ";
	const char *numbers = strstr(message, mark);

	for (uint64_t i = 0; numbers && i < cfg->n_verdicts; i++)
		if (strstr(cfg->verdict[i].why, numbers + strlen(mark)))
			numbers = NULL;
	if (numbers)
		fail_msg("%s: the numbers of \"%s\" are not said", file, message);
}

static void must_be_refused(const char *file, const struct en_config *cfg, int rc,
			    const struct ckpt_err *err, const struct en_node *want)
{
	const struct en_verdict *v = refusal(cfg, true);
	const struct en_node *message = en_node_get(want, "message");

	if (!rc)
		fail_msg("%s: accepted; %s", file, message ? message->str : "");
	if (!err->msg[0])
		fail_msg("%s: refused without a word", file);
	if (cfg->tree && !v)
		fail_msg("%s: refused as ours alone: %s", file, err->msg);
	if (message)
		same_numbers(file, message->str, cfg);
}

/* -------------------------------------------------------------- DeepSpeed */

static void one_world(const char *file, enum en_ds_version version, uint32_t world,
		      const struct en_node *want, const struct en_node *differs)
{
	const struct en_facts facts = { .world = world };
	const char *ours = refusal_here(file, version);
	struct ckpt_err err = { 0 };
	struct en_config cfg;
	int rc;

	en_config_init(&cfg, version);
	rc = en_config_read_deepspeed(&cfg, file, &err);
	if (!rc)
		rc = en_config_resolve(&cfg, &facts, &err);
	if (want->type != EN_LIST) {
		must_be_refused(file, &cfg, rc, &err, want);
	} else if (ours) {
		if (!rc || !en_config_verdict(&cfg, ours) ||
		    en_config_verdict(&cfg, ours)->ruling != EN_REFUSED)
			fail_msg("%s: %s is not refused", file, ours);
	} else if (rc) {
		fail_msg("%s, %u ranks: %s", file, world, err.msg);
	} else {
		te_same_batches(&expected, file, &cfg, want);
		if (differs)
			te_same_settings(&expected, file, &cfg, differs);
	}
	en_config_release(&cfg);
}

static void all_worlds(const char *file, enum en_ds_version version, const struct en_node *entry,
		       const struct en_node *differs)
{
	const struct en_node *by_world = en_node_get(entry, "by_world");

	if (!by_world) {
		one_world(file, version, 1, entry, NULL);
		return;
	}
	for (const struct en_node *w = by_world->child; w; w = w->next)
		one_world(file, version, (uint32_t)atoi(w->key), w, differs);
}

static void deepspeed_files_are_read_as_there(void **state)
{
	const struct en_node *files = te_need(expected.root, "deepspeed.files");
	unsigned n = 0;

	(void)state;
	expected.compared = 0;
	for (const struct en_node *f = files->child; f; f = f->next, n++)
		all_worlds(f->key, EN_DS_0_19, f, en_node_get(f, "differs_from_defaults"));
	assert_int_equal(n, 59);
	print_message("%u files, %u settings\n", n, expected.compared);
	assert_int_equal(expected.compared, 9000);
}

static enum en_ds_version version_named(const char *name)
{
	for (int i = EN_DS_0_16; i <= EN_DS_0_19; i++)
		if (!strcmp(name, en_ds_version_name((enum en_ds_version)i)))
			return (enum en_ds_version)i;
	fail_msg("no rules of DeepSpeed %s are known", name);
	return (enum en_ds_version)0;
}

/* What differs there from 0.19.8, and is no other name of the same. */
static void other_version(const char *file, const struct en_node *entry, const char *name,
			  const struct en_node *worlds)
{
	const enum en_ds_version version = version_named(name);
	const struct en_node *differs = en_node_get(entry, "differs_from_0.19.8");
	const struct en_facts facts = { .world = 1 };
	struct ckpt_err err = { 0 };
	struct en_config cfg;

	if (en_node_get(entry, "error") || en_node_get(entry, "by_world")) {
		all_worlds(file, version, entry, NULL);
		return;
	}
	if (refusal_here(file, version) || en_node_get(en_node_get(worlds, "1"), "error"))
		return;
	en_config_init(&cfg, version);
	assert_int_equal(en_config_read_deepspeed(&cfg, file, &err), 0);
	if (en_config_resolve(&cfg, &facts, &err))
		fail_msg("%s as of %s: %s", file, name, err.msg);
	for (const struct en_node *v = differs ? differs->child : NULL; v; v = v->next)
		if (strcmp(v->key, "optimizer_params") != 0)
			te_same_setting(&expected, file, &cfg, v->key, v);
	en_config_release(&cfg);
}

static void older_versions_have_their_own_rules(void **state)
{
	const struct en_node *files = te_need(expected.root, "deepspeed.files");
	unsigned n = 0;

	(void)state;
	for (const struct en_node *f = files->child; f; f = f->next) {
		const struct en_node *others = en_node_get(f, "other_versions");

		for (const struct en_node *v = others ? others->child : NULL; v; v = v->next, n++)
			other_version(f->key, v, v->key, en_node_get(f, "by_world"));
	}
	assert_true(n >= 20);
}

static void older_versions_have_their_own_defaults(void **state)
{
	const struct en_node *versions =
		te_need(expected.root, "deepspeed.defaults_of_other_versions");

	(void)state;
	for (const struct en_node *v = versions->child; v; v = v->next) {
		const struct en_facts facts = { .world = 1 };
		struct en_config cfg;

		en_config_init(&cfg, version_named(v->key));
		assert_int_equal(en_config_read_deepspeed(&cfg, "odd/tb_only.json", NULL), 0);
		assert_int_equal(en_config_resolve(&cfg, &facts, NULL), 0);
		for (const struct en_node *d = v->child; d; d = d->next)
			te_same_setting(&expected, v->key, &cfg, d->key, d);
		for (const struct en_node *d = expected.defaults->child; d; d = d->next)
			if (!en_node_get(v, d->key))
				te_same_setting(&expected, v->key, &cfg, d->key, d);
		en_config_release(&cfg);
	}
}

/* ------------------------------------------------------------- accelerate */

static void same_launch(const char *file, const struct en_launch *l, const struct en_node *want)
{
	const struct en_node *ip = te_need(want, "main_process_ip");
	const struct en_node *port = te_need(want, "main_process_port");

	assert_int_equal(l->num_processes, te_need(want, "num_processes")->i);
	assert_int_equal(l->num_machines, te_need(want, "num_machines")->i);
	assert_int_equal(l->machine_rank, te_need(want, "machine_rank")->i);
	assert_string_equal(l->mixed_precision, te_need(want, "mixed_precision")->str);
	assert_int_equal(l->main_process_port, port->type == EN_INT ? port->i : 0);
	if (ip->type != EN_STR ? l->main_process_ip != NULL :
	    strcmp(l->main_process_ip, ip->str) != 0)
		fail_msg("%s: main_process_ip", file);
}

/* The keys that accelerate loses, and no others, are named. */
static void same_lost_keys(const char *file, const struct en_config *cfg,
			   const struct en_node *want)
{
	uint32_t n = 0;

	for (uint64_t i = 0; i < cfg->n_verdicts; i++)
		n += cfg->verdict[i].ruling == EN_IGNORED && cfg->verdict[i].theirs &&
		     !strncmp(cfg->verdict[i].path, "deepspeed_config.", 17);
	if (n != want->n)
		fail_msg("%s: %u keys without effect, %u there", file, n, want->n);
	for (const struct en_node *k = want->child; k; k = k->next) {
		char path[128];

		snprintf(path, sizeof(path), "deepspeed_config.%s", k->str);
		if (!en_config_verdict(cfg, path) ||
		    en_config_verdict(cfg, path)->ruling != EN_IGNORED)
			fail_msg("%s: %s is not said to be lost", file, path);
	}
}

static void accelerate_result(const char *file, struct en_config *cfg, int rc,
			      const struct ckpt_err *err, const struct en_node *entry)
{
	const struct en_node *error = en_node_get(entry, "error");

	if (en_node_is_str(error, "JSONDecodeError")) {
		assert_int_equal(rc, 0);	/* taken here, and it is said that they do not */
		assert_false(cfg->strict);
	} else if (error) {
		must_be_refused(file, cfg, rc, err, entry);
	} else {
		if (rc)
			fail_msg("%s: %s", file, err->msg);
		same_launch(file, &cfg->launch, te_need(entry, "launch"));
		same_lost_keys(file, cfg, te_need(entry, "deepspeed_config_keys_without_effect"));
		te_same_batches(&expected, file, cfg,
				te_need(entry, "deepspeed_resolution.triple"));
		te_same_settings(&expected, file, cfg,
				 te_need(entry, "deepspeed_resolution.differs_from_defaults"));
	}
}

static void one_yaml(const struct en_node *entry)
{
	const char *arg = strstr(entry->key, " --num_processes ");
	struct en_facts facts = { .hidden_size = 64, .has = EN_HAS_MICRO, .micro_batch = 4 };
	struct ckpt_err err = { 0 };
	struct en_config cfg;
	char file[128];
	int rc;

	snprintf(file, sizeof(file), "%.*s",
		 (int)(arg ? (size_t)(arg - entry->key) : strlen(entry->key)), entry->key);
	en_config_init(&cfg, EN_DS_0_19);
	rc = en_config_read_accelerate(&cfg, file, arg ? (uint32_t)atoi(arg + 17) : 0, &err);
	facts.world = cfg.launch.num_processes ? cfg.launch.num_processes : 1;
	if (!strcmp(file, "odd/acc_config_file_duplicate.yaml")) {
		/* accelerate takes the last of two; DeepSpeed refuses that, and so do we */
		assert_int_equal(rc, -CKPT_E_CORRUPT);
		assert_non_null(strstr(err.msg, "appears twice"));
	} else {
		if (!rc)
			rc = en_config_resolve(&cfg, &facts, &err);
		accelerate_result(file, &cfg, rc, &err, entry);
	}
	en_config_release(&cfg);
}

static void accelerate_files_are_read_as_there(void **state)
{
	const struct en_node *files = te_need(expected.root, "accelerate.files");
	unsigned n = 0;

	(void)state;
	if (!en_node_has_yaml())
		skip();
	for (const struct en_node *f = files->child; f; f = f->next, n++)
		one_yaml(f);
	assert_int_equal(n, 29);
}

/* ----------------------------------------------------------- transformers */

static double arg(const struct en_node *args, const char *name, double dflt)
{
	const struct en_node *v = en_node_get(args, name);

	return v ? v->type == EN_BOOL ? (double)v->i : v->f : dflt;
}

/* TrainingArguments, with its defaults. */
static struct en_facts trainer(const struct en_node *run)
{
	const struct en_node *a = te_need(run, "arguments");

	return (struct en_facts){
		.world = (uint32_t)te_need(run, "world_size")->i,
		.filler = EN_FILL_TRAINER,
		.hidden_size = (uint64_t)te_need(run, "hidden_size")->i,
		.has = EN_HAS_ALL,
		.micro_batch = (uint64_t)arg(a, "per_device_train_batch_size", 8),
		.accumulation = (uint64_t)arg(a, "gradient_accumulation_steps", 1),
		.lr = arg(a, "learning_rate", 5e-5),
		.beta1 = arg(a, "adam_beta1", 0.9),
		.beta2 = arg(a, "adam_beta2", 0.999),
		.eps = arg(a, "adam_epsilon", 1e-8),
		.weight_decay = arg(a, "weight_decay", 0),
		.max_grad_norm = arg(a, "max_grad_norm", 1),
		.warmup_steps = arg(a, "warmup_steps", 0),
		.steps = (uint64_t)te_need(run, "num_training_steps")->i,
		.fp16 = arg(a, "fp16", 0) != 0,
		.bf16 = arg(a, "bf16", 0) != 0,
	};
}

static void put_before(struct en_node *dict, const char *key, const struct en_node *v)
{
	struct en_node *copy = en_node_new(&expected.arena, EN_NULL, dict->at);

	if (v)
		*copy = *v;
	copy->key = key;
	copy->next = dict->child;
	dict->child = copy;
}

/* expected.json leaves out two settings of these runs' differences; the configuration has them. */
static const struct en_node *differences(const struct en_node *run)
{
	struct en_node *differs = en_node_new(&expected.arena, EN_DICT, run->at);

	*differs = *te_need(run, "deepspeed_resolution.differs_from_defaults");
	put_before(differs, "steps_per_print",
		   en_node_path(run, "deepspeed_config.steps_per_print"));
	if (en_node_path(run, "deepspeed_config.bf16.enabled"))
		put_before(differs, "bfloat16_config.enabled",
			   en_node_path(run, "deepspeed_config.bf16.enabled"));
	return differs;
}

/* Each value the Trainer names as not its own is refused here by its path. */
static void same_mismatches(const struct en_config *cfg, const char *message)
{
	for (const char *p = strstr(message, "- ds "); p; p = strstr(p + 1, "- ds ")) {
		char path[128];

		snprintf(path, sizeof(path), "%.*s", (int)strcspn(p + 5, "="), p + 5);
		if (!en_config_verdict(cfg, path) ||
		    en_config_verdict(cfg, path)->ruling != EN_REFUSED)
			fail_msg("%s is not refused", path);
	}
}

static void one_run(const struct en_node *run)
{
	const char *file = te_need(run, "file")->str;
	const struct en_node *error = en_node_get(run, "error");
	const struct en_facts facts = trainer(run);
	struct ckpt_err err = { 0 };
	struct en_config cfg;
	int rc;

	en_config_init(&cfg, EN_DS_0_19);
	rc = en_config_read_deepspeed(&cfg, file, &err);
	if (!strcmp(file, "odd/duplicate_key.json")) {
		assert_int_equal(rc, -CKPT_E_CORRUPT);
	} else if (en_node_is_str(error, "JSONDecodeError")) {
		assert_int_equal(rc, 0);
		assert_false(cfg.strict);
	} else {
		assert_true(cfg.strict);
		rc = en_config_resolve(&cfg, &facts, &err);
		if (error) {
			must_be_refused(file, &cfg, rc, &err, run);
			same_mismatches(&cfg, te_need(run, "message")->str);
		} else {
			if (rc)
				fail_msg("%s: %s", file, err.msg);
			te_same_batches(&expected, file, &cfg,
					te_need(run, "deepspeed_resolution.triple"));
			te_same_settings(&expected, file, &cfg, differences(run));
		}
	}
	en_config_release(&cfg);
}

static void the_trainer_fills_in_what_it_fills_in_there(void **state)
{
	const struct en_node *runs = te_need(expected.root, "transformers.runs");
	unsigned n = 0;

	(void)state;
	for (const struct en_node *r = runs->child; r; r = r->next, n++)
		one_run(r);
	assert_int_equal(n, 10);
}

static int load(void **state)
{
	(void)state;
	return te_expected_load(&expected);
}

static int unload(void **state)
{
	(void)state;
	te_expected_release(&expected);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(deepspeed_files_are_read_as_there),
		cmocka_unit_test(older_versions_have_their_own_rules),
		cmocka_unit_test(older_versions_have_their_own_defaults),
		cmocka_unit_test(accelerate_files_are_read_as_there),
		cmocka_unit_test(the_trainer_fills_in_what_it_fills_in_there),
	};

	return cmocka_run_group_tests(tests, load, unload);
}
