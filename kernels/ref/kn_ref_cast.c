/*
 * kn_ref_cast.c -- conversions between f64, f32, f16 and bf16, defined on bits.
 *
 * All four types are sign, exponent (all ones: infinity or NaN; 0: subnormal), mantissa.
 * Seen as an integer without its sign, such a number grows with its value, and a carry
 * out of the mantissa steps the exponent rightly, from subnormal to normal and from the
 * largest finite to infinity.  So narrowing is: re-bias the exponent, shift the mantissa
 * right, and add one when the part shifted out is more than half, or half and the result
 * is odd.  Where the target is subnormal the hidden one is made visible and the shift
 * grows by the exponents that are missing.
 */
#include <string.h>

#include "kernels/include/kn_ref.h"

struct format {
	int mant;	/* bits of the mantissa */
	int exp;	/* bits of the exponent */
};

static const struct format f64 = { 52, 11 };
static const struct format f32 = { 23, 8 };
static const struct format f16 = { 10, 5 };
static const struct format bf16 = { 7, 8 };

#define BF16_NAN 0x7fc0

static int bias_of(struct format f)
{
	return (1 << (f.exp - 1)) - 1;
}

/* Bits of infinity, without sign. */
static uint64_t inf_of(struct format f)
{
	return ((UINT64_C(1) << f.exp) - 1) << f.mant;
}

/* v / 2^shift, to nearest even; shift >= 1. */
static uint64_t shift_round(uint64_t v, int shift)
{
	uint64_t half, rest, kept;

	if (shift > 63)
		return 0;	/* v < 2^53, far below a half */
	half = UINT64_C(1) << (shift - 1);
	rest = v & (2 * half - 1);
	kept = v >> shift;
	return kept + (rest > half || (rest == half && (kept & 1)));
}

/* The magnitude 'u' of a finite number of format 'from', rounded into format 'to'. */
static uint64_t narrow_finite(uint64_t u, struct format from, struct format to)
{
	const int drop = from.mant - to.mant;
	const int exp_in = (int)(u >> from.mant);
	const int exp = (exp_in ? exp_in : 1) - bias_of(from) + bias_of(to);
	uint64_t mant = u & ((UINT64_C(1) << from.mant) - 1);

	if (exp_in)
		mant |= UINT64_C(1) << from.mant;
	if (exp >= (1 << to.exp) - 1)
		return inf_of(to);
	if (exp < 1)
		return shift_round(mant, drop + 1 - exp);
	/* A normal number carries its hidden one into the exponent: count one less. */
	return ((uint64_t)(exp - 1) << to.mant) + shift_round(mant, drop);
}

static uint64_t narrow(uint64_t bits, struct format from, struct format to,
		       uint64_t *overflow)
{
	const uint64_t sign = bits >> (from.mant + from.exp);
	const uint64_t u = bits & ~(sign << (from.mant + from.exp));
	const uint64_t quiet = UINT64_C(1) << (to.mant - 1);
	uint64_t r;

	if (u > inf_of(from)) {
		uint64_t mant = u - inf_of(from);

		if (to.mant == bf16.mant)
			return BF16_NAN;
		r = inf_of(to) | quiet | mant >> (from.mant - to.mant);
	} else if (u == inf_of(from)) {
		r = inf_of(to);
	} else {
		r = narrow_finite(u, from, to);
		*overflow += r == inf_of(to);
	}
	return sign << (to.mant + to.exp) | r;
}

/* A number of format 'from' in the wider format 'to'; exact. */
static uint64_t widen(uint64_t bits, struct format from, struct format to)
{
	const uint64_t sign = bits >> (from.mant + from.exp);
	const uint64_t u = bits & ~(sign << (from.mant + from.exp));
	const int more = to.mant - from.mant;
	int exp = bias_of(to) - bias_of(from);
	uint64_t r, mant;

	if (u >= inf_of(from)) {
		r = inf_of(to) | (u - inf_of(from)) << more;
		if (u > inf_of(from))
			r |= UINT64_C(1) << (to.mant - 1);
	} else if (u >> from.mant) {
		r = (u << more) + ((uint64_t)exp << to.mant);
	} else if (!u || !exp) {
		r = u << more;
	} else {
		/* A subnormal becomes normal: bring its first one to the hidden place. */
		for (mant = u; !(mant >> from.mant); mant <<= 1)
			exp--;
		r = (mant << more) + ((uint64_t)exp << to.mant);
	}
	return sign << (to.mant + to.exp) | r;
}

