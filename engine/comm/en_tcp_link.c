/* en_tcp_link.c -- see en_tcp_link.h. */
#include "engine/comm/en_tcp_link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/comm/en_tcp.h"
#include "libckpt/base/ck_err.h"

/* ---------------------------------------------------------------- failing */

static void give_up(struct en_tcp *c, uint32_t p, const char *why)
{
	struct en_link *at = &c->at[p];

	en_tcp_close(&at->fd);
	if (!at->why[0])
		snprintf(at->why, sizeof(at->why), "%s", why);
}

int en_link_gone(struct en_transport *f, struct ckpt_err *err)
{
	const struct en_collective *w = f->active;
	struct en_tcp *c = en_tcp_of(f);
	const char *why = "connection closed";
	const struct timespec dying = { .tv_nsec = 20000000 };
	char who[360], in[120] = "";

	/* connections of a process that is killed are closed before it is gone */
	nanosleep(&dying, NULL);
	for (uint32_t p = f->base.size; p-- > 0;) {
		f->missing[p] = p != f->base.rank && c->at[p].fd < 0 && !c->at[p].left;
		if (f->missing[p])
			why = c->at[p].why;
	}
	en_peer_list(f->peer, f->base.size, f->base.rank, f->missing, who, sizeof(who));
	while (w && w->done == w->nchunks)
		w = w->next;
	if (w)
		snprintf(in, sizeof(in), ", in %s number %llu (%llu of %llu chunks done)", w->what,
			 (unsigned long long)w->number, (unsigned long long)w->done,
			 (unsigned long long)w->nchunks);
	return en_transport_fail(f, err, "lost connection to %s: %s%s", who, why, in);
}

static int fail_left(struct en_tcp *c, uint32_t p, struct ckpt_err *err)
{
	struct en_transport *f = &c->flow;
	const char *why = c->at[p].why;

	if (!c->told[0])
		snprintf(c->told, sizeof(c->told), "%s", why);
	return en_transport_fail(f, err, "rank %u gave up: %s", p, why);
}

static int fail_apart(struct en_transport *f, const struct en_collective *w, uint32_t p,
		      const struct en_early *e, struct ckpt_err *err)
{
	if (e->kind != (uint32_t)w->kind)
		return en_transport_fail(
			f, err,
			"%s number %llu: rank %u issued a %s; the ranks do not run the same step",
			w->what, (unsigned long long)w->number, p,
			en_comm_kind_name((enum en_comm_kind)e->kind));
	return en_transport_fail(f, err,
				 "%s number %llu: %llu bytes from rank %u, expected %llu; the "
				 "ranks do not run the same step",
				 w->what, (unsigned long long)w->number,
				 (unsigned long long)e->bytes, p, (unsigned long long)w->bytes);
}

/* ---------------------------------------------------------------- records */

void en_link_record(uint8_t *b, enum en_record kind, const struct en_early *e)
{
	ck_put_le32(b, (uint32_t)kind);
	ck_put_le32(b + 4, e->kind);
	ck_put_le64(b + 8, e->number);
	ck_put_le64(b + 16, e->chunk);
	ck_put_le64(b + 24, e->bytes);
}

int en_link_queue(struct en_tcp *c, uint32_t p, enum en_record kind, const struct en_early *e,
		  struct ckpt_err *err)
{
	uint8_t b[EN_RECORD];
	struct en_link *at = &c->at[p];

	if (at->queued == at->queue.len)
		at->queued = at->queue.len = 0;
	en_link_record(b, kind, e);
	if (ck_buf_add(&at->queue, b, sizeof(b), NULL))
		return en_transport_fail(&c->flow, err, "no memory for messages to rank %u", p);
	return 0;
}

static struct en_collective *find(const struct en_transport *f, uint64_t number)
{
	struct en_collective *w = f->active;

	while (w && w->number != number)
		w = w->next;
	return w;
}

