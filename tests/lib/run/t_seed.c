/* See t_seed.h. */
#include "tests/lib/run/t_seed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t t_seed(void)
{
	const char *text = getenv("ZCKPT_SEED");
	const uint64_t seed = text && *text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);

	printf("ZCKPT_SEED=%" PRIu64 "\n", seed);
	return seed;
}

bool t_is_long(void)
{
	const char *text = getenv("ZCKPT_LONG");

	return text && *text && strcmp(text, "0");
}

uint64_t t_draw(uint64_t *seed)
{
	uint64_t z = *seed += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint64_t t_draw_below(uint64_t *seed, uint64_t n)
{
	return n ? t_draw(seed) % n : 0;
}
