/*
 * en_tcp_accept.c -- see en_tcp.h: accepts connections, of ranks and of strangers.
 *
 * All of them are polled together, each with a deadline of its own, so a silent one delays no
 * rank.  Only a rank that has proved that it knows the secret takes a place.  A refused connection
 * does not end the job, whatever the reason.
 */
#include "engine/comm/en_tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define GUESTS 512u		/* connections without a proof; one more closes the oldest */
#define GUEST_MS 5000		/* for hello and proof */
#define NAMED 8u		/* ranks that a sentence lists */
#define LINES 5u		/* logged at once, then one in LINE_MS */
#define LINE_MS 10000

int en_join_fail(const struct en_join *j, struct ckpt_err *err, enum ckpt_code code,
		 const char *fmt, ...)
{
	char where[48], text[sizeof(err->msg)];
	va_list ap;

	snprintf(where, sizeof(where), "rank %u of %u", j->m->rank, j->m->size);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return ck_fail(err, code, where, CKPT_NO_OFFSET, "%s", text);
}

void en_join_say(struct en_join *j, const char *fmt, ...)
{
	const int64_t now = ck_clock_ms();
	char line[640];
	size_t n;
	va_list ap;

	if (!j->m->say)
		return;
	if (j->lines_logged >= LINES && now - j->logged_at < LINE_MS) {
		j->lines_dropped++;
		return;
	}
	n = (size_t)snprintf(line, sizeof(line), "rank %u of %u: ", j->m->rank, j->m->size);
	va_start(ap, fmt);
	vsnprintf(line + n, sizeof(line) - n, fmt, ap);
	va_end(ap);
	n = strlen(line);
	if (j->lines_dropped)
		snprintf(line + n, sizeof(line) - n, " (and %u more lines like this)",
			 j->lines_dropped);
	j->m->say(line);
	j->lines_logged++;
	j->lines_dropped = 0;
	j->logged_at = now;
}

/* "ranks 2, 3 and 5 more": those above 'from' without a connection. */
static void list_absent(const struct en_join *j, uint32_t from, char *text, size_t n)
{
	uint32_t count = 0, named = 0;
	size_t have;

	for (uint32_t r = from; r < j->m->size; r++)
		count += r != j->m->rank && j->fd[r] < 0;
	snprintf(text, n, "rank%s", count == 1 ? "" : "s");
	for (uint32_t r = from; r < j->m->size && named < NAMED; r++) {
		if (r == j->m->rank || j->fd[r] >= 0)
			continue;
		have = strlen(text);
		snprintf(text + have, n - have, "%s %u", named++ ? "," : "", r);
	}
	have = strlen(text);
	if (count > named)
		snprintf(text + have, n - have, " and %u more", count - named);
}

int64_t en_join_soon(const struct en_join *j, int64_t ms)
{
	const int64_t t = ck_clock_ms() + ms;

	return t < j->until ? t : j->until;
}

/* ---------------------------------------------------------------- one who came */

struct guest {
	int fd;
	int64_t until;
	bool proves;		/* its hello was heard */
	size_t have;		/* bytes of the hello, or of the proof */
	struct en_hello hello;
	uint8_t talk[EN_HELLO + EN_REPLY];
	uint8_t proof[EN_PROOF];
	uint8_t session[EN_TAG];
};

/* The oldest first. */
struct pending {
	struct guest guest[GUESTS];
	uint32_t n;
	struct pollfd poll[GUESTS + EN_LISTEN_MOST];
};

static bool is_alive(int fd)
{
	char byte;
	const ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
}

/* Close it; 'why' is for the log. */
static void reject(struct en_join *j, struct guest *g, const char *why)
{
	union en_address from;
	char at[64] = "an unknown address";

	if (!en_address_of(g->fd, &from))
		en_address_text(&from, at, sizeof(at));
	j->strangers++;
	snprintf(j->last, sizeof(j->last), "%s%s, from %s", strncmp(why, "it ", 3) ? "" :
		 "the last one ", why + (strncmp(why, "it ", 3) ? 0 : 3), at);
	en_join_say(j, "refused a connection from %s: %s", at, why);
	en_tcp_close(&g->fd);
}

/* An answer is smaller than what any system takes at once. */
static int answer(const struct en_join *j, const struct guest *g, enum en_said said, bool is_signed,
		  const char *why)
{
	struct en_reply r = { .said = said, .kind = j->kind };
	uint8_t b[EN_REPLY];
	int rc = 0;

	snprintf(r.why, sizeof(r.why), "%s", why);
	en_reply_write(&r, b);
	if (is_signed)
		rc = en_reply_sign(g->session, 1, b);
	return rc ? rc : en_tcp_write(g->fd, b, sizeof(b), ck_clock_ms());
}

