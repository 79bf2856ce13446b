/* en_tcp.h -- sockets with deadlines, and the meeting of ranks: what en_comm_tcp.c is made of. */
#ifndef EN_TCP_H
#define EN_TCP_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "engine/comm/en_comm_tcp.h"
#include "engine/comm/en_watch.h"
#include "libckpt/base/ck_base.h"

union en_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_storage room;
};

/* ---- en_tcp_sock.c.  Times are of en_tcp_now(), in ms; INT64_MAX is never. ---- */

int64_t en_tcp_now(void);
socklen_t en_address_size(const union en_address *a);
/* "10.0.0.7:29501" */
void en_address_text(const union en_address *a, char *text, size_t n);
bool en_address_is_loopback(const union en_address *a);
/* "localhost", "127.0.0.1", "::1": nobody else can mean this host by it. */
bool en_tcp_is_local_name(const char *host);

/* All below: 0, or -errno; a descriptor is closed on exec and never blocks. */
/* Listens at 'port' (0: any), at all addresses, or of 'family' at the loopback one. */
int en_tcp_listen(uint16_t port, bool loopback, int family, int *fd_out, uint16_t *port_out);
int en_tcp_accept(int listener, int64_t until, int *fd_out);
int en_tcp_connect(const union en_address *to, int64_t until, int *fd_out);
/* All of it.  -EPIPE: the other side closed. */
int en_tcp_write(int fd, const void *p, size_t n, int64_t until);
int en_tcp_read(int fd, void *p, size_t n, int64_t until);
void en_tcp_close(int *fd);

/* Where the other side of a connection is; what IPv6 says of IPv4 is IPv4. */
int en_address_of(int fd, union en_address *out);
void en_address_port(union en_address *a, uint16_t port);

/* ---- en_tcp_hello.c ---- */

#define EN_WHY 240u		/* bytes of a reason */

enum en_said { EN_WELCOME = 1, EN_OTHER_JOB, EN_REFUSED };

struct en_join {
	const struct en_meeting *m;
	int64_t until;
	uint32_t timeout_ms;
	int *fd;		/* [size] */
	int listener;
	uint16_t port;		/* it listens at */
	union en_address *place;	/* [size]: where ranks listen */
	struct en_peer *who;	/* [size]: of those who said hello */
	uint32_t strangers;	/* connections that were refused */
	char last[EN_WHY];	/* what was said to the last one, or by it */
};

int en_join_fail(const struct en_join *j, struct ckpt_err *err, enum ckpt_code code,
		 const char *fmt, ...) CK_PRINTF(4, 5);
/* In so many ms, but not after the deadline. */
int64_t en_join_soon(const struct en_join *j, int64_t ms);
int en_join_hello(const struct en_join *j, int fd);
int en_join_answer(const struct en_join *j, int fd, enum en_said said, const char *why);
/* -EPROTO: whoever answers is no rank of ztrain. */
int en_join_hear(int fd, int64_t until, enum en_said *said_out, char why[EN_WHY]);
/* Ranks above this one come, and get their answer. */
int en_join_take(struct en_join *j, struct ckpt_err *err);

/* ---- en_tcp_join.c ---- */

/* fd [size]: a connection to each rank but this one, -1 before.  What was made is the caller's. */
int en_tcp_join(const struct en_meeting *meeting, int64_t until, uint32_t timeout_ms, int *fd,
		struct ckpt_err *err);

#endif
