/*
 * kn_cu_attn.cu -- own attention kernels: any type, any even d up to 256, sums in fp32, no cuDNN.
 *
 * A block has 256 threads as 16 x 16 and works on tiles of N = 16 R tokens.  Of a tile of scores a
 * thread has R x R: rows y R .. y R + R - 1, columns x, x + 16, ...; of a tile [N, d] the same rows
 * and columns x, x + 16, ... below d.  The 16 threads of a row lie in one half of a warp.  Tiles
 * in shared memory are fp32, their rows d + 1 apart (odd: no two of 16 rows begin in one bank).
 *
 * Forward: one block for a tile of queries of a head, over the tiles of keys up to its own, with
 * the maximum m and sum l of each row so far (online softmax): when m grows to m', what was summed
 * before counts exp(m - m').
 * Backward: D = sum of dout o for each query; then one kernel gives dk and dv (a block for a tile
 * of keys, over the heads of the group and the tiles of queries from its own), another dq (a block
 * for a tile of queries).  Both compute p = exp(s - lse) and dp = dout v' again, so nothing is
 * added across blocks and every sum has one order.
 */
#include "kernels/include/kn_cuda_attn.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <math.h>

#include "kernels/cuda/kn_cu_attn_impl.h"

#define SIDE 16
#define THREADS (SIDE * SIDE)

/* What kernels need of a shape.  'ld' of gradients in 'g'. */
struct task {
	long long t; /* tokens of a row */
	int heads, group, d, tiles;
	long long q, k, v, o; /* distances of tokens */
	long long dq, dk, dv, dout;
	float scale;
	const int32_t *starts; /* [b, t] or NULL */
};

static __device__ __forceinline__ float wide(float x)
{
	return x;
}

static __device__ __forceinline__ float wide(__nv_bfloat16 x)
{
	return __bfloat162float(x);
}

static __device__ __forceinline__ float wide(__half x)
{
	return __half2float(x);
}

static __device__ __forceinline__ void narrow(float *to, float x)
{
	*to = x;
}

static __device__ __forceinline__ void narrow(__nv_bfloat16 *to, float x)
{
	*to = __float2bfloat16_rn(x);
}

static __device__ __forceinline__ void narrow(__half *to, float x)
{
	*to = __float2half_rn(x);
}

/* Tokens first .. first + n - 1 of a head as fp32 rows d + 1 apart; zeros from token t on. */
template <typename T>
static __device__ void tile_load(float *to, const T *from, long long ld, long long first, int n,
				 long long t, int d)
{
	for (int r = threadIdx.x / SIDE; r < n; r += SIDE) {
		const T *row = from + (first + r) * ld;

		for (int c = threadIdx.x % SIDE; c < d; c += SIDE)
			to[r * (d + 1) + c] = first + r < t ? wide(row[c]) : 0.f;
	}
}

/* s[i][j] = sum over c of a[row i][c] b[column j][c] */
template <int R>
static __device__ __forceinline__ void tile_dots(float (&s)[R][R], const float *a, const float *b,
						 int d)
{
	const int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;

	for (int i = 0; i < R; i++)
		for (int j = 0; j < R; j++)
			s[i][j] = 0;
	for (int c = 0; c < d; c++) {
		float u[R], w[R];

#pragma unroll
		for (int i = 0; i < R; i++) {
			u[i] = a[(y * R + i) * (d + 1) + c];
			w[i] = b[(x + SIDE * i) * (d + 1) + c];
		}
#pragma unroll
		for (int i = 0; i < R; i++)
#pragma unroll
			for (int j = 0; j < R; j++)
				s[i][j] = fmaf(u[i], w[j], s[i][j]);
	}
}

/* acc[i][j] += sum over n of p[row i][n] b[n][column j]; 'across': p[n][row i] instead. */
template <int R, int J, bool across>
static __device__ __forceinline__ void tile_mix(float (&acc)[R][J], const float *p, const float *b,
						int d)
{
	const int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE, n = SIDE * R;

	for (int l = 0; l < n; l++) {
		float u[R];

#pragma unroll
		for (int i = 0; i < R; i++)
			u[i] = across ? p[l * (n + 1) + y * R + i] : p[(y * R + i) * (n + 1) + l];
#pragma unroll
		for (int j = 0; j < J; j++) {
			const int c = x + SIDE * j;
			const float w = c < d ? b[l * (d + 1) + c] : 0.f;

#pragma unroll
			for (int i = 0; i < R; i++)
				acc[i][j] = fmaf(u[i], w, acc[i][j]);
		}
	}
}

