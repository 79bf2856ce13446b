/*
 * en_sched_read.c -- schedules from the JSON that users write: DeepSpeed's "params", transformers'
 * lr_scheduler_kwargs.
 *
 * Every schedule has a table of its parameters; a key that is not in it is refused, as the
 * constructors there refuse it.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/en_json.h"
#include "engine/sched/en_sched_priv.h"
#include "libckpt/base/ck_err.h"

#define MAX_PARAM_NODES 4096
/* Counts beyond it are typing errors, and double must hold them. */
#define MAX_COUNT 1e15

enum how {
	RATE,		/* a number, or a list of one for each group */
	NUMBER,
	COUNT,		/* a number that is not huge */
	POSITIVE,	/* an integer above 0 since 0.19; before, a number */
	SWITCH,		/* true or false */
	SHAPE,		/* "linear", "cosine" or "1-sqrt" */
	MODE,		/* "min" or "max" */
	THRESHOLD,	/* "rel" or "abs" */
	WARMUP_TYPE,	/* "linear"; anything else is logarithmic, as there */
	IGNORED,	/* last_batch_iteration: -1 only */
};

struct param {
	const char *key;
	enum how how;
	size_t at;	/* of the field in struct en_sched */
	double def;	/* NAN: it must be there */
};

#define AT(field) offsetof(struct en_sched, field)
#define OWN_RATE (-1)	/* default of a RATE: what the optimizer was made with */
#define AS_FIRST (-2)	/* default of a COUNT: the parameter before it */
#define END { NULL, NUMBER, 0, 0 }
#define LAST { "last_batch_iteration", IGNORED, 0, -1 }

static const struct param warmup[] = {
	{ "warmup_min_lr", RATE, AT(lo), 0 },
	{ "warmup_max_lr", RATE, AT(hi), OWN_RATE },
	{ "warmup_num_steps", POSITIVE, AT(warmup), 1000 },
	{ "warmup_type", WARMUP_TYPE, AT(linear), 0 },
	LAST, END,
};
static const struct param warmup_decay[] = {
	{ "total_num_steps", COUNT, AT(total), NAN },
	{ "warmup_min_lr", RATE, AT(lo), 0 },
	{ "warmup_max_lr", RATE, AT(hi), 0.001 },
	{ "warmup_num_steps", POSITIVE, AT(warmup), 1000 },
	{ "warmup_type", WARMUP_TYPE, AT(linear), 0 },
	LAST, END,
};
static const struct param warmup_cosine[] = {
	{ "total_num_steps", COUNT, AT(total), NAN },
	{ "warmup_min_ratio", NUMBER, AT(min_ratio), 0 },
	{ "warmup_num_steps", POSITIVE, AT(warmup), 1000 },
	{ "cos_min_ratio", NUMBER, AT(end_ratio), 0.0001 },
	{ "warmup_type", WARMUP_TYPE, AT(linear), 0 },
	LAST, END,
};
static const struct param range_test[] = {
	{ "lr_range_test_min_lr", RATE, AT(lo), 1e-3 },
	{ "lr_range_test_step_size", POSITIVE, AT(step_size), 2000 },
	{ "lr_range_test_step_rate", NUMBER, AT(step_rate), 1 },
	{ "lr_range_test_staircase", SWITCH, AT(staircase), 0 },
	LAST, END,
};
static const struct param one_cycle[] = {
	{ "cycle_min_lr", RATE, AT(lo), NAN },
	{ "cycle_max_lr", RATE, AT(hi), NAN },
	{ "decay_lr_rate", NUMBER, AT(decay_lr), 0 },
	{ "cycle_first_step_size", COUNT, AT(first), 2000 },
	{ "cycle_second_step_size", COUNT, AT(second), AS_FIRST },
	{ "cycle_first_stair_count", COUNT, AT(first_stairs), 0 },
	{ "cycle_second_stair_count", COUNT, AT(second_stairs), AS_FIRST },
	{ "decay_step_size", COUNT, AT(decay_size), 0 },
	{ "cycle_momentum", SWITCH, AT(momentum), 1 },
	{ "cycle_min_mom", RATE, AT(mom_lo), 0.8 },
	{ "cycle_max_mom", RATE, AT(mom_hi), 0.9 },
	{ "decay_mom_rate", NUMBER, AT(decay_mom), 0 },
	LAST, END,
};
static const struct param nothing[] = { END };
static const struct param cosine[] = { { "num_cycles", NUMBER, AT(cycles), 0.5 }, END };
static const struct param restarts[] = { { "num_cycles", NUMBER, AT(cycles), 1 }, END };
static const struct param polynomial[] = {
	{ "lr_end", NUMBER, AT(lr_end), 1e-7 },
	{ "power", NUMBER, AT(power), 1 },
	END,
};
static const struct param inverse_sqrt[] = {
	{ "timescale", NUMBER, AT(timescale), 0 },	/* 0 = the warm-up, or 10000 */
	END,
};
static const struct param min_lr[] = {
	{ "num_cycles", NUMBER, AT(cycles), 0.5 },
	{ "min_lr", NUMBER, AT(lr_end), OWN_RATE },
	{ "min_lr_rate", NUMBER, AT(end_ratio), OWN_RATE },
	END,
};

