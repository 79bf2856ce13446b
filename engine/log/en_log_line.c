/* en_log_line.c -- a step as a line, and back; see en_log.h. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/en_json.h"
#include "engine/log/en_left.h"
#include "engine/log/en_log.h"
#include "libckpt/base/ck_err.h"

#define MAX_LINE_NODES 10000

/* JSON has no infinities and no NaN: they are written in quotes. */
static int add_double(struct ck_buf *buf, const char *key, double v, struct ckpt_err *err)
{
	char text[EN_DOUBLE_TEXT];
	const char *quote = isfinite(v) ? "" : "\"";

	en_double_text(v, text);
	return ck_buf_addf(buf, err, ", \"%s\": %s%s%s", key, quote, text, quote);
}

/* Whole numbers below 2^53. */
static int add_ranks(struct ck_buf *buf, const char *key, const double *v, uint32_t n,
		     struct ckpt_err *err)
{
	int rc;

	if (!v || n > EN_LOG_RANKS)
		return 0;
	rc = ck_buf_addf(buf, err, ", \"%s\": [", key);
	for (uint32_t i = 0; !rc && i < n; i++)
		rc = ck_buf_addf(buf, err, "%s%.0f", i ? ", " : "", v[i]);
	return rc ? rc : ck_buf_adds(buf, "]", err);
}

static double rate(const struct en_log_step *s)
{
	return s->seconds > 0 ? (double)s->tokens / s->seconds : 0;
}

static double hourly(const struct en_log_step *s)
{
	return s->seconds > 0 ? (double)s->rows * 3600 / s->seconds : 0;
}

int en_log_line(const struct en_log_step *s, struct ck_buf *buf, struct ckpt_err *err)
{
	int rc = ck_buf_addf(buf, err, "{\"step\": %lld", (long long)s->step);

	if (!rc)
		rc = add_double(buf, "loss", s->loss, err);
	if (!rc)
		rc = add_double(buf, "lr", s->lr, err);
	if (!rc)
		rc = add_double(buf, "grad_norm", s->grad_norm, err);
	if (!rc && s->loss_scale != 0)
		rc = add_double(buf, "loss_scale", s->loss_scale, err);
	if (!rc)
		rc = ck_buf_addf(buf, err, ", \"skipped\": %s, \"samples\": %lld, \"tokens\": %lld",
				 s->skipped ? "true" : "false", (long long)s->samples,
				 (long long)s->tokens);
	if (!rc)
		rc = add_double(buf, "seconds", s->seconds, err);
	if (!rc)
		rc = add_double(buf, "tokens_per_second", rate(s), err);
	if (!rc && s->rows && s->seconds > 0)
		rc = ck_buf_addf(buf, err, ", \"samples_per_hour\": %.6g", hourly(s));
	if (!rc && s->left > 0)
		rc = ck_buf_addf(buf, err, ", \"seconds_left\": %.1f", s->left);
	if (!rc && s->memory)
		rc = ck_buf_addf(buf, err, ", \"memory_bytes\": %llu",
				 (unsigned long long)s->memory);
	if (!rc && s->has_eval)
		rc = add_double(buf, "eval_loss", s->eval_loss, err);
	if (!rc && s->time > 0)
		rc = ck_buf_addf(buf, err, ", \"time\": %.3f", s->time);
	if (!rc && s->resumed)
		rc = ck_buf_adds(buf, ", \"resumed\": true", err);
	if (!rc)
		rc = add_ranks(buf, "rank_memory_bytes", s->rank_memory, s->ranks, err);
	if (!rc)
		rc = add_ranks(buf, "rank_device_bytes", s->rank_device, s->ranks, err);
	return rc ? rc : ck_buf_adds(buf, "}\n", err);
}

/* ---- reading ---- */

struct line {
	struct ck_json doc;
	const char *where;
	struct ckpt_err *err;
};

static int wrong(const struct line *l, const char *key, uint64_t tok)
{
	char text[EN_JSON_TEXT];

	en_json_text(&l->doc, tok, text);
	return ck_fail(l->err, CKPT_E_CORRUPT, l->where, CKPT_NO_OFFSET,
		       "'%s' is %s: not a line of a training log", key, text);
}

static bool is_word(const struct line *l, uint64_t tok, const char *word)
{
	return tok < l->doc.n && l->doc.tok[tok].type == CK_JSON_STRING &&
	       !strcmp(l->doc.tok[tok].str, word);
}

static int take_double(const struct line *l, const char *key, bool must, bool *has_out, double *out)
{
	const uint64_t tok = ck_json_get(&l->doc, 0, key);

	if (has_out)
		*has_out = tok != UINT64_MAX;
	if (tok == UINT64_MAX && !must)
		return 0;
	if (is_word(l, tok, "NaN"))
		*out = NAN;
	else if (is_word(l, tok, "Infinity"))
		*out = INFINITY;
	else if (is_word(l, tok, "-Infinity"))
		*out = -INFINITY;
	else if (!en_json_double(&l->doc, tok, out))
		return wrong(l, key, tok);
	return 0;
}

