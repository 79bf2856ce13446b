/*
 * fk_nccl.c -- NCCL between processes of one host.
 *
 * A communicator is a file in memory that all ranks map: for each pair of ranks a pipe.  Every
 * operation is a set of messages, each with a head that says what it belongs to; what does not fit
 * ends the process.  Sums are made by each rank that wants one, in the order of ranks: fp32 for
 * floats of 32 bits and less, rounded once.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/gpusim/fk_pipe.h"

#define GROUP 256

static struct ncclComm *_Atomic comms;
static char last_error[200];

/* ---- what the queue asks ---- */

struct ncclComm *fk_comms(void)
{
	return comms;
}

struct ncclComm *fk_comm_next(struct ncclComm *comm)
{
	return comm->next;
}

bool fk_comm_is_wanted(struct ncclComm *comm)
{
	return comm->sh && atomic_exchange(&comm->sh->wanted[comm->rank], 0);
}

bool fk_comm_all_have(struct ncclComm *comm, uint64_t n)
{
	for (uint32_t r = 0; r < comm->size; r++)
		if (comm->sh->queued[r] < n)
			return false;
	return true;
}

void fk_comm_queued(struct ncclComm *comm, uint64_t n)
{
	comm->sh->queued[comm->rank] = n;
}

/* ---- collectives ---- */

struct call {
	struct ncclComm *c;
	enum what what;
	const uint8_t *from;
	uint8_t *to;
	size_t n, es;
	ncclDataType_t type;
	ncclRedOp_t op;
	int root;
	uint64_t number;
};

static struct message message(const void *p, size_t bytes, uint32_t peer, bool send)
{
	return (struct message){
		.p = (uint8_t *)p, .head = { .bytes = bytes }, .peer = peer, .send = send,
	};
}

static bool is_sum(enum what what)
{
	return what == SCATTER || what == REDUCE_ALL || what == REDUCE;
}

/* What goes to, and comes from, rank r; with sums, into 'part'. */
static size_t messages(const struct call *a, uint32_t r, struct message *m, uint8_t *part)
{
	const size_t bytes = a->n * a->es, own = a->c->rank;
	const size_t root = (size_t)a->root;
	size_t n = 0;

	switch (a->what) {
	case GATHER:
		m[n++] = message(a->from, bytes, r, true);
		m[n++] = message(a->to + r * bytes, bytes, r, false);
		break;
	case SCATTER:
		m[n++] = message(a->from + r * bytes, bytes, r, true);
		m[n++] = message(part, bytes, r, false);
		break;
	case REDUCE_ALL:
		m[n++] = message(a->from, bytes, r, true);
		m[n++] = message(part, bytes, r, false);
		break;
	case ALL_TO_ALL:
		m[n++] = message(a->from + r * bytes, bytes, r, true);
		m[n++] = message(a->to + r * bytes, bytes, r, false);
		break;
	default:	/* REDUCE to, BROADCAST from the root */
		if (a->what == REDUCE ? r == root : own == root)
			m[n++] = message(a->from, bytes, r, true);
		if (a->what == REDUCE ? own == root : r == root)
			m[n++] = message(a->what == REDUCE ? part : a->to, bytes, r, false);
	}
	return n;
}

/* The part of this rank itself. */
static void own_part(const struct call *a, uint8_t *part)
{
	const size_t bytes = a->n * a->es, at = a->c->rank * bytes;

	switch (a->what) {
	case GATHER:
		if (a->from != a->to + at)
			memcpy(a->to + at, a->from, bytes);
		break;
	case SCATTER: memcpy(part, a->from + at, bytes); break;
	case ALL_TO_ALL: memcpy(a->to + at, a->from + at, bytes); break;
	case BROADCAST:
		if (a->c->rank == (uint32_t)a->root)
			memmove(a->to, a->from, bytes);
		break;
	default: memcpy(part, a->from, bytes);
	}
}

