/*
 * kn_cu_heads.cu -- between the projection and attention: norms of q and k and the rotation.
 *
 * G neighbouring threads have a head: thread c of them elements 8 c .. 8 c + 7 of the lower half
 * and of the upper, which the rotation turns into each other.  G is a power of two up to 32, so
 * heads have up to 512 elements.
 */
#include "kernels/cuda/kn_cu_device.cuh"

#define THREADS 256
#define MOST_D 512

struct place {
	size_t rows;
	unsigned tokens, heads, kv_heads, half;
	/* where q and k are read and written, and their rows' distances */
	size_t ld_in_q, ld_in_k, ld_out_q, ld_out_k;
	float eps, sign;
	const float *cos, *sin;
	const int32_t *starts;
};

/* Sum over the G threads of a head. */
template <int G> KN_DEV float head_sum(float v)
{
#pragma unroll
	for (int o = G / 2; o; o /= 2)
		v += __shfl_xor_sync(~0u, v, o);
	return v;
}

/* The element of row 'r', head 'h' where the head begins. */
KN_DEV size_t head_at(size_t r, unsigned h, size_t ld, unsigned half)
{
	return r * ld + (size_t)h * 2 * half;
}

template <class T, bool VEC>
KN_DEV void load_head(float lo[KN_V], float hi[KN_V], const T *p, unsigned half, int left)
{
	kn_load<T, VEC>(lo, p, left);
	kn_load<T, VEC>(hi, p + half, left);
}

/* By the angle of the position of row r; 'sign' -1 turns back. */
template <class T, bool VEC>
KN_DEV void turn(float lo[KN_V], float hi[KN_V], const struct place *p, size_t r, unsigned c,
		 int left)
{
	const unsigned start = p->starts ? (unsigned)p->starts[r] : 0;
	const size_t at = (size_t)((unsigned)r % p->tokens - start) * p->half + c;
	float cs[KN_V], sn[KN_V];

	kn_load<float, VEC>(cs, p->cos + at, left);
	kn_load<float, VEC>(sn, p->sin + at, left);
#pragma unroll
	for (int j = 0; j < KN_V; j++) {
		const float a = lo[j], b = hi[j], s = sn[j] * p->sign;

		lo[j] = kn_r<T>(kn_r<T>(a * cs[j]) - kn_r<T>(b * s));
		hi[j] = kn_r<T>(kn_r<T>(b * cs[j]) + kn_r<T>(a * s));
	}
}

/* 1 / sqrt(mean of squares + eps) of a head. */
template <int G>
KN_DEV float head_rstd(const float lo[KN_V], const float hi[KN_V], const struct place *p)
{
	float sum = 0;

#pragma unroll
	for (int j = 0; j < KN_V; j++)
		sum += lo[j] * lo[j] + hi[j] * hi[j];
	return 1 / sqrtf(head_sum<G>(sum) / (float)(2 * p->half) + p->eps);
}

/*
 * Heads in sequence: of row 0 its query heads, its key heads, then row 1.  All threads
 * of a warp go through the sums, so those without a head do as the last.
 */
template <class T, bool VEC, int G, bool NORM>
static __global__ void __launch_bounds__(THREADS)
heads(struct place p, T *qo, T *ko, const T *qi, const T *ki, const T *wq, const T *wk)
{
	const unsigned per = p.heads + p.kv_heads, c = threadIdx.x % G * KN_V;
	const size_t all = p.rows * per, mine = ((size_t)blockIdx.x * THREADS + threadIdx.x) / G;
	const unsigned item = (unsigned)(mine < all ? mine : all - 1), h = item % per;
	const size_t r = item / per;
	const int left = (int)p.half - (int)c;
	const bool is_q = h < p.heads;
	const unsigned kh = h - p.heads;
	const T *in = is_q ? qi + head_at(r, h, p.ld_in_q, p.half) :
			     ki + head_at(r, kh, p.ld_in_k, p.half);
	T *out = is_q ? qo + head_at(r, h, p.ld_out_q, p.half) :
			ko + head_at(r, kh, p.ld_out_k, p.half);
	float lo[KN_V], hi[KN_V];

	load_head<T, VEC>(lo, hi, in + c, p.half, left);
	if (NORM) {
		const float by = head_rstd<G>(lo, hi, &p);
		float wl[KN_V], wh[KN_V];

		load_head<T, VEC>(wl, wh, (is_q ? wq : wk) + c, p.half, left);
#pragma unroll
		for (int j = 0; j < KN_V; j++) {
			lo[j] = kn_r<T>(wl[j] * kn_r<T>(lo[j] * by));
			hi[j] = kn_r<T>(wh[j] * kn_r<T>(hi[j] * by));
		}
	}
	turn<T, VEC>(lo, hi, &p, r, c, left);
	if (mine < all) {
		kn_store<T, VEC>(out + c, lo, left);
		kn_store<T, VEC>(out + c + p.half, hi, left);
	}
}