static int take_int(const struct line *l, const char *key, bool must, int64_t *out)
{
	const uint64_t tok = ck_json_get(&l->doc, 0, key);

	if (tok == UINT64_MAX && !must)
		return 0;
	return ck_json_i64(&l->doc, tok, out) && *out >= 0 ? 0 : wrong(l, key, tok);
}

static int take_bool(const struct line *l, const char *key, bool must, bool *out)
{
	const uint64_t tok = ck_json_get(&l->doc, 0, key);
	const int type = tok == UINT64_MAX ? 0 : l->doc.tok[tok].type;

	*out = type == CK_JSON_TRUE;
	return type == CK_JSON_TRUE || type == CK_JSON_FALSE || (tok == UINT64_MAX && !must) ?
		       0 : wrong(l, key, tok);
}

static int take_line(const struct line *l, struct en_log_step *s)
{
	int64_t memory = 0;
	int rc = take_int(l, "step", true, &s->step);

	if (!rc)
		rc = take_double(l, "loss", true, NULL, &s->loss);
	if (!rc)
		rc = take_double(l, "lr", true, NULL, &s->lr);
	if (!rc)
		rc = take_double(l, "grad_norm", true, NULL, &s->grad_norm);
	if (!rc)
		rc = take_double(l, "loss_scale", false, NULL, &s->loss_scale);
	if (!rc)
		rc = take_bool(l, "skipped", true, &s->skipped);
	if (!rc)
		rc = take_int(l, "samples", true, &s->samples);
	if (!rc)
		rc = take_int(l, "tokens", true, &s->tokens);
	if (!rc)
		rc = take_double(l, "seconds", true, NULL, &s->seconds);
	if (!rc)
		rc = take_int(l, "memory_bytes", false, &memory);
	if (!rc)
		rc = take_double(l, "eval_loss", false, &s->has_eval, &s->eval_loss);
	if (!rc)
		rc = take_double(l, "time", false, NULL, &s->time);
	if (!rc)
		rc = take_bool(l, "resumed", false, &s->resumed);
	s->memory = (uint64_t)memory;
	return rc;
}

int en_log_parse(const char *text, uint64_t len, const char *where, struct en_log_step *out,
		 struct ckpt_err *err)
{
	struct line l = { .where = where, .err = err };
	struct en_log_step now = { 0 };
	int rc = en_json_parse(&l.doc, text, len, MAX_LINE_NODES, where, err);

	if (!rc && l.doc.tok[0].type != CK_JSON_OBJECT)
		rc = ck_fail(err, CKPT_E_CORRUPT, where, CKPT_NO_OFFSET,
			     "not a JSON object: not a line of a training log");
	if (!rc)
		rc = take_line(&l, &now);
	if (!rc)
		*out = now;
	ck_json_release(&l.doc);
	return rc;
}

/* ---- for people ---- */

struct text {
	char *p;
	size_t left;
};

static void add(struct text *t, const char *fmt, ...) CK_PRINTF(2, 3);
static void add(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(t->p, t->left, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= t->left)
		n = (int)t->left - 1;
	t->p += n;
	t->left -= (size_t)n;
}

/* 950, 12.3k, 4.56M: three digits. */
static void add_rate(struct text *t, double v, const char *what)
{
	static const char *const unit[] = { "", "k", "M", "G" };
	int u = 0;

	while (v >= 999.5 && u < 3) {
		v /= 1000;
		u++;
	}
	add(t, "  %.*f%s %s", !u || v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2, v, unit[u], what);
}

void en_log_console(const struct en_log_step *s, int64_t steps, char out[EN_LOG_CONSOLE])
{
	struct text t = { out, EN_LOG_CONSOLE };
	char time[EN_LEFT_TEXT];

	add(&t, "step %lld", (long long)s->step);
	if (steps)
		add(&t, "/%lld", (long long)steps);
	add(&t, "  loss %.4f  lr %.3e  norm %.3g", s->loss, s->lr, s->grad_norm);
	if (s->loss_scale != 0)
		add(&t, "  scale %.9g", s->loss_scale);
	if (s->skipped)
		add(&t, "  skipped (overflow)");
	add_rate(&t, rate(s), "tok/s");
	if (s->rows)
		add_rate(&t, hourly(s), "samples/h");
	add(&t, "  %.3g s", s->seconds);
	en_left_text(s->left, time);
	if (s->left > 0)
		add(&t, "  %s left", time);
	if (s->memory)
		add(&t, s->memory < 1 << 30 ? "  %.1f MiB" : "  %.1f GiB",
		    (double)s->memory / (s->memory < 1 << 30 ? 1 << 20 : 1 << 30));
	if (s->has_eval)
		add(&t, "  eval loss %.4f", s->eval_loss);
}
