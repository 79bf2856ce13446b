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
#define BLOCK KN_DIFF_BLOCK

static inline size_t size_of(enum kn_num type)
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

size_t kn_num_size(enum kn_num type)
{
	return size_of(type);
}

/* The sizes are constants so that each is a load. */
static inline uint64_t bits_of(enum kn_num type, const uint8_t *p)
{
	uint64_t v64;
	uint32_t v32;
	uint16_t v16;

	switch (size_of(type)) {
	case 8:
		memcpy(&v64, p, 8);
		return v64;
	case 4:
		memcpy(&v32, p, 4);
		return v32;
	case 2:
		memcpy(&v16, p, 2);
		return v16;
	default:
		return *p;
	}
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
	const unsigned top = (unsigned)size_of(type) * 8 - 1;
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

/* A block as doubles; elements after its end are 0. */
static inline void widen(enum kn_num type, const uint8_t *p, size_t n, double out[BLOCK])
{
	const size_t size = size_of(type);

	for (size_t i = 0; i < n; i++)
		out[i] = value_of(type, p + i * size);
	for (size_t i = n; i < BLOCK; i++)
		out[i] = 0;
}

/* v * v, or 0 where 'v' is NaN or infinite. */
static inline double square(double v)
{
	return v - v == 0 ? v * v : 0;
}

/* 0 if all of them are finite. */
static inline double sum_lanes(double lane[8], const double v[BLOCK])
{
	double odd[8] = { 0 };

	for (size_t i = 0; i < BLOCK; i += 8)
		for (size_t k = 0; k < 8; k++) {
			lane[k] += square(v[i + k]);
			odd[k] += v[i + k] - v[i + k];
		}
	return odd[0] + odd[1] + odd[2] + odd[3] + odd[4] + odd[5] + odd[6] + odd[7];
}

/* The bytes are equal: what is left are norms and NaN. */
static inline void same_block(enum kn_num type, const uint8_t *a, size_t n,
			      struct kn_diff_lanes *l, struct kn_diff *d)
{
	double x[BLOCK], square_of[8] = { 0 };

	widen(type, a, n, x);
	d->steps[0] += n;
	if (sum_lanes(square_of, x) != 0)	/* or NaN: there are such numbers */
		for (size_t i = 0; i < n; i++)
			d->nan_both += isnan(x[i]) ? 1 : 0;
	for (size_t k = 0; k < 8; k++) {
		l->aa[k] += square_of[k];
		l->bb[k] += square_of[k];
	}
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
static inline double gap_of(enum kn_num type, const uint8_t *a, const uint8_t *b, double x,
			    double y, struct kn_diff *d)
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

/* Sums where both are finite; 'gap' is 0 where bits are equal. */
static inline void sum_block(struct kn_diff_lanes *l, const double *x, const double *y,
			     const double *gap)
{
	struct kn_diff_lanes s = { { 0 }, { 0 }, { 0 } };

	for (size_t i = 0; i < BLOCK; i += 8)
		for (size_t k = 0; k < 8; k++) {
			const double u = x[i + k], v = y[i + k], g = gap[i + k];
			const bool finite = (u - u) + (v - v) == 0;

			s.dd[k] += finite ? g * g : 0;
			s.aa[k] += finite ? u * u : 0;
			s.bb[k] += finite ? v * v : 0;
		}
	for (size_t k = 0; k < 8; k++) {
		l->dd[k] += s.dd[k];
		l->aa[k] += s.aa[k];
		l->bb[k] += s.bb[k];
	}
}

static inline void other_block(enum kn_num type, const struct kn_diff_how *how, const uint8_t *a,
			       const uint8_t *b, uint64_t at, size_t n,
			       struct kn_diff_lanes *l, struct kn_diff *d)
{
	const size_t size = size_of(type);
	double x[BLOCK], y[BLOCK], gap[BLOCK] = { 0 };

	widen(type, a, n, x);
	widen(type, b, n, y);
	for (size_t i = 0; i < n; i++, a += size, b += size) {
		const uint64_t elem = how->parts == 1 ? at + i : (at + i) / how->parts;

		if (bits_of(type, a) == bits_of(type, b)) {
			d->steps[0]++;
			d->nan_both += isnan(x[i]) ? 1 : 0;
			continue;
		}
		count_differing(d, elem);
		gap[i] = gap_of(type, a, b, x[i], y[i], d);
		if (gap[i] > d->max_abs) {
			d->max_abs = gap[i];
			d->max_at = elem;
		}
		if (gap[i] == 0)
			continue;
		if (!(gap[i] <= how->abs + how->rel * fmax(fabs(x[i]), fabs(y[i]))) ||
		    isinf(gap[i]))
			count_beyond(d, elem);
	}
	sum_block(l, x, y, gap);
}

static double join(const double l[8])
{
	return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

void kn_ref_diff_join(const struct kn_diff_lanes *lanes, struct kn_diff *out)
{
	out->sum_dd = join(lanes->dd);
	out->sum_aa = join(lanes->aa);
	out->sum_bb = join(lanes->bb);
}

static inline void block(enum kn_num type, const struct kn_diff_how *how, const uint8_t *a,
			 const uint8_t *b, uint64_t at, size_t n, struct kn_diff_lanes *l,
			 struct kn_diff *d)
{
	if (memcmp(a, b, n * size_of(type)))
		other_block(type, how, a, b, at, n, l, d);
	else
		same_block(type, a, n, l, d);
}

/* A call for each type, so that each gets a loop of its own. */
void kn_ref_diff_block(enum kn_num type, const struct kn_diff_how *how, const void *a,
		       const void *b, uint64_t at, size_t n, struct kn_diff_lanes *lanes,
		       struct kn_diff *out)
{
	switch (type) {
	case KN_NUM_F64:
		block(KN_NUM_F64, how, a, b, at, n, lanes, out);
		break;
	case KN_NUM_F32:
		block(KN_NUM_F32, how, a, b, at, n, lanes, out);
		break;
	case KN_NUM_F16:
		block(KN_NUM_F16, how, a, b, at, n, lanes, out);
		break;
	case KN_NUM_BF16:
		block(KN_NUM_BF16, how, a, b, at, n, lanes, out);
		break;
	default:
		block(type, how, a, b, at, n, lanes, out);
	}
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
	struct kn_diff_lanes lanes = { { 0 }, { 0 }, { 0 } };
	const size_t size = size_of(type);
	const uint8_t *p = a, *q = b;

	if (!size || how->parts < 1)
		return -1;
	memset(out, 0, sizeof(*out));
	if (type == KN_NUM_BYTE) {
		diff_bytes(how, a, b, n, out);
		return 0;
	}
	for (size_t at = 0; at < n; at += BLOCK)
		kn_ref_diff_block(type, how, p + at * size, q + at * size, at,
				  n - at < BLOCK ? n - at : BLOCK, &lanes, out);
	kn_ref_diff_join(&lanes, out);
	return 0;
}

void kn_num_widen(double *dst, enum kn_num type, const void *src, size_t n)
{
	for (size_t i = 0; i < n; i++)
		dst[i] = value_of(type, (const uint8_t *)src + i * size_of(type));
}
