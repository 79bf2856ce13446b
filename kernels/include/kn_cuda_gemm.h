/*
 * kn_cuda_gemm.h -- matrix products on a GPU, by cuBLASLt.
 *
 *	D [m, n] = alpha op(A) op(B) + (C with KN_GEMM_ADD)
 *
 * Matrices are row-major; 'ld' is the distance of rows in elements.  op(A) is [m, k], op(B) is
 * [k, n]; KN_GEMM_TA says that A is stored [k, m], KN_GEMM_TB that B is stored [n, k].  So
 *	y = x W^T	TB,		m tokens, n out, k in
 *	dx = dy W	0,		m tokens, n in,  k out
 *	dW = dy^T x	TA,		m out,    n in,  k tokens
 *
 * Sums are fp32 for every type of A and B; fp32 matrices are multiplied in true fp32 unless
 * KN_CU_GEMM_TF32 is given.  Sums of a product cut along k are added in fp32 in a fixed order, so
 * the same algorithm on the same kind of GPU gives the same bits, always.
 *
 * A handle keeps one algorithm per shape.  It is chosen when the shape is first seen, by
 * cuBLASLt's own estimate, or by kn_cu_gemm_tune(), which times some.  The choices can be written
 * as text and read: one rank chooses and the others take its text, or a run is repeated with the
 * choices of the last.  A text fits one version of cuBLASLt and one model of GPU only.
 *
 * Calls return 0, a cudaError_t above 0, or KN_CU_GEMM_LIB (cuBLASLt refused; or a text does not
 * fit); kn_cu_gemm_why() then has the sentence.  A handle belongs to one device (the current
 * one at kn_cu_gemm_new()) and one thread, and its workspace to one stream.
 */
#ifndef KN_CUDA_GEMM_H
#define KN_CUDA_GEMM_H

#include <stddef.h>

#include "kernels/include/kn_train.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* a cudaStream_t points to one */
struct kn_cu_gemm;

/* Flags besides KN_GEMM_TA, KN_GEMM_TB and KN_GEMM_ADD. */
#define KN_CU_GEMM_TF32 16u /* fp32 matrices may be rounded to TF32 (10 bits) */

#define KN_CU_GEMM_LIB (-1)

/* What is worth giving: products of 16-bit matrices on Hopper use up to 32 MiB. */
#define KN_CU_GEMM_WORK ((size_t)32 << 20)

struct kn_cu_mm {
	unsigned flags;
	size_t m, n, k;
	size_t lda, ldb, ldc, ldd; /* ldc counts with KN_GEMM_ADD only */
	enum kn_type type;         /* of A and B: KN_F32, KN_BF16, KN_F16 */
	enum kn_type out;          /* of C and D: 'type' or KN_F32 */
};

/*
 * 'work' is device memory of 'bytes' bytes, aligned to 256, kept by the caller for as long as the
 * handle lives; 0 bytes are allowed and slow.  Products that run at the same time on several
 * streams need a handle each.
 */
int kn_cu_gemm_new(struct kn_cu_gemm **g_out, void *work, size_t bytes);
void kn_cu_gemm_free(struct kn_cu_gemm *g);

/*
 * One product, asynchronous on 'stream'.  C is read with KN_GEMM_ADD only, else NULL.  It
 * is apart from D; in fp32 it may be D itself (then ldc is ldd).  In 16 bits it may not: the
 * algorithms that cuBLASLt 13.1 chooses on an H200 then gave wrong sums.  D overlaps nothing else.
 * The first call of a shape asks cuBLASLt for its choice on the host; later ones only launch.
 * Pointers and rows need no more alignment than their elements; below 16 bytes it is slower, and
 * another shape.
 */
int kn_cu_gemm_run(struct kn_cu_gemm *g, const struct kn_cu_mm *mm, float alpha, const void *a,
		   const void *b, const void *c, void *d, struct CUstream_st *stream);

/*
 * Times cuBLASLt's best 'tries' algorithms on the given buffers and keeps the fastest for this
 * shape: in turns of 20 ms, five each, so that a GPU at work is what is measured.  D is overwritten
 * (C must not be D).  A and B should hold numbers like real ones: zeros draw less power and run
 * faster.  Waits for the stream.  'seconds_out' (may be NULL) gets the time of one product.
 */
int kn_cu_gemm_tune(struct kn_cu_gemm *g, const struct kn_cu_mm *mm, unsigned tries, const void *a,
		    const void *b, const void *c, void *d, struct CUstream_st *stream,
		    double *seconds_out);

/*
 * The choices so far, a line each, in the order in which they were made, as a string of at most
 * 'bytes' with its final 0.  Returns the bytes that the whole text takes with its 0; when that is
 * more than 'bytes', nothing is written.
 */
size_t kn_cu_gemm_write(const struct kn_cu_gemm *g, char *text, size_t bytes);

/*
 * Takes choices from such a text in the place of own ones.  Nothing changes unless every line is
 * understood and cuBLASLt takes each algorithm for its shape with this handle's workspace.
 */
int kn_cu_gemm_read(struct kn_cu_gemm *g, const char *text);

/* Number of shapes seen. */
size_t kn_cu_gemm_count(const struct kn_cu_gemm *g);

/* What the last call that failed ran into. */
const char *kn_cu_gemm_why(const struct kn_cu_gemm *g);

#ifdef __cplusplus
}
#endif

#endif
