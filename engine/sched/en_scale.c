/*
 * en_scale.c -- see en_scale.h.  Facts: deepspeed/runtime/fp16/loss_scaler.py of 0.16.9 and 0.19.8.
 */
#include "engine/sched/en_scale.h"

#include <math.h>
#include <string.h>

#include "libckpt/base/ck_err.h"

#define WHERE "loss scale"

static int refuse(struct ckpt_err *err, enum ckpt_code code, const char *what, double v,
		  const char *want)
{
	return ck_fail(err, code, WHERE, CKPT_NO_OFFSET, "%s is %g; expected %s", what, v, want);
}

static bool is_positive(double v)
{
	return isfinite(v) && v > 0;
}

static int check(const struct en_scale *s, enum ckpt_code code, struct ckpt_err *err)
{
	if (!is_positive(s->scale))
		return refuse(err, code, "the scale", s->scale, "a number above 0");
	if (!s->dynamic)
		return 0;
	if (!isfinite(s->min_scale) || s->min_scale < 0)
		return refuse(err, code, "the smallest scale", s->min_scale,
			      "a number of 0 or more");
	if (s->window < 1)
		return refuse(err, code, "the window", (double)s->window, "1 step or more");
	if (s->hysteresis < 1 || s->left < 1)
		return refuse(err, code, "the hysteresis",
			      (double)(s->left < s->hysteresis ? s->left : s->hysteresis),
			      "1 step or more");
	if (s->iter < 0 || s->last_overflow < -1 || s->last_overflow >= s->iter + 1 ||
	    s->iter > INT64_MAX / 2)
		return ck_fail(err, code, WHERE, CKPT_NO_OFFSET,
			       "invalid state: %lld steps, last overflow in step %lld",
			       (long long)s->iter, (long long)s->last_overflow);
	return 0;
}

int en_scale_init_static(struct en_scale *s, double scale, struct ckpt_err *err)
{
	const struct en_scale now = {
		.ds_minor = 19, .scale = scale, .last_overflow = -1, .window = 1000,
		.hysteresis = 1, .left = 1,
	};
	const int rc = check(&now, CKPT_E_USAGE, err);

	if (!rc)
		*s = now;
	return rc;
}

int en_scale_init_dynamic(struct en_scale *s, const struct en_scale_opts *opts,
			  struct ckpt_err *err)
{
	const struct en_scale now = {
		.dynamic = true,
		.consecutive = opts->consecutive,
		.ds_minor = opts->ds_minor,
		.scale = pow(2, opts->power),
		.min_scale = opts->min_scale,
		.last_overflow = -1,
		.window = opts->window,
		.hysteresis = opts->hysteresis,
		.left = opts->hysteresis,
	};
	const int rc = check(&now, CKPT_E_USAGE, err);

	if (!rc)
		*s = now;
	return rc;
}

int en_scale_init_config(struct en_scale *s, const struct en_settings *set,
			 enum en_ds_version version, struct ckpt_err *err)
{
	const struct en_scale_opts opts = {
		.power = (double)set->initial_scale_power,
		.min_scale = (double)set->min_loss_scale,
		.window = set->loss_scale_window,
		.hysteresis = set->hysteresis,
		.consecutive = set->consecutive_hysteresis,
		.ds_minor = version == EN_DS_0_16 ? 16 : version == EN_DS_0_18 ? 18 : 19,
	};

	if (set->precision != EN_FP16)
		return en_scale_init_static(s, 1, err);
	if (set->loss_scale != 0)
		return en_scale_init_static(s, set->loss_scale, err);
	return en_scale_init_dynamic(s, &opts, err);
}

static int lower(struct en_scale *s, struct ckpt_err *err)
{
	if (s->hysteresis != 1 && s->left != 1) {
		s->left--;
		return 0;
	}
	if (s->scale == s->min_scale)
		return ck_fail(err, CKPT_E_LIMIT, WHERE, CKPT_NO_OFFSET,
			       "gradients overflow at the smallest loss scale, %g: the run has "
			       "diverged, or the learning rate is too high for fp16",
			       s->scale);
	s->scale = fmax(s->scale / 2, s->min_scale);
	return 0;
}

static void raise_after_window(struct en_scale *s)
{
	const int64_t good = s->iter - s->last_overflow - (s->ds_minor < 18 ? 0 : 1);

	if (s->consecutive)
		s->left = s->hysteresis;
	if (good <= 0 || good % s->window)
		return;
	s->left = s->hysteresis;
	s->scale *= 2;
}

