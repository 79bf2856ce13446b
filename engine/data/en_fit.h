/*
 * en_fit.h -- whole documents into rows of one length: which row each goes to.
 *
 * First fit in the order of the documents, among the EN_FIT_OPEN rows that were begun last.  The
 * result depends on the lengths alone.
 */
#ifndef EN_FIT_H
#define EN_FIT_H

#include "libckpt/base/ck_base.h"

#define EN_FIT_OPEN 64u

struct en_fit {
	uint64_t rows;
	uint64_t short_rows;	/* those that are not full */
	uint64_t *first;	/* [rows + 1]: row r has member[first[r]] up to first[r + 1] */
	uint64_t *member;	/* documents, in rising order within a row */
};

/*
 * 'n' documents of length[i] tokens; longer ones count as 'tokens', those of a row.
 * CKPT_E_NOMEM.
 */
int en_fit_init(struct en_fit *fit, const uint64_t *length, uint64_t n, uint64_t tokens,
		struct ckpt_err *err);
void en_fit_release(struct en_fit *fit);

#endif
