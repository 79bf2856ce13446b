/*
 * en_comm_tcp.c -- the table of collectives by TCP: each pair of ranks has a connection
 * (en_tcp_link.h), and chunks of operations (en_collective.h) go over them.
 */
#include "engine/comm/en_comm_tcp.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/comm/en_tcp.h"
#include "engine/comm/en_tcp_link.h"
#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define MOST_QUEUED ((size_t)64 << 20)	/* bytes of records to one rank */
#define LINGER_MS 1000

/* ---------------------------------------------------------------- the backend's part */

static int tcp_pump(struct en_transport *f, bool *moved, struct ckpt_err *err)
{
	struct en_tcp *c = en_tcp_of(f);
	int rc = 0;

	for (uint32_t p = 0; !rc && p < f->base.size; p++)
		rc = en_link_pull(c, p, moved, err);
	for (uint32_t p = 0; !rc && p < f->base.size; p++)
		en_link_push(c, p, moved);
	for (uint32_t p = 0; !rc && p < f->base.size; p++)
		if (p != f->base.rank && en_link_is_broken(&c->at[p]))
			rc = en_link_gone(f, err);
	return rc;
}

/* Each rank begins with its neighbour, so that not all send to one at once. */
static int tcp_post(struct en_transport *f, struct en_collective *w, struct ckpt_err *err)
{
	struct en_tcp *c = en_tcp_of(f);
	const struct en_early e = en_early_of(w, w->posted);
	int rc = 0;

	memset(en_link_state(w, w->posted, true, 0), EN_NONE, 2 * (size_t)w->size);
	for (uint32_t i = 1; !rc && i < w->size; i++) {
		const uint32_t from = (w->rank + w->size - i) % w->size;

		if (!en_collective_recv(w, w->posted, from))
			continue;
		*en_link_state(w, w->posted, true, from) = EN_POSTED;
		rc = en_link_queue(c, from, EN_READY, &e, err);
	}
	for (uint32_t p = 0; !rc && p < w->size; p++)
		if (en_collective_send(w, w->posted, p))
			rc = en_link_await(c, w, w->posted, p, err);
	return rc;
}

static bool tcp_is_open(const struct en_transport *f, const struct en_collective *w, uint32_t p,
			bool from)
{
	const uint8_t s = *en_link_state(w, w->done, from, p);

	(void)f;
	return s != EN_NONE && s != EN_DONE;
}

static int tcp_look(struct en_transport *f, struct en_collective *w, bool *moved,
		    uint32_t *left_out, struct ckpt_err *err)
{
	struct en_tcp *c = en_tcp_of(f);
	uint32_t left = 0;

	for (uint32_t i = 1; i < w->size; i++)
		en_link_push(c, (w->rank + i) % w->size, moved);
	for (uint32_t p = 0; p < w->size; p++) {
		const bool in = tcp_is_open(f, w, p, true), out = tcp_is_open(f, w, p, false);

		if ((in || out) && c->at[p].fd < 0)
			return en_link_gone(f, err);
		left += (uint32_t)in + out;
	}
	*left_out = left;
	return 0;
}

/* Until one of them has something, or takes something. */
static void tcp_nap(void *flow, long ns)
{
	struct en_tcp *c = flow;
	const struct timespec most = { .tv_nsec = ns };

	for (uint32_t p = 0; p < c->flow.base.size; p++)
		c->poll[p] = (struct pollfd){
			.fd = c->at[p].fd,
			.events = (short)(POLLIN | (en_link_has_output(c, p) ? POLLOUT : 0)),
		};
	ppoll(c->poll, c->flow.base.size, &most, NULL);
}

static const struct en_transport_ops flow_ops = {
	.own_bytes = 4,
	.pump = tcp_pump,
	.post = tcp_post,
	.look = tcp_look,
	.is_open = tcp_is_open,
	.nap = tcp_nap,
};

/* ---------------------------------------------------------------- beginning and end */

static void release(struct en_tcp *c)
{
	for (uint32_t p = 0; c->at && p < c->flow.base.size; p++) {
		en_tcp_close(&c->at[p].fd);
		ck_buf_release(&c->at[p].queue);
		ck_buf_release(&c->at[p].early);
	}
	ck_free(c->at);
	ck_free(c->poll);
	en_transport_release(&c->flow);
	ck_free(c);
}

/* A connection that is closed with bytes unread takes away what is still to be read from it. */
static void part(struct en_tcp *c, int64_t until)
{
	const uint32_t size = c->flow.base.size;
	uint8_t rest[256];

	for (uint32_t p = 0; p < size; p++)
		if (c->at[p].fd >= 0)
			shutdown(c->at[p].fd, SHUT_WR);
	for (uint32_t p = 0; p < size; p++)
		while (c->at[p].fd >= 0 && !en_tcp_read(c->at[p].fd, rest, 1, until))
			continue;
}

static int tcp_close(struct en_comm *comm, struct ckpt_err *err)
{
	struct en_tcp *c = en_tcp_of(en_transport_of(comm));
	const struct en_early nothing = { .number = 0 };
	bool moved;
	int rc = en_transport_end(comm, err);

	if (rc)
		return rc;
	for (uint32_t p = 0; p < comm->size; p++) {
		if (c->at[p].fd < 0)
			continue;
		rc = en_link_queue(c, p, EN_ENDED, &nothing, err);
		if (rc)
			return rc;
		en_link_push(c, p, &moved);
	}
	part(c, ck_clock_ms() + LINGER_MS);
	release(c);
	return 0;
}

