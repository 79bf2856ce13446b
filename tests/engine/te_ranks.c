/* See te_ranks.h.  Every operation is done when its call returns. */
#include "tests/engine/te_ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"

#define MOST 16

struct team {
	uint32_t n;
	pthread_mutex_t lock;	/* guards all below but p[] */
	pthread_cond_t met;
	uint32_t waiting;
	uint64_t meetings;
	bool left;		/* a rank has ended with a failure */
	const void *p[MOST];
};

struct member {
	struct en_comm comm;
	struct team *team;
	int (*fn)(struct en_comm *comm, void *arg, struct ckpt_err *err);
	void *arg;
	int rc;
	struct ckpt_err err;
};

static struct team *team_of(struct en_comm *comm)
{
	return ((struct member *)(void *)comm)->team;
}

/* All are here; or one has ended with a failure, which is CKPT_E_CANCELED. */
static int meet(struct team *t, struct ckpt_err *err)
{
	bool all;
	uint64_t now;

	pthread_mutex_lock(&t->lock);
	now = t->meetings;
	if (++t->waiting == t->n) {
		t->waiting = 0;
		t->meetings++;
		pthread_cond_broadcast(&t->met);
	}
	while (t->meetings == now && !t->left)
		pthread_cond_wait(&t->met, &t->lock);
	all = t->meetings != now;
	pthread_mutex_unlock(&t->lock);
	if (all)
		return 0;
	err->code = CKPT_E_CANCELED;
	snprintf(err->msg, sizeof(err->msg), "another rank has failed");
	return -CKPT_E_CANCELED;
}

/* What every rank brought is in p[]; no rank removes it before the next meeting. */
static int join(struct en_comm *comm, const void *p, struct ckpt_err *err)
{
	struct team *t = team_of(comm);

	t->p[comm->rank] = p;
	return meet(t, err);
}

static int all_gather(struct en_comm *comm, enum en_comm_kind kind, void *full, uint64_t bytes,
		      struct en_collective **work_out, struct ckpt_err *err)
{
	struct team *t = team_of(comm);

	(void)kind;
	(void)work_out;
	if (join(comm, full, err))
		return -CKPT_E_CANCELED;
	for (uint32_t r = 0; r < t->n; r++)
		if (r != comm->rank && bytes)
			memcpy((uint8_t *)full + r * bytes, (const uint8_t *)t->p[r] + r * bytes,
			       bytes);
	return meet(t, err);
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
			  uint64_t n, float scale, struct en_collective **work_out,
			  struct ckpt_err *err)
{
	struct team *t = team_of(comm);
	float *sum;
	int rc;

	(void)work_out;
	if (join(comm, full, err))
		return -CKPT_E_CANCELED;
	sum = t_alloc(n * sizeof(*sum) + 1);
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
	rc = meet(t, err);
	if (!rc)
		memcpy(own, sum, n * sizeof(*sum));
	free(sum);
	return rc;
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
		      enum en_comm_op op, struct en_collective **work_out, struct ckpt_err *err)
{
	struct team *t = team_of(comm);
	double *sum, each[MOST];
	int rc;

	(void)work_out;
	if (type != KN_NUM_F64 && (type != KN_NUM_U64 || op != EN_COMM_SUM))
		t_die("only doubles and sums of whole numbers are reduced here");
	if (join(comm, v, err))
		return -CKPT_E_CANCELED;
	sum = t_alloc(n * sizeof(*sum) + 1);
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
	rc = meet(t, err);
	if (!rc)
		memcpy(v, sum, n * sizeof(*sum));
	free(sum);
	return rc ? rc : meet(t, err);
}

static int broadcast(struct en_comm *comm, void *p, uint64_t bytes, uint32_t root,
		     struct en_collective **work_out, struct ckpt_err *err)
{
	struct team *t = team_of(comm);

	(void)work_out;
	if (join(comm, p, err))
		return -CKPT_E_CANCELED;
	if (comm->rank != root)
		memcpy(p, t->p[root], bytes);
	return meet(t, err);
}

static int barrier(struct en_comm *comm, struct en_collective **work_out, struct ckpt_err *err)
{
	(void)work_out;
	return meet(team_of(comm), err);
}

static int nothing_left(struct en_comm *comm, struct en_collective **work, struct ckpt_err *err)
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
	struct team *t = m->team;

	m->rc = m->fn(&m->comm, m->arg, &m->err);
	if (!m->rc)
		return NULL;
	pthread_mutex_lock(&t->lock);
	t->left = true;
	pthread_cond_broadcast(&t->met);
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

/* The failure that others did not only hear of. */
static int first_failure(const struct member *member, uint32_t n, uint32_t *rank_out,
			 struct ckpt_err *err)
{
	const struct member *first = NULL;

	for (uint32_t r = 0; r < n; r++)
		if (member[r].rc && (!first || (first->rc == -CKPT_E_CANCELED &&
						member[r].rc != -CKPT_E_CANCELED)))
			first = &member[r];
	if (!first)
		return 0;
	*rank_out = first->comm.rank;
	*err = first->err;
	return first->rc;
}

int te_ranks_try(uint32_t n, int (*fn)(struct en_comm *comm, void *arg, struct ckpt_err *err),
		 void *arg, uint32_t *rank_out, struct ckpt_err *err)
{
	struct team team = { .n = n };
	struct member member[MOST] = { 0 };
	pthread_t thread[MOST];

	pthread_mutex_init(&team.lock, NULL);
	pthread_cond_init(&team.met, NULL);
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
	pthread_cond_destroy(&team.met);
	pthread_mutex_destroy(&team.lock);
	return first_failure(member, n, rank_out, err);
}

void te_ranks(uint32_t n, int (*fn)(struct en_comm *comm, void *arg, struct ckpt_err *err),
	      void *arg)
{
	struct ckpt_err err = { 0 };
	uint32_t rank;

	if (te_ranks_try(n, fn, arg, &rank, &err))
		t_die("rank %u of %u: %s: %s", rank, n, err.where, err.msg);
}
