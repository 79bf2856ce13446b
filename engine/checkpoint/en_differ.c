/* en_differ.c -- see en_run_facts.h: a resumed run compared with the step that it resumes from. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/en_json.h"
#include "engine/checkpoint/en_run_facts.h"
#include "libckpt/base/ck_err.h"

void en_differ_say(struct en_differ *d, const char *fmt, ...)
{
	va_list ap;

	if (d->n == EN_DIFFER_LINES)
		return;
	va_start(ap, fmt);
	vsnprintf(d->line[d->n++], sizeof(d->line[0]), fmt, ap);
	va_end(ap);
}

/* "eps" is not among "rms_norm_eps, lr". */
static bool is_listed(const struct en_differ *d, const char *key)
{
	const size_t n = strlen(key);

	for (const char *p = d->keys; (p = strstr(p, key)) != NULL; p += n)
		if ((p == d->keys || p[-1] == ' ') && (!p[n] || p[n] == ','))
			return true;
	return false;
}

/* This run is another one from here on, by this key. */
static void changed(struct en_differ *d, const char *key)
{
	const size_t n = strlen(d->keys);

	if (!is_listed(d, key))
		snprintf(d->keys + n, sizeof(d->keys) - n, "%s%s", n ? ", " : "", key);
}

void en_differ_data(struct en_differ *d, const char *why)
{
	en_differ_say(d, "data: %.*s; starting at its first row (--new-data)",
		      (int)strcspn(why, ";"), why);
	changed(d, "data");
}

/* ---- the model ---- */

int en_differ_model(struct en_differ *d, const struct en_run_facts *now,
		    const struct en_run_facts *before, bool allow, const char *where,
		    struct ckpt_err *err)
{
	if (!before) {
		en_differ_say(d,
			      "model: shapes match; the step does not record the rest of "
			      "config.json");
		return 0;
	}
	for (uint32_t i = 0; i < now->nmodel; i++) {
		const struct en_run_fact *f = &now->fact[i];
		const char *was = en_run_facts_find(before, f->key);

		if (was && !strcmp(was, f->value))
			continue;
		if (!allow)
			return ck_fail(err, CKPT_E_MISMATCH, where, CKPT_NO_OFFSET,
				       "%s: the step was trained with %s, config.json has %s; use "
				       "the step's config.json, or --allow-other-model",
				       f->key, was ? was : "none", f->value);
		en_differ_say(d,
			      "model: %s: the step has %s, config.json %s; using config.json "
			      "(--allow-other-model)",
			      f->key, was ? was : "none", f->value);
		changed(d, f->key);
	}
	return 0;
}

/* What to change in the call, so that it resumes. */
static void say_trained(const char *key, const char *was, const char *is, char out[400])
{
	if (was && !strcmp(key, "lora"))
		snprintf(out, 400, "give --lora %.300s", was);
	else if (was)
		snprintf(out, 400, "give --freeze with each pattern of the step");
	else
		snprintf(out, 400, "remove --%s%s", key, is && !strcmp(key, "lora") ?
			 " (or --lora-from)" : "");
}

int en_differ_trained(const struct en_run_facts *now, const struct en_run_facts *before,
		      const char *where, struct ckpt_err *err)
{
	static const char *const keys[] = { "lora", "freeze" };

	for (size_t i = 0; before && i < CK_ARRAY_LEN(keys); i++) {
		const char *is = en_run_facts_find(now, keys[i]);
		const char *was = en_run_facts_find(before, keys[i]);
		char give[400];

		if (!strcmp(is ? is : "", was ? was : ""))
			continue;
		say_trained(keys[i], was, is, give);
		return ck_fail(err, CKPT_E_MISMATCH, where, CKPT_NO_OFFSET,
			       "--%s: the step was trained with %s, this run has %s; %s to resume "
			       "it, or begin a new run with its weights (zckpt convert)",
			       keys[i], was ? was : "none", is ? is : "none", give);
	}
	return 0;
}

