/*
 * kn_cu_fp8.cu -- the largest number of a tensor, and copies of 8 bits, also transposed.
 *
 * A thread of a copy has eight rows of eight columns: it reads 16 bytes of each row, and turns the
 * 64 bytes in registers, so that nothing goes through shared memory.  Where a transposed copy is
 * written a warp has 32 columns of 64 rows: whole sectors of 32 bytes both ways.
 */
#include <cuda_fp8.h>

#include "kernels/cuda/kn_cu_device.cuh"
#include "kernels/include/kn_cuda_fp8.h"

#define THREADS 256
#define TILE 128		/* rows and columns of a block */
#define MOST_BLOCKS 2112	/* of the largest number */

/* ---------------------------------------------------------------- the largest */

/* Bits of |x| as an integer: NaN is above infinity. */
KN_DEV uint32_t larger(uint32_t a, const kn_v8<float> &v)
{
#pragma unroll
	for (int i = 0; i < KN_V; i++)
		a = max(a, v.w[i] & 0x7fffffff);
	return a;
}

/* Two numbers a word. */
KN_DEV uint32_t larger(uint32_t a, const kn_v8<kn_bf16> &v)
{
#pragma unroll
	for (int i = 0; i < KN_V / 2; i++)
		asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(v.w[i] & 0x7fff7fff));
	return a;
}

KN_DEV uint32_t larger(uint32_t a, const kn_v8<kn_f16> &v)
{
#pragma unroll
	for (int i = 0; i < KN_V / 2; i++)
		asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(a) : "r"(v.w[i] & 0x7fff7fff));
	return a;
}

KN_DEV uint32_t fp32_bits(float, uint32_t a)
{
	return a;
}

template <class T> KN_DEV uint32_t fp32_bits(T, uint32_t a)
{
	return max(kn_bits(kn_wide(T{ (uint16_t)a })), kn_bits(kn_wide(T{ (uint16_t)(a >> 16) })));
}

template <class T, bool VEC>
static __global__ void __launch_bounds__(THREADS)
amax(float *out, const T *x, size_t ld, size_t rows, size_t n)
{
	__shared__ uint32_t s[32];
	uint32_t a = 0;

	for (size_t r = blockIdx.x; r < rows; r += gridDim.x) {
		const T *row = x + r * ld;

#pragma unroll 4
		for (size_t i = threadIdx.x * KN_V; i < n; i += THREADS * KN_V)
			a = larger(a, kn_get<T, VEC>(row + i, (ptrdiff_t)(n - i)));
	}
	kn_block_amax(out, fp32_bits(T{}, a), s);
}

int kn_cu_fp8_amax(struct kn_cu_fp8_scale *s, const void *x, enum kn_type type, size_t ld,
		   size_t rows, size_t n, struct CUstream_st *stream)
{
	const bool aligned = n % KN_V == 0 && ld % KN_V == 0 && kn_is_aligned(x);

	if (!kn_is_type(type))
		return cudaErrorInvalidValue;
	if (!rows || !n)
		return 0;
	KN_BY_TYPE(type, T, KN_BY_VEC(aligned, VEC,
		KN_LAUNCH((amax<T, VEC>), rows < MOST_BLOCKS ? rows : MOST_BLOCKS, THREADS, stream,
			  &s->amax, (const T *)x, ld, rows, n)));
	return kn_launched();
}

/* ---------------------------------------------------------------- copies */

template <bool E5M2> KN_DEV uint32_t four(const float *f, float by)
{
	const __nv_fp8_interpretation_t to = E5M2 ? __NV_E5M2 : __NV_E4M3;
	const uint32_t lo = __nv_cvt_float2_to_fp8x2(make_float2(f[0] * by, f[1] * by),
						     __NV_SATFINITE, to);
	const uint32_t hi = __nv_cvt_float2_to_fp8x2(make_float2(f[2] * by, f[3] * by),
						     __NV_SATFINITE, to);

	return lo | hi << 16;
}

/* Four rows of four bytes: out[j] has byte j of each. */
KN_DEV void turn(uint32_t out[4], uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
	const uint32_t ab = __byte_perm(a, b, 0x5140), cd = __byte_perm(c, d, 0x5140);
	const uint32_t ef = __byte_perm(a, b, 0x7362), gh = __byte_perm(c, d, 0x7362);

	out[0] = __byte_perm(ab, cd, 0x5410);
	out[1] = __byte_perm(ab, cd, 0x7632);
	out[2] = __byte_perm(ef, gh, 0x5410);
	out[3] = __byte_perm(ef, gh, 0x7632);
}