template <typename T, int R, int J>
static __device__ void tile_store(T *to, long long ld, const float (&acc)[R][J], long long first,
				  long long t, int d)
{
	const int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;

	for (int i = 0; i < R; i++) {
		const long long token = first + y * R + i;

		for (int j = 0; j < J; j++)
			if (token < t && x + SIDE * j < d)
				narrow(to + token * ld + x + SIDE * j, acc[i][j]);
	}
}

template <int R> static __device__ void scores_put(float *to, const float (&s)[R][R])
{
	const int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE, n = SIDE * R;

	for (int i = 0; i < R; i++)
		for (int j = 0; j < R; j++)
			to[(y * R + i) * (n + 1) + x + SIDE * j] = s[i][j];
}

/* Over the 16 threads of a row. */
static __device__ __forceinline__ float row_max(float x)
{
	for (int m = SIDE / 2; m; m /= 2)
		x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, m));
	return x;
}

static __device__ __forceinline__ float row_sum(float x)
{
	for (int m = SIDE / 2; m; m /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, m);
	return x;
}

/* The first key that token 'i' of row 'b' sees. */
static __device__ __forceinline__ long long first_seen(const struct task &a, long long b,
						       long long i)
{
	return a.starts && i < a.t ? a.starts[b * a.t + i] : 0;
}

/* ---------------------------------------------------------------- forward */

/*
 * Scores of one tile become p; m, l and acc are brought up to the new maximum.  Row i sees columns
 * of the tile from lo[i] on.
 */
template <int R, int J>
static __device__ __forceinline__ void soften(float (&s)[R][R], float (&m)[R], float (&l)[R],
					      float (&acc)[R][J], float scale, bool diagonal,
					      const int (&lo)[R])
{
	const int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;

	for (int i = 0; i < R; i++) {
		float top = m[i], sum = 0, fade, base;

		for (int j = 0; j < R; j++) {
			s[i][j] *= scale;
			if ((diagonal && x + SIDE * j > y * R + i) || x + SIDE * j < lo[i])
				s[i][j] = -INFINITY;
			top = fmaxf(top, s[i][j]);
		}
		top = row_max(top);
		base = top == -INFINITY ? 0.f : top; /* nothing of the row is seen yet */
		fade = expf(m[i] - base);
		for (int j = 0; j < R; j++) {
			s[i][j] = expf(s[i][j] - base);
			sum += s[i][j];
		}
		l[i] = l[i] * fade + row_sum(sum);
		m[i] = top;
		for (int j = 0; j < J; j++)
			acc[i][j] *= fade;
	}
}

/* Shared memory: a tile of q, one of k and then v, the scores. */
template <typename T, int R, int J>
__global__ void __launch_bounds__(THREADS)
	attn_forward(struct task a, T *o, float *lse, const T *q, const T *k, const T *v)
{
	extern __shared__ float shared[];
	const int n = SIDE * R, y = threadIdx.x / SIDE;
	const int tile = a.tiles - 1 - (int)(blockIdx.x % a.tiles); /* longest first */
	const long long row = blockIdx.x / a.tiles, b = row / a.heads, h = row % a.heads;
	const long long first = (long long)tile * n, at = b * a.t;
	float *sq = shared, *skv = sq + n * (a.d + 1), *sp = skv + n * (a.d + 1);
	float m[R], l[R], acc[R][J] = {{0}}, s[R][R];
	long long from[R];

	k += at * a.k + h / a.group * a.d;
	v += at * a.v + h / a.group * a.d;
	tile_load(sq, q + at * a.q + h * a.d, a.q, first, n, a.t, a.d);
	for (int i = 0; i < R; i++) {
		m[i] = -INFINITY;
		l[i] = 0;
		from[i] = first_seen(a, b, first + y * R + i);
	}
	for (int kt = (int)(first_seen(a, b, first) / n); kt <= tile; kt++) {
		int lo[R];

		for (int i = 0; i < R; i++)
			lo[i] = (int)(from[i] - (long long)kt * n);
		tile_load(skv, k, a.k, (long long)kt * n, n, a.t, a.d);
		__syncthreads();
		tile_dots(s, sq, skv, a.d);
		soften(s, m, l, acc, a.scale, kt == tile, lo);
		scores_put(sp, s);
		__syncthreads();
		tile_load(skv, v, a.v, (long long)kt * n, n, a.t, a.d);
		__syncthreads();
		tile_mix<R, J, false>(acc, sp, skv, a.d);
		__syncthreads();
	}
	for (int i = 0; i < R; i++) {
		const long long token = first + y * R + i;

		for (int j = 0; j < J; j++)
			acc[i][j] /= l[i];
		if (lse && threadIdx.x % SIDE == 0 && token < a.t)
			lse[row * a.t + token] = m[i] + logf(l[i]);
	}
	tile_store(o + at * a.o + h * a.d, a.o, acc, first, a.t, a.d);
}

