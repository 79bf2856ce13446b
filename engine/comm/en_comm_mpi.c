/*
 * en_comm_mpi.c -- the table of collectives by MPI: MPI_Isend and MPI_Irecv of chunks (en_work.h),
 * polled.
 *
 * Each operation has requests for two chunks: [from each rank, to each rank] twice.  Messages of an
 * operation carry its number as their tag; MPI keeps the order of messages between two ranks, so
 * that chunks need no numbers.  Nothing of MPI is called that waits, so a deadline can be held, and
 * no more memory goes out than two chunks a rank.
 */
#include "engine/comm/en_comm_mpi.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <mpi.h>

#include "engine/comm/en_tree.h"
#include "engine/comm/en_watch.h"
#include "engine/comm/en_work.h"
#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define TAGS 32768u	/* every MPI has tags up to 32767 */

struct mpi_work {
	struct en_comm_work w;	/* first: handles point to it */
	MPI_Request *request;	/* [2][2 * size] */
};

struct mpi_comm {
	struct en_comm base;	/* first */
	MPI_Comm comm;
	uint64_t number;	/* operations started */
	struct mpi_work *active;	/* oldest first, linked by w.next */
	struct en_scratch *scratch;
	struct en_peer *peer;	/* [size] */
	void *tree_work;
	int *index;		/* [2 * size], for MPI_Testsome */
	MPI_Status *status;	/* [2 * size] */
	bool *missing;		/* [size] */
};

static struct mpi_comm *mpi_of(struct en_comm *comm)
{
	return (struct mpi_comm *)(void *)comm;
}

bool en_comm_mpi_is_built(void)
{
	return true;
}

/* ---------------------------------------------------------------- failing */

/* The table is broken from here on. */
static int fail(struct mpi_comm *c, struct ckpt_err *err, const char *fmt, ...) CK_PRINTF(3, 4);

static int fail(struct mpi_comm *c, struct ckpt_err *err, const char *fmt, ...)
{
	struct ckpt_err *broken = &c->base.broken;
	va_list ap;

	if (!broken->code) {
		broken->code = CKPT_E_IO;
		broken->offset = CKPT_NO_OFFSET;
		snprintf(broken->where, sizeof(broken->where), "rank %u of %u", c->base.rank,
			 c->base.size);
		va_start(ap, fmt);
		vsnprintf(broken->msg, sizeof(broken->msg), fmt, ap);
		va_end(ap);
	}
	if (err && !err->code)
		*err = *broken;
	return -(int)broken->code;
}

static int fail_mpi(struct mpi_comm *c, struct ckpt_err *err, const char *call, int code,
		    const struct en_comm_work *w, uint32_t peer)
{
	char text[MPI_MAX_ERROR_STRING + 1] = "", who[160];
	int n, kind = 0;

	if (MPI_Error_string(code, text, &n))
		snprintf(text, sizeof(text), "error %d", code);
	for (char *p = text; *p; p++)
		if (*p == '\n')
			*p = ' ';
	MPI_Error_class(code, &kind);
	for (uint32_t p = 0; p < c->base.size; p++)
		c->missing[p] = p == peer;
	en_peer_list(c->peer, c->base.size, c->base.rank, c->missing, who, sizeof(who));
	return fail(c, err, "%s number %llu, %s with %s: %.200s%s", w->what,
		    (unsigned long long)w->number, call, who, text, kind == MPI_ERR_TRUNCATE ?
		    "; the ranks do not run the same step" : "");
}

