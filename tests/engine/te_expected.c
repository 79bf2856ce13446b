/* See te_expected.h. */
#include "tests/engine/te_expected.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_tree.h"

int te_expected_load(struct te_expected *x)
{
	struct en_node *root = NULL;
	char *text = NULL, path[4096];
	uint64_t len = 0;
	int rc;

	*x = (struct te_expected){ .root = NULL };
	snprintf(path, sizeof(path), "%s/config", getenv("ZCKPT_FIXTURES"));
	if (chdir(path) || ck_file_read("expected.json", 1 << 20, &text, &len, NULL))
		return -1;
	rc = en_node_json(&x->arena, text, len, "expected.json", &root, NULL, NULL);
	ck_free(text);
	if (rc)
		return -1;
	x->root = root;
	x->defaults = en_node_path(root, "deepspeed.defaults");
	return 0;
}

void te_expected_release(struct te_expected *x)
{
	ck_arena_release(&x->arena);
	*x = (struct te_expected){ .root = NULL };
}

const struct en_node *te_need(const struct en_node *dict, const char *path)
{
	const struct en_node *v = en_node_path(dict, path);

	if (!v)
		fail_msg("expected.json has no %s", path);
	return v;
}

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

void te_same_setting(struct te_expected *x, const char *file, const struct en_config *cfg,
		     const char *theirs, const struct en_node *want)
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
		/* lost there, used here */
		want = en_node_str(&x->arena, "/nvme/offload", want->at);
	if (!same_value(want, o->value)) {
		char text[EN_VALUE_TEXT];

		en_node_text(want, text);
		fail_msg("%s: %s is %s, and %s there", file, path, o->value, text);
	}
	x->compared++;
}

/* optimizer_params, scheduler_params: the values in the file, unchanged. */
static void same_params(struct te_expected *x, const char *file, const struct en_config *cfg,
			const char *block, const struct en_node *want)
{
	for (const struct en_node *v = want ? want->child : NULL; v; v = v->next) {
		char path[160];

		snprintf(path, sizeof(path), "%s.params.%s", block, v->key);
		te_same_setting(x, file, cfg, path, v);
	}
}

void te_same_settings(struct te_expected *x, const char *file, const struct en_config *cfg,
		      const struct en_node *differs)
{
	for (const struct en_node *v = x->defaults->child; v; v = v->next)
		if (!en_node_get(differs, v->key))
			te_same_setting(x, file, cfg, v->key, v);
	for (const struct en_node *v = differs->child; v; v = v->next)
		te_same_setting(x, file, cfg, v->key, v);
	same_params(x, file, cfg, "optimizer", en_node_get(differs, "optimizer_params"));
	same_params(x, file, cfg, "scheduler", en_node_get(differs, "scheduler_params"));
}

void te_same_batches(struct te_expected *x, const char *file, const struct en_config *cfg,
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
	x->compared += 3;
}
