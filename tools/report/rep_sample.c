/* rep_sample.c -- see rep_sample.h. */
#include <math.h>
#include <string.h>

#include "rep_sample.h"

/* ---------------------------------------------------------------- types */

int rep_is_number(enum ckpt_dtype dtype)
{
	switch (dtype) {
	case CKPT_BOOL: case CKPT_U8: case CKPT_I8: case CKPT_I16: case CKPT_U16:
	case CKPT_I32: case CKPT_U32: case CKPT_I64: case CKPT_U64:
	case CKPT_F16: case CKPT_BF16: case CKPT_F32: case CKPT_F64:
	case CKPT_F8_E5M2: case CKPT_F8_E4M3:
		return 1;
	default:
		return 0;
	}
}

enum ckpt_dtype rep_read_as(enum ckpt_dtype dtype)
{
	return dtype == CKPT_F16 || dtype == CKPT_BF16 ? CKPT_F32 : 0;
}

/* E4M3 (no infinity, one NaN) and E5M2 (as IEEE 754 has them). */
static double of_f8(enum ckpt_dtype dtype, unsigned char byte)
{
	const int mantissa_bits = dtype == CKPT_F8_E4M3 ? 3 : 2, bias = dtype == CKPT_F8_E4M3 ?
		7 : 15;
	const int exponent = (byte & 0x7f) >> mantissa_bits;
	const int mantissa = byte & ((1 << mantissa_bits) - 1);
	double n;

	if (dtype == CKPT_F8_E4M3 && (byte & 0x7f) == 0x7f)
		n = NAN;
	else if (dtype == CKPT_F8_E5M2 && exponent == 31)
		n = mantissa ? (double)NAN : (double)INFINITY;
	else if (!exponent)
		n = ldexp(mantissa, 1 - bias - mantissa_bits);
	else
		n = ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
	return byte & 0x80 ? -n : n;
}

#define OF_TYPE(type) do { \
		for (size_t i = 0; i < n; i++) { \
			type v; \
			memcpy(&v, (const char *)bytes + i * sizeof(v), sizeof(v)); \
			out[i] = (double)v; \
		} \
	} while (0)

void rep_numbers_of(enum ckpt_dtype dtype, const void *bytes, size_t n, double *out)
{
	switch (dtype) {
	case CKPT_BOOL:
		for (size_t i = 0; i < n; i++)
			out[i] = ((const unsigned char *)bytes)[i] != 0;
		return;
	case CKPT_F8_E4M3: case CKPT_F8_E5M2:
		for (size_t i = 0; i < n; i++)
			out[i] = of_f8(dtype, ((const unsigned char *)bytes)[i]);
		return;
	case CKPT_U8: OF_TYPE(uint8_t); return;
	case CKPT_I8: OF_TYPE(int8_t); return;
	case CKPT_I16: OF_TYPE(int16_t); return;
	case CKPT_U16: OF_TYPE(uint16_t); return;
	case CKPT_I32: OF_TYPE(int32_t); return;
	case CKPT_U32: OF_TYPE(uint32_t); return;
	case CKPT_I64: OF_TYPE(int64_t); return;
	case CKPT_U64: OF_TYPE(uint64_t); return;
	case CKPT_F64: OF_TYPE(double); return;
	default: OF_TYPE(float); return;
	}
}

/* ---------------------------------------------------------------- sums */

void sample_begin(struct sample *s)
{
	double *kept = s->kept;

	memset(s, 0, sizeof(*s));
	s->kept = kept;
}

static size_t bin_of(double n, double low, double width, size_t bins)
{
	const double at = (n - low) / width;

	return !(at > 0) ? 0 : at >= (double)bins ? bins - 1 : (size_t)at;
}

/* Twice the width: pairs of bins become one, below or above the old range. */
static void widen(struct sample *s, int down)
{
	uint64_t half[SAMPLE_FINE] = { 0 };
	const size_t to = down ? SAMPLE_FINE / 2 : 0;

	for (size_t i = 0; i < SAMPLE_FINE; i++)
		half[to + i / 2] += s->fine[i];
	if (down)
		s->low -= s->width * SAMPLE_FINE;
	s->width *= 2;
	memcpy(s->fine, half, sizeof(half));
}

static void count(struct sample *s, double n)
{
	/* a range that a double cannot hold goes into the last bins */
	while (n < s->low && isfinite(s->low - s->width * SAMPLE_FINE))
		widen(s, 1);
	while (n >= s->low + s->width * SAMPLE_FINE && isfinite(s->width * SAMPLE_FINE * 2))
		widen(s, 0);
	s->fine[bin_of(n, s->low, s->width, SAMPLE_FINE)]++;
}

/* What was kept goes into bins of its own range. */
static void begin_bins(struct sample *s)
{
	const double range = s->max - s->min;

	s->low = s->min;
	s->width = isfinite(range) && range > 0 ? range / (SAMPLE_FINE - 1) :
		   fabs(s->min) > 0 && isfinite(s->min) ? fabs(s->min) * 1e-9 : 1e-30;
	for (uint64_t i = 0; i < s->finite; i++)
		count(s, s->kept[i]);
}

static void add_finite(struct sample *s, double n)
{
	const double from_mean = n - s->mean;

	if (s->finite == SAMPLE_KEPT)
		begin_bins(s);
	if (s->finite < SAMPLE_KEPT)
		s->kept[s->finite] = n;
	if (!s->finite || n < s->min)
		s->min = n;
	if (!s->finite || n > s->max)
		s->max = n;
	s->finite++;
	s->mean += from_mean / (double)s->finite;
	s->m2 += from_mean * (n - s->mean);
	s->zeros += n == 0;
	if (s->finite > SAMPLE_KEPT)
		count(s, n);
}

void sample_add(struct sample *s, const double *n, size_t count_of)
{
	for (size_t i = 0; i < count_of; i++) {
		s->seen++;
		if (isnan(n[i]))
			s->nans++;
		else if (isinf(n[i]))
			s->infs++;
		else
			add_finite(s, n[i]);
	}
}

void sample_bins(const struct sample *s, uint64_t *bins_out)
{
	const double width = (s->max - s->min) / REPORT_BINS;

	memset(bins_out, 0, REPORT_BINS * sizeof(*bins_out));
	if (!s->finite)
		return;
	if (!(width > 0) || !isfinite(width)) {
		bins_out[0] = s->finite;
		return;
	}
	if (s->finite <= SAMPLE_KEPT) {
		for (uint64_t i = 0; i < s->finite; i++)
			bins_out[bin_of(s->kept[i], s->min, width, REPORT_BINS)]++;
		return;
	}
	for (size_t i = 0; i < SAMPLE_FINE; i++)
		bins_out[bin_of(s->low + ((double)i + 0.5) * s->width, s->min, width,
				REPORT_BINS)] += s->fine[i];
}

double sample_std(const struct sample *s)
{
	return s->finite ? sqrt(s->m2 / (double)s->finite) : 0;
}
