/*
 * kn_cu_optim.cu -- Adam, and sums of squares: the bits of the CPU's kernels.
 *
 * Compiled without fused multiply-add.  Operations and their order are those of kn_tv_optim.h;
 * division and square root are correctly rounded there and here.
 */
#include "kernels/cuda/kn_cu_device.cuh"

#define THREADS 256

/* ---------------------------------------------------------------- Adam */

struct adam {
	float scale, b1, b2, r1, r2, eps, decay, keep, lr;
	float a, b;	/* by rule */
	int decoupled;
};

static double power(double beta, uint64_t step)
{
	double y = 1;

	for (; step; step >>= 1, beta *= beta)
		if (step & 1)
			y *= beta;
	return y;
}

static struct adam adam_set(const struct kn_adam *how)
{
	const double c1 = how->bias_correction ? 1 - power(how->beta1, how->step) : 1;
	const double c2 = how->bias_correction ? 1 - power(how->beta2, how->step) : 1;
	struct adam s;

	s.scale = how->grad_scale;
	s.b1 = (float)how->beta1;
	s.b2 = (float)how->beta2;
	s.r1 = (float)(1 - how->beta1);
	s.r2 = (float)(1 - how->beta2);
	s.eps = (float)how->eps;
	s.decay = (float)how->decay;
	s.keep = (float)(1 - how->lr * how->decay);
	s.lr = (float)how->lr;
	s.decoupled = how->decoupled;
	if (how->rule == KN_ADAM_TORCH) {
		s.a = (float)(how->lr / c1);
		s.b = (float)sqrt(c2);
	} else if (how->rule == KN_ADAM_FUSED) {
		s.a = (float)c1;
		s.b = (float)c2;
	} else {
		s.a = (float)(how->lr / c1);
		s.b = (float)(1 / sqrt(c2));
		s.keep = (float)(how->lr * how->decay);
	}
	return s;
}

template <int RULE>
KN_BOTH void adam_one(const struct adam *s, float *p, float *m, float *v, float g)
{
	if (RULE == KN_ADAM_TORCH) {
		if (s->decoupled)
			*p = *p * s->keep;
		else
			g = g + *p * s->decay;
		*m = *m + s->r1 * (g - *m);
		*v = *v * s->b2 + s->r2 * g * g;
		*p = *p - s->a * *m / (sqrtf(*v) / s->b + s->eps);
	} else if (RULE == KN_ADAM_FUSED) {
		float update;

		if (!s->decoupled)
			g = g + s->decay * *p;
		*m = s->b1 * *m + s->r1 * g;
		*v = s->b2 * *v + s->r2 * g * g;
		update = *m / s->a / (sqrtf(*v / s->b) + s->eps);
		if (s->decoupled)
			update = update + s->decay * *p;
		*p = *p - s->lr * update;
	} else {
		if (!s->decoupled)
			g = *p * s->decay + g;
		*m = *m * s->b1 + g * s->r1;
		*v = *v * s->b2 + g * g * s->r2;
		if (s->decoupled)
			*p = *p - *p * s->keep;
		*p = *p - s->a * (*m / (sqrtf(*v) * s->b + s->eps));
	}
}

struct arrays {
	float *p, *m, *v;
	const void *grad;
	void *copy;
	enum kn_type copy_type;
	size_t n;
};

template <class C, bool VEC>
KN_DEV void copy_to(void *copy, size_t at, const float p[KN_V], ptrdiff_t left)
{
	kn_v8<C> v;
	C c[KN_V];

#pragma unroll
	for (int j = 0; j < KN_V; j++)
		c[j] = kn_narrow_law<C>(p[j]);
	memcpy(&v, c, sizeof(v));
	kn_put<C, VEC>((C *)copy + at, v, left);
}