int en_scale_update(struct en_scale *s, bool overflow, struct ckpt_err *err)
{
	int rc = 0;

	if (!s->dynamic)
		return 0;
	if (overflow) {
		rc = lower(s, err);
		if (rc)
			return rc;
		s->last_overflow = s->iter;
	} else {
		raise_after_window(s);
	}
	s->iter++;
	return 0;
}

void en_scale_save(const struct en_scale *s, struct ckpt_save_scaler *out)
{
	memset(out, 0, sizeof(*out));
	out->dynamic = s->dynamic;
	out->scale = s->scale;
	out->min_scale = s->min_scale;
	out->iter = s->iter;
	out->last_overflow = s->last_overflow;
	out->window = s->window;
	out->hysteresis = s->hysteresis;
	out->hysteresis_left = s->left;
}

int en_scale_load(struct en_scale *s, const struct ckpt_save_scaler *from, struct ckpt_err *err)
{
	struct en_scale now = *s;
	int rc;

	if (!!from->dynamic != s->dynamic)
		return ck_fail(err, CKPT_E_MISMATCH, WHERE, CKPT_NO_OFFSET,
			       "the checkpoint has a %s loss scale (%g), this run a %s one (%g)",
			       from->dynamic ? "dynamic" : "fixed", from->scale,
			       s->dynamic ? "dynamic" : "fixed", s->scale);
	now.scale = from->scale;
	if (now.dynamic) {
		now.min_scale = from->min_scale;
		now.iter = from->iter;
		now.last_overflow = from->last_overflow;
		now.window = from->window;
		now.hysteresis = from->hysteresis;
		now.left = from->hysteresis_left;
	}
	rc = check(&now, CKPT_E_CORRUPT, err);
	if (!rc)
		*s = now;
	return rc;
}

/* ---- from a checkpoint ---- */

/* What is missing (other versions, stage 0) is unchanged. */
static int want_int(struct ckpt_values *values, const char *path, int64_t *io, struct ckpt_err *err)
{
	struct ckpt_err local = { 0 };
	int64_t v;
	int rc = ckpt_value_int(values, path, &v, &local);

	if (!rc)
		*io = v;
	else if (rc != -CKPT_E_NOTFOUND && err && !err->code)
		*err = local;
	return rc == -CKPT_E_NOTFOUND ? 0 : rc;
}

static int want_float(struct ckpt_values *values, const char *path, double *io,
		      struct ckpt_err *err)
{
	struct ckpt_err local = { 0 };
	double v;
	int rc = ckpt_value_float(values, path, &v, &local);

	if (!rc)
		*io = v;
	else if (rc != -CKPT_E_NOTFOUND && err && !err->code)
		*err = local;
	return rc == -CKPT_E_NOTFOUND ? 0 : rc;
}

int en_scale_load_values(struct en_scale *s, struct ckpt_values *values, bool *found_out,
			 struct ckpt_err *err)
{
	struct ckpt_save_scaler from;
	struct ckpt_value v;
	bool consecutive;
	int rc;

	en_scale_save(s, &from);
	if (ckpt_value_get(values, "loss_scaler.cur_scale", &v, NULL)) {
		*found_out = false;
		return 0;
	}
	/* A fixed scaler has no last_overflow_iter. */
	from.dynamic = !ckpt_value_get(values, "loss_scaler.last_overflow_iter", &v, NULL);
	consecutive = s->consecutive;
	rc = want_float(values, "loss_scaler.cur_scale", &from.scale, err);
	if (!rc)
		rc = want_float(values, "loss_scaler.min_scale", &from.min_scale, err);
	if (!rc)
		rc = want_int(values, "loss_scaler.cur_iter", &from.iter, err);
	if (!rc)
		rc = want_int(values, "loss_scaler.last_overflow_iter", &from.last_overflow, err);
	if (!rc)
		rc = want_int(values, "loss_scaler.scale_window", &from.window, err);
	if (!rc)
		rc = want_int(values, "loss_scaler.delayed_shift", &from.hysteresis, err);
	if (!rc)
		rc = want_int(values, "loss_scaler.cur_hysteresis", &from.hysteresis_left, err);
	if (!rc && !ckpt_value_get(values, "loss_scaler.consecutive_hysteresis", &v, NULL))
		consecutive = v.i != 0;
	if (!rc)
		rc = en_scale_load(s, &from, err);
	if (rc)
		return rc;
	s->consecutive = consecutive;
	*found_out = true;
	return 0;
}
