/* en_verdict.c -- the verdicts on the keys of a configuration; see en_resolve.h. */
#include <stdarg.h>
#include <string.h>

#include "engine/config/keys/en_resolve.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

static int add(struct en_config *cfg, const struct en_verdict *verdict, struct ckpt_err *err)
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
		ev->rc = add(ev->cfg, &r, ev->err);
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
			ev->rc = add(ev->cfg, &r, ev->err);
	}
	va_end(ap);
}

void en_by_trainer(struct en_resolve *ev, const char *path)
{
	struct en_verdict *v = find(ev->cfg, path);

	if (v)
		v->trainers = true;
}

void en_fails_later(struct en_resolve *ev, const char *path)
{
	struct en_verdict *v = find(ev->cfg, path);

	if (v)
		v->later = true;
}

const struct en_verdict *en_config_verdict(const struct en_config *cfg, const char *path)
{
	return find(cfg, path);
}

const struct en_origin *en_config_origin(const struct en_config *cfg, const char *path)
{
	for (uint64_t i = 0; i < cfg->n_origins; i++)
		if (!strcmp(cfg->origin[i].path, path))
			return &cfg->origin[i];
	return NULL;
}
