/* cli_lora.c -- see cli_lora.h. */
#include "cli_lora.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_advice.h"

#define MOST_BYTES (1 << 20)	/* of an adapter_config.json */

static char *config_of(const char *path)
{
	struct stat st;
	const int is_dir = !stat(path, &st) && S_ISDIR(st.st_mode);

	return cli_format("%s/adapter_config.json", is_dir ? path : advice_parent(path));
}

/* A folder of a run has the file too: the adapter's own weights must be there. */
int lora_is_adapter(const char *path)
{
	static const char *const names[] = { "adapter_model.safetensors", "adapter_model.bin" };
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	struct stat st;
	int is_named = 0;

	if (stat(path, &st) || access(config_of(path), R_OK))
		return 0;
	for (size_t i = 0; i < 2; i++)
		is_named |= S_ISDIR(st.st_mode) ?
			    !access(cli_format("%s/%s", path, names[i]), F_OK) :
			    !strcmp(base, names[i]);
	return is_named;
}

static cJSON *read_config(const char *path)
{
	char *text = cli_alloc(MOST_BYTES);
	FILE *f = fopen(path, "r");
	cJSON *json = NULL;

	if (f) {
		text[fread(text, 1, MOST_BYTES - 1, f)] = 0;
		fclose(f);
		json = cJSON_Parse(text);
	}
	cli_free(text);
	return json;
}

static const char *text_of(const cJSON *json, const char *key)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);

	return cJSON_IsString(item) ? item->valuestring : NULL;
}

char *lora_text(const char *path)
{
	const char *type, *base;
	const cJSON *r;
	cJSON *json;
	char *text;

	if (!lora_is_adapter(path))
		return NULL;
	json = read_config(config_of(path));
	type = text_of(json, "peft_type");
	base = text_of(json, "base_model_name_or_path");
	r = cJSON_GetObjectItemCaseSensitive(json, "r");
	text = cli_format("%s adapter%s%s", !type ? "PEFT" : !strcmp(type, "LORA") ? "LoRA" :
			  out_name(type), base && *base ? " for " : "",
			  base && *base ? out_name(base) : "");
	if (cJSON_IsNumber(r))
		text = cli_format("%s, r=%d", text, r->valueint);
	cJSON_Delete(json);
	return text;
}

/* PEFT has "lora_A.default.weight"; AdaLoRA and other programs a parameter that is "lora_A". */
static int is_of_peft(const char *name)
{
	const size_t n = strlen(name);

	return strstr(name, ".lora_embedding_A.") ||
	       (strstr(name, ".lora_A.") && n > 7 && !strcmp(name + n - 7, ".weight"));
}

enum lora_run lora_run_of(const struct ckpt *ck)
{
	enum lora_run run = LORA_RUN_NONE;
	struct ckpt_tensor_info t;

	for (uint64_t i = 0; !ckpt_tensor_get(ck, i, &t, NULL); i++) {
		if (t.role != CKPT_ROLE_TRAINABLE)
			continue;
		if (is_of_peft(t.name))
			return LORA_RUN_PEFT;
		if (strstr(t.name, ".lora_A"))
			run = LORA_RUN_OTHER;
	}
	return run;
}

char *lora_call(enum lora_run run, const char *src, const char *dst)
{
	if (run == LORA_RUN_PEFT)
		return cli_format("zckpt convert --to peft --dtype bf16 %s %s", out_word(src),
				  out_word(dst));
	return cli_format("zckpt convert --only trainable --dtype bf16 %s %s.safetensors",
			  out_word(src), out_word(dst));
}
