/* fk_base.c -- small things of the fake GPU. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/gpusim/fk.h"

void fk_die(const char *fmt, ...)
{
	const char *path = getenv("FAKE_GPU_REPORT");
	FILE *report = path ? fopen(path, "a") : NULL;
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (report) {	/* a launcher that kills its ranks may lose the last lines of one */
		fprintf(report, "fake GPU: %s\n", text);
		fclose(report);
	}
	fflush(stdout);
	fprintf(stderr, "fake GPU: %s\n", text);
	fflush(stderr);
	abort();
}

uint64_t fk_env(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	char *end;
	uint64_t n;

	if (!text || !*text)
		return otherwise;
	n = strtoull(text, &end, 10);
	if (*end == 'K' || *end == 'M' || *end == 'G') {
		n <<= *end == 'K' ? 10 : *end == 'M' ? 20 : 30;
		end++;
	}
	if (*end)
		fk_die("%s=%s is no number", name, text);
	return n;
}

void *fk_room(size_t bytes)
{
	void *p = malloc(bytes ? bytes : 1);

	if (!p)
		fk_die("no host memory for %zu bytes", bytes);
	return p;
}

double fk_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
