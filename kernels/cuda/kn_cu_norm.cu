/*
 * kn_cu_norm.cu -- RMS norm, forward and back.
 *
 * A row is one block's, in registers while it fits.  On the way back a block takes a part of the
 * rows, one after the other, and keeps the sums of the weights' gradient in registers; what the
 * parts leave is joined by a second kernel.  How rows are cut depends on their number alone.
 */
#include "kernels/cuda/kn_cu_device.cuh"
#include "kernels/include/kn_cuda_fp8.h"

/* ---------------------------------------------------------------- forward */

/* K vectors a thread. */
template <class T, bool VEC, int K>
static __global__ void norm(T *y, float *rstd, const T *x, const T *w, size_t n, float eps,
			    float *amax)
{
	__shared__ float s[32];
	__shared__ uint32_t a[32];
	const size_t row = blockIdx.x;
	float v[K][KN_V], sum = 0, by;
	uint32_t most = 0;

	x += row * n;
	y += row * n;
#pragma unroll
	for (int k = 0; k < K; k++) {
		const size_t i = ((size_t)k * blockDim.x + threadIdx.x) * KN_V;

		kn_load<T, VEC>(v[k], x + i, (ptrdiff_t)n - (ptrdiff_t)i);
	}
#pragma unroll
	for (int k = 0; k < K; k++)
#pragma unroll
		for (int j = 0; j < KN_V; j++)
			sum += v[k][j] * v[k][j];
	by = 1 / sqrtf(kn_block_sum(sum, s) / (float)n + eps);
	if (rstd && !threadIdx.x)
		rstd[row] = by;
#pragma unroll
	for (int k = 0; k < K; k++) {
		const size_t i = ((size_t)k * blockDim.x + threadIdx.x) * KN_V;
		const ptrdiff_t left = (ptrdiff_t)n - (ptrdiff_t)i;
		float g[KN_V];

		kn_load<T, VEC>(g, w + i, left);
#pragma unroll
		for (int j = 0; j < KN_V; j++)
			g[j] *= kn_r<T>(v[k][j] * by);
		kn_store<T, VEC>(y + i, g, left);
		most = kn_larger(most, g);
	}
	if (amax)
		kn_block_amax(amax, kn_bits(kn_r<T>(kn_float(most))), a);
}

/* Rows that do not fit in registers are read twice. */
template <class T, bool VEC>
static __global__ void norm_long(T *y, float *rstd, const T *x, const T *w, size_t n, float eps,
				 float *amax)
{
	__shared__ float s[32];
	__shared__ uint32_t a[32];
	uint32_t most = 0;
	const size_t row = blockIdx.x, step = (size_t)blockDim.x * KN_V;
	float v[KN_V], g[KN_V], sum = 0, by;

	x += row * n;
	y += row * n;
	for (size_t i = threadIdx.x * KN_V; i < n; i += step) {
		kn_load<T, VEC>(v, x + i, (ptrdiff_t)(n - i));
#pragma unroll
		for (int j = 0; j < KN_V; j++)
			sum += v[j] * v[j];
	}
	by = 1 / sqrtf(kn_block_sum(sum, s) / (float)n + eps);
	if (rstd && !threadIdx.x)
		rstd[row] = by;
	for (size_t i = threadIdx.x * KN_V; i < n; i += step) {
		kn_load<T, VEC>(v, x + i, (ptrdiff_t)(n - i));
		kn_load<T, VEC>(g, w + i, (ptrdiff_t)(n - i));
#pragma unroll
		for (int j = 0; j < KN_V; j++)
			g[j] *= kn_r<T>(v[j] * by);
		kn_store<T, VEC>(y + i, g, (ptrdiff_t)(n - i));
		most = kn_larger(most, g);
	}
	if (amax)
		kn_block_amax(amax, kn_bits(kn_r<T>(kn_float(most))), a);
}

template <class T, bool VEC>
static void norm_by_size(void *y, float *rstd, const void *x, const void *w, size_t rows, size_t n,
			 float eps, float *amax, cudaStream_t stream)
{
	const size_t nv = kn_ceil(n, KN_V);

	if (nv <= 32)
		KN_LAUNCH((norm<T, VEC, 1>), rows, 32, stream, (T *)y, rstd, (const T *)x,
			  (const T *)w, n, eps, amax);
	else if (nv <= 512 * 4)	/* more threads have too few registers */
		KN_LAUNCH((norm<T, VEC, 4>), rows, kn_up32(kn_ceil(nv, 4)), stream, (T *)y, rstd,
			  (const T *)x, (const T *)w, n, eps, amax);
	else
		KN_LAUNCH((norm_long<T, VEC>), rows, 512, stream, (T *)y, rstd, (const T *)x,
			  (const T *)w, n, eps, amax);
}