/* Nothing has moved for as long as is allowed: who is it? */
static int fail_silent(struct mpi_comm *c, struct ckpt_err *err, const struct mpi_work *work)
{
	const struct en_comm_work *w = &work->w;
	const uint32_t size = c->base.size;
	const MPI_Request *request = work->request + (w->done & 1) * 2 * size;
	const char *what = "nothing came from";
	char who[360];
	uint32_t n = 0;

	for (uint32_t p = 0; p < size; p++)
		n += c->missing[p] = request[p] != MPI_REQUEST_NULL;
	if (!n) {
		what = "nothing was taken by";
		for (uint32_t p = 0; p < size; p++)
			c->missing[p] = request[size + p] != MPI_REQUEST_NULL;
	}
	en_peer_list(c->peer, size, c->base.rank, c->missing, who, sizeof(who));
	return fail(c, err, "%s %s for %g s, in %s number %llu (%llu bytes a rank, %llu of %llu "
		    "chunks done)", what, who, c->base.timeout_ms / 1000.0, w->what,
		    (unsigned long long)w->number, (unsigned long long)w->bytes,
		    (unsigned long long)w->done, (unsigned long long)w->nchunks);
}

/* ---------------------------------------------------------------- memory */

static void work_free(struct mpi_work *work)
{
	if (!work)
		return;
	if (work->w.scratch)
		work->w.scratch->used = false;
	ck_free(work->w.piece);
	ck_free(work->request);
	ck_free(work);
}

static int work_new(struct mpi_comm *c, const struct en_comm_work *plan,
		    struct mpi_work **work_out, struct ckpt_err *err)
{
	const uint32_t size = c->base.size;
	struct mpi_work *work = ck_zalloc(sizeof(*work));
	uint64_t scratch;

	if (!work)
		goto nomem;
	work->w = *plan;
	work->w.rank = c->base.rank;
	work->w.size = size;
	work->w.tree_work = c->tree_work;
	scratch = en_work_cut(&work->w);
	work->w.piece = ck_alloc_array(size, sizeof(*work->w.piece));
	work->request = ck_alloc_array(4 * (uint64_t)size, sizeof(*work->request));
	if (!work->w.piece || !work->request)
		goto nomem;
	for (uint64_t i = 0; i < 4 * (uint64_t)size; i++)
		work->request[i] = MPI_REQUEST_NULL;
	if (scratch) {
		work->w.scratch = en_scratch_take(&c->base, &c->scratch, scratch);
		if (!work->w.scratch)
			goto nomem;
	}
	*work_out = work;
	return 0;
nomem:
	work_free(work);
	return ck_fail_nomem(err, plan->what, plan->bytes);
}

/* ---------------------------------------------------------------- moving */

/* The two places where memory is handed to MPI, and counted. */
static int hand_send(struct mpi_comm *c, const struct en_comm_work *w, const void *p, uint64_t n,
		     uint32_t to, MPI_Request *request_out)
{
	struct en_comm_counter *counter = &c->base.counter[w->kind];
	int rc = MPI_Isend(p, (int)n, MPI_BYTE, (int)to, (int)(w->number % TAGS), c->comm,
			   request_out);

	if (!rc) {
		counter->messages++;
		counter->sent += n;
	}
	return rc;
}

static int hand_recv(struct mpi_comm *c, const struct en_comm_work *w, void *p, uint64_t n,
		     uint32_t from, MPI_Request *request_out)
{
	return MPI_Irecv(p, (int)n, MPI_BYTE, (int)from, (int)(w->number % TAGS), c->comm,
			 request_out);
}

/* Each rank begins with its neighbour, so that not all send to one at once. */
static int post(struct mpi_comm *c, struct mpi_work *work, struct ckpt_err *err)
{
	struct en_comm_work *w = &work->w;
	const uint32_t size = c->base.size, rank = c->base.rank;
	const uint64_t chunk = w->posted, n = en_work_bytes(w, chunk);
	MPI_Request *request = work->request + (chunk & 1) * 2 * size;

	for (uint32_t i = 1; i < size; i++) {
		const uint32_t from = (rank + size - i) % size;
		void *p = en_work_recv(w, chunk, from);
		int rc = p ? hand_recv(c, w, p, n, from, &request[from]) : 0;

		if (rc)
			return fail_mpi(c, err, "MPI_Irecv", rc, w, from);
	}
	for (uint32_t i = 1; i < size; i++) {
		const uint32_t to = (rank + i) % size;
		const void *p = en_work_send(w, chunk, to);
		int rc = p ? hand_send(c, w, p, n, to, &request[size + to]) : 0;

		if (rc)
			return fail_mpi(c, err, "MPI_Isend", rc, w, to);
	}
	w->posted++;
	return 0;
}