static void refuse(struct en_join *j, struct guest *g, enum en_said said, bool is_signed,
		   const char *why)
{
	answer(j, g, said, is_signed, why);
	reject(j, g, why);
}

/* The hello is whole: ask for a proof, or refuse. */
static void take_hello(struct en_join *j, struct guest *g)
{
	struct en_reply r = { .said = EN_PROVE, .kind = j->kind };
	char why[EN_WHY];
	int rc;

	if (en_hello_read(g->talk, &g->hello)) {
		reject(j, g, "not a rank of ztrain, or of another version");
		return;
	}
	if (g->hello.job != j->m->job) {
		refuse(j, g, EN_OTHER_JOB, false, "it belongs to another job");
		return;
	}
	if (g->hello.kind != j->kind) {
		snprintf(why, sizeof(why),
			 "rank %u has %s, rank %u has %s: all ranks need the same secret",
			 g->hello.rank, en_secret_name(g->hello.kind), j->m->rank,
			 en_secret_name(j->kind));
		refuse(j, g, EN_REFUSED, false, why);
		return;
	}
	if (g->hello.at != j->listener.port) {
		snprintf(why, sizeof(why),
			 "rank %u connected to port %u, but rank %u listens at port %u: "
			 "connections are forwarded",
			 g->hello.rank, g->hello.at, j->m->rank, j->listener.port);
		refuse(j, g, EN_REFUSED, false, why);
		return;
	}
	rc = en_secret_random(r.nonce, sizeof(r.nonce));
	en_reply_write(&r, g->talk + EN_HELLO);
	if (!rc)
		rc = en_session_of(j->key, g->talk, g->session);
	if (!rc)
		rc = en_tcp_write(g->fd, g->talk + EN_HELLO, EN_REPLY, ck_clock_ms());
	if (rc)
		reject(j, g, strerror(-rc));
	g->proves = true;
	g->have = 0;
}

/* What is wrong with a rank that has proved itself; true if nothing is. */
static bool is_acceptable(const struct en_join *j, const struct en_hello *h, char why[EN_WHY])
{
	if (h->size != j->m->size) {
		snprintf(why, EN_WHY,
			 "rank %u was started as one of %u ranks, rank %u as one of %u", h->rank,
			 h->size, j->m->rank, j->m->size);
		return false;
	}
	if (h->rank <= j->m->rank || h->rank >= h->size || h->to != j->m->rank) {
		snprintf(why, EN_WHY,
			 "rank %u connected to rank %u of %u: that rank is already connected",
			 h->rank, j->m->rank, h->size);
		return false;
	}
	if (j->fd[h->rank] >= 0 && is_alive(j->fd[h->rank])) {
		snprintf(why, EN_WHY,
			 "rank %u was started twice: it already runs as process %lld on %.63s",
			 h->rank, (long long)j->who[h->rank].pid, j->who[h->rank].host);
		return false;
	}
	return true;
}

/* It is a rank, and takes its place. */
static void take_place(struct en_join *j, struct guest *g)
{
	const uint32_t rank = g->hello.rank;

	if (en_address_of(g->fd, &j->place[rank]) || answer(j, g, EN_WELCOME, true, "")) {
		en_tcp_close(&g->fd);
		return;
	}
	en_address_port(&j->place[rank], (uint16_t)g->hello.port);
	j->who[rank].pid = g->hello.pid;
	memcpy(j->who[rank].host, g->hello.host, sizeof(j->who[rank].host));
	memcpy(j->session[rank], g->session, EN_TAG);
	en_tcp_close(&j->fd[rank]);
	j->fd[rank] = g->fd;
	g->fd = -1;
}

static void take_proof(struct en_join *j, struct guest *g)
{
	uint8_t tag[EN_TAG], want[EN_TAG];
	char why[EN_WHY];

	if (en_proof_read(g->proof, tag) || en_proof_of(g->session, want) ||
	    !en_secret_same(tag, want)) {
		snprintf(why, sizeof(why), "wrong secret (rank %u has %s)", j->m->rank,
			 en_secret_name(j->kind));
		refuse(j, g, EN_REFUSED, false, why);
	} else if (!is_acceptable(j, &g->hello, why)) {
		refuse(j, g, EN_REFUSED, true, why);
	} else {
		take_place(j, g);
	}
}

