/* en_comm_mpi.h -- the table of collectives by MPI; no <mpi.h> is needed to call it. */
#ifndef EN_COMM_MPI_H
#define EN_COMM_MPI_H

#include "engine/comm/en_comm.h"

/* Whether this program was linked with libztrain_mpi.a, before libztrain.a. */
bool en_comm_mpi_is_built(void);

/*
 * Starts MPI and joins all ranks that were started together.  Once a process.  Only sending and
 * receiving of bytes between pairs is asked of MPI, on a communicator of our own.
 *	CKPT_E_UNSUPPORTED  built without MPI
 *	CKPT_E_NOMEM
 *	CKPT_E_IO           MPI failed, or a rank was silent; en_comm_close() takes a table, and
 *	                    none was made: exit() with a status, and the launcher ends the others
 */
int en_comm_mpi_open(uint32_t timeout_ms, struct en_comm **comm_out, struct ckpt_err *err);

#endif
