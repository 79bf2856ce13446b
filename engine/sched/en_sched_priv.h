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

/* ---- en_plateau.c ---- */

/* What a state of ReduceLROnPlateau says; the settings of the run hold, as of all schedules. */
struct en_plateau_said {
	bool is_plateau;	/* the state is of one */
	int64_t bad, cooling;
	bool has_best;
	double best;
	uint32_t nlast;		/* 0 = none */
	double last[EN_SCHED_GROUPS];
};

/* Nothing is evaluated yet. */
void en_plateau_begin(struct en_sched *s);
int en_plateau_check(const struct en_sched *s, struct ckpt_err *err);
int en_plateau_state(const struct en_sched *s, struct ck_buf *buf, struct ckpt_err *err);
void en_plateau_take(struct en_sched *s, const struct en_plateau_said *said);

#endif