static const struct param wsd[] = {
	{ "num_decay_steps", COUNT, AT(falling), NAN },
	{ "num_stable_steps", COUNT, AT(stable), OWN_RATE },
	{ "warmup_type", SHAPE, AT(warm_shape), EN_SHAPE_LINEAR },
	{ "decay_type", SHAPE, AT(fall_shape), EN_SHAPE_COSINE },
	{ "min_lr_ratio", NUMBER, AT(end_ratio), 0 },
	{ "num_cycles", NUMBER, AT(cycles), 0.5 },
	END,
};
static const struct param plateau[] = {
	{ "mode", MODE, AT(is_max), 0 },
	{ "factor", NUMBER, AT(factor), 0.1 },
	{ "patience", COUNT, AT(patience), 10 },
	{ "threshold", NUMBER, AT(threshold), 1e-4 },
	{ "threshold_mode", THRESHOLD, AT(is_absolute), 0 },
	{ "cooldown", COUNT, AT(cooldown), 0 },
	{ "min_lr", RATE, AT(lo), 0 },
	{ "eps", NUMBER, AT(eps), 1e-8 },
	END,
};

static const struct type {
	enum en_sched_kind kind;
	const struct param *param;
} types[] = {
	{ EN_SCHED_WARMUP, warmup }, { EN_SCHED_WARMUP_DECAY, warmup_decay },
	{ EN_SCHED_WARMUP_COSINE, warmup_cosine }, { EN_SCHED_RANGE_TEST, range_test },
	{ EN_SCHED_ONE_CYCLE, one_cycle }, { EN_SCHED_CONSTANT, nothing },
	{ EN_SCHED_CONSTANT_WARMUP, nothing }, { EN_SCHED_LINEAR, nothing },
	{ EN_SCHED_COSINE, cosine }, { EN_SCHED_POLYNOMIAL, polynomial },
	{ EN_SCHED_INVERSE_SQRT, inverse_sqrt }, { EN_SCHED_RESTARTS, restarts },
	{ EN_SCHED_MIN_LR, min_lr }, { EN_SCHED_WSD, wsd }, { EN_SCHED_PLATEAU, plateau },
};

struct reader {
	struct ck_json doc;
	struct en_sched *s;
	const char *type;
	bool is_option;		/* of transformers: 'doc' is --lr-scheduler-args */
	struct ckpt_err *err;
};

static int wrong(const struct reader *r, const char *key, uint64_t tok, const char *want)
{
	char text[EN_JSON_TEXT];

	en_json_text(&r->doc, tok, text);
	return ck_fail(r->err, CKPT_E_USAGE, EN_SCHED_WHERE, CKPT_NO_OFFSET,
		       "%s: %s is %s; expected %s%s", r->type, key, text, want,
		       strcmp(text, "\"auto\"") ? "" : " (\"auto\" is not resolved)");
}

static double *field(const struct reader *r, const struct param *p)
{
	return (double *)(void *)((char *)r->s + p->at);
}

