/*
 * en_sched.c -- the rates; see en_sched.h.
 *
 * Operations are in the order in which DeepSpeed (runtime/lr_schedules.py, releases 0.16.9,
 * 0.18.9 and 0.19.8) and transformers (optimization.py, 5.17.0) do them, so that results differ by
 * no more than the C library's log and cos from theirs.  DeepSpeed counts i = done - 1: its
 * scheduler steps after the update, so updates 1 and 2 both run at the beginning of the warm-up.
 */
#include "engine/sched/en_sched.h"

#include <math.h>
#include <string.h>

#include "engine/sched/en_sched_priv.h"
#include "libckpt/base/ck_err.h"

#define PI 3.141592653589793

const char *en_sched_name(enum en_sched_kind kind)
{
	static const char *const name[] = {
		[EN_SCHED_NONE] = "none",
		[EN_SCHED_WARMUP] = "WarmupLR",
		[EN_SCHED_WARMUP_DECAY] = "WarmupDecayLR",
		[EN_SCHED_WARMUP_COSINE] = "WarmupCosineLR",
		[EN_SCHED_RANGE_TEST] = "LRRangeTest",
		[EN_SCHED_ONE_CYCLE] = "OneCycle",
		[EN_SCHED_CONSTANT] = "constant",
		[EN_SCHED_CONSTANT_WARMUP] = "constant_with_warmup",
		[EN_SCHED_LINEAR] = "linear",
		[EN_SCHED_COSINE] = "cosine",
		[EN_SCHED_POLYNOMIAL] = "polynomial",
		[EN_SCHED_INVERSE_SQRT] = "inverse_sqrt",
		[EN_SCHED_RESTARTS] = "cosine_with_restarts",
		[EN_SCHED_MIN_LR] = "cosine_with_min_lr",
		[EN_SCHED_WSD] = "warmup_stable_decay",
		[EN_SCHED_PLATEAU] = "reduce_lr_on_plateau",
	};

	return (size_t)kind < CK_ARRAY_LEN(name) && name[kind] ? name[kind] : "?";
}

bool en_sched_is_lambda(enum en_sched_kind kind)
{
	return kind >= EN_SCHED_CONSTANT && kind != EN_SCHED_PLATEAU;
}

/* ---- DeepSpeed ---- */

/* 0 to 1 over the warm-up: i is from 0 and below s->warmup. */
static double warm(const struct en_sched *s, double i)
{
	return s->linear ? i / s->warmup : 1.0 / log(s->warmup) * log(i + 1);
}

static double warmup_lr(const struct en_sched *s, uint32_t g, double i)
{
	double gamma = 1;

	if (i < 0)
		return s->lo[g];
	if (i < s->warmup)
		gamma = warm(s, i);
	else if (s->kind == EN_SCHED_WARMUP_DECAY)
		gamma = fmax(0, (s->total - i) / fmax(1, s->total - s->warmup));
	return s->lo[g] + (s->hi[g] - s->lo[g]) * gamma;
}

/* Up to 0.18 nothing ends the cosine: the rate rises again after the last update. */
static double cosine_ratio(const struct en_sched *s, double i)
{
	double x;

	if (i < 0)
		return 0;
	if (i < s->warmup)
		return s->min_ratio + warm(s, i) * (1 - s->min_ratio);
	x = i - s->warmup + 1;
	if (s->ds_minor < 19)
		x = x / (s->total - s->warmup);
	else
		x = fmin(1, x / fmax(1, s->total - s->warmup));
	return fmax(0, s->end_ratio + (1 - s->end_ratio) * ((1 + cos(PI * x)) / 2));
}

static double range_lr(const struct en_sched *s, uint32_t g, double i)
{
	const double y = (i + 1) / s->step_size;

	if (i < 0)
		return s->lo[g];
	return s->lo[g] * (1 + s->step_rate * (s->staircase ? floor(y) : y));
}

