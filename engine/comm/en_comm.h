/*
 * en_comm.h -- communication of ranks: one table of collectives, with the backends local (one
 * rank), MPI and TCP.  docs/ztrain/collectives.md has the design.
 *
 * Every rank starts the same operations in the same order with the same sizes.  An operation that
 * was started runs on while the caller computes, as far as the backend can (MPI: while any call of
 * this table is made); it is done when en_comm_test() or en_comm_wait() has set the handle to NULL.
 * Until then its buffers are not touched, but for reading those that are only sent.  Several may be
 * in flight; they may be waited for in any order.  With 'work_out' NULL a call returns when the
 * operation is done.
 *
 * Order of sums.  Ranks are summed as a tree of pairs in natural order: (0,1), (2,3), ..., then
 * pairs of those; an odd last one passes up unchanged.  So the result depends only on the input of
 * the ranks, and every rank gets the same bits.
 *
 * Deadline.  en_comm_wait() fails when no data has been received or sent for 'timeout_ms', and
 * names the silent ranks.  After any failure but CKPT_E_USAGE and CKPT_E_NOMEM of a start the table
 * is broken: each further call fails the same way, buffers of operations in flight stay in use, and
 * what is left to do is en_comm_abort().
 *
 * Buffers need no alignment beyond that of their elements.  One thread at a time, always the same.
 * Errors common to all: CKPT_E_USAGE (an argument) and CKPT_E_NOMEM, when nothing was started;
 * CKPT_E_IO (the backend failed, a rank is silent, ranks do not run the same step).
 */
#ifndef EN_COMM_H
#define EN_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ckpt.h>

#include "kernels/include/kn.h"

/* Of what kind bytes are, in counters. */
enum en_comm_kind {
	EN_COMM_GATHER,		/* en_comm_all_gather() */
	EN_COMM_REDUCE,		/* en_comm_reduce_scatter() */
	EN_COMM_SMALL,		/* en_comm_all_reduce(), en_comm_gather_small() */
	EN_COMM_BROADCAST,
	EN_COMM_BARRIER,
	EN_COMM_KINDS,
};

/* Counted where memory is handed to the backend, never from a formula.  The caller subtracts. */
struct en_comm_counter {
	uint64_t calls;		/* operations started */
	uint64_t messages;	/* handed over to be sent */
	uint64_t sent;		/* their bytes */
	uint64_t received;	/* bytes that came in, as the backend says */
};

enum en_comm_op { EN_COMM_SUM = 1, EN_COMM_MAX, EN_COMM_MIN };

struct en_collective;
struct en_comm_ops;

struct en_comm {
	const struct en_comm_ops *ops;
	uint32_t rank, size;
	uint32_t timeout_ms;	/* may be changed between calls; 0: no deadline */
	struct en_comm_counter counter[EN_COMM_KINDS];
	uint64_t scratch_bytes, scratch_peak;	/* memory of the table's own */
	struct ckpt_err broken;	/* code 0 while all is well */
};

/*
 * The table.  Called by the functions below, which have checked arguments; of an all-gather the
 * shard is in its place already.  '*work_out' stays NULL if nothing is left to wait for.
 */
struct en_comm_ops {
	const char *name;	/* "local", "mpi" */
	int (*all_gather)(struct en_comm *comm, enum en_comm_kind kind, void *full, uint64_t bytes,
			  struct en_collective **work_out, struct ckpt_err *err);
	int (*reduce_scatter)(struct en_comm *comm, float *own, const void *full, enum kn_type type,
			      uint64_t n, float scale, struct en_collective **work_out,
			      struct ckpt_err *err);
	int (*all_reduce)(struct en_comm *comm, void *v, enum kn_num type, uint64_t n,
			  enum en_comm_op op, struct en_collective **work_out,
			  struct ckpt_err *err);
	int (*broadcast)(struct en_comm *comm, void *p, uint64_t bytes, uint32_t root,
			 struct en_collective **work_out, struct ckpt_err *err);
	int (*barrier)(struct en_comm *comm, struct en_collective **work_out, struct ckpt_err *err);
	/* Moves all that is in flight; '*work' becomes NULL when it is done. */
	int (*test)(struct en_comm *comm, struct en_collective **work, struct ckpt_err *err);
	int (*wait)(struct en_comm *comm, struct en_collective **work, struct ckpt_err *err);
	int (*close)(struct en_comm *comm, struct ckpt_err *err);
	void (*abort)(struct en_comm *comm, int status);
	void (*lost)(struct en_comm *comm, char *text, size_t n);	/* or NULL */
	void (*gone)(struct en_comm *comm, uint8_t *gone);	/* or NULL */
};

