/* Ranks that are threads of one process, with a table of collectives of their own: for tests. */
#ifndef TE_RANKS_H
#define TE_RANKS_H

#include "engine/comm/en_comm.h"

/* Runs 'fn' on 'n' threads; 'comm' is each one's table.  A failure of one ends the test program. */
void te_ranks(uint32_t n, int (*fn)(struct en_comm *comm, void *arg, struct ckpt_err *err),
	      void *arg);

#endif
