/*
 * ck_run_proof.h -- what of a run's sources is compared with the sums that they state; for jobs
 * with 'findings'.
 */
#ifndef CK_RUN_PROOF_H
#define CK_RUN_PROOF_H

#include "libckpt/run/ck_run.h"
#include "libckpt/sums/ck_proof.h"
#include "libckpt/sums/ck_share.h"

struct ck_run_proof {
	struct ck_proof proof, own;	/* of the source, of the plan's own index */
	struct ck_share share;		/* of a run in parts */
	struct ck_claims claims, own_claims;
};

/* Before anything is read. */
int ck_run_proof_begin(const struct ck_run_job *job, struct ck_run_proof *all,
		       struct ckpt_err *err);
/* All is read.  'resumed': an earlier process had read some. */
int ck_run_proof_end(const struct ck_run_job *job, struct ck_run_proof *all, bool resumed,
		     uint32_t threads, struct ckpt_err *err);
void ck_run_proof_release(struct ck_run_proof *all);

#endif
