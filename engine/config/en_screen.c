/* en_screen.c -- the one screen that says what became of a configuration; see en_config.h. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/config/en_config.h"
#include "engine/config/keys/en_keys.h"
#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define LABEL 12	/* columns of the labels on the left */
#define MAX_SCREEN ((size_t)1 << 20)

struct screen {
	struct en_config *cfg;
	unsigned width;
	const char **line;
	uint64_t n, cap;
	struct ck_buf text;	/* of the entry that is being written */
	int rc;
	struct ckpt_err *err;
};

static void put_line(struct screen *s, const char *label, const char *p, size_t n)
{
	const char *line;

	if (s->rc)
		return;
	line = ck_arena_printf(&s->cfg->arena, "%-*s%.*s", LABEL, label, (int)n, p);
	s->rc = line ? ck_grow(&s->line, &s->cap, s->n + 1, sizeof(*s->line), s->err)
		     : ck_fail_nomem(s->err, "a screen", n);
	if (!s->rc)
		s->line[s->n++] = line;
}

/* Bytes of 'p' that fit 'room' columns, broken at a blank; a longer word stays whole. */
static size_t fit(const char *p, size_t room)
{
	const size_t all = strlen(p);
	size_t n = all;

	if (all <= room)
		return all;
	for (n = room; n && p[n] != ' '; n--)
		;
	return n ? n : strcspn(p, " ");
}

/* The entry as lines; "" as the label of continuation lines. */
static void flush(struct screen *s, const char *label)
{
	const char *p = s->text.p;

	while (!s->rc && p && *p) {
		const size_t n = fit(p, s->width - LABEL);

		put_line(s, label, p, n);
		p += n;
		p += strspn(p, " ");
		label = "";
	}
	s->text.len = 0;
	if (s->text.p)
		s->text.p[0] = 0;
}

