/*
 * mpi_check.c -- what ranks get from each other, against what a plain program says they should.
 *
 * Numbers are a hash of (case, rank, index), so that each rank knows what every other has, and
 * spread over 2^-7..2^7, so that another order of a sum of fp32 gives other bits: that it does is
 * checked as well.
 */
#include "tests/engine/mpi_comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/comm/en_collective.h"

#define RANKS_MOST 64

static int wrong(const struct en_comm *comm, const char *what, unsigned long long n)
{
	fprintf(stderr, "rank %u of %u: WRONG: %s (%llu)\n", comm->rank, comm->size, what, n);
	return 1;
}

static int failed(const struct en_comm *comm, const char *what, const struct ckpt_err *err)
{
	fprintf(stderr, "rank %u of %u: FAILED: %s: %s: %s\n", comm->rank, comm->size, what,
		err->where, err->msg);
	return 1;
}

static uint64_t hash(uint64_t seed, uint32_t rank, uint64_t i)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15u + rank * 0xd1342543de82ef95u + i;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static double number(uint64_t seed, uint32_t rank, uint64_t i)
{
	const uint64_t h = hash(seed, rank, i);
	const double v = (double)(h >> 20) / (double)((uint64_t)1 << 43) - 1;

	return v * (double)(1u << (h & 7)) / 2 * (double)(1u << (h >> 3 & 7)) / 64;
}

static void *memory(uint64_t n)
{
	void *p = malloc(n ? n : 1);

	if (!p) {
		fprintf(stderr, "no memory for %llu bytes\n", (unsigned long long)n);
		exit(3);
	}
	memset(p, 0x5a, n);
	return p;
}

#define BLOCK 256u

/* Elements first..first+n of what 'rank' has, as 'type' stores them. */
static void fill(void *p, enum kn_num type, uint64_t n, uint64_t seed, uint32_t rank,
		 uint64_t first)
{
	const uint64_t es = kn_num_size(type);
	double v[BLOCK];

	for (uint64_t at = 0; at < n; at += BLOCK) {
		const uint64_t count = n - at < BLOCK ? n - at : BLOCK;
		uint8_t *to = (uint8_t *)p + at * es;

		for (uint64_t i = 0; i < count; i++) {
			const uint64_t h = hash(seed, rank, first + at + i);

			v[i] = number(seed, rank, first + at + i);
			if (type == KN_NUM_U64)
				memcpy(to + i * 8, &h, 8);
		}
		if (type != KN_NUM_U64)
			kn_cast(to, (enum kn_type)type, v, KN_F64, count, NULL);
	}
}

/* ---------------------------------------------------------------- sums */

/* v [nranks][BLOCK] becomes v[0], level by level, as the tree is told. */
#define TREE(name, ctype)							\
	static ctype name##_two(ctype a, ctype b, enum en_comm_op op)		\
	{									\
		if (op == EN_COMM_SUM)						\
			return a + b;						\
		return (a > b) == (op == EN_COMM_MAX) ? a : b;			\
	}									\
										\
	static void name(ctype v[][BLOCK], uint32_t n, enum en_comm_op op)	\
	{									\
		for (; n > 1; n = (n + 1) / 2)					\
			for (uint32_t r = 0; r < n; r += 2)			\
				for (uint32_t i = 0; i < BLOCK; i++)		\
					v[r / 2][i] = r + 1 == n ? v[r][i] :	\
						name##_two(v[r][i], v[r + 1][i], op); \
	}

TREE(tree_f32, float)
TREE(tree_f64, double)
TREE(tree_u64, uint64_t)

/*
 * Elements first..first+n (at most BLOCK) of the join of all ranks, to 'out'.  Returns how many
 * have other bits when fp32 is summed from the last rank to the first.
 */
