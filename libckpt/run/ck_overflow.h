/* ck_overflow.h -- finite values that became infinite in a cast: how many, and where first. */
#ifndef CK_OVERFLOW_H
#define CK_OVERFLOW_H

#include "libckpt/run/ck_run.h"

struct ck_overflow {
	uint64_t n;
	const struct ck_seg *first;	/* of the plan; of no meaning without any */
};

void ck_overflow_add(struct ck_overflow *all, const struct ck_overflow *more);
/* A unit of the plan is made by casts: what an earlier process lost in it, only it knew. */
bool ck_overflow_casts(const struct ck_run_job *job, const struct ck_unit *u);
/* The same of any unit. */
bool ck_overflow_any_casts(const struct ck_run_job *job);
/* CKPT_E_MISMATCH if there are any, as the finding VALUES_INFINITE says. */
int ck_overflow_check(const struct ck_run_job *job, const struct ck_overflow *over,
		      struct ckpt_err *err);

#endif