/* A table of one rank. */
int en_comm_local_open(struct en_comm **comm_out, struct ckpt_err *err);

/*
 * How many ranks mpirun or srun says it started with this process, 1 if none did.  '*rank_out' is
 * this one's number, -1 if not said.  Reads the environment only.
 */
uint32_t en_comm_launched(int32_t *rank_out);

/* "all-gather", "reduce-scatter", ...; a static string. */
const char *en_comm_kind_name(enum en_comm_kind kind);

/*
 * full [size * bytes] = the shards of all ranks, in order.  'shard' [bytes] is its own place in
 * 'full' or overlaps nothing of it; it is free again on return.  Sends (size - 1) * bytes.
 */
int en_comm_all_gather(struct en_comm *comm, void *full, const void *shard, uint64_t bytes,
		       struct en_collective **work_out, struct ckpt_err *err);
/* The same for a few bytes, counted as small. */
int en_comm_gather_small(struct en_comm *comm, void *full, const void *own, uint64_t bytes,
			 struct en_collective **work_out, struct ckpt_err *err);

/*
 * own [n] = scale * (the sum over ranks of their full[rank * n ...]), where 'full' [size * n] holds
 * elements of 'type': KN_F32, KN_BF16 or KN_F16, which become fp32 before they are summed.
 * With scale 1 nothing is multiplied.  'own' overlaps nothing of 'full', but with KN_F32 it may be
 * its own piece.  Sends (size - 1) * n elements; scratch memory is at most 32 MiB an operation
 * (above 4,096 ranks: 8 KiB a rank).
 */
int en_comm_reduce_scatter(struct en_comm *comm, float *own, const void *full, enum kn_type type,
			   uint64_t n, float scale, struct en_collective **work_out,
			   struct ckpt_err *err);

/*
 * v [n], in place, of KN_NUM_F32, KN_NUM_F64 or KN_NUM_U64: the same on every rank after.  Sums of
 * U64 wrap.  The maximum and minimum of numbers of which one is NaN is NaN.  For small arrays:
 * each rank sends all of its own to all others.
 */
int en_comm_all_reduce(struct en_comm *comm, void *v, enum kn_num type, uint64_t n,
		       enum en_comm_op op, struct en_collective **work_out, struct ckpt_err *err);

/* p [bytes] of rank 'root' becomes that of all. */
int en_comm_broadcast(struct en_comm *comm, void *p, uint64_t bytes, uint32_t root,
		      struct en_collective **work_out, struct ckpt_err *err);

/* Done when every rank has started it. */
int en_comm_barrier(struct en_comm *comm, struct en_collective **work_out, struct ckpt_err *err);

/* Moves all that is in flight, not waiting.  '*work' becomes NULL if it is done, or is NULL. */
int en_comm_test(struct en_comm *comm, struct en_collective **work, struct ckpt_err *err);
/* Waits, with the deadline.  '*work' NULL: done already. */
int en_comm_wait(struct en_comm *comm, struct en_collective **work, struct ckpt_err *err);

/*
 * All ranks end here together: a barrier, then the backend is shut down and the table freed.  On
 * failure (CKPT_E_USAGE: operations are in flight) nothing is freed, and en_comm_abort() is what is
 * left.  NULL is fine.
 */
int en_comm_close(struct en_comm *comm, struct ckpt_err *err);

/*
 * "rank 2 (pid 4711, stopped)": the ranks of this machine that are stopped or gone, for the message
 * of another operation that failed because of them; "" if there is none.
 */
void en_comm_lost(struct en_comm *comm, char *text, size_t n);

/*
 * gone [size] = 1 for ranks that have ended for certain, else 0: by TCP those that closed their
 * connection.  Also when the table is broken.
 */
void en_comm_gone(struct en_comm *comm, uint8_t *gone);

/*
 * Ends the processes of all ranks, this one with 'status', and does not return.  What was printed
 * is given a tenth of a second to reach the launcher.
 */
_Noreturn void en_comm_abort(struct en_comm *comm, int status);

#endif
