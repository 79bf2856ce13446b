/*
 * en_sched_state.c -- the state of a schedule, as DeepSpeed's checkpoints hold it.
 *
 * DeepSpeed's schedulers save {"last_batch_iteration": i}; a LambdaLR of torch 2.11 everything it
 * has but the optimizer and functions (a partial() of transformers becomes {}, a lambda null). Both
 * are the one number 'done' here, so each continues from the other's.  A ReduceLROnPlateau counts
 * evaluations (en_plateau.c).
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/en_json.h"
#include "engine/sched/en_sched_priv.h"
#include "libckpt/base/ck_err.h"

#define MAX_STATE_NODES 100000

static int add_rates(struct ck_buf *buf, const char *key, const struct en_sched *s, bool base,
		     struct ckpt_err *err)
{
	int rc = ck_buf_addf(buf, err, "\"%s\": [", key);

	for (uint32_t g = 0; !rc && g < s->ngroups; g++) {
		char text[EN_DOUBLE_TEXT];

		en_double_text(base ? s->base[g] : en_sched_lr(s, g), text);
		rc = ck_buf_addf(buf, err, "%s%s", g ? ", " : "", text);
	}
	return rc ? rc : ck_buf_adds(buf, "], ", err);
}

static int add_lambda(const struct en_sched *s, struct ck_buf *buf, struct ckpt_err *err)
{
	const char *fn = s->kind == EN_SCHED_CONSTANT ? "null" : "{}";
	int rc = ck_buf_adds(buf, "{", err);

	if (!rc)
		rc = add_rates(buf, "base_lrs", s, true, err);
	if (!rc)
		rc = ck_buf_addf(buf, err, "\"last_epoch\": %lld, \"_step_count\": %lld, "
				 "\"_is_initial\": false, \"_get_lr_called_within_step\": false, ",
				 (long long)s->done, (long long)s->done + 1);
	if (!rc)
		rc = add_rates(buf, "_last_lr", s, false, err);
	if (!rc)
		rc = ck_buf_adds(buf, "\"lr_lambdas\": [", err);
	for (uint32_t g = 0; !rc && g < s->ngroups; g++)
		rc = ck_buf_addf(buf, err, "%s%s", g ? ", " : "", fn);
	return rc ? rc : ck_buf_adds(buf, "]}", err);
}

int en_sched_state(const struct en_sched *s, struct ck_buf *buf, struct ckpt_err *err)
{
	if (s->kind == EN_SCHED_NONE)
		return 0;
	if (en_sched_is_lambda(s->kind))
		return add_lambda(s, buf, err);
	if (s->kind == EN_SCHED_PLATEAU)
		return en_plateau_state(s, buf, err);
	return ck_buf_addf(buf, err, "{\"last_batch_iteration\": %lld}", (long long)s->done - 1);
}

/* ---- going on ---- */

/* What a state says. */
struct said {
	bool has_batch, has_epoch;
	int64_t batch, epoch;
	uint32_t nbase;		/* 0 = it has none */
	double base[EN_SCHED_GROUPS];
	struct en_plateau_said plateau;
};

/* last_batch_iteration is one less than last_epoch. */
static int take_counter(const struct said *said, int64_t *done_out, struct ckpt_err *err)
{
	if (!said->has_batch && !said->has_epoch)
		return ck_fail(err, CKPT_E_MISMATCH, EN_SCHED_WHERE, CKPT_NO_OFFSET,
			       "unknown scheduler: the state has neither last_batch_iteration nor "
			       "last_epoch");
	if ((said->has_batch && (said->batch < -1 || said->batch >= INT64_MAX - 2)) ||
	    (said->has_epoch && (said->epoch < 0 || said->epoch >= INT64_MAX - 2)))
		return ck_fail(err, CKPT_E_CORRUPT, EN_SCHED_WHERE, CKPT_NO_OFFSET,
			       "invalid state: last update %lld",
			       (long long)(said->has_batch ? said->batch : said->epoch));
	if (said->has_batch && said->has_epoch && said->batch + 1 != said->epoch)
		return ck_fail(
			err, CKPT_E_MISMATCH, EN_SCHED_WHERE, CKPT_NO_OFFSET,
			"last_batch_iteration %lld and last_epoch %lld contradict each other",
			(long long)said->batch, (long long)said->epoch);
	*done_out = said->has_epoch ? said->epoch : said->batch + 1;
	return 0;
}

