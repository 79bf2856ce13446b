/*
 * Every configuration that users published, and 78 with one oddity each, against what the real
 * DeepSpeed 0.19.8 (and 0.16.9, 0.18.9), accelerate 1.15 and transformers 5.17 made of it
 * (config/expected.json of the fixtures). If we read one otherwise, a user's file trains another
 * model here than there, or is refused for no reason.
 *
 * long on purpose: one walk over one file of expectations.
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
#include <strings.h>
#include <unistd.h>

#include "engine/config/en_config.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_tree.h"

static struct ck_arena arena;
static const struct en_node *expected, *defaults;
static unsigned compared;	/* settings */

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

static const struct en_node *need(const struct en_node *dict, const char *path)
{
	const struct en_node *v = en_node_path(dict, path);

	if (!v)
		fail_msg("expected.json has no %s", path);
	return v;
}

/* ------------------------------------------------------- verdicts we look for */

static const struct en_verdict *refusal(const struct en_config *cfg, bool theirs)
{
	for (uint64_t i = 0; i < cfg->n_verdicts; i++)
		if (cfg->verdict[i].ruling == EN_REFUSED && cfg->verdict[i].theirs == theirs)
			return &cfg->verdict[i];
	return NULL;
}

/* Numbers of DeepSpeed's own message: what stands behind "world_size ". */
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

/* --------------------------------------------------------------- settings */

/* "zero_config.stage" is zero_optimization.stage in the file. */
static bool our_path(const char *theirs, char *out, size_t n)
{
	static const struct {
		const char *theirs, *ours;
	} parts[] = {
		{ "zero_config.", "zero_optimization." }, { "float16_config.", "fp16." },
		{ "bfloat16_config.", "bf16." }, { "aio.", "aio." },
	}, whole[] = {
		{ "grad_accum_dtype", "data_types.grad_accum_dtype" },
		{ "load_universal_checkpoint", "checkpoint.load_universal" },
		{ "use_node_local_storage", "checkpoint.use_node_local_storage" },
		{ "optimizer_name", "optimizer.type" }, { "scheduler_name", "scheduler.type" },
	};
	static const char *const not_compared[] = {
		/* blocks, compared by what is in them, and what the engine has no setting for */
		"zero_config.offload_param", "zero_config.offload_optimizer", "zero_config.zenflow",
		"zero_config.leaf_module.classes", "zero_config.leaf_module.names",
		"zero_config.leaf_module.name_suffixes", "optimizer_params", "scheduler_params",
		/* old names: what they say is compared under the new ones */
		"zero_config.cpu_offload_param", "zero_config.cpu_offload",
		"zero_config.stage3_gather_fp16_weights_on_model_save",
		"zero_config.mics_shard_size", "zero_config.mics_hierarchical_params_gather",
		"zero_config.zeropp_loco_param",
		/* of 0.16, where fp16 and bf16 are no classes */
		"bfloat16_enabled", "dynamic_loss_scale_args", "fp16_auto_cast", "fp16_enabled",
		"initial_dynamic_scale", "loss_scale",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(not_compared); i++)
		if (!strcmp(not_compared[i], theirs))
			return false;
	for (size_t i = 0; i < CK_ARRAY_LEN(parts); i++)
		if (!strncmp(theirs, parts[i].theirs, strlen(parts[i].theirs))) {
			snprintf(out, n, "%s%s", parts[i].ours, theirs + strlen(parts[i].theirs));
			return true;
		}
	snprintf(out, n, "%s", theirs);
	for (size_t i = 0; i < CK_ARRAY_LEN(whole); i++)
		if (!strcmp(theirs, whole[i].theirs))
			snprintf(out, n, "%s", whole[i].ours);
	return true;
}

/* Paths are documented with "stage3_" where both are taken. */
static const struct en_origin *origin_of(const struct en_config *cfg, const char *path)
{
	const struct en_origin *o = en_config_origin(cfg, path);
	const char *dot = strrchr(path, '.');
	char with[160];

	if (o || !dot)
		return o;
	snprintf(with, sizeof(with), "%.*s.stage3_%s", (int)(dot - path), path, dot + 1);
	return en_config_origin(cfg, with);
}

