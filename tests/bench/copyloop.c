/*
 * copyloop.c - what memcpy takes: each of RANKS processes copies BYTES from memory to memory, TIMES
 * times, all at once. Both were touched before. Prints the middle of the times of the slowest, in
 * seconds.
 *
 *	copyloop RANKS BYTES TIMES
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_TIMES 64
#define MOST_RANKS 64

struct shared {
	_Atomic int here[MOST_TIMES];
	double took[MOST_TIMES][MOST_RANKS];
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int rank(struct shared *s, int number, int ranks, size_t bytes, int times)
{
	char *from = malloc(bytes), *to = malloc(bytes);

	if (!from || !to)
		return 1;
	memset(from, 1, bytes);
	memset(to, 2, bytes);
	for (int i = 0; i < times; i++) {
		double t;

		atomic_fetch_add(&s->here[i], 1);
		while (atomic_load(&s->here[i]) < ranks)
			usleep(100);
		t = now();
		memcpy(to, from, bytes);
		s->took[i][number] = now() - t;
		__asm__ volatile("" : : "r"(to) : "memory");
	}
	free(from);
	free(to);
	return 0;
}

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
	const int ranks = argc == 4 ? atoi(argv[1]) : 0, times = argc == 4 ? atoi(argv[3]) : 0;
	struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	double most[MOST_TIMES] = { 0 };
	int bad = 0, status;

	if (ranks < 1 || ranks > MOST_RANKS || times < 1 || times > MOST_TIMES || s == MAP_FAILED) {
		fprintf(stderr, "usage: copyloop RANKS BYTES TIMES\n");
		return 2;
	}
	for (int r = 0; r < ranks; r++)
		if (!fork())
			_exit(rank(s, r, ranks, (size_t)atoll(argv[2]), times));
	while (wait(&status) > 0)
		bad |= status;
	for (int i = 0; i < times; i++)
		for (int r = 0; r < ranks; r++)
			most[i] = s->took[i][r] > most[i] ? s->took[i][r] : most[i];
	qsort(most, (size_t)times, sizeof(*most), by_size);
	printf("%.6f\n", most[times / 2]);
	return bad != 0;
}
