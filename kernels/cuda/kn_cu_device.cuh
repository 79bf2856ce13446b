/*
 * kn_cu_device.cuh -- what the kernels share: numbers of three types, eight at a time, and sums
 * over a block.
 *
 * A thread's unit is eight consecutive elements.  With VEC they are read and written 16 bytes at a
 * time, all or none of them, which asks for aligned pointers and rows of a multiple of eight;
 * without, one by one.  So a kernel is written once and right for every size.
 *
 * All is also plain C++ for the host, so that tests can run it without a GPU.
 */
#ifndef KN_CU_DEVICE_CUH
#define KN_CU_DEVICE_CUH

#include <cuda_runtime.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/include/kn_cuda.h"

#define KN_V 8
#define KN_BOTH __host__ __device__ static inline
#define KN_DEV __device__ static inline

/* A test that has no GPU brings its own. */
#ifndef KN_LAUNCH
#define KN_LAUNCH(kernel, grid, block, stream, ...) \
	kernel<<<(unsigned)(grid), (unsigned)(block), 0, stream>>>(__VA_ARGS__)
#endif

struct kn_bf16 {
	uint16_t bits;
};

struct kn_f16 {
	uint16_t bits;
};

/* ---------------------------------------------------------------- one number */

KN_BOTH uint32_t kn_bits(float x)
{
	uint32_t u;

	memcpy(&u, &x, sizeof(u));
	return u;
}

KN_BOTH float kn_float(uint32_t u)
{
	float x;

	memcpy(&x, &u, sizeof(x));
	return x;
}

KN_BOTH float kn_wide(float x)
{
	return x;
}

KN_BOTH float kn_wide(kn_bf16 x)
{
	return kn_float((uint32_t)x.bits << 16);
}

/* NaN: sign and payload kept, made quiet, as kn_cast() does. */
KN_BOTH float kn_wide_law(kn_f16 x)
{
	const uint32_t sign = (uint32_t)(x.bits & 0x8000) << 16, exp = x.bits >> 10 & 31;
	const uint32_t frac = x.bits & 1023;

	if (exp == 31)
		return kn_float(sign | 0x7f800000 | frac << 13 | (frac ? 0x400000u : 0));
	if (!exp)
		return kn_float(sign | kn_bits((float)frac * 0x1p-24f));
	return kn_float(sign | (exp + 112) << 23 | frac << 13);
}

KN_BOTH float kn_wide_law(float x)
{
	return x;
}

KN_BOTH float kn_wide_law(kn_bf16 x)
{
	return kn_wide(x);
}

KN_BOTH float kn_wide(kn_f16 x)
{
#ifdef __CUDA_ARCH__
	float f;

	asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x.bits));
	return f;
#else
	return kn_wide_law(x);
#endif
}

/* Rounded to nearest even; NaN is 0x7fc0, as kn.h says. */
KN_BOTH kn_bf16 kn_bf16_law(float x)
{
	const uint32_t u = kn_bits(x);
	const kn_bf16 y = { (uint16_t)(x != x ? 0x7fc0 : (u + 0x7fff + (u >> 16 & 1)) >> 16) };

	return y;
}

/* Below 2^-14 the step is 2^-24, to which an addition of 0.5 rounds. */
KN_BOTH kn_f16 kn_f16_law(float x)
{
	const uint32_t u = kn_bits(x), sign = u >> 16 & 0x8000, abs = u & 0x7fffffff;
	uint32_t y;

	if (abs > 0x7f800000)
		y = 0x7e00 | (abs >> 13 & 0x3ff);
	else if (abs >= 0x477ff000)
		y = 0x7c00;
	else if (abs < 0x38800000)
		y = kn_bits(kn_float(abs) + 0.5f) - 0x3f000000;
	else
		y = (abs + 0xfff + (abs >> 13 & 1) - 0x38000000) >> 13;
	return kn_f16{ (uint16_t)(sign | y) };
}

template <class T> KN_BOTH T kn_narrow_law(float x);
template <> __host__ __device__ inline float kn_narrow_law<float>(float x)
{
	return x;
}
template <> __host__ __device__ inline kn_bf16 kn_narrow_law<kn_bf16>(float x)
{
	return kn_bf16_law(x);
}
template <> __host__ __device__ inline kn_f16 kn_narrow_law<kn_f16>(float x)
{
	return kn_f16_law(x);
}

/* Two numbers in a word, the first below.  A NaN has the bits that the device gives it. */
KN_BOTH uint32_t kn_pair(kn_bf16, float lo, float hi)
{
#ifdef __CUDA_ARCH__
	uint32_t u;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(hi), "f"(lo));
	return u;
#else
	return (uint32_t)kn_bf16_law(hi).bits << 16 | kn_bf16_law(lo).bits;
