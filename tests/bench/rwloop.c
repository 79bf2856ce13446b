/*
 * rwloop.c - the bare loop that a copy cannot do without: windows of the
 * source are read and written at the same place, by one or more threads that
 * take the next window from a counter. Shows how much of a conversion's time
 * is the kernel's. Options try what else could be done around it.
 *
 *	rwloop [-t THREADS] [-w BYTES] [-a] [-x 0|1|4] [-m] SRC DST
 *	-a  preallocate the destination
 *	-x  hash what is copied with XXH3-128: 1 whole windows, 4 blocks of 4 KiB
 *	-m  read into a mapping of the destination instead of writing
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "tests/bench/loop.h"

const char loop_name[] = "rwloop";

static struct {
	int in, out, hash;
	size_t window;
	off_t size;
	uint8_t *map;
	atomic_llong next;
	atomic_ullong sum;	/* keeps the hashing alive */
} job = { .window = 4 << 20 };

static unsigned long long hash_window(const uint8_t *p, size_t n, off_t at)
{
	unsigned long long s = 0;

	if (job.hash == 1)
		return XXH3_128bits(p, n).low64;
	for (size_t i = 0; job.hash == 4 && i < n; i += 4096)
		s += XXH3_128bits_withSeed(p + i, n - i < 4096 ? n - i : 4096,
			(XXH64_hash_t)(at / 4096) + i / 4096).low64;
	return s;
}

static void copy_window(uint8_t *buf, off_t at)
{
	size_t n = job.window;

	if (job.size - at < (off_t)n)
		n = (size_t)(job.size - at);
	if (job.map)
		buf = job.map + at;
	read_window(job.in, buf, n, at);
	if (job.hash)
		job.sum += hash_window(buf, n, at);
	for (size_t done = job.map ? n : 0; done < n;) {
		ssize_t r = pwrite(job.out, buf + done, n - done,
				   at + (off_t)done);

		if (r <= 0)
			die("write");
		done += (size_t)r;
	}
}

static void *worker(void *arg)
{
	uint8_t *buf = malloc(job.window);
	off_t at;

	(void)arg;
	if (!buf)
		die("memory");
	while ((at = (off_t)atomic_fetch_add(&job.next, (long long)job.window)) <
	       job.size)
		copy_window(buf, at);
	free(buf);
	return NULL;
}

static void open_both(const char *src, const char *dst, int prealloc, int map)
{
	struct stat st;

	job.in = open(src, O_RDONLY);
	if (job.in < 0 || fstat(job.in, &st))
		die(src);
	job.size = st.st_size;
	job.out = open(dst, O_RDWR | O_CREAT | O_TRUNC, 0644);
	if (job.out < 0)
		die(dst);
	if (prealloc)
		errno = posix_fallocate(job.out, 0, job.size);
	if (prealloc && errno)
		die("preallocate");
	if (!map)
		return;
	if (ftruncate(job.out, job.size))
		die(dst);
	job.map = mmap(NULL, (size_t)job.size, PROT_READ | PROT_WRITE,
		       MAP_SHARED, job.out, 0);
	if (job.map == MAP_FAILED)
		die("map");
}

int main(int argc, char **argv)
{
	int c, threads = 1, prealloc = 0, map = 0;

	while ((c = getopt(argc, argv, "t:w:x:am")) != -1) {
		if (c == 't')
			threads = atoi(optarg);
		else if (c == 'w')
			job.window = strtoul(optarg, NULL, 0);
		else if (c == 'x')
			job.hash = atoi(optarg);
		else if (c == 'a')
			prealloc = 1;
		else if (c == 'm')
			map = 1;
		else
			return 2;
	}
	if (argc - optind != 2 || threads < 1 || threads > MOST_THREADS || !job.window) {
		fputs("rwloop [-t THREADS] [-w BYTES] [-a] [-x 0|1|4] [-m] "
		      "SRC DST\n", stderr);
		return 2;
	}
	open_both(argv[optind], argv[optind + 1], prealloc, map);
	run_threads(threads, worker);
	return close(job.out) ? 3 : 0;
}