int kn_cu_rmsnorm_amax(void *y, float *rstd, const void *x, const void *w, size_t rows, size_t n,
		       float eps, enum kn_type type, struct kn_cu_fp8_scale *s,
		       struct CUstream_st *stream)
{
	const bool aligned = n % KN_V == 0 && kn_is_aligned(x) && kn_is_aligned(y) &&
			     kn_is_aligned(w);

	if (!kn_is_type(type))
		return cudaErrorInvalidValue;
	if (!rows || !n)
		return 0;
	KN_BY_TYPE(type, T, KN_BY_VEC(aligned, VEC,
		(norm_by_size<T, VEC>(y, rstd, x, w, rows, n, eps, s ? &s->amax : NULL,
				      stream))));
	return kn_launched();
}

int kn_cu_rmsnorm(void *y, float *rstd, const void *x, const void *w, size_t rows, size_t n,
		  float eps, enum kn_type type, struct CUstream_st *stream)
{
	return kn_cu_rmsnorm_amax(y, rstd, x, w, rows, n, eps, type, NULL, stream);
}

/* ---------------------------------------------------------------- back */

/* Parts of rows, and the vectors of a thread that a block of at most BACK_MOST keeps. */
#define BACK_PARTS 256
#define BACK_MOST 512
#define DW_THREADS 128

static size_t back_rows(size_t rows)
{
	return kn_ceil(rows, BACK_PARTS);
}

size_t kn_cu_rmsnorm_back_work(size_t rows, size_t n)
{
	return rows && n ? kn_ceil(rows, back_rows(rows)) * n * sizeof(float) : 0;
}

struct back {
	size_t rows, n, part;	/* rows of a part */
	const float *rstd;
	float *dw;		/* [parts, n] */
	float *amax;		/* of dx, or NULL */
};

/* One vector of the gradient, from its vectors of x, e and add. */
template <class T>
KN_DEV void back_out(float d[KN_V], const float xs[KN_V], const float e[KN_V], float by, float mean,
		     const float *add)
{
#pragma unroll
	for (int j = 0; j < KN_V; j++) {
		d[j] = by * (e[j] - xs[j] * mean);
		if (add)
			d[j] = add[j] + kn_r<T>(d[j]);
	}
}

/*
 * The next row is asked for before this one's sum is known.  dx may be dy or add: each element is
 * read by the thread that writes it, before it does.
 */