#endif
}

KN_BOTH uint32_t kn_pair(kn_f16, float lo, float hi)
{
#ifdef __CUDA_ARCH__
	uint32_t u;

	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(hi), "f"(lo));
	return u;
#else
	return (uint32_t)kn_f16_law(hi).bits << 16 | kn_f16_law(lo).bits;
#endif
}

template <class T> KN_BOTH T kn_narrow(float x)
{
	return T{ (uint16_t)kn_pair(T{}, x, 0) };
}
template <> __host__ __device__ inline float kn_narrow<float>(float x)
{
	return x;
}

/* R() of kn_cuda.h */
template <class T> KN_BOTH float kn_r(float x)
{
	return kn_wide(kn_narrow<T>(x));
}

/* exp() good for the type: 16 bits are content with a few units of 2^-22. */
template <class T> KN_BOTH float kn_exp(float x)
{
#ifdef __CUDA_ARCH__
	return sizeof(T) == 2 ? __expf(x) : expf(x);
#else
	return expf(x);
#endif
}

/* 1 / (1 + exp(-x)), with the same bits at every place: the sum is not fused. */
template <class T> KN_BOTH float kn_sigmoid(float x)
{
#ifdef __CUDA_ARCH__
	if (sizeof(T) == 2)
		return __fdividef(1, __fadd_rn(1, __expf(-x)));
	return 1 / __fadd_rn(1, expf(-x));
#else
	return 1 / (1 + expf(-x));
#endif
}

/* ---------------------------------------------------------------- eight numbers */

/* As they lie in memory. */
template <class T> struct kn_v8 {
	uint32_t w[KN_V * sizeof(T) / 4];
};

struct alignas(16) kn_16b {
	uint32_t w[4];
};

/* The elements p[0 .. left); 0 after them.  'left' may be 0 or less, and anything above 7. */
template <class T, bool VEC> KN_BOTH kn_v8<T> kn_get(const T *p, ptrdiff_t left)
{
	kn_v8<T> v;

	if (VEC) {
		kn_16b b[sizeof(v) / 16] = {};

		if (left <= 0) {
			memcpy(&v, b, sizeof(v));
			return v;
		}
#pragma unroll
		for (size_t i = 0; i < sizeof(v) / 16; i++)
			b[i] = ((const kn_16b *)p)[i];
		memcpy(&v, b, sizeof(v));
		return v;
	}
	T t[KN_V] = {};

#pragma unroll
	for (int i = 0; i < KN_V; i++)
		if (i < left)
			t[i] = p[i];
	memcpy(&v, t, sizeof(v));
	return v;
}

template <class T, bool VEC> KN_BOTH void kn_put(T *p, const kn_v8<T> &v, ptrdiff_t left)
{
	if (VEC) {
		kn_16b b[sizeof(v) / 16];

		if (left <= 0)
			return;
		memcpy(b, &v, sizeof(v));
#pragma unroll
		for (size_t i = 0; i < sizeof(v) / 16; i++)
			((kn_16b *)p)[i] = b[i];
		return;
	}
	T t[KN_V];

	memcpy(t, &v, sizeof(v));
#pragma unroll
	for (int i = 0; i < KN_V; i++)
		if (i < left)
			p[i] = t[i];
}

KN_BOTH void kn_unpack(float f[KN_V], const kn_v8<float> &v)
{
#pragma unroll
	for (int i = 0; i < KN_V; i++)
		f[i] = kn_float(v.w[i]);
}

template <class T> KN_BOTH void kn_unpack(float f[KN_V], const kn_v8<T> &v)
{
#pragma unroll
	for (int i = 0; i < KN_V; i++)
		f[i] = kn_wide(T{ (uint16_t)(i & 1 ? v.w[i / 2] >> 16 : v.w[i / 2]) });
}

KN_BOTH void kn_pack(kn_v8<float> &v, const float f[KN_V])
{
#pragma unroll
	for (int i = 0; i < KN_V; i++)
		v.w[i] = kn_bits(f[i]);
}

template <class T> KN_BOTH void kn_pack(kn_v8<T> &v, const float f[KN_V])
{
#pragma unroll
	for (int i = 0; i < KN_V / 2; i++)
		v.w[i] = kn_pair(T{}, f[2 * i], f[2 * i + 1]);
}

template <class T, bool VEC> KN_BOTH void kn_load(float f[KN_V], const T *p, ptrdiff_t left)
{
	kn_unpack(f, kn_get<T, VEC>(p, left));
}

template <class T, bool VEC> KN_BOTH void kn_store(T *p, const float f[KN_V], ptrdiff_t left)
{
	kn_v8<T> v;

	kn_pack(v, f);
	kn_put<T, VEC>(p, v, left);
}

