/*
 * en_comm_mpi.c -- the table of collectives by MPI: MPI_Isend and MPI_Irecv of chunks
 * (en_collective.h), polled.
 *
 * Each operation has requests for two chunks: [from each rank, to each rank] twice.  Messages of an
 * operation carry its number as their tag; MPI keeps the order of messages between two ranks, so
 * that chunks need no numbers.  Nothing of MPI is called that waits, so a deadline can be held, and
 * no more memory goes out than two chunks a rank.
 */
#include "engine/comm/en_comm_mpi.h"

#include <stdio.h>
#include <time.h>

#include <mpi.h>

#include "engine/comm/en_transport.h"
#include "engine/comm/en_guard.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define ALIKE_MS 1000		/* for ranks that refuse alike */
#define TAGS 32768u	/* every MPI has tags up to 32767 */

struct mpi_comm {
	struct en_transport flow; /* first */
	MPI_Comm comm;
	int *index;		/* [2 * size], for MPI_Testsome */
	MPI_Status *status;	/* [2 * size] */
};

static struct mpi_comm *mpi_of(struct en_transport *flow)
{
	return (struct mpi_comm *)(void *)flow;
}

/* Of a chunk: from each rank, to each rank. */
static MPI_Request *requests(const struct en_collective *w, uint64_t chunk)
{
	return (MPI_Request *)w->own + (chunk & 1) * 2 * w->size;
}

bool en_comm_mpi_is_built(void)
{
	return true;
}

/* ---------------------------------------------------------------- failing */

static int fail_mpi(struct en_transport *f, struct ckpt_err *err, const char *call, int code,
		    const struct en_collective *w, uint32_t peer)
{
	char text[MPI_MAX_ERROR_STRING + 1] = "", who[160];
	int n, kind = 0;

	if (MPI_Error_string(code, text, &n))
		snprintf(text, sizeof(text), "error %d", code);
	for (char *p = text; *p; p++)
		if (*p == '\n')
			*p = ' ';
	MPI_Error_class(code, &kind);
	en_transport_name(f, peer, who, sizeof(who));
	return en_transport_fail(f, err, "%s number %llu, %s with %s: %.200s%s", w->what,
				 (unsigned long long)w->number, call, who, text,
				 kind == MPI_ERR_TRUNCATE ? "; the ranks do not run the same step"
							  : "");
}

/* ---------------------------------------------------------------- moving */

/* The two places where memory is handed to MPI, and counted. */
static int hand_send(struct mpi_comm *c, const struct en_collective *w, const void *p, uint64_t n,
		     uint32_t to, MPI_Request *request_out)
{
	struct en_comm_counter *counter = &c->flow.base.counter[w->kind];
	int rc = MPI_Isend(p, (int)n, MPI_BYTE, (int)to, (int)(w->number % TAGS), c->comm,
			   request_out);

	if (!rc) {
		counter->messages++;
		counter->sent += n;
	}
	return rc;
}

static int hand_recv(struct mpi_comm *c, const struct en_collective *w, void *p, uint64_t n,
		     uint32_t from, MPI_Request *request_out)
{
	return MPI_Irecv(p, (int)n, MPI_BYTE, (int)from, (int)(w->number % TAGS), c->comm,
			 request_out);
}

/* Each rank begins with its neighbour, so that not all send to one at once. */
static int mpi_post(struct en_transport *f, struct en_collective *w, struct ckpt_err *err)
{
	struct mpi_comm *c = mpi_of(f);
	const uint32_t size = w->size, rank = w->rank;
	const uint64_t chunk = w->posted, n = en_collective_bytes(w, chunk);
	MPI_Request *request = requests(w, chunk);

	for (uint32_t i = 1; i < size; i++) {
		const uint32_t from = (rank + size - i) % size;
		void *p = en_collective_recv(w, chunk, from);
		int rc = p ? hand_recv(c, w, p, n, from, &request[from]) : 0;

		if (rc)
			return fail_mpi(f, err, "MPI_Irecv", rc, w, from);
	}
	for (uint32_t i = 1; i < size; i++) {
		const uint32_t to = (rank + i) % size;
		const void *p = en_collective_send(w, chunk, to);
		int rc = p ? hand_send(c, w, p, n, to, &request[size + to]) : 0;

		if (rc)
			return fail_mpi(f, err, "MPI_Isend", rc, w, to);
	}
	return 0;
}