/* ---------------------------------------------------------------- back */

#define BACK_PARTS 1024

static size_t back_rows(size_t rows)
{
	return kn_ceil(rows, BACK_PARTS);
}

/*
 * The gradient of 'count' heads of rows first .. end - 1, and in dw that of the weight from the
 * heads that this thread had.
 */
template <class T, bool VEC, int G>
KN_DEV void norm_turn_back(const struct place *p, float dw[2][KN_V], T *out, size_t ld_out,
			   const T *dy, size_t ld_dy, const T *x, size_t ld_x, const T *w,
			   unsigned count, size_t first, size_t end)
{
	const unsigned c = threadIdx.x % G * KN_V, items = (unsigned)(end - first) * count;
	const int left = (int)p->half - (int)c;
	float wl[KN_V], wh[KN_V];

	load_head<T, VEC>(wl, wh, w + c, p->half, left);
	for (unsigned base = 0; base < items; base += THREADS / G) {
		const unsigned mine = base + threadIdx.x / G;
		const unsigned item = mine < items ? mine : items - 1, h = item % count;
		const size_t r = first + item / count;
		float gl[KN_V], gh[KN_V], xl[KN_V], xh[KN_V], by, sum = 0, mean;

		load_head<T, VEC>(gl, gh, dy + head_at(r, h, ld_dy, p->half) + c, p->half, left);
		load_head<T, VEC>(xl, xh, x + head_at(r, h, ld_x, p->half) + c, p->half, left);
		turn<T, VEC>(gl, gh, p, r, c, left);
		by = head_rstd<G>(xl, xh, p);
#pragma unroll
		for (int j = 0; j < KN_V; j++) {
			xl[j] *= by;
			xh[j] *= by;
			if (mine < items) {
				dw[0][j] += gl[j] * kn_r<T>(xl[j]);
				dw[1][j] += gh[j] * kn_r<T>(xh[j]);
			}
			gl[j] = kn_r<T>(gl[j] * wl[j]);
			gh[j] = kn_r<T>(gh[j] * wh[j]);
			sum += gl[j] * xl[j] + gh[j] * xh[j];
		}
		mean = head_sum<G>(sum) / (float)(2 * p->half);
		if (mine >= items)
			continue;
#pragma unroll
		for (int j = 0; j < KN_V; j++) {
			gl[j] = by * (gl[j] - xl[j] * mean);
			gh[j] = by * (gh[j] - xh[j] * mean);
		}
		kn_store<T, VEC>(out + head_at(r, h, ld_out, p->half) + c, gl, left);
		kn_store<T, VEC>(out + head_at(r, h, ld_out, p->half) + c + p->half, gh, left);
	}
}

/* dw of the block's threads into to[2 half]: over the heads of a warp, then over the warps. */
template <int G>
KN_DEV void join_heads(float *to, float dw[2][KN_V], float s[THREADS / 32][MOST_D], unsigned half)
{
	const unsigned warp = threadIdx.x / 32, c = threadIdx.x % G * KN_V;

#pragma unroll
	for (int k = 0; k < 2; k++) {
#pragma unroll
		for (int j = 0; j < KN_V; j++) {
#pragma unroll
			for (int o = G; o < 32; o *= 2)
				dw[k][j] += __shfl_xor_sync(~0u, dw[k][j], o);
			if (threadIdx.x % 32 < G && c + j < half)
				s[warp][k * half + c + j] = dw[k][j];
			dw[k][j] = 0;
		}
	}
	__syncthreads();
	for (unsigned i = threadIdx.x; i < 2 * half; i += THREADS) {
		float sum = 0;

		for (int k = 0; k < THREADS / 32; k++)
			sum += s[k][i];
		to[i] = sum;
	}
	__syncthreads();
}

