/*
 * loadloop.c - a step loaded into memory that was touched before, next to what
 * cannot be left out: the bytes of its files read to the same place. In turns,
 * in one process; opening and touching are outside the times.
 *
 *	loadloop [-r RUNS] [-o FOLDER] STEP
 *
 * Appends a line for each run to FOLDER/SERIES.tm, as measure.c does: seconds
 * first, bytes read third. SERIES: cat1, cat2 (pread in 4 MiB windows, one and
 * two threads), load1, load2 (ckpt_load() of every state), check1, check2 (the
 * same, held against its sums). Without -o they are printed. What was checked
 * is said at the end. Status 3 if something fails.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/include/ckpt.h"
#include "tests/bench/loop.h"

#define WINDOW ((off_t)4 << 20)

const char loop_name[] = "loadloop";

struct window {
	int fd;
	off_t at;
	size_t n;
	uint8_t *dst;
};

static struct {
	const char *folder;
	struct ckpt *ck;
	struct ckpt_load_range *range;
	size_t nranges;
	uint64_t payload, file_bytes;
	uint8_t *mem;
	struct window *window;
	size_t nwindows;
	atomic_size_t next;
	struct ckpt_loaded checked;
} job;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(const struct ckpt_err *err)
{
	fprintf(stderr, "%s: %s: %s\n", loop_name, err->where, err->msg);
	exit(3);
}

static void *more(void *p, size_t n)
{
	p = realloc(p, n);
	if (!p)
		die("memory");
	return p;
}

/* Buffers begin at cache lines, as allocations do. */
static uint64_t up(uint64_t n)
{
	return (n + 63) & ~(uint64_t)63;
}

/* Every state that is stored. */
static void list_ranges(void)
{
	struct ckpt_tensor_info t;
	struct ckpt_state_info s;

	for (uint64_t i = 0; !ckpt_tensor_get(job.ck, i, &t, NULL); i++)
		for (uint32_t k = 0; k < t.nstates; k++) {
			ckpt_state_get(job.ck, i, k, &s, NULL);
			if (s.flags & CKPT_STATE_DERIVED)
				continue;
			job.range = more(job.range, (job.nranges + 1) * sizeof(*job.range));
			job.range[job.nranges++] = (struct ckpt_load_range){
				.tensor = i, .state = s.name, .count = t.numel,
			};
			job.payload += up(t.numel * ckpt_dtype_bits(s.dtype) / 8);
		}
}

static void add_file(const char *path, uint64_t bytes)
{
	const int fd = open(path, O_RDONLY);

	if (fd < 0)
		die(path);
	for (off_t at = 0; at < (off_t)bytes; at += WINDOW) {
		const off_t left = (off_t)bytes - at;

		job.window = more(job.window, (job.nwindows + 1) * sizeof(*job.window));
		job.window[job.nwindows++] = (struct window){
			.fd = fd, .at = at, .n = (size_t)(left < WINDOW ? left : WINDOW),
		};
	}
	job.file_bytes += bytes;
}

static void make_room(void)
{
	struct ckpt_state_info s;
	struct ckpt_file_info f;
	uint64_t bytes, at = 0;

	for (uint64_t i = 0; !ckpt_file_get(job.ck, i, &f, NULL); i++)
		add_file(f.path, f.bytes);
	bytes = job.file_bytes > job.payload ? job.file_bytes : job.payload;
	job.mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (job.mem == MAP_FAILED)
		die("memory");
	memset(job.mem, 1, bytes);
	for (size_t i = 0; i < job.nwindows; at += job.window[i++].n)
		job.window[i].dst = job.mem + at;
	at = 0;
	for (size_t i = 0; i < job.nranges; i++) {
		struct ckpt_load_range *r = &job.range[i];
		uint32_t k = 0;

		while (!ckpt_state_get(job.ck, r->tensor, k, &s, NULL) && strcmp(s.name, r->state))
			k++;
		r->dst = job.mem + at;
		at += up(r->count * ckpt_dtype_bits(s.dtype) / 8);
	}
}

static void *cat_worker(void *arg)
{
	size_t i;

	(void)arg;
	while ((i = atomic_fetch_add(&job.next, 1)) < job.nwindows) {
		const struct window *w = &job.window[i];

		read_window(w->fd, w->dst, w->n, w->at);
	}
	return NULL;
}

static void tell(const char *series, double seconds, uint64_t bytes)
{
	char *path = NULL;
	FILE *f = stdout;

	if (job.folder) {
		if (asprintf(&path, "%s/%s.tm", job.folder, series) < 0)
			die("memory");
		f = fopen(path, "a");
		if (!f)
			die(path);
		fprintf(f, "%.4f 0 %" PRIu64 " 0 0 0 0\n", seconds, bytes);
		fclose(f);
		free(path);
	} else {
		printf("%-7s %.4f s  %.2f GB/s\n", series, seconds, (double)bytes / seconds / 1e9);
	}
}

static void run_cat(int threads, const char *series)
{
	const double began = now();

	job.next = 0;
	run_threads(threads, cat_worker);
	tell(series, now() - began, job.file_bytes);
}

static void run_load(uint32_t threads, unsigned flags, const char *series)
{
	const struct ckpt_run_opts run = { .size = sizeof(run), .threads = threads };
	const struct ckpt_load_opts o = { .size = sizeof(o), .run = &run, .flags = flags };
	struct ckpt_loaded l;
	struct ckpt_err err = { 0 };
	const double began = now();

	if (ckpt_load(job.ck, job.range, job.nranges, &o, &l, &err))
		fail(&err);
	tell(series, now() - began, l.bytes_read);
	if (flags)
		job.checked = l;
}

int main(int argc, char **argv)
{
	struct ckpt_err err = { 0 };
	const char *path;
	int c, runs = 3;

	while ((c = getopt(argc, argv, "r:o:")) != -1) {
		if (c == 'r')
			runs = atoi(optarg);
		else if (c == 'o')
			job.folder = optarg;
		else
			return 2;
	}
	if (argc - optind != 1 || runs < 1) {
		fputs("loadloop [-r RUNS] [-o FOLDER] STEP\n", stderr);
		return 2;
	}
	path = argv[optind];
	if (ckpt_open(&path, 1, NULL, &job.ck, &err))
		fail(&err);
	list_ranges();
	make_room();
	for (int i = 0; i < runs; i++) {
		run_cat(1, "cat1");
		run_load(1, 0, "load1");
		run_load(1, CKPT_LOAD_CHECK, "check1");
		run_cat(2, "cat2");
		run_load(2, 0, "load2");
		run_load(2, CKPT_LOAD_CHECK, "check2");
	}
	printf("%" PRIu64 " of %" PRIu64 " bytes checked, %" PRIu64 " more read for it, %" PRIu64
	       " reads\n", job.checked.checked_bytes, job.checked.bytes_read,
	       job.checked.again_bytes, job.checked.reads);
	ckpt_close(job.ck);
	return 0;
}