static int take_said(struct en_sched *s, const struct said *said, struct ckpt_err *err)
{
	int64_t done = 0;
	int rc = take_counter(said, &done, err);

	if (rc)
		return rc;
	if (said->nbase && said->nbase != s->ngroups)
		return ck_fail(err, CKPT_E_MISMATCH, EN_SCHED_WHERE, CKPT_NO_OFFSET,
			       "the step has rates of %u param group%s, this run has %u group%s: "
			       "an optimizer in --config makes one, --lr without it two (with "
			       "weight decay and without)",
			       said->nbase, said->nbase == 1 ? "" : "s", s->ngroups,
			       s->ngroups == 1 ? "" : "s");
	/* Evaluations are no updates: where one of the two counts them, the schedule begins. */
	if (said->plateau.is_plateau != (s->kind == EN_SCHED_PLATEAU))
		return 0;
	s->done = done;
	if (said->nbase && (en_sched_is_lambda(s->kind) || s->kind == EN_SCHED_PLATEAU))
		memcpy(s->base, said->base, s->ngroups * sizeof(*s->base));
	if (s->kind == EN_SCHED_PLATEAU)
		en_plateau_take(s, &said->plateau);
	return 0;
}

static int take_count(uint32_t *n_out, const char *key, uint32_t n, struct ckpt_err *err)
{
	if (n > EN_SCHED_GROUPS)
		return ck_fail(err, CKPT_E_MISMATCH, EN_SCHED_WHERE, CKPT_NO_OFFSET,
			       "the state has %s of %u param groups; a schedule supports up to %d",
			       key, n, EN_SCHED_GROUPS);
	*n_out = n;
	return 0;
}

static int bad_rates(const char *key, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_CORRUPT, EN_SCHED_WHERE, CKPT_NO_OFFSET,
		       "%s of the state is not a list of rates", key);
}

static int json_counter(const struct ck_json *doc, const char *key, bool *has_out, int64_t *out,
			struct ckpt_err *err)
{
	const uint64_t tok = ck_json_get(doc, 0, key);
	char text[EN_JSON_TEXT];

	*has_out = tok != UINT64_MAX;
	if (!*has_out || ck_json_i64(doc, tok, out))
		return 0;
	return ck_fail(err, CKPT_E_CORRUPT, EN_SCHED_WHERE, CKPT_NO_OFFSET,
		       "%s of the state is %s, expected a whole number", key,
		       en_json_text(doc, tok, text));
}

static int json_rates(const struct ck_json *doc, const char *key, double *out, uint32_t *n_out,
		      struct ckpt_err *err)
{
	const uint64_t tok = ck_json_get(doc, 0, key);
	int rc;

	if (tok == UINT64_MAX)
		return 0;
	if (doc->tok[tok].type != CK_JSON_ARRAY)
		return bad_rates(key, err);
	rc = take_count(n_out, key, doc->tok[tok].n, err);
	for (uint32_t g = 0; !rc && g < *n_out; g++)
		if (!en_json_double(doc, tok + 1 + g, &out[g]) || out[g] < 0)
			rc = bad_rates(key, err);
	return rc;
}

static int json_plateau(const struct ck_json *doc, struct en_plateau_said *p, struct ckpt_err *err)
{
	const uint64_t best = ck_json_get(doc, 0, "best");
	bool has;
	int rc = json_counter(doc, "num_bad_epochs", &p->is_plateau, &p->bad, err);

	if (rc || !p->is_plateau)
		return rc;
	rc = json_counter(doc, "cooldown_counter", &has, &p->cooling, err);
	p->has_best = best != UINT64_MAX && en_json_double(doc, best, &p->best);
	return rc ? rc : json_rates(doc, "_last_lr", p->last, &p->nlast, err);
}