/* How far up the cycle is, 0 to 1, in its update b (from 1). */
static double cycle_factor(const struct en_sched *s, double b)
{
	const double whole = s->first + s->second, ratio = s->first / whole;
	const double x = 1.0 + b / whole - floor(1 + b / whole);
	const double stairs = x <= ratio ? s->first_stairs : s->second_stairs;
	double at;

	if (!(stairs > 0) || s->ds_minor < 19)
		return x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
	/* Of the whole updates, not of x, which may lie just below a stair. */
	at = fmod(b, whole);
	return floor(at <= s->first ? at * stairs / s->first
				    : (whole - at) * stairs / s->second) / stairs;
}

/* Intervals of decay after the cycle, of which i is an update; 0 = it does not decay. */
static double decay_intervals(const struct en_sched *s, double i)
{
	return s->decay_size == 0 ? 0 : (i - (s->first + s->second) + 1) / s->decay_size;
}

static double cycle_lr(const struct en_sched *s, uint32_t g, double i)
{
	if (i < 0)
		return s->lo[g];
	if (i < s->first + s->second)
		return s->lo[g] + (s->hi[g] - s->lo[g]) * cycle_factor(s, i + 1);
	return s->lo[g] / (1 + s->decay_lr * decay_intervals(s, i));
}

static double cycle_beta1(const struct en_sched *s, uint32_t g, double i)
{
	if (i < 0)
		return s->mom_lo[g];
	if (i < s->first + s->second)
		return s->mom_hi[g] - (s->mom_hi[g] - s->mom_lo[g]) * cycle_factor(s, i + 1);
	return s->mom_hi[g] * (1 + s->decay_mom * decay_intervals(s, i));
}

/* ---- transformers ---- */

static double polynomial(const struct en_sched *s, double k)
{
	double rest;

	if (k > s->total)
		return s->lr_end / s->init_lr;
	rest = 1 - (k - s->warmup) / (s->total - s->warmup);
	return ((s->init_lr - s->lr_end) * pow(rest, s->power) + s->lr_end) / s->init_lr;
}

static double restarts(const struct en_sched *s, double progress)
{
	if (progress >= 1)
		return 0;
	return fmax(0, 0.5 * (1 + cos(PI * fmod(s->cycles * progress, 1))));
}

/* From 0 to 1 over the warm-up. */
static double rise(const struct en_sched *s, double x)
{
	if (s->warm_shape == EN_SHAPE_COSINE)
		return 0.5 * (1.0 - cos(PI * x));
	return s->warm_shape == EN_SHAPE_SQRT ? 1.0 - sqrt(1.0 - x) : x;
}

static double fall(const struct en_sched *s, double x)
{
	if (s->fall_shape == EN_SHAPE_COSINE)
		return 0.5 * (1.0 + cos(PI * s->cycles * 2.0 * x));
	return s->fall_shape == EN_SHAPE_SQRT ? 1.0 - sqrt(x) : 1.0 - x;
}

static double wsd(const struct en_sched *s, double k)
{
	double part;

	if (k < s->warmup)
		part = rise(s, k / fmax(1, s->warmup));
	else if (k < s->warmup + s->stable)
		return 1;
	else if (k < s->warmup + s->stable + s->falling)
		part = fall(s, (k - s->warmup - s->stable) / fmax(1, s->falling));
	else
		return s->end_ratio;
	return fmax(0, part * (1.0 - s->end_ratio) + s->end_ratio);
}

