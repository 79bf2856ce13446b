/* en_config.c -- a configuration from its reading to its settings; see en_config.h. */
#include "engine/config/en_config.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "engine/config/keys/en_resolve.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define MAX_WORLD (1u << 20)

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

int en_config_read(struct en_config *cfg, const char *path, uint32_t num_processes,
		   struct ckpt_err *err)
{
	const char *dot = strrchr(path, '.');

	return dot && (!strcasecmp(dot, ".yaml") || !strcasecmp(dot, ".yml")) ?
	       en_config_read_accelerate(cfg, path, num_processes, err) :
	       en_config_read_deepspeed(cfg, path, err);
}

static int first_refusal(const struct en_config *cfg, struct ckpt_err *err)
{
	const struct en_verdict *first = NULL;
	uint64_t n = 0;
	char place[64] = "", more[64] = "";

	for (uint64_t i = 0; i < cfg->n_verdicts; i++)
		if (cfg->verdict[i].ruling == EN_REFUSED && n++ == 0)
			first = &cfg->verdict[i];
	if (!first)
		return 0;
	if (first->at.line)
		snprintf(place, sizeof(place), "line %u, column %u: ", first->at.line,
			 first->at.col);
	if (n > 1)
		snprintf(more, sizeof(more), " (and %llu more)", (unsigned long long)(n - 1));
	return ck_fail(err, first->code, first->at.file ? first->at.file : cfg->file,
		       CKPT_NO_OFFSET, "%s%s%s%s: %s%s", place, first->path,
		       *first->value ? " " : "", first->value, first->why, more);
}

static int evaluate(struct en_resolve *ev)
{
	const struct en_config *cfg = ev->cfg;

	if (cfg->tree)
		en_deepspeed_resolve(ev);
	if (ev->rc)
		return ev->rc;
	ev->set.world = ev->facts->world;
	return first_refusal(cfg, ev->err);
}

int en_config_resolve(struct en_config *cfg, const struct en_facts *facts, struct ckpt_err *err)
{
	struct ckpt_err local = { 0 };
	struct en_resolve ev = { .cfg = cfg, .facts = facts, .err = err ? err : &local };
	int rc;

	if (!facts->world || facts->world > MAX_WORLD)
		return ck_fail(err, CKPT_E_USAGE, cfg->file, CKPT_NO_OFFSET,
			       "%u ranks; expected 1 to %u", facts->world, MAX_WORLD);
	ev.value = ck_arena_zalloc(&cfg->arena, en_n_keys * sizeof(*ev.value));
	ev.given = ck_arena_zalloc(&cfg->arena, en_n_keys * sizeof(*ev.given));
	if (!ev.value || !ev.given)
		return ck_fail_nomem(err, "settings", en_n_keys * sizeof(*ev.given));
	rc = evaluate(&ev);
	if (rc == -CKPT_E_NOMEM && !ev.err->code)
		ck_fail_nomem(ev.err, "a configuration", 0);
	if (!rc)
		cfg->set = ev.set;
	return rc;
}