/* work [parts, 2, d]: what each part of the rows leaves for wq and wk. */
template <class T, bool VEC, int G>
static __global__ void __launch_bounds__(THREADS)
heads_back(struct place p, float *work, size_t part, T *qo, T *ko, const T *dq, const T *dk,
	   const T *qx, const T *kx, size_t ld, const T *wq, const T *wk)
{
	__shared__ float s[THREADS / 32][MOST_D];
	const size_t first = blockIdx.x * part, end = p.rows - first < part ? p.rows : first + part;
	float dw[2][KN_V] = {};

	work += blockIdx.x * 4 * (size_t)p.half;
	norm_turn_back<T, VEC, G>(&p, dw, qo, p.ld_out_q, dq, p.ld_in_q, qx, ld, wq, p.heads, first,
				  end);
	join_heads<G>(work, dw, s, p.half);
	norm_turn_back<T, VEC, G>(&p, dw, ko, p.ld_out_k, dk, p.ld_in_k, kx, ld, wk, p.kv_heads,
				  first, end);
	join_heads<G>(work + 2 * p.half, dw, s, p.half);
}

/* ---------------------------------------------------------------- calls */

static bool fits(const struct kn_cu_qk *s)
{
	return kn_is_type(s->type) && s->d && s->d % 2 == 0 && s->d <= MOST_D && s->tokens &&
	       s->tokens <= INT32_MAX && s->heads && s->heads <= INT16_MAX && s->kv_heads &&
	       s->kv_heads <= INT16_MAX && s->rows <= INT32_MAX / (s->heads + s->kv_heads);
}

static bool vectors(const struct kn_cu_qk *s, const void *const *p, size_t n)
{
	bool yes = s->d / 2 % KN_V == 0 && s->ld % KN_V == 0 && s->ldq % KN_V == 0 &&
		   s->ldk % KN_V == 0;

	for (size_t i = 0; i < n; i++)
		yes = yes && kn_is_aligned(p[i]);
	return yes;
}

static struct place place_of(const struct kn_cu_qk *s, const float *cos, const float *sin)
{
	struct place p = {};

	p.rows = s->rows;
	p.tokens = (unsigned)s->tokens;
	p.heads = (unsigned)s->heads;
	p.kv_heads = (unsigned)s->kv_heads;
	p.half = (unsigned)(s->d / 2);
	p.eps = s->eps;
	p.cos = cos;
	p.sin = sin;
	p.starts = s->starts;
	return p;
}

/* The call with VEC, and G for d; without vectors one G does for all. */
#define BY_D(aligned, d, VEC, G, ...)			\
	do {						\
		if (!(aligned)) {			\
			const bool VEC = false;		\
			const int G = 32;		\
			__VA_ARGS__;			\
		} else if ((d) <= 32) {			\
			const bool VEC = true;		\
			const int G = 2;		\
			__VA_ARGS__;			\
		} else if ((d) <= 64) {			\
			const bool VEC = true;		\
			const int G = 4;		\
			__VA_ARGS__;			\
		} else if ((d) <= 128) {		\
			const bool VEC = true;		\
			const int G = 8;		\
			__VA_ARGS__;			\
		} else if ((d) <= 256) {		\
			const bool VEC = true;		\
			const int G = 16;		\
			__VA_ARGS__;			\
		} else {				\
			const bool VEC = true;		\
			const int G = 32;		\
			__VA_ARGS__;			\
		}					\
	} while (0)

struct ways {
	void *qo, *ko;
	const void *qi, *ki, *wq, *wk;
};

template <class T, bool VEC, int G>
static void run_heads(const struct place *p, const struct ways *w, cudaStream_t stream)
{
	const size_t blocks = kn_ceil(p->rows * (p->heads + p->kv_heads) * G, THREADS);

	if (w->wq)
		KN_LAUNCH((heads<T, VEC, G, true>), blocks, THREADS, stream, *p, (T *)w->qo,
			  (T *)w->ko, (const T *)w->qi, (const T *)w->ki, (const T *)w->wq,
			  (const T *)w->wk);
	else
		KN_LAUNCH((heads<T, VEC, G, false>), blocks, THREADS, stream, *p, (T *)w->qo,
			  (T *)w->ko, (const T *)w->qi, (const T *)w->ki, (const T *)w->wq,
			  (const T *)w->wk);
}