static uint64_t join(enum kn_num type, enum en_comm_op op, uint64_t seed, uint32_t size,
		     uint64_t first, uint64_t n, void *out)
{
	static uint64_t u[RANKS_MOST][BLOCK];
	static double d[RANKS_MOST][BLOCK];
	static float f[RANKS_MOST][BLOCK];
	float plain[BLOCK] = { 0 };
	uint64_t other = 0;

	for (uint32_t r = 0; r < size; r++) {
		uint64_t raw[BLOCK];

		if (type == KN_NUM_U64 || type == KN_NUM_F64)
			fill(type == KN_NUM_U64 ? (void *)u[r] : d[r], type, n, seed, r, first);
		else {
			fill(raw, type, n, seed, r, first);
			kn_cast(f[r], KN_F32, raw, (enum kn_type)type, n, NULL);
		}
	}
	if (type == KN_NUM_U64) {
		tree_u64(u, size, op);
		memcpy(out, u[0], n * 8);
	} else if (type == KN_NUM_F64) {
		tree_f64(d, size, op);
		memcpy(out, d[0], n * 8);
	} else {
		for (uint32_t r = size; r-- > 0;)
			for (uint64_t i = 0; i < n; i++)
				plain[i] += f[r][i];
		tree_f32(f, size, op);
		memcpy(out, f[0], n * 4);
		for (uint64_t i = 0; i < n; i++)
			other += f[0][i] != plain[i];
	}
	return other;
}

/* The first element of 'have' [n] that is not the join times 'scale', or n.  Adds to '*other'. */
static uint64_t first_wrong(const void *have, enum kn_num type, enum en_comm_op op, uint64_t seed,
			    uint32_t size, uint64_t first, uint64_t n, float scale,
			    uint64_t *other)
{
	const uint64_t es = kn_num_size(type) == 8 ? 8 : 4;
	const uint8_t *p = have;
	uint64_t want[BLOCK];
	float *want32 = (float *)(void *)want;

	for (uint64_t at = 0; at < n; at += BLOCK) {
		const uint64_t count = n - at < BLOCK ? n - at : BLOCK;

		*other += join(type, op, seed, size, first + at, count, want);
		for (uint64_t i = 0; i < count && es == 4; i++)
			want32[i] *= scale;
		if (memcmp(want, p + at * es, count * es))
			return at + kn_mismatch(want, p + at * es, count * es) / es;
	}
	return n;
}

/* Pieces of n elements; 'inplace': the result goes over the own piece. */
static int check_reduce(struct en_comm *comm, enum kn_type type, uint64_t n, float scale,
			bool inplace)
{
	const uint64_t seed = n * 8 + type, all = n * comm->size, es = kn_type_size(type);
	void *full = memory(all * es), *copy = memory(all * es);
	float *own = inplace ? (float *)full + comm->rank * n : memory(n * 4);
	struct ckpt_err err = { 0 };
	uint64_t at, other = 0;
	int bad = 0;

	fill(full, (enum kn_num)type, all, seed, comm->rank, 0);
	memcpy(copy, full, all * es);
	if (en_comm_reduce_scatter(comm, own, full, type, n, scale, NULL, &err))
		return failed(comm, "reduce-scatter", &err);
	at = first_wrong(own, (enum kn_num)type, EN_COMM_SUM, seed, comm->size, comm->rank * n, n,
			 scale, &other);
	if (at < n)
		bad = wrong(comm, "an element of a reduce-scatter", at);
	if (n > 4000 && comm->size > 2 && type == KN_F32 && !other)
		bad += wrong(comm, "no element depends on the order: the test sees nothing", n);
	if (inplace)
		memcpy((float *)copy + comm->rank * n, own, n * 4);
	if (memcmp(copy, full, all * es))
		bad += wrong(comm, "a reduce-scatter writes what it sums", n);
	if (!inplace)
		free(own);
	free(copy);
	free(full);
	return bad;
}

static int check_all_reduce(struct en_comm *comm, enum kn_num type, uint64_t n, enum en_comm_op op)
{
	const uint64_t seed = n * 64 + type * 4 + op, es = kn_num_size(type);
	uint8_t *v = memory(n * es);
	struct ckpt_err err = { 0 };
	uint64_t at, other = 0;
	int bad = 0;

	fill(v, type, n, seed, comm->rank, 0);
	if (en_comm_all_reduce(comm, v, type, n, op, NULL, &err))
		return failed(comm, "all-reduce", &err);
	at = first_wrong(v, type, op, seed, comm->size, 0, n, 1, &other);
	if (at < n)
		bad = wrong(comm, "an element of an all-reduce", at);
	free(v);
	return bad;
}

