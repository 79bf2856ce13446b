/*
 * kn_gemm_bf16.c -- products of matrices of bf16 numbers, by the CPU's own instruction for them.
 *
 * VDPBF16PS (AVX512_BF16) adds two products of bf16 numbers to an fp32 sum in one step, twice
 * the work of a fused fp32 step.  Operands come as fp32 arrays whose lower halves are 0, so nothing
 * is lost when they are packed as pairs: elements k and k + 1 of a column are the halves of one
 * 32-bit word.
 *
 * Blocks: K in steps of STEP, the rows of A in blocks of ROWS, packed once in strips of MR for all
 * columns; of B a strip of NR columns at a time, which stays in the innermost cache while all
 * strips of A pass by.  MR x NR sums are held in 24 registers.  A sum is over the steps of K, each
 * over its pairs in ascending order, whatever block an element is in.
 */
#include "kernels/include/kn_train.h"

#if defined(KN_OPENBLAS) && defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#include <pthread.h>
#include <string.h>


#define FN __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"))) static
#define IN FN inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define MR 12u
#define NR 32u
#define STEP 512u	/* even; 256, 384 go over C more often and are slower */
#define PAIRS (STEP / 2)
/* Not below the 512 rows of a piece (en_mm.c): B is packed again for each block. */
#define ROWS (43u * MR)

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* The lowest n bits, n up to 16. */
static __mmask16 low(size_t n)
{
	return n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);
}

/* ---- packing: to[l * width + j] is the pair l of column j ---- */

/*
 * Columns lie side by side: two rows make a row of pairs.  Strips of 'width' columns (up to 32) are
 * packed at once, row by row, as they lie in memory.
 */
FN void pack_side(uint32_t *to, size_t width, size_t n, size_t k, const float *x, size_t ld)
{
	const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
	const size_t strip = (k + 1) / 2 * width;

	for (size_t l = 0; l < k; l += 2, to += width) {
		const float *a = x + l * ld;
		uint32_t *y = to;

		for (size_t j = 0; j < n; j += width, y += strip) {
			for (size_t i = 0; i < width; i += 16) {
				const __mmask16 room = low(width - i);
				const __mmask16 some = j + i < n ? low(n - j - i) & room : 0;
				const __m512i p = _mm512_maskz_loadu_epi32(some, a + j + i);
				const __m512i q = _mm512_maskz_loadu_epi32(l + 1 < k ? some : 0,
									   a + ld + j + i);

				_mm512_mask_storeu_epi32(y + i, room,
							 _mm512_or_si512(_mm512_srli_epi32(p, 16),
									 _mm512_and_si512(q, upper)));
			}
		}
	}
}

IN void transpose(__m512i r[16])
{
	__m512i t[16];

	UNROLL
	for (int i = 0; i < 16; i += 2) {
		t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
		t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
	}
	UNROLL
	for (int i = 0; i < 16; i += 4) {
		r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
		r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
		r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
		r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
	}
	/* r[4 i + c]: of rows 4 i to 4 i + 3 the columns c, 4 + c, 8 + c, 12 + c */
	UNROLL
	for (int c = 0; c < 4; c++) {
		t[c] = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);
		t[4 + c] = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
		t[8 + c] = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
		t[12 + c] = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
	}
	UNROLL
	for (int c = 0; c < 4; c++) {
		r[c] = _mm512_shuffle_i32x4(t[c], t[4 + c], 0x88);
		r[8 + c] = _mm512_shuffle_i32x4(t[c], t[4 + c], 0xdd);
		r[4 + c] = _mm512_shuffle_i32x4(t[8 + c], t[12 + c], 0x88);
		r[12 + c] = _mm512_shuffle_i32x4(t[8 + c], t[12 + c], 0xdd);
	}
}

/* The upper halves of 32 numbers, of which n are there: 16 pairs. */
IN __m512i halves(const float *x, size_t n, __m512i odd)
{
	const __m512i a = _mm512_maskz_loadu_epi32(low(n), x);
	const __m512i b = _mm512_maskz_loadu_epi32(n > 16 ? low(n - 16) : 0, x + 16);

	return _mm512_permutex2var_epi16(a, odd, b);
}

/* Columns are contiguous: 16 of them, 32 elements deep, are transposed in registers. */
FN void pack_deep(uint32_t *to, size_t width, size_t n, size_t k, const float *x, size_t ld)
{
	uint16_t at[32];
	__m512i r[16], odd;

	for (unsigned i = 0; i < 32; i++)
		at[i] = (uint16_t)(2 * i + 1);
	odd = _mm512_loadu_si512(at);
	for (size_t j = 0; j < width; j += 16) {
		for (size_t l = 0; l < k; l += 32) {
			const size_t pairs = least((k - l + 1) / 2, 16);

			UNROLL
			for (size_t i = 0; i < 16; i++)
				r[i] = j + i < n ? halves(x + (j + i) * ld + l, k - l, odd) :
						   _mm512_setzero_si512();
			transpose(r);
			UNROLL
			for (size_t i = 0; i < 16; i++)
				if (i < pairs)
					_mm512_mask_storeu_epi32(to + (l / 2 + i) * width + j,
								 low(width - j), r[i]);
		}
	}
}

