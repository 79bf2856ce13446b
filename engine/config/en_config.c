/* en_config.c -- a configuration made and released, and DeepSpeed's file read; see en_config.h. */
#include "engine/config/en_config.h"

#include <string.h>

#include "engine/config/en_resolve.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_tree.h"

static const char *const versions[] = { "", "0.16.9", "0.18.9", "0.19.8" };

const char *en_ds_version_name(enum en_ds_version version)
{
	return versions[version];
}

enum en_ds_version en_ds_version_parse(const char *text)
{
	for (int i = EN_DS_0_16; i <= EN_DS_0_19; i++)
		if (!strcmp(text, versions[i]) ||
		    (strlen(text) == 4 && !strncmp(text, versions[i], 4)))
			return (enum en_ds_version)i;
	return (enum en_ds_version)0;
}

void en_config_init(struct en_config *cfg, enum en_ds_version version)
{
	memset(cfg, 0, sizeof(*cfg));
	cfg->version = version;
	cfg->arena.limit = 64 * EN_MAX_CONFIG_BYTES;
}

void en_config_release(struct en_config *cfg)
{
	const enum en_ds_version version = cfg->version;

	ck_arena_release(&cfg->arena);
	ck_free(cfg->verdict);
	en_config_init(cfg, version);
}

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