/* The others hear why, if a record can be sent now: nothing is waited for. */
static void tcp_abort(struct en_comm *comm, int status)
{
	struct en_tcp *c = en_tcp_of(en_transport_of(comm));
	const char *why = c->told[0]        ? c->told :
			  comm->broken.code ? comm->broken.msg :
					      "it failed with an error of its own";
	const struct en_early e = { .chunk = ck_min_u64(strlen(why), EN_MOST_TEXT - 1) };
	uint8_t b[EN_RECORD];
	struct iovec text[2] = { { b, EN_RECORD }, { (void *)(uintptr_t)why, e.chunk } };

	(void)status;
	en_link_record(b, EN_LEAVING, &e);
	for (uint32_t p = 0; p < comm->size; p++) {
		struct en_link *at = &c->at[p];

		if (at->fd >= 0 && at->queued < at->queue.len)
			en_link_send_queue(c, p);
		if (at->fd >= 0 && !at->out_work && at->queued == at->queue.len)
			en_link_send(c, p, text, 2);
		if (at->fd >= 0)
			shutdown(at->fd, SHUT_WR);
	}
}

static void tcp_lost(struct en_comm *comm, char *text, size_t n)
{
	struct en_transport *f = en_transport_of(comm);
	struct en_tcp *c = en_tcp_of(f);
	uint32_t count = 0;
	bool moved;

	for (uint32_t p = 0; !comm->broken.code && p < comm->size; p++)
		en_link_pull(c, p, &moved, NULL);
	en_peer_lost(f->peer, comm->size, comm->rank, f->missing);
	for (uint32_t p = 0; p < comm->size; p++) {
		f->missing[p] = f->missing[p] || (p != comm->rank && en_link_is_broken(&c->at[p]));
		count += f->missing[p];
	}
	if (count)
		en_peer_list(f->peer, comm->size, comm->rank, f->missing, text, n);
}

/* Nothing is read: what came before the end may belong to an operation that was given up. */
static void tcp_gone(struct en_comm *comm, uint8_t *gone)
{
	struct en_tcp *c = en_tcp_of(en_transport_of(comm));
	const uint32_t size = comm->size;

	for (uint32_t p = 0; p < size; p++)
		c->poll[p] = (struct pollfd){ .fd = c->at[p].fd, .events = POLLRDHUP };
	if (poll(c->poll, size, 0) < 0)
		return;
	for (uint32_t p = 0; p < size; p++)
		gone[p] = p != comm->rank && !c->at[p].ended &&
			  (c->at[p].fd < 0 ||
			   (c->poll[p].revents & (POLLRDHUP | POLLHUP | POLLERR)));
}

static const struct en_comm_ops tcp_ops = {
	.name = "tcp",
	.all_gather = en_transport_all_gather,
	.reduce_scatter = en_transport_reduce_scatter,
	.all_reduce = en_transport_all_reduce,
	.broadcast = en_transport_broadcast,
	.barrier = en_transport_barrier,
	.test = en_transport_test,
	.wait = en_transport_wait,
	.close = tcp_close,
	.abort = tcp_abort,
	.lost = tcp_lost,
	.gone = tcp_gone,
};

static int allocate(struct en_tcp *c, struct ckpt_err *err)
{
	const uint32_t size = c->flow.base.size;

	c->at = ck_zalloc(size * sizeof(*c->at));
	c->poll = ck_alloc_array(size, sizeof(*c->poll));
	for (uint32_t p = 0; c->at && p < size; p++) {
		c->at[p].fd = -1;
		c->at[p].queue = (struct ck_buf)CK_BUF_INIT(MOST_QUEUED);
		c->at[p].early = (struct ck_buf)CK_BUF_INIT(MOST_QUEUED);
	}
	if (!c->at || !c->poll)
		return ck_fail_nomem(err, "connections of ranks", size * sizeof(*c->at));
	return en_transport_init(&c->flow, err);
}

static int join(struct en_tcp *c, const struct en_rendezvous *m, struct ckpt_err *err)
{
	const uint32_t ms = c->flow.base.timeout_ms;
	int *fd = ck_alloc_array(m->size, sizeof(*fd));
	int rc;

	if (!fd)
		return ck_fail_nomem(err, "connections of ranks", m->size * sizeof(*fd));
	for (uint32_t p = 0; p < m->size; p++)
		fd[p] = -1;
	rc = en_tcp_join(m, ms ? ck_clock_ms() + ms : INT64_MAX, ms, fd, err);
	for (uint32_t p = 0; p < m->size; p++)
		c->at[p].fd = fd[p];
	ck_free(fd);
	return rc;
}

int en_comm_tcp_open(const struct en_rendezvous *rendezvous, uint32_t timeout_ms,
		     struct en_comm **comm_out, struct ckpt_err *err)
{
	struct en_tcp *c;
	int rc;

	if (!rendezvous->size || rendezvous->rank >= rendezvous->size)
		return ck_fail(err, CKPT_E_USAGE, "TCP", CKPT_NO_OFFSET, "rank %u of %u",
			       rendezvous->rank, rendezvous->size);
	c = ck_zalloc(sizeof(*c));
	if (!c)
		return ck_fail_nomem(err, "collectives by TCP", sizeof(*c));
	c->flow.ops = &flow_ops;
	c->flow.base = (struct en_comm){
		.ops = &tcp_ops,
		.timeout_ms = timeout_ms,
		.rank = rendezvous->rank,
		.size = rendezvous->size,
	};
	rc = allocate(c, err);
	if (!rc && rendezvous->size > 1)
		rc = join(c, rendezvous, err);
	if (!rc)
		rc = en_transport_exchange_peers(&c->flow, err);
	if (rc)
		release(c);
	else
		*comm_out = &c->flow.base;
	return rc;
}