/* ---- products ---- */

/* C [m, n], m <= MR, n <= NR, is written, or added to. */
FN void tile(size_t m, size_t n, size_t pairs, const uint32_t *a, const uint32_t *b, float *c,
	     size_t ldc, int add)
{
	const __mmask16 some[2] = { low(n), n > 16 ? low(n - 16) : 0 };
	__m512 acc[MR][2];

	UNROLL
	for (size_t i = 0; i < MR; i++)
		acc[i][0] = acc[i][1] = _mm512_setzero_ps();
	for (size_t l = 0; l < pairs; l++, a += MR, b += NR) {
		const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 16);

		UNROLL
		for (size_t i = 0; i < MR; i++) {
			const __m512i x = _mm512_set1_epi32((int)a[i]);

			acc[i][0] = _mm512_dpbf16_ps(acc[i][0], (__m512bh)x, (__m512bh)b0);
			acc[i][1] = _mm512_dpbf16_ps(acc[i][1], (__m512bh)x, (__m512bh)b1);
		}
	}
	UNROLL
	for (size_t i = 0; i < MR; i++) {
		UNROLL
		for (size_t j = 0; j < 2; j++) {
			float *p = c + i * ldc + 16 * j;
			__m512 y = acc[i][j];

			if (i >= m)
				continue;
			if (add)
				y = _mm512_add_ps(_mm512_maskz_loadu_ps(some[j], p), y);
			_mm512_mask_storeu_ps(p, some[j], y);
		}
	}
}

/* Rows of C of one block and one step of K. */
FN void block(unsigned flags, size_t m, size_t n, size_t k, const float *a, size_t lda,
	      const float *b, size_t ldb, float *c, size_t ldc, int add)
{
	uint32_t pa[ROWS * PAIRS], pb[NR * PAIRS];
	const size_t pairs = (k + 1) / 2;

	if (flags & KN_GEMM_TA)
		pack_side(pa, MR, m, k, a, lda);
	for (size_t i = 0; !(flags & KN_GEMM_TA) && i < m; i += MR)
		pack_deep(pa + i * pairs, MR, least(MR, m - i), k, a + i * lda, lda);
	for (size_t j = 0; j < n; j += NR) {
		const size_t cols = least(NR, n - j);

		if (flags & KN_GEMM_TB)
			pack_deep(pb, NR, cols, k, b + j * ldb, ldb);
		else
			pack_side(pb, NR, cols, k, b + j, ldb);
		for (size_t i = 0; i < m; i += MR)
			tile(least(MR, m - i), cols, pairs, pa + i * pairs, pb, c + i * ldc + j,
			     ldc, add);
	}
}

static void all_blocks(unsigned flags, size_t m, size_t n, size_t k, const float *a, size_t lda,
		       const float *b, size_t ldb, float *c, size_t ldc)
{
	for (size_t l = 0; l < k; l += STEP) {
		for (size_t i = 0; i < m; i += ROWS)
			block(flags, least(ROWS, m - i), n, least(STEP, k - l),
			      flags & KN_GEMM_TA ? a + l * lda + i : a + i * lda + l, lda,
			      flags & KN_GEMM_TB ? b + l : b + l * ldb, ldb, c + i * ldc, ldc,
			      l || flags & KN_GEMM_ADD);
	}
}

static int has_bf16;

static void look_at_cpu(void)
{
	__builtin_cpu_init();
	has_bf16 = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
		   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static int can(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, look_at_cpu);
	return has_bf16;
}

void kn_gemm_bf16(unsigned flags, size_t m, size_t n, size_t k, const float *a, size_t lda,
		  const float *b, size_t ldb, float *c, size_t ldc)
{
	if (m && n && k && can())
		all_blocks(flags, m, n, k, a, lda, b, ldb, c, ldc);
	else
		kn_gemm(flags, m, n, k, a, lda, b, ldb, c, ldc);
}

const char *kn_gemm_bf16_name(void)
{
	return can() ? "avx512_bf16" : kn_gemm_name();
}

#else

void kn_gemm_bf16(unsigned flags, size_t m, size_t n, size_t k, const float *a, size_t lda,
		  const float *b, size_t ldb, float *c, size_t ldc)
{
	kn_gemm(flags, m, n, k, a, lda, b, ldb, c, ldc);
}

const char *kn_gemm_bf16_name(void)
{
	return kn_gemm_name();
}

#endif
