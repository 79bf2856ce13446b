/*
 * kn_cu_sum.cu -- sums over rows, and of arrays.
 *
 * Rows are cut into parts, each column of a part is one thread's, and the parts are joined in a
 * second stage.  Both orders depend on the shape alone.
 */
#include "kernels/cuda/kn_cu_device.cuh"

/* ---------------------------------------------------------------- parts */

#define JOIN_COLS 16
#define JOIN_LANES 16

/* Lane l of a column takes parts l, l + 16, ...; the lanes are a tree of halves. */
template <class T>
static __global__ void join(T *out, const float *part, size_t parts, size_t ld, size_t n, bool add)
{
	__shared__ float s[JOIN_LANES][JOIN_COLS];
	const unsigned col = threadIdx.x % JOIN_COLS, lane = threadIdx.x / JOIN_COLS;
	const size_t i = (size_t)blockIdx.x * JOIN_COLS + col;
	float sum = 0;

	if (i < n) {
#pragma unroll 8
		for (size_t p = lane; p < parts; p += JOIN_LANES)
			sum += part[p * ld + i];
	}
	s[lane][col] = sum;
	for (unsigned half = JOIN_LANES / 2; half; half /= 2) {
		__syncthreads();
		if (lane < half)
			s[lane][col] += s[lane + half][col];
	}
	if (!lane && i < n)
		out[i] = kn_narrow<T>(add ? kn_wide(out[i]) + s[0][col] : s[0][col]);
}

int kn_cu_join(void *out, enum kn_type type, const float *part, size_t parts, size_t ld, size_t n,
	       unsigned flags, struct CUstream_st *stream)
{
	if (!n)
		return 0;
	KN_BY_TYPE(type, T, KN_LAUNCH(join<T>, kn_ceil(n, JOIN_COLS), JOIN_COLS * JOIN_LANES,
				      stream, (T *)out, part, parts, ld, n, flags & KN_CU_ADD));
	return kn_launched();
}

/* ---------------------------------------------------------------- rows */

#define ROWS_PARTS 128
#define ROWS_THREADS 128

static size_t rows_part(size_t rows)
{
	const size_t part = kn_ceil(rows, ROWS_PARTS);

	return part < 8 ? 8 : part;
}

size_t kn_cu_sum_rows_work(size_t rows, size_t n)
{
	return kn_ceil(rows, rows_part(rows)) * n * sizeof(float);
}

template <class T, bool VEC>
static __global__ void sum_rows(float *out, const T *x, size_t ld, size_t rows, size_t n,
				size_t part)
{
	const size_t cols = kn_ceil(n, KN_V * ROWS_THREADS), p = blockIdx.x / cols;
	const size_t first = p * part, end = rows - first < part ? rows : first + part;
	const size_t i = (blockIdx.x % cols * ROWS_THREADS + threadIdx.x) * KN_V;
	const ptrdiff_t left = (ptrdiff_t)n - (ptrdiff_t)i;
	float sum[KN_V] = {}, v[KN_V];

#pragma unroll 8
	for (size_t r = first; r < end; r++) {
		kn_load<T, VEC>(v, x + r * ld + i, left);
#pragma unroll
		for (int j = 0; j < KN_V; j++)
			sum[j] += v[j];
	}
	kn_store<float, VEC>(out + p * n + i, sum, left);
}

int kn_cu_sum_rows(void *sum, enum kn_type grad_type, const void *x, size_t ld, size_t rows,
		   size_t n, enum kn_type type, unsigned flags, void *work,
		   struct CUstream_st *stream)
{
	const bool aligned = n % KN_V == 0 && ld % KN_V == 0 && kn_is_aligned(x);
	const size_t part = rows_part(rows), parts = kn_ceil(rows, part);
	const size_t cols = kn_ceil(n, KN_V * ROWS_THREADS);
	int rc;

	if (!kn_is_type(type) || !kn_is_type(grad_type) || !kn_is_aligned(work))
		return cudaErrorInvalidValue;
	if (rows && n) {
		KN_BY_TYPE(type, T, KN_BY_VEC(aligned, VEC,
			KN_LAUNCH((sum_rows<T, VEC>), parts * cols, ROWS_THREADS, stream,
				  (float *)work, (const T *)x, ld, rows, n, part)));
		rc = kn_launched();
		if (rc)
			return rc;
	}
	return kn_cu_join(sum, grad_type, (const float *)work, parts, n, n, flags, stream);
}

/* ---------------------------------------------------------------- arrays */

template <class S>
static __global__ void sum_all(double *out, const S *x, size_t n, bool add)
{
	__shared__ double s[32];
	double sum = 0;

#pragma unroll 4
	for (size_t i = threadIdx.x; i < n; i += blockDim.x)
		sum += (double)x[i];
	sum = kn_block_sum(sum, s);
	if (!threadIdx.x)
		*out = add ? *out + sum : sum;
}

int kn_cu_sum_f32(double *out, const float *x, size_t n, unsigned flags,
		  struct CUstream_st *stream)
{
	KN_LAUNCH(sum_all<float>, 1, 1024, stream, out, x, n, flags & KN_CU_ADD);
	return kn_launched();
}

int kn_cu_sum_f64(double *out, const double *x, size_t n, unsigned flags,
		  struct CUstream_st *stream)
{
	KN_LAUNCH(sum_all<double>, 1, 1024, stream, out, x, n, flags & KN_CU_ADD);
	return kn_launched();
}
