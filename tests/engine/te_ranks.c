/* See te_ranks.h.  Every operation is done when its call returns. */
#include "tests/engine/te_ranks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/t_dir.h"

#define MOST 16

struct team {
	uint32_t n;
	pthread_barrier_t meet;
	const void *p[MOST];
};

struct member {
	struct en_comm comm;
	struct team *team;
	int (*fn)(struct en_comm *comm, void *arg, struct ckpt_err *err);
	void *arg;
};

static struct team *team_of(struct en_comm *comm)
{
	return ((struct member *)(void *)comm)->team;
}

/* What every rank brought is in p[]; nobody takes it away before leave(). */
static struct team *join(struct en_comm *comm, const void *p)
{
	struct team *t = team_of(comm);

	t->p[comm->rank] = p;
	pthread_barrier_wait(&t->meet);
	return t;
}

static void leave(struct team *t)
{
	pthread_barrier_wait(&t->meet);
}

static int all_gather(struct en_comm *comm, enum en_comm_kind kind, void *full, uint64_t bytes,
		      struct en_comm_work **work_out, struct ckpt_err *err)
{
	struct team *t = join(comm, full);

	(void)kind;
	(void)work_out;
	(void)err;
	for (uint32_t r = 0; r < t->n; r++)
		if (r != comm->rank && bytes)
			memcpy((uint8_t *)full + r * bytes, (const uint8_t *)t->p[r] + r * bytes,
			       bytes);
	leave(t);
	return 0;
}

/* Values of one element, as a tree of pairs. */
static double tree(double *v, uint32_t n, bool narrow)
{
	for (; n > 1; n = (n + 1) / 2)
		for (uint32_t i = 0; i < n; i += 2) {
			const double s = i + 1 < n ? v[i] + v[i + 1] : v[i];

			v[i / 2] = narrow ? (float)s : s;
		}
	return v[0];
}

static int reduce_scatter(struct en_comm *comm, float *own, const void *full, enum kn_type type,
			  uint64_t n, float scale, struct en_comm_work **work_out,
			  struct ckpt_err *err)
{
	struct team *t = join(comm, full);
	float *sum = t_alloc(n * sizeof(*sum) + 1);

	(void)work_out;
	(void)err;
	for (uint64_t i = 0; i < n; i++) {
		double v[MOST];

		for (uint32_t r = 0; r < t->n; r++) {
			float f;

			kn_cast(&f, KN_F32, (const uint8_t *)t->p[r] +
				(comm->rank * n + i) * kn_type_size(type), type, 1, NULL);
			v[r] = f;
		}
		sum[i] = (float)tree(v, t->n, true) * scale;
	}
	leave(t);
	memcpy(own, sum, n * sizeof(*sum));
	free(sum);
	return 0;
}

/* No number is NaN here. */
static double farthest(const double *v, uint32_t n, enum en_comm_op op)
{
	double out = v[0];

	for (uint32_t i = 1; i < n; i++)
		if (op == EN_COMM_MAX ? v[i] > out : v[i] < out)
			out = v[i];
	return out;
}

static int all_reduce(struct en_comm *comm, void *v, enum kn_num type, uint64_t n,
		      enum en_comm_op op, struct en_comm_work **work_out, struct ckpt_err *err)
{
	struct team *t = join(comm, v);
	double *sum = t_alloc(n * sizeof(*sum) + 1), each[MOST];

	(void)work_out;
	(void)err;
	if (type != KN_NUM_F64 && (type != KN_NUM_U64 || op != EN_COMM_SUM))
		t_die("only doubles and sums of whole numbers are reduced here");
	for (uint64_t i = 0; i < n; i++) {
		uint64_t whole = 0;

		for (uint32_t r = 0; r < t->n; r++) {
			whole += ((const uint64_t *)t->p[r])[i];
			memcpy(&each[r], (const double *)t->p[r] + i, sizeof(each[r]));
		}
		if (type == KN_NUM_U64)
			memcpy(&sum[i], &whole, sizeof(whole));
		else
			sum[i] = op == EN_COMM_SUM ? tree(each, t->n, false) :
				 farthest(each, t->n, op);
	}
	leave(t);
	memcpy(v, sum, n * sizeof(*sum));
	leave(t);
	free(sum);
	return 0;
}

static int broadcast(struct en_comm *comm, void *p, uint64_t bytes, uint32_t root,
		     struct en_comm_work **work_out, struct ckpt_err *err)
{
	struct team *t = join(comm, p);

	(void)work_out;
	(void)err;
	if (comm->rank != root)
		memcpy(p, t->p[root], bytes);
	leave(t);
	return 0;
}

static int barrier(struct en_comm *comm, struct en_comm_work **work_out, struct ckpt_err *err)
{
	(void)work_out;
	(void)err;
	leave(join(comm, NULL));
	return 0;
}

static int nothing_left(struct en_comm *comm, struct en_comm_work **work, struct ckpt_err *err)
{
	(void)comm;
	(void)work;
	(void)err;
	return 0;
}

static const struct en_comm_ops ops = {
	.name = "threads", .all_gather = all_gather, .reduce_scatter = reduce_scatter,
	.all_reduce = all_reduce, .broadcast = broadcast, .barrier = barrier,
	.test = nothing_left, .wait = nothing_left,
};

static void *run(void *arg)
{
	struct member *m = arg;
	struct ckpt_err err = { 0 };

	if (m->fn(&m->comm, m->arg, &err))
		t_die("rank %u of %u: %s: %s", m->comm.rank, m->comm.size, err.where, err.msg);
	return NULL;
}

void te_ranks(uint32_t n, int (*fn)(struct en_comm *comm, void *arg, struct ckpt_err *err),
	      void *arg)
{
	struct team team = { .n = n };
	struct member member[MOST] = { 0 };
	pthread_t thread[MOST];

	pthread_barrier_init(&team.meet, NULL, n);
	for (uint32_t r = 0; r < n; r++) {
		member[r] = (struct member){
			.comm = { .ops = &ops, .rank = r, .size = n }, .team = &team, .fn = fn,
			.arg = arg,
		};
		if (pthread_create(&thread[r], NULL, run, &member[r]))
			t_die("no thread for rank %u", r);
	}
	for (uint32_t r = 0; r < n; r++)
		pthread_join(thread[r], NULL);
	pthread_barrier_destroy(&team.meet);
}