int en_sched_load(struct en_sched *s, const char *text, uint64_t len, struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	struct said said = { 0 };
	int rc = en_json_parse(&doc, text, len, MAX_STATE_NODES, EN_SCHED_WHERE, err);

	if (!rc && doc.tok[0].type != CK_JSON_OBJECT)
		rc = ck_fail(err, CKPT_E_CORRUPT, EN_SCHED_WHERE, CKPT_NO_OFFSET,
			     "the state is not a JSON object");
	if (!rc)
		rc = json_counter(&doc, "last_batch_iteration", &said.has_batch, &said.batch, err);
	if (!rc)
		rc = json_counter(&doc, "last_epoch", &said.has_epoch, &said.epoch, err);
	if (!rc)
		rc = json_rates(&doc, "base_lrs", said.base, &said.nbase, err);
	if (!rc)
		rc = json_plateau(&doc, &said.plateau, err);
	if (!rc)
		rc = take_said(s, &said, err);
	ck_json_release(&doc);
	return rc;
}

/* ---- from a checkpoint ---- */

static int value_counter(struct ckpt_values *values, const char *path, bool *has_out, int64_t *out,
			 struct ckpt_err *err)
{
	struct ckpt_err local = { 0 };
	int rc = ckpt_value_int(values, path, out, &local);

	*has_out = !rc;
	if (!rc || rc == -CKPT_E_NOTFOUND)
		return 0;
	if (err && !err->code)
		*err = local;
	return rc;
}

static int value_rates(struct ckpt_values *values, const char *key, double *out, uint32_t *n_out,
		       struct ckpt_err *err)
{
	struct ckpt_value v;
	char path[64];
	int rc;

	snprintf(path, sizeof(path), "lr_scheduler.%s", key);
	rc = ckpt_value_get(values, path, &v, NULL);
	if (rc == -CKPT_E_NOTFOUND)
		return 0;
	if (rc || v.kind != CKPT_VALUE_LIST || v.n > UINT32_MAX)
		return bad_rates(key, err);
	rc = take_count(n_out, key, (uint32_t)v.n, err);
	for (uint32_t g = 0; !rc && g < *n_out; g++) {
		snprintf(path, sizeof(path), "lr_scheduler.%s.%u", key, g);
		rc = ckpt_value_float(values, path, &out[g], err);
		if (!rc && !(isfinite(out[g]) && out[g] >= 0))
			rc = bad_rates(key, err);
	}
	return rc;
}

static int value_plateau(struct ckpt_values *values, struct en_plateau_said *p,
			 struct ckpt_err *err)
{
	bool has;
	int rc = value_counter(values, "lr_scheduler.num_bad_epochs", &p->is_plateau, &p->bad,
			       err);

	if (rc || !p->is_plateau)
		return rc;
	rc = value_counter(values, "lr_scheduler.cooldown_counter", &has, &p->cooling, err);
	p->has_best = !ckpt_value_float(values, "lr_scheduler.best", &p->best, NULL);
	return rc ? rc : value_rates(values, "_last_lr", p->last, &p->nlast, err);
}

int en_sched_load_values(struct en_sched *s, struct ckpt_values *values, bool *found_out,
			 struct ckpt_err *err)
{
	struct said said = { 0 };
	struct ckpt_value v;
	struct ckpt_err local = { 0 };
	int rc = ckpt_value_get(values, "lr_scheduler", &v, &local);

	if (rc == -CKPT_E_NOTFOUND || (!rc && v.kind == CKPT_VALUE_NONE)) {
		*found_out = false;
		return 0;
	}
	if (rc && err && !err->code)
		*err = local;
	if (!rc)
		rc = value_counter(values, "lr_scheduler.last_batch_iteration", &said.has_batch,
				   &said.batch, err);
	if (!rc)
		rc = value_counter(values, "lr_scheduler.last_epoch", &said.has_epoch, &said.epoch,
				   err);
	if (!rc)
		rc = value_rates(values, "base_lrs", said.base, &said.nbase, err);
	if (!rc)
		rc = value_plateau(values, &said.plateau, err);
	if (!rc)
		rc = take_said(s, &said, err);
	if (!rc)
		*found_out = true;
	return rc;
}
