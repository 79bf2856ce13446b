/*
 * cli_mpi.h -- short messages between the ranks that an MPI launcher started.
 *
 * The only file that knows MPI is cli_mpi.c.  The program zckpt is linked without it, and runs
 * where no MPI is installed; the same program with MPI is zckpt-mpi, which zckpt becomes when a
 * launcher started it (cli_team.c).
 */
#ifndef CLI_MPI_H
#define CLI_MPI_H

#include <stddef.h>

struct wire {
	int rank, size;
	int neighbours;		/* ranks of this machine, this one counted */
	int any_thread;		/* other threads may send and take, one at a time */
};

/* Whether this program was linked with MPI. */
int wire_is_built(void);
/* Joins the others, once.  0, or -1 without MPI. */
int wire_open(struct wire *wire_out);
/* Leaves; every rank must. */
void wire_close(void);
/* The end of all ranks. */
void wire_abort(int status);

/* At most WIRE_MAX bytes. */
#define WIRE_MAX 4096
void wire_send(int to, int tag, const void *p, size_t n);
/* The same, or nothing while the last one of these is still under way: never waits. */
void wire_hint(int to, int tag, const void *p, size_t n);
/* One message from anyone, if there is one: its length, or -1. */
int wire_take(int *from_out, int *tag_out, void *p, size_t size);

#endif
