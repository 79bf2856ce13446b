/*
 * en_tcp_hello.c -- see en_tcp.h: who comes, and does he belong here?  Numbers are little-endian.
 *
 *	hello, 104 bytes                        answer, 256 bytes
 *	 0  "ZTRAIN1\n"                          0  "ZTRAIN1\n"
 *	 8  job                                  8  4: 1 welcome, 2 of another job, 3 refused
 *	16  4: rank, 4: how many ranks          12  4: 0
 *	24  4: port that it listens at, 4: 0    16  240: why, a NUL behind
 *	32  8: process; 64: host, a NUL behind
 */
#include "engine/comm/en_tcp.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"

#define MAGIC "ZTRAIN1\n"
#define HELLO 104u
#define ANSWER 256u
#define HELLO_MS 2000		/* for a hello, once connected: programs that say nothing */
#define NAMED 8u		/* ranks that a sentence lists */

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

/* "ranks 2, 3 and 5 more": those above 'from' without a connection. */
static void list_absent(const struct en_join *j, uint32_t from, char *text, size_t n)
{
	uint32_t count = 0, told = 0;
	size_t have;

	for (uint32_t r = from; r < j->m->size; r++)
		count += r != j->m->rank && j->fd[r] < 0;
	snprintf(text, n, "rank%s", count == 1 ? "" : "s");
	for (uint32_t r = from; r < j->m->size && told < NAMED; r++) {
		if (r == j->m->rank || j->fd[r] >= 0)
			continue;
		have = strlen(text);
		snprintf(text + have, n - have, "%s %u", told++ ? "," : "", r);
	}
	have = strlen(text);
	if (count > told)
		snprintf(text + have, n - have, " and %u more", count - told);
}

int64_t en_join_soon(const struct en_join *j, int64_t ms)
{
	const int64_t t = en_tcp_now() + ms;

	return t < j->until ? t : j->until;
}

/* ---------------------------------------------------------------- hello, answer */

int en_join_hello(const struct en_join *j, int fd)
{
	uint8_t b[HELLO] = MAGIC;
	struct en_peer self;

	en_peer_self(&self);
	ck_put_le64(b + 8, j->m->job);
	ck_put_le32(b + 16, j->m->rank);
	ck_put_le32(b + 20, j->m->size);
	ck_put_le32(b + 24, j->port);
	ck_put_le64(b + 32, (uint64_t)self.pid);
	memcpy(b + 40, self.host, sizeof(self.host));
	return en_tcp_write(fd, b, sizeof(b), en_join_soon(j, HELLO_MS));
}

int en_join_answer(const struct en_join *j, int fd, enum en_said said, const char *why)
{
	uint8_t b[ANSWER] = MAGIC;

	ck_put_le32(b + 8, (uint32_t)said);
	snprintf((char *)b + 16, EN_WHY, "%s", why);
	return en_tcp_write(fd, b, sizeof(b), en_join_soon(j, HELLO_MS));
}

int en_join_hear(int fd, int64_t until, enum en_said *said_out, char why[EN_WHY])
{
	uint8_t b[ANSWER];
	int rc = en_tcp_read(fd, b, sizeof(b), until);

	if (rc)
		return rc;
	if (memcmp(b, MAGIC, 8) || ck_le32(b + 8) < EN_WELCOME || ck_le32(b + 8) > EN_REFUSED)
		return -EPROTO;
	memcpy(why, b + 16, EN_WHY);
	why[EN_WHY - 1] = '\0';
	*said_out = (enum en_said)ck_le32(b + 8);
	return 0;
}

/* ---------------------------------------------------------------- taking a hello */

static bool is_alive(int fd)
{
	char byte;
	const ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
}

/* What is wrong with a hello of this job; 0, or an error code with a reason. */
static enum ckpt_code judge(struct en_join *j, const uint8_t *b, char why[EN_WHY])
{
	const uint32_t rank = ck_le32(b + 16), size = ck_le32(b + 20);

