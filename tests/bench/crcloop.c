/*
 * crcloop.c - the bare loop that checking files cannot do without: every byte
 * of the files named is read by pread and goes through the library's own
 * CRC-32, by one or more threads that take the next window from a counter.
 *
 *	crcloop [-t THREADS] [-w BYTES] FILE...
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/zip/ck_zip.h"
#include "tests/bench/loop.h"

const char loop_name[] = "crcloop";

static struct {
	int *fd;
	off_t *first;		/* window number of each file */
	off_t *size;
	int n;
	size_t window;
	off_t windows;
	atomic_llong next;
	atomic_uint sum;	/* keeps the summing alive */
} job = { .window = 1 << 20 };

static void sum_window(uint8_t *buf, off_t number)
{
	int i = 0;
	off_t at;
	size_t n;

	while (i + 1 < job.n && job.first[i + 1] <= number)
		i++;
	at = (number - job.first[i]) * (off_t)job.window;
	n = job.size[i] - at < (off_t)job.window ? (size_t)(job.size[i] - at) : job.window;
	read_window(job.fd[i], buf, n, at);
	job.sum += ck_zip_crc32(0, buf, n);
}

static void *worker(void *arg)
{
	uint8_t *buf = malloc(job.window);
	off_t w;

	(void)arg;
	if (!buf)
		die("memory");
	while ((w = (off_t)atomic_fetch_add(&job.next, 1)) < job.windows)
		sum_window(buf, w);
	free(buf);
	return NULL;
}

static void open_all(char **path, int n)
{
	job.n = n;
	job.fd = calloc((size_t)n, sizeof(*job.fd));
	job.first = calloc((size_t)n, sizeof(*job.first));
	job.size = calloc((size_t)n, sizeof(*job.size));
	if (!job.fd || !job.first || !job.size)
		die("memory");
	for (int i = 0; i < n; i++) {
		struct stat st;

		job.fd[i] = open(path[i], O_RDONLY);
		if (job.fd[i] < 0 || fstat(job.fd[i], &st))
			die(path[i]);
		job.size[i] = st.st_size;
		job.first[i] = job.windows;
		job.windows += (st.st_size + (off_t)job.window - 1) / (off_t)job.window;
	}
}

int main(int argc, char **argv)
{
	int c, threads = 1;

	while ((c = getopt(argc, argv, "t:w:")) != -1) {
		if (c == 't')
			threads = atoi(optarg);
		else if (c == 'w')
			job.window = strtoul(optarg, NULL, 0);
		else
			return 2;
	}
	if (optind == argc || threads < 1 || threads > MOST_THREADS || !job.window) {
		fputs("crcloop [-t THREADS] [-w BYTES] FILE...\n", stderr);
		return 2;
	}
	open_all(argv + optind, argc - optind);
	run_threads(threads, worker);
	return 0;
}
