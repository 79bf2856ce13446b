/* mpi_comm.h -- the parts of the program tests/engine/mpi_comm, which runs under mpirun. */
#ifndef MPI_COMM_H
#define MPI_COMM_H

#include <stdint.h>

#include "engine/comm/en_comm.h"

/*
 * What went through MPI, counted between the table and MPI (PMPI): 'others' are calls that move
 * data and are neither MPI_Isend nor MPI_Irecv.
 */
struct mpi_count {
	uint64_t sends, send_bytes, receive_bytes, others;
	double init_seconds;	/* in MPI_Init or MPI_Init_thread */
	uint64_t socket_bytes;	/* given to sendmsg(), of what TCP sends */
};

struct mpi_count mpi_count_now(void);
/* MPI_Init, MPI_Finalize, and nothing else. */
void mpi_count_bare(void);

/* Each returns how many things were wrong, having said which. */
int mpi_check_sums(struct en_comm *comm);
int mpi_check_copies(struct en_comm *comm);
int mpi_check_flight(struct en_comm *comm);
int mpi_check_counters(struct en_comm *comm);

#endif
