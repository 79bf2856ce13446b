/*
 * en_tcp_join.c -- see en_tcp.h: ranks that know where rank 0 is, and no more, get a connection
 * each to each.
 *
 *	rank 0   listens, lets each other rank in that knows the secret (en_hello.h); when all are
 *	         there, it sends each one a second reply and the book: where every rank listens
 *	rank r   listens at a port of its own, comes to rank 0 and waits for the book; then it comes
 *	         to ranks 1 .. r - 1 the same way, and lets those above in
 *
 *	book, 24 bytes for each rank, numbers little-endian
 *	 0  4: 4, 6, or 0 for "the host of rank 0, as you see it"
 *	 4  4: port
 *	 8  16: address, as the network has it
 *	after the last one 32 bytes: the tag of all of it
 */
#include "engine/comm/en_tcp.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define PLACE 24u
#define CONNECT_MS 5000
#define ANSWER_MS 10000
#define NAME_MS 30000		/* for a name that is not known yet */
#define GRACE_MS 3000		/* rank 0 says first who did not come */

/* ---------------------------------------------------------------- the key */

/* Of a secret that this rank has; of EN_SECRET_HOST rank 0 makes it, and the others read it. */
static int own_key(struct en_join *j, struct ckpt_err *err)
{
	const struct en_secret *s = j->m->secret;
	int rc;

	j->kind = s ? s->kind : EN_SECRET_NONE;
	if (j->kind == EN_SECRET_HOST)
		return 0;
	rc = en_key_of(s ? s->bytes : (const uint8_t *)"", s ? s->n : 0, j->m->job, j->key);
	j->has_key = !rc;
	return rc ? en_join_fail(j, err, CKPT_E_IO, "HMAC-SHA256 of libcrypto failed") : 0;
}

/* ---------------------------------------------------------------- rank 0 */

static int bind_here(struct en_join *j, uint16_t port)
{
	const int family = strchr(j->m->host, ':') ? AF_INET6 : AF_INET;
	union en_address at[EN_LISTEN_MOST];
	unsigned n;

	if (j->m->local)
		return en_listener_loopback(&j->listener, family, port);
	n = en_listener_addresses(j->m->host, at);
	return n ? en_listener_bind(&j->listener, at, n, port) :
	       en_listener_any(&j->listener, port);
}

/* The secret of EN_SECRET_HOST is there before the first one can come. */
static int make_key(struct en_join *j)
{
	uint8_t secret[EN_TAG];
	int rc;

	if (j->has_key)
		return 0;
	en_secret_path(j->m->secret, j->m->job, j->listener.port, j->path, sizeof(j->path));
	rc = en_secret_write(j->path, secret);
	if (rc) {
		j->path[0] = '\0';
		return rc;
	}
	return en_key_of(secret, sizeof(secret), j->m->job, j->key);
}

static void drop_key(struct en_join *j)
{
	if (j->path[0])
		en_secret_remove(j->m->secret, j->path);
	j->path[0] = '\0';
}

static int listen_at(struct en_join *j, uint16_t port)
{
	int rc = bind_here(j, port);

	if (!rc)
		rc = make_key(j);
	if (!rc)
		rc = en_listener_listen(&j->listener);
	if (rc)
		drop_key(j);
	return rc;
}

static int find_port(struct en_join *j, struct ckpt_err *err)
{
	const unsigned last = j->m->port + j->m->ports - 1u;
	int rc = -EADDRINUSE;

	for (uint16_t i = 0; rc == -EADDRINUSE && i < j->m->ports; i++)
		rc = listen_at(j, (uint16_t)(j->m->port + i));
	if (!rc)
		return 0;
	if (rc == -EADDRINUSE && j->m->ports == 1)
		return en_join_fail(j, err, CKPT_E_IO,
				    "rendezvous port %u is in use, perhaps by another job; choose "
				    "a different one (MASTER_PORT, ZTRAIN_PORT)",
				    j->m->port);
	return en_join_fail(j, err, CKPT_E_IO, "cannot listen at any port from %u to %u: %s",
			    j->m->port, last, strerror(-rc));
}