/* Eight bytes, of which 'left' are inside. */
template <bool VEC> KN_DEV void put_8(uint8_t *p, uint32_t lo, uint32_t hi, ptrdiff_t left)
{
	if (VEC) {
		*(uint2 *)p = make_uint2(lo, hi);
	} else {
#pragma unroll
		for (int i = 0; i < KN_V; i++)
			if (i < left)
				p[i] = (uint8_t)((i < 4 ? lo : hi) >> 8 * (i & 3));
	}
}

struct tensor {
	size_t ld, rows, n;
};

template <class T, bool VEC, bool E5M2>
static __global__ void __launch_bounds__(THREADS)
cast(uint8_t *y, uint8_t *yt, kn_cu_fp8_scale *s, const T *x, struct tensor t)
{
	const float by = kn_fp8_scale(s->amax, E5M2 ? KN_E5M2 : KN_E4M3);
	const unsigned lane = threadIdx.x & 31, warp = threadIdx.x / 32;
	const unsigned tx = yt ? (warp & 3) * 4 + (lane & 3) : threadIdx.x & 15;
	const unsigned ty = yt ? (warp >> 2) * 8 + (lane >> 2) : threadIdx.x >> 4;
	const size_t tiles = kn_ceil(t.n, TILE);
	const size_t row = blockIdx.x / tiles * TILE + ty * 8;
	const size_t col = blockIdx.x % tiles * TILE + tx * 8;
	kn_v8<T> v[KN_V];
	uint32_t lo[KN_V], hi[KN_V], turned[KN_V / 2][4];

	if (!blockIdx.x && !threadIdx.x)
		s->inverse = 1 / by;
	if (row >= t.rows || col >= t.n)
		return;
#pragma unroll
	for (int i = 0; i < KN_V; i++)
		v[i] = kn_get<T, VEC>(x + (row + i) * t.ld + col,
				      row + i < t.rows ? (ptrdiff_t)(t.n - col) : 0);
#pragma unroll
	for (int i = 0; i < KN_V; i++) {
		float f[KN_V];

		kn_unpack(f, v[i]);
		lo[i] = four<E5M2>(f, by);
		hi[i] = four<E5M2>(f + 4, by);
		if (y && row + i < t.rows)
			put_8<VEC>(y + (row + i) * t.n + col, lo[i], hi[i],
				   (ptrdiff_t)(t.n - col));
	}
	if (!yt)
		return;
	turn(turned[0], lo[0], lo[1], lo[2], lo[3]);
	turn(turned[1], lo[4], lo[5], lo[6], lo[7]);
	turn(turned[2], hi[0], hi[1], hi[2], hi[3]);
	turn(turned[3], hi[4], hi[5], hi[6], hi[7]);
#pragma unroll
	for (int j = 0; j < KN_V; j++)
		if (col + j < t.n)
			put_8<VEC>(yt + (col + j) * t.rows + row, turned[j / 4 * 2][j % 4],
				   turned[j / 4 * 2 + 1][j % 4], (ptrdiff_t)(t.rows - row));
}

int kn_cu_fp8_cast(void *y, void *yt, struct kn_cu_fp8_scale *s, enum kn_fp8 to, const void *x,
		   enum kn_type type, size_t ld, size_t rows, size_t n, struct CUstream_st *stream)
{
	const bool aligned = n % KN_V == 0 && ld % KN_V == 0 && kn_is_aligned(x) &&
			     !((uintptr_t)y & 7) && !((uintptr_t)yt & 7) &&
			     (!yt || rows % KN_V == 0);
	const struct tensor t = { ld, rows, n };
	const size_t blocks = kn_ceil(rows, TILE) * kn_ceil(n, TILE);

	if (!kn_is_type(type) || (to != KN_E4M3 && to != KN_E5M2))
		return cudaErrorInvalidValue;
	if (!rows || !n)
		return 0;
	KN_BY_TYPE(type, T, KN_BY_VEC(aligned, VEC, KN_BY_VEC(to == KN_E5M2, E5M2,
		KN_LAUNCH((cast<T, VEC, E5M2>), blocks, THREADS, stream, (uint8_t *)y,
			  (uint8_t *)yt, s, (const T *)x, t))));
	return kn_launched();
}
