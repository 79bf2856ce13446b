/* en_tcp.h -- sockets with deadlines, and the rendezvous of ranks: what en_comm_tcp.c is made of.
 */
#ifndef EN_TCP_H
#define EN_TCP_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "engine/comm/en_comm_tcp.h"
#include "engine/comm/en_hello.h"
#include "engine/comm/en_watchdog.h"
#include "libckpt/base/ck_base.h"

union en_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_storage room;
};

/* ---- en_tcp_sock.c.  Times are of ck_clock_ms(), in ms; INT64_MAX is never. ---- */

socklen_t en_address_size(const union en_address *a);
/* "10.0.0.7:29501" */
void en_address_text(const union en_address *a, char *text, size_t n);
bool en_address_is_loopback(const union en_address *a);
/* "localhost", "127.0.0.1", "::1": names by which no other host reaches this one. */
bool en_tcp_is_local_name(const char *host);

/* All below: 0, or -errno; a descriptor is closed on exec and never blocks. */
/* -EAGAIN: no connection waits. */
int en_tcp_accept(int listener, int *fd_out);
int en_tcp_connect(const union en_address *to, int64_t until, int *fd_out);
/* All of it.  -EPIPE: the other side closed. */
int en_tcp_write(int fd, const void *p, size_t n, int64_t until);
int en_tcp_read(int fd, void *p, size_t n, int64_t until);
void en_tcp_close(int *fd);

/* Where the other side of a connection is, and this one; what IPv6 says of IPv4 is IPv4. */
int en_address_of(int fd, union en_address *out);
int en_address_own(int fd, union en_address *out);
void en_address_port(union en_address *a, uint16_t port);
uint16_t en_address_port_of(const union en_address *a);

/* ---- en_tcp_listen.c.  0, or -errno. ---- */

#define EN_LISTEN_MOST 8u

struct en_listener {
	int fd[EN_LISTEN_MOST];
	union en_address at[EN_LISTEN_MOST];
	unsigned n;
	uint16_t port;
};

/* Takes 'port' (0: any, then n is 1) at the addresses, not listening yet. */
int en_listener_bind(struct en_listener *e, const union en_address *at, unsigned n, uint16_t port);
int en_listener_any(struct en_listener *e, uint16_t port);
int en_listener_loopback(struct en_listener *e, int family, uint16_t port);
/* The addresses of this host that 'host' names, without loopback ones.  How many. */
unsigned en_listener_addresses(const char *host, union en_address at[EN_LISTEN_MOST]);
int en_listener_listen(struct en_listener *e);
void en_listener_close(struct en_listener *e);
void en_listener_text(const struct en_listener *e, char *text, size_t n);

/* ---- en_tcp_accept.c: the handshake, on the side that listens ---- */

struct en_join {
	const struct en_rendezvous *m;
	int64_t until;
	uint32_t timeout_ms;
	int *fd;		/* [size] */
	struct en_listener listener;
	enum en_secret_kind kind;
	bool has_key;
	uint8_t key[EN_TAG];
	char path[400];		/* of EN_SECRET_HOST, while rank 0's file is there; "" else */
	uint8_t (*session)[EN_TAG];	/* [size]: of connections */
	union en_address *place;	/* [size]: where ranks listen */
	struct en_peer *who;	/* [size]: of those who said hello */
	uint32_t strangers;	/* connections that were refused */
	char last[EN_WHY + 80];	/* why the last one was refused, or refused this rank */
	uint32_t lines_logged, lines_dropped;	/* by en_join_say() */
	int64_t logged_at;
};

int en_join_fail(const struct en_join *j, struct ckpt_err *err, enum ckpt_code code,
		 const char *fmt, ...) CK_PRINTF(4, 5);
/* Logs a line; after the first few, one in a while. */
void en_join_say(struct en_join *j, const char *fmt, ...) CK_PRINTF(2, 3);
/* The time 'ms' from now, but not after the deadline. */
int64_t en_join_soon(const struct en_join *j, int64_t ms);
/* Accept the ranks above this one and answer them; strangers are refused, and delay no rank. */
int en_join_accept(struct en_join *j, struct ckpt_err *err);

/* ---- en_tcp_handshake.c: the handshake, on the side that connects ---- */

/* What it heard there.  Only what is 'proven' was said by a rank of this job. */
struct en_heard {
	enum en_said said;
	bool proven;
	char why[EN_WHY];
};

/*
 * Hello, proof, verdict, over a connection to rank 'to' at 'port'.  0, or -errno;
 * -EPROTO: the program that answers is not a rank of ztrain.
 */
int en_join_handshake(struct en_join *j, int fd, uint32_t to, uint16_t port, int64_t until,
		      struct en_heard *out);

/* ---- en_tcp_join.c ---- */

/* fd [size]: a connection to each rank but this one, -1 before.  What was made is the caller's. */
int en_tcp_join(const struct en_rendezvous *rendezvous, int64_t until, uint32_t timeout_ms, int *fd,
		struct ckpt_err *err);

#endif