/* Whoever can reach the port. */
static void say_open(struct en_join *j)
{
	char at[200];

	if (j->kind != EN_SECRET_NONE)
		return;
	en_listener_text(&j->listener, at, sizeof(at));
	en_join_say(j,
		    "ranks connect at %s without a secret: anyone who reaches that port can pose "
		    "as a rank; %s (docs/ztrain/rendezvous.md)",
		    at,
		    en_secret_is_built() ? "set ZTRAIN_SECRET or ZTRAIN_SECRET_FILE for all ranks" :
					   "rebuild with libcrypto to use a secret");
}

static void write_book(const struct en_join *j, uint8_t *book)
{
	for (uint32_t r = 1; r < j->m->size; r++) {
		const union en_address *a = &j->place[r];
		const bool six = a->any.sa_family == AF_INET6;
		uint8_t *b = book + (size_t)r * PLACE;

		ck_put_le32(b, en_address_is_loopback(a) ? 0 : six ? 6 : 4);
		ck_put_le32(b + 4, en_address_port_of(a));
		if (six)
			memcpy(b + 8, &a->v6.sin6_addr, 16);
		else
			memcpy(b + 8, &a->v4.sin_addr, 4);
	}
}

/* The second reply to a rank. */
static int reply(const struct en_join *j, uint32_t r, enum en_said said, const char *why,
		 int64_t until)
{
	struct en_reply a = { .said = said, .kind = j->kind };
	uint8_t b[EN_REPLY];
	int rc;

	snprintf(a.why, sizeof(a.why), "%s", why);
	en_reply_write(&a, b);
	rc = en_reply_sign(j->session[r], 2, b);
	return rc ? rc : en_tcp_write(j->fd[r], b, sizeof(b), until);
}

static int send_book(struct en_join *j, const uint8_t *book, struct ckpt_err *err)
{
	const size_t n = (size_t)j->m->size * PLACE;
	uint8_t tag[EN_TAG];

	for (uint32_t r = 1; r < j->m->size; r++) {
		int rc = reply(j, r, EN_WELCOME, "", en_join_soon(j, ANSWER_MS));

		if (!rc)
			rc = en_tcp_write(j->fd[r], book, n, j->until);
		if (!rc)
			rc = en_secret_tag(j->session[r], EN_TAG, "book", book, n, tag);
		if (!rc)
			rc = en_tcp_write(j->fd[r], tag, sizeof(tag), j->until);
		if (rc)
			return en_join_fail(
				j, err, CKPT_E_IO,
				"rank %u (process %lld on %.63s) left during the rendezvous: %s", r,
				(long long)j->who[r].pid, j->who[r].host, strerror(-rc));
	}
	return 0;
}

/* Those who wait hear why it is in vain. */
static void send_away(struct en_join *j, const struct ckpt_err *err)
{
	const int64_t until = ck_clock_ms() + GRACE_MS;
	char why[EN_WHY];

	snprintf(why, sizeof(why), "%.*s", (int)sizeof(why) - 1, err->msg);
	for (uint32_t r = 1; r < j->m->size; r++)
		if (j->fd[r] >= 0)
			reply(j, r, EN_REFUSED, why, until);
}

static int as_host(struct en_join *j, struct ckpt_err *err)
{
	uint8_t *book = ck_zalloc((size_t)j->m->size * PLACE);
	struct ckpt_err why = { 0 };
	int rc;

	if (!book)
		return ck_fail_nomem(err, "addresses of ranks", (uint64_t)j->m->size * PLACE);
	rc = find_port(j, &why);
	if (!rc) {
		say_open(j);
		rc = en_join_accept(j, &why);
	}
	/* all others have the key now, or the rendezvous has failed */
	drop_key(j);
	if (!rc) {
		write_book(j, book);
		rc = send_book(j, book, &why);
	}
	if (rc) {
		send_away(j, &why);
		if (err)
			*err = why;
	}
	ck_free(book);
	return rc;
}

/* ---------------------------------------------------------------- the others, at rank 0 */