/* Elements of 4 bytes that make two chunks and a little of a reduce-scatter. */
static uint64_t three_chunks(const struct en_comm *comm)
{
	struct en_collective w = { .size = comm->size, .bytes = UINT64_MAX / 4, .out = (void *)&w };

	en_collective_cut(&w);
	return w.chunk / 2 + 1;
}

int mpi_check_sums(struct en_comm *comm)
{
	static const enum kn_type types[] = { KN_F32, KN_BF16, KN_F16 };
	static const enum kn_num small[] = { KN_NUM_F32, KN_NUM_F64, KN_NUM_U64 };
	static const uint64_t sizes[] = { 0, 1, 7, 2047, 2048, 2049, 4096, 100003 };
	int bad = 0;

	for (size_t t = 0; t < 3; t++) {
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
			bad += check_reduce(comm, types[t], sizes[s], s & 1 ? 1 : 1.0f / 3, false);
		for (int op = EN_COMM_SUM; op <= EN_COMM_MIN; op++)
			for (size_t s = 0; s < 6; s++)
				bad += check_all_reduce(comm, small[t], sizes[s],
							(enum en_comm_op)op);
	}
	bad += check_reduce(comm, KN_F32, 4097, 1, true);
	bad += check_reduce(comm, KN_F32, 4097, 0.5f, true);
	bad += check_reduce(comm, KN_F32, three_chunks(comm), 1, true);
	bad += check_reduce(comm, KN_BF16, three_chunks(comm) * 2, 1, false);
	bad += check_all_reduce(comm, KN_NUM_F64, three_chunks(comm) / 2, EN_COMM_SUM);
	return bad;
}

/* ---------------------------------------------------------------- copies */

static void bytes_put(uint8_t *p, uint64_t n, uint64_t seed, uint32_t rank)
{
	for (uint64_t i = 0; i < n; i += 8) {
		const uint64_t h = hash(seed, rank, i);

		memcpy(p + i, &h, n - i < 8 ? n - i : 8);
	}
}

static int bytes_wrong(const uint8_t *p, uint64_t n, uint64_t seed, uint32_t rank)
{
	for (uint64_t i = 0; i < n; i += 8) {
		const uint64_t h = hash(seed, rank, i);

		if (memcmp(p + i, &h, n - i < 8 ? n - i : 8))
			return 1;
	}
	return 0;
}

static int check_gather(struct en_comm *comm, uint64_t n, bool inplace, bool small)
{
	uint8_t *full = memory(n * comm->size);
	uint8_t *shard = inplace ? full + comm->rank * n : memory(n);
	struct ckpt_err err = { 0 };
	int rc, bad = 0;

	bytes_put(shard, n, n, comm->rank);
	rc = small ? en_comm_gather_small(comm, full, shard, n, NULL, &err) :
		     en_comm_all_gather(comm, full, shard, n, NULL, &err);
	if (rc)
		return failed(comm, "all-gather", &err);
	for (uint32_t r = 0; r < comm->size; r++)
		if (bytes_wrong(full + r * n, n, n, r))
			bad += wrong(comm, "the shard in an all-gather of rank", r);
	if (!inplace)
		free(shard);
	free(full);
	return bad;
}

static int check_broadcast(struct en_comm *comm, uint64_t n, uint32_t root)
{
	uint8_t *p = memory(n);
	struct ckpt_err err = { 0 };
	int bad = 0;

	if (comm->rank == root)
		bytes_put(p, n, n, root);
	if (en_comm_broadcast(comm, p, n, root, NULL, &err))
		return failed(comm, "broadcast", &err);
	if (bytes_wrong(p, n, n, root))
		bad = wrong(comm, "a broadcast of rank", root);
	free(p);
	return bad;
}

int mpi_check_copies(struct en_comm *comm)
{
	static const uint64_t sizes[] = { 0, 1, 3, 4096, 65537, 1000003 };
	struct ckpt_err err = { 0 };
	int bad = 0;

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		bad += check_gather(comm, sizes[s], s & 1, s < 4);
		bad += check_gather(comm, sizes[s], !(s & 1), false);
		for (uint32_t root = 0; root < comm->size; root++)
			bad += check_broadcast(comm, sizes[s], root);
	}
	bad += check_gather(comm, EN_COLLECTIVE_CHUNK * 2 + 5, true, false);
	bad += check_broadcast(comm, EN_COLLECTIVE_CHUNK * 2 + 5, comm->size - 1);
	if (en_comm_barrier(comm, NULL, &err))
		bad += failed(comm, "barrier", &err);
	return bad;
}