	if (size != j->m->size) {
		snprintf(why, EN_WHY, "rank %u was started as one of %u ranks, rank %u as one of "
			 "%u", rank, size, j->m->rank, j->m->size);
		return CKPT_E_USAGE;
	}
	if (rank <= j->m->rank || rank >= size) {
		snprintf(why, EN_WHY, "rank %u came to rank %u of %u: that rank is here already",
			 rank, j->m->rank, size);
		return CKPT_E_EXISTS;
	}
	if (j->fd[rank] >= 0 && is_alive(j->fd[rank])) {
		snprintf(why, EN_WHY, "rank %u is here already, as process %lld on %.63s: it was "
			 "started twice", rank, (long long)j->who[rank].pid, j->who[rank].host);
		return CKPT_E_EXISTS;
	}
	return (enum ckpt_code)0;
}

/* A connection of somebody: a rank, or it is closed.  Fails where the job cannot run. */
static int take(struct en_join *j, int fd, struct ckpt_err *err)
{
	uint8_t b[HELLO];
	enum ckpt_code wrong;
	uint32_t rank;

	if (en_tcp_read(fd, b, sizeof(b), en_join_soon(j, HELLO_MS)) || memcmp(b, MAGIC, 8)) {
		j->strangers++;
		snprintf(j->last, sizeof(j->last), "the last one is no rank of ztrain");
		en_tcp_close(&fd);
		return 0;
	}
	if (ck_le64(b + 8) != j->m->job) {
		j->strangers++;
		snprintf(j->last, sizeof(j->last), "the last one is of another job");
		en_join_answer(j, fd, EN_OTHER_JOB, "another job");
		en_tcp_close(&fd);
		return 0;
	}
	wrong = judge(j, b, j->last);
	if (wrong) {
		j->strangers++;
		en_join_answer(j, fd, EN_REFUSED, j->last);
		en_tcp_close(&fd);
		return wrong == CKPT_E_EXISTS ? 0 : en_join_fail(j, err, wrong, "%s", j->last);
	}
	rank = ck_le32(b + 16);
	if (en_address_of(fd, &j->place[rank]) || en_join_answer(j, fd, EN_WELCOME, "")) {
		en_tcp_close(&fd);
		return 0;
	}
	en_address_port(&j->place[rank], (uint16_t)ck_le32(b + 24));
	j->who[rank].pid = (int64_t)ck_le64(b + 32);
	memcpy(j->who[rank].host, b + 40, sizeof(j->who[rank].host));
	j->who[rank].host[sizeof(j->who[rank].host) - 1] = '\0';
	en_tcp_close(&j->fd[rank]);
	j->fd[rank] = fd;
	return 0;
}

static uint32_t absent(const struct en_join *j)
{
	uint32_t n = 0;

	for (uint32_t r = j->m->rank + 1; r < j->m->size; r++)
		n += j->fd[r] < 0;
	return n;
}

int en_join_take(struct en_join *j, struct ckpt_err *err)
{
	char who[160], others[EN_WHY + 80] = "";

	while (absent(j)) {
		int fd = -1, rc = en_tcp_accept(j->listener, j->until, &fd);

		if (!rc)
			rc = take(j, fd, err);
		else if (rc != -ETIMEDOUT)
			rc = en_join_fail(j, err, CKPT_E_IO, "accept failed: %s", strerror(-rc));
		else
			break;
		if (rc)
			return rc;
	}
	if (!absent(j))
		return 0;
	list_absent(j, j->m->rank + 1, who, sizeof(who));
	if (j->strangers)
		snprintf(others, sizeof(others), "; %u connection%s refused: %s", j->strangers,
			 j->strangers == 1 ? " was" : "s were", j->last);
	return en_join_fail(j, err, CKPT_E_IO,
			    "%s did not come to port %u of this host within %g s%s; is each rank "
			    "started, and does it reach this host as \"%s\"?", who, j->port,
			    j->timeout_ms / 1000.0, others, j->m->host);
}
