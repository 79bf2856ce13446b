/*
 * watch_mpi.c -- between the table of collectives and MPI: bytes by kind, as MPI is handed them.
 *
 * The kind is that of the call in which a message of a new number (its tag) is seen first: an
 * operation sends its first messages while it is started.
 */
#include "tests/engine/watch.h"

#include <string.h>

#include <mpi.h>

#include "engine/comm/en_comm_mpi.h"

#define TAGS 32768

static struct watch_count count[EN_COMM_KINDS];
static uint8_t kind_of[TAGS];
static int newest = TAGS - 1;
static enum en_comm_kind current;

const struct watch_count *watch_counted(enum en_comm_kind kind)
{
	return &count[kind];
}

/* ---- calls of the table ---- */

#define WRAP(kind, name, params, args)					\
	WATCH_WRAP(int, name, params)					\
	{								\
		const enum en_comm_kind before = current;		\
		int rc;							\
									\
		current = kind;						\
		rc = __real_##name args;				\
		current = before;					\
		return rc;						\
	}

WRAP(EN_COMM_GATHER, en_comm_all_gather,
     (struct en_comm * comm, void *full, const void *shard, uint64_t bytes,
      struct en_collective **work_out, struct ckpt_err *err),
     (comm, full, shard, bytes, work_out, err))
WRAP(EN_COMM_SMALL, en_comm_gather_small,
     (struct en_comm * comm, void *full, const void *own, uint64_t bytes,
      struct en_collective **work_out, struct ckpt_err *err),
     (comm, full, own, bytes, work_out, err))
WRAP(EN_COMM_REDUCE, en_comm_reduce_scatter,
     (struct en_comm * comm, float *own, const void *full, enum kn_type type, uint64_t n,
      float scale, struct en_collective **work_out, struct ckpt_err *err),
     (comm, own, full, type, n, scale, work_out, err))
WRAP(EN_COMM_SMALL, en_comm_all_reduce,
     (struct en_comm * comm, void *v, enum kn_num type, uint64_t n, enum en_comm_op op,
      struct en_collective **work_out, struct ckpt_err *err),
     (comm, v, type, n, op, work_out, err))
WRAP(EN_COMM_BROADCAST, en_comm_broadcast,
     (struct en_comm * comm, void *p, uint64_t bytes, uint32_t root,
      struct en_collective **work_out, struct ckpt_err *err),
     (comm, p, bytes, root, work_out, err))
WRAP(EN_COMM_BARRIER, en_comm_barrier,
     (struct en_comm * comm, struct en_collective **work_out, struct ckpt_err *err),
     (comm, work_out, err))

/* What ranks send while the table opens is not counted. */
WATCH_WRAP(int, en_comm_mpi_open,
	   (uint32_t timeout_ms, struct en_comm **comm_out, struct ckpt_err *err))
{
	int rc = __real_en_comm_mpi_open(timeout_ms, comm_out, err);

	memset(count, 0, sizeof(count));
	return rc;
}

/* ---- messages ---- */

static enum en_comm_kind kind_of_tag(int tag)
{
	const int ahead = (tag - newest + TAGS) % TAGS;

	if (ahead && ahead < TAGS / 2) {
		kind_of[tag] = (uint8_t)current;
		newest = tag;
	}
	return (enum en_comm_kind)kind_of[tag];
}

static uint64_t bytes_of(int n, MPI_Datatype type)
{
	int size;

	PMPI_Type_size(type, &size);
	return (uint64_t)n * (uint64_t)size;
}

int MPI_Isend(const void *p, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
	      MPI_Request *request)
{
	const enum en_comm_kind kind = kind_of_tag(tag);
	int rc = PMPI_Isend(p, n, type, to, tag, comm, request);

	count[kind].messages++;
	count[kind].sent += bytes_of(n, type);
	if (kind == EN_COMM_REDUCE)
		watch_pass(WATCH_REDUCE);
	if (kind == EN_COMM_GATHER)
		watch_pass(WATCH_GATHER);
	if (kind == EN_COMM_SMALL)
		watch_pass(WATCH_SMALL);
	return rc;
}

int MPI_Irecv(void *p, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm,
	      MPI_Request *request)
{
	count[kind_of_tag(tag)].received += bytes_of(n, type);
	return PMPI_Irecv(p, n, type, from, tag, comm, request);
}

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *level)
{
	watch_pass(WATCH_INIT);
	return PMPI_Init_thread(argc, argv, wanted, level);
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *out)
{
	watch_pass(WATCH_DUP);
	return PMPI_Comm_dup(comm, out);
}

int MPI_Finalize(void)
{
	watch_pass(WATCH_FINALIZE);
	return PMPI_Finalize();
}

/* What would go round the counters. */
#define ROUND(name, params, args)					\
	int MPI_##name params						\
	{								\
		count[0].others++;					\
		return PMPI_##name args;				\
	}

ROUND(Send, (const void *p, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm),
      (p, n, type, to, tag, comm))
ROUND(Recv, (void *p, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm,
	     MPI_Status *status), (p, n, type, from, tag, comm, status))
ROUND(Bcast, (void *p, int n, MPI_Datatype type, int root, MPI_Comm comm),
      (p, n, type, root, comm))
ROUND(Allreduce, (const void *p, void *q, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
      (p, q, n, type, op, comm))
ROUND(Allgather, (const void *p, int n, MPI_Datatype type, void *q, int m, MPI_Datatype qtype,
		  MPI_Comm comm), (p, n, type, q, m, qtype, comm))
ROUND(Reduce_scatter, (const void *p, void *q, const int m[], MPI_Datatype type, MPI_Op op,
		       MPI_Comm comm), (p, q, m, type, op, comm))
ROUND(Barrier, (MPI_Comm comm), (comm))
