/*
 * en_tcp_listen.c -- see en_tcp.h: listening at the addresses by which the others come, and at no
 * other ones.
 *
 * Rank 0 is reached as MASTER_ADDR.  Where this host calls itself by a loopback address (Debian's
 * 127.0.1.1), or by none of its own (a name of a load balancer), others may know it by any of its
 * addresses, and it listens at all of them.  The others are reached by the address that they have
 * on their connection to rank 0.
 */
#include "engine/comm/en_tcp.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define QUEUE 4096	/* of connections; the system takes less if it has to */

static int bind_at(const union en_address *a, int *fd_out)
{
	const int yes = 1, no = 0;
	int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int rc = 0;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (a->any.sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY,
			   IN6_IS_ADDR_UNSPECIFIED(&a->v6.sin6_addr) ? &no : &yes, sizeof(no));
	if (bind(fd, &a->any, en_address_size(a))) {
		rc = -errno;
		close(fd);
		return rc;
	}
	*fd_out = fd;
	return 0;
}

static int port_of(int fd, uint16_t *port_out)
{
	union en_address a = { .any.sa_family = 0 };
	socklen_t size = sizeof(a);

	if (getsockname(fd, &a.any, &size))
		return -errno;
	*port_out = en_address_port_of(&a);
	return 0;
}

void en_listener_close(struct en_listener *e)
{
	for (unsigned i = 0; i < e->n; i++)
		en_tcp_close(&e->fd[i]);
	e->n = 0;
}

/* Those of a family that this host does not have are left out. */
int en_listener_bind(struct en_listener *e, const union en_address *at, unsigned n, uint16_t port)
{
	int rc = -EADDRNOTAVAIL;

	en_listener_close(e);
	for (unsigned i = 0; i < n && e->n < EN_LISTEN_MOST; i++) {
		union en_address a = at[i];
		int got;

		en_address_port(&a, port);
		got = bind_at(&a, &e->fd[e->n]);
		if (got == -EADDRINUSE || (got && rc == -EADDRNOTAVAIL))
			rc = got;
		if (got == -EADDRINUSE)
			break;
		if (got)
			continue;
		e->at[e->n++] = a;
		rc = 0;
	}
	if (!rc)
		rc = port_of(e->fd[0], &e->port);
	for (unsigned i = 0; !rc && i < e->n; i++)
		en_address_port(&e->at[i], e->port);
	if (rc)
		en_listener_close(e);
	return rc;
}

int en_listener_listen(struct en_listener *e)
{
	for (unsigned i = 0; i < e->n; i++)
		if (listen(e->fd[i], QUEUE))
			return -errno;
	return 0;
}

/* "10.0.0.7:29500, [fe80::1]:29500" */
void en_listener_text(const struct en_listener *e, char *text, size_t n)
{
	char one[64];

	*text = '\0';
	for (unsigned i = 0; i < e->n; i++) {
		const size_t have = strlen(text);

		en_address_text(&e->at[i], one, sizeof(one));
		snprintf(text + have, n - have, "%s%s", i ? ", " : "", one);
	}
}

/* ---------------------------------------------------------------- which addresses */

/* An IPv6 socket takes IPv4 as well, unless a host has none: then the second one is taken. */
int en_listener_any(struct en_listener *e, uint16_t port)
{
	const union en_address six = { .v6 = { .sin6_family = AF_INET6 } };
	const union en_address four = { .v4 = { .sin_family = AF_INET } };
	int rc = en_listener_bind(e, &six, 1, port);

	if (rc == -EAFNOSUPPORT || rc == -EADDRNOTAVAIL)
		rc = en_listener_bind(e, &four, 1, port);
	return rc;
}

int en_listener_loopback(struct en_listener *e, int family, uint16_t port)
{
	union en_address four = { .v4 = { .sin_family = AF_INET } };
	const union en_address six = {
		.v6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT },
	};
	int rc = -EADDRNOTAVAIL;

	four.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (family != AF_INET6)
		rc = en_listener_bind(e, &four, 1, port);
	if (rc == -EAFNOSUPPORT || rc == -EADDRNOTAVAIL)
		rc = en_listener_bind(e, &six, 1, port);
	if (family == AF_INET6 && (rc == -EAFNOSUPPORT || rc == -EADDRNOTAVAIL))
		rc = en_listener_bind(e, &four, 1, port);
	return rc;
}

static bool same_host(const struct sockaddr *a, const struct sockaddr *b)
{
	union en_address x = { .any.sa_family = 0 }, y = { .any.sa_family = 0 };

	if (!a || !b || a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET) {
		memcpy(&x.v4, a, sizeof(x.v4));
		memcpy(&y.v4, b, sizeof(y.v4));
		return x.v4.sin_addr.s_addr == y.v4.sin_addr.s_addr;
	}
	if (a->sa_family != AF_INET6)
		return false;
	memcpy(&x.v6, a, sizeof(x.v6));
	memcpy(&y.v6, b, sizeof(y.v6));
	return IN6_ARE_ADDR_EQUAL(&x.v6.sin6_addr, &y.v6.sin6_addr);
}

static bool is_own(const struct ifaddrs *list, const struct sockaddr *a)
{
	for (; list; list = list->ifa_next)
		if (same_host(list->ifa_addr, a))
			return true;
	return false;
}

unsigned en_listener_addresses(const char *host, union en_address at[EN_LISTEN_MOST])
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *named = NULL;
	struct ifaddrs *own = NULL;
	unsigned n = 0;

	if (getaddrinfo(host, NULL, &hints, &named) || getifaddrs(&own))
		own = NULL;
	for (const struct addrinfo *a = named; own && a && n < EN_LISTEN_MOST; a = a->ai_next) {
		union en_address to = { .any.sa_family = 0 };

		if (a->ai_addrlen > sizeof(to) || !is_own(own, a->ai_addr))
			continue;
		memcpy(&to, a->ai_addr, a->ai_addrlen);
		if (!en_address_is_loopback(&to))
			at[n++] = to;
	}
	if (own)
		freeifaddrs(own);
	if (named)
		freeaddrinfo(named);
	return n;
}
