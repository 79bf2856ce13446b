/* kn_cu_rows.cu -- activation and bias: rows of elements that do not see each other. */
#include "kernels/cuda/kn_cu_device.cuh"
#include "kernels/include/kn_cuda_fp8.h"

#define THREADS 256

/* Block b has THREADS vectors of row b / cols(n), from column 8 THREADS (b % cols(n)) on. */
KN_BOTH unsigned cols(size_t n)
{
	return (unsigned)((n + KN_V * THREADS - 1) / (KN_V * THREADS));
}

template <class T, bool VEC>
static __global__ void __launch_bounds__(THREADS)
swiglu(T *y, const T *gu, size_t n, float *amax)
{
	__shared__ uint32_t s[32];
	const size_t row = blockIdx.x / cols(n);
	const size_t i = ((size_t)(blockIdx.x % cols(n)) * THREADS + threadIdx.x) * KN_V;
	const ptrdiff_t left = (ptrdiff_t)n - (ptrdiff_t)i;
	float g[KN_V], u[KN_V];
	uint32_t most = 0;

	if (left <= 0 && !amax)
		return;
	if (left > 0) {
		kn_load<T, VEC>(g, gu + row * 2 * n + i, left);
		kn_load<T, VEC>(u, gu + row * 2 * n + n + i, left);
#pragma unroll
		for (int j = 0; j < KN_V; j++)
			g[j] = kn_r<T>(g[j] * kn_sigmoid<T>(g[j])) * u[j];
		kn_store<T, VEC>(y + row * n + i, g, left);
		most = kn_larger(most, g);
	}
	if (amax)
		kn_block_amax(amax, kn_bits(kn_r<T>(kn_float(most))), s);
}

int kn_cu_swiglu_amax(void *y, const void *gu, size_t rows, size_t n, enum kn_type type,
		      struct kn_cu_fp8_scale *s, struct CUstream_st *stream)
{
	const bool aligned = n % KN_V == 0 && kn_is_aligned(y) && kn_is_aligned(gu);

	if (!kn_is_type(type))
		return cudaErrorInvalidValue;
	if (!rows || !n)
		return 0;
	KN_BY_TYPE(type, T, KN_BY_VEC(aligned, VEC,
		KN_LAUNCH((swiglu<T, VEC>), rows * cols(n), THREADS, stream, (T *)y,
			  (const T *)gu, n, s ? &s->amax : NULL)));
	return kn_launched();
}

int kn_cu_swiglu(void *y, const void *gu, size_t rows, size_t n, enum kn_type type,
		 struct CUstream_st *stream)
{
	return kn_cu_swiglu_amax(y, gu, rows, n, type, NULL, stream);
}

/* dgu may be gu and y may be dy: a thread writes what it has read. */
template <class T, bool VEC>
static __global__ void __launch_bounds__(THREADS)
swiglu_back(T *dgu, T *y, const T *dy, const T *gu, size_t n, float *amax)
{
	__shared__ uint32_t most_of[32];
	const size_t row = blockIdx.x / cols(n);
	const size_t i = ((size_t)(blockIdx.x % cols(n)) * THREADS + threadIdx.x) * KN_V;
	const size_t at = row * n + i, at2 = row * 2 * n + i;
	const ptrdiff_t left = (ptrdiff_t)n - (ptrdiff_t)i;
	float g[KN_V], u[KN_V], d[KN_V], a[KN_V];
	uint32_t most = 0;

	if (left <= 0 && !amax)
		return;
	if (left > 0) {
		kn_load<T, VEC>(g, gu + at2, left);
		kn_load<T, VEC>(u, gu + at2 + n, left);
		kn_load<T, VEC>(d, dy + at, left);
#pragma unroll
		for (int j = 0; j < KN_V; j++) {
			const float s = kn_sigmoid<T>(g[j]), silu = kn_r<T>(g[j] * s);

			a[j] = silu * u[j];
			g[j] = kn_r<T>(d[j] * u[j]) * (s * (1 + g[j] * (1 - s)));
			u[j] = d[j] * silu;
		}
		kn_store<T, VEC>(dgu + at2, g, left);
		kn_store<T, VEC>(dgu + at2 + n, u, left);
		if (y)
			kn_store<T, VEC>(y + at, a, left);
		most = kn_larger(kn_larger(most, g), u);
	}
	if (amax)
		kn_block_amax(amax, kn_bits(kn_r<T>(kn_float(most))), most_of);
}

int kn_cu_swiglu_back_amax(void *dgu, void *y, const void *dy, const void *gu, size_t rows,
			   size_t n, enum kn_type type, struct kn_cu_fp8_scale *s,
			   struct CUstream_st *stream)
{
	const bool aligned = n % KN_V == 0 && kn_is_aligned(dgu) && kn_is_aligned(y) &&
			     kn_is_aligned(dy) && kn_is_aligned(gu);

	if (!kn_is_type(type))
		return cudaErrorInvalidValue;
	if (!rows || !n)
		return 0;
	KN_BY_TYPE(type, T, KN_BY_VEC(aligned, VEC,
		KN_LAUNCH((swiglu_back<T, VEC>), rows * cols(n), THREADS, stream, (T *)dgu, (T *)y,
			  (const T *)dy, (const T *)gu, n, s ? &s->amax : NULL)));
	return kn_launched();
}

int kn_cu_swiglu_back(void *dgu, void *y, const void *dy, const void *gu, size_t rows, size_t n,
		      enum kn_type type, struct CUstream_st *stream)
{
	return kn_cu_swiglu_back_amax(dgu, y, dy, gu, rows, n, type, NULL, stream);
}

template <class T, bool VEC>
static __global__ void __launch_bounds__(THREADS)
add_bias(T *y, size_t ld, const T *b, size_t n)
{
	const size_t row = blockIdx.x / cols(n);
	const size_t i = ((size_t)(blockIdx.x % cols(n)) * THREADS + threadIdx.x) * KN_V;
	const ptrdiff_t left = (ptrdiff_t)n - (ptrdiff_t)i;
	float v[KN_V], w[KN_V];

	if (left <= 0)
		return;
	kn_load<T, VEC>(v, y + row * ld + i, left);
	kn_load<T, VEC>(w, b + i, left);
#pragma unroll
	for (int j = 0; j < KN_V; j++)
		v[j] += w[j];
	kn_store<T, VEC>(y + row * ld + i, v, left);
}

int kn_cu_add_bias(void *y, size_t ld, const void *b, size_t rows, size_t n, enum kn_type type,
		   struct CUstream_st *stream)
{
	const bool aligned = n % KN_V == 0 && ld % KN_V == 0 && kn_is_aligned(y) &&
			     kn_is_aligned(b);

	if (!kn_is_type(type))
		return cudaErrorInvalidValue;
	if (!rows || !n)
		return 0;
	KN_BY_TYPE(type, T, KN_BY_VEC(aligned, VEC,
		KN_LAUNCH((add_bias<T, VEC>), rows * cols(n), THREADS, stream, (T *)y, ld,
			  (const T *)b, n)));
	return kn_launched();
}