/* What the rate of the optimizer is multiplied with after k updates. */
static double factor(const struct en_sched *s, double k)
{
	const double span = fmax(1, s->total - s->warmup), progress = (k - s->warmup) / span;

	if (s->kind == EN_SCHED_CONSTANT)
		return 1;
	if (s->kind == EN_SCHED_WSD)
		return wsd(s, k);
	if (k < s->warmup)
		return k / fmax(1, s->warmup);
	switch (s->kind) {
	case EN_SCHED_LINEAR:
		return fmax(0, (s->total - k) / span);
	case EN_SCHED_COSINE:
	case EN_SCHED_MIN_LR:
		return fmax(0, 0.5 * (1 + cos(PI * s->cycles * 2 * progress)) * (1 - s->end_ratio) +
			       s->end_ratio);
	case EN_SCHED_POLYNOMIAL:
		return polynomial(s, k);
	case EN_SCHED_INVERSE_SQRT:
		return 1 / sqrt((k + (s->timescale - s->warmup)) / s->timescale);
	case EN_SCHED_RESTARTS:
		return restarts(s, progress);
	default:
		return 1;
	}
}

/* ---- the schedule ---- */

double en_sched_lr_at(const struct en_sched *s, uint32_t group, int64_t done)
{
	const double i = (double)done - 1;

	switch (s->kind) {
	case EN_SCHED_NONE:
		return s->base[group];
	case EN_SCHED_WARMUP:
	case EN_SCHED_WARMUP_DECAY:
		return warmup_lr(s, group, i);
	case EN_SCHED_WARMUP_COSINE:
		return s->base[group] * cosine_ratio(s, i);
	case EN_SCHED_RANGE_TEST:
		return range_lr(s, group, i);
	case EN_SCHED_ONE_CYCLE:
		return cycle_lr(s, group, i);
	case EN_SCHED_PLATEAU:
		return s->now[group];
	default:
		return s->base[group] * factor(s, (double)done);
	}
}

double en_sched_lr(const struct en_sched *s, uint32_t group)
{
	return en_sched_lr_at(s, group, s->done);
}

static bool betas_at(const struct en_sched *s, uint32_t group, int64_t done, double *beta1_out,
		     double *beta2_out)
{
	if (s->kind != EN_SCHED_ONE_CYCLE || !s->momentum)
		return false;
	*beta1_out = cycle_beta1(s, group, (double)done - 1);
	*beta2_out = 0.99;	/* theirs, whatever the optimizer was made with */
	return true;
}

bool en_sched_betas(const struct en_sched *s, uint32_t group, double *beta1_out, double *beta2_out)
{
	return betas_at(s, group, s->done, beta1_out, beta2_out);
}

void en_sched_advance(struct en_sched *s)
{
	s->done += s->kind != EN_SCHED_PLATEAU;
}

int en_sched_begin(struct en_sched *s, enum en_sched_kind kind, unsigned ds_minor,
		   const double *lr, uint32_t ngroups, struct ckpt_err *err)
{
	if (!ngroups || ngroups > EN_SCHED_GROUPS)
		return ck_fail(err, CKPT_E_USAGE, EN_SCHED_WHERE, CKPT_NO_OFFSET,
			       "%u param groups; a schedule supports 1 to %d", ngroups,
			       EN_SCHED_GROUPS);
	if (ds_minor != 16 && ds_minor != 18 && ds_minor != 19)
		return ck_fail(err, CKPT_E_USAGE, EN_SCHED_WHERE, CKPT_NO_OFFSET,
			       "unknown rules: DeepSpeed 0.%u; expected 0.16, 0.18 or 0.19",
			       ds_minor);
	memset(s, 0, sizeof(*s));
	s->kind = kind;
	s->ds_minor = ds_minor;
	s->ngroups = ngroups;
	for (uint32_t g = 0; g < ngroups; g++) {
		if (!isfinite(lr[g]) || lr[g] < 0)
			return ck_fail(err, CKPT_E_USAGE, EN_SCHED_WHERE, CKPT_NO_OFFSET,
				       "learning rate of param group %u is %g; must be 0 or more",
				       g, lr[g]);
		s->base[g] = lr[g];
	}
	s->power = 1;
	s->cycles = 1;
	s->timescale = 1;
	s->step_size = 1;
	s->first = 1;
	return 0;
}