template <int RULE, class G, bool VEC>
KN_DEV void adam_8(const struct adam *how, const struct arrays *a, size_t at, ptrdiff_t left)
{
	float p[KN_V], m[KN_V], v[KN_V], g[KN_V];

	kn_load<float, VEC>(p, a->p + at, left);
	kn_load<float, VEC>(m, a->m + at, left);
	kn_load<float, VEC>(v, a->v + at, left);
	kn_load<G, VEC>(g, (const G *)a->grad + at, left);
#pragma unroll
	for (int j = 0; j < KN_V; j++)
		adam_one<RULE>(how, &p[j], &m[j], &v[j], g[j] * how->scale);
	kn_store<float, VEC>(a->p + at, p, left);
	kn_store<float, VEC>(a->m + at, m, left);
	kn_store<float, VEC>(a->v + at, v, left);
	if (!a->copy)
		return;
	if (a->copy_type == KN_BF16)
		copy_to<kn_bf16, VEC>(a->copy, at, p, left);
	else if (a->copy_type == KN_F16)
		copy_to<kn_f16, VEC>(a->copy, at, p, left);
	else
		copy_to<float, VEC>(a->copy, at, p, left);
}

template <int RULE, class G>
static __global__ void __launch_bounds__(THREADS)
adam(struct adam how, struct arrays a, bool aligned)
{
	KN_FLAT(a.n, aligned, at, left, VEC, (adam_8<RULE, G, VEC>(&how, &a, at, left)));
}

template <int RULE, class G>
static void adam_run(const struct adam *how, const struct arrays *a, bool aligned,
		     cudaStream_t stream)
{
	KN_LAUNCH((adam<RULE, G>), kn_ceil(a->n, (size_t)THREADS * KN_V), THREADS, stream,
		  *how, *a, aligned);
}

int kn_cu_adam(const struct kn_adam *how, float *p, float *m, float *v, const void *grad,
	       enum kn_type grad_type, size_t n, void *copy, enum kn_type copy_type,
	       struct CUstream_st *stream)
{
	const struct arrays a = { p, m, v, grad, copy, copy_type, n };
	const bool aligned = kn_is_aligned(p) && kn_is_aligned(m) && kn_is_aligned(v) &&
			     kn_is_aligned(grad) && kn_is_aligned(copy);
	struct adam s;

	if (!kn_is_type(grad_type) || (copy && !kn_is_type(copy_type)) ||
	    how->rule < KN_ADAM_TORCH || how->rule > KN_ADAM_CPU)
		return cudaErrorInvalidValue;
	if (!n)
		return 0;
	s = adam_set(how);
	KN_BY_TYPE(grad_type, G,
		if (how->rule == KN_ADAM_TORCH)
			adam_run<KN_ADAM_TORCH, G>(&s, &a, aligned, stream);
		else if (how->rule == KN_ADAM_FUSED)
			adam_run<KN_ADAM_FUSED, G>(&s, &a, aligned, stream);
		else
			adam_run<KN_ADAM_CPU, G>(&s, &a, aligned, stream));
	return kn_launched();
}

/* ---------------------------------------------------------------- norm */

/*
 * Sixteen threads have a chunk, one for each lane of the CPU's.  They read it 16 bytes at a time,
 * and turn it in shared memory, so that each adds its own lane's numbers in the CPU's order.  The
 * square of a float is exact in double: to fuse it with the sum changes no bit.
 */
#define SUM_AHEAD 4	/* units of eight that a thread asks for at once */