/* ---------------------------------------------------------------- backward */

/* dots[b, h, i] = sum over c of dout o: 16 threads a query. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
	attn_dots(struct task a, float *dots, const T *o, const T *dout, long long rows)
{
	const long long at = (long long)blockIdx.x * SIDE + threadIdx.x / SIDE;
	const long long row = at < rows ? at : 0;
	const long long i = row % a.t, h = row / a.t % a.heads, b = row / a.t / a.heads;
	const T *x = o + (b * a.t + i) * a.o + h * a.d;
	const T *g = dout + (b * a.t + i) * a.dout + h * a.d;
	float sum = 0;

	for (int c = threadIdx.x % SIDE; c < a.d; c += SIDE)
		sum = fmaf(wide(x[c]), wide(g[c]), sum);
	sum = row_sum(sum);
	if (at < rows && threadIdx.x % SIDE == 0)
		dots[at] = sum;
}

/* s becomes p, dp becomes ds = p (dp - D) scale; 0 outside. */
template <int R>
static __device__ __forceinline__ void grads(float (&s)[R][R], float (&dp)[R][R], const float *lse,
					     const float *dots, long long b, long long first_q,
					     long long first_k, const struct task &a)
{
	const int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;

	for (int i = 0; i < R; i++) {
		const long long qi = first_q + y * R + i;
		const float z = qi < a.t ? lse[qi] : 0.f, sum = qi < a.t ? dots[qi] : 0.f;
		const long long from = first_seen(a, b, qi);

		for (int j = 0; j < R; j++) {
			const long long kj = first_k + x + SIDE * j;
			const bool in = qi < a.t && kj <= qi && kj >= from;

			s[i][j] = in ? expf(s[i][j] * a.scale - z) : 0.f;
			dp[i][j] = in ? s[i][j] * (dp[i][j] - sum) * a.scale : 0.f;
		}
	}
}

/* Shared memory: tiles of k, v, q, dout, then p and ds. */
template <typename T, int R, int J>
__global__ void __launch_bounds__(THREADS)
	attn_back_kv(struct task a, T *dk, T *dv, const T *dout, const T *q, const T *k, const T *v,
		     const float *lse, const float *dots)
{
	extern __shared__ float shared[];
	const int n = SIDE * R, kv = a.heads / a.group;
	const int tile = (int)(blockIdx.x % a.tiles);
	const long long b = blockIdx.x / a.tiles / kv, g = blockIdx.x / a.tiles % kv;
	const long long first = (long long)tile * n, at = b * a.t;
	float *sk = shared, *sv = sk + n * (a.d + 1), *sq = sv + n * (a.d + 1);
	float *sg = sq + n * (a.d + 1), *sp = sg + n * (a.d + 1), *sds = sp + n * (n + 1);
	float acck[R][J] = {{0}}, accv[R][J] = {{0}}, s[R][R], dp[R][R];

	tile_load(sk, k + at * a.k + g * a.d, a.k, first, n, a.t, a.d);
	tile_load(sv, v + at * a.v + g * a.d, a.v, first, n, a.t, a.d);
	for (long long h = g * a.group; h < (g + 1) * a.group; h++) {
		const float *z = lse + (b * a.heads + h) * a.t,
			    *sum = dots + (b * a.heads + h) * a.t;

		for (int qt = tile; qt < a.tiles; qt++) {
			const long long fq = (long long)qt * n;

			if (first_seen(a, b, fq) >= first + n)
				break; /* documents after those of the keys */
			tile_load(sq, q + at * a.q + h * a.d, a.q, fq, n, a.t, a.d);
			tile_load(sg, dout + at * a.dout + h * a.d, a.dout, fq, n, a.t, a.d);
			__syncthreads();
			tile_dots(s, sq, sk, a.d);
			tile_dots(dp, sg, sv, a.d);
			grads(s, dp, z, sum, b, fq, first, a);
			scores_put(sp, s);
			scores_put(sds, dp);
			__syncthreads();
			tile_mix<R, J, true>(accv, sp, sg, a.d);
			tile_mix<R, J, true>(acck, sds, sq, a.d);
			__syncthreads();
		}
	}
	tile_store(dk + at * a.dk + g * a.d, a.dk, acck, first, a.t, a.d);
	tile_store(dv + at * a.dv + g * a.d, a.dv, accv, first, a.t, a.d);
}

