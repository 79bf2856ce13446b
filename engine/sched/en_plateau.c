/*
 * en_plateau.c -- ReduceLROnPlateau of torch 2.11 (torch/optim/lr_scheduler.py): its operations in
 * their order, and its state.
 */
#include <math.h>

#include "engine/base/en_json.h"
#include "engine/sched/en_sched_priv.h"
#include "libckpt/base/ck_err.h"

void en_plateau_begin(struct en_sched *s)
{
	s->best = s->is_max != 0 ? -INFINITY : INFINITY;
	for (uint32_t g = 0; g < s->ngroups; g++)
		s->now[g] = s->base[g];
}

int en_plateau_check(const struct en_sched *s, struct ckpt_err *err)
{
	const char *what = !(s->factor > 0 && s->factor < 1) ? "factor" :
			   !(s->patience >= 0) ? "patience" : !(s->cooldown >= 0) ? "cooldown" :
			   !(s->threshold >= 0) ? "threshold" : !(s->eps >= 0) ? "eps" : NULL;

	return !what ? 0 : ck_fail(err, CKPT_E_USAGE, EN_SCHED_WHERE, CKPT_NO_OFFSET,
				   "reduce_lr_on_plateau: %s is out of range; expected %s", what,
				   what[0] == 'f' ? "a number above 0 and below 1" : "0 or more");
}

static bool is_better(const struct en_sched *s, double a)
{
	if (s->is_max == 0)
		return a < (s->is_absolute != 0 ? s->best - s->threshold :
						  s->best * (1 - s->threshold));
	return a > (s->is_absolute != 0 ? s->best + s->threshold : s->best * (s->threshold + 1));
}

static bool lower_rates(struct en_sched *s)
{
	bool lowered = false;

	for (uint32_t g = 0; g < s->ngroups; g++) {
		const double lr = fmax(s->now[g] * s->factor, s->lo[g]);

		if (!(s->now[g] - lr > s->eps))
			continue;
		s->now[g] = lr;
		lowered = true;
	}
	return lowered;
}

bool en_sched_evaluated(struct en_sched *s, double loss)
{
	bool lowered = false;

	if (s->kind != EN_SCHED_PLATEAU)
		return false;
	s->done++;
	if (is_better(s, loss)) {
		s->best = loss;
		s->bad = 0;
	} else {
		s->bad++;
	}
	if (s->cooling > 0) {
		s->cooling--;
		s->bad = 0;
	}
	if ((double)s->bad > s->patience) {
		lowered = lower_rates(s);
		s->cooling = (int64_t)s->cooldown;
		s->bad = 0;
	}
	return lowered;
}

void en_sched_set_base(struct en_sched *s, uint32_t group, double lr)
{
	if (s->kind == EN_SCHED_PLATEAU && s->base[group] != lr)
		s->now[group] = lr;
	s->base[group] = lr;
}

/* ---- state ---- */

static int add_list(struct ck_buf *buf, const char *key, const double *v, uint32_t n,
		    struct ckpt_err *err)
{
	char text[EN_DOUBLE_TEXT];
	int rc = ck_buf_addf(buf, err, ", \"%s\": [", key);

	for (uint32_t g = 0; !rc && g < n; g++) {
		en_double_text(v[g], text);
		rc = ck_buf_addf(buf, err, "%s%s", g ? ", " : "", text);
	}
	return rc ? rc : ck_buf_adds(buf, "]", err);
}

static int add_number(struct ck_buf *buf, const char *key, double v, struct ckpt_err *err)
{
	char text[EN_DOUBLE_TEXT];

	en_double_text(v, text);
	return ck_buf_addf(buf, err, ", \"%s\": %s", key, text);
}

/*
 * What torch's has, and base_lrs; without "best" before the first evaluation and "mode_worse",
 * which are infinite and which torch sets itself.
 */
int en_plateau_state(const struct en_sched *s, struct ck_buf *buf, struct ckpt_err *err)
{
	int rc = ck_buf_addf(buf, err,
			     "{\"patience\": %.0f, \"cooldown\": %.0f, \"last_epoch\": %lld, "
			     "\"cooldown_counter\": %lld, \"num_bad_epochs\": %lld, "
			     "\"mode\": \"%s\", \"threshold_mode\": \"%s\"",
			     s->patience, s->cooldown,
			     (long long)s->done, (long long)s->cooling, (long long)s->bad,
			     s->is_max != 0 ? "max" : "min", s->is_absolute != 0 ? "abs" : "rel");

	if (!rc)
		rc = add_number(buf, "factor", s->factor, err);
	if (!rc)
		rc = add_number(buf, "threshold", s->threshold, err);
	if (!rc)
		rc = add_number(buf, "eps", s->eps, err);
	if (!rc && isfinite(s->best))
		rc = add_number(buf, "best", s->best, err);
	if (!rc)
		rc = add_list(buf, "min_lrs", s->lo, s->ngroups, err);
	if (!rc)
		rc = add_list(buf, "base_lrs", s->base, s->ngroups, err);
	if (!rc)
		rc = add_list(buf, "_last_lr", s->now, s->ngroups, err);
	return rc ? rc : ck_buf_adds(buf, "}", err);
}

void en_plateau_take(struct en_sched *s, const struct en_plateau_said *said)
{
	s->bad = said->bad;
	s->cooling = said->cooling;
	en_plateau_begin(s);
	if (said->has_best)
		s->best = said->best;
	for (uint32_t g = 0; g < s->ngroups && said->nlast == s->ngroups; g++)
		s->now[g] = said->last[g];
}
