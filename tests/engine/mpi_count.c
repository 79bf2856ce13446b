/*
 * mpi_count.c -- between the table of collectives and MPI: counts.
 *
 * Every MPI has its functions under a second name, PMPI_..., so that a program can define the first
 * one itself.  Linked into the test program only.
 */
#include "tests/engine/mpi_comm.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <mpi.h>

static struct mpi_count count;

struct mpi_count mpi_count_now(void)
{
	return count;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t bytes_of(int n, MPI_Datatype type)
{
	int size;

	PMPI_Type_size(type, &size);
	return (uint64_t)n * (uint64_t)size;
}

int MPI_Init(int *argc, char ***argv)
{
	const double begin = seconds();
	int rc = PMPI_Init(argc, argv);

	count.init_seconds = seconds() - begin;
	return rc;
}

int MPI_Init_thread(int *argc, char ***argv, int want, int *got)
{
	const double begin = seconds();
	int rc = PMPI_Init_thread(argc, argv, want, got);

	count.init_seconds = seconds() - begin;
	return rc;
}

int MPI_Isend(const void *p, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
	      MPI_Request *request)
{
	count.sends++;
	count.send_bytes += bytes_of(n, type);
	return PMPI_Isend(p, n, type, to, tag, comm, request);
}

int MPI_Irecv(void *p, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm,
	      MPI_Request *request)
{
	count.receive_bytes += bytes_of(n, type);
	return PMPI_Irecv(p, n, type, from, tag, comm, request);
}

/* Without MPI this is what ranks send by. */
ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	const ssize_t n = syscall(SYS_sendmsg, fd, m, flags);

	count.socket_bytes += n > 0 ? (uint64_t)n : 0;
	return n;
}

/* What would go round the counters. */
int MPI_Send(const void *p, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
	count.others++;
	return PMPI_Send(p, n, type, to, tag, comm);
}

int MPI_Recv(void *p, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm,
	     MPI_Status *status)
{
	count.others++;
	return PMPI_Recv(p, n, type, from, tag, comm, status);
}

int MPI_Bcast(void *p, int n, MPI_Datatype type, int root, MPI_Comm comm)
{
	count.others++;
	return PMPI_Bcast(p, n, type, root, comm);
}

int MPI_Allreduce(const void *p, void *q, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
	count.others++;
	return PMPI_Allreduce(p, q, n, type, op, comm);
}

int MPI_Allgather(const void *p, int n, MPI_Datatype type, void *q, int m, MPI_Datatype qtype,
		  MPI_Comm comm)
{
	count.others++;
	return PMPI_Allgather(p, n, type, q, m, qtype, comm);
}

int MPI_Iallgather(const void *p, int n, MPI_Datatype type, void *q, int m, MPI_Datatype qtype,
		   MPI_Comm comm, MPI_Request *request)
{
	count.others++;
	return PMPI_Iallgather(p, n, type, q, m, qtype, comm, request);
}

int MPI_Reduce_scatter(const void *p, void *q, const int n[], MPI_Datatype type, MPI_Op op,
		       MPI_Comm comm)
{
	count.others++;
	return PMPI_Reduce_scatter(p, q, n, type, op, comm);
}

int MPI_Barrier(MPI_Comm comm)
{
	count.others++;
	return PMPI_Barrier(comm);
}

void mpi_count_bare(void)
{
	MPI_Init(NULL, NULL);
	MPI_Finalize();
}