/* Shared memory: tiles of q, dout, k, v, then ds. */
template <typename T, int R, int J>
__global__ void __launch_bounds__(THREADS)
	attn_back_q(struct task a, T *dq, const T *dout, const T *q, const T *k, const T *v,
		    const float *lse, const float *dots)
{
	extern __shared__ float shared[];
	const int n = SIDE * R, tile = a.tiles - 1 - (int)(blockIdx.x % a.tiles);
	const long long row = blockIdx.x / a.tiles, b = row / a.heads, h = row % a.heads;
	const long long first = (long long)tile * n, at = b * a.t;
	float *sq = shared, *sg = sq + n * (a.d + 1), *sk = sg + n * (a.d + 1);
	float *sv = sk + n * (a.d + 1), *sds = sv + n * (a.d + 1);
	float acc[R][J] = {{0}}, s[R][R], dp[R][R];

	k += at * a.k + h / a.group * a.d;
	v += at * a.v + h / a.group * a.d;
	tile_load(sq, q + at * a.q + h * a.d, a.q, first, n, a.t, a.d);
	tile_load(sg, dout + at * a.dout + h * a.d, a.dout, first, n, a.t, a.d);
	for (int kt = (int)(first_seen(a, b, first) / n); kt <= tile; kt++) {
		tile_load(sk, k, a.k, (long long)kt * n, n, a.t, a.d);
		tile_load(sv, v, a.v, (long long)kt * n, n, a.t, a.d);
		__syncthreads();
		tile_dots(s, sq, sk, a.d);
		tile_dots(dp, sg, sv, a.d);
		grads(s, dp, lse + row * a.t, dots + row * a.t, b, first, (long long)kt * n, a);
		scores_put(sds, dp);
		__syncthreads();
		tile_mix<R, J, false>(acc, sds, sk, a.d);
		__syncthreads();
	}
	tile_store(dq + at * a.dq + h * a.d, a.dq, acc, first, a.t, a.d);
}

/* ---------------------------------------------------------------- launching */

static struct task task_of(const struct kn_cu_attn_shape *s, int n)
{
	struct task a;

	a.t = (long long)s->t;
	a.heads = (int)s->heads;
	a.group = (int)(s->heads / s->kv);
	a.d = (int)s->d;
	a.tiles = (int)((s->t + n - 1) / n);
	a.q = (long long)s->ldq;
	a.k = (long long)s->ldk;
	a.v = (long long)s->ldv;
	a.o = (long long)s->ldo;
	a.dq = (long long)s->lddq;
	a.dk = (long long)s->lddk;
	a.dv = (long long)s->lddv;
	a.dout = (long long)s->lddo;
	a.scale = s->scale;
	a.starts = s->starts;
	return a;
}

/* Bytes of 'tiles' tiles [n, d] and 'squares' tiles of scores. */
static size_t bytes_of(int n, size_t d, int tiles, int squares)
{
	return ((size_t)tiles * n * (d + 1) + (size_t)squares * n * (n + 1)) * sizeof(float);
}

template <typename F> static cudaError_t more_shared(F *kernel, size_t bytes)
{
	return bytes <= 48 << 10
		       ? cudaSuccess
		       : cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
					      (int)bytes);
}

template <typename T, int R, int J>
static cudaError_t forward(const struct kn_cu_attn_shape *s, T *o, float *lse, const T *q,
			   const T *k, const T *v, cudaStream_t stream)
{
	const struct task a = task_of(s, SIDE * R);
	const size_t bytes = bytes_of(SIDE * R, s->d, 2, 1);
	const cudaError_t rc = more_shared(attn_forward<T, R, J>, bytes);

	if (rc)
		return rc;
	attn_forward<T, R, J><<<(unsigned)(s->b * s->heads * a.tiles), THREADS, bytes, stream>>>(
		a, o, lse, q, k, v);
	return cudaGetLastError();
}

template <typename T, int R, int J>
static cudaError_t back(const struct kn_cu_attn_shape *s, T *dq, T *dk, T *dv, const T *dout,
			const T *q, const T *k, const T *v, const float *lse, const float *dots,
			cudaStream_t stream)
{
	const struct task a = task_of(s, SIDE * R);
	const size_t kv_bytes = bytes_of(SIDE * R, s->d, 4, 2);
	const size_t q_bytes = bytes_of(SIDE * R, s->d, 4, 1);
	cudaError_t rc = more_shared(attn_back_kv<T, R, J>, kv_bytes);

	if (!rc)
		rc = more_shared(attn_back_q<T, R, J>, q_bytes);
	if (rc)
		return rc;
	attn_back_kv<T, R, J><<<(unsigned)(s->b * s->kv * a.tiles), THREADS, kv_bytes, stream>>>(
		a, dk, dv, dout, q, k, v, lse, dots);
	rc = cudaGetLastError();
	if (rc)
		return rc;
	attn_back_q<T, R, J><<<(unsigned)(s->b * s->heads * a.tiles), THREADS, q_bytes, stream>>>(
		a, dq, dout, q, k, v, lse, dots);
	return cudaGetLastError();
}