/* Numbers are compared as numbers, words without their quotes and case ("AdamW" there: "adamw"). */
static bool same_value(const struct en_node *want, const char *got)
{
	char text[EN_VALUE_TEXT], *end;
	double f;

	if (want->type == EN_INT || want->type == EN_FLOAT) {
		f = strtod(got, &end);
		return !*end && f == want->f;
	}
	if (want->type != EN_STR) {
		en_node_text(want, text);
		return !strcmp(text, got);
	}
	if (!strcmp(want->str, "inf"))
		return !strcmp(got, "null");	/* steps_per_print: never */
	if (!strncmp(want->str, "torch.float32", 13))
		return !strcmp(got, "\"fp32\"");
	snprintf(text, sizeof(text), "\"%s\"", want->str);
	return !strcasecmp(text, got);
}

static void compare(const char *file, const struct en_config *cfg, const char *theirs,
		    const struct en_node *want)
{
	const struct en_origin *o;
	char path[160];

	if (!our_path(theirs, path, sizeof(path)) || en_node_is_str(want, "absent"))
		return;
	if (!strcmp(path, "zero_allow_untested_optimizer") && cfg->launch.from_accelerate)
		return;		/* accelerate writes it; there is no such check here */
	o = origin_of(cfg, path);
	if (!o)
		fail_msg("%s: there is no setting %s", file, path);
	if (!strcmp(file, "odd/acc_nvme.yaml") && strstr(path, "offload_optimizer.nvme_path"))
		want = en_node_str(&arena, "/nvme/offload", want->at);	/* lost there, used here */
	if (!same_value(want, o->value)) {
		char text[EN_VALUE_TEXT];

		en_node_text(want, text);
		fail_msg("%s: %s is %s, and %s there", file, path, o->value, text);
	}
	compared++;
}

/* optimizer_params, scheduler_params: what stands in the file, as it stands there. */
static void compare_params(const char *file, const struct en_config *cfg, const char *block,
			   const struct en_node *want)
{
	for (const struct en_node *v = want ? want->child : NULL; v; v = v->next) {
		char path[160];

		snprintf(path, sizeof(path), "%s.params.%s", block, v->key);
		compare(file, cfg, path, v);
	}
}

/* All defaults, but for those that differ. */
static void compare_all(const char *file, const struct en_config *cfg,
			const struct en_node *differs)
{
	for (const struct en_node *v = defaults->child; v; v = v->next)
		if (!en_node_get(differs, v->key))
			compare(file, cfg, v->key, v);
	for (const struct en_node *v = differs->child; v; v = v->next)
		compare(file, cfg, v->key, v);
	compare_params(file, cfg, "optimizer", en_node_get(differs, "optimizer_params"));
	compare_params(file, cfg, "scheduler", en_node_get(differs, "scheduler_params"));
}

static void compare_triple(const char *file, const struct en_config *cfg,
			   const struct en_node *want)
{
	const struct en_settings *s = &cfg->set;
	const struct en_node *v = want->child;

	if (s->train_batch != v->i || s->micro_batch != v->next->i ||
	    s->accumulation != v->next->next->i)
		fail_msg("%s, %u ranks: %lld = %lld x %lld x ranks; %lld, %lld, %lld there", file,
			 s->world, (long long)s->train_batch, (long long)s->micro_batch,
			 (long long)s->accumulation, (long long)v->i, (long long)v->next->i,
			 (long long)v->next->next->i);
	compared += 3;
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
		compare_triple(file, &cfg, want);
		if (differs)
			compare_all(file, &cfg, differs);
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
	const struct en_node *files = need(expected, "deepspeed.files");
	unsigned n = 0;

	(void)state;
	compared = 0;
	for (const struct en_node *f = files->child; f; f = f->next, n++)
		all_worlds(f->key, EN_DS_0_19, f, en_node_get(f, "differs_from_defaults"));
	assert_int_equal(n, 59);
	print_message("%u files, %u settings\n", n, compared);
	assert_int_equal(compared, 9000);
}

/* What differs there from 0.19.8, and is no other name of the same. */
static void other_version(const char *file, const struct en_node *entry, const char *name,
			  const struct en_node *worlds)
{
	const enum en_ds_version version = en_ds_version_parse(name);
	const struct en_node *differs = en_node_get(entry, "differs_from_0.19.8");
	const struct en_facts facts = { .world = 1 };
	struct ckpt_err err = { 0 };
	struct en_config cfg;

	assert_int_not_equal(version, 0);
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
			compare(file, &cfg, v->key, v);
	en_config_release(&cfg);
}

