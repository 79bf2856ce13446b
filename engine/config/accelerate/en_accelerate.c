/*
 * en_accelerate.c -- the DeepSpeed configuration that accelerate 1.15 makes of its YAML.
 *
 * Three steps there are one here: `accelerate launch` reads the file
 * (commands/config/config_args.py, commands/launch.py) and passes on what it knows in the
 * environment, as text; DeepSpeedPlugin makes a configuration of that or reads
 * deepspeed_config_file (utils/dataclasses.py); "auto" is filled in later (en_fill.c).  What launch
 * does not know under deepspeed_config is lost silently; this file names it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/config/accelerate/en_accelerate_priv.h"
#include "engine/config/deepspeed/en_deepspeed.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_tree.h"

/* --------------------------------------------------- what a value is as text */

/* As str() of Python in small letters: what comes out of the environment. */
static void env_text(const struct en_node *v, char out[EN_VALUE_TEXT])
{
	if (v->type == EN_STR)
		snprintf(out, EN_VALUE_TEXT, "%s", v->str);
	else
		en_node_text(v, out);
	for (char *p = out; *p; p++)
		if (*p >= 'A' && *p <= 'Z')
			*p = (char)(*p + 32);
}

static bool all_digits(const char *s)
{
	return *s && strlen(s) < 10 && strspn(s, "0123456789") == strlen(s);
}

/* null is as if the key were absent. */
static struct en_node *given(const struct en_node *dict, const char *key)
{
	struct en_node *v = en_node_get(dict, key);

	return v && v->type != EN_NULL ? v : NULL;
}

static struct en_place made(const struct en_node *v)
{
	return v ? v->at : (struct en_place){ .from = EN_FROM_ACCELERATE };
}

static struct en_node *keep(struct en_yaml *y, struct en_node *v)
{
	if (!v)
		y->ev.rc = -CKPT_E_NOMEM;
	return v;
}

static struct ck_arena *arena(struct en_yaml *y)
{
	return &y->ev.cfg->arena;
}

/* The verdict a key has already, in other words; accelerate does the same. */
static void revise(struct en_yaml *y, const char *path, enum en_ruling ruling, const char *why)
{
	for (uint64_t i = 0; i < y->ev.cfg->n_verdicts; i++) {
		struct en_verdict *v = &y->ev.cfg->verdict[i];

		if (!strcmp(v->path, path)) {
			v->ruling = ruling;
			v->theirs = ruling != EN_USED;
			v->why = why;
		}
	}
}

/* ------------------------------------------- the values of deepspeed_config */

static struct en_node *stage(struct en_yaml *y)
{
	const struct en_node *v = given(y->ds, "zero_stage");
	char text[EN_VALUE_TEXT] = "2";

	if (v)
		env_text(v, text);
	if (!all_digits(text)) {
		en_refuse(&y->ev, true, CKPT_E_CORRUPT, "deepspeed_config.zero_stage", v,
			  "expected a whole number");
		return NULL;
	}
	return keep(y, en_node_int(arena(y), atoll(text), made(v)));
}

/* An "auto" of the file is for en_fill.c: accelerate alone fails on it, the Trainer fills it in. */
static struct en_node *accumulation(struct en_yaml *y)
{
	const struct en_node *v = given(y->ds, "gradient_accumulation_steps");
	char text[EN_VALUE_TEXT] = "auto";

	if (v)
		env_text(v, text);
	if (strcmp(text, "auto") != 0 && !all_digits(text))
		en_refuse(&y->ev, true, CKPT_E_CORRUPT,
			  "deepspeed_config.gradient_accumulation_steps", v,
			  "Accelerator() calls int() on this and would fail; use an integer");
	if (!all_digits(text))
		return keep(y, en_node_str(arena(y), "auto", made(v)));
	return keep(y, en_node_int(arena(y), atoll(text), made(v)));
}