/* What MPI_Testsome says is finished: number 'at' of the requests of a chunk. */
static int finish_request(struct en_transport *f, struct en_collective *w, int at,
			  MPI_Status *status, int has_error, struct ckpt_err *err)
{
	const uint32_t size = w->size, peer = (uint32_t)at % size;
	const uint64_t want = en_collective_bytes(w, w->done);
	int n = 0;

	if (has_error && status->MPI_ERROR != MPI_SUCCESS && status->MPI_ERROR != MPI_ERR_PENDING)
		return fail_mpi(f, err, (uint32_t)at < size ? "receiving" : "sending",
				status->MPI_ERROR, w, peer);
	if ((uint32_t)at >= size)
		return 0;
	MPI_Get_count(status, MPI_BYTE, &n);
	if ((uint64_t)n != want)
		return en_transport_fail(f, err,
					 "%s number %llu: rank %u sent %d bytes, expected %llu; "
					 "the ranks do not run the same step",
					 w->what, (unsigned long long)w->number, peer, n,
					 (unsigned long long)want);
	f->base.counter[w->kind].received += want;
	return 0;
}

static int mpi_look(struct en_transport *f, struct en_collective *w, bool *moved,
		    uint32_t *left_out, struct ckpt_err *err)
{
	struct mpi_comm *c = mpi_of(f);
	const int n = (int)(2 * w->size);
	MPI_Request *request = requests(w, w->done);
	int count, rc = MPI_Testsome(n, request, &count, c->index, c->status);

	if (rc && rc != MPI_ERR_IN_STATUS)
		return fail_mpi(f, err, "MPI_Testsome", rc, w, w->rank);
	if (count == MPI_UNDEFINED)
		count = 0;
	for (int i = 0; i < count; i++) {
		int bad = finish_request(f, w, c->index[i], &c->status[i], rc, err);

		if (bad)
			return bad;
	}
	*moved = *moved || count;
	*left_out = 0;
	for (int i = 0; i < n; i++)
		*left_out += request[i] != MPI_REQUEST_NULL;
	return 0;
}

static bool mpi_is_open(const struct en_transport *f, const struct en_collective *w, uint32_t p,
			bool from)
{
	return requests(w, w->done)[from ? p : f->base.size + p] != MPI_REQUEST_NULL;
}

static void mpi_begin(struct en_transport *f, struct en_collective *w)
{
	MPI_Request *request = requests(w, 0);

	for (uint64_t i = 0; i < 4 * (uint64_t)f->base.size; i++)
		request[i] = MPI_REQUEST_NULL;
}

static const struct en_transport_ops flow_ops = {
	.own_bytes = 4 * sizeof(MPI_Request),
	.begin = mpi_begin,
	.post = mpi_post,
	.look = mpi_look,
	.is_open = mpi_is_open,
};

/* ---------------------------------------------------------------- beginning and end */

static void release(struct mpi_comm *c)
{
	ck_free(c->status);
	ck_free(c->index);
	en_transport_release(&c->flow);
	ck_free(c);
}

static void finalize(struct mpi_comm *c)
{
	struct en_guard guard;
	char who[48];

	snprintf(who, sizeof(who), "rank %u of %u", c->flow.base.rank, c->flow.base.size);
	en_guard_begin(&guard, who, "MPI_Finalize", c->flow.base.timeout_ms);
	MPI_Comm_free(&c->comm);
	MPI_Finalize();
	en_guard_end(&guard);
}

static int mpi_close(struct en_comm *comm, struct ckpt_err *err)
{
	struct mpi_comm *c = mpi_of(en_transport_of(comm));
	int rc = en_transport_end(comm, err);

	if (rc)
		return rc;
	finalize(c);
	release(c);
	return 0;
}

