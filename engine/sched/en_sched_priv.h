/*
 * en_sched_priv.h -- between the files of a schedule.
 */
#ifndef EN_SCHED_PRIV_H
#define EN_SCHED_PRIV_H

#include "engine/sched/en_sched.h"

/* A failure without a place in a file. */
#define EN_SCHED_WHERE "scheduler"

/* Zero '*s', take rates and groups, and set what is absent in every configuration. */
int en_sched_begin(struct en_sched *s, enum en_sched_kind kind, unsigned ds_minor,
		   const double *lr, uint32_t ngroups, struct ckpt_err *err);
/* The values of a schedule, wherever they come from: CKPT_E_USAGE for what cannot be computed. */
int en_sched_check(const struct en_sched *s, struct ckpt_err *err);

#endif
