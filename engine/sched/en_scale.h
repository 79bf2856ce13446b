/*
 * en_scale.h -- the loss scale of fp16: fixed, or as DeepSpeed's DynamicLossScaler moves it.
 *
 * The loss is multiplied with 'scale' before backward.  The scale is updated after the overflow of
 * the whole step is known and *before* gradients are divided by it, and they are divided by the new
 * one: as in DeepSpeed, the update of a step at which the scale grows sees gradients half as
 * large.  On an overflow nothing else of the step happens: weights, moments, Adam's count and
 * the schedule do not advance; steps and samples do.
 *
 * Pure; no memory.  docs/ztrain/schedules.md, section "Loss scale".
 */
#ifndef EN_SCALE_H
#define EN_SCALE_H

#include <ckpt_save.h>
#include <ckpt_value.h>

#include "engine/config/keys/en_settings.h"
#include "libckpt/base/ck_base.h"

struct en_scale {
	bool dynamic;
	bool consecutive;	/* a good step refills the hysteresis */
	unsigned ds_minor;	/* 16: a window earlier by one step */
	double scale, min_scale;
	int64_t iter, last_overflow;	/* steps so far; the one that overflowed last, -1 = none */
	int64_t window, hysteresis, left;	/* left: overflows until it is halved */
};

/* A scale that stays.  CKPT_E_USAGE unless it is a finite number above 0. */
int en_scale_init_static(struct en_scale *s, double scale, struct ckpt_err *err);

struct en_scale_opts {
	double power;		/* the scale begins at 2^power */
	double min_scale;
	int64_t window, hysteresis;	/* at least 1 */
	bool consecutive;
	unsigned ds_minor;	/* 16, 18 or 19 */
};

/* CKPT_E_USAGE for a value out of range. */
int en_scale_init_dynamic(struct en_scale *s, const struct en_scale_opts *opts,
			  struct ckpt_err *err);
/* Of fp16 as the settings say; of bf16 and fp32 the fixed scale 1. */
int en_scale_init_config(struct en_scale *s, const struct en_settings *set,
			 enum en_ds_version version, struct ckpt_err *err);

/*
 * A step is over.  CKPT_E_LIMIT if it overflowed at the smallest scale: the run cannot
 * continue, and 's' is unchanged.  A fixed scale never fails here.
 */
int en_scale_update(struct en_scale *s, bool overflow, struct ckpt_err *err);

/* As the save session takes it. */
void en_scale_save(const struct en_scale *s, struct ckpt_save_scaler *out);

/*
 * Continue from a checkpoint.  DeepSpeed saves the scaler as an object and continues with it,
 * settings and all; so what the file has replaces the settings of this run, but for what a file
 * does not hold: consecutive (in struct ckpt_save_scaler) and the version.  A checkpoint with a
 * scaler of the other sort (fixed, dynamic) is CKPT_E_MISMATCH, values out of range are
 * CKPT_E_CORRUPT; 's' is then as it was.
 */
int en_scale_load(struct en_scale *s, const struct ckpt_save_scaler *from, struct ckpt_err *err);
/* The same from an open step; without a scaler in it '*found_out' is false. */
int en_scale_load_values(struct en_scale *s, struct ckpt_values *values, bool *found_out,
			 struct ckpt_err *err);

#endif