static void set_rates(const struct reader *r, const struct param *p, double v)
{
	for (uint32_t g = 0; g < r->s->ngroups; g++)
		field(r, p)[g] = v == OWN_RATE ? r->s->base[g] : v;
}

static int take_rates(const struct reader *r, const struct param *p, uint64_t tok)
{
	const struct ck_json_tok *t = &r->doc.tok[tok];
	double v;

	if (t->type != CK_JSON_ARRAY) {
		if (!en_json_double(&r->doc, tok, &v))
			return wrong(r, p->key, tok, "a number, or a list of one for each group");
		/* set_rates() would take OWN_RATE for the default. */
		for (uint32_t g = 0; g < r->s->ngroups; g++)
			field(r, p)[g] = v;
		return 0;
	}
	if (t->n != r->s->ngroups)
		return ck_fail(r->err, CKPT_E_USAGE, EN_SCHED_WHERE, CKPT_NO_OFFSET,
			       "%s: %s has %u values, and the optimizer %u param groups", r->type,
			       p->key, t->n, r->s->ngroups);
	for (uint32_t g = 0; g < t->n; g++)	/* numbers take one token each */
		if (!en_json_double(&r->doc, tok + 1 + g, &field(r, p)[g]))
			return wrong(r, p->key, tok, "a list of numbers");
	return 0;
}

static int take_number(const struct reader *r, const struct param *p, uint64_t tok)
{
	double v;

	if (!en_json_double(&r->doc, tok, &v))
		return wrong(r, p->key, tok, "a number");
	if (p->how != NUMBER && !(fabs(v) <= MAX_COUNT))
		return wrong(r, p->key, tok, "a number of updates up to 1e15");
	if (p->how == POSITIVE && r->s->ds_minor >= 19 &&
	    (!en_json_is_whole(&r->doc, tok) || v <= 0))
		return wrong(r, p->key, tok, "a whole number above 0");
	*field(r, p) = v;
	return 0;
}

static int take_switch(const struct reader *r, const struct param *p, uint64_t tok)
{
	const uint8_t type = r->doc.tok[tok].type;
	const bool on = type == CK_JSON_TRUE;

	if (!on && type != CK_JSON_FALSE)
		return wrong(r, p->key, tok, "true or false");
	memcpy((char *)r->s + p->at, &on, sizeof(on));
	return 0;
}

/* The number of a word. */
static int take_word(const struct reader *r, const struct param *p, uint64_t tok)
{
	static const char *const words[][4] = {
		[SHAPE] = { "linear", "cosine", "1-sqrt" },
		[MODE] = { "min", "max" },
		[THRESHOLD] = { "rel", "abs" },
	};
	static const char *const want[] = {
		[SHAPE] = "\"linear\", \"cosine\" or \"1-sqrt\"",
		[MODE] = "\"min\" or \"max\"",
		[THRESHOLD] = "\"rel\" or \"abs\"",
	};
	const struct ck_json_tok *t = &r->doc.tok[tok];

	for (int i = 0; t->type == CK_JSON_STRING && words[p->how][i]; i++)
		if (!strcmp(words[p->how][i], t->str)) {
			*field(r, p) = i;
			return 0;
		}
	return wrong(r, p->key, tok, want[p->how]);
}

static int read_param(const struct reader *r, const struct param *p, uint64_t tok)
{
	const struct ck_json_tok *t = &r->doc.tok[tok];
	bool linear;
	int64_t n;

	switch (p->how) {
	case RATE:
		return take_rates(r, p, tok);
	case SWITCH:
		return take_switch(r, p, tok);
	case SHAPE:
	case MODE:
	case THRESHOLD:
		return take_word(r, p, tok);
	case WARMUP_TYPE:
		if (t->type != CK_JSON_STRING)
			return wrong(r, p->key, tok, "\"log\" or \"linear\"");
		linear = !strcmp(t->str, "linear");
		memcpy((char *)r->s + p->at, &linear, sizeof(linear));
		return 0;
	case IGNORED:
		if (ck_json_i64(&r->doc, tok, &n) && n == -1)
			return 0;
		return ck_fail(
			r->err, CKPT_E_UNSUPPORTED, EN_SCHED_WHERE, CKPT_NO_OFFSET,
			"%s: %s in the configuration; a resumed run takes it from its checkpoint",
			r->type, p->key);
	default:
		return take_number(r, p, tok);
	}
}

