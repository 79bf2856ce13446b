/*
 * kn_ref_diff.c -- two arrays of numbers compared: what differs, by how much, how often.
 *
 * Distances in steps use one fact: without its sign, an IEEE pattern read as an integer
 * rises with its value, one by one through all numbers of the type.  So the signed integer
 * made of sign and pattern counts representable numbers, zero being 0 with either sign.
 *
 * Sums go to eight lanes by index and the lanes are joined in one order, so that a variant
 * with wide registers gives the same bits.
 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/include/kn.h"
#include "kernels/include/kn_ref.h"

/* What is looked at in one go: equal bytes take the short way. */
#define BLOCK 256

size_t kn_num_size(enum kn_num type)
{
	switch (type) {
	case KN_NUM_F64:
	case KN_NUM_I64:
	case KN_NUM_U64:
		return 8;
	case KN_NUM_F32:
	case KN_NUM_I32:
	case KN_NUM_U32:
		return 4;
	case KN_NUM_F16:
	case KN_NUM_BF16:
	case KN_NUM_I16:
	case KN_NUM_U16:
		return 2;
	case KN_NUM_F8_E4M3:
	case KN_NUM_F8_E5M2:
	case KN_NUM_F8_E4M3FNUZ:
	case KN_NUM_F8_E5M2FNUZ:
	case KN_NUM_F8_E8M0:
	case KN_NUM_I8:
	case KN_NUM_U8:
	case KN_NUM_BYTE:
		return 1;
	}
	return 0;
}

static inline uint64_t bits_of(enum kn_num type, const uint8_t *p)
{
	uint64_t v = 0;

	memcpy(&v, p, kn_num_size(type));
	return v;
}

/* Sign, 'e' bits of exponent and 'm' of mantissa: a finite number. */
static double small_float(unsigned v, unsigned e, unsigned m, int bias)
{
	const unsigned exponent = v >> m & ((1u << e) - 1), mantissa = v & ((1u << m) - 1);
	double x;

	if (exponent)
		x = ldexp((double)(mantissa + (1u << m)), (int)exponent - bias - (int)m);
	else
		x = ldexp((double)mantissa, 1 - bias - (int)m);
	return v >> (e + m) ? -x : x;
}

static double f8_value(enum kn_num type, unsigned v)
{
	switch (type) {
	case KN_NUM_F8_E4M3:
		return (v & 0x7f) == 0x7f ? (double)NAN : small_float(v, 4, 3, 7);
	case KN_NUM_F8_E5M2:
		if ((v & 0x7f) > 0x7c)
			return (double)NAN;
		if ((v & 0x7f) == 0x7c)
			return v >> 7 ? -(double)INFINITY : (double)INFINITY;
		return small_float(v, 5, 2, 15);
	case KN_NUM_F8_E4M3FNUZ:
		return v == 0x80 ? (double)NAN : small_float(v, 4, 3, 8);
	case KN_NUM_F8_E5M2FNUZ:
		return v == 0x80 ? (double)NAN : small_float(v, 5, 2, 16);
	default:
		return v == 0xff ? (double)NAN : ldexp(1, (int)v - 127);
	}
}

static inline double value_of(enum kn_num type, const uint8_t *p)
{
	const uint64_t v = bits_of(type, p);
	double d;
	float f;

	switch (type) {
	case KN_NUM_F64:
		memcpy(&d, p, 8);
		return d;
	case KN_NUM_F32:
		memcpy(&f, p, 4);
		return (double)f;
	case KN_NUM_F16:
		kn_ref_f16_to_f32(&f, p, 1);
		return (double)f;
	case KN_NUM_BF16:
		kn_ref_bf16_to_f32(&f, p, 1);
		return (double)f;
	case KN_NUM_I64:
		return (double)(int64_t)v;
	case KN_NUM_I32:
		return (double)(int32_t)(uint32_t)v;
	case KN_NUM_I16:
		return (double)(int16_t)(uint16_t)v;
	case KN_NUM_I8:
		return (double)(int8_t)(uint8_t)v;
	case KN_NUM_U64:
	case KN_NUM_U32:
	case KN_NUM_U16:
	case KN_NUM_U8:
	case KN_NUM_BYTE:
		return (double)v;
	default:
		return f8_value(type, (unsigned)v);
	}
}

double kn_num_value(enum kn_num type, const void *p)
{
	return value_of(type, p);
}

/* A sign and a magnitude, counted from zero. */
static inline uint64_t apart(bool neg_a, uint64_t a, bool neg_b, uint64_t b)
{
	if (neg_a != neg_b)
		return a + b;
	return a < b ? b - a : a - b;
}

/* How many numbers of the type one must step over to come from 'a' to 'b'; none is NaN. */
static inline uint64_t steps_of(enum kn_num type, uint64_t a, uint64_t b)
{
	const unsigned top = (unsigned)kn_num_size(type) * 8 - 1;
	const uint64_t magnitude = ((uint64_t)1 << top) - 1;
	int64_t x, y;

	switch (type) {
	case KN_NUM_U64:
	case KN_NUM_U32:
	case KN_NUM_U16:
	case KN_NUM_U8:
	case KN_NUM_BYTE:
	case KN_NUM_F8_E8M0:
		return a < b ? b - a : a - b;
	case KN_NUM_I64:
	case KN_NUM_I32:
	case KN_NUM_I16:
	case KN_NUM_I8:
		/* the sign, carried to the top */
		x = (int64_t)(a << (63 - top)) >> (63 - top);
		y = (int64_t)(b << (63 - top)) >> (63 - top);
		return x < y ? (uint64_t)y - (uint64_t)x : (uint64_t)x - (uint64_t)y;
	default:
		return apart(a >> top & 1, a & magnitude, b >> top & 1, b & magnitude);
	}
}

