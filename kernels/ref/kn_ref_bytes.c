/*
 * kn_ref_bytes.c -- kernels that move or change bytes without looking at their value:
 * swap, xor (negate and conjugate), compare, gather.
 */
#include <string.h>

#include "kernels/include/kn_ref.h"

static void bswap(uint8_t *dst, const uint8_t *src, size_t size, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint8_t elem[8];

		memcpy(elem, src + i * size, size);
		for (size_t k = 0; k < size; k++)
			dst[i * size + k] = elem[size - 1 - k];
	}
}

void kn_ref_bswap16(void *dst, const void *src, size_t n)
{
	bswap(dst, src, 2, n);
}

void kn_ref_bswap32(void *dst, const void *src, size_t n)
{
	bswap(dst, src, 4, n);
}

void kn_ref_bswap64(void *dst, const void *src, size_t n)
{
	bswap(dst, src, 8, n);
}

void kn_ref_xor(void *dst, const void *src, const uint8_t pattern[16], size_t nbytes)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (size_t i = 0; i < nbytes; i++)
		d[i] = s[i] ^ pattern[i % 16];
}

size_t kn_ref_mismatch(const void *a, const void *b, size_t nbytes)
{
	const uint8_t *x = a, *y = b;

	for (size_t i = 0; i < nbytes; i++)
		if (x[i] != y[i])
			return i;
	return nbytes;
}

void kn_ref_gather(void *dst, ptrdiff_t dst_stride, const void *src,
		   ptrdiff_t src_stride, size_t size, size_t run, size_t nrun)
{
	const ptrdiff_t bytes = (ptrdiff_t)size;

	for (size_t i = 0; i < nrun && run; i++)
		memcpy((uint8_t *)dst + (ptrdiff_t)i * dst_stride * bytes,
		       (const uint8_t *)src + (ptrdiff_t)i * src_stride * bytes,
		       run * size);
}
