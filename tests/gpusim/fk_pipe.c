/* fk_pipe.c -- messages between the ranks of a communicator: bytes through pipes in memory. */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "tests/gpusim/fk_pipe.h"

#define NEED_S 0.05		/* a rank that is waited for so long is reported */

const char *fk_name_of(enum what what)
{
	static const char *const name[] = {
		"", "ncclAllGather", "ncclReduceScatter", "ncclAllReduce", "ncclReduce",
		"ncclBroadcast", "ncclAlltoAll", "ncclSend and ncclRecv",
	};

	return (unsigned)what < FK_LEN(name) ? name[what] : "?";
}

static uint64_t put(struct pipe *q, const uint8_t *p, uint64_t n)
{
	const uint64_t at = q->in, room = FK_PIPE - (at - q->out);

	n = n < room ? n : room;
	for (uint64_t i = 0; i < n;) {
		const uint64_t to = (at + i) % FK_PIPE;
		const uint64_t run = n - i < FK_PIPE - to ? n - i : FK_PIPE - to;

		memcpy(q->data + to, p + i, run);
		i += run;
	}
	q->in = at + n;
	return n;
}

static uint64_t get(struct pipe *q, uint8_t *p, uint64_t n)
{
	const uint64_t at = q->out, there = q->in - at;

	n = n < there ? n : there;
	for (uint64_t i = 0; i < n;) {
		const uint64_t from = (at + i) % FK_PIPE;
		const uint64_t run = n - i < FK_PIPE - from ? n - i : FK_PIPE - from;

		memcpy(p + i, q->data + from, run);
		i += run;
	}
	q->out = at + n;
	return n;
}

static void check(const struct ncclComm *c, const struct message *m, const struct head *said)
{
	if (said->what == m->head.what && said->bytes == m->head.bytes && said->n == m->head.n)
		return;
	fk_die("rank %u: %s number %llu takes %llu bytes from rank %u, which sends %llu of %s "
	       "number %llu", c->rank, fk_name_of(m->head.what), (unsigned long long)m->head.n,
	       (unsigned long long)m->head.bytes, m->peer, (unsigned long long)said->bytes,
	       fk_name_of((enum what)said->what),
	       (unsigned long long)said->n);
}

/* True: something moved. */
static bool move(struct ncclComm *c, struct message *m)
{
	struct shared *sh = c->sh;
	struct pipe *q = &sh->pipe[m->send ? c->rank * c->size + m->peer :
				   m->peer * c->size + c->rank];
	const uint64_t head = sizeof(m->head);
	uint64_t n = 0;

	if (m->done < head) {
		struct head said;

		if (m->send ? FK_PIPE - (q->in - q->out) < head : q->in - q->out < head)
			return false;
		if (m->send) {
			put(q, (const uint8_t *)&m->head, head);
		} else {
			get(q, (uint8_t *)&said, head);
			check(c, m, &said);
		}
		m->done = head;
	}
	if (m->done < head + m->head.bytes) {
		uint8_t *p = m->p + (m->done - head);
		const uint64_t left = head + m->head.bytes - m->done;

		n = m->send ? put(q, p, left) : get(q, p, left);
		if (!n)
			return false;
		m->done += n;
	}
	return true;
}

static bool is_over(const struct message *m)
{
	return m->done == sizeof(m->head) + m->head.bytes;
}

/* Of messages between one pair in one direction, the later ones wait. */
static bool is_first(const struct message *m, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (!is_over(&m[k]) && m[k].peer == m[i].peer && m[k].send == m[i].send)
			return false;
	return true;
}

void fk_pause(unsigned *idle)
{
	const struct timespec t = { 0, *idle < 200 ? 50000 : 500000 };

	if ((*idle)++ < 20)
		sched_yield();
	else
		nanosleep(&t, NULL);
}

bool fk_exchange(struct ncclComm *c, struct message *m, size_t count, enum what what,
		     uint64_t n)
{
	const double limit = (double)fk_env("FAKE_NCCL_TIMEOUT", 120);
	double since = fk_now();
	unsigned idle = 0;
	size_t left = count;

	for (size_t i = 0; i < count; i++) {
		m[i].head.what = what;
		m[i].head.n = n;
	}
	while (left && !c->sh->broken) {
		bool moved = false;

		left = 0;
		for (size_t i = 0; i < count; i++) {
			if (!is_over(&m[i]) && is_first(m, i))
				moved |= move(c, &m[i]);
			left += !is_over(&m[i]);
		}
		if (moved) {
			since = fk_now();
			idle = 0;
			continue;
		}
		if (!left)
			break;
		fk_pause(&idle);
		for (size_t i = 0; i < count && fk_now() - since > NEED_S; i++)
			if (!is_over(&m[i]))
				c->sh->wanted[m[i].peer] = 1;
		if (fk_now() - since > limit)
			fk_die("rank %u: %s number %llu: a rank has not come for %.0f s", c->rank,
			       fk_name_of(what), (unsigned long long)n, limit);
	}
	return !left;
}
