/*
 * kn_random.c -- random numbers by counter, with the same bits on every machine.
 *
 * Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
 * 2011) turns a counter of 128 bits and a key of 64 into 128 bits.  The counter is (block, stream),
 * the key the seed; a block is two elements of 64 bits.  The uniform number (u + 1/2) / 2^52 goes
 * through the inverse of the normal distribution (Wichura's AS 241, PPND16, good to 1e-16), whose
 * logarithm is the one below and not libm's: plain operations of IEEE doubles have one result.
 */
#include <math.h>
#include <string.h>

#include "kernels/include/kn_train.h"

static void philox(uint32_t c[4], uint64_t seed)
{
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

	for (int round = 0; round < 10; round++) {
		const uint64_t a = (uint64_t)0xd2511f53u * c[0];
		const uint64_t b = (uint64_t)0xcd9e8d57u * c[2];
		const uint32_t next[4] = {
			(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b,
			(uint32_t)(a >> 32) ^ c[3] ^ k1, (uint32_t)a,
		};

		memcpy(c, next, sizeof(next));
		k0 += 0x9e3779b9u;
		k1 += 0xbb67ae85u;
	}
}

/* The two elements of a block. */
static void pair_at(uint64_t out[2], uint64_t seed, uint64_t stream, uint64_t block)
{
	uint32_t c[4] = { (uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream,
			  (uint32_t)(stream >> 32) };

	philox(c, seed);
	out[0] = (uint64_t)c[1] << 32 | c[0];
	out[1] = (uint64_t)c[3] << 32 | c[2];
}

void kn_random_bits(uint64_t *out, size_t n, uint64_t seed, uint64_t stream, uint64_t first)
{
	uint64_t pair[2];

	for (size_t i = 0; i < n; i++) {
		if (!i || !((first + i) & 1))
			pair_at(pair, seed, stream, (first + i) / 2);
		out[i] = pair[(first + i) & 1];
	}
}

/*
 * x = 2^e m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s) with s = (m - 1) / (m + 1), whose
 * series in s^2 <= 0.0295 ends below the last place after 12 terms.
 */
double kn_log(double x)
{
	const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
	uint64_t u;
	double m, s, z, y = 0;
	int e = 0;

	if (!(x > 0) || x > 0x1.fffffffffffffp1023)
		return x == 0 ? -INFINITY : x > 0 ? x : NAN;
	if (x < 0x1p-1022) {
		x *= 0x1p54;
		e = -54;
	}
	memcpy(&u, &x, sizeof(u));
	e += (int)(u >> 52) - 1023;
	u = (u & 0x000fffffffffffffu) | 0x3ff0000000000000u;
	memcpy(&m, &u, sizeof(m));
	if (m > 0x1.6a09e667f3bcdp0) {
		m /= 2;
		e++;
	}
	s = (m - 1) / (m + 1);
	z = s * s;
	for (int k = 23; k >= 3; k -= 2)
		y = (y + 1.0 / k) * z;
	return e * ln2_high + (2 * s + (2 * s * y + e * ln2_low));
}

/* c[0] + c[1] r + ... + c[7] r^7 */
static double eighth(const double c[8], double r)
{
	double y = c[7];

	for (int i = 6; i >= 0; i--)
		y = y * r + c[i];
	return y;
}

/* AS 241: the coefficients of the middle, the flank and the tail. */
static double inverse_normal(double p)
{
	static const double a[8] = { 3.3871328727963666080e0, 1.3314166789178437745e+2,
		1.9715909503065514427e+3, 1.3731693765509461125e+4, 4.5921953931549871457e+4,
		6.7265770927008700853e+4, 3.3430575583588128105e+4, 2.5090809287301226727e+3 };
	static const double b[8] = { 1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2,
		5.3941960214247511077e+3, 2.1213794301586595867e+4, 3.9307895800092710610e+4,
		2.8729085735721942674e+4, 5.2264952788528545610e+3 };
	static const double c[8] = { 1.42343711074968357734e0, 4.63033784615654529590e0,
		5.76949722146069140550e0, 3.64784832476320460504e0, 1.27045825245236838258e0,
		2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4 };
	static const double d[8] = { 1.0, 2.05319162663775882187e0, 1.67638483018380384940e0,
		6.89767334985100004550e-1, 1.48103976427480074590e-1, 1.51986665636164571966e-2,
		5.47593808499534494600e-4, 1.05075007164441684324e-9 };
	static const double f[8] = { 6.65790464350110377720e0, 5.46378491116411436990e0,
		1.78482653991729133580e0, 2.96560571828504891230e-1, 2.65321895265761230930e-2,
		1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7 };
	static const double g[8] = { 1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1,
		1.48753612908506148525e-2, 7.86869131145613259100e-4, 1.84631831751005468180e-5,
		1.42151175831644588870e-7, 2.04426310338993978564e-15 };
	const double q = p - 0.5;
	double r, z;

	if (fabs(q) <= 0.425) {
		r = 0.180625 - q * q;
		return q * eighth(a, r) / eighth(b, r);
	}
	r = sqrt(-kn_log(q < 0 ? p : 1 - p));
	z = r <= 5 ? eighth(c, r - 1.6) / eighth(d, r - 1.6) : eighth(f, r - 5) / eighth(g, r - 5);
	return q < 0 ? -z : z;
}

void kn_random_normal(float *out, size_t n, uint64_t seed, uint64_t stream, uint64_t first,
		      double mean, double std)
{
	uint64_t u[64];

	for (size_t i = 0; i < n; i += 64) {
		const size_t count = n - i < 64 ? n - i : 64;

		kn_random_bits(u, count, seed, stream, first + i);
		for (size_t j = 0; j < count; j++)
			out[i + j] = (float)(mean + std * inverse_normal(
				((double)(u[j] >> 12) + 0.5) * 0x1p-52));
	}
}

/* ---- dropout ---- */

uint32_t kn_dropout_below(double p)
{
	return p >= 65535.0 / 65536 ? 65535 : (uint32_t)(p * 65536 + 0.5);
}

static void drop_row(float *out, const float *x, const float *add, size_t n, uint64_t sample,
		     uint32_t position, const struct kn_dropout *d)
{
	const float scale = 65536.0f / (float)(65536 - d->below);

	for (size_t k = 0; k < n; k += 8) {
		uint32_t c[4] = { (uint32_t)(k / 8), position, (uint32_t)sample,
				  (uint32_t)(sample >> 32) };

		philox(c, d->seed);
		for (size_t i = k; i < n && i < k + 8; i++) {
			const uint32_t u = c[i / 2 % 4] >> 16 * (i % 2) & 0xffff;

			out[i] = (add ? add[i] : 0) + (u < d->below ? 0 : x[i] * scale);
		}
	}
}

void kn_dropout(float *out, const float *x, const float *add, size_t first, size_t rows, size_t n,
		const struct kn_dropout *d, enum kn_type type)
{
	for (size_t r = 0; r < rows; r++) {
		const size_t i = first + r;

		drop_row(out + r * n, x + r * n, add ? add + r * n : NULL, n,
			 d->sample + i / d->tokens, (uint32_t)(i % d->tokens), d);
	}
	kn_round(out, rows * n, type);
}