static int take_default(const struct reader *r, const struct param *p)
{
	const bool on = p->def != 0;

	if (isnan(p->def))
		return ck_fail(r->err, CKPT_E_USAGE, EN_SCHED_WHERE, CKPT_NO_OFFSET,
			       "%s: %s is missing and has no default%s%s%s", r->type, p->key,
			       r->is_option ? "; give --lr-scheduler-args '{\"" : "",
			       r->is_option ? p->key : "", r->is_option ? "\": N}'" : "");
	if (p->how == RATE) {
		/* Before 0.18 an absent maximum was not the optimizer's rate. */
		set_rates(r, p, p->def == OWN_RATE && r->s->ds_minor < 18 ? 0.001 : p->def);
	} else if (p->how == SWITCH || p->how == WARMUP_TYPE) {
		memcpy((char *)r->s + p->at, &on, sizeof(on));
	} else if (p->how != IGNORED) {
		*field(r, p) = p->how == COUNT && p->def == AS_FIRST ? *field(r, p - 1) : p->def;
	}
	return 0;
}

/* null is an absent value where the default is "as another one", as None is there. */
static bool is_absent(const struct reader *r, const struct param *p, uint64_t tok)
{
	return tok == UINT64_MAX ||
	       (r->doc.tok[tok].type == CK_JSON_NULL &&
		(p->def < 0 || r->s->kind == EN_SCHED_INVERSE_SQRT));
}

static void list_names(const struct param *p, char *out, size_t room)
{
	size_t n = (size_t)snprintf(out, room, "%s", p->key ? "" : "none");

	for (; p->key; p++)
		if (p->how != IGNORED && n < room)
			n += (size_t)snprintf(out + n, room - n, "%s%s", n ? ", " : "", p->key);
}

static int check_keys(const struct reader *r, const struct param *param)
{
	uint64_t at = 1;

	for (uint32_t i = 0; i < r->doc.tok[0].n; i++) {
		const struct param *p = param;

		while (p->key && strcmp(p->key, r->doc.tok[at].str))
			p++;
		if (!p->key) {
			char has[400];

			list_names(param, has, sizeof(has));
			return ck_fail(r->err, CKPT_E_USAGE, EN_SCHED_WHERE, CKPT_NO_OFFSET,
				       "%s has no parameter '%.100s'; it has %s", r->type,
				       r->doc.tok[at].str, has);
		}
		at = r->doc.tok[at + 1].next;
	}
	return 0;
}

static int take_all(const struct reader *r, const struct param *param)
{
	int rc;

	if (r->doc.tok[0].type != CK_JSON_OBJECT)
		return ck_fail(r->err, CKPT_E_USAGE, EN_SCHED_WHERE, CKPT_NO_OFFSET,
			       "%s: the parameters are not a JSON object", r->type);
	rc = check_keys(r, param);
	for (const struct param *p = param; !rc && p->key; p++) {
		const uint64_t tok = ck_json_get(&r->doc, 0, p->key);

		rc = is_absent(r, p, tok) ? take_default(r, p) : read_param(r, p, tok);
	}
	return rc;
}

/* Of transformers, or of DeepSpeed. */
static const struct type *type_find(const char *name, bool transformers)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(types); i++)
		if ((types[i].kind >= EN_SCHED_CONSTANT) == transformers &&
		    !strcmp(en_sched_name(types[i].kind), name))
			return &types[i];
	return NULL;
}

static int read_params(struct en_sched *s, const struct type *t, const char *params,
		       struct ckpt_err *err)
{
	const char *text = params ? params : "{}";
	struct reader r = {
		.s = s, .type = en_sched_name(t->kind), .is_option = t->kind >= EN_SCHED_CONSTANT,
		.err = err,
	};
	int rc = en_json_parse(&r.doc, text, strlen(text), MAX_PARAM_NODES, EN_SCHED_WHERE, err);

