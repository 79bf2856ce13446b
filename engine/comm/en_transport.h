/*
 * en_transport.h -- operations in flight, for backends of the table that have no more than messages
 * between pairs of ranks: what is started, what is done, who is silent.  The backend moves
 * messages.
 */
#ifndef EN_TRANSPORT_H
#define EN_TRANSPORT_H

#include "engine/comm/en_comm.h"
#include "engine/comm/en_watchdog.h"
#include "engine/comm/en_collective.h"
#include "libckpt/base/ck_base.h"

struct en_transport;

/* What a backend does.  A failure is one of en_transport_fail(). */
struct en_transport_ops {
	size_t own_bytes; /* that a work has of the backend's, for each rank: w->own */
	/* Makes w->own ready; it was zeroed.  Or NULL. */
	void (*begin)(struct en_transport *f, struct en_collective *w);
	/* All that is under way moves on.  Or NULL. */
	int (*pump)(struct en_transport *f, bool *moved, struct ckpt_err *err);
	/* Hands over the messages of chunk w->posted. */
	int (*post)(struct en_transport *f, struct en_collective *w, struct ckpt_err *err);
	/* One look at chunk w->done.  '*left_out': how many of its messages are open. */
	int (*look)(struct en_transport *f, struct en_collective *w, bool *moved,
		    uint32_t *left_out, struct ckpt_err *err);
	/* Whether the message from p (else the one to p) of chunk w->done is open. */
	bool (*is_open)(const struct en_transport *f, const struct en_collective *w, uint32_t p,
			bool from);
	/* Sleeps until something comes, 'ns' at most.  NULL: sleeps as long. */
	void (*nap)(void *flow, long ns);
};

struct en_transport {
	struct en_comm base; /* first */
	const struct en_transport_ops *ops;
	uint64_t number;	/* operations started */
	struct en_collective *active; /* oldest first */
	struct en_scratch *scratch;
	struct en_peer *peer; /* [size] */
	void *tree_work;
	bool *missing; /* [size], for sentences */
};

static inline struct en_transport *en_transport_of(struct en_comm *comm)
{
	return (struct en_transport *)(void *)comm;
}

/* Memory for base.size ranks.  CKPT_E_NOMEM: en_transport_release() takes what there is. */
int en_transport_init(struct en_transport *f, struct ckpt_err *err);
void en_transport_release(struct en_transport *f);
/* Each learns of all where they are; the counters begin after it. */
int en_transport_exchange_peers(struct en_transport *f, struct ckpt_err *err);

/* The table is broken from here on, with this sentence, or with the first one. */
int en_transport_fail(struct en_transport *f, struct ckpt_err *err, const char *fmt, ...)
	CK_PRINTF(3, 4);
/* "rank 2 (pid 4711, gone)" */
void en_transport_name(struct en_transport *f, uint32_t p, char *text, size_t n);

/* Of the table of en_comm.h. */
int en_transport_all_gather(struct en_comm *comm, enum en_comm_kind kind, void *full,
			    uint64_t bytes, struct en_collective **work_out, struct ckpt_err *err);
int en_transport_reduce_scatter(struct en_comm *comm, float *own, const void *full,
				enum kn_type type, uint64_t n, float scale,
				struct en_collective **work_out, struct ckpt_err *err);
int en_transport_all_reduce(struct en_comm *comm, void *v, enum kn_num type, uint64_t n,
			    enum en_comm_op op, struct en_collective **work_out,
			    struct ckpt_err *err);
int en_transport_broadcast(struct en_comm *comm, void *p, uint64_t bytes, uint32_t root,
			   struct en_collective **work_out, struct ckpt_err *err);
int en_transport_barrier(struct en_comm *comm, struct en_collective **work_out,
			 struct ckpt_err *err);
int en_transport_test(struct en_comm *comm, struct en_collective **work, struct ckpt_err *err);
int en_transport_wait(struct en_comm *comm, struct en_collective **work, struct ckpt_err *err);
void en_transport_lost(struct en_comm *comm, char *text, size_t n);
/* A barrier, if nothing is in flight. */
int en_transport_end(struct en_comm *comm, struct ckpt_err *err);

#endif
