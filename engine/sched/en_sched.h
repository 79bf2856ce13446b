/*
 * en_sched.h -- learning rates: DeepSpeed's schedulers and those of transformers, to the bit where
 * the C library's log and cos agree with theirs.
 *
 * A schedule is a pure function of 'done', the number of optimizer updates that were not skipped;
 * EN_SCHED_PLATEAU alone follows the evaluations (en_sched_evaluated()).
 * Calling sequence:
 *
 *	en_sched_init_deepspeed(&s, "WarmupLR", "{\"warmup_num_steps\": 10}", 19, lr, 2, &err);
 *	for each step:
 *		lr = en_sched_lr(&s, group);		... the rate of this update ...
 *		if (!overflow)
 *			en_sched_advance(&s);		... as DeepSpeed: not after a skipped update
 *	en_sched_state(&s, &buf, &err);			... into the checkpoint
 *
 * Formulas, defaults and what differs between versions: docs/ztrain/schedules.md.
 * A schedule holds no memory; copies are independent.  Reading calls may run at the same time.
 */
#ifndef EN_SCHED_H
#define EN_SCHED_H

#include <ckpt_value.h>

#include "engine/config/keys/en_settings.h"
#include "libckpt/base/ck_buf.h"

/* Param groups of a schedule; an engine makes one or two. */
#define EN_SCHED_GROUPS 16

enum en_sched_kind {
	EN_SCHED_NONE = 1,	/* the optimizer's own rate, constant */
	/* DeepSpeed's */
	EN_SCHED_WARMUP, EN_SCHED_WARMUP_DECAY, EN_SCHED_WARMUP_COSINE, EN_SCHED_RANGE_TEST,
	EN_SCHED_ONE_CYCLE,
	/* transformers' (torch.optim.lr_scheduler.LambdaLR) */
	EN_SCHED_CONSTANT, EN_SCHED_CONSTANT_WARMUP, EN_SCHED_LINEAR, EN_SCHED_COSINE,
	EN_SCHED_POLYNOMIAL, EN_SCHED_INVERSE_SQRT, EN_SCHED_RESTARTS, EN_SCHED_MIN_LR,
	EN_SCHED_WSD,
	/* transformers' too (torch.optim.lr_scheduler.ReduceLROnPlateau): 'done' is evaluations */
	EN_SCHED_PLATEAU,
};

enum en_sched_shape { EN_SHAPE_LINEAR, EN_SHAPE_COSINE, EN_SHAPE_SQRT };

struct en_sched {
	enum en_sched_kind kind;
	unsigned ds_minor;		/* whose rules: 16, 18 or 19 for DeepSpeed 0.16, ... */
	uint32_t ngroups;
	int64_t done;			/* updates that were not skipped */
	double base[EN_SCHED_GROUPS];	/* rate of the optimizer when the schedule was made */
	double lo[EN_SCHED_GROUPS];	/* warm-up minimum, range test, cycle minimum */
	double hi[EN_SCHED_GROUPS];	/* warm-up maximum, cycle maximum */
	double mom_lo[EN_SCHED_GROUPS], mom_hi[EN_SCHED_GROUPS];
	double init_lr;		/* transformers: the optimizer's default rate */
	double warmup, total;	/* updates */
	double min_ratio;	/* of the warm-up */
	double end_ratio;	/* of the cosine; of MIN_LR */
	double lr_end, power, cycles, timescale;
	double step_size, step_rate;			/* range test */
	double first, second, first_stairs, second_stairs;	/* cycle, in updates */
	double decay_size, decay_lr, decay_mom;
	double stable, falling;	/* WSD: updates; 'stable' -1: what the others leave of 'total' */
	double warm_shape, fall_shape;	/* enum en_sched_shape */
	/* PLATEAU, in the words of torch */
	double factor, patience, threshold, cooldown, eps;
	double is_max, is_absolute;	/* of mode, of threshold_mode */
	double best;		/* INFINITY (or -INFINITY) = none yet */
	int64_t bad, cooling;
	double now[EN_SCHED_GROUPS];	/* the rate; 'lo' is the smallest */
	bool linear;		/* warm-up; else logarithmic */
	bool staircase, momentum;
};

