/* en_step_settings.c -- see en_step_settings.h: this engine's record first, then ds_config. */
#include "engine/checkpoint/en_step_settings.h"

#include <stdio.h>

#include "engine/checkpoint/en_fingerprint.h"
#include "engine/checkpoint/en_step_lora.h"
#include "engine/config/keys/en_settings.h"
#include "engine/model/en_adapt.h"

#define MOST_ROWS (1 << 20)

/* A whole number from 0 to 'most'; else 0. */
static int64_t whole(struct ckpt_values *v, const char *path, int64_t most)
{
	int64_t n;

	return ckpt_value_int(v, path, &n, NULL) || n < 0 || n > most ? 0 : n;
}

static bool is_on(struct ckpt_values *v, const char *path)
{
	struct ckpt_value on;

	return !ckpt_value_get(v, path, &on, NULL) && on.kind == CKPT_VALUE_BOOL && on.i;
}

static void take_fact(const struct en_run_facts *m, const char *key, char out[EN_RUN_FACT_VALUE])
{
	const char *value = en_run_facts_find(m, key);

	snprintf(out, EN_RUN_FACT_VALUE, "%s", value ? value : "");
}

static void read_all(struct ckpt_values *v, struct en_step_settings *out)
{
	struct en_fingerprint f;
	struct en_run_facts made;

	if (en_run_facts_read(&made, v)) {
		take_fact(&made, "lora", out->lora);
		take_fact(&made, "freeze", out->freeze);
	}
	out->stage = whole(v, "ds_config.zero_optimization.stage", 3);
	out->rows = whole(v, "ds_config.train_micro_batch_size_per_gpu", MOST_ROWS);
	out->precision = is_on(v, "ds_config.bf16.enabled") ? EN_BF16 :
			 is_on(v, "ds_config.fp16.enabled") ? EN_FP16 : 0;
	if (!en_fingerprint_read(&f, v))
		return;
	out->rows = f.rows <= MOST_ROWS ? (int64_t)f.rows : 0;
	out->tokens = f.tokens <= INT32_MAX ? (int64_t)f.tokens : 0;
	out->precision = f.precision >= EN_FP32 && f.precision <= EN_FP16 ? (int)f.precision : 0;
}

int en_step_settings_read(const char *path, const char *tag, struct en_step_settings *out,
			  struct ckpt_err *err)
{
	const struct ckpt_open_opts oo = { .size = sizeof(oo), .tag = tag, .threads = 1 };
	struct ckpt_values *v = NULL;
	struct ckpt *ck = NULL;
	struct en_lora lora;
	int rc = ckpt_open(&path, 1, &oo, &ck, err);

	if (rc)
		return rc;
	*out = (struct en_step_settings){ .rows = 0 };
	if (!ckpt_values_open(ck, 0, 0, &v, NULL)) {
		read_all(v, out);
		ckpt_values_close(v);
	}
	if (!*out->lora && !en_step_lora_read(ck, &lora, NULL) && lora.targets)
		en_lora_text(&lora, out->lora);
	ckpt_close(ck);
	return 0;
}
