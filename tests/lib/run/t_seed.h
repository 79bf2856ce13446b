/*
 * What ZCKPT_SEED and ZCKPT_LONG ask of a test, and numbers that follow from a seed.
 */
#ifndef T_SEED_H
#define T_SEED_H

#include <stdbool.h>
#include <stdint.h>

/* $ZCKPT_SEED, or the time where it is not set; printed, so that a failure can be repeated. */
uint64_t t_seed(void);
/* $ZCKPT_LONG is set, and not 0. */
bool t_is_long(void);

/* splitmix64: the same numbers everywhere, for any seed. */
uint64_t t_draw(uint64_t *seed);
/* One of 0 to n - 1; 0 for n = 0. */
uint64_t t_draw_below(uint64_t *seed, uint64_t n);

#endif