/* ---------------------------------------------------------------- sums */

template <class S> KN_DEV S kn_warp_sum(S v)
{
	for (int o = 16; o; o /= 2)
		v += __shfl_xor_sync(~0u, v, o);
	return v;
}

KN_DEV float kn_warp_max(float v)
{
	for (int o = 16; o; o /= 2)
		v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
	return v;
}

/*
 * The sum over the block, in every thread.  's' is shared and holds 32; the next call needs
 * another one, or a __syncthreads() before it.  The block is a whole number of warps.
 */
template <class S> KN_DEV S kn_block_sum(S v, S *s)
{
	const unsigned lane = threadIdx.x & 31, warps = blockDim.x / 32;

	v = kn_warp_sum(v);
	if (warps == 1)
		return v;
	if (!lane)
		s[threadIdx.x / 32] = v;
	__syncthreads();
	return kn_warp_sum(lane < warps ? s[lane] : (S)0);
}

KN_DEV float kn_block_max(float v, float *s)
{
	const unsigned lane = threadIdx.x & 31, warps = blockDim.x / 32;

	v = kn_warp_max(v);
	if (warps == 1)
		return v;
	if (!lane)
		s[threadIdx.x / 32] = v;
	__syncthreads();
	return kn_warp_max(lane < warps ? s[lane] : -INFINITY);
}

/* Bits of the larger |x|: NaN is above infinity. */
KN_DEV uint32_t kn_larger(uint32_t most, const float f[KN_V])
{
#pragma unroll
	for (int j = 0; j < KN_V; j++)
		most = max(most, kn_bits(f[j]) & 0x7fffffff);
	return most;
}

/*
 * *out = the larger of it and of 'most' of all threads of the block, which has whole warps; 's' is
 * shared and holds 32.
 */
KN_DEV void kn_block_amax(float *out, uint32_t most, uint32_t *s)
{
	const unsigned lane = threadIdx.x & 31, warps = blockDim.x / 32;

	most = __reduce_max_sync(~0u, most);
	if (!lane)
		s[threadIdx.x / 32] = most;
	__syncthreads();
	if (threadIdx.x / 32)
		return;
	most = __reduce_max_sync(~0u, lane < warps ? s[lane] : 0);
	if (!lane && most > *(volatile uint32_t *)out)
		atomicMax((unsigned *)out, most);
}

/* ---------------------------------------------------------------- calls, on the host */

KN_BOTH size_t kn_ceil(size_t n, size_t by)
{
	return n / by + (n % by != 0);
}

static inline size_t kn_up32(size_t n)
{
	return kn_ceil(n, 32) * 32;
}

static inline bool kn_is_type(enum kn_type type)
{
	return type == KN_F32 || type == KN_BF16 || type == KN_F16;
}

/* NULL is aligned. */
static inline bool kn_is_aligned(const void *p)
{
	return !((uintptr_t)p & 15);
}

/* The call with T the element type; 'type' was checked. */
#define KN_BY_TYPE(type, T, ...)			\
	do {						\
		if ((type) == KN_F32) {			\
			typedef float T;		\
			__VA_ARGS__;			\
		} else if ((type) == KN_BF16) {		\
			typedef kn_bf16 T;		\
			__VA_ARGS__;			\
		} else {				\
			typedef kn_f16 T;		\
			__VA_ARGS__;			\
		}					\
	} while (0)

/* The call with VEC a constant. */
#define KN_BY_VEC(aligned, VEC, ...)			\
	do {						\
		if (aligned) {				\
			const bool VEC = true;		\
			__VA_ARGS__;			\
		} else {				\
			const bool VEC = false;		\
			__VA_ARGS__;			\
		}					\
	} while (0)

/*
 * Of an array of n elements, the eight of this thread, by BODY with VEC a constant.  Arrays may
 * end anywhere: what is below eight at the end goes one by one.
 */
#define KN_FLAT(n, aligned, at, left, VEC, ...)						\
	do {										\
		const size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * KN_V;	\
		const ptrdiff_t left = (ptrdiff_t)((n) - at);				\
											\
		if (at >= (n))								\
			return;								\
		KN_BY_VEC((aligned) && left >= KN_V, VEC, __VA_ARGS__);			\
	} while (0)

/* A grid has fewer than 2^31 blocks. */
static inline int kn_launched(void)
{
	return (int)cudaGetLastError();
}

/*
 * out[i] = or += the sum of part[p * ld + i] over p, i < n: what stages that cut rows into parts
 * leave.  The order of the sum depends on 'parts' alone.
 */
extern "C" int kn_cu_join(void *out, enum kn_type type, const float *part, size_t parts, size_t ld,
			  size_t n, unsigned flags, struct CUstream_st *stream);

#endif
