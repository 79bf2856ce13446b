/* kn_cuda_random.h -- random numbers on a GPU; conventions as in kn_cuda.h. */
#ifndef KN_CUDA_RANDOM_H
#define KN_CUDA_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/include/kn.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
struct kn_dropout;

/* As kn_random_normal(), and with its bits; n below 2^39. */
int kn_cu_random_normal(float *out, size_t n, uint64_t seed, uint64_t stream, uint64_t first,
			double mean, double std, struct CUstream_st *on);

/* As kn_dropout() of rows 0..rows, in 'type', and with its bits; out may be x or add. */
int kn_cu_dropout(void *out, const void *x, const void *add, size_t rows, size_t n,
		  const struct kn_dropout *d, enum kn_type type, struct CUstream_st *on);

#ifdef __cplusplus
}
#endif

#endif