static inline bool is_integer(enum kn_num type)
{
	return type >= KN_NUM_I8 && type <= KN_NUM_U64;
}

struct lanes {
	double dd[8], aa[8], bb[8];
};

/* The bytes are equal: what is left are norms and NaN. */
static inline void same_block(enum kn_num type, const uint8_t *a, size_t n, struct lanes *l,
			      struct kn_diff *d)
{
	const size_t size = kn_num_size(type);

	for (size_t i = 0; i < n; i++) {
		const double v = value_of(type, a + i * size);

		if (isfinite(v)) {
			l->aa[i % 8] += v * v;
			l->bb[i % 8] += v * v;
		}
		d->nan_both += isnan(v) ? 1 : 0;
	}
	d->steps[0] += n;
}

static inline void count_differing(struct kn_diff *d, uint64_t elem)
{
	if (d->differ && d->last == elem)
		return;
	if (!d->differ)
		d->first = elem;
	d->last = elem;
	d->differ++;
}

static inline void count_beyond(struct kn_diff *d, uint64_t elem)
{
	if (d->beyond && d->last_beyond == elem)
		return;
	if (!d->beyond)
		d->first_beyond = elem;
	d->last_beyond = elem;
	d->beyond++;
}

/* The bits differ.  The distance, or NaN if exactly one of them is NaN. */
static inline double look(enum kn_num type, const uint8_t *a, const uint8_t *b, double x, double y,
			  struct kn_diff *d)
{
	const uint64_t steps = steps_of(type, bits_of(type, a), bits_of(type, b));

	if (isnan(x) || isnan(y)) {
		if (isnan(x) && isnan(y)) {
			d->nan_both++;
			d->steps[0]++;
			return 0;
		}
		if (isnan(x))
			d->nan_a++;
		else
			d->nan_b++;
		return (double)NAN;
	}
	d->steps[steps ? 64 - __builtin_clzll(steps) : 0]++;
	if (steps > d->max_steps)
		d->max_steps = steps;
	return is_integer(type) ? (double)steps : fabs(x - y);
}

static inline void other_block(enum kn_num type, const struct kn_diff_how *how, const uint8_t *a,
			       const uint8_t *b, uint64_t at, size_t n, struct lanes *l,
			       struct kn_diff *d)
{
	const size_t size = kn_num_size(type);

	for (size_t i = 0; i < n; i++, a += size, b += size) {
		const uint64_t elem = (at + i) / how->parts;
		const double x = value_of(type, a), y = value_of(type, b);
		double gap = 0;

		if (!memcmp(a, b, size)) {
			d->steps[0]++;
			d->nan_both += isnan(x) ? 1 : 0;
		} else {
			count_differing(d, elem);
			gap = look(type, a, b, x, y, d);
			if (gap > d->max_abs) {
				d->max_abs = gap;
				d->max_at = elem;
			}
			if (!(gap <= how->abs + how->rel * fmax(fabs(x), fabs(y))) || isinf(gap))
				if (!(gap == 0))
					count_beyond(d, elem);
		}
		if (isfinite(x) && isfinite(y)) {
			l->dd[i % 8] += gap * gap;
			l->aa[i % 8] += x * x;
			l->bb[i % 8] += y * y;
		}
	}
}

static double join(const double l[8])
{
	return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

static inline void diff(enum kn_num type, const struct kn_diff_how *how, const uint8_t *a,
			const uint8_t *b, size_t n, struct kn_diff *d)
{
	const size_t size = kn_num_size(type);
	struct lanes l = { { 0 }, { 0 }, { 0 } };

	for (size_t at = 0; at < n; at += BLOCK) {
		const size_t m = n - at < BLOCK ? n - at : BLOCK;

		if (memcmp(a + at * size, b + at * size, m * size))
			other_block(type, how, a + at * size, b + at * size, at, m, &l, d);
		else
			same_block(type, a + at * size, m, &l, d);
	}
	d->sum_dd = join(l.dd);
	d->sum_aa = join(l.aa);
	d->sum_bb = join(l.bb);
}

/* Bytes without a meaning as numbers. */
static void diff_bytes(const struct kn_diff_how *how, const uint8_t *a, const uint8_t *b, size_t n,
		       struct kn_diff *d)
{
	for (size_t i = 0; i < n; i++) {
		if (a[i] == b[i])
			continue;
		count_differing(d, i / how->parts);
		count_beyond(d, i / how->parts);
	}
}

int kn_ref_diff(enum kn_num type, const struct kn_diff_how *how, const void *a, const void *b,
		size_t n, struct kn_diff *out)
{
	if (!kn_num_size(type) || how->parts < 1)
		return -1;
	memset(out, 0, sizeof(*out));
	/* a call for each type, so that each gets a loop of its own */
	switch (type) {
	case KN_NUM_F64:
		diff(KN_NUM_F64, how, a, b, n, out);
		break;
	case KN_NUM_F32:
		diff(KN_NUM_F32, how, a, b, n, out);
		break;
	case KN_NUM_F16:
		diff(KN_NUM_F16, how, a, b, n, out);
		break;
	case KN_NUM_BF16:
		diff(KN_NUM_BF16, how, a, b, n, out);
		break;
	case KN_NUM_BYTE:
		diff_bytes(how, a, b, n, out);
		break;
	default:
		diff(type, how, a, b, n, out);
	}
	return 0;
}

void kn_num_widen(double *dst, enum kn_num type, const void *src, size_t n)
{
	for (size_t i = 0; i < n; i++)
		dst[i] = value_of(type, (const uint8_t *)src + i * kn_num_size(type));
}
