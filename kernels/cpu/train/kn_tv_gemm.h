/*
 * kn_tv_gemm.h -- the inner tile of the own matrix product.
 *
 * 'a' holds k columns of KN_GEMM_MR rows, 'b' k rows of KN_GEMM_NR columns, zeros after what is
 * there.  Each element of C gets its products in the order of k, whatever the width.
 */
#ifndef KN_TV_GEMM_H
#define KN_TV_GEMM_H

#include "kernels/cpu/train/kn_tv.h"

/* Vectors of one row that are held in registers: 2 x 6 of them are, with 16 registers. */
#define TV_GEMM_COLS 2

FN void tv_gemm_strip(size_t k, const float *a, const float *b, float *out)
{
	vf acc[KN_GEMM_MR][TV_GEMM_COLS] = { { { 0 } } };

	for (size_t l = 0; l < k; l++, a += KN_GEMM_MR, b += KN_GEMM_NR) {
		vf col[TV_GEMM_COLS];

		UNROLL
		for (size_t j = 0; j < TV_GEMM_COLS; j++)
			col[j] = v_load(b + j * KN_W);
		UNROLL
		for (size_t i = 0; i < KN_GEMM_MR; i++) {
			const vf x = v_set(a[i]);

			UNROLL
			for (size_t j = 0; j < TV_GEMM_COLS; j++)
				acc[i][j] += x * col[j];
		}
	}
	UNROLL
	for (size_t i = 0; i < KN_GEMM_MR; i++)
		UNROLL
		for (size_t j = 0; j < TV_GEMM_COLS; j++)
			v_store(out + i * KN_GEMM_NR + j * KN_W, acc[i][j]);
}

FN void tv_gemm_tile(size_t m, size_t n, size_t k, const float *a, const float *b, float *c,
		     size_t ldc)
{
	float out[KN_GEMM_MR * KN_GEMM_NR];

	for (size_t j = 0; j < KN_GEMM_NR; j += TV_GEMM_COLS * KN_W)
		tv_gemm_strip(k, a, b + j, out + j);
	for (size_t i = 0; i < m; i++)
		for (size_t j = 0; j < n; j += KN_W)
			v_store_some(c + i * ldc + j,
				     v_load_some(c + i * ldc + j, n - j, 0) +
					     v_load_some(out + i * KN_GEMM_NR + j, n - j, 0),
				     n - j);
}

#endif