template <class T>
static __global__ void __launch_bounds__(THREADS)
sumsq(double *out, const T *x, size_t n, size_t chunk, size_t chunks, bool aligned)
{
	__shared__ kn_v8<T> turned[THREADS / 16][16 * SUM_AHEAD + 1];
	const unsigned lane = threadIdx.x % 16, row = threadIdx.x / 16;
	const size_t mine = ((size_t)blockIdx.x * THREADS + threadIdx.x) / 16;
	const size_t first = mine * chunk;
	const size_t end = mine >= chunks ? 0 : n - first < chunk ? n : first + chunk;
	const T *own = (const T *)turned[row];
	double sum = 0;

	for (size_t i = first; i < end; i += 16 * SUM_AHEAD * KN_V) {
		kn_v8<T> v[SUM_AHEAD];

#pragma unroll
		for (unsigned k = 0; k < SUM_AHEAD; k++) {
			const size_t at = i + (k * 16 + lane) * KN_V;
			const ptrdiff_t left = (ptrdiff_t)(end - at);

			if (aligned && left >= KN_V)
				v[k] = kn_get<T, true>(x + at, left);
			else
				v[k] = kn_get<T, false>(x + at, left);
		}
		__syncwarp(0xffffu << (threadIdx.x & 16));
#pragma unroll
		for (unsigned k = 0; k < SUM_AHEAD; k++)
			turned[row][k * 16 + lane] = v[k];
		__syncwarp(0xffffu << (threadIdx.x & 16));
#pragma unroll 8
		for (unsigned k = lane; k < 16 * SUM_AHEAD * KN_V; k += 16) {
			const double d = (double)kn_wide(own[k]);

			sum = fma(d, d, sum);
		}
	}
	__syncwarp();
#pragma unroll
	for (int half = 8; half; half /= 2)
		sum += __shfl_xor_sync(~0u, sum, half);
	if (mine < chunks && !lane)
		out[mine] = sum;
}

int kn_cu_sumsq(double *out, const void *x, enum kn_type type, size_t n, size_t chunk,
		struct CUstream_st *stream)
{
	size_t chunks;

	if (!kn_is_type(type) || !chunk || chunk % 16)
		return cudaErrorInvalidValue;
	if (!n)
		return 0;
	chunks = kn_ceil(n, chunk);
	KN_BY_TYPE(type, T, KN_LAUNCH(sumsq<T>, kn_ceil(chunks, THREADS / 16), THREADS, stream,
				      out, (const T *)x, n, chunk, chunks,
				      kn_is_aligned(x)));
	return kn_launched();
}

/* ---------------------------------------------------------------- tree */

#define TREE 1024

/*
 * out[b] = the tree over v[1024 b] ..: ten levels of kn_tree_sum(), in which pairs of full blocks
 * do not see other blocks, and an odd number at the end goes up as it is.
 */
static __global__ void __launch_bounds__(TREE / 2)
tree(double *out, const double *v, size_t n)
{
	__shared__ double s[TREE];
	const size_t first = (size_t)blockIdx.x * TREE;
	const unsigned t = threadIdx.x;
	unsigned len = (unsigned)(n - first < TREE ? n - first : TREE);

	for (unsigned i = t; i < len; i += TREE / 2)
		s[i] = v[first + i];
	__syncthreads();
	for (; len > 1; len = (len + 1) / 2) {
		double sum = 0;

		if (t < len / 2)
			sum = s[2 * t] + s[2 * t + 1];
		else if (2 * t + 1 == len)
			sum = s[2 * t];
		__syncthreads();
		s[t] = sum;
		__syncthreads();
	}
	if (!t)
		out[blockIdx.x] = s[0];
}

size_t kn_cu_tree_sum_work(size_t n)
{
	return kn_ceil(n, TREE);
}

int kn_cu_tree_sum(double *out, double *v, size_t n, double *work, struct CUstream_st *stream)
{
	double *from = v, *to = work;

	if (!n)
		return cudaMemsetAsync(out, 0, sizeof(*out), stream);
	for (; n > TREE; n = kn_ceil(n, TREE)) {
		double *next = from;
		int rc;

		KN_LAUNCH(tree, kn_ceil(n, TREE), TREE / 2, stream, to, from, n);
		rc = kn_launched();
		if (rc)
			return rc;
		from = to;
		to = next;
	}
	KN_LAUNCH(tree, 1, TREE / 2, stream, out, from, n);
	return kn_launched();
}