static void run_call(const void *args)
{
	const struct call *a = args;
	const uint32_t size = a->c->size;
	struct message m[2 * FK_RANKS];
	uint8_t *part[FK_RANKS] = { NULL };
	size_t n = 0;

	for (uint32_t r = 0; r < size; r++) {
		if (is_sum(a->what))
			part[r] = fk_room(a->n * a->es);
		if (r == a->c->rank)
			own_part(a, part[r]);
		else
			n += messages(a, r, m + n, part[r]);
	}
	if (fk_exchange(a->c, m, n, a->what, a->number) && is_sum(a->what) &&
	    (a->what != REDUCE || a->c->rank == (uint32_t)a->root))
		fk_reduce(a->c, a->to, part, a->n, a->type, a->op);
	for (uint32_t r = 0; r < size; r++)
		free(part[r]);
}

/* ---- groups ---- */

struct pair {
	struct ncclComm *c;
	cudaStream_t stream;
	void *p;
	size_t bytes;
	uint32_t peer;
	bool send;
};

struct pairs {
	struct ncclComm *c;
	size_t n;
	uint64_t number;
	struct pair pair[GROUP];
};

static _Thread_local struct {
	unsigned depth;
	size_t n;
	struct pair pair[GROUP];
} group;

/* To itself: the k-th that is sent is the k-th that is received. */
static void to_self(const struct pairs *a)
{
	size_t r = 0;

	for (size_t s = 0; s < a->n; s++) {
		if (!a->pair[s].send || a->pair[s].peer != a->c->rank)
			continue;
		while (r < a->n && (a->pair[r].send || a->pair[r].peer != a->c->rank))
			r++;
		if (r == a->n || a->pair[r].bytes != a->pair[s].bytes)
			fk_die("rank %u sends itself what it does not receive", a->c->rank);
		memmove(a->pair[r++].p, a->pair[s].p, a->pair[s].bytes);
	}
}

static void run_pairs(const void *args)
{
	const struct pairs *a = args;
	struct message *m = fk_room(a->n * sizeof(*m));
	size_t n = 0;

	to_self(a);
	for (size_t i = 0; i < a->n; i++)
		if (a->pair[i].peer != a->c->rank)
			m[n++] = message(a->pair[i].p, a->pair[i].bytes, a->pair[i].peer,
					 a->pair[i].send);
	fk_exchange(a->c, m, n, PAIRS, 0);
	free(m);
}

/* All of one communicator and stream are one operation. */
static void launch_pairs(void)
{
	struct pairs *a = fk_room(sizeof(*a));
	struct fk_use *use = fk_room(GROUP * sizeof(*use));

	while (group.n) {
		const struct pair first = group.pair[0];
		size_t kept = 0;

		*a = (struct pairs){ .c = first.c };
		for (size_t i = 0; i < group.n; i++) {
			const struct pair *p = &group.pair[i];

			if (p->c == first.c && p->stream == first.stream)
				a->pair[a->n++] = *p;
			else
				group.pair[kept++] = *p;
		}
		group.n = kept;
		for (size_t i = 0; i < a->n; i++)
			use[i] = (struct fk_use){ a->pair[i].p, a->pair[i].bytes,
						  !a->pair[i].send };
		fk_launch_of(first.c, first.stream, fk_name_of(PAIRS), run_pairs, a, sizeof(*a),
			     use, a->n, false);
	}
	free(use);
	free(a);
}

ncclResult_t ncclGroupStart(void)
{
	group.depth++;
	return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
	if (!group.depth)
		return ncclInvalidUsage;
	if (!--group.depth)
		launch_pairs();
	return ncclSuccess;
}

static ncclResult_t pair(void *p, size_t n, ncclDataType_t type, int peer, ncclComm_t c,
			 cudaStream_t stream, bool send)
{
	if (!fk_size_of(type) || peer < 0 || (uint32_t)peer >= c->size)
		return ncclInvalidArgument;
	if (group.n == GROUP)
		fk_die("more than %d messages in a group", GROUP);
	ncclGroupStart();
	group.pair[group.n++] = (struct pair){ c, stream, p, n * fk_size_of(type), (uint32_t)peer,
					       send };
	return ncclGroupEnd();
}

ncclResult_t ncclSend(const void *p, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
		      cudaStream_t stream)
{
	return pair((void *)p, n, type, peer, comm, stream, true);
}