/* Where the others can reach this rank: at the address that it has on its way to rank 0. */
static int listen_at_own(struct en_join *j, int fd)
{
	union en_address own;
	int rc = en_address_own(fd, &own);

	if (rc)
		return rc;
	if (j->m->local)
		rc = en_listener_loopback(&j->listener, own.any.sa_family, 0);
	else if (en_address_is_loopback(&own))
		rc = en_listener_any(&j->listener, 0);
	else
		rc = en_listener_bind(&j->listener, &own, 1, 0);
	return rc ? rc : en_listener_listen(&j->listener);
}

/* Not a rank of this job, as it seems; but the answer is not proven, so the rank tries again. */
static int note_refusal(struct en_join *j, const char *at, const struct en_heard *heard, int rc)
{
	if (rc == -EPROTO)
		snprintf(j->last, sizeof(j->last),
			 "at %s a program answers that is not ztrain, or not of this job", at);
	else if (rc == -ETIMEDOUT && j->last[0])
		return 1;	/* time is up: no news after what was heard */
	else if (rc)
		snprintf(j->last, sizeof(j->last), "at %s: %s", at, rc == -EPIPE ?
			 "the connection was closed" : strerror(-rc));
	else if (heard->said == EN_OTHER_JOB)
		snprintf(j->last, sizeof(j->last), "at %s another job answers", at);
	else
		snprintf(j->last, sizeof(j->last), "at %s: %s", at, heard->why);
	if (!rc && heard->said == EN_REFUSED && !j->lines_logged)
		en_join_say(j, "refused %s; retrying", j->last);
	return 1;
}

/* One address: 0 and a connection, 1 where no rank of this job answers, or the job cannot run. */
static int try_address(struct en_join *j, const union en_address *to, uint16_t port,
		 struct ckpt_err *err)
{
	struct en_heard heard = { .said = EN_REFUSED };
	char at[64];
	int fd = -1, rc = en_tcp_connect(to, en_join_soon(j, CONNECT_MS), &fd);

	en_address_text(to, at, sizeof(at));
	if (rc) {
		/* the reason that was heard before says more than "refused" or "timed out" */
		if ((rc != -ECONNREFUSED && rc != -ETIMEDOUT) || !j->last[0])
			snprintf(j->last, sizeof(j->last), "%s: %s", at, strerror(-rc));
		return 1;
	}
	rc = listen_at_own(j, fd);
	if (rc) {
		en_tcp_close(&fd);
		return en_join_fail(j, err, CKPT_E_IO, "cannot listen at any port: %s",
				    strerror(-rc));
	}
	rc = en_join_handshake(j, fd, 0, port, en_join_soon(j, ANSWER_MS), &heard);
	if (!rc && heard.proven && heard.said == EN_WELCOME) {
		j->fd[0] = fd;
		return 0;
	}
	en_tcp_close(&fd);
	if (!rc && heard.proven)
		return en_join_fail(j, err, CKPT_E_USAGE, "refused by rank 0: %s", heard.why);
	return note_refusal(j, at, &heard, rc);
}

/* Where 'host' is: a list to be freed, or an error of getaddrinfo(). */
static int resolve(const struct en_join *j, struct addrinfo **list_out)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };

	/* no name and no flag: the loopback addresses */
	return getaddrinfo(j->m->local && !en_tcp_is_local_name(j->m->host) ? NULL : j->m->host,
			   j->m->local && !en_tcp_is_local_name(j->m->host) ? "0" : NULL, &hints,
			   list_out);
}

static int knock_all(struct en_join *j, const struct addrinfo *list, struct ckpt_err *err)
{
	for (uint16_t i = 0; i < j->m->ports; i++) {
		for (const struct addrinfo *a = list; a; a = a->ai_next) {
			union en_address to = { .any.sa_family = 0 };
			int rc;

			if ((a->ai_family != AF_INET && a->ai_family != AF_INET6) ||
			    a->ai_addrlen > sizeof(to))
				continue;
			memcpy(&to, a->ai_addr, a->ai_addrlen);
			en_address_port(&to, (uint16_t)(j->m->port + i));
			rc = try_address(j, &to, (uint16_t)(j->m->port + i), err);
			if (rc <= 0)
				return rc;
		}
	}
	return 1;
}

