/* kn_cu_flat.cu -- arrays, element by element. */
#include "kernels/cuda/kn_cu_device.cuh"

#define THREADS 256

static size_t blocks(size_t n)
{
	return kn_ceil(n, (size_t)THREADS * KN_V);
}

/* ---------------------------------------------------------------- cast */

/* Rounds as the law says, NaN too. */
template <class D, class S, bool VEC>
KN_DEV void cast_8(D *dst, const S *src, ptrdiff_t left)
{
	const kn_v8<S> v = kn_get<S, VEC>(src, left);
	kn_v8<D> y;
	S s[KN_V];
	D d[KN_V];

	memcpy(s, &v, sizeof(s));
#pragma unroll
	for (int j = 0; j < KN_V; j++)
		d[j] = kn_narrow_law<D>(kn_wide_law(s[j]));
	memcpy(&y, d, sizeof(d));
	kn_put<D, VEC>(dst, y, left);
}

template <class D, class S>
static __global__ void __launch_bounds__(THREADS)
cast(D *dst, const S *src, size_t n, bool aligned)
{
	KN_FLAT(n, aligned, at, left, VEC, (cast_8<D, S, VEC>(dst + at, src + at, left)));
}

int kn_cu_cast(void *dst, enum kn_type dst_type, const void *src, enum kn_type src_type, size_t n,
	       struct CUstream_st *stream)
{
	const bool aligned = kn_is_aligned(dst) && kn_is_aligned(src);

	if (!kn_is_type(dst_type) || !kn_is_type(src_type))
		return cudaErrorInvalidValue;
	if (!n || (dst_type == src_type && dst == src))
		return 0;
	if (dst_type == src_type)
		return cudaMemcpyAsync(dst, src, n * (src_type == KN_F32 ? 4 : 2),
				       cudaMemcpyDeviceToDevice, stream);
	KN_BY_TYPE(dst_type, D, KN_BY_TYPE(src_type, S,
		KN_LAUNCH((cast<D, S>), blocks(n), THREADS, stream, (D *)dst, (const S *)src, n,
			  aligned)));
	return kn_launched();
}

/* ---------------------------------------------------------------- add */

template <class D, class S, bool VEC>
KN_DEV void add_8(D *y, const S *x, ptrdiff_t left)
{
	float a[KN_V], b[KN_V];

	kn_load<D, VEC>(a, y, left);
	kn_load<S, VEC>(b, x, left);
#pragma unroll
	for (int j = 0; j < KN_V; j++)
		a[j] += b[j];
	kn_store<D, VEC>(y, a, left);
}

template <class D, class S>
static __global__ void __launch_bounds__(THREADS)
add(D *y, const S *x, size_t n, bool aligned)
{
	KN_FLAT(n, aligned, at, left, VEC, (add_8<D, S, VEC>(y + at, x + at, left)));
}

int kn_cu_add(void *y, enum kn_type y_type, const void *x, enum kn_type x_type, size_t n,
	      struct CUstream_st *stream)
{
	const bool aligned = kn_is_aligned(y) && kn_is_aligned(x);

	if (!kn_is_type(y_type) || !kn_is_type(x_type))
		return cudaErrorInvalidValue;
	if (!n)
		return 0;
	KN_BY_TYPE(y_type, D, KN_BY_TYPE(x_type, S,
		KN_LAUNCH((add<D, S>), blocks(n), THREADS, stream, (D *)y, (const S *)x, n,
			  aligned)));
	return kn_launched();
}

/* ---------------------------------------------------------------- pieces */

/*
 * Pieces in natural order as a tree of pairs, an odd last one going up as it is: what a binary
 * counter leaves is joined from its youngest.  PIECES 0: any number up to 2^16.
 */
template <class S, bool VEC, unsigned PIECES>
KN_DEV void tree_8(float sum[KN_V], const S *x, size_t stride, unsigned pieces, ptrdiff_t left)
{
	const unsigned n = PIECES ? PIECES : pieces;
	float stack[PIECES == 2 ? 1 : PIECES == 4 ? 2 : PIECES == 8 ? 3 : 17][KN_V];
	unsigned depth = 0;

#pragma unroll
	for (unsigned i = 0; i < n; i++) {
		kn_load<S, VEC>(sum, x + i * stride, left);
#pragma unroll
		for (unsigned bit = i; bit & 1; bit >>= 1) {
			depth--;
#pragma unroll
			for (int j = 0; j < KN_V; j++)
				sum[j] = stack[depth][j] + sum[j];
		}
		if (i + 1 == n)
			break;
#pragma unroll
		for (int j = 0; j < KN_V; j++)
			stack[depth][j] = sum[j];
		depth++;
	}
	while (!PIECES && depth) {
		depth--;
		for (int j = 0; j < KN_V; j++)
			sum[j] = stack[depth][j] + sum[j];
	}
}