/* NULL without a refusal: 0, which accelerate leaves out, so that DeepSpeed's default counts. */
static struct en_node *clipping(struct en_yaml *y)
{
	const struct en_node *v = given(y->ds, "gradient_clipping");
	char text[EN_VALUE_TEXT] = "auto";
	char *end;
	double f;

	if (v)
		env_text(v, text);
	if (!strcmp(text, "auto"))
		return keep(y, en_node_str(arena(y), "auto", made(v)));
	f = strtod(text, &end);
	if (*end || end == text) {
		en_refuse(&y->ev, true, CKPT_E_CORRUPT, "deepspeed_config.gradient_clipping", v,
			  "expected a number");
		return NULL;
	}
	if (f == 0) {
		revise(y, "deepspeed_config.gradient_clipping", EN_NO_EFFECT,
		       "accelerate drops a 0, and DeepSpeed uses its default");
		return NULL;
	}
	return keep(y, en_node_float(arena(y), f, made(v)));
}

/* Here the path is used; accelerate 1.15 never passes it on, and "none" is what is left. */
static void offload(struct en_yaml *y, struct en_node *zero, const char *key,
		    const char *device_key, const char *path_key)
{
	const struct en_node *v = given(y->ds, device_key), *path = given(y->ds, path_key);
	struct en_node *block = en_node_new(arena(y), EN_DICT, made(v)), *p;
	char text[EN_VALUE_TEXT] = "none", where[64];

	snprintf(where, sizeof(where), "deepspeed_config.%s", path_key);
	if (v)
		env_text(v, text);
	keep(y, en_node_add(block, "device", en_node_str(arena(y), text, made(v))));
	if (!strcmp(text, "nvme") && path && path->type == EN_STR) {
		p = en_node_str(arena(y), path->str, made(path));
		en_rule(&y->ev, EN_USED, where, path,
			"accelerate 1.15 loses this value, and DeepSpeed would write to a folder "
			"named \"none\"");
		keep(y, en_node_add(block, "nvme_path", p));
	} else if (path) {
		en_rule(&y->ev, EN_NO_EFFECT, where, path, "the device is not nvme");
	}
	keep(y, en_node_add(zero, key, block));
}

static struct en_node *save_flag(struct en_yaml *y)
{
	const struct en_node *v = given(y->ds, "zero3_save_16bit_model");
	char text[EN_VALUE_TEXT] = "false";

	if (v)
		env_text(v, text);
	return keep(y, en_node_bool(arena(y), !strcmp(text, "true"), made(v)));
}

static struct en_node *switched(struct en_yaml *y, bool on, struct en_place at)
{
	struct en_node *block = en_node_new(arena(y), EN_DICT, at);

	return keep(y, en_node_add(block, "enabled", en_node_bool(arena(y), on, at))) ? block
										      : NULL;
}

static void add_precision(struct en_yaml *y, struct en_node *tree)
{
	const char *mixed = y->ev.cfg->launch.mixed_precision;
	const struct en_place at = made(y->mixed);
	const bool fp16 = !strcmp(mixed, "fp16"), bf16 = !strcmp(mixed, "bf16");
	struct en_node *half = switched(y, fp16, at);

	if (fp16 && half)
		keep(y, en_node_add(half, "auto_cast", en_node_bool(arena(y), true, at)));
	if (!en_node_get(tree, "fp16"))
		keep(y, en_node_add(tree, "fp16", half));
	if (!en_node_get(tree, "bf16"))
		keep(y, en_node_add(tree, "bf16", switched(y, bf16, at)));
}

static struct en_node *automatic(struct en_yaml *y)
{
	return keep(y, en_node_str(arena(y), "auto", made(NULL)));
}