static int fail_absent(struct en_join *j, const char *why, struct ckpt_err *err)
{
	char ports[40];

	if (j->m->ports == 1)
		snprintf(ports, sizeof(ports), "port %u", j->m->port);
	else
		snprintf(ports, sizeof(ports), "ports %u to %u", j->m->port,
			 j->m->port + j->m->ports - 1u);
	return en_join_fail(j, err, CKPT_E_IO,
			    "rank 0 does not answer at %s of \"%s\" (%s); check that it runs on "
			    "the host in MASTER_ADDR, and that no firewall blocks it",
			    ports, j->m->host, why);
}

/* Round and round: rank 0 may come later. */
static int find_host(struct en_join *j, struct ckpt_err *err)
{
	const int64_t begun = ck_clock_ms();
	struct addrinfo *list = NULL;
	long nap = 5000000;
	int rc = 1;

	while (rc > 0) {
		const struct timespec time = { .tv_nsec = nap };
		const int unknown = list ? 0 : resolve(j, &list);

		if (unknown)
			snprintf(j->last, sizeof(j->last), "%s", gai_strerror(unknown));
		else
			rc = knock_all(j, list, err);
		if (rc <= 0)
			break;
		if (ck_clock_ms() >= j->until || (unknown && ck_clock_ms() - begun > NAME_MS)) {
			rc = fail_absent(j, j->last, err);
			break;
		}
		nanosleep(&time, NULL);
		nap = nap * 2 < 250000000 ? nap * 2 : 250000000;
	}
	if (list)
		freeaddrinfo(list);
	return rc;
}

/* ---------------------------------------------------------------- the others, at each other */

static int read_place(struct en_join *j, const uint8_t *b, union en_address *out)
{
	const uint32_t kind = ck_le32(b);
	union en_address host;
	int rc = en_address_of(j->fd[0], &host);

	memset(out, 0, sizeof(*out));
	if (rc)
		return rc;
	if (kind == 0) {
		*out = host;
	} else if (kind == 4) {
		out->v4.sin_family = AF_INET;
		memcpy(&out->v4.sin_addr, b + 8, 4);
	} else if (kind == 6) {
		out->v6.sin6_family = AF_INET6;
		memcpy(&out->v6.sin6_addr, b + 8, 16);
		/* which of this host's links: the one to rank 0 */
		if (IN6_IS_ADDR_LINKLOCAL(&out->v6.sin6_addr) && host.any.sa_family == AF_INET6)
			out->v6.sin6_scope_id = host.v6.sin6_scope_id;
	} else {
		return -EPROTO;
	}
	en_address_port(out, (uint16_t)ck_le32(b + 4));
	return 0;
}

/* The second reply of rank 0.  1: it has ended the rendezvous, and says why. */
static int read_reply(struct en_join *j, int64_t until, char why[EN_WHY])
{
	struct en_reply r;
	uint8_t b[EN_REPLY];
	bool is_signed = false;
	int rc = en_tcp_read(j->fd[0], b, sizeof(b), until);

	if (!rc)
		rc = en_reply_read(b, &r);
	if (!rc)
		rc = en_reply_check(j->session[0], 2, b, &is_signed);
	if (!rc && !is_signed)
		rc = -EPROTO;
	if (rc || r.said == EN_WELCOME)
		return rc;
	memcpy(why, r.why, EN_WHY);
	return 1;
}

/* As it was sent, and signed. */
static int read_pages(struct en_join *j, uint8_t *book, size_t n, int64_t until)
{
	uint8_t tag[EN_TAG], want[EN_TAG];
	int rc = en_tcp_read(j->fd[0], book, n, until);

	if (!rc)
		rc = en_tcp_read(j->fd[0], tag, sizeof(tag), until);
	if (!rc)
		rc = en_secret_tag(j->session[0], EN_TAG, "book", book, n, want);
	if (!rc && !en_secret_same(tag, want))
		rc = -EPROTO;
	for (uint32_t r = 1; !rc && r < j->m->size; r++)
		rc = read_place(j, book + (size_t)r * PLACE, &j->place[r]);
	return rc;
}

