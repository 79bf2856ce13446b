/* en_deepspeed.c -- DeepSpeed's file read, and the steps that resolve it; see en_deepspeed.h. */
#include <string.h>

#include "engine/config/deepspeed/en_deepspeed_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_tree.h"

int en_config_parse_deepspeed(struct en_config *cfg, const char *text, uint64_t len,
			      const char *name, struct ckpt_err *err)
{
	int rc;

	cfg->json_file = ck_arena_strdup(&cfg->arena, name);
	if (!cfg->json_file)
		return ck_fail_nomem(err, "a configuration", strlen(name));
	if (!cfg->file)
		cfg->file = cfg->json_file;
	rc = en_node_json(&cfg->arena, text, len, cfg->json_file, &cfg->tree, &cfg->strict, err);
	return ck_arena_why(&cfg->arena, rc, name, err);
}

int en_config_read_deepspeed(struct en_config *cfg, const char *path, struct ckpt_err *err)
{
	char *text = NULL;
	uint64_t len = 0;
	int rc = ck_file_read(path, EN_MAX_CONFIG_BYTES, &text, &len, err);

	if (!rc)
		rc = en_config_parse_deepspeed(cfg, text, len, path, err);
	ck_free(text);
	return rc;
}

void en_deepspeed_resolve(struct en_resolve *ev)
{
	en_fill(ev);
	en_walk(ev);
	en_check(ev);
	en_batch(ev);
	en_when(ev);
}
