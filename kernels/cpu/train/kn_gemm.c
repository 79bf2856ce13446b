/*
 * kn_gemm.c -- matrix products: OpenBLAS where it is built in, else own loops.
 *
 * OpenBLAS is told once to work on the caller's thread alone: who wants more threads cuts C into
 * blocks and calls for each, so that bits follow from the blocks, not from the threads.
 *
 * The own loops: C is cut into blocks of GEMM_M rows, K into steps of KN_GEMM_K; the rows of A
 * are packed in strips of KN_GEMM_MR, and for each KN_GEMM_NR columns B is packed likewise.  An
 * element of C is the sum over the steps, each the sum over its products, in ascending order.
 */
#include "kernels/include/kn_train.h"

#include <string.h>

#include "kernels/cpu/train/kn_tops.h"

#ifdef KN_OPENBLAS
#include <cblas.h>
#include <limits.h>
#include <pthread.h>
#endif

#define GEMM_M 96u

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static void pack_a(float *to, unsigned flags, size_t m, size_t k, const float *a, size_t lda)
{
	for (size_t i = 0; i < m; i += KN_GEMM_MR) {
		for (size_t l = 0; l < k; l++) {
			for (size_t r = 0; r < KN_GEMM_MR; r++) {
				const size_t at = flags & KN_GEMM_TA ? l * lda + i + r :
								       (i + r) * lda + l;

				*to++ = i + r < m ? a[at] : 0;
			}
		}
	}
}

static void pack_b(float *to, unsigned flags, size_t n, size_t k, const float *b, size_t ldb)
{
	if (flags & KN_GEMM_TB) {
		memset(to, 0, k * KN_GEMM_NR * sizeof(*to));
		for (size_t j = 0; j < n; j++)
			for (size_t l = 0; l < k; l++)
				to[l * KN_GEMM_NR + j] = b[j * ldb + l];
		return;
	}
	for (size_t l = 0; l < k; l++, to += KN_GEMM_NR) {
		memcpy(to, b + l * ldb, n * sizeof(*to));
		memset(to + n, 0, (KN_GEMM_NR - n) * sizeof(*to));
	}
}

/* Rows of C of one block and one step of K. */
static void block(const struct kn_tops *ops, unsigned flags, size_t m, size_t n, size_t k,
		  const float *a, size_t lda, const float *b, size_t ldb, float *c, size_t ldc)
{
	float pa[GEMM_M * KN_GEMM_K], pb[KN_GEMM_K * KN_GEMM_NR];

	pack_a(pa, flags, m, k, a, lda);
	for (size_t j = 0; j < n; j += KN_GEMM_NR) {
		const size_t cols = least(KN_GEMM_NR, n - j);

		pack_b(pb, flags, cols, k, flags & KN_GEMM_TB ? b + j * ldb : b + j, ldb);
		for (size_t i = 0; i < m; i += KN_GEMM_MR)
			ops->gemm_tile(least(KN_GEMM_MR, m - i), cols, k, pa + i * k, pb,
				       c + i * ldc + j, ldc);
	}
}

void kn_gemm_own(unsigned flags, size_t m, size_t n, size_t k, const float *a, size_t lda,
		 const float *b, size_t ldb, float *c, size_t ldc)
{
	const struct kn_tops *ops = kn_tops_get();

	for (size_t i = 0; !(flags & KN_GEMM_ADD) && i < m; i++)
		memset(c + i * ldc, 0, n * sizeof(*c));
	for (size_t l = 0; l < k; l += KN_GEMM_K) {
		for (size_t i = 0; i < m; i += GEMM_M)
			block(ops, flags, least(GEMM_M, m - i), n, least(KN_GEMM_K, k - l),
			      flags & KN_GEMM_TA ? a + l * lda + i : a + i * lda + l, lda,
			      flags & KN_GEMM_TB ? b + l : b + l * ldb, ldb, c + i * ldc, ldc);
	}
}

#ifdef KN_OPENBLAS

static void one_thread(void)
{
	openblas_set_num_threads(1);
}

/* Its integers are 32 bits wide; what does not fit, and what is nothing, is for the own loops. */
static int blas_takes(size_t m, size_t n, size_t k, size_t lda, size_t ldb, size_t ldc)
{
	return m && n && k && (m | n | k | lda | ldb | ldc) <= INT_MAX;
}

void kn_gemm(unsigned flags, size_t m, size_t n, size_t k, const float *a, size_t lda,
	     const float *b, size_t ldb, float *c, size_t ldc)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (!blas_takes(m, n, k, lda, ldb, ldc)) {
		kn_gemm_own(flags, m, n, k, a, lda, b, ldb, c, ldc);
		return;
	}
	pthread_once(&once, one_thread);
	cblas_sgemm(CblasRowMajor, flags & KN_GEMM_TA ? CblasTrans : CblasNoTrans,
		    flags & KN_GEMM_TB ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k, 1, a,
		    (int)lda, b, (int)ldb, flags & KN_GEMM_ADD ? 1 : 0, c, (int)ldc);
}

const char *kn_gemm_name(void)
{
	return "openblas";
}

#else

void kn_gemm(unsigned flags, size_t m, size_t n, size_t k, const float *a, size_t lda,
	     const float *b, size_t ldb, float *c, size_t ldc)
{
	kn_gemm_own(flags, m, n, k, a, lda, b, ldb, c, ldc);
}

const char *kn_gemm_name(void)
{
	return "own";
}

#endif
