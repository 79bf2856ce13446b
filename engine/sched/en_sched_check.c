/* en_sched_check.c -- what of a schedule cannot be computed, and schedules of engine/config. */
#include <math.h>

#include "engine/sched/en_sched_priv.h"
#include "libckpt/base/ck_err.h"

static int refuse(const struct en_sched *s, struct ckpt_err *err, const char *what, double v,
		  const char *why)
{
	return ck_fail(err, CKPT_E_USAGE, EN_SCHED_WHERE, CKPT_NO_OFFSET, "%s: %s is %g; %s",
		       en_sched_name(s->kind), what, v, why);
}

static int check_cosine(const struct en_sched *s, struct ckpt_err *err)
{
	if (s->ds_minor < 19 && s->total == s->warmup)
		return refuse(s, err, "total_num_steps", s->total,
			      "must differ from warmup_num_steps, or DeepSpeed up to 0.18 divides "
			      "by zero after the warm-up");
	return 0;
}

static int check_cycle(const struct en_sched *s, struct ckpt_err *err)
{
	if (!(s->first > 0))
		return refuse(s, err, "cycle_first_step_size", s->first, "must be above 0");
	if (!(s->second >= 0))
		return refuse(s, err, "cycle_second_step_size", s->second, "must be 0 or more");
	for (uint32_t g = 0; s->momentum && g < s->ngroups; g++)
		for (int hi = 0; hi < 2; hi++) {
			const double v = hi ? s->mom_hi[g] : s->mom_lo[g];

			if (!(v >= 0 && v < 1))
				return refuse(s, err, hi ? "cycle_max_mom" : "cycle_min_mom", v,
					      "a beta of Adam must be at least 0 and below 1");
		}
	/* After the cycle beta1 grows without limit; the run checks that it stays a beta. */
	return 0;
}

static int check_lambda(const struct en_sched *s, struct ckpt_err *err)
{
	if (s->warmup < 0)
		return refuse(s, err, "the warm-up", s->warmup, "must be 0 or more updates");
	switch (s->kind) {
	case EN_SCHED_POLYNOMIAL:
		if (!(s->init_lr > s->lr_end))
			return refuse(s, err, "lr_end", s->lr_end,
				      "must be below the optimizer's rate");
		if (s->total == s->warmup)
			return refuse(
				s, err, "the number of updates", s->total,
				"must differ from the warm-up, or the update divides by zero");
		return 0;
	case EN_SCHED_MIN_LR:
		if (!isfinite(s->end_ratio))
			return refuse(s, err, "the smallest rate over the optimizer's",
				      s->end_ratio, "the optimizer's rate is 0");
		return 0;
	case EN_SCHED_INVERSE_SQRT:
		return s->timescale > 0 ?
			       0 :
			       refuse(s, err, "timescale", s->timescale, "must be above 0");
	case EN_SCHED_WSD:
		if (!(s->falling >= 0))
			return refuse(s, err, "num_decay_steps", s->falling, "must be 0 or more");
		return s->stable >= 0 ?
			       0 :
			       refuse(s, err, "num_stable_steps", s->stable,
				      "warm-up and decay are longer than the run");
	case EN_SCHED_RESTARTS:
		return s->cycles >= 0 ?
			       0 :
			       refuse(s, err, "num_cycles", s->cycles, "must be 0 or more");
	default:
		return 0;
	}
}

int en_sched_check(const struct en_sched *s, struct ckpt_err *err)
{
	if (en_sched_is_lambda(s->kind))
		return check_lambda(s, err);
	if (s->kind == EN_SCHED_PLATEAU)
		return en_plateau_check(s, err);
	switch (s->kind) {
	case EN_SCHED_WARMUP_COSINE:
		return check_cosine(s, err);
	case EN_SCHED_RANGE_TEST:
		return s->step_size > 0 ? 0 :
					  refuse(s, err, "lr_range_test_step_size", s->step_size,
						 "must be above 0");
	case EN_SCHED_ONE_CYCLE:
		return check_cycle(s, err);
	default:
		return 0;
	}
}

static enum en_sched_kind kind_of(enum en_scheduler_type type)
{
	switch (type) {
	case EN_SCHEDULER_RANGE_TEST:
		return EN_SCHED_RANGE_TEST;
	case EN_SCHEDULER_ONE_CYCLE:
		return EN_SCHED_ONE_CYCLE;
	case EN_SCHEDULER_WARMUP:
		return EN_SCHED_WARMUP;
	case EN_SCHEDULER_WARMUP_DECAY:
		return EN_SCHED_WARMUP_DECAY;
	case EN_SCHEDULER_WARMUP_COSINE:
		return EN_SCHED_WARMUP_COSINE;
	default:
		return EN_SCHED_NONE;
	}
}

static void take_cycle(struct en_sched *s, const struct en_schedule *c)
{
	s->first = (double)c->cycle_first_step_size;
	s->second = c->cycle_second_step_size < 0 ? s->first : (double)c->cycle_second_step_size;
	s->first_stairs = (double)c->cycle_first_stair_count;
	s->second_stairs = c->cycle_second_stair_count < 0 ? s->first_stairs :
			   (double)c->cycle_second_stair_count;
	s->decay_size = (double)c->decay_step_size;
	s->decay_lr = c->decay_lr_rate;
	s->decay_mom = c->decay_mom_rate;
	s->momentum = c->cycle_momentum;
}

static void take_group(struct en_sched *s, uint32_t g, const struct en_schedule *c)
{
	switch (s->kind) {
	case EN_SCHED_ONE_CYCLE:
		s->lo[g] = c->cycle_min_lr;
		s->hi[g] = c->cycle_max_lr;
		s->mom_lo[g] = c->cycle_min_mom;
		s->mom_hi[g] = c->cycle_max_mom;
		break;
	case EN_SCHED_RANGE_TEST:
		s->lo[g] = c->range_min_lr;
		break;
	default:
		s->lo[g] = c->warmup_min_lr;
		s->hi[g] = isnan(c->warmup_max_lr) ? s->base[g] : c->warmup_max_lr;
	}
}

int en_sched_init_config(struct en_sched *s, const struct en_schedule *schedule,
			 enum en_ds_version version, const double *lr, uint32_t ngroups,
			 struct ckpt_err *err)
{
	const unsigned minor = version == EN_DS_0_16 ? 16 : version == EN_DS_0_18 ? 18 : 19;
	struct en_sched now;
	int rc = en_sched_begin(&now, kind_of(schedule->type), minor, lr, ngroups, err);

	if (rc)
		return rc;
	now.warmup = fmax(2, (double)schedule->warmup_num_steps);
	now.total = (double)schedule->total_num_steps;
	now.linear = schedule->warmup_linear;
	now.min_ratio = schedule->warmup_min_ratio;
	now.end_ratio = schedule->cos_min_ratio;
	now.step_size = (double)schedule->range_step_size;
	now.step_rate = schedule->range_step_rate;
	now.staircase = schedule->range_staircase;
	take_cycle(&now, schedule);
	for (uint32_t g = 0; g < ngroups; g++)
		take_group(&now, g, schedule);
	rc = en_sched_check(&now, err);
	if (!rc)
		*s = now;
	return rc;
}
