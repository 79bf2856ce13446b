/* Runs a program, collects stdout and stderr by poll, and kills it when it
 * takes too long. */
#define _GNU_SOURCE
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/run/t_run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

const char *t_zckpt(void)
{
	const char *s = getenv("ZCKPT");

	return s && *s ? s : "build/zckpt";
}

static void child(const char *const argv[], int out, int err)
{
	int null = open("/dev/null", O_RDWR);

	dup2(null, 0);
	dup2(out, 1);
	dup2(err, 2);
	execv(argv[0], (char *const *)(const void *)argv);
	dprintf(2, "cannot run %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

/* Reads what is there; 0 at the end of the stream. */
static int take(int fd, char **buf, size_t *n)
{
	char part[65536];
	ssize_t got = read(fd, part, sizeof(part));

	if (got <= 0)
		return got < 0 && errno == EINTR;
	*buf = t_grow(*buf, *n + (size_t)got + 1);
	memcpy(*buf + *n, part, (size_t)got);
	*n += (size_t)got;
	(*buf)[*n] = 0;
	return 1;
}

static void collect(struct t_run *r, pid_t pid, int out, int err, double end)
{
	struct pollfd fds[2] = { { .fd = out, .events = POLLIN },
				 { .fd = err, .events = POLLIN } };

	while (fds[0].fd >= 0 || fds[1].fd >= 0) {
		double left = end - now();

		if (left <= 0 && !r->timed_out) {
			r->timed_out = 1;
			kill(pid, SIGKILL);
			end += 5;
			continue;
		}
		if (left <= 0)
			break;
		if (poll(fds, 2, (int)(left * 1000) + 1) <= 0)
			continue;
		if (fds[0].revents && !take(out, &r->out, &r->out_n))
			fds[0].fd = -1;
		if (fds[1].revents && !take(err, &r->err, &r->err_n))
			fds[1].fd = -1;
	}
}

void t_run(struct t_run *r, const char *const argv[], unsigned seconds)
{
	double start = now();
	int out[2], err[2], st = 0;
	pid_t pid;

	memset(r, 0, sizeof(*r));
	r->out = t_alloc(1);
	r->err = t_alloc(1);
	if (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
		t_die("no pipe: %s", strerror(errno));
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		t_die("cannot fork: %s", strerror(errno));
	if (!pid)
		child(argv, out[1], err[1]);
	close(out[1]);
	close(err[1]);
	collect(r, pid, out[0], err[0], start + seconds);
	close(out[0]);
	close(err[0]);
	/* a program that closed its streams but does not end is killed too */
	while (waitpid(pid, &st, r->timed_out ? 0 : WNOHANG) == 0) {
		if (now() > start + seconds) {
			r->timed_out = 1;
			kill(pid, SIGKILL);
		}
		usleep(200);
	}
	r->signal = WIFSIGNALED(st) ? WTERMSIG(st) : 0;
	r->exit = WIFEXITED(st) ? WEXITSTATUS(st) : -1;
	r->seconds = now() - start;
}

void t_run_zckpt(struct t_run *r, ...)
{
	const char *argv[64];
	int n = 0;
	va_list ap;

	argv[n++] = t_zckpt();
	va_start(ap, r);
	while (n < 63 && (argv[n] = va_arg(ap, const char *)))
		n++;
	va_end(ap);
	argv[n] = NULL;
	t_run(r, argv, 30);
}

void t_run_free(struct t_run *r)
{
	free(r->out);
	free(r->err);
	memset(r, 0, sizeof(*r));
}
