/*
 * loop.h - what the bare loops share: failing, reading a window, and threads
 * that each run the same worker until it has nothing left to take.
 */
#ifndef LOOP_H
#define LOOP_H

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_THREADS 64

/* Of the program that includes this. */
extern const char loop_name[];

static void die(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", loop_name, what, strerror(errno));
	exit(3);
}

static void read_window(int fd, uint8_t *buf, size_t n, off_t at)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = pread(fd, buf + done, n - done, at + (off_t)done);

		if (r <= 0)
			die("read");
		done += (size_t)r;
	}
}

/* This thread is one of them. */
static void run_threads(int threads, void *(*worker)(void *))
{
	pthread_t th[MOST_THREADS];

	for (int i = 1; i < threads; i++)
		if (pthread_create(&th[i], NULL, worker, NULL))
			die("thread");
	worker(NULL);
	for (int i = 1; i < threads; i++)
		pthread_join(th[i], NULL);
}

#endif
