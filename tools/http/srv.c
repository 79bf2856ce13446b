/* srv.c -- see srv.h: the address, the threads, and the end. */
#include "srv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "srv_send.h"

/* A thread, 1 MiB and a buffer of the library for each connection. */
#define CONNECTIONS 64
#define IDLE_SECONDS 60
#define HEADER_BYTES 32768	/* of a request, with what libmicrohttpd needs of it */

/* ---------------------------------------------------------------- the address */

struct address {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} u;
	socklen_t len;
};

static int parse_address(struct srv *srv, struct address *a)
{
	const char *text = strcmp(srv->bind, "localhost") ? srv->bind : "127.0.0.1";

	memset(a, 0, sizeof(*a));
	if (inet_pton(AF_INET, text, &a->u.v4.sin_addr) == 1) {
		a->u.v4.sin_family = AF_INET;
		a->u.v4.sin_port = htons(srv->port);
		a->len = sizeof(a->u.v4);
		srv->loopback = ntohl(a->u.v4.sin_addr.s_addr) >> 24 == 127;
		return 0;
	}
	if (inet_pton(AF_INET6, text, &a->u.v6.sin6_addr) != 1)
		return -1;
	a->u.v6.sin6_family = AF_INET6;
	a->u.v6.sin6_port = htons(srv->port);
	a->len = sizeof(a->u.v6);
	srv->loopback = IN6_IS_ADDR_LOOPBACK(&a->u.v6.sin6_addr);
	return 0;
}

static int fail_socket(const struct srv *srv, int fd, const char *call)
{
	const int why = errno;

	if (fd >= 0)
		close(fd);
	if (why == EADDRINUSE)
		cli_say_error("port %u of %s is in use by another program; --port 0 takes a free "
			      "one", srv->port, srv->bind);
	else
		cli_say_error("cannot %s %s port %u: %s%s", call, srv->bind, srv->port,
			      strerror(why), why == EACCES ? "; ports below 1024 need root" : "");
	return -1;
}

/* A socket that listens, and the port that it has; or -1 after saying why not. */
static int listen_at(struct srv *srv)
{
	struct address a;
	const int one = 1;
	int fd;

	if (parse_address(srv, &a)) {
		cli_say_error("--bind: %s is no address; expected one such as 127.0.0.1, 0.0.0.0 "
			      "or ::1", out_name(srv->bind));
		return -2;
	}
	fd = socket(a.u.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fail_socket(srv, fd, "open a socket for");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, &a.u.any, a.len) || listen(fd, CONNECTIONS))
		return fail_socket(srv, fd, "listen at");
	if (!getsockname(fd, &a.u.any, &a.len))
		srv->port = ntohs(a.u.any.sa_family == AF_INET ? a.u.v4.sin_port :
				  a.u.v6.sin6_port);
	return fd;
}

/* ---------------------------------------------------------------- requests */

/* Paths are decoded by srv_answer(), which sees a NUL. */
static size_t as_it_is(void *arg, struct MHD_Connection *to, char *text)
{
	(void)arg;
	(void)to;
	return strlen(text);
}

static void be_silent(void *arg, const char *fmt, va_list ap)
{
	(void)arg;
	(void)fmt;
	(void)ap;
}

/* Called first when the headers are there, then with the body, which is ignored. */
static enum MHD_Result answer(void *arg, struct MHD_Connection *to, const char *url,
			      const char *method, const char *version, const char *body,
			      size_t *body_n, void **state)
{
	static int met;

	(void)version;
	(void)body;
	if (!*state) {
		*state = &met;
		return MHD_YES;
	}
	if (*body_n) {
		*body_n = 0;
		return MHD_YES;
	}
	return srv_answer(arg, to, url, method);
}

static struct MHD_Daemon *start(struct srv *srv, int fd)
{
	return MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
				MHD_USE_POLL, 0, NULL, NULL, answer, srv,
				MHD_OPTION_EXTERNAL_LOGGER, be_silent, NULL,
				MHD_OPTION_LISTEN_SOCKET, fd,
				MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
				MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS,
				MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES,
				MHD_OPTION_UNESCAPE_CALLBACK, as_it_is, NULL,
				MHD_OPTION_END);
}

/* ---------------------------------------------------------------- words */

static void print_urls(const struct srv *srv)
{
	const struct shelf *shelf = srv->shelf;
	const int v6 = strchr(srv->bind, ':') != NULL;
	char *top = cli_format("http://%s%s%s:%u/", v6 ? "[" : "", srv->bind, v6 ? "]" : "",
			       srv->port);
	const char *first = shelf->single ? "" : shelf->latest ? "latest/" :
			    cli_format("%s/", shelf->step[shelf->n - 1].name);

	printf("%s\n", top);
	for (size_t i = 0; i < shelf->n && !shelf->single; i++)
		printf("%s%s/\n", top, out_name(shelf->step[i].name));
	printf("%s%smodel.safetensors\n%s%sbf16/model.safetensors\n", top, first, top, first);
	printf("try: curl -r 0-7 %s%smodel.safetensors | od -A n -t u8\n", top, first);
	fflush(stdout);
	cli_free(top);
}

static void warn(const struct srv *srv)
{
	if (!srv->loopback)
		cli_say("warning: anyone who reaches %s port %u can read these files: there is "
			"no password and no encryption", srv->bind, srv->port);
}

int srv_run(struct srv *srv)
{
	const volatile int *stop = signals_catch();
	const int fd = listen_at(srv);
	struct MHD_Daemon *daemon;

	if (fd < 0)
		return fd == -2 ? EXIT_CALL : EXIT_TROUBLE;
	daemon = start(srv, fd);
	if (!daemon) {
		close(fd);
		cli_say_error("the server does not start: no memory or no threads");
		return EXIT_TROUBLE;
	}
	warn(srv);
	print_urls(srv);
	while (!__atomic_load_n(stop, __ATOMIC_RELAXED))
		poll(NULL, 0, 200);
	MHD_stop_daemon(daemon);
	if (!srv->shelf->args->quiet)
		cli_say("stopped");
	return EXIT_DONE;
}