ncclResult_t ncclRecv(void *p, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
		      cudaStream_t stream)
{
	return pair(p, n, type, peer, comm, stream, false);
}

/* ---- calls ---- */

/* In its place, a rank's own part of a gather is read and not written. */
static size_t uses(const struct call *a, size_t reads, size_t writes, struct fk_use use[3])
{
	const size_t own = a->n * a->es, at = a->c->rank * own;
	const uint8_t *to = a->to;

	use[0] = (struct fk_use){ a->from, reads * a->es, false };
	use[1] = (struct fk_use){ to, writes * a->es, true };
	if (a->what != GATHER || a->from != to + at)
		return 2;
	use[1].bytes = at;
	use[2] = (struct fk_use){ to + at + own, writes * a->es - at - own, true };
	return 3;
}

static ncclResult_t launch(struct call a, size_t reads, size_t writes, cudaStream_t stream)
{
	struct ncclComm *c = a.c;
	struct fk_use use[3];
	size_t nuse;

	a.es = fk_size_of(a.type);
	if (!a.es || (a.what > REDUCE_ALL && (a.root < 0 || (uint32_t)a.root >= c->size)))
		return ncclInvalidArgument;
	if (c->sh->broken)
		return ncclRemoteError;
	if (!a.n)
		return ncclSuccess;
	nuse = uses(&a, reads, writes, use);
	a.number = ++c->calls;
	fk_launch_of(c, stream, fk_name_of(a.what), run_call, &a, sizeof(a), use, nuse, false);
	return ncclSuccess;
}

ncclResult_t ncclAllGather(const void *own, void *all, size_t n, ncclDataType_t type,
			   ncclComm_t comm, cudaStream_t stream)
{
	return launch((struct call){ .c = comm, .what = GATHER, .from = own, .to = all, .n = n,
				     .type = type }, n, n * comm->size, stream);
}