/* What MPI_Testsome says is finished: number 'at' of the requests of a chunk. */
static int take(struct mpi_comm *c, struct en_comm_work *w, int at, MPI_Status *status,
		int has_error, struct ckpt_err *err)
{
	const uint32_t size = c->base.size, peer = (uint32_t)at % size;
	const uint64_t want = en_work_bytes(w, w->done);
	int n = 0;

	if (has_error && status->MPI_ERROR != MPI_SUCCESS && status->MPI_ERROR != MPI_ERR_PENDING)
		return fail_mpi(c, err, (uint32_t)at < size ? "receiving" : "sending",
				status->MPI_ERROR, w, peer);
	if ((uint32_t)at >= size)
		return 0;
	MPI_Get_count(status, MPI_BYTE, &n);
	if ((uint64_t)n != want)
		return fail(c, err, "%s number %llu: rank %u sent %d bytes where %llu were "
			    "expected; the ranks do not run the same step", w->what,
			    (unsigned long long)w->number, peer, n, (unsigned long long)want);
	c->base.counter[w->kind].received += want;
	return 0;
}

/* One look at the oldest chunk.  '*left_out': how many requests of it are open. */
static int look(struct mpi_comm *c, struct mpi_work *work, bool *moved, uint32_t *left_out,
		struct ckpt_err *err)
{
	const int n = (int)(2 * c->base.size);
	MPI_Request *request = work->request + (work->w.done & 1) * 2 * c->base.size;
	int count, rc = MPI_Testsome(n, request, &count, c->index, c->status);

	if (rc && rc != MPI_ERR_IN_STATUS)
		return fail_mpi(c, err, "MPI_Testsome", rc, &work->w, c->base.rank);
	if (count == MPI_UNDEFINED)
		count = 0;
	for (int i = 0; i < count; i++) {
		int bad = take(c, &work->w, c->index[i], &c->status[i], rc, err);

		if (bad)
			return bad;
	}
	*moved = *moved || count;
	*left_out = 0;
	for (int i = 0; i < n; i++)
		*left_out += request[i] != MPI_REQUEST_NULL;
	return 0;
}

static int advance(struct mpi_comm *c, struct mpi_work *work, bool *moved, struct ckpt_err *err)
{
	struct en_comm_work *w = &work->w;

	while (w->done < w->nchunks) {
		uint32_t left = 0;
		int rc = 0;

		if (w->posted < w->nchunks && w->posted < w->done + 2) {
			rc = post(c, work, err);
			if (rc)
				return rc;
			continue;
		}
		rc = look(c, work, moved, &left, err);
		if (rc || left)
			return rc;
		en_work_finish(w, w->done);
		w->done++;
		*moved = true;
	}
	return 0;
}

static struct en_comm_work *oldest(const struct mpi_comm *c)
{
	return c->active ? &c->active->w : NULL;
}

/* Everything in flight, in the order it was started. */
static int progress(struct mpi_comm *c, bool *moved, struct ckpt_err *err)
{
	struct en_comm_work *w = oldest(c);
	int rc = 0;

	for (; w && !rc; w = w->next)
		rc = advance(c, (struct mpi_work *)(void *)w, moved, err);
	return rc;
}

/* Takes a work that is done out of the list; the caller's handle becomes NULL. */
static bool retire(struct mpi_comm *c, struct en_comm_work **handle)
{
	struct en_comm_work *w = *handle, *at = oldest(c);

	if (w->done < w->nchunks)
		return false;
	if (at == w) {
		c->active = (struct mpi_work *)(void *)w->next;
	} else {
		while (at->next != w)
			at = at->next;
		at->next = w->next;
	}
	work_free((struct mpi_work *)(void *)w);
	*handle = NULL;
	return true;
}

static int mpi_test(struct en_comm *comm, struct en_comm_work **work, struct ckpt_err *err)
{
	struct mpi_comm *c = mpi_of(comm);
	bool moved = false;
	int rc = c->active ? progress(c, &moved, err) : 0;

	if (!rc && *work)
		retire(c, work);
	return rc;
}

