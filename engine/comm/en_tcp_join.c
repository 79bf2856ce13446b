/*
 * en_tcp_join.c -- see en_tcp.h: ranks that know where rank 0 is, and no more, get a connection
 * each to each.
 *
 *	rank 0   listens, takes a hello of each other rank, answers; when all are there, it sends
 *	         each one a second answer and the book: where every rank listens
 *	rank r   listens at a port of its own, says hello to rank 0, waits for the book; then it
 *	         says hello to ranks 1 .. r - 1, takes those of ranks above, and hears their answers
 *
 * A connection queues at a port before anybody takes it, so nobody waits in a circle.
 *
 *	book, 24 bytes for each rank, numbers little-endian
 *	 0  4: 4, 6, or 0 for "the host of rank 0, as you see it"
 *	 4  4: port
 *	 8  16: address, as the network has it
 */
#include "engine/comm/en_tcp.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define PLACE 24u
#define CONNECT_MS 5000
#define ANSWER_MS 10000
#define NAME_MS 30000		/* for a name that is not known yet */
#define GRACE_MS 3000		/* rank 0 says first who did not come */

/* ---------------------------------------------------------------- rank 0 */

static int listen_here(struct en_join *j, struct ckpt_err *err)
{
	const bool loopback = en_tcp_is_local_name(j->m->host);
	const int family = strchr(j->m->host, ':') ? AF_INET6 : AF_INET;
	const unsigned last = j->m->port + j->m->ports - 1u;
	int rc = -EADDRINUSE;

	for (uint16_t i = 0; rc == -EADDRINUSE && i < j->m->ports; i++)
		rc = en_tcp_listen((uint16_t)(j->m->port + i), loopback, family, &j->listener,
				   &j->port);
	if (!rc)
		return 0;
	if (rc == -EADDRINUSE && j->m->ports == 1)
		return en_join_fail(j, err, CKPT_E_IO,
				    "port %u, where the ranks of this job are to meet, is taken: "
				    "by another job with the same port? Choose another one "
				    "(MASTER_PORT, ZTRAIN_PORT)", j->m->port);
	return en_join_fail(j, err, CKPT_E_IO, "no port of %u to %u can be listened at: %s",
			    j->m->port, last, strerror(-rc));
}

static void write_book(const struct en_join *j, uint8_t *book)
{
	for (uint32_t r = 1; r < j->m->size; r++) {
		const union en_address *a = &j->place[r];
		const bool six = a->any.sa_family == AF_INET6;
		uint8_t *b = book + (size_t)r * PLACE;

		ck_put_le32(b, en_address_is_loopback(a) ? 0 : six ? 6 : 4);
		ck_put_le32(b + 4, ntohs(six ? a->v6.sin6_port : a->v4.sin_port));
		if (six)
			memcpy(b + 8, &a->v6.sin6_addr, 16);
		else
			memcpy(b + 8, &a->v4.sin_addr, 4);
	}
}

static int send_book(struct en_join *j, const uint8_t *book, struct ckpt_err *err)
{
	for (uint32_t r = 1; r < j->m->size; r++) {
		int rc = en_join_answer(j, j->fd[r], EN_WELCOME, "");

		if (!rc)
			rc = en_tcp_write(j->fd[r], book, (size_t)j->m->size * PLACE, j->until);
		if (rc)
			return en_join_fail(j, err, CKPT_E_IO,
					    "rank %u (process %lld on %.63s) left while the ranks "
					    "met: %s", r, (long long)j->who[r].pid,
					    j->who[r].host, strerror(-rc));
	}
	return 0;
}

/* Those who wait hear why it is in vain. */
static void send_away(struct en_join *j, const struct ckpt_err *err)
{
	char why[EN_WHY];

	snprintf(why, sizeof(why), "%.*s", (int)sizeof(why) - 1, err->msg);
	j->until = en_tcp_now() + GRACE_MS;
	for (uint32_t r = 1; r < j->m->size; r++)
		if (j->fd[r] >= 0)
			en_join_answer(j, j->fd[r], EN_REFUSED, why);
}

