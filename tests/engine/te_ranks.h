/* Ranks that are threads of one process, with a table of collectives of their own: for tests. */
#ifndef TE_RANKS_H
#define TE_RANKS_H

#include "engine/comm/en_comm.h"

/* Runs 'fn' on 'n' threads; 'comm' is each one's table.  A failure of one ends the test program. */
void te_ranks(uint32_t n, int (*fn)(struct en_comm *comm, void *arg, struct ckpt_err *err),
	      void *arg);
/*
 * The same where a rank may fail: the others, which wait for it, then fail with CKPT_E_CANCELED.
 * The first failure that is none of these, and whose it is.
 */
int te_ranks_try(uint32_t n, int (*fn)(struct en_comm *comm, void *arg, struct ckpt_err *err),
		 void *arg, uint32_t *rank_out, struct ckpt_err *err);

#endif
