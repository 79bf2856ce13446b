/* tg_gpu.c -- see tg_gpu.h. */
#include "tests/gpu/tg_gpu.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/include/kn.h"

#define GUARD 256u
#define MOST_LIVE 64
#define SLOTS 4

static struct {
	char *base;
	size_t bytes, at;
	struct {
		size_t at, bytes;	/* of the array; guards before and behind */
	} live[MOST_LIVE];
	int nlive;
	const char *kernel;
	char text[200];
	unsigned long cases, checks, failed, all, all_failed, kernel_failed;
	double worst;
	char worst_at[200], worst_what[40];
	void *slot[SLOTS];
	size_t slot_bytes[SLOTS];
	uint64_t seed;
} g = { .seed = 0x9e3779b97f4a7c15u };

/* ---------------------------------------------------------------- report */

static void end_kernel(void)
{
	if (!g.kernel)
		return;
	printf("  %-18s %6lu cases %7lu checks  worst %8.3f units %-6s %s%s\n", g.kernel, g.cases,
	       g.checks, g.worst, g.worst_what, g.kernel_failed ? "FAILED, " : "", g.worst_at);
	fflush(stdout);
}

void tg_begin(const char *kernel)
{
	end_kernel();
	g.kernel = kernel;
	g.cases = g.checks = g.kernel_failed = 0;
	g.worst = 0;
	g.worst_at[0] = g.worst_what[0] = '\0';
}

void tg_case(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(g.text, sizeof(g.text), format, ap);
	va_end(ap);
	g.cases++;
}

void tg_check(int ok, const char *format, ...)
{
	va_list ap;

	g.checks++;
	g.all++;
	if (ok)
		return;
	g.all_failed++;
	if (++g.kernel_failed > 8)
		return;
	va_start(ap, format);
	printf("FAILED %s (%s): ", g.kernel ? g.kernel : "-", g.text);
	vprintf(format, ap);
	printf("\n");
	va_end(ap);
}

void tg_call(int rc, const char *text)
{
	if (!rc)
		return;
	printf("FAILED %s (%s): %.60s: error %d, %s\n", g.kernel ? g.kernel : "-", g.text, text,
	       rc, cudaGetErrorString((cudaError_t)rc));
	exit(1);
}

void tg_open(size_t bytes)
{
	struct cudaDeviceProp p;
	int n = 0;

	if (cudaGetDeviceCount(&n) != cudaSuccess || !n) {
		fprintf(stderr, "no GPU here\n");
		exit(77);
	}
	TG(cudaGetDeviceProperties(&p, 0));
	printf("%s, %d multiprocessors, compute capability %d.%d\n", p.name,
	       p.multiProcessorCount, p.major, p.minor);
	TG(cudaMalloc((void **)&g.base, bytes));
	g.bytes = bytes;
}

int tg_close(void)
{
	tg_reset();
	tg_begin(NULL);
	printf("%lu checks, %lu failed\n", g.all, g.all_failed);
	for (int i = 0; i < SLOTS; i++)
		free(g.slot[i]);
	TG(cudaFree(g.base));
	return g.all_failed ? 1 : 0;
}

/* ---------------------------------------------------------------- numbers */

void *tg_alloc(size_t bytes)
{
	void *p = malloc(bytes ? bytes : 1);

	if (!p) {
		printf("FAILED: no memory for %zu bytes\n", bytes);
		exit(1);
	}
	return p;
}

