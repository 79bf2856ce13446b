/*
 * kn_cu_loss.cu -- cross-entropy: a row of logits is one block's.
 *
 * The first pass keeps, per thread, the largest logit so far and the sum of exponentials relative
 * to it.  The second goes backwards, over what the first left in the caches, and writes.
 */
#include "kernels/cuda/kn_cu_device.cuh"

#define THREADS 1024
#define AHEAD 4	/* vectors that a thread asks for at once */

/*
 * Takes eight logits into (top, sum).  A NaN reaches the sum; -infinity alone leaves (-infinity,
 * 0) as it is.
 */
template <class T> KN_DEV void take(float *top, float *sum, const float v[KN_V])
{
	float most = v[0], add = 0;

#pragma unroll
	for (int j = 1; j < KN_V; j++)
		most = fmaxf(most, v[j]);
	if (most > *top) {
		*sum *= kn_exp<T>(*top - most);
		*top = most;
	}
	if (*top == -INFINITY && most == -INFINITY)
		return;
#pragma unroll
	for (int j = 0; j < KN_V; j++)
		add += kn_exp<T>(v[j] - *top);
	*sum += add;
}

/* Logits after the row are -infinity. */
template <class T, bool VEC>
KN_DEV void unpack(float v[KN_V], const kn_v8<T> &raw, ptrdiff_t left)
{
	kn_unpack(v, raw);
	if (!VEC)
#pragma unroll
		for (int j = 0; j < KN_V; j++)
			v[j] = j < left ? v[j] : -INFINITY;
}

template <class T, bool VEC>
static __global__ void __launch_bounds__(THREADS, 1)
xent(T *logits, float *loss, const int32_t *target, size_t n, float factor, bool grad)
{
	__shared__ float smax[32], ssum[32];
	T *l = logits + blockIdx.x * n;
	const int32_t t = target[blockIdx.x];
	const size_t step = (size_t)blockDim.x * KN_V;
	float v[KN_V] = {}, top = -INFINITY, most, sum = 0, hit, inv;

	if (t < 0) {
		for (size_t i = threadIdx.x * KN_V; grad && i < n; i += step)
			kn_store<T, VEC>(l + i, v, (ptrdiff_t)(n - i));
		if (!threadIdx.x)
			loss[blockIdx.x] = 0;
		return;
	}
	hit = (size_t)t < n ? kn_wide(l[t]) : NAN;
	for (size_t i = threadIdx.x * KN_V; i < n; i += AHEAD * step) {
		kn_v8<T> raw[AHEAD];

#pragma unroll
		for (int k = 0; k < AHEAD; k++)
			raw[k] = kn_get<T, VEC>(l + i + k * step, (ptrdiff_t)(n - i - k * step));
#pragma unroll
		for (int k = 0; k < AHEAD; k++)
			if (i + k * step < n) {
				unpack<T, VEC>(v, raw[k], (ptrdiff_t)(n - i - k * step));
				take<T>(&top, &sum, v);
			}
	}
	most = kn_block_max(top, smax);
	sum = kn_block_sum(sum * kn_exp<T>(top - most), ssum);
	if (!threadIdx.x)
		loss[blockIdx.x] = (float)(log((double)sum) + (double)most - (double)hit);
	if (!grad)
		return;
	inv = hit == hit ? 1 / sum : NAN;
	for (size_t round = kn_ceil(n, AHEAD * step); round; round--) {
		const size_t i = (round - 1) * AHEAD * step + threadIdx.x * KN_V;
		kn_v8<T> raw[AHEAD];

#pragma unroll
		for (int k = 0; k < AHEAD; k++)
			raw[k] = kn_get<T, VEC>(l + i + k * step, (ptrdiff_t)(n - i - k * step));
#pragma unroll
		for (int k = 0; k < AHEAD; k++) {
			const size_t at = i + k * step;

			kn_unpack(v, raw[k]);
#pragma unroll
			for (int j = 0; j < KN_V; j++) {
				v[j] = kn_exp<T>(v[j] - most) * inv;
				if (at + j == (size_t)t)
					v[j] -= 1;
				v[j] *= factor;
			}
			kn_store<T, VEC>(l + at, v, (ptrdiff_t)(n - at));
		}
	}
}

int kn_cu_xent(void *logits, float *loss, const int32_t *target, size_t rows, size_t n,
	       const float *factor, enum kn_type type, struct CUstream_st *stream)
{
	const bool aligned = n % KN_V == 0 && kn_is_aligned(logits);
	const size_t wide = kn_up32(kn_ceil(n, KN_V)), threads = wide < THREADS ? wide : THREADS;

	if (!kn_is_type(type) || !n)
		return cudaErrorInvalidValue;
	if (!rows)
		return 0;
	KN_BY_TYPE(type, T, KN_BY_VEC(aligned, VEC,
		KN_LAUNCH((xent<T, VEC>), rows, threads, stream, (T *)logits, loss, target, n,
			  factor ? *factor : 0, factor != NULL)));
	return kn_launched();
}