ncclResult_t ncclReduceScatter(const void *all, void *own, size_t n, ncclDataType_t type,
			       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	return launch((struct call){ .c = comm, .what = SCATTER, .from = all, .to = own, .n = n,
				     .type = type, .op = op }, n * comm->size, n, stream);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type,
			   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	return launch((struct call){ .c = comm, .what = REDUCE_ALL, .from = from, .to = to, .n = n,
				     .type = type, .op = op }, n, n, stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op,
			int root, ncclComm_t comm, cudaStream_t stream)
{
	return launch((struct call){ .c = comm, .what = REDUCE, .from = from, .to = to, .n = n,
				     .type = type, .op = op, .root = root }, n,
		      comm->rank == (uint32_t)root ? n : 0, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root,
			   ncclComm_t comm, cudaStream_t stream)
{
	return launch((struct call){ .c = comm, .what = BROADCAST, .from = from, .to = to, .n = n,
				     .type = type, .root = root },
		      comm->rank == (uint32_t)root ? n : 0, n, stream);
}

ncclResult_t ncclAlltoAll(const void *from, void *to, size_t n, ncclDataType_t type,
			  ncclComm_t comm, cudaStream_t stream)
{
	return launch((struct call){ .c = comm, .what = ALL_TO_ALL, .from = from, .to = to, .n = n,
				     .type = type }, n * comm->size, n * comm->size, stream);
}

/* ---- communicators ---- */

ncclResult_t ncclGetVersion(int *version)
{
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

/* The name of a file that is there already. */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	int fd;

	memset(id, 0, sizeof(*id));
	snprintf(id->internal, sizeof(id->internal), "%s/zckpt-fake-nccl.XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	fd = mkstemp(id->internal);
	if (fd < 0)
		return ncclSystemError;
	close(fd);
	return ncclSuccess;
}

static ncclResult_t fail(ncclResult_t rc, const char *text)
{
	snprintf(last_error, sizeof(last_error), "%s", text);
	return rc;
}

static bool map(struct ncclComm *c, const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	bool good;

	if (fd < 0)
		return false;
	c->mapped = sizeof(*c->sh) + (size_t)c->size * c->size * sizeof(struct pipe);
	good = !ftruncate(fd, (off_t)c->mapped);
	c->sh = good ? mmap(NULL, c->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : NULL;
	if (c->sh == MAP_FAILED)
		c->sh = NULL;
	close(fd);
	return c->sh;
}

/* All are there, each on a device of its own. */
static ncclResult_t meet(struct ncclComm *c, const char *path)
{
	const double since = fk_now(), limit = (double)fk_env("FAKE_NCCL_TIMEOUT", 120);
	struct cudaDeviceProp prop;
	unsigned idle = 0;
	int device;

	cudaGetDevice(&device);
	cudaGetDeviceProperties(&prop, device);
	c->sh->device[c->rank] = (uint32_t)prop.pciBusID;
	c->sh->joined++;
	while (c->sh->joined < c->size) {
		fk_pause(&idle);
		if (fk_now() - since > limit)
			return fail(ncclSystemError, "not all ranks have come");
	}
	if (!c->rank)
		unlink(path);
	for (uint32_t r = 0; r < c->size; r++)
		for (uint32_t s = 0; s < r; s++)
			if (c->sh->device[r] == c->sh->device[s])
				return fail(ncclInvalidUsage, "Duplicate GPU detected: two ranks "
					    "are on one CUDA device");
	return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int size, ncclUniqueId id, int rank)
{
	struct ncclComm *c;
	ncclResult_t rc;

	if (size < 1 || size > FK_RANKS || rank < 0 || rank >= size)
		return fail(ncclInvalidArgument, "no such rank");
	c = fk_room(sizeof(*c));
	memset(c, 0, sizeof(*c));
	c->rank = (uint32_t)rank;
	c->size = (uint32_t)size;
	rc = map(c, id.internal) ? meet(c, id.internal) :
	     fail(ncclSystemError, "no shared memory");
	if (rc) {
		free(c);
		return rc;
	}
	fk_stir((uint64_t)rank);
	c->next = comms;
	comms = c;
	*out = c;
	return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
				    ncclConfig_t *config)
{
	(void)config;
	return ncclCommInitRank(out, size, id, rank);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
	fk_settle_comm(comm);
	return ncclSuccess;
}

/* The memory of the handle stays: the queue's thread may look at it. */
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	fk_settle_comm(comm);
	comm->sh->left++;
	return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	comm->sh->broken = 1;
	return ncclCommDestroy(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
	*error = comm->sh->broken ? ncclRemoteError : ncclSuccess;
	return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int *size)
{
	*size = (int)comm->size;
	return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank)
{
	*rank = (int)comm->rank;
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t rc)
{
	switch (rc) {
	case ncclSuccess: return "no error";
	case ncclSystemError: return "unhandled system error";
	case ncclInvalidArgument: return "invalid argument";
	case ncclInvalidUsage: return "invalid usage";
	case ncclRemoteError: return "remote process exited or there was a network error";
	default: return "an error of the fake NCCL";
	}
}

const char *ncclGetLastError(ncclComm_t comm)
{
	(void)comm;
	return last_error;
}

/* ---- registered memory: nothing to be done ---- */

ncclResult_t ncclMemAlloc(void **p, size_t bytes)
{
	return cudaMalloc(p, bytes) ? ncclUnhandledCudaError : ncclSuccess;
}

ncclResult_t ncclMemFree(void *p)
{
	return cudaFree(p) ? ncclUnhandledCudaError : ncclSuccess;
}

static ncclResult_t look(const void *p, size_t bytes, const char *who)
{
	const struct fk_use use = FK_W(p, bytes);

	fk_look(who, &use);
	return ncclSuccess;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void *p, size_t bytes, void **handle)
{
	(void)comm;
	*handle = p;
	return look(p, bytes, "ncclCommRegister");
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle)
{
	(void)comm;
	(void)handle;
	return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *p, size_t bytes, ncclWindow_t *window,
				    int flags)
{
	(void)comm;
	(void)flags;
	*window = fk_env("FAKE_NCCL_WINDOWS", 1) ? p : NULL;	/* NULL: ranks reach nothing */
	return look(p, bytes, "ncclCommWindowRegister");
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
	(void)comm;
	(void)window;
	return ncclSuccess;
}
