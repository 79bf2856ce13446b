/* en_config.c -- reading and resolving a configuration; see en_config.h. */
#include "engine/config/en_config.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "engine/config/en_resolve.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_tree.h"

#define MAX_WORLD (1u << 20)

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

/* ----------------------------------------------------------------- reading */

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

int en_config_read(struct en_config *cfg, const char *path, uint32_t num_processes,
		   struct ckpt_err *err)
{
	const char *dot = strrchr(path, '.');

	return dot && (!strcasecmp(dot, ".yaml") || !strcasecmp(dot, ".yml")) ?
	       en_config_read_accelerate(cfg, path, num_processes, err) :
	       en_config_read_deepspeed(cfg, path, err);
}

/* ---------------------------------------------------------------- verdicts */

int en_verdict_add(struct en_config *cfg, const struct en_verdict *verdict, struct ckpt_err *err)
{
	int rc = ck_grow(&cfg->verdict, &cfg->verdict_cap, cfg->n_verdicts + 1,
			 sizeof(*cfg->verdict), err);

	if (!rc)
		cfg->verdict[cfg->n_verdicts++] = *verdict;
	return rc;
}

/* The strings of a verdict: 'path' is copied, the others made.  False without memory. */
static bool fill(struct en_resolve *ev, struct en_verdict *r, const char *path,
		 const struct en_node *v, const char *fmt, va_list ap) CK_PRINTF(5, 0);
static bool fill(struct en_resolve *ev, struct en_verdict *r, const char *path,
		 const struct en_node *v, const char *fmt, va_list ap)
{
	struct ck_arena *arena = &ev->cfg->arena;
	char text[EN_VALUE_TEXT] = "";

	if (v) {
		en_node_text(v, text);
		r->at = v->at;
	}
	r->path = ck_arena_strdup(arena, path);
	r->value = ck_arena_strdup(arena, text);
	r->why = ck_arena_vprintf(arena, fmt, ap);
	if (r->path && r->value && r->why)
		return true;
	ev->rc = ck_arena_why(arena, ck_fail_nomem(ev->err, "verdicts", 1), ev->cfg->file, ev->err);
	return false;
}

uint64_t en_rule(struct en_resolve *ev, enum en_ruling ruling, const char *path,
		 const struct en_node *v, const char *fmt, ...)
{
	struct en_verdict r = { .ruling = ruling, .theirs = ruling == EN_IGNORED };
	va_list ap;

	if (ev->rc)
		return 0;
	va_start(ap, fmt);
	if (fill(ev, &r, path, v, fmt, ap))
		ev->rc = en_verdict_add(ev->cfg, &r, ev->err);
	va_end(ap);
	return ev->rc ? 0 : ev->cfg->n_verdicts;
}

static struct en_verdict *find(const struct en_config *cfg, const char *path)
{
	for (uint64_t i = 0; i < cfg->n_verdicts; i++)
		if (!strcmp(cfg->verdict[i].path, path))
			return &cfg->verdict[i];
	return NULL;
}

/* A key has one verdict: a refusal takes the place of a milder one, and the first reason is enough.
 */
void en_refuse(struct en_resolve *ev, bool theirs, enum ckpt_code code, const char *path,
	       const struct en_node *v, const char *fmt, ...)
{
	struct en_verdict r = { .ruling = EN_REFUSED, .theirs = theirs, .code = code };
	struct en_verdict *old = find(ev->cfg, path);
	va_list ap;

	if (ev->rc || (old && old->ruling == EN_REFUSED))
		return;
	va_start(ap, fmt);
	if (fill(ev, &r, path, v, fmt, ap)) {
		if (old)
			*old = r;
		else
			ev->rc = en_verdict_add(ev->cfg, &r, ev->err);
	}
	va_end(ap);
}

void en_by_trainer(struct en_resolve *ev, const char *path)
{
	struct en_verdict *v = find(ev->cfg, path);

	if (v)
		v->trainers = true;
}

const struct en_verdict *en_config_verdict(const struct en_config *cfg, const char *path)
{
	return find(cfg, path);
}

/* -------------------------------------------------------------------- keys */

const char *en_key_path(struct en_resolve *ev, const struct en_key *key)
{
	const char *of = en_block_info[key->block].path;
	const char *path = ck_arena_printf(&ev->cfg->arena, "%s%s%s", of, *of ? "." : "",
					   key->alias && key->type != EN_K_BLOCK ? key->alias
										 : key->name);

	if (!path && !ev->rc)
		ev->rc = ck_fail_nomem(ev->err, "a path", 1);
	return path ? path : "";
}

size_t en_key_number(enum en_block block, const char *name)
{
	return (size_t)(en_key_find(block, name) - en_keys);
}

const struct en_node *en_given(const struct en_resolve *ev, enum en_block block, const char *name)
{
	return ev->given[en_key_number(block, name)].v;
}

void en_derive(struct en_resolve *ev, enum en_block block, const char *name, struct en_value v,
	       const char *why)
{
	const size_t k = en_key_number(block, name);
	const struct en_place at = { .from = EN_FROM_DERIVED, .why = why };
	struct en_node *node = en_node_new(&ev->cfg->arena, v.type, at);

	if (!node && !ev->rc)
		ev->rc = ck_fail_nomem(ev->err, "a setting", sizeof(*node));
	ev->value[k] = v;
	ev->given[k].v = node;
	en_value_put(&en_keys[k], &v, &ev->set);
}

const struct en_origin *en_config_origin(const struct en_config *cfg, const char *path)
{
	for (uint64_t i = 0; i < cfg->n_origins; i++)
		if (!strcmp(cfg->origin[i].path, path))
			return &cfg->origin[i];
	return NULL;
}

/* --------------------------------------------------------------- resolving */

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

	if (cfg->tree) {
		en_fill(ev);
		en_walk(ev);
		en_check(ev);
		en_batch(ev);
		en_when(ev);
	}
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
			       "%u ranks; 1 to %u are possible", facts->world, MAX_WORLD);
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