/* ---------------------------------------------------------------- in flight */

#define FLIGHTS 7
#define N 50021u

/* Seven operations at once, waited for in an order of each rank's own. */
int mpi_check_flight(struct en_comm *comm)
{
	const uint32_t size = comm->size, rank = comm->rank;
	struct en_collective *work[FLIGHTS] = {NULL};
	struct ckpt_err err = { 0 };
	uint8_t *full[2] = { memory((uint64_t)N * size), memory((uint64_t)N * size) };
	uint8_t *news = memory(N);
	float *grad = memory((uint64_t)4 * N * size), *own = memory(4 * N), *own16 = memory(4 * N);
	uint16_t *grad16 = memory((uint64_t)2 * N * size);
	uint64_t other = 0;
	double v[3];
	int rc = 0, bad = 0;

	fill(grad, KN_NUM_F32, (uint64_t)N * size, 1, rank, 0);
	fill(grad16, KN_NUM_BF16, (uint64_t)N * size, 2, rank, 0);
	for (int k = 0; k < 2; k++)
		bytes_put(full[k] + rank * N, N, 3 + (unsigned)k, rank);
	fill(v, KN_NUM_F64, 3, 5, rank, 0);
	if (rank == size / 2)
		bytes_put(news, N, 6, rank);
	rc = rc ? rc : en_comm_all_gather(comm, full[0], full[0] + rank * N, N, &work[0], &err);
	rc = rc ? rc : en_comm_reduce_scatter(comm, own, grad, KN_F32, N, 1, &work[1], &err);
	rc = rc ? rc : en_comm_all_reduce(comm, v, KN_NUM_F64, 3, EN_COMM_SUM, &work[2], &err);
	rc = rc ? rc : en_comm_barrier(comm, &work[3], &err);
	rc = rc ? rc : en_comm_all_gather(comm, full[1], full[1] + rank * N, N, &work[4], &err);
	rc = rc ? rc : en_comm_reduce_scatter(comm, own16, grad16, KN_BF16, N, 1, &work[5], &err);
	rc = rc ? rc : en_comm_broadcast(comm, news, N, size / 2, &work[6], &err);
	for (uint32_t i = 0; i < FLIGHTS && !rc; i++) {
		const uint32_t k = (i * (rank % 6 + 1) + rank) % FLIGHTS;

		while (rank % 3 == 1 && work[k] && !rc)
			rc = en_comm_test(comm, &work[k], &err);
		rc = rc ? rc : en_comm_wait(comm, &work[k], &err);
	}
	if (rc)
		return failed(comm, "seven at once", &err);
	if (first_wrong(own, KN_NUM_F32, EN_COMM_SUM, 1, size, rank * (uint64_t)N, N, 1,
			&other) < N)
		bad += wrong(comm, "a sum of fp32 among seven at once", rank);
	if (first_wrong(own16, KN_NUM_BF16, EN_COMM_SUM, 2, size, rank * (uint64_t)N, N, 1,
			&other) < N)
		bad += wrong(comm, "a sum of bf16 among seven at once", rank);
	if (first_wrong(v, KN_NUM_F64, EN_COMM_SUM, 5, size, 0, 3, 1, &other) < 3)
		bad += wrong(comm, "an all-reduce among seven at once", rank);
	for (uint32_t r = 0; r < size; r++)
		if (bytes_wrong(full[0] + r * N, N, 3, r) || bytes_wrong(full[1] + r * N, N, 4, r))
			bad += wrong(comm, "a shard among seven at once", r);
	if (bytes_wrong(news, N, 6, size / 2))
		bad += wrong(comm, "a broadcast among seven at once", 0);
	free(grad16);
	free(own16);
	free(own);
	free(grad);
	free(news);
	free(full[1]);
	free(full[0]);
	return bad;
}

/* ---------------------------------------------------------------- counters */

