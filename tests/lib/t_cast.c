/* Casts between dtypes, one element at a time.
 *
 * Rounding to fp16 goes through double arithmetic: a float is scaled so that
 * the last kept bit has weight 1, is rounded to an even integer, and that
 * integer is the encoding's mantissa. No bit trick is shared with the library,
 * and no libm is needed. */
#include "tests/lib/t_cast.h"
#include "tests/lib/t_dir.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint16_t t_f32_to_bf16(float x)
{
	uint32_t u, down, rest;

	memcpy(&u, &x, 4);
	if (isnan(x))
		return (uint16_t)(u >> 16 | 0x40);
	down = u >> 16;
	rest = u & 0xffff;
	if (rest > 0x8000 || (rest == 0x8000 && (down & 1)))
		down++;
	return (uint16_t)down;
}

/* 2 to the power of E, exactly; E small enough for a double. */
static double two_to(int e)
{
	double x = 1;

	for (; e > 0; e--)
		x *= 2;
	for (; e < 0; e++)
		x /= 2;
	return x;
}

static int round_even(double a)
{
	int k = (int)a;
	double rest = a - k;

	return k + (rest > 0.5 || (rest == 0.5 && (k & 1)));
}

uint16_t t_f32_to_f16(float x)
{
	uint16_t sign = signbit(x) ? 0x8000 : 0;
	double a = x < 0 ? -(double)x : (double)x;
	int e = -14, m;

	if (isnan(x))
		return sign | 0x7e00;
	if (a >= 65536)
		return sign | 0x7c00;
	while (a >= two_to(e + 1))
		e++;
	m = round_even(a * two_to(10 - e));	/* 2048 at most */
	if (m == 2048) {
		m = 1024;
		e++;
	}
	if (e > 15)
		return sign | 0x7c00;
	if (m < 1024)
		return sign | (uint16_t)m;
	return (uint16_t)(sign | (e + 15) << 10 | (m - 1024));
}

float t_f16_to_f32(uint16_t h)
{
	int e = h >> 10 & 31, m = h & 1023;
	double a;

	if (e == 31)
		a = m ? (double)NAN : (double)INFINITY;
	else
		a = e ? (1024 + m) * two_to(e - 25) : m * two_to(-24);
	return (float)(h & 0x8000 ? -a : a);
}

static float load_f32(const uint8_t *p, const char *dtype)
{
	uint32_t u = 0;
	float f;

	if (!strcmp(dtype, "F32")) {
		memcpy(&f, p, 4);
		return f;
	}
	memcpy(&u, p, 2);
	if (!strcmp(dtype, "F16"))
		return t_f16_to_f32((uint16_t)u);
	u <<= 16;
	memcpy(&f, &u, 4);
	return f;
}

static int is_known(const char *dtype)
{
	return !strcmp(dtype, "F32") || !strcmp(dtype, "F16") || !strcmp(dtype, "BF16");
}

uint8_t *t_cast(const struct t_st_tensor *t, const char *dtype)
{
	size_t from = t_st_itemsize(t->dtype), to = t_st_itemsize(dtype);
	uint8_t *out;

	if (strcmp(t->dtype, dtype) && (!is_known(t->dtype) || !is_known(dtype)))
		return NULL;
	out = t_alloc(t->count * to);
	if (!strcmp(t->dtype, dtype)) {
		memcpy(out, t->data, t->nbytes);
		return out;
	}
	for (uint64_t i = 0; i < t->count; i++) {
		float f = load_f32(t->data + i * from, t->dtype);
		uint16_t h;

		if (to == 4) {
			memcpy(out + i * 4, &f, 4);
			continue;
		}
		h = strcmp(dtype, "F16") ? t_f32_to_bf16(f) : t_f32_to_f16(f);
		memcpy(out + i * 2, &h, 2);
	}
	return out;
}

int t_same(const uint8_t *a, const uint8_t *b, const char *dtype, uint64_t count)
{
	size_t size = t_st_itemsize(dtype);

	if (!memcmp(a, b, count * size))
		return 1;
	if (!is_known(dtype))
		return 0;
	for (uint64_t i = 0; i < count; i++) {
		const uint8_t *x = a + i * size, *y = b + i * size;

		if (memcmp(x, y, size) && !(isnan(load_f32(x, dtype)) &&
					    isnan(load_f32(y, dtype))))
			return 0;
	}
	return 1;
}