static int mpi_wait(struct en_comm *comm, struct en_comm_work **work, struct ckpt_err *err)
{
	struct mpi_comm *c = mpi_of(comm);
	struct en_patience p;

	en_patience_begin(&p);
	for (;;) {
		bool moved = false;
		int rc = progress(c, &moved, err);

		if (rc || retire(c, work))
			return rc;
		en_patience_rest(&p, moved);
		if (comm->timeout_ms && p.silent > (int64_t)comm->timeout_ms * 1000000)
			return fail_silent(c, err, (struct mpi_work *)(void *)*work);
	}
}

/* ---------------------------------------------------------------- starting */

static int start(struct mpi_comm *c, struct en_comm_work *plan, struct en_comm_work **work_out,
		 struct ckpt_err *err)
{
	struct en_comm_work *last = oldest(c);
	struct mpi_work *work = NULL;
	bool moved = false;
	int rc;

	rc = work_new(c, plan, &work, err);
	if (rc)
		return rc;
	work->w.number = c->number++;
	c->base.counter[plan->kind].calls++;
	while (last && last->next)
		last = last->next;
	if (last)
		last->next = &work->w;
	else
		c->active = work;
	rc = progress(c, &moved, err);
	if (rc)
		return rc;
	*work_out = &work->w;
	retire(c, work_out);
	return 0;
}

static int mpi_all_gather(struct en_comm *comm, enum en_comm_kind kind, void *full, uint64_t bytes,
			  struct en_comm_work **work_out, struct ckpt_err *err)
{
	struct en_comm_work plan = {
		.kind = kind, .what = kind == EN_COMM_SMALL ? "small gather" : "all-gather",
		.root = EN_WORK_ALL, .bytes = bytes, .recv = full, .recv_step = bytes,
		.send = (uint8_t *)full + comm->rank * bytes,
	};

	return start(mpi_of(comm), &plan, work_out, err);
}

static int mpi_reduce_scatter(struct en_comm *comm, float *own, const void *full,
			      enum kn_type type, uint64_t n, float scale,
			      struct en_comm_work **work_out, struct ckpt_err *err)
{
	const uint64_t bytes = n * kn_type_size(type);
	struct en_comm_work plan = {
		.kind = EN_COMM_REDUCE, .what = "reduce-scatter", .root = EN_WORK_ALL,
		.bytes = bytes, .send = full, .send_step = bytes, .out = (uint8_t *)own,
		.tree = { .type = (enum kn_num)type, .op = EN_COMM_SUM, .scale = scale },
	};

	return start(mpi_of(comm), &plan, work_out, err);
}

static int mpi_all_reduce(struct en_comm *comm, void *v, enum kn_num type, uint64_t n,
			  enum en_comm_op op, struct en_comm_work **work_out, struct ckpt_err *err)
{
	struct en_comm_work plan = {
		.kind = EN_COMM_SMALL, .what = "all-reduce", .root = EN_WORK_ALL,
		.bytes = n * kn_num_size(type), .send = v, .out = v,
		.tree = { .type = type, .op = op, .scale = 1 },
	};

	return start(mpi_of(comm), &plan, work_out, err);
}

static int mpi_broadcast(struct en_comm *comm, void *p, uint64_t bytes, uint32_t root,
			 struct en_comm_work **work_out, struct ckpt_err *err)
{
	struct en_comm_work plan = {
		.kind = EN_COMM_BROADCAST, .what = "broadcast", .root = root, .bytes = bytes,
		.send = p, .recv = p,
	};

	return start(mpi_of(comm), &plan, work_out, err);
}

static int mpi_barrier(struct en_comm *comm, struct en_comm_work **work_out, struct ckpt_err *err)
{
	static uint8_t nothing[1];
	struct en_comm_work plan = {
		.kind = EN_COMM_BARRIER, .what = "barrier", .root = EN_WORK_ALL, .send = nothing,
		.recv = nothing,
	};

	return start(mpi_of(comm), &plan, work_out, err);
}