template <class T, bool VEC, bool ADD, bool AMAX, int K>
static __global__ void __launch_bounds__(BACK_MOST, K == 1 ? 2 : 1)
norm_back(struct back b, T *dx, const T *dy, const T *x, const T *w, const T *add)
{
	__shared__ float s[2][32];
	__shared__ uint32_t most_of[32];
	uint32_t most = 0;
	const size_t first = blockIdx.x * b.part;
	const size_t end = b.rows - first < b.part ? b.rows : first + b.part;
	kn_v8<T> nx[K], ng[K], na[K], wv[K];
	float dw[K][KN_V] = {};
	ptrdiff_t left[K];
	size_t at[K];

#pragma unroll
	for (int k = 0; k < K; k++) {
		const size_t i = ((size_t)k * blockDim.x + threadIdx.x) * KN_V;

		left[k] = (ptrdiff_t)b.n - (ptrdiff_t)i;
		at[k] = first * b.n + i;
		wv[k] = kn_get<T, VEC>(w + i, left[k]);
		nx[k] = kn_get<T, VEC>(x + at[k], left[k]);
		ng[k] = kn_get<T, VEC>(dy + at[k], left[k]);
		if (ADD)
			na[k] = kn_get<T, VEC>(add + at[k], left[k]);
	}
	for (size_t r = first; r < end; r++) {
		const float by = b.rstd[r];
		kn_v8<T> cx[K], cg[K], ca[K];
		float sum = 0, mean;

#pragma unroll
		for (int k = 0; k < K; k++) {
			cx[k] = nx[k];
			cg[k] = ng[k];
			if (ADD)
				ca[k] = na[k];
			if (r + 1 < end) {
				nx[k] = kn_get<T, VEC>(x + at[k] + b.n, left[k]);
				ng[k] = kn_get<T, VEC>(dy + at[k] + b.n, left[k]);
				if (ADD)
					na[k] = kn_get<T, VEC>(add + at[k] + b.n, left[k]);
			}
		}
#pragma unroll
		for (int k = 0; k < K; k++) {
			float xs[KN_V], g[KN_V], e[KN_V];

			kn_unpack(xs, cx[k]);
			kn_unpack(g, cg[k]);
			kn_unpack(e, wv[k]);
#pragma unroll
			for (int j = 0; j < KN_V; j++) {
				xs[j] *= by;
				sum += kn_r<T>(g[j] * e[j]) * xs[j];
				dw[k][j] += g[j] * kn_r<T>(xs[j]);
			}
		}
		mean = kn_block_sum(sum, s[r & 1]) / (float)b.n;
#pragma unroll
		for (int k = 0; k < K; k++) {
			float xs[KN_V], g[KN_V], e[KN_V], a[KN_V];

			kn_unpack(xs, cx[k]);
			kn_unpack(g, cg[k]);
			kn_unpack(e, wv[k]);
			if (ADD)
				kn_unpack(a, ca[k]);
#pragma unroll
			for (int j = 0; j < KN_V; j++) {
				xs[j] *= by;
				e[j] = kn_r<T>(g[j] * e[j]);
			}
			back_out<T>(g, xs, e, by, mean, ADD ? a : (const float *)0);
			kn_store<T, VEC>(dx + at[k], g, left[k]);
			if (AMAX && left[k] > 0)
				most = kn_larger(most, g);
			at[k] += b.n;
		}
	}
	if (AMAX)
		kn_block_amax(b.amax, kn_bits(kn_r<T>(kn_float(most))), most_of);
#pragma unroll
	for (int k = 0; k < K; k++) {
		const size_t i = ((size_t)k * blockDim.x + threadIdx.x) * KN_V;

		kn_store<float, VEC>(b.dw + blockIdx.x * b.n + i, dw[k], left[k]);
	}
}

/*
 * Rows that do not fit: the weights' gradient first, while dy is there, then dx, reading twice.
 * Eight columns a thread, a part of the rows a block.
 */
template <class T, bool VEC>
static __global__ void norm_back_dw(struct back b, const T *dy, const T *x)
{
	const size_t cols = kn_ceil(b.n, KN_V * DW_THREADS);
	const size_t part = blockIdx.x / cols, first = part * b.part;
	const size_t end = b.rows - first < b.part ? b.rows : first + b.part;
	const size_t i = (blockIdx.x % cols * DW_THREADS + threadIdx.x) * KN_V;
	const ptrdiff_t left = (ptrdiff_t)b.n - (ptrdiff_t)i;
	float dw[KN_V] = {}, v[KN_V], g[KN_V];

	for (size_t r = first; r < end; r++) {
		kn_load<T, VEC>(v, x + r * b.n + i, left);
		kn_load<T, VEC>(g, dy + r * b.n + i, left);
#pragma unroll
		for (int j = 0; j < KN_V; j++)
			dw[j] += g[j] * kn_r<T>(v[j] * b.rstd[r]);
	}
	kn_store<float, VEC>(b.dw + part * b.n + i, dw, left);
}