/* All ranks come here soon: none waits for one that has ended. */
static bool all_are_here(void)
{
	const struct timespec nap = { .tv_nsec = 1000000 };
	MPI_Request request;
	int done = 0;

	if (MPI_Ibarrier(MPI_COMM_WORLD, &request))
		return false;
	for (int i = 0; !done && i < ALIKE_MS; i++) {
		if (MPI_Test(&request, &done, MPI_STATUS_IGNORE))
			return false;
		if (!done)
			nanosleep(&nap, NULL);
	}
	return done;
}

/*
 * Where all ranks refuse alike, each ends by itself, and what it has said is not buried below what
 * MPI_Abort says.
 */
static void mpi_abort(struct en_comm *comm, int status)
{
	struct en_transport *f = en_transport_of(comm);

	if (!comm->broken.code && !f->active && all_are_here())
		finalize(mpi_of(f));
	else
		MPI_Abort(MPI_COMM_WORLD, status);
}

static const struct en_comm_ops mpi_ops = {
	.name = "mpi",
	.all_gather = en_transport_all_gather,
	.reduce_scatter = en_transport_reduce_scatter,
	.all_reduce = en_transport_all_reduce,
	.broadcast = en_transport_broadcast,
	.barrier = en_transport_barrier,
	.test = en_transport_test,
	.wait = en_transport_wait,
	.close = mpi_close,
	.abort = mpi_abort,
	.lost = en_transport_lost,
};

/* Both wait for all ranks, inside MPI. */
static int init_and_dup(uint32_t timeout_ms, MPI_Comm *comm_out)
{
	struct en_guard guard;
	char who[48];
	int32_t rank;
	const uint32_t size = en_comm_launched(&rank);
	int level, rc;

	snprintf(who, sizeof(who), rank < 0 ? "a rank" : "rank %d of %u", (int)rank, size);
	en_guard_begin(&guard, who, "MPI_Init", timeout_ms);
	rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
	en_guard_next(&guard, "MPI_Comm_dup");
	if (!rc)
		rc = MPI_Comm_dup(MPI_COMM_WORLD, comm_out);
	en_guard_end(&guard);
	return rc;
}

static int start_mpi(uint32_t timeout_ms, MPI_Comm *comm_out, int *rank_out, int *size_out)
{
	int rc = init_and_dup(timeout_ms, comm_out);

	/* Errors of MPI_Testsome, which takes no communicator, are raised on one of these. */
	if (!rc)
		rc = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if (!rc)
		rc = MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	if (!rc)
		rc = MPI_Comm_set_errhandler(*comm_out, MPI_ERRORS_RETURN);
	if (!rc)
		rc = MPI_Comm_rank(*comm_out, rank_out);
	return rc ? rc : MPI_Comm_size(*comm_out, size_out);
}

static int allocate(struct mpi_comm *c, struct ckpt_err *err)
{
	const uint64_t n = 2 * (uint64_t)c->flow.base.size;

	c->index = ck_alloc_array(n, sizeof(*c->index));
	c->status = ck_alloc_array(n, sizeof(*c->status));
	if (!c->index || !c->status)
		return ck_fail_nomem(err, "collectives of MPI", n * sizeof(*c->status));
	return en_transport_init(&c->flow, err);
}

int en_comm_mpi_open(uint32_t timeout_ms, struct en_comm **comm_out, struct ckpt_err *err)
{
	struct mpi_comm *c = ck_zalloc(sizeof(*c));
	int rank = 0, size = 0, rc;

	if (!c)
		return ck_fail_nomem(err, "collectives of MPI", sizeof(*c));
	c->flow.ops = &flow_ops;
	c->flow.base.ops = &mpi_ops;
	c->flow.base.timeout_ms = timeout_ms;
	rc = start_mpi(timeout_ms, &c->comm, &rank, &size);
	if (rc) {
		release(c);
		return ck_fail(err, CKPT_E_IO, "MPI", CKPT_NO_OFFSET,
			       "initialisation failed: error %d", rc);
	}
	c->flow.base.rank = (uint32_t)rank;
	c->flow.base.size = (uint32_t)size;
	rc = allocate(c, err);
	if (rc) {
		release(c);
		return rc;
	}
	rc = en_transport_exchange_peers(&c->flow, err);
	if (!rc)
		*comm_out = &c->flow.base;
	return rc;
}