template <typename T>
static cudaError_t forward_any(const struct kn_cu_attn_shape *s, void *o, float *lse, const void *q,
			       const void *k, const void *v, cudaStream_t st)
{
	T *const oo = (T *)o;
	const T *const qq = (const T *)q, *const kk = (const T *)k, *const vv = (const T *)v;

	if (s->d <= 64)
		return forward<T, 4, 4>(s, oo, lse, qq, kk, vv, st);
	if (s->d <= 128)
		return forward<T, 4, 8>(s, oo, lse, qq, kk, vv, st);
	return forward<T, 2, 16>(s, oo, lse, qq, kk, vv, st);
}

template <typename T>
static cudaError_t back_any(const struct kn_cu_attn_shape *s, void *dq, void *dk, void *dv,
			    const void *dout, const void *q, const void *k, const void *v,
			    const float *lse, const float *dots, cudaStream_t st)
{
	T *const a = (T *)dq, *const b = (T *)dk, *const c = (T *)dv;
	const T *const g = (const T *)dout, *const qq = (const T *)q;
	const T *const kk = (const T *)k, *const vv = (const T *)v;

	if (s->d <= 64)
		return back<T, 2, 4>(s, a, b, c, g, qq, kk, vv, lse, dots, st);
	if (s->d <= 128)
		return back<T, 2, 8>(s, a, b, c, g, qq, kk, vv, lse, dots, st);
	return back<T, 1, 16>(s, a, b, c, g, qq, kk, vv, lse, dots, st);
}

template <typename T>
static cudaError_t dots_any(const struct kn_cu_attn_shape *s, float *dots, const void *o,
			    const void *dout, cudaStream_t st)
{
	const size_t rows = s->b * s->heads * s->t;

	attn_dots<T><<<(unsigned)((rows + SIDE - 1) / SIDE), THREADS, 0, st>>>(
		task_of(s, SIDE), dots, (const T *)o, (const T *)dout, (long long)rows);
	return cudaGetLastError();
}

size_t kn_cu_attn_own_work(const struct kn_cu_attn_shape *s, unsigned flags)
{
	const size_t bytes = s->b * s->heads * s->t * sizeof(float);

	return flags & KN_CU_ATTN_NO_BACK ? 0 : (bytes + 255) / 256 * 256;
}

int kn_cu_attn_own_forward(const struct kn_cu_attn_shape *s, void *o, float *lse, const void *q,
			   const void *k, const void *v, struct CUstream_st *stream)
{
	if (s->type == KN_F32)
		return (int)forward_any<float>(s, o, lse, q, k, v, stream);
	if (s->type == KN_BF16)
		return (int)forward_any<__nv_bfloat16>(s, o, lse, q, k, v, stream);
	return (int)forward_any<__half>(s, o, lse, q, k, v, stream);
}

static cudaError_t dots_type(const struct kn_cu_attn_shape *s, float *dots, const void *o,
			     const void *dout, cudaStream_t stream)
{
	if (s->type == KN_F32)
		return dots_any<float>(s, dots, o, dout, stream);
	if (s->type == KN_BF16)
		return dots_any<__nv_bfloat16>(s, dots, o, dout, stream);
	return dots_any<__half>(s, dots, o, dout, stream);
}

int kn_cu_attn_own_back(const struct kn_cu_attn_shape *s, void *dq, void *dk, void *dv,
			const void *dout, const void *q, const void *k, const void *v,
			const void *o, const float *lse, void *work, struct CUstream_st *stream)
{
	float *const dots = (float *)work;
	const cudaError_t rc = dots_type(s, dots, o, dout, stream);

	if (rc)
		return (int)rc;
	if (s->type == KN_F32)
		return (int)back_any<float>(s, dq, dk, dv, dout, q, k, v, lse, dots, stream);
	if (s->type == KN_BF16)
		return (int)back_any<__nv_bfloat16>(s, dq, dk, dv, dout, q, k, v, lse, dots,
						    stream);
	return (int)back_any<__half>(s, dq, dk, dv, dout, q, k, v, lse, dots, stream);
}