static void older_versions_have_their_own_rules(void **state)
{
	const struct en_node *files = need(expected, "deepspeed.files");
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
	const struct en_node *versions = need(expected, "deepspeed.defaults_of_other_versions");

	(void)state;
	for (const struct en_node *v = versions->child; v; v = v->next) {
		const struct en_facts facts = { .world = 1 };
		struct en_config cfg;

		en_config_init(&cfg, en_ds_version_parse(v->key));
		assert_int_equal(en_config_read_deepspeed(&cfg, "odd/tb_only.json", NULL), 0);
		assert_int_equal(en_config_resolve(&cfg, &facts, NULL), 0);
		for (const struct en_node *d = v->child; d; d = d->next)
			compare(v->key, &cfg, d->key, d);
		for (const struct en_node *d = defaults->child; d; d = d->next)
			if (!en_node_get(v, d->key))
				compare(v->key, &cfg, d->key, d);
		en_config_release(&cfg);
	}
}

/* ------------------------------------------------------------- accelerate */

static void same_launch(const char *file, const struct en_launch *l, const struct en_node *want)
{
	const struct en_node *ip = need(want, "main_process_ip");
	const struct en_node *port = need(want, "main_process_port");

	assert_int_equal(l->num_processes, need(want, "num_processes")->i);
	assert_int_equal(l->num_machines, need(want, "num_machines")->i);
	assert_int_equal(l->machine_rank, need(want, "machine_rank")->i);
	assert_string_equal(l->mixed_precision, need(want, "mixed_precision")->str);
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
		same_launch(file, &cfg->launch, need(entry, "launch"));
		same_lost_keys(file, cfg, need(entry, "deepspeed_config_keys_without_effect"));
		compare_triple(file, cfg, need(entry, "deepspeed_resolution.triple"));
		compare_all(file, cfg, need(entry, "deepspeed_resolution.differs_from_defaults"));
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
		assert_non_null(strstr(err.msg, "stands twice"));
	} else {
		if (!rc)
			rc = en_config_resolve(&cfg, &facts, &err);
		accelerate_result(file, &cfg, rc, &err, entry);
	}
	en_config_release(&cfg);
}

static void accelerate_files_are_read_as_there(void **state)
{
	const struct en_node *files = need(expected, "accelerate.files");
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
	const struct en_node *a = need(run, "arguments");

	return (struct en_facts){
		.world = (uint32_t)need(run, "world_size")->i,
		.filler = EN_FILL_TRAINER,
		.hidden_size = (uint64_t)need(run, "hidden_size")->i,
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
		.steps = (uint64_t)need(run, "num_training_steps")->i,
		.fp16 = arg(a, "fp16", 0) != 0,
		.bf16 = arg(a, "bf16", 0) != 0,
	};
}

static void put_before(struct en_node *dict, const char *key, const struct en_node *v)
{
	struct en_node *copy = en_node_new(&arena, EN_NULL, dict->at);

	if (v)
		*copy = *v;
	copy->key = key;
	copy->next = dict->child;
	dict->child = copy;
}

/* expected.json leaves out two settings of these runs' differences; the configuration has them. */
static const struct en_node *differences(const struct en_node *run)
{
	struct en_node *differs = en_node_new(&arena, EN_DICT, run->at);

	*differs = *need(run, "deepspeed_resolution.differs_from_defaults");
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
	const char *file = need(run, "file")->str;
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
			same_mismatches(&cfg, need(run, "message")->str);
		} else {
			if (rc)
				fail_msg("%s: %s", file, err.msg);
			compare_triple(file, &cfg, need(run, "deepspeed_resolution.triple"));
			compare_all(file, &cfg, differences(run));
		}
	}
	en_config_release(&cfg);
}

static void the_trainer_fills_in_what_it_fills_in_there(void **state)
{
	const struct en_node *runs = need(expected, "transformers.runs");
	unsigned n = 0;

	(void)state;
	for (const struct en_node *r = runs->child; r; r = r->next, n++)
		one_run(r);
	assert_int_equal(n, 10);
}

static int load(void **state)
{
	struct ck_arena *keep = &arena;
	struct en_node *root = NULL;
	char *text = NULL, path[4096];
	uint64_t len = 0;

	(void)state;
	snprintf(path, sizeof(path), "%s/config", getenv("ZCKPT_FIXTURES"));
	if (chdir(path) || ck_file_read("expected.json", 1 << 20, &text, &len, NULL) ||
	    en_node_json(keep, text, len, "expected.json", &root, NULL, NULL))
		return -1;
	ck_free(text);
	expected = root;
	defaults = en_node_path(root, "deepspeed.defaults");
	return 0;
}

static int unload(void **state)
{
	(void)state;
	ck_arena_release(&arena);
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