static void say(struct screen *s, const char *fmt, ...) CK_PRINTF(2, 3);
static void say(struct screen *s, const char *fmt, ...)
{
	char part[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(part, sizeof(part), fmt, ap);
	va_end(ap);
	if (!s->rc)
		s->rc = ck_buf_adds(&s->text, part, s->err);
}

/* ------------------------------------------------------------- the summary */

static void files(struct screen *s)
{
	const struct en_config *c = s->cfg;

	if (c->launch.from_accelerate)
		say(s, "%s (accelerate), as accelerate 1.15 and DeepSpeed %s read it", c->file,
		    en_ds_version_name(c->version));
	else
		say(s, "%s, as DeepSpeed %s reads it", c->file, en_ds_version_name(c->version));
	if (c->launch.from_accelerate && c->json_file)
		say(s, ", with %s", c->json_file);
	flush(s, "config");
	if (c->tree && !c->strict) {
		say(s, "HJSON, not plain JSON (comments, commas, quotes or braces): DeepSpeed "
		       "reads it, accelerate and transformers do not");
		flush(s, "");
	}
}

static void batch(struct screen *s)
{
	const struct en_settings *e = &s->cfg->set;

	say(s,
	    "%" PRId64 " sample%s a step = micro-batch %" PRId64 " x accumulation %" PRId64
	    " x %u %s",
	    e->train_batch, e->train_batch == 1 ? "" : "s", e->micro_batch, e->accumulation,
	    e->world,
	    e->world == 1 ? "rank" : "ranks");
	if (e->gradient_clipping > 0)
		say(s, ", gradients clipped to %g", e->gradient_clipping);
	else
		say(s, ", no clipping");
	flush(s, "batch");
}

static const char *dtype(int type, const char *none)
{
	return type ? ckpt_dtype_torch_name((enum ckpt_dtype)type) : none;
}

static void precision(struct screen *s)
{
	static const char *const names[] = { "", "fp32", "bf16", "fp16" };
	const struct en_settings *e = &s->cfg->set;

	say(s, "%s", names[e->precision]);
	if (e->precision != EN_FP32)
		say(s, ", fp32 masters");
	if (e->precision == EN_FP16 && e->loss_scale == 0)
		say(s, ", loss scale from 2^%" PRId64, e->initial_scale_power);
	else if (e->precision == EN_FP16)
		say(s, ", loss scale %g", e->loss_scale);
	say(s, ", gradients %ssent as %s", e->precision == EN_FP16 ? "" : "summed in fp32, ",
	    dtype(e->communication_dtype, names[e->precision]));
	flush(s, "precision");
}

static void zero(struct screen *s)
{
	const struct en_settings *e = &s->cfg->set;

	const int optimizer = e->offload_optimizer.device, params = e->offload_param.device;
	const bool file = optimizer == EN_DEVICE_NVME;

	say(s, "stage %" PRId64, e->stage);
	if (file)
		say(s, ", optimizer on NVMe: %s", e->offload_optimizer.nvme_path);
	if ((optimizer && !file) || params)
		say(s, ", %s%s%s in host memory", optimizer && !file ? "optimizer" : "",
		    optimizer && !file && params ? " and " : "", params ? "parameters" : "");
	flush(s, "zero");
}

static void optimizer(struct screen *s)
{
	static const char *const schedules[] = {
		"", "none in the file", "LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR",
		"WarmupCosineLR",
	};
	const struct en_optimizer *o = &s->cfg->set.optimizer;

	say(s, "%s%s: lr %g, betas %g %g, eps %g, decay %g%s; schedule: %s",
	    o->adamw ? "AdamW" : "Adam", o->type == EN_OPTIMIZER_CLIENT ? " (not in the file)" : "",
	    o->lr, o->beta1, o->beta2, o->eps, o->weight_decay,
	    o->one_group ? " of all parameters" : "",
	    schedules[s->cfg->set.schedule.type]);
	flush(s, "optimizer");
}

/* ------------------------------------------------------------- the verdicts */

/* What was "auto" is listed below, with its rule. */
static bool is_plain(const struct en_verdict *v)
{
	return v->ruling == EN_USED && (!*v->why || v->at.from == EN_FROM_AUTO);
}

/*
 * "zero_optimization.stage", and after it ".overlap_comm": of the block of 'before', only the last
 * name, so that a screen is enough.
 */
static const char *short_path(const char *path, const char **before)
{
	const char *dot = strrchr(path, '.');
	const char *old = *before ? strrchr(*before, '.') : NULL;
	const size_t n = dot ? (size_t)(dot - path) : 0;
	const bool same = dot && old && (size_t)(old - *before) == n && !strncmp(path, *before, n);

	*before = path;
	return same ? dot : path;
}

static void used(struct screen *s)
{
	const char *comma = "", *before = NULL;

	for (uint64_t i = 0; i < s->cfg->n_verdicts; i++) {
		const struct en_verdict *v = &s->cfg->verdict[i];

		if (!is_plain(v) || v->at.from == EN_FROM_AUTO || !strcmp(v->value, "{...}"))
			continue;
		say(s, "%s%s %s", comma, short_path(v->path, &before), v->value);
		comma = ", ";
	}
	flush(s, "used");
}

static bool is_first(const struct en_config *c, uint64_t at, enum en_ruling ruling)
{
	for (uint64_t i = 0; i < at; i++)
		if (c->verdict[i].ruling == ruling && !is_plain(&c->verdict[i]) &&
		    !strcmp(c->verdict[i].why, c->verdict[at].why))
			return false;
	return true;
}

/* Keys with one reason share an entry. */
static void with_reason(struct screen *s, enum en_ruling ruling, const char *label)
{
	const struct en_config *c = s->cfg;

	for (uint64_t i = 0; i < c->n_verdicts; i++) {
		const char *comma = "", *before = NULL;

		if (c->verdict[i].ruling != ruling || is_plain(&c->verdict[i]) ||
		    !is_first(c, i, ruling))
			continue;
		for (uint64_t j = i; j < c->n_verdicts; j++) {
			const struct en_verdict *v = &c->verdict[j];

			if (v->ruling != ruling || strcmp(v->why, c->verdict[i].why) != 0)
				continue;
			say(s, "%s%s%s%s", comma, short_path(v->path, &before),
			    *v->value ? " " : "", v->value);
			comma = ", ";
		}
		say(s, ": %s", c->verdict[i].why);
		flush(s, label);
		label = "";
	}
}

static bool same_refusal(const struct en_verdict *a, const struct en_verdict *b)
{
	return a->ruling == EN_REFUSED && b->ruling == EN_REFUSED && a->theirs == b->theirs &&
	       !strcmp(a->why, b->why);
}

/* Keys that are refused for one reason, with their lines. */
static void one_refusal(struct screen *s, uint64_t first)
{
	const struct en_verdict *of = &s->cfg->verdict[first];
	const char *comma = "", *before = NULL;

	for (uint64_t i = first; i < s->cfg->n_verdicts; i++) {
		const struct en_verdict *v = &s->cfg->verdict[i];

		if (!same_refusal(v, of))
			continue;
		say(s, "%s%s%s%s", comma, short_path(v->path, &before), *v->value ? " " : "",
		    v->value);
		if (v->at.line)
			say(s, " (line %u)", v->at.line);
		comma = ", ";
	}
	say(s, ": %s", of->why);
	if (of->theirs && !of->later)
		say(s, " (%s rejects it too)",
		    of->trainers ? "transformers' Trainer" :
		    s->cfg->launch.from_accelerate && of->at.from != EN_FROM_JSON ? "accelerate" :
										    "DeepSpeed");
	flush(s, "REFUSED");
}

static void refused(struct screen *s)
{
	const struct en_config *c = s->cfg;

	for (uint64_t i = 0; i < c->n_verdicts; i++) {
		bool is_new = c->verdict[i].ruling == EN_REFUSED;

		for (uint64_t j = 0; is_new && j < i; j++)
			is_new = !same_refusal(&c->verdict[j], &c->verdict[i]);
		if (is_new)
			one_refusal(s, i);
	}
}

/* ---------------------------------------------------------------- settings */

static void from(struct screen *s, enum en_from where, const char *label)
{
	const char *comma = "", *before = NULL;

	for (uint64_t i = 0; i < s->cfg->n_origins; i++) {
		const struct en_origin *o = &s->cfg->origin[i];

		if (o->at.from != where || (!o->matters && where == EN_FROM_DEFAULT) ||
		    !strcmp(o->value, "null"))
			continue;
		say(s, "%s%s %s", comma, short_path(o->path, &before), o->value);
		if (o->at.why)
			say(s, " (%s)", o->at.why);
		comma = ", ";
	}
	flush(s, label);
}

static const struct en_origin *default_of(const struct screen *s, const struct en_key *k)
{
	const char *of = en_block_info[k->block].path;
	const struct en_origin *o;
	char path[128];

	snprintf(path, sizeof(path), "%s%s%s", of, *of ? "." : "", k->alias ? k->alias : k->name);
	o = en_config_origin(s->cfg, path);
	return o && o->matters && o->at.from == EN_FROM_DEFAULT ? o : NULL;
}

/* Where another version would have taken another default. */
static void old_defaults(struct screen *s)
{
	const char *comma = "";

	for (size_t i = 0; i < en_n_keys; i++) {
		const struct en_key *k = &en_keys[i];
		const struct en_origin *o = k->dflt_old ? default_of(s, k) : NULL;

		if (!o)
			continue;
		say(s, "%s%s is %s in %s, %s in %s", comma, o->path, k->dflt,
		    en_ds_version_name(EN_DS_0_19), k->dflt_old, en_ds_version_name(EN_DS_0_18));
		comma = ", ";
	}
	flush(s, "");
}

int en_config_screen(struct en_config *cfg, unsigned width, const char *const **lines_out,
		     size_t *n_out, struct ckpt_err *err)
{
	struct screen s = { .cfg = cfg, .width = width >= 40 ? width : 100, .err = err,
			    .text = CK_BUF_INIT(MAX_SCREEN) };
	const char **lines;

	if (cfg->file)
		files(&s);
	if (cfg->set.world) {
		batch(&s);
		precision(&s);
		zero(&s);
		optimizer(&s);
	}
	used(&s);
	with_reason(&s, EN_USED, "used, note");
	with_reason(&s, EN_NO_EFFECT, "no effect");
	with_reason(&s, EN_IGNORED, "unknown");
	refused(&s);
	if (cfg->set.world) {
		from(&s, EN_FROM_OPTION, "options");
		from(&s, EN_FROM_AUTO, "filled in");
		from(&s, EN_FROM_DERIVED, "derived");
		from(&s, EN_FROM_DEFAULT, "defaults");
		old_defaults(&s);
	}
	ck_buf_release(&s.text);
	lines = s.rc ? NULL : ck_arena_alloc(&cfg->arena, (s.n + 1) * sizeof(*lines));
	if (!s.rc && !lines)
		s.rc = ck_fail_nomem(err, "a screen", s.n);
	if (!s.rc) {
		memcpy(lines, s.line, s.n * sizeof(*lines));
		*lines_out = lines;
		*n_out = (size_t)s.n;
	}
	ck_free(s.line);
	return s.rc;
}