/* It has room for a chunk: of now, or of later. */
static int take_ready(struct en_tcp *c, uint32_t p, const struct en_early *e, struct ckpt_err *err)
{
	struct en_transport *f = &c->flow;
	struct en_collective *w = find(f, e->number);

	if (w && (e->kind != (uint32_t)w->kind || e->bytes != w->bytes))
		return fail_apart(f, w, p, e, err);
	if (w && e->chunk >= w->done && e->chunk < w->posted &&
	    *en_link_state(w, e->chunk, false, p) == EN_POSTED) {
		*en_link_state(w, e->chunk, false, p) = EN_CLEARED;
		return 0;
	}
	if ((w && e->chunk < w->posted) || (!w && e->number < f->number))
		return en_transport_fail(f, err,
					 "rank %u requests chunk %llu of operation %llu again; the "
					 "ranks do not run the same step",
					 p, (unsigned long long)e->chunk,
					 (unsigned long long)e->number);
	if (ck_buf_add(&c->at[p].early, e, sizeof(*e), NULL))
		return en_transport_fail(f, err, "no memory for requests of rank %u", p);
	return 0;
}

/* Was it ready before this rank?  Then that is forgotten. */
int en_link_await(struct en_tcp *c, struct en_collective *w, uint64_t chunk, uint32_t p,
		  struct ckpt_err *err)
{
	struct ck_buf *buf = &c->at[p].early;
	struct en_early *e = (struct en_early *)(void *)buf->p;
	size_t n = buf->len / sizeof(*e);

	*en_link_state(w, chunk, false, p) = EN_POSTED;
	for (size_t i = 0; i < n; i++) {
		if (e[i].number != w->number || e[i].chunk != chunk)
			continue;
		if (e[i].kind != (uint32_t)w->kind || e[i].bytes != w->bytes)
			return fail_apart(&c->flow, w, p, &e[i], err);
		*en_link_state(w, chunk, false, p) = EN_CLEARED;
		memmove(e + i, e + i + 1, (n - i - 1) * sizeof(*e));
		buf->len -= sizeof(*e);
		return 0;
	}
	return 0;
}

/* ---------------------------------------------------------------- out */

/* The oldest chunk that rank p has room for: the place where memory is handed over, and counted. */
static bool pick(struct en_tcp *c, uint32_t p)
{
	struct en_link *at = &c->at[p];

	for (struct en_collective *w = c->flow.active; w; w = w->next) {
		for (uint64_t chunk = w->done; chunk < w->posted; chunk++) {
			const struct en_early e = en_early_of(w, chunk);

			if (*en_link_state(w, chunk, false, p) != EN_CLEARED)
				continue;
			*en_link_state(w, chunk, false, p) = EN_MOVING;
			en_link_record(at->head, EN_CHUNK, &e);
			at->head_left = EN_RECORD;
			at->out = en_collective_send(w, chunk, p);
			at->out_left = en_collective_bytes(w, chunk);
			at->out_work = w;
			at->out_chunk = chunk;
			c->flow.base.counter[w->kind].messages++;
			c->flow.base.counter[w->kind].sent += at->out_left;
			return true;
		}
	}
	return false;
}

size_t en_link_send(struct en_tcp *c, uint32_t p, struct iovec *part, size_t n)
{
	const struct msghdr m = { .msg_iov = part, .msg_iovlen = n };
	ssize_t done;

	do
		done = sendmsg(c->at[p].fd, &m, MSG_NOSIGNAL);
	while (done < 0 && errno == EINTR);
	if (done >= 0)
		return (size_t)done;
	/* what it said before may still be read, and says more */
	if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EPIPE && errno != ECONNRESET)
		give_up(c, p, strerror(errno));
	return 0;
}

static bool send_chunk(struct en_tcp *c, uint32_t p)
{
	struct en_link *at = &c->at[p];
	struct iovec part[2] = {
		{ at->head + EN_RECORD - at->head_left, at->head_left },
		{ (void *)(uintptr_t)at->out, at->out_left },
	};
	size_t done = en_link_send(c, p, part, 2), head;

	if (!done)
		return false;
	head = done < at->head_left ? done : at->head_left;
	at->head_left -= head;
	at->out += done - head;
	at->out_left -= done - head;
	if (!at->head_left && !at->out_left) {
		*en_link_state(at->out_work, at->out_chunk, false, p) = EN_DONE;
		at->out_work = NULL;
	}
	return true;
}

bool en_link_send_queue(struct en_tcp *c, uint32_t p)
{
	struct en_link *at = &c->at[p];
	struct iovec part = { at->queue.p + at->queued, at->queue.len - at->queued };
	const size_t done = en_link_send(c, p, &part, 1);

	at->queued += done;
	return done;
}