/* ---------------------------------------------------------------- beginning and end */

static void release(struct mpi_comm *c)
{
	en_scratch_free(&c->base, &c->scratch);
	ck_free(c->missing);
	ck_free(c->status);
	ck_free(c->index);
	ck_free(c->tree_work);
	ck_free(c->peer);
	ck_free(c);
}

static int mpi_close(struct en_comm *comm, struct ckpt_err *err)
{
	struct mpi_comm *c = mpi_of(comm);
	int rc;

	if (c->active)
		return ck_fail(err, CKPT_E_USAGE, c->active->w.what, CKPT_NO_OFFSET,
			       "closed while it is in flight");
	rc = en_comm_barrier(comm, NULL, err);
	if (rc)
		return rc;
	MPI_Comm_free(&c->comm);
	release(c);
	MPI_Finalize();
	return 0;
}

static void mpi_abort(struct en_comm *comm, int status)
{
	(void)comm;
	MPI_Abort(MPI_COMM_WORLD, status);
}

static void mpi_lost(struct en_comm *comm, char *text, size_t n)
{
	struct mpi_comm *c = mpi_of(comm);

	if (en_peer_lost(c->peer, comm->size, comm->rank, c->missing))
		en_peer_list(c->peer, comm->size, comm->rank, c->missing, text, n);
}

static const struct en_comm_ops mpi_ops = {
	.name = "mpi",
	.all_gather = mpi_all_gather,
	.reduce_scatter = mpi_reduce_scatter,
	.all_reduce = mpi_all_reduce,
	.broadcast = mpi_broadcast,
	.barrier = mpi_barrier,
	.test = mpi_test,
	.wait = mpi_wait,
	.close = mpi_close,
	.abort = mpi_abort,
	.lost = mpi_lost,
};

static int start_mpi(MPI_Comm *comm_out, int *rank_out, int *size_out)
{
	int level, rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);

	if (!rc)
		rc = MPI_Comm_dup(MPI_COMM_WORLD, comm_out);
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

static int allocate(struct mpi_comm *c, uint32_t size, struct ckpt_err *err)
{
	c->peer = ck_alloc_array(size, sizeof(*c->peer));
	c->tree_work = ck_alloc(en_tree_work(size));
	c->index = ck_alloc_array(2 * (uint64_t)size, sizeof(*c->index));
	c->status = ck_alloc_array(2 * (uint64_t)size, sizeof(*c->status));
	c->missing = ck_alloc_array(size, sizeof(*c->missing));
	if (!c->peer || !c->tree_work || !c->index || !c->status || !c->missing)
		return ck_fail_nomem(err, "collectives of MPI", en_tree_work(size));
	memset(c->peer, 0, size * sizeof(*c->peer));
	return 0;
}

int en_comm_mpi_open(uint32_t timeout_ms, struct en_comm **comm_out, struct ckpt_err *err)
{
	struct mpi_comm *c = ck_zalloc(sizeof(*c));
	int rank = 0, size = 0, rc;

	if (!c)
		return ck_fail_nomem(err, "collectives of MPI", sizeof(*c));
	c->base.ops = &mpi_ops;
	c->base.timeout_ms = timeout_ms;
	rc = start_mpi(&c->comm, &rank, &size);
	if (rc) {
		release(c);
		return ck_fail(err, CKPT_E_IO, "MPI", CKPT_NO_OFFSET, "it does not start: error %d",
			       rc);
	}
	c->base.rank = (uint32_t)rank;
	c->base.size = (uint32_t)size;
	rc = allocate(c, c->base.size, err);
	if (rc) {
		release(c);
		return rc;
	}
	en_peer_self(&c->peer[rank]);
	rc = en_comm_gather_small(&c->base, c->peer, &c->peer[rank], sizeof(*c->peer), NULL, err);
	if (rc)
		return rc;
	memset(c->base.counter, 0, sizeof(c->base.counter));
	*comm_out = &c->base;
	return 0;
}