uint64_t tg_rand(void)
{
	uint64_t z = g.seed += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

size_t tg_below(size_t n)
{
	return (size_t)(tg_rand() % n);
}

void tg_settle(struct tg_array *a)
{
	kn_cast(a->raw, a->type, a->f, KN_F32, a->n, NULL);
	kn_cast(a->f, KN_F32, a->raw, a->type, a->n, NULL);
	for (size_t i = 0; i < a->n; i++)
		a->d[i] = (double)a->f[i];
}

struct tg_array tg_zeros(size_t n, enum kn_type type)
{
	struct tg_array a = { .n = n, .type = type };

	a.raw = tg_alloc(n * kn_type_size(type));
	a.f = tg_alloc(n * sizeof(*a.f));
	a.d = tg_alloc(n * sizeof(*a.d));
	memset(a.f, 0, n * sizeof(*a.f));
	tg_settle(&a);
	return a;
}

/* A sum of four even numbers is normal enough. */
struct tg_array tg_random(size_t n, double scale, enum kn_type type)
{
	struct tg_array a = tg_zeros(n, type);

	for (size_t i = 0; i < n; i++) {
		const uint64_t u = tg_rand();
		double s = 0;

		for (int k = 0; k < 4; k++)
			s += (double)(u >> (16 * k) & 0xffff) - 32767.5;
		a.f[i] = (float)(s / 37837.0 * scale);
	}
	tg_settle(&a);
	return a;
}

void tg_free(struct tg_array *a)
{
	free(a->raw);
	free(a->f);
	free(a->d);
	memset(a, 0, sizeof(*a));
}

/* ---------------------------------------------------------------- device memory */

static void check_guard(size_t at, const char *where)
{
	unsigned char b[GUARD];
	size_t bad = 0;

	TG(cudaMemcpy(b, g.base + at, GUARD, cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < GUARD; i++)
		bad += b[i] != 0xa5;
	tg_check(!bad, "%zu bytes %s an array were written", bad, where);
}

void tg_reset(void)
{
	TG(cudaDeviceSynchronize());
	for (int i = 0; i < g.nlive; i++) {
		check_guard(g.live[i].at - GUARD, "before");
		check_guard(g.live[i].at + g.live[i].bytes, "behind");
	}
	g.nlive = 0;
	g.at = 0;
}

void *tg_room(size_t bytes, size_t shift)
{
	const size_t at = g.at + GUARD + shift, end = at + bytes + GUARD;

	if (end > g.bytes || g.nlive == MOST_LIVE) {
		printf("FAILED %s (%s): the case does not fit in %zu bytes\n", g.kernel, g.text,
		       g.bytes);
		exit(1);
	}
	TG(cudaMemset(g.base + g.at, 0xa5, end - g.at));
	if (bytes)
		TG(cudaMemset(g.base + at, 0xff, bytes));
	g.live[g.nlive].at = at;
	g.live[g.nlive++].bytes = bytes;
	g.at = (end + 255) / 256 * 256;
	return g.base + at;
}

void *tg_put(const void *host, size_t bytes, size_t shift)
{
	void *p = tg_room(bytes, shift);

	if (bytes)
		TG(cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice));
	return p;
}

void *tg_up(const struct tg_array *a, size_t shift)
{
	return tg_put(a->raw, a->n * kn_type_size(a->type), shift * kn_type_size(a->type));
}

/* ---------------------------------------------------------------- results */

void tg_out(int turn, int slot, const void *dev, size_t bytes)
{
	char *now = tg_alloc(bytes);
	size_t at = 0;

	TG(cudaDeviceSynchronize());
	if (bytes)
		TG(cudaMemcpy(now, dev, bytes, cudaMemcpyDeviceToHost));
	if (!turn) {
		free(g.slot[slot]);
		g.slot[slot] = now;
		g.slot_bytes[slot] = bytes;
		return;
	}
	tg_check(bytes == g.slot_bytes[slot], "%zu bytes the second time, %zu the first", bytes,
		 g.slot_bytes[slot]);
	if (memcmp(now, g.slot[slot], bytes)) {
		while (now[at] == ((char *)g.slot[slot])[at])
			at++;
		tg_check(0, "result %d has other bits the second time, from byte %zu of %zu",
			 slot, at, bytes);
	}
	g.checks++;
	g.all++;
	free(now);
}

const void *tg_bits(int slot)
{
	return g.slot[slot];
}

static double unit_of(enum kn_type type)
{
	return type == KN_F32 ? 0x1p-23 : type == KN_F16 ? 0x1p-10 : 0x1p-7;
}

enum kn_type tg_coarser(enum kn_type a, enum kn_type b)
{
	return unit_of(a) > unit_of(b) ? a : b;
}

void tg_near(int slot, const char *what, const double *want, size_t n, enum kn_type type,
	     enum kn_type unit, double units, double floor)
{
	float *got = tg_alloc(n * sizeof(*got));
	double top = floor, most = 0, off;
	size_t at = 0;

	kn_cast(got, KN_F32, g.slot[slot], type, n, NULL);
	for (size_t i = 0; i < n; i++) {
		const double e = fabs((double)got[i] - want[i]);

		top = fabs(want[i]) > top ? fabs(want[i]) : top;
		/* a NaN stays the worst */
		if (!(e <= most) && most == most) {
			most = e;
			at = i;
		}
	}
	off = most / top / unit_of(unit);
	if (!(off <= g.worst)) {
		g.worst = off;
		snprintf(g.worst_what, sizeof(g.worst_what), "%s", what);
		snprintf(g.worst_at, sizeof(g.worst_at), "%s", g.text);
	}
	tg_check(off <= units, "%s is off by %g units, %g are allowed: element %zu of %zu is %.9g, "
		 "not %.9g", what, off, units, at, n, n ? (double)got[at] : 0, n ? want[at] : 0);
	free(got);
}

void tg_equal(int slot, const char *what, const void *want, size_t bytes)
{
	const unsigned char *a = g.slot[slot], *b = want;
	size_t at = 0;

	while (at < bytes && a[at] == b[at])
		at++;
	tg_check(bytes == g.slot_bytes[slot] && at == bytes, "%s has other bits than it should, "
		 "from byte %zu of %zu", what, at, bytes);
}