static void build(struct en_yaml *y)
{
	struct en_node *tree = keep(y, en_node_new(arena(y), EN_DICT, made(NULL)));
	struct en_node *zero = keep(y, en_node_new(arena(y), EN_DICT, made(NULL)));

	en_node_add(tree, "train_batch_size", automatic(y));
	en_node_add(tree, "train_micro_batch_size_per_gpu", automatic(y));
	en_node_add(tree, "gradient_accumulation_steps", accumulation(y));
	en_node_add(tree, "zero_optimization", zero);
	en_node_add(zero, "stage", stage(y));
	if (y->ev.rc)
		return;
	offload(y, zero, "offload_optimizer", "offload_optimizer_device",
		"offload_optimizer_nvme_path");
	offload(y, zero, "offload_param", "offload_param_device", "offload_param_nvme_path");
	en_node_add(zero, "stage3_gather_16bit_weights_on_model_save", save_flag(y));
	en_node_add(tree, "gradient_clipping", clipping(y));
	if (!y->ev.rc)
		add_precision(y, tree);
	y->ev.cfg->tree = tree;
}

/* --------------------------------------------------- deepspeed_config_file */

static const char *const not_beside[] = {
	"zero_stage", "gradient_accumulation_steps", "gradient_clipping",
	"offload_optimizer_device", "offload_param_device", "offload_optimizer_nvme_path",
	"offload_param_nvme_path", "zero3_save_16bit_model",
};

static void beside(struct en_yaml *y)
{
	char path[64];

	for (size_t i = 0; i < CK_ARRAY_LEN(not_beside); i++) {
		const struct en_node *v = en_node_get(y->ds, not_beside[i]);

		snprintf(path, sizeof(path), "deepspeed_config.%s", not_beside[i]);
		if (v)
			en_refuse(&y->ev, true, CKPT_E_MISMATCH, path, v,
				  "accelerate rejects this key together with "
				  "deepspeed_config_file; move it to the DeepSpeed file");
	}
	if (y->mixed)
		en_refuse(&y->ev, true, CKPT_E_MISMATCH, "mixed_precision", y->mixed,
			  "accelerate rejects this key together with deepspeed_config_file; enable "
			  "fp16 or bf16 in the DeepSpeed file");
}

static void auto_is(struct en_yaml *y, const char *path, struct en_node *v)
{
	struct en_node *old = en_node_path(y->ev.cfg->tree, path);

	if (!keep(y, v) || !en_node_is_auto(old))
		return;
	v->at = old->at;
	v->at.from = EN_FROM_AUTO;
	v->at.why = "accelerate's default if the YAML has no value";
	en_node_replace(old, v);
}

static void plugin(struct en_yaml *y)
{
	struct en_node *tree = y->ev.cfg->tree, *print = en_node_get(tree, "steps_per_print");
	struct en_node *never = keep(y, en_node_new(arena(y), EN_NULL, made(NULL)));

	if (!en_node_get(tree, "gradient_accumulation_steps"))
		keep(y, en_node_add(tree, "gradient_accumulation_steps",
				    en_node_int(arena(y), 1, made(NULL))));
	if (!en_node_get(tree, "zero_optimization"))
		en_refuse(&y->ev, true, CKPT_E_CORRUPT, "zero_optimization", NULL,
			  "accelerate requires this block in the DeepSpeed configuration");
	auto_is(y, "zero_optimization.stage", en_node_int(arena(y), 2, made(NULL)));
	auto_is(y, "zero_optimization.offload_optimizer.device",
		en_node_str(arena(y), "none", made(NULL)));
	auto_is(y, "zero_optimization.offload_param.device",
		en_node_str(arena(y), "none", made(NULL)));
	auto_is(y, "zero_optimization.stage3_gather_16bit_weights_on_model_save",
		en_node_bool(arena(y), false, made(NULL)));
	auto_is(y, "fp16.enabled", en_node_bool(arena(y), false, made(NULL)));
	auto_is(y, "bf16.enabled", en_node_bool(arena(y), false, made(NULL)));
	if (print && never) {
		en_rule(&y->ev, EN_NO_EFFECT, "steps_per_print", print,
			"accelerate sets it to infinity: DeepSpeed prints nothing");
		if (!y->ev.rc)
			y->ev.cfg->verdict[y->ev.cfg->n_verdicts - 1].theirs = true;
		en_node_replace(print, never);
	}
	if (!y->ev.rc)
		add_precision(y, tree);
}