/* What it sends. */
static void read_guest(struct en_join *j, struct guest *g)
{
	uint8_t *to = g->proves ? g->proof : g->talk;
	const size_t all = g->proves ? EN_PROOF : EN_HELLO;
	const ssize_t n = recv(g->fd, to + g->have, all - g->have, 0);

	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return;
	if (n <= 0) {
		reject(j, g, g->proves ? "it closed the connection before its proof" :
			 "it closed the connection before its hello was complete");
		return;
	}
	g->have += (size_t)n;
	if (!g->proves && g->have >= 8 && !en_hello_begins(g->talk))
		reject(j, g, "not a rank of ztrain, or of another version");
	if (g->have < all || g->fd < 0)
		return;
	if (g->proves)
		take_proof(j, g);
	else
		take_hello(j, g);
}

/* ---------------------------------------------------------------- all of them */

static void remove_closed(struct pending *d)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < d->n; i++) {
		if (d->guest[i].fd < 0)
			continue;
		if (n != i)
			d->guest[n] = d->guest[i];
		n++;
	}
	d->n = n;
}

static void drop_oldest(struct en_join *j, struct pending *d)
{
	reject(j, &d->guest[0], "too many connections without a proof; this was the oldest");
	remove_closed(d);
}

/* All connections that wait at one address. */
static int accept_waiting(struct en_join *j, struct pending *d, int listener)
{
	for (;;) {
		int fd = -1, rc = en_tcp_accept(listener, &fd);

		/* closed by the other side before it was accepted */
		if (rc == -ECONNABORTED)
			continue;
		if ((rc == -EMFILE || rc == -ENFILE || rc == -ENOBUFS || rc == -ENOMEM) && d->n) {
			drop_oldest(j, d);
			continue;
		}
		if (rc)
			return rc == -EAGAIN || rc == -EWOULDBLOCK ? 0 : rc;
		if (d->n == GUESTS)
			drop_oldest(j, d);
		d->guest[d->n++] = (struct guest){
			.fd = fd, .until = ck_clock_ms() + GUEST_MS,
		};
	}
}

static int poll_once(struct en_join *j, struct pending *d)
{
	const uint32_t n = d->n;
	int64_t until = j->until, left;
	int rc = 0;

	for (uint32_t i = 0; i < n; i++) {
		d->poll[i] = (struct pollfd){ .fd = d->guest[i].fd, .events = POLLIN };
		until = until < d->guest[i].until ? until : d->guest[i].until;
	}
	for (unsigned i = 0; i < j->listener.n; i++)
		d->poll[n + i] = (struct pollfd){ .fd = j->listener.fd[i], .events = POLLIN };
	left = until - ck_clock_ms();
	poll(d->poll, n + j->listener.n, left < 0 ? 0 : left > 1000 ? 1000 : (int)left + 1);
	for (uint32_t i = 0; i < n; i++) {
		if (d->poll[i].revents)
			read_guest(j, &d->guest[i]);
		if (d->guest[i].fd >= 0 && ck_clock_ms() >= d->guest[i].until)
			reject(j, &d->guest[i], d->guest[i].proves ?
				 "it sent no proof in time" : "it sent no hello in time");
	}
	remove_closed(d);
	for (unsigned i = 0; !rc && i < j->listener.n; i++)
		if (d->poll[n + i].revents)
			rc = accept_waiting(j, d, j->listener.fd[i]);
	return rc;
}

static uint32_t absent(const struct en_join *j)
{
	uint32_t n = 0;

	for (uint32_t r = j->m->rank + 1; r < j->m->size; r++)
		n += j->fd[r] < 0;
	return n;
}

static int fail_absent(const struct en_join *j, struct ckpt_err *err)
{
	char who[160], others[sizeof(j->last) + 80] = "", at[200];

	list_absent(j, j->m->rank + 1, who, sizeof(who));
	en_listener_text(&j->listener, at, sizeof(at));
	if (j->strangers)
		snprintf(others, sizeof(others), "; %u connection%s refused: %s", j->strangers,
			 j->strangers == 1 ? " was" : "s were", j->last);
	return en_join_fail(j, err, CKPT_E_IO,
			    "%s did not connect to port %u within %g s%s; check that each rank is "
			    "started and reaches this host as \"%s\" (%s)",
			    who, j->listener.port, j->timeout_ms / 1000.0, others, j->m->host, at);
}

int en_join_accept(struct en_join *j, struct ckpt_err *err)
{
	struct pending *d = ck_zalloc(sizeof(*d));
	int rc = 0;

	if (!d)
		return ck_fail_nomem(err, "connections of ranks", sizeof(*d));
	while (!rc && absent(j) && ck_clock_ms() < j->until)
		rc = poll_once(j, d);
	for (uint32_t i = 0; i < d->n; i++)
		en_tcp_close(&d->guest[i].fd);
	ck_free(d);
	if (rc)
		return en_join_fail(j, err, CKPT_E_IO, "accept failed: %s", strerror(-rc));
	return absent(j) ? fail_absent(j, err) : 0;
}