/* Bytes that TCP is given for an operation: a record for each message, and one that asks for it. */
static uint64_t wire(const struct en_comm *comm, enum en_comm_kind kind, uint64_t messages,
		     uint64_t sent)
{
	const uint64_t chunks = (sent + EN_COLLECTIVE_CHUNK - 1) / EN_COLLECTIVE_CHUNK;

	if (kind != EN_COMM_BROADCAST)
		return sent + messages * 2 * 32;
	return comm->rank ? chunks * 32 : sent + messages * 32;
}

/*
 * What one operation added to the counters is what passed by, of its kind and of no other.  'want'
 * bytes are sent, or, by all but the root of a broadcast, received.
 */
static int compare(struct en_comm *comm, const struct en_comm_counter *before,
		   const struct mpi_count *passed, enum en_comm_kind kind, uint64_t want)
{
	const struct mpi_count now = mpi_count_now();
	const bool tcp = !strcmp(comm->ops->name, "tcp");
	const bool listens = kind == EN_COMM_BROADCAST && comm->rank;
	const uint64_t sent = tcp ? (listens ? 0 : want) : now.send_bytes - passed->send_bytes;
	const uint64_t received = !tcp ? now.receive_bytes - passed->receive_bytes :
				  kind == EN_COMM_BROADCAST && !listens ? 0 : want;
	int bad = 0;

	for (int k = 0; k < EN_COMM_KINDS; k++) {
		const struct en_comm_counter *a = &before[k], *b = &comm->counter[k];
		const int mine = k == (int)kind;
		const char *name = en_comm_kind_name((enum en_comm_kind)k);

		if (b->calls - a->calls != (uint64_t)mine)
			bad += wrong(comm, name, b->calls - a->calls);
		if (b->sent - a->sent != (mine ? sent : 0))
			bad += wrong(comm, name, b->sent - a->sent);
		if (b->received - a->received != (mine ? received : 0))
			bad += wrong(comm, name, b->received - a->received);
		if (!tcp && b->messages - a->messages != (mine ? now.sends - passed->sends : 0))
			bad += wrong(comm, name, b->messages - a->messages);
		if (tcp && mine && now.socket_bytes - passed->socket_bytes !=
		    wire(comm, kind, b->messages - a->messages, want))
			bad += wrong(comm, name, now.socket_bytes - passed->socket_bytes);
	}
	if (now.others != passed->others)
		bad += wrong(comm, "calls that go round the counters", now.others);
	if (!tcp && now.send_bytes - passed->send_bytes != (listens ? 0 : want))
		bad += wrong(comm, "bytes that one operation sends", want);
	return bad;
}

int mpi_check_counters(struct en_comm *comm)
{
	static const uint64_t sizes[] = { 0, 5, 4096, 3000000 };
	const uint64_t others = comm->size - 1;
	int bad = 0;

	for (size_t s = 0; s < 4; s++) {
		const uint64_t n = sizes[s];
		float *full = memory(n * 4 * comm->size), *own = full + comm->rank * n;

		memset(full, 0, n * 4 * comm->size);
		for (int kind = 0; kind < EN_COMM_KINDS; kind++) {
			struct en_comm_counter before[EN_COMM_KINDS];
			const struct mpi_count passed = mpi_count_now();
			struct ckpt_err err = { 0 };
			uint64_t want = others * n * 4;
			int rc;

			memcpy(before, comm->counter, sizeof(before));
			switch (kind) {
			case EN_COMM_GATHER:
				rc = en_comm_all_gather(comm, full, own, n * 4, NULL, &err);
				break;
			case EN_COMM_REDUCE:
				rc = en_comm_reduce_scatter(comm, own, full, KN_F32, n, 1, NULL,
							    &err);
				break;
			case EN_COMM_SMALL:
				rc = en_comm_all_reduce(comm, own, KN_NUM_F32, n, EN_COMM_MAX,
							NULL, &err);
				break;
			case EN_COMM_BROADCAST:
				rc = en_comm_broadcast(comm, full, n * 4, 0, NULL, &err);
				want = comm->rank ? n * 4 : want;
				break;
			default:
				rc = en_comm_barrier(comm, NULL, &err);
				want = 0;
			}
			if (rc)
				return failed(comm, "a counted operation", &err);
			bad += compare(comm, before, &passed, (enum en_comm_kind)kind, want);
		}
		free(full);
	}
	return bad;
}
