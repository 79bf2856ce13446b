/*
 * tg_gpu.h -- for tests of kernels on a GPU: arrays of random numbers on both sides, memory that
 * tells when something beside it was written, and results that must come twice.
 *
 * A test says which kernel it is at with tg_begin(), makes cases, and calls the kernel twice for
 * each: between the calls tg_reset() looks at the borders of all that was on the device.
 */
#ifndef TG_GPU_H
#define TG_GPU_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/include/kn_train.h"

/* Ends with 77 if there is no GPU.  Device memory for one case: 'bytes'. */
void tg_open(size_t bytes);
/* Prints the sums; 0, or 1 if something failed. */
int tg_close(void);

/* The kernel that is at work, for messages and the table; NULL: none. */
void tg_begin(const char *kernel);
/* What is particular in this case, for messages. */
void tg_case(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* 'ok' is 0: the case failed. */
void tg_check(int ok, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The result of a call of the runtime or of a kernel: 0. */
void tg_call(int rc, const char *text);
#define TG(call) tg_call((int)(call), #call)

/* ---------------------------------------------------------------- numbers */

/* The bits in 'type', and the same values in two more types. */
struct tg_array {
	size_t n;
	enum kn_type type;
	void *raw;
	float *f;
	double *d;
};

uint64_t tg_rand(void);
/* 0 .. n - 1 */
size_t tg_below(size_t n);
/* Normal numbers times 'scale', rounded to 'type'. */
struct tg_array tg_random(size_t n, double scale, enum kn_type type);
struct tg_array tg_zeros(size_t n, enum kn_type type);
void tg_free(struct tg_array *a);
void *tg_alloc(size_t bytes);
/* Raw and double from f, after f was changed. */
void tg_settle(struct tg_array *a);

/* ---------------------------------------------------------------- device memory */

/* Frees all; what was written beside an array fails the case. */
void tg_reset(void);
/* 'shift' bytes off a multiple of 256.  tg_room() is full of NaN. */
void *tg_put(const void *host, size_t bytes, size_t shift);
void *tg_room(size_t bytes, size_t shift);
/* The bits of an array, shifted by elements. */
void *tg_up(const struct tg_array *a, size_t shift);

/* ---------------------------------------------------------------- results */

/*
 * Result 'slot' (below 4) of the call number 'turn' (0 or 1): the first is kept, the second must
 * have its bits.
 */
void tg_out(int turn, int slot, const void *dev, size_t bytes);
const void *tg_bits(int slot);

/*
 * Result 'slot' of 'n' elements is near 'want': the largest difference, over the largest of |want|
 * or 'floor', in units of the last place of 'unit' at 1, is at most 'units'.
 */
void tg_near(int slot, const char *what, const double *want, size_t n, enum kn_type type,
	     enum kn_type unit, double units, double floor);
/* The coarser of two types. */
enum kn_type tg_coarser(enum kn_type a, enum kn_type b);
/* Result 'slot' has these bits. */
void tg_equal(int slot, const char *what, const void *want, size_t bytes);

#endif
