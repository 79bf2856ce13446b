/* cli_mpi.c -- see cli_mpi.h.  Compiled twice: with ZCKPT_MPI defined for zckpt-mpi. */
#include "cli_mpi.h"

#ifdef ZCKPT_MPI

#include <string.h>

#include <mpi.h>

static struct {
	MPI_Comm comm;
	MPI_Request request;	/* of the last hint */
	char hint[64];
} state;

int wire_is_built(void)
{
	return 1;
}

int wire_open(struct wire *wire_out)
{
	MPI_Comm near;
	int level;

	if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level))
		return -1;
	state.request = MPI_REQUEST_NULL;
	MPI_Comm_dup(MPI_COMM_WORLD, &state.comm);
	MPI_Comm_rank(state.comm, &wire_out->rank);
	MPI_Comm_size(state.comm, &wire_out->size);
	MPI_Comm_split_type(state.comm, MPI_COMM_TYPE_SHARED, wire_out->rank, MPI_INFO_NULL, &near);
	MPI_Comm_size(near, &wire_out->neighbours);
	MPI_Comm_free(&near);
	wire_out->any_thread = level >= MPI_THREAD_SERIALIZED;
	return 0;
}

void wire_close(void)
{
	MPI_Wait(&state.request, MPI_STATUS_IGNORE);
	MPI_Comm_free(&state.comm);
	MPI_Finalize();
}

void wire_abort(int status)
{
	MPI_Abort(MPI_COMM_WORLD, status);
}

void wire_send(int to, int tag, const void *p, size_t n)
{
	MPI_Send(p, (int)n, MPI_BYTE, to, tag, state.comm);
}

void wire_hint(int to, int tag, const void *p, size_t n)
{
	int done;

	MPI_Test(&state.request, &done, MPI_STATUS_IGNORE);
	if (!done || n > sizeof(state.hint))
		return;
	memcpy(state.hint, p, n);
	MPI_Isend(state.hint, (int)n, MPI_BYTE, to, tag, state.comm, &state.request);
}

int wire_take(int *from_out, int *tag_out, void *p, size_t size)
{
	MPI_Status status;
	int there, n;

	MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, state.comm, &there, &status);
	if (!there)
		return -1;
	*from_out = status.MPI_SOURCE;
	*tag_out = status.MPI_TAG;
	MPI_Recv(p, (int)size, MPI_BYTE, *from_out, *tag_out, state.comm, &status);
	MPI_Get_count(&status, MPI_BYTE, &n);
	return n;
}

#else

int wire_is_built(void)
{
	return 0;
}

int wire_open(struct wire *wire_out)
{
	(void)wire_out;
	return -1;
}

void wire_close(void)
{
}

void wire_abort(int status)
{
	(void)status;
}

void wire_send(int to, int tag, const void *p, size_t n)
{
	(void)to;
	(void)tag;
	(void)p;
	(void)n;
}

void wire_hint(int to, int tag, const void *p, size_t n)
{
	wire_send(to, tag, p, n);
}

int wire_take(int *from_out, int *tag_out, void *p, size_t size)
{
	(void)from_out;
	(void)tag_out;
	(void)p;
	(void)size;
	return -1;
}

#endif