static int read_book(struct en_join *j, struct ckpt_err *err)
{
	const int64_t until = j->until < INT64_MAX - GRACE_MS ? j->until + GRACE_MS : j->until;
	const size_t n = (size_t)j->m->size * PLACE;
	uint8_t *book = ck_alloc(n);
	char why[EN_WHY];
	int rc;

	if (!book)
		return ck_fail_nomem(err, "addresses of ranks", n);
	rc = read_reply(j, until, why);
	if (!rc)
		rc = read_pages(j, book, n, until);
	ck_free(book);
	if (rc > 0)
		return en_join_fail(j, err, CKPT_E_IO, "rank 0 ended the rendezvous: %s", why);
	return rc ? en_join_fail(j, err, CKPT_E_IO,
				 "rank 0 left before all ranks had connected: %s", strerror(-rc)) :
		    0;
}

static int fail_pair(struct en_join *j, uint32_t r, const char *what, int rc, struct ckpt_err *err)
{
	char at[64];

	en_address_text(&j->place[r], at, sizeof(at));
	return en_join_fail(j, err, CKPT_E_IO,
			    "%s rank %u at %s: %s; each rank must reach every other rank", what, r,
			    at, strerror(-rc));
}

/*
 * One rank between 0 and this one.  A connection that breaks, or is answered by a stranger, is
 * tried again: strangers may have filled the other rank's list of connections.
 */
static int connect_to(struct en_join *j, uint32_t r, struct ckpt_err *err)
{
	const struct timespec nap = { .tv_nsec = 50000000 };
	struct en_heard heard;
	int fd, rc;

	for (;;) {
		fd = -1;
		heard = (struct en_heard){ .said = EN_REFUSED };
		rc = en_tcp_connect(&j->place[r], j->until, &fd);
		if (!rc)
			rc = en_join_handshake(j, fd, r, en_address_port_of(&j->place[r]),
					       j->until, &heard);
		if (!rc && heard.proven && heard.said == EN_WELCOME) {
			j->fd[r] = fd;
			return 0;
		}
		en_tcp_close(&fd);
		if (!rc && heard.proven)
			return en_join_fail(j, err, CKPT_E_IO, "refused by rank %u: %s", r,
					    heard.why);
		if ((rc != 0 && rc != -EPIPE && rc != -ECONNRESET && rc != -EPROTO) ||
		    ck_clock_ms() >= j->until)
			return fail_pair(j, r, "no connection to", rc ? rc : -EPROTO, err);
		nanosleep(&nap, NULL);
	}
}

/*
 * Rank 1 lets others in at once, so rank 2 is through with it, and then lets others in: ranks that
 * wait for each other make no circle.
 */
static int visit(struct en_join *j, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t r = 1; !rc && r < j->m->rank; r++)
		rc = connect_to(j, r, err);
	return rc;
}

static int as_guest(struct en_join *j, struct ckpt_err *err)
{
	int rc = find_host(j, err);

	if (!rc)
		rc = read_book(j, err);
	if (!rc)
		rc = visit(j, err);
	return rc ? rc : en_join_accept(j, err);
}

int en_tcp_join(const struct en_rendezvous *rendezvous, int64_t until, uint32_t timeout_ms, int *fd,
		struct ckpt_err *err)
{
	struct en_join j = {
		.m = rendezvous,
		.until = until,
		.timeout_ms = timeout_ms,
		.fd = fd,
	};
	int rc = own_key(&j, err);

	j.place = ck_alloc_array(rendezvous->size, sizeof(*j.place));
	j.who = ck_alloc_array(rendezvous->size, sizeof(*j.who));
	j.session = ck_alloc_array(rendezvous->size, sizeof(*j.session));
	if (!rc && (!j.place || !j.who || !j.session))
		rc = ck_fail_nomem(err, "a rendezvous", rendezvous->size * sizeof(*j.place));
	if (!rc)
		rc = rendezvous->rank ? as_guest(&j, err) : as_host(&j, err);
	en_listener_close(&j.listener);
	explicit_bzero(j.key, sizeof(j.key));
	ck_free(j.session);
	ck_free(j.who);
	ck_free(j.place);
	return rc;
}