/* Element 'n' of an array of 'type'. */
static const void *element(const void *p, size_t n, enum kn_type type)
{
	return (const char *)p + n * (type == KN_F32 ? 4 : 2);
}

static void *element_of(void *p, size_t n, enum kn_type type)
{
	return (char *)p + n * (type == KN_F32 ? 4 : 2);
}

int kn_cu_qk(const struct kn_cu_qk *s, void *q, void *k, const void *qkv, const void *wq,
	     const void *wk, const float *cos, const float *sin, struct CUstream_st *stream)
{
	const void *const all[] = { q, k, qkv, wq, wk, cos, sin };
	const bool aligned = vectors(s, all, sizeof(all) / sizeof(all[0]));
	struct place p = place_of(s, cos, sin);
	struct ways w = { q, k, qkv, element(qkv, s->heads * s->d, s->type), wq, wk };

	if (!fits(s) || !wq != !wk)
		return cudaErrorInvalidValue;
	if (!s->rows)
		return 0;
	p.sign = 1;
	p.ld_in_q = p.ld_in_k = s->ld;
	p.ld_out_q = s->ldq;
	p.ld_out_k = s->ldk;
	KN_BY_TYPE(s->type, T, BY_D(aligned, s->d, VEC, G,
		(run_heads<T, VEC, G>(&p, &w, stream))));
	return kn_launched();
}

size_t kn_cu_qk_back_work(const struct kn_cu_qk *s)
{
	return s->rows ? kn_ceil(s->rows, back_rows(s->rows)) * 2 * s->d * sizeof(float) : 0;
}

template <class T, bool VEC, int G>
static void run_back(const struct place *p, const struct ways *w, size_t ld, const void *qx,
		     const void *kx, void *work, cudaStream_t stream)
{
	const size_t part = back_rows(p->rows);

	KN_LAUNCH((heads_back<T, VEC, G>), kn_ceil(p->rows, part), THREADS, stream, *p,
		  (float *)work, part, (T *)w->qo, (T *)w->ko, (const T *)w->qi, (const T *)w->ki,
		  (const T *)qx, (const T *)kx, ld, (const T *)w->wq, (const T *)w->wk);
}

int kn_cu_qk_back(const struct kn_cu_qk *s, void *dqkv, void *dwq, void *dwk,
		  enum kn_type grad_type, const void *dq, const void *dk, const void *qkv,
		  const void *wq, const void *wk, const float *cos, const float *sin,
		  unsigned flags, void *work, struct CUstream_st *stream)
{
	const void *const all[] = { dqkv, dq, dk, qkv, wq, wk, cos, sin };
	const bool aligned = vectors(s, all, sizeof(all) / sizeof(all[0]));
	struct place p = place_of(s, cos, sin);
	struct ways w = { dqkv, element_of(dqkv, s->heads * s->d, s->type), dq, dk, wq, wk };
	const size_t parts = s->rows ? kn_ceil(s->rows, back_rows(s->rows)) : 0;
	const void *kx = element(qkv, s->heads * s->d, s->type);
	int rc;

	if (!fits(s) || !wq != !wk || (wq && (!kn_is_type(grad_type) || !kn_is_aligned(work))))
		return cudaErrorInvalidValue;
	p.sign = -1;
	p.ld_in_q = s->ldq;
	p.ld_in_k = s->ldk;
	p.ld_out_q = p.ld_out_k = s->ld;
	if (parts) {
		if (wq)
			KN_BY_TYPE(s->type, T, BY_D(aligned, s->d, VEC, G,
				(run_back<T, VEC, G>(&p, &w, s->ld, qkv, kx, work, stream))));
		else
			KN_BY_TYPE(s->type, T, BY_D(aligned, s->d, VEC, G,
				(run_heads<T, VEC, G>(&p, &w, stream))));
		rc = kn_launched();
		if (rc || !wq)
			return rc;
	}
	if (!wq)
		return 0;
	rc = kn_cu_join(dwq, grad_type, (const float *)work, parts, 2 * s->d, s->d, flags, stream);
	return rc ? rc : kn_cu_join(dwk, grad_type, (const float *)work + s->d, parts, 2 * s->d,
				    s->d, flags, stream);
}