static int read_file(struct en_yaml *y, const struct en_node *v)
{
	int rc;

	beside(y);
	if (v->type != EN_STR) {
		en_refuse(&y->ev, true, CKPT_E_CORRUPT, "deepspeed_config.deepspeed_config_file", v,
			  "expected a file name");
		return 0;
	}
	rc = en_config_read_deepspeed(y->ev.cfg, v->str, y->ev.err);
	if (!rc)
		plugin(y);
	return rc;
}

/* ------------------------------------------------------------------- launch */

static uint32_t count(struct en_yaml *y, const char *key, uint32_t dflt)
{
	const struct en_node *v = given(y->root, key);

	if (!v)
		return dflt;
	if (v->type == EN_INT && v->i >= 0 && v->i < 1 << 24)
		return (uint32_t)v->i;
	en_refuse(&y->ev, true, CKPT_E_CORRUPT, key, v, "expected a number of 0 or more");
	return dflt;
}

static void processes(struct en_yaml *y, uint32_t stated)
{
	const struct en_node *v = given(y->root, "num_processes");
	struct en_launch *l = &y->ev.cfg->launch;

	l->num_machines = count(y, "num_machines", 1);
	l->machine_rank = count(y, "machine_rank", 0);
	l->main_process_port = count(y, "main_process_port", 0);
	v = v && v->type == EN_INT && v->i == -1 ? NULL : v;
	l->num_processes = v ? count(y, "num_processes", 0) : stated;
	if (v && v->type == EN_INT && !v->i)
		en_refuse(&y->ev, true, CKPT_E_CORRUPT, "num_processes", v,
			  "expected 1 process or more");
	else if (!l->num_processes)
		en_refuse(&y->ev, true, CKPT_E_USAGE, "num_processes", v,
			  "missing in the file, and not given as an option");
	if (l->machine_rank >= l->num_machines && l->num_machines)
		en_refuse(&y->ev, false, CKPT_E_MISMATCH, "machine_rank",
			  given(y->root, "machine_rank"),
			  "expected a number below %u, the number of machines", l->num_machines);
	if (l->num_machines && l->num_processes % l->num_machines)
		en_refuse(&y->ev, false, CKPT_E_MISMATCH, "num_processes", v,
			  "%u processes cannot be divided over %u machines", l->num_processes,
			  l->num_machines);
}

static void mixed_precision(struct en_yaml *y)
{
	struct en_node *v = given(y->root, "mixed_precision");
	const struct en_node *old = given(y->root, "fp16");
	struct en_launch *l = &y->ev.cfg->launch;
	char text[EN_VALUE_TEXT] = "no";

	l->mixed_precision = "no";
	y->mixed = v;
	if (v && v->type == EN_BOOL && !v->i) {
		revise(y, "mixed_precision", EN_USED,
		       "YAML reads no without quotes as false, and accelerate fails; read as "
		       "\"no\"");
		return;
	}
	if (!v && old && old->type == EN_BOOL && old->i) {
		y->mixed = old;
		l->mixed_precision = "fp16";
		return;
	}
	if (v)
		env_text(v, text);
	if (!strcmp(text, "fp16"))
		l->mixed_precision = "fp16";
	else if (!strcmp(text, "bf16"))
		l->mixed_precision = "bf16";
	else if (!strcmp(text, "fp8"))
		en_refuse(&y->ev, false, CKPT_E_UNSUPPORTED, "mixed_precision", v,
			  "write bf16 here, and give ztrain --fp8");
	else if (strcmp(text, "no") != 0)
		en_refuse(&y->ev, true, CKPT_E_UNSUPPORTED, "mixed_precision", v,
			  "expected \"no\", \"fp16\" or \"bf16\"");
}