/* ---- schedule, clipping, fp8 ---- */

/* Keys of this engine alone. */
static bool is_ours(const char *key)
{
	return !strcmp(key, "fp8") || !strcmp(key, "dropout_seed");
}

/* What a run has that does not say. */
static const char *unstated(const char *key)
{
	return strcmp(key, "fp8") ? "0.0" : "off";
}

/* Those of the step's that this run lacks are 0 or "none" here, as those it lacks itself. */
static bool same_text(const char *key, const char *a, const char *b)
{
	return !strcmp(a ? a : unstated(key), b ? b : unstated(key));
}

static void run_line(struct en_differ *d, const char *key, const char *was, const char *is)
{
	en_differ_say(d, "%s: the step has %s, this run %s; using this run's%s", key,
		      was ? was : unstated(key), is ? is : unstated(key),
		      is_ours(key) ? "" : ", as in DeepSpeed");
	changed(d, strncmp(key, "schedule", 8) ? key : "schedule");
}

void en_differ_run(struct en_differ *d, const struct en_run_facts *now,
		   const struct en_run_facts *before)
{
	const char *was = en_run_facts_find(before, "schedule");
	const char *is = en_run_facts_find(now, "schedule");
	const bool other = was && is && strcmp(was, is) != 0;

	for (uint32_t i = now->nmodel; i < now->n; i++) {
		const struct en_run_fact *f = &now->fact[i];

		if (other && !strncmp(f->key, "schedule.", 9))
			continue;
		was = en_run_facts_find(before, f->key);
		if (!same_text(f->key, was, f->value))
			run_line(d, f->key, was, f->value);
	}
	for (uint32_t i = 0; !other && i < before->n; i++) {
		const struct en_run_fact *f = &before->fact[i];

		if (!strncmp(f->key, "schedule.", 9) && !en_run_facts_find(now, f->key))
			run_line(d, f->key, f->value, NULL);
	}
	was = en_run_facts_find(before, "fp8");
	if (was && !en_run_facts_find(now, "fp8") && !same_text("fp8", was, NULL))
		run_line(d, "fp8", was, NULL);
}

/* ---- the groups of the optimizer ---- */

/* Rates that are computed may differ in the last bits from another program's. */
static bool near(double a, double b)
{
	return fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b));
}

struct value {
	const char *key, *option;
	unsigned bit;
	double *now;
	double was;
};

/* What of the two holds; a line if they differ. */
static void settle(struct en_differ *d, const struct value *v, uint32_t g, unsigned stated)
{
	char of[24] = "", was[EN_DOUBLE_TEXT], now[EN_DOUBLE_TEXT];

	if (isnan(v->was) || *v->now == v->was)
		return;
	if (g)
		snprintf(of, sizeof(of), " of group %" PRIu32, g);
	en_double_text(v->was, was);
	en_double_text(*v->now, now);
	if (stated & v->bit) {
		en_differ_say(d, "%s%s: the step has %s, %s says %s; using the option", v->key, of,
			      was, v->option, now);
		changed(d, v->key);
		return;
	}
	if (!(d->unsaid & v->bit))
		en_differ_say(d,
			      "%s%s: the step has %s, this run would have %s; using the step's, as "
			      "in DeepSpeed (%s overrides it)",
			      v->key, of, was, now, v->option);
	*v->now = v->was;
}

/* The rate where no schedule of DeepSpeed's own computes it. */
static void settle_rate(struct en_differ *d, struct en_sched *sched, const struct en_sched *own,
			uint32_t g, unsigned stated, double was)
{
	const bool lambda = en_sched_is_lambda(sched->kind) || sched->kind == EN_SCHED_PLATEAU;
	double base = own->base[g];
	struct value v = { "lr", "--lr", EN_HAS_LR, &base, lambda ? sched->base[g] : was };

	settle(d, &v, g, stated);
	en_sched_set_base(sched, g, base);
}

