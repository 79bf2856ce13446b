/*
 * en_mix.h -- one 64-bit number as a function of others: what is random in the data is computed
 * from a seed and a place, never drawn, so that every rank and every resumed run has the same.
 */
#ifndef EN_MIX_H
#define EN_MIX_H

#include <stdint.h>

/* The output function of SplitMix64 (Steele, Lea, Flood 2014): a bijection that mixes all bits. */
static inline uint64_t en_mix64(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static inline uint64_t en_mix2(uint64_t a, uint64_t b)
{
	return en_mix64(en_mix64(a) ^ b);
}

#endif