template <class T, bool VEC>
static __global__ void norm_back_long(struct back b, T *dx, const T *dy, const T *x, const T *w,
			       const T *add)
{
	__shared__ float s[32];
	__shared__ uint32_t most_of[32];
	uint32_t most = 0;
	const size_t at = blockIdx.x * b.n, step = (size_t)blockDim.x * KN_V;
	const float by = b.rstd[blockIdx.x];
	float xs[KN_V], g[KN_V], e[KN_V], a[KN_V], sum = 0, mean = 0;

	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = threadIdx.x * KN_V; i < b.n; i += step) {
			const ptrdiff_t left = (ptrdiff_t)(b.n - i);

			kn_load<T, VEC>(xs, x + at + i, left);
			kn_load<T, VEC>(g, dy + at + i, left);
			kn_load<T, VEC>(e, w + i, left);
#pragma unroll
			for (int j = 0; j < KN_V; j++) {
				xs[j] *= by;
				e[j] = kn_r<T>(g[j] * e[j]);
				if (!pass)
					sum += e[j] * xs[j];
			}
			if (!pass)
				continue;
			if (add)
				kn_load<T, VEC>(a, add + at + i, left);
			back_out<T>(g, xs, e, by, mean, add ? a : (const float *)0);
			kn_store<T, VEC>(dx + at + i, g, left);
			most = kn_larger(most, g);
		}
		if (!pass)
			mean = kn_block_sum(sum, s) / (float)b.n;
	}
	if (b.amax)
		kn_block_amax(b.amax, kn_bits(kn_r<T>(kn_float(most))), most_of);
}

template <class T, bool VEC, int K>
static void back_by_add(const struct back *b, T *dx, const T *dy, const T *x, const T *w,
			const T *add, cudaStream_t stream)
{
	const size_t parts = kn_ceil(b->rows, b->part);
	const size_t threads = kn_up32(kn_ceil(kn_ceil(b->n, KN_V), K));

	KN_BY_VEC(add, ADD, KN_BY_VEC(b->amax, AMAX,
		KN_LAUNCH((norm_back<T, VEC, ADD, AMAX, K>), parts, threads, stream, *b, dx, dy, x,
			  w, add)));
}

template <class T, bool VEC>
static void back_by_size(const struct back *b, void *dx, const void *dy, const void *x,
			 const void *w, const void *add, cudaStream_t stream)
{
	const size_t nv = kn_ceil(b->n, KN_V), parts = kn_ceil(b->rows, b->part);

	if (nv <= BACK_MOST) {
		back_by_add<T, VEC, 1>(b, (T *)dx, (const T *)dy, (const T *)x, (const T *)w,
				       (const T *)add, stream);
	} else if (nv <= BACK_MOST * 2) {
		back_by_add<T, VEC, 2>(b, (T *)dx, (const T *)dy, (const T *)x, (const T *)w,
				       (const T *)add, stream);
	} else {
		const size_t cols = kn_ceil(b->n, KN_V * DW_THREADS);

		KN_LAUNCH((norm_back_dw<T, VEC>), parts * cols, DW_THREADS, stream, *b,
			  (const T *)dy, (const T *)x);
		KN_LAUNCH((norm_back_long<T, VEC>), b->rows, 512, stream, *b, (T *)dx,
			  (const T *)dy, (const T *)x, (const T *)w, (const T *)add);
	}
}

int kn_cu_rmsnorm_back_amax(void *dx, void *dw, enum kn_type grad_type, const void *dy,
			    const void *x, const float *rstd, const void *w, const void *add,
			    size_t rows, size_t n, enum kn_type type, unsigned flags, void *work,
			    struct kn_cu_fp8_scale *s, struct CUstream_st *stream)
{
	const bool aligned = n % KN_V == 0 && kn_is_aligned(dx) && kn_is_aligned(dy) &&
			     kn_is_aligned(x) && kn_is_aligned(w) && kn_is_aligned(add);
	struct back b = { rows, n, back_rows(rows), rstd, (float *)work, s ? &s->amax : NULL };
	int rc;

	if (!kn_is_type(type) || !kn_is_type(grad_type) || !kn_is_aligned(work))
		return cudaErrorInvalidValue;
	if (!n)
		return 0;
	if (rows) {
		KN_BY_TYPE(type, T, KN_BY_VEC(aligned, VEC,
			(back_by_size<T, VEC>(&b, dx, dy, x, w, add, stream))));
		rc = kn_launched();
		if (rc)
			return rc;
	}
	return kn_cu_join(dw, grad_type, b.dw, rows ? kn_ceil(rows, b.part) : 0, n, n, flags,
			  stream);
}

int kn_cu_rmsnorm_back(void *dx, void *dw, enum kn_type grad_type, const void *dy, const void *x,
		       const float *rstd, const void *w, const void *add, size_t rows, size_t n,
		       enum kn_type type, unsigned flags, void *work, struct CUstream_st *stream)
{
	return kn_cu_rmsnorm_back_amax(dx, dw, grad_type, dy, x, rstd, w, add, rows, n, type, flags,
				       work, NULL, stream);
}
