/* Arrays of random numbers, in fp32 and as the same values in double: for tests of kernels. */
#ifndef TE_NUMBERS_H
#define TE_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/include/kn_train.h"

struct te_array {
	size_t n;
	float *f;
	double *d;	/* the same values, or what a law made */
};

/* Normal numbers times 'scale', rounded to 'type'; allocated to the element. */
struct te_array te_random(size_t n, double scale, enum kn_type type, uint64_t *seed);
struct te_array te_zeros(size_t n);
struct te_array te_copy(const struct te_array *a);
void te_free(struct te_array *a);

/* max |f - d| over max(|d|, floor). */
double te_error(const struct te_array *a, double floor);
/* The unit of the last place of 'type' at 1. */
double te_unit(enum kn_type type);
double te_dot(const double *a, const double *b, size_t n);

/* Every feature mask that makes a difference on this machine, ending with KN_CPU_ALL. */
extern const unsigned te_masks[];
extern const size_t te_nmasks;

#endif
