/*
 * kn_cu_random.cu -- normal numbers and dropout by counter, with the bits of kn_random_normal() and
 * kn_dropout(): Philox 4x32-10, for the former then Wichura's AS 241 in double.  Plain operations
 * of IEEE numbers, so this file is compiled without fused multiply-add.
 */
#include "kernels/include/kn_cuda_random.h"

#include "kernels/cuda/kn_cu_device.cuh"

#define THREADS 256

static __device__ void philox(uint32_t c[4], uint64_t seed)
{
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

#pragma unroll
	for (int round = 0; round < 10; round++) {
		const uint64_t a = (uint64_t)0xd2511f53u * c[0];
		const uint64_t b = (uint64_t)0xcd9e8d57u * c[2];
		const uint32_t n0 = (uint32_t)(b >> 32) ^ c[1] ^ k0, n1 = (uint32_t)b;
		const uint32_t n2 = (uint32_t)(a >> 32) ^ c[3] ^ k1, n3 = (uint32_t)a;

		c[0] = n0;
		c[1] = n1;
		c[2] = n2;
		c[3] = n3;
		k0 += 0x9e3779b9u;
		k1 += 0xbb67ae85u;
	}
}

/* As kn_log(), for 0 < x < 1 and normal. */
static __device__ double log_of(double x)
{
	const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
	uint64_t u = (uint64_t)__double_as_longlong(x);
	int e = (int)(u >> 52) - 1023;
	double m, s, z, y = 0;

	u = (u & 0x000fffffffffffffu) | 0x3ff0000000000000u;
	m = __longlong_as_double((long long)u);
	if (m > 0x1.6a09e667f3bcdp0) {
		m /= 2;
		e++;
	}
	s = (m - 1) / (m + 1);
	z = s * s;
#pragma unroll
	for (int k = 23; k >= 3; k -= 2)
		y = (y + 1.0 / k) * z;
	return e * ln2_high + (2 * s + (2 * s * y + e * ln2_low));
}

static __device__ double eighth(const double *c, double r)
{
	double y = c[7];

#pragma unroll
	for (int i = 6; i >= 0; i--)
		y = y * r + c[i];
	return y;
}

/* AS 241: the coefficients of the middle, the flank and the tail, numerators and denominators. */
static __constant__ double coefficient[6][8] = {
	{ 3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3,
	  1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
	  3.3430575583588128105e+4, 2.5090809287301226727e+3 },
	{ 1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3,
	  2.1213794301586595867e+4, 3.9307895800092710610e+4, 2.8729085735721942674e+4,
	  5.2264952788528545610e+3 },
	{ 1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
	  3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
	  2.27238449892691845833e-2, 7.74545014278341407640e-4 },
	{ 1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
	  1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
	  1.05075007164441684324e-9 },
	{ 6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
	  2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
	  2.71155556874348757815e-5, 2.01033439929228813265e-7 },
	{ 1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
	  7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
	  2.04426310338993978564e-15 },
};

static __device__ double inverse_normal(double p)
{
	const double q = p - 0.5;
	double r, z;

	if (fabs(q) <= 0.425) {
		r = 0.180625 - q * q;
		return q * eighth(coefficient[0], r) / eighth(coefficient[1], r);
	}
	r = sqrt(-log_of(q < 0 ? p : 1 - p));
	z = r <= 5 ? eighth(coefficient[2], r - 1.6) / eighth(coefficient[3], r - 1.6) :
		eighth(coefficient[4], r - 5) / eighth(coefficient[5], r - 5);
	return q < 0 ? -z : z;
}

/* A thread makes the two elements of a block of the counter, as far as they are asked for. */
static __global__ void normal(float *out, size_t n, uint64_t seed, uint64_t stream, uint64_t first,
			      double mean, double std)
{
	const uint64_t block = first / 2 + (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
	uint32_t c[4] = { (uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream,
			  (uint32_t)(stream >> 32) };

	philox(c, seed);
	for (int i = 0; i < 2; i++) {
		const uint64_t u = (uint64_t)c[2 * i + 1] << 32 | c[2 * i];
		const uint64_t at = 2 * block + (uint64_t)i;

		if (at >= first && at - first < n)
			out[at - first] = (float)(mean + std * inverse_normal(
				((double)(u >> 12) + 0.5) * 0x1p-52));
	}
}

extern "C" int kn_cu_random_normal(float *out, size_t n, uint64_t seed, uint64_t stream,
				   uint64_t first, double mean, double std,
				   struct CUstream_st *on)
{
	const uint64_t blocks = (n + (first & 1) + 1) / 2;

	if (!n)
		return 0;
	normal<<<(unsigned)((blocks + THREADS - 1) / THREADS), THREADS, 0, on>>>(
		out, n, seed, stream, first, mean, std);
	return (int)cudaGetLastError();
}

/* ---- dropout ---- */

KN_BOTH unsigned cols(size_t n)
{
	return (unsigned)((n + KN_V * THREADS - 1) / (KN_V * THREADS));
}

/* Block b has THREADS vectors of row b / cols(n); a vector is what one counter decides. */
template <class T, bool VEC>
static __global__ void __launch_bounds__(THREADS)
drop_rows(T *out, const T *x, const T *add, size_t n, struct kn_dropout d, float scale)
{
	const size_t row = blockIdx.x / cols(n);
	const size_t i = ((size_t)(blockIdx.x % cols(n)) * THREADS + threadIdx.x) * KN_V;
	const ptrdiff_t left = (ptrdiff_t)n - (ptrdiff_t)i;
	const uint64_t sample = d.sample + row / d.tokens;
	uint32_t c[4] = { (uint32_t)(i / KN_V), (uint32_t)(row % d.tokens), (uint32_t)sample,
			  (uint32_t)(sample >> 32) };
	float v[KN_V], a[KN_V] = {};

	if (left <= 0)
		return;
	kn_load<T, VEC>(v, x + row * n + i, left);
	if (add)
		kn_load<T, VEC>(a, add + row * n + i, left);
	philox(c, d.seed);
#pragma unroll
	for (int j = 0; j < KN_V; j++) {
		const uint32_t u = c[j / 2] >> 16 * (j % 2) & 0xffff;

		v[j] = a[j] + (u < d.below ? 0 : v[j] * scale);
	}
	kn_store<T, VEC>(out + row * n + i, v, left);
}

extern "C" int kn_cu_dropout(void *out, const void *x, const void *add, size_t rows, size_t n,
			     const struct kn_dropout *d, enum kn_type type, struct CUstream_st *on)
{
	const bool aligned = n % KN_V == 0 && kn_is_aligned(out) && kn_is_aligned(x) &&
			     kn_is_aligned(add);
	const float scale = 65536.0f / (float)(65536 - d->below);

	if (!kn_is_type(type))
		return cudaErrorInvalidValue;
	if (!rows || !n)
		return 0;
	KN_BY_TYPE(type, T, KN_BY_VEC(aligned, VEC,
		KN_LAUNCH((drop_rows<T, VEC>), rows * cols(n), THREADS, on, (T *)out, (const T *)x,
			  (const T *)add, n, *d, scale)));
	return kn_launched();
}
