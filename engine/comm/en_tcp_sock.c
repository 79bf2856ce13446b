/* en_tcp_sock.c -- see en_tcp.h. */
#include "engine/comm/en_tcp.h"
#include "libckpt/base/ck_clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- addresses ---- */

socklen_t en_address_size(const union en_address *a)
{
	return a->any.sa_family == AF_INET6 ? sizeof(a->v6) : sizeof(a->v4);
}

void en_address_text(const union en_address *a, char *text, size_t n)
{
	const bool six = a->any.sa_family == AF_INET6;
	char name[INET6_ADDRSTRLEN] = "?";

	inet_ntop(a->any.sa_family, six ? (const void *)&a->v6.sin6_addr : &a->v4.sin_addr, name,
		  sizeof(name));
	snprintf(text, n, six ? "[%s]:%u" : "%s:%u", name, (unsigned)en_address_port_of(a));
}

bool en_address_is_loopback(const union en_address *a)
{
	if (a->any.sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
	return ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
}

bool en_tcp_is_local_name(const char *host)
{
	return !strcmp(host, "localhost") || !strncmp(host, "127.", 4) || !strcmp(host, "::1");
}

/* What IPv6 says of IPv4 is IPv4. */
static void simplify(union en_address *out)
{
	struct in_addr four;

	if (out->any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&out->v6.sin6_addr)) {
		memcpy(&four, out->v6.sin6_addr.s6_addr + 12, sizeof(four));
		memset(out, 0, sizeof(*out));
		out->v4.sin_family = AF_INET;
		out->v4.sin_addr = four;
	}
}

int en_address_of(int fd, union en_address *out)
{
	socklen_t size = sizeof(*out);

	memset(out, 0, sizeof(*out));
	if (getpeername(fd, &out->any, &size))
		return -errno;
	simplify(out);
	return 0;
}

int en_address_own(int fd, union en_address *out)
{
	socklen_t size = sizeof(*out);

	memset(out, 0, sizeof(*out));
	if (getsockname(fd, &out->any, &size))
		return -errno;
	simplify(out);
	return 0;
}

void en_address_port(union en_address *a, uint16_t port)
{
	if (a->any.sa_family == AF_INET6)
		a->v6.sin6_port = htons(port);
	else
		a->v4.sin_port = htons(port);
}

uint16_t en_address_port_of(const union en_address *a)
{
	return ntohs(a->any.sa_family == AF_INET6 ? a->v6.sin6_port : a->v4.sin_port);
}

/* ---- waiting ---- */

void en_tcp_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static int wait_for(int fd, short what, int64_t until)
{
	struct pollfd p = { .fd = fd, .events = what };

	for (;;) {
		const int64_t left = until - ck_clock_ms();
		int n;

		if (left <= 0)
			return -ETIMEDOUT;
		n = poll(&p, 1, left > 1000 ? 1000 : (int)left);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

/* What is said once is sent at once. */
static int prepare(int fd)
{
	const int yes = 1, flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
	return 0;
}

/* ---- connecting ---- */

int en_tcp_accept(int listener, int *fd_out)
{
	int fd, rc;

	do
		fd = accept(listener, NULL, NULL);
	while (fd < 0 && errno == EINTR);
	if (fd < 0)
		return -errno;
	rc = prepare(fd);
	if (rc)
		close(fd);
	else
		*fd_out = fd;
	return rc;
}

int en_tcp_connect(const union en_address *to, int64_t until, int *fd_out)
{
	int fd = socket(to->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int rc, failed = 0;
	socklen_t size = sizeof(failed);

	if (fd < 0)
		return -errno;
	rc = prepare(fd);
	if (!rc && connect(fd, &to->any, en_address_size(to)))
		rc = errno == EINPROGRESS || errno == EINTR ? wait_for(fd, POLLOUT, until) :
		     -errno;
	if (!rc && getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size))
		rc = -errno;
	if (!rc)
		rc = -failed;
	if (rc)
		close(fd);
	else
		*fd_out = fd;
	return rc;
}

/* ---- all of it ---- */

int en_tcp_write(int fd, const void *p, size_t n, int64_t until)
{
	const uint8_t *from = p;

	while (n) {
		const ssize_t done = send(fd, from, n, MSG_NOSIGNAL);
		int rc = 0;

		if (done >= 0) {
			from += done;
			n -= (size_t)done;
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			rc = wait_for(fd, POLLOUT, until);
		} else if (errno != EINTR) {
			rc = -errno;
		}
		if (rc)
			return rc;
	}
	return 0;
}

int en_tcp_read(int fd, void *p, size_t n, int64_t until)
{
	uint8_t *to = p;

	while (n) {
		const ssize_t done = recv(fd, to, n, 0);
		int rc = 0;

		if (!done)
			return -EPIPE;
		if (done > 0) {
			to += done;
			n -= (size_t)done;
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			rc = wait_for(fd, POLLIN, until);
		} else if (errno != EINTR) {
			rc = -errno;
		}
		if (rc)
			return rc;
	}
	return 0;
}
