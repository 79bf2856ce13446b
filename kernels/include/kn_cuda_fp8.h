/*
 * kn_cuda_fp8.h -- products of 8-bit numbers on a GPU that has them (sm_89, sm_90 and later), and
 * the way there: the largest number of a tensor, and its copies of 8 bits by the law of kn_fp8.h.
 *
 * The products of cuBLASLt want both factors with the inner dimension contiguous, so a tensor that
 * is a factor of two products is needed as it is and transposed: one kernel writes both.
 *
 * Calls return 0 or a cudaError_t, products also KN_CU_GEMM_LIB, as in kn_cuda.h and
 * kn_cuda_gemm.h.  Everything has the same bits each time.
 */
#ifndef KN_CUDA_FP8_H
#define KN_CUDA_FP8_H

#include <stdbool.h>

#include "kernels/include/kn_cuda_gemm.h"
#include "kernels/include/kn_fp8.h"

#ifdef __cplusplus
extern "C" {
#endif

/* On the device, at a multiple of 16.  The caller sets it to zeros before a new tensor. */
struct kn_cu_fp8_scale {
	float inverse;		/* written by kn_cu_fp8_cast() */
	float amax;
	float unused[2];
};

/* s->amax = the larger of it and of all |x|, x [rows, n] with rows 'ld' apart; NaN is larger. */
int kn_cu_fp8_amax(struct kn_cu_fp8_scale *s, const void *x, enum kn_type type, size_t ld,
		   size_t rows, size_t n, struct CUstream_st *stream);

/*
 * y [rows, n] and yt [n, rows] (either may be NULL) from x by s->amax, whose inverse is written.
 * Fast are rows and n of a multiple of 8 with x at a multiple of 16, y and yt at one of 8.
 */
int kn_cu_fp8_cast(void *y, void *yt, struct kn_cu_fp8_scale *s, enum kn_fp8 to, const void *x,
		   enum kn_type type, size_t ld, size_t rows, size_t n,
		   struct CUstream_st *stream);

/*
 * Of kn_cuda.h, with s->amax as kn_cu_fp8_amax() makes it of the result: of y, dx, y and dgu.  's'
 * may be NULL.
 */
int kn_cu_rmsnorm_amax(void *y, float *rstd, const void *x, const void *w, size_t rows, size_t n,
		       float eps, enum kn_type type, struct kn_cu_fp8_scale *s,
		       struct CUstream_st *stream);
int kn_cu_rmsnorm_back_amax(void *dx, void *dw, enum kn_type grad_type, const void *dy,
			    const void *x, const float *rstd, const void *w, const void *add,
			    size_t rows, size_t n, enum kn_type type, unsigned flags, void *work,
			    struct kn_cu_fp8_scale *s, struct CUstream_st *stream);
int kn_cu_swiglu_amax(void *y, const void *gu, size_t rows, size_t n, enum kn_type type,
		      struct kn_cu_fp8_scale *s, struct CUstream_st *stream);
int kn_cu_swiglu_back_amax(void *dgu, void *y, const void *dy, const void *gu, size_t rows,
			   size_t n, enum kn_type type, struct kn_cu_fp8_scale *s,
			   struct CUstream_st *stream);

/* fp32 sums may lose bits for speed, as cuBLASLt has it. */
#define KN_CU_FP8_FAST 32u

/* D [m, n] = A [m, k] B [n, k]^T times both inverses, + C with KN_GEMM_ADD. */
struct kn_cu_mm8 {
	unsigned flags;		/* KN_GEMM_ADD, KN_CU_FP8_FAST */
	size_t m, n, k;
	size_t ldc, ldd;	/* ldc counts with KN_GEMM_ADD only */
	enum kn_fp8 a, b;	/* not both KN_E5M2 */
	enum kn_type out;	/* of C and D */
};

/* Whether there is such a product: n, k and the bytes of C's and D's rows are multiples of 16. */
bool kn_cu_gemm_fits8(const struct kn_cu_mm8 *mm, const void *c, const void *d);

/* As kn_cu_gemm_run(); rows of A and B are k apart, and both are at a multiple of 16. */
int kn_cu_gemm_run8(struct kn_cu_gemm *g, const struct kn_cu_mm8 *mm, const void *a,
		    const struct kn_cu_fp8_scale *as, const void *b,
		    const struct kn_cu_fp8_scale *bs, const void *c, void *d,
		    struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
