/*
 * ck_run_check.h -- what of a run's sources is compared with the sums that they state; for jobs
 * with 'findings'.
 */
#ifndef CK_RUN_CHECK_H
#define CK_RUN_CHECK_H

#include "libckpt/run/ck_run.h"
#include "libckpt/sums/ck_source_check.h"
#include "libckpt/sums/ck_part_sums.h"

struct ck_run_check {
	struct ck_source_check proof, own;	/* of the source, of the plan's own index */
	struct ck_part_sums share;		/* of a run in parts */
	struct ck_claims claims, own_claims;
};

/* Before anything is read. */
int ck_run_check_begin(const struct ck_run_job *job, struct ck_run_check *all,
		       struct ckpt_err *err);
/* All is read.  'resumed': an earlier process had read some. */
int ck_run_check_end(const struct ck_run_job *job, struct ck_run_check *all, bool resumed,
		     uint32_t threads, struct ckpt_err *err);
void ck_run_check_release(struct ck_run_check *all);

#endif
