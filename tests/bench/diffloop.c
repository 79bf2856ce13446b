/*
 * diffloop.c - the comparison of two arrays alone, in memory: GB/s of each of the two
 * by type, equal and with every element changed, for each set of variants.
 *
 *	diffloop [MIB]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/include/kn.h"

static const struct {
	const char *name;
	enum kn_num type;
	size_t size;
} types[] = {
	{ "f32", KN_NUM_F32, 4 }, { "bf16", KN_NUM_BF16, 2 }, { "f16", KN_NUM_F16, 2 },
	{ "f64", KN_NUM_F64, 8 },
};

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Finite numbers between 0.5 and 2; in 'b' the lowest bits of each differ. */
static void fill(uint8_t *p, size_t size, size_t n, int change)
{
	uint64_t x = 88172645463325252u;

	for (size_t i = 0; i < n; i++, p += size) {
		uint64_t v;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		v = size == 8 ? 0x3fe0000000000000u | (x & 0x1fffffffffffffu) :
		    size == 4 ? 0x3f000000u | (x & 0xffffffu) : 0x3800u | (x & 0x7ffu);
		v ^= change ? 1 + (x >> 60) % 7 : 0;
		memcpy(p, &v, size);
	}
}

int main(int argc, char **argv)
{
	const size_t bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 64) << 20;
	static const unsigned masks[] = { 0, KN_CPU_AVX2, KN_CPU_AVX2 | KN_CPU_F16C, KN_CPU_ALL };
	const struct kn_diff_how how = { .parts = 1, .abs = 1e-6, .rel = 1e-3 };
	uint8_t *a = malloc(bytes), *b = malloc(bytes);

	if (!a || !b)
		return 3;
	for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
		for (int change = 0; change < 2; change++) {
			fill(a, types[t].size, bytes / types[t].size, 0);
			fill(b, types[t].size, bytes / types[t].size, change);
			for (size_t m = 0; m < sizeof(masks) / sizeof(masks[0]); m++) {
				struct kn_diff d;
				double best = 1e9;

				kn_cpu_mask(masks[m]);
				for (int round = 0; round < 3; round++) {
					const double t0 = seconds();

					kn_diff(types[t].type, &how, a, b,
						bytes / types[t].size, &d);
					if (seconds() - t0 < best)
						best = seconds() - t0;
				}
				printf("%-5s %-7s %-10s %6.2f GB/s\n", types[t].name,
				       change ? "changed" : "equal", kn_cpu_variant(),
				       (double)bytes / best / 1e9);
			}
		}
	free(a);
	free(b);
	return 0;
}