static int as_host(struct en_join *j, struct ckpt_err *err)
{
	uint8_t *book = ck_zalloc((size_t)j->m->size * PLACE);
	struct ckpt_err why = { 0 };
	int rc;

	if (!book)
		return ck_fail_nomem(err, "addresses of ranks", (uint64_t)j->m->size * PLACE);
	rc = listen_here(j, &why);
	if (!rc)
		rc = en_join_take(j, &why);
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

/* A port that others can reach the way this rank reaches rank 0. */
static int listen_too(struct en_join *j, int family)
{
	en_tcp_close(&j->listener);
	return en_tcp_listen(0, en_tcp_is_local_name(j->m->host), family, &j->listener, &j->port);
}

/* One address: 0 and a connection, 1 where nobody of this job is, or the job cannot run. */
static int knock(struct en_join *j, const union en_address *to, struct ckpt_err *err)
{
	char why[EN_WHY], at[64];
	enum en_said said = EN_WELCOME;
	int fd = -1, rc = en_tcp_connect(to, en_join_soon(j, CONNECT_MS), &fd);

	en_address_text(to, at, sizeof(at));
	if (rc) {
		/* where nobody listens, or time is up, is no news behind what was heard */
		if ((rc != -ECONNREFUSED && rc != -ETIMEDOUT) || !j->last[0])
			snprintf(j->last, sizeof(j->last), "%s: %s", at, strerror(-rc));
		return 1;
	}
	rc = listen_too(j, to->any.sa_family);
	if (rc) {
		en_tcp_close(&fd);
		return en_join_fail(j, err, CKPT_E_IO, "no port to listen at: %s", strerror(-rc));
	}
	rc = en_join_hello(j, fd);
	if (!rc)
		rc = en_join_hear(fd, en_join_soon(j, ANSWER_MS), &said, why);
	if (!rc && said == EN_WELCOME) {
		j->fd[0] = fd;
		return 0;
	}
	en_tcp_close(&fd);
	if (!rc && said == EN_REFUSED)
		return en_join_fail(j, err, CKPT_E_USAGE, "refused by rank 0: %s", why);
	snprintf(j->last, sizeof(j->last), rc ? "at %s something answers that is no ztrain" :
		 "at %s another job meets", at);
	return 1;
}

/* Where 'host' is: a list to be freed, or an error of getaddrinfo(). */
static int resolve(const struct en_join *j, struct addrinfo **list_out)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };

	return getaddrinfo(j->m->host, NULL, &hints, list_out);
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
			rc = knock(j, &to, err);
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
			    "rank 0 is not at %s of \"%s\" (%s); does it run, on the host that "
			    "MASTER_ADDR names, and is nothing between that refuses it?", ports,
			    j->m->host, why);
}

/* Round and round: rank 0 may come later. */
static int find_host(struct en_join *j, struct ckpt_err *err)
{
	const int64_t begun = en_tcp_now();
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
		if (en_tcp_now() >= j->until || (unknown && en_tcp_now() - begun > NAME_MS)) {
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

static int read_book(struct en_join *j, struct ckpt_err *err)
{
	const int64_t until = j->until < INT64_MAX - GRACE_MS ? j->until + GRACE_MS : j->until;
	const size_t n = (size_t)j->m->size * PLACE;
	uint8_t *book = ck_alloc(n);
	enum en_said said = EN_WELCOME;
	char why[EN_WHY];
	int rc;

	if (!book)
		return ck_fail_nomem(err, "addresses of ranks", n);
	rc = en_join_hear(j->fd[0], until, &said, why);
	if (!rc && said != EN_WELCOME) {
		ck_free(book);
		return en_join_fail(j, err, CKPT_E_IO, "sent away by rank 0: %s", why);
	}
	if (!rc)
		rc = en_tcp_read(j->fd[0], book, n, until);
	for (uint32_t r = 1; !rc && r < j->m->size; r++)
		rc = read_place(j, book + (size_t)r * PLACE, &j->place[r]);
	ck_free(book);
	return rc ? en_join_fail(j, err, CKPT_E_IO, "rank 0 left before all ranks had come: %s",
			 strerror(-rc)) : 0;
}

static int fail_pair(struct en_join *j, uint32_t r, const char *what, int rc, struct ckpt_err *err)
{
	char at[64];

	en_address_text(&j->place[r], at, sizeof(at));
	return en_join_fail(j, err, CKPT_E_IO,
			    "%s rank %u at %s: %s; each rank must reach each other one", what, r,
			    at, strerror(-rc));
}

/* Connections to ranks between 0 and this one. */
static int visit(struct en_join *j, struct ckpt_err *err)
{
	for (uint32_t r = 1; r < j->m->rank; r++) {
		int rc = en_tcp_connect(&j->place[r], j->until, &j->fd[r]);

		if (!rc)
			rc = en_join_hello(j, j->fd[r]);
		if (rc)
			return fail_pair(j, r, "no connection to", rc, err);
	}
	return 0;
}

static int hear_all(struct en_join *j, struct ckpt_err *err)
{
	for (uint32_t r = 1; r < j->m->rank; r++) {
		enum en_said said = EN_WELCOME;
		char why[EN_WHY] = "";
		int rc = en_join_hear(j->fd[r], j->until, &said, why);

		if (rc)
			return fail_pair(j, r, "no answer of", rc, err);
		if (said != EN_WELCOME)
			return en_join_fail(j, err, CKPT_E_IO, "refused by rank %u: %s", r, why);
	}
	return 0;
}

static int as_guest(struct en_join *j, struct ckpt_err *err)
{
	int rc = find_host(j, err);

	if (!rc)
		rc = read_book(j, err);
	if (!rc)
		rc = visit(j, err);
	if (!rc)
		rc = en_join_take(j, err);
	return rc ? rc : hear_all(j, err);
}

int en_tcp_join(const struct en_meeting *meeting, int64_t until, uint32_t timeout_ms, int *fd,
		struct ckpt_err *err)
{
	struct en_join j = {
		.m = meeting, .until = until, .timeout_ms = timeout_ms, .fd = fd, .listener = -1,
	};
	int rc;

	j.place = ck_alloc_array(meeting->size, sizeof(*j.place));
	j.who = ck_alloc_array(meeting->size, sizeof(*j.who));
	if (!j.place || !j.who)
		rc = ck_fail_nomem(err, "a meeting of ranks", meeting->size * sizeof(*j.place));
	else
		rc = meeting->rank ? as_guest(&j, err) : as_host(&j, err);
	en_tcp_close(&j.listener);
	ck_free(j.who);
	ck_free(j.place);
	return rc;
}