/* "WarmupLR", "cosine"; "none".  Static string, never freed. */
const char *en_sched_name(enum en_sched_kind kind);
/* True for those of transformers that are a LambdaLR. */
bool en_sched_is_lambda(enum en_sched_kind kind);

/*
 * A scheduler of DeepSpeed.  'params' is the JSON object "params" of its configuration (NULL = {});
 * rates and momenta in it are a number, or a list with one for each group.  'ds_minor' is 16, 18 or
 * 19: the version whose rules hold.  lr[group] is what the optimizer was made with.
 *
 *	CKPT_E_USAGE        a type or key that is none, a value missing or out of range, a list of
 *	                    another length, more than EN_SCHED_GROUPS groups
 *	CKPT_E_UNSUPPORTED  last_batch_iteration in the parameters
 *	CKPT_E_CORRUPT, CKPT_E_LIMIT, CKPT_E_NOMEM  of the JSON
 */
int en_sched_init_deepspeed(struct en_sched *s, const char *type, const char *params,
			    unsigned ds_minor, const double *lr, uint32_t ngroups,
			    struct ckpt_err *err);

/* The same of settings that engine/config has read; EN_SCHEDULER_NONE becomes EN_SCHED_NONE. */
int en_sched_init_config(struct en_sched *s, const struct en_schedule *schedule,
			 enum en_ds_version version, const double *lr, uint32_t ngroups,
			 struct ckpt_err *err);

/*
 * A scheduler of transformers by its lr_scheduler_type.  'kwargs' is the JSON object
 * lr_scheduler_kwargs (NULL = {}); 'warmup_steps' and 'total' are updates; 'init_lr' is the
 * optimizer's default rate, which polynomial and cosine_with_min_lr refer to.  Errors as above, and
 * CKPT_E_UNSUPPORTED for a type that transformers has and this engine does not.
 */
int en_sched_init_transformers(struct en_sched *s, const char *type, const char *kwargs,
			       int64_t warmup_steps, int64_t total, double init_lr,
			       const double *lr, uint32_t ngroups, struct ckpt_err *err);

/* The rate of update 'done' + 1 (from 0) of a group below ngroups; the one of now. */
double en_sched_lr_at(const struct en_sched *s, uint32_t group, int64_t done);
double en_sched_lr(const struct en_sched *s, uint32_t group);
/* True and '*beta1_out', '*beta2_out' if the schedule sets the betas too (OneCycle). */
bool en_sched_betas(const struct en_sched *s, uint32_t group, double *beta1_out,
		    double *beta2_out);
/* After an update that was not skipped. */
void en_sched_advance(struct en_sched *s);

/* After an evaluation: only EN_SCHED_PLATEAU changes, and is true if it lowers a rate. */
bool en_sched_evaluated(struct en_sched *s, double loss);
/* Another rate for the optimizer than the one the schedule was made with, or resumed with. */
void en_sched_set_base(struct en_sched *s, uint32_t group, double lr);

/*
 * Adds the state as the object that DeepSpeed's checkpoints hold as lr_scheduler:
 * {"last_batch_iteration": done - 1}, or the state of a LambdaLR or a ReduceLROnPlateau.  Of
 * EN_SCHED_NONE: nothing is added (DeepSpeed keeps None).
 */
int en_sched_state(const struct en_sched *s, struct ck_buf *buf, struct ckpt_err *err);

/*
 * Continue from a state; any form is accepted, whichever the schedule is, but of evaluations and of
 * updates neither continues the other: the schedule then begins.  As torch does it,
 * base_lrs of a LambdaLR's state replace the rates the optimizer was made with now.  's' is as it
 * was on failure:
 *
 *	CKPT_E_MISMATCH  no counter in it, two counters that disagree, other groups
 *	CKPT_E_CORRUPT   no JSON object, a counter below -1
 *	CKPT_E_LIMIT, CKPT_E_NOMEM
 */
int en_sched_load(struct en_sched *s, const char *text, uint64_t len, struct ckpt_err *err);
/*
 * The same from the values of an open step, whose "lr_scheduler" may be absent or None:
 * '*found_out' is then false and 's' as it was.
 */
int en_sched_load_values(struct en_sched *s, struct ckpt_values *values, bool *found_out,
			 struct ckpt_err *err);

#endif