static void compare_rate(struct en_differ *d, const struct en_sched *sched, uint32_t g, double was)
{
	const double is = en_sched_lr(sched, g);
	char before[EN_DOUBLE_TEXT], now[EN_DOUBLE_TEXT];

	if (isnan(was) || near(is, was) || strstr(d->keys, "lr") || strstr(d->keys, "schedule"))
		return;
	en_double_text(was, before);
	en_double_text(is, now);
	en_differ_say(d,
		      "lr: the step has %s for the next update, this run's schedule %s; using the "
		      "schedule, as in DeepSpeed",
		      before, now);
	changed(d, "lr");
}

static void say_sched(struct en_differ *d, const struct en_sched *sched, bool has)
{
	if (has == (sched->kind != EN_SCHED_NONE))
		return;
	if (has)
		en_differ_say(d, "schedule: the step has one, this run none; the learning rate "
				 "stays at the step's, as in DeepSpeed");
	else
		en_differ_say(d,
			      "schedule: the step has none; this run's %s starts at its first "
			      "update, as in DeepSpeed",
			      en_sched_name(sched->kind));
	changed(d, "schedule");
}

void en_differ_groups(struct en_differ *d, struct en_zero_hyper *group, uint32_t n,
		      struct en_sched *sched, const struct en_sched *own, unsigned stated,
		      const struct en_in_force *step)
{
	double beta;

	say_sched(d, sched, step->has_sched);
	if (step->ngroups != n) {
		if (step->ngroups)
			en_differ_say(d,
				      "param_groups: the step has %" PRIu32 ", this run %" PRIu32
				      "; using this run's values",
				      step->ngroups, n);
		else
			en_differ_say(d, "param_groups: the step has no learning rates; using this "
					 "run's values");
		changed(d, "param_groups");
		return;
	}
	for (uint32_t g = 0; g < n; g++) {
		const struct en_zero_hyper *was = &step->group[g];
		const struct value list[] = {
			{ "beta1", "--beta1", EN_HAS_BETA1, &group[g].beta1, was->beta1 },
			{ "beta2", "--beta2", EN_HAS_BETA2, &group[g].beta2, was->beta2 },
			{ "eps", "--eps", EN_HAS_EPS, &group[g].eps, was->eps },
			{ "weight_decay", "--weight-decay", EN_HAS_WEIGHT_DECAY, &group[g].decay,
			  was->decay },
		};
		const size_t first = en_sched_betas(sched, g, &beta, &beta) ? 2 : 0;

		if (sched->kind == EN_SCHED_NONE || sched->kind == EN_SCHED_PLATEAU ||
		    en_sched_is_lambda(sched->kind))
			settle_rate(d, sched, own, g, stated, was->lr);
		else
			compare_rate(d, sched, g, was->lr);
		for (size_t i = first; i < sizeof(list) / sizeof(list[0]); i++)
			settle(d, &list[i], g, stated);
	}
}

/* ---- the loss scale ---- */

static void scale_line(struct en_differ *d, const char *key, double own, double now)
{
	char has[EN_DOUBLE_TEXT], would[EN_DOUBLE_TEXT];

	if (own == now)
		return;
	en_double_text(now, has);
	en_double_text(own, would);
	en_differ_say(
		d, "%s: the step has %s, this run would have %s; using the step's, as in DeepSpeed",
		key, has, would);
}

void en_differ_scale(struct en_differ *d, const struct en_scale *own, const struct en_scale *now)
{
	if (!now->dynamic) {
		scale_line(d, "fp16.loss_scale", own->scale, now->scale);
		return;
	}
	scale_line(d, "fp16.loss_scale_window", (double)own->window, (double)now->window);
	scale_line(d, "fp16.hysteresis", (double)own->hysteresis, (double)now->hysteresis);
	scale_line(d, "fp16.min_loss_scale", own->min_scale, now->min_scale);
}