bool en_link_has_output(struct en_tcp *c, uint32_t p)
{
	const struct en_link *at = &c->at[p];

	return at->fd >= 0 && (at->out_work || at->queued < at->queue.len || pick(c, p));
}

void en_link_push(struct en_tcp *c, uint32_t p, bool *moved)
{
	while (en_link_has_output(c, p)) {
		if (!(c->at[p].out_work ? send_chunk(c, p) : en_link_send_queue(c, p)))
			return;
		*moved = true;
	}
}

/* ---------------------------------------------------------------- in */

static int begin_chunk(struct en_tcp *c, uint32_t p, const struct en_early *e, struct ckpt_err *err)
{
	struct en_collective *w = find(&c->flow, e->number);
	struct en_link *at = &c->at[p];

	if (!w || e->chunk < w->done || e->chunk >= w->posted ||
	    *en_link_state(w, e->chunk, true, p) != EN_POSTED)
		return en_transport_fail(
			&c->flow, err,
			"rank %u sent chunk %llu of operation %llu without a request", p,
			(unsigned long long)e->chunk, (unsigned long long)e->number);
	if (e->kind != (uint32_t)w->kind || e->bytes != w->bytes)
		return fail_apart(&c->flow, w, p, e, err);
	*en_link_state(w, e->chunk, true, p) = EN_MOVING;
	at->in = en_collective_recv(w, e->chunk, p);
	at->in_left = en_collective_bytes(w, e->chunk);
	at->in_work = w;
	at->in_chunk = e->chunk;
	return 0;
}

static int begin_record(struct en_tcp *c, uint32_t p, struct ckpt_err *err)
{
	struct en_link *at = &c->at[p];
	const struct en_early e = {
		.number = ck_le64(at->record + 8), .chunk = ck_le64(at->record + 16),
		.bytes = ck_le64(at->record + 24), .kind = ck_le32(at->record + 4),
	};

	at->have = 0;
	switch (ck_le32(at->record)) {
	case EN_READY:
		return take_ready(c, p, &e, err);
	case EN_CHUNK:
		return begin_chunk(c, p, &e, err);
	case EN_LEAVING:
		at->in_text = true;
		at->in = (uint8_t *)at->why;
		at->in_left = ck_min_u64(e.chunk, sizeof(at->why) - 1);
		return 0;
	case EN_ENDED:
		at->ended = true;
		return 0;
	default:
		return en_transport_fail(&c->flow, err, "rank %u sent an unknown record (%u)", p,
					 ck_le32(at->record));
	}
}

static int end_input(struct en_tcp *c, uint32_t p, struct ckpt_err *err)
{
	struct en_link *at = &c->at[p];
	struct en_collective *w = at->in_work;

	if (at->in_text) {
		at->left = true;
		en_tcp_close(&at->fd);
		return fail_left(c, p, err);
	}
	if (w) {
		*en_link_state(w, at->in_chunk, true, p) = EN_DONE;
		c->flow.base.counter[w->kind].received += en_collective_bytes(w, at->in_chunk);
		at->in_work = NULL;
	}
	return 0;
}

int en_link_pull(struct en_tcp *c, uint32_t p, bool *moved, struct ckpt_err *err)
{
	struct en_link *at = &c->at[p];
	int rc = 0;

	while (!rc && at->fd >= 0) {
		const bool inside = at->in_work || at->in_text;
		ssize_t n = 0;

		if (!inside)
			n = recv(at->fd, at->record + at->have, EN_RECORD - at->have, 0);
		else if (at->in_left)
			n = recv(at->fd, at->in, at->in_left, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return 0;
		if (n < 0 || (!n && (!inside || at->in_left))) {
			at->why[at->in_text ? sizeof(at->why) - 1 : 0] = '\0';
			give_up(c, p, n < 0 ? strerror(errno) : "connection closed");
			return 0;
		}
		*moved = true;
		if (inside) {
			at->in += n;
			at->in_left -= (size_t)n;
			if (!at->in_left)
				rc = end_input(c, p, err);
		} else {
			at->have += (size_t)n;
			if (at->have == EN_RECORD)
				rc = begin_record(c, p, err);
			if (!rc && (at->in_work || at->in_text) && !at->in_left)
				rc = end_input(c, p, err);
		}
	}
	return rc;
}