template <class D, class S, bool VEC, unsigned PIECES>
KN_DEV void pieces_8(D *y, const S *x, size_t stride, unsigned pieces, bool more, ptrdiff_t left)
{
	float sum[KN_V], a[KN_V];

	tree_8<S, VEC, PIECES>(sum, x, stride, pieces, left);
	if (more) {
		kn_load<D, VEC>(a, y, left);
#pragma unroll
		for (int j = 0; j < KN_V; j++)
			sum[j] = a[j] + sum[j];
	}
	kn_store<D, VEC>(y, sum, left);
}

template <class D, class S, unsigned PIECES>
static __global__ void __launch_bounds__(THREADS)
add_pieces(D *y, const S *x, size_t stride, unsigned pieces, bool more, size_t n, bool aligned)
{
	KN_FLAT(n, aligned, at, left, VEC, (pieces_8<D, S, VEC, PIECES>(y + at, x + at, stride,
									pieces, more, left)));
}

#define PIECES_RUN(P)									\
	KN_BY_TYPE(dst_type, D, KN_BY_TYPE(src_type, S,					\
		KN_LAUNCH((add_pieces<D, S, P>), blocks(n), THREADS, stream, (D *)dst,	\
			  (const S *)src, stride, (unsigned)pieces, more, n, aligned)))

int kn_cu_add_pieces(void *dst, enum kn_type dst_type, const void *src, enum kn_type src_type,
		     size_t pieces, size_t stride, size_t n, unsigned flags,
		     struct CUstream_st *stream)
{
	const bool aligned = kn_is_aligned(dst) && kn_is_aligned(src) &&
			     stride % KN_V == 0, more = flags & KN_CU_ADD;

	if (!kn_is_type(dst_type) || !kn_is_type(src_type) || !pieces || pieces > 1u << 16)
		return cudaErrorInvalidValue;
	if (!n)
		return 0;
	if (pieces == 2)
		PIECES_RUN(2);
	else if (pieces == 4)
		PIECES_RUN(4);
	else if (pieces == 8)
		PIECES_RUN(8);
	else
		PIECES_RUN(0);
	return kn_launched();
}

/* ---------------------------------------------------------------- scale, fill */

template <class T, bool VEC>
KN_DEV void scale_8(T *y, float by, ptrdiff_t left)
{
	float a[KN_V];

	kn_load<T, VEC>(a, y, left);
#pragma unroll
	for (int j = 0; j < KN_V; j++)
		a[j] *= by;
	kn_store<T, VEC>(y, a, left);
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
scale(T *y, float by, size_t n, bool aligned)
{
	KN_FLAT(n, aligned, at, left, VEC, (scale_8<T, VEC>(y + at, by, left)));
}

int kn_cu_scale(void *y, enum kn_type type, float s, size_t n, struct CUstream_st *stream)
{
	if (!kn_is_type(type))
		return cudaErrorInvalidValue;
	if (!n)
		return 0;
	KN_BY_TYPE(type, T, KN_LAUNCH(scale<T>, blocks(n), THREADS, stream, (T *)y, s, n,
				      kn_is_aligned(y)));
	return kn_launched();
}

template <class T, bool VEC>
KN_DEV void fill_8(T *y, float value, ptrdiff_t left)
{
	float a[KN_V];

#pragma unroll
	for (int j = 0; j < KN_V; j++)
		a[j] = value;
	kn_store<T, VEC>(y, a, left);
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
fill(T *y, float value, size_t n, bool aligned)
{
	KN_FLAT(n, aligned, at, left, VEC, (fill_8<T, VEC>(y + at, value, left)));
}

int kn_cu_fill(void *y, enum kn_type type, float value, size_t n, struct CUstream_st *stream)
{
	if (!kn_is_type(type))
		return cudaErrorInvalidValue;
	if (!n)
		return 0;
	KN_BY_TYPE(type, T, KN_LAUNCH(fill<T>, blocks(n), THREADS, stream, (T *)y, value, n,
				      kn_is_aligned(y)));
	return kn_launched();
}

/* ---------------------------------------------------------------- finite */

/* All that write, write the same. */
template <class T, bool VEC>
KN_DEV void not_finite_8(uint32_t *flag, const T *x, ptrdiff_t left)
{
	float a[KN_V];
	bool bad = false;

	kn_load<T, VEC>(a, x, left);
#pragma unroll
	for (int j = 0; j < KN_V; j++)
		bad = bad || (kn_bits(a[j]) & 0x7f800000) == 0x7f800000;
	if (bad)
		*flag = 1;
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
not_finite(uint32_t *flag, const T *x, size_t n, bool aligned)
{
	KN_FLAT(n, aligned, at, left, VEC, (not_finite_8<T, VEC>(flag, x + at, left)));
}

int kn_cu_not_finite(uint32_t *flag, const void *x, enum kn_type type, size_t n,
		     struct CUstream_st *stream)
{
	if (!kn_is_type(type))
		return cudaErrorInvalidValue;
	if (!n)
		return 0;
	KN_BY_TYPE(type, T, KN_LAUNCH(not_finite<T>, blocks(n), THREADS, stream, flag,
				      (const T *)x, n, kn_is_aligned(x)));
	return kn_launched();
}
