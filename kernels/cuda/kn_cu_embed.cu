/*
 * kn_cu_embed.cu -- rows of the embedding, and the gradient of the table.
 *
 * A row of the table is one block's for each 256 columns: no two blocks add to the same place.
 */
#include "kernels/cuda/kn_cu_device.cuh"

template <class T, bool VEC>
static __global__ void embed(T *y, const T *table, const int32_t *ids, size_t n)
{
	const size_t to = blockIdx.x * n, from = (size_t)ids[blockIdx.x] * n;

	for (size_t i = threadIdx.x * KN_V; i < n; i += (size_t)blockDim.x * KN_V)
		kn_put<T, VEC>(y + to + i, kn_get<T, VEC>(table + from + i, (ptrdiff_t)(n - i)),
			       (ptrdiff_t)(n - i));
}

/* Types of one size are moved alike. */
int kn_cu_embed(void *y, const void *table, const int32_t *ids, size_t rows, size_t n,
		enum kn_type type, struct CUstream_st *stream)
{
	const bool aligned = n % KN_V == 0 && kn_is_aligned(y) && kn_is_aligned(table);
	const size_t wide = kn_up32(kn_ceil(n, KN_V)), threads = wide < 256 ? wide : 256;

	if (!kn_is_type(type))
		return cudaErrorInvalidValue;
	if (!rows || !n)
		return 0;
	KN_BY_TYPE(type == KN_F32 ? KN_F32 : KN_BF16, T, KN_BY_VEC(aligned, VEC,
		KN_LAUNCH((embed<T, VEC>), rows, threads, stream, (T *)y, (const T *)table, ids,
			  n)));
	return kn_launched();
}

#define LANES 4

/* Warp l adds rows l, l + 4, ... of the id's list; then the warps in order. */
template <class G, class T, bool VEC>
static __global__ void __launch_bounds__(32 * LANES)
embed_back(G *dtable, const T *dy, const int32_t *id, const int32_t *begin, const int32_t *at,
	   size_t n, bool add)
{
	__shared__ float s[LANES - 1][KN_V][32];
	const size_t cols = kn_ceil(n, 32 * KN_V), u = blockIdx.x / cols;
	const unsigned lane = threadIdx.x / 32, t = threadIdx.x % 32;
	const size_t i = (blockIdx.x % cols * 32 + t) * KN_V;
	const ptrdiff_t left = (ptrdiff_t)n - (ptrdiff_t)i;
	const int32_t end = begin[u + 1];
	float sum[KN_V] = {}, v[KN_V];
	G *to = dtable + (size_t)id[u] * n + i;

#pragma unroll 4
	for (int32_t j = begin[u] + (int32_t)lane; j < end; j += LANES) {
		kn_load<T, VEC>(v, dy + (size_t)at[j] * n + i, left);
#pragma unroll
		for (int k = 0; k < KN_V; k++)
			sum[k] += v[k];
	}
	if (lane) {
#pragma unroll
		for (int k = 0; k < KN_V; k++)
			s[lane - 1][k][t] = sum[k];
	}
	__syncthreads();
	if (lane)
		return;
#pragma unroll
	for (int l = 0; l < LANES - 1; l++)
#pragma unroll
		for (int k = 0; k < KN_V; k++)
			sum[k] += s[l][k][t];
	if (add) {
		kn_load<G, VEC>(v, to, left);
#pragma unroll
		for (int k = 0; k < KN_V; k++)
			sum[k] += v[k];
	}
	kn_store<G, VEC>(to, sum, left);
}

int kn_cu_embed_back(void *dtable, enum kn_type grad_type, const void *dy, const int32_t *id,
		     const int32_t *begin, const int32_t *at, size_t nid, size_t n,
		     enum kn_type type, unsigned flags, struct CUstream_st *stream)
{
	const bool aligned = n % KN_V == 0 && kn_is_aligned(dtable) && kn_is_aligned(dy);
	const size_t blocks = nid * kn_ceil(n, 32 * KN_V);

	if (!kn_is_type(type) || !kn_is_type(grad_type))
		return cudaErrorInvalidValue;
	if (!blocks)
		return 0;
	KN_BY_TYPE(grad_type, G, KN_BY_TYPE(type, T, KN_BY_VEC(aligned, VEC,
		KN_LAUNCH((embed_back<G, T, VEC>), blocks, 32 * LANES, stream, (G *)dtable,
			  (const T *)dy, id, begin, at, n, flags & KN_CU_ADD))));
	return kn_launched();
}