static const char *text_of(struct en_yaml *y, const struct en_node *dict, const char *key)
{
	const struct en_node *v = given(dict, key);
	char text[EN_VALUE_TEXT];
	const char *s;

	if (!v)
		return NULL;
	if (v->type == EN_STR)
		return v->str;
	en_node_text(v, text);
	s = ck_arena_strdup(arena(y), text);
	if (!s)
		y->ev.rc = -CKPT_E_NOMEM;
	return s;
}

/* False if there is nothing to make a configuration of. */
static bool distributed(struct en_yaml *y)
{
	const struct en_node *v = given(y->root, "distributed_type");
	const struct en_node *env = given(y->root, "compute_environment");

	if (env && !en_node_is_str(env, "LOCAL_MACHINE"))
		en_refuse(&y->ev, false, CKPT_E_UNSUPPORTED, "compute_environment", env,
			  "unsupported: ztrain runs on the machines where it is started");
	if (!v)
		en_refuse(&y->ev, true, CKPT_E_CORRUPT, "distributed_type", NULL,
			  "missing; set it to DEEPSPEED");
	else if (en_node_is_str(v, "FSDP"))
		en_refuse(&y->ev, false, CKPT_E_UNSUPPORTED, "distributed_type", v,
			  "FSDP is unsupported; DEEPSPEED with zero_stage 3 is the equivalent");
	else if (!en_node_is_str(v, "DEEPSPEED"))
		en_refuse(&y->ev, false, CKPT_E_UNSUPPORTED, "distributed_type", v,
			  "unsupported; use DEEPSPEED (zero_stage 0 is plain data parallelism)");
	return v && en_node_is_str(v, "DEEPSPEED");
}

static void launch(struct en_yaml *y, uint32_t stated)
{
	struct en_launch *l = &y->ev.cfg->launch;

	l->from_accelerate = true;
	processes(y, stated);
	mixed_precision(y);
	l->main_process_ip = text_of(y, y->root, "main_process_ip");
	l->launcher = text_of(y, y->ds, "deepspeed_multinode_launcher");
}

static int load(struct en_yaml *y, uint32_t stated)
{
	const struct en_node *file;
	int rc = 0;

	y->ds = given(y->root, "deepspeed_config");
	en_yaml_keys(y);
	launch(y, stated);
	if (!distributed(y))
		return 0;
	file = given(y->ds, "deepspeed_config_file");
	if (file && !en_node_is_str(file, "none"))
		rc = read_file(y, file);
	else
		build(y);
	return rc ? rc : y->ev.rc;
}

int en_config_parse_accelerate(struct en_config *cfg, const char *text, uint64_t len,
			       const char *name, uint32_t num_processes, struct ckpt_err *err)
{
	struct ckpt_err local = { 0 };
	struct en_yaml y = { .ev = { .cfg = cfg, .err = err ? err : &local } };
	int rc;

	cfg->file = ck_arena_strdup(&cfg->arena, name);
	if (!cfg->file)
		return ck_fail_nomem(err, "a configuration", strlen(name));
	cfg->strict = true;
	rc = en_node_yaml(&cfg->arena, text, len, cfg->file, &y.root, err);
	if (!rc)
		rc = load(&y, num_processes);
	if (rc == -CKPT_E_NOMEM && !y.ev.err->code)
		ck_fail_nomem(y.ev.err, "a configuration", 0);
	return ck_arena_why(&cfg->arena, rc, name, err);
}

int en_config_read_accelerate(struct en_config *cfg, const char *path, uint32_t num_processes,
			      struct ckpt_err *err)
{
	char *text = NULL;
	uint64_t len = 0;
	int rc = ck_file_read(path, EN_MAX_CONFIG_BYTES, &text, &len, err);

	if (!rc)
		rc = en_config_parse_accelerate(cfg, text, len, path, num_processes, err);
	ck_free(text);
	return rc;
}