static uint16_t get16(const void *p, size_t i)
{
	uint16_t v;

	memcpy(&v, (const uint8_t *)p + 2 * i, sizeof(v));
	return v;
}

static uint32_t get32(const void *p, size_t i)
{
	uint32_t v;

	memcpy(&v, (const uint8_t *)p + 4 * i, sizeof(v));
	return v;
}

static uint64_t get64(const void *p, size_t i)
{
	uint64_t v;

	memcpy(&v, (const uint8_t *)p + 8 * i, sizeof(v));
	return v;
}

static void put16(void *p, size_t i, uint64_t bits)
{
	const uint16_t v = (uint16_t)bits;

	memcpy((uint8_t *)p + 2 * i, &v, sizeof(v));
}

static void put32(void *p, size_t i, uint64_t bits)
{
	const uint32_t v = (uint32_t)bits;

	memcpy((uint8_t *)p + 4 * i, &v, sizeof(v));
}

static void put64(void *p, size_t i, uint64_t bits)
{
	memcpy((uint8_t *)p + 8 * i, &bits, sizeof(bits));
}

void kn_ref_bf16_to_f32(void *dst, const void *src, size_t n)
{
	for (size_t i = 0; i < n; i++)
		put32(dst, i, (uint32_t)get16(src, i) << 16);
}

void kn_ref_f16_to_f32(void *dst, const void *src, size_t n)
{
	for (size_t i = 0; i < n; i++)
		put32(dst, i, widen(get16(src, i), f16, f32));
}

void kn_ref_f32_to_f64(void *dst, const void *src, size_t n)
{
	for (size_t i = 0; i < n; i++)
		put64(dst, i, widen(get32(src, i), f32, f64));
}

void kn_ref_f32_to_bf16(void *dst, const void *src, size_t n, uint64_t *overflow)
{
	uint64_t over = 0;

	for (size_t i = 0; i < n; i++)
		put16(dst, i, narrow(get32(src, i), f32, bf16, &over));
	if (overflow)
		*overflow += over;
}

void kn_ref_f32_to_f16(void *dst, const void *src, size_t n, uint64_t *overflow)
{
	uint64_t over = 0;

	for (size_t i = 0; i < n; i++)
		put16(dst, i, narrow(get32(src, i), f32, f16, &over));
	if (overflow)
		*overflow += over;
}

void kn_ref_f64_to_f32(void *dst, const void *src, size_t n, uint64_t *overflow)
{
	uint64_t over = 0;

	for (size_t i = 0; i < n; i++)
		put32(dst, i, narrow(get64(src, i), f64, f32, &over));
	if (overflow)
		*overflow += over;
}

void kn_ref_f64_to_bf16(void *dst, const void *src, size_t n, uint64_t *overflow)
{
	uint64_t over = 0;

	for (size_t i = 0; i < n; i++)
		put16(dst, i, narrow(get64(src, i), f64, bf16, &over));
	if (overflow)
		*overflow += over;
}

void kn_ref_f64_to_f16(void *dst, const void *src, size_t n, uint64_t *overflow)
{
	uint64_t over = 0;

	for (size_t i = 0; i < n; i++)
		put16(dst, i, narrow(get64(src, i), f64, f16, &over));
	if (overflow)
		*overflow += over;
}

/* By way of f32, which holds every f16 and every bf16: still one rounding. */
void kn_ref_f16_to_bf16(void *dst, const void *src, size_t n)
{
	uint64_t over = 0;

	for (size_t i = 0; i < n; i++)
		put16(dst, i, narrow(widen(get16(src, i), f16, f32), f32, bf16, &over));
}

void kn_ref_bf16_to_f16(void *dst, const void *src, size_t n, uint64_t *overflow)
{
	uint64_t over = 0;

	for (size_t i = 0; i < n; i++)
		put16(dst, i, narrow((uint32_t)get16(src, i) << 16, f32, f16, &over));
	if (overflow)
		*overflow += over;
}