	if (!rc)
		rc = take_all(&r, t->param);
	if (rc && err && r.is_option)
		snprintf(err->where, sizeof(err->where), "--lr-scheduler-args");
	ck_json_release(&r.doc);
	return rc;
}

int en_sched_init_deepspeed(struct en_sched *s, const char *type, const char *params,
			    unsigned ds_minor, const double *lr, uint32_t ngroups,
			    struct ckpt_err *err)
{
	const struct type *t = type_find(type, false);
	struct en_sched now;
	int rc;

	if (!t)
		return ck_fail(err, CKPT_E_USAGE, EN_SCHED_WHERE, CKPT_NO_OFFSET,
			       "unknown scheduler '%.60s'; expected WarmupLR, WarmupDecayLR, "
			       "WarmupCosineLR, OneCycle or LRRangeTest",
			       type);
	rc = en_sched_begin(&now, t->kind, ds_minor, lr, ngroups, err);
	if (!rc)
		rc = read_params(&now, t, params, err);
	if (rc)
		return rc;
	now.warmup = fmax(2, now.warmup);	/* as there, so that no logarithm is 0 */
	rc = en_sched_check(&now, err);
	if (!rc)
		*s = now;
	return rc;
}

/* What depends on more than one parameter. */
static int settle(struct en_sched *s, struct ckpt_err *err)
{
	if (s->kind == EN_SCHED_INVERSE_SQRT && s->timescale == 0)
		s->timescale = s->warmup > 0 ? s->warmup : 10000;
	if (s->kind == EN_SCHED_WSD && s->stable < 0)
		s->stable = s->total - s->warmup - s->falling;
	if (s->kind == EN_SCHED_PLATEAU)
		en_plateau_begin(s);
	if (s->kind != EN_SCHED_MIN_LR)
		return 0;
	if ((s->lr_end == OWN_RATE) == (s->end_ratio == OWN_RATE))
		return ck_fail(err, CKPT_E_USAGE, EN_SCHED_WHERE, CKPT_NO_OFFSET,
			       "cosine_with_min_lr: give min_lr or min_lr_rate, not both");
	if (s->lr_end != OWN_RATE)
		s->end_ratio = s->lr_end / s->init_lr;
	return 0;
}

static int no_such_type(const char *type, struct ckpt_err *err)
{
	static const char *const known[] = {
		"cosine_warmup_with_min_lr", "greedy",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(known); i++)
		if (!strcmp(type, known[i]))
			return ck_fail(err, CKPT_E_UNSUPPORTED, EN_SCHED_WHERE, CKPT_NO_OFFSET,
				       "the schedule %s of transformers is not supported", type);
	return ck_fail(
		err, CKPT_E_USAGE, EN_SCHED_WHERE, CKPT_NO_OFFSET,
		"unknown schedule '%.60s'; expected linear, cosine, cosine_with_restarts, "
		"cosine_with_min_lr, polynomial, constant, constant_with_warmup, inverse_sqrt, "
		"warmup_stable_decay (wsd) or reduce_lr_on_plateau",
		type);
}

int en_sched_init_transformers(struct en_sched *s, const char *type, const char *kwargs,
			       int64_t warmup_steps, int64_t total, double init_lr,
			       const double *lr, uint32_t ngroups, struct ckpt_err *err)
{
	const struct type *t = type_find(strcmp(type, "wsd") ? type : "warmup_stable_decay", true);
	struct en_sched now;
	int rc;

	if (!t)
		return no_such_type(type, err);
	rc = en_sched_begin(&now, t->kind, 19, lr, ngroups, err);
	if (rc)
		return rc;
	now.warmup = (double)warmup_steps;
	now.total = (double)total;
	now.init_lr = init_lr;
	rc = read_params(&now, t, kwargs, err);
	if (!rc)
		rc = settle(&now, err);
	if (!rc)
		rc = en_sched_check(&now, err);
	if (!rc)
		*s = now;
	return rc;
}
