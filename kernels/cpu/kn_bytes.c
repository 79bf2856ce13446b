/*
 * kn_bytes.c -- swap, negate, conjugate, compare and gather of kn.h.
 */
#include <string.h>

#include "kernels/cpu/kn_ops.h"
#include "kernels/include/kn.h"

void kn_bswap16(void *dst, const void *src, size_t n)
{
	kn_ops_get()->bswap16(dst, src, n);
}

void kn_bswap32(void *dst, const void *src, size_t n)
{
	kn_ops_get()->bswap32(dst, src, n);
}

void kn_bswap64(void *dst, const void *src, size_t n)
{
	kn_ops_get()->bswap64(dst, src, n);
}

/* Flips the sign of the numbers of 'size' bytes at 'first', 'first' + 'step', ... of each
   16 bytes.  The sign is the top bit of the last byte. */
static int flip(void *dst, const void *src, size_t size, size_t first, size_t step,
		size_t nbytes)
{
	uint8_t pattern[16] = { 0 };

	for (size_t i = first; i < sizeof(pattern); i += step)
		pattern[i + size - 1] = 0x80;
	kn_ops_get()->xor16(dst, src, pattern, nbytes);
	return 0;
}

int kn_negate(void *dst, const void *src, size_t size, size_t n)
{
	if (size != 2 && size != 4 && size != 8)
		return -1;
	return flip(dst, src, size, 0, size, n * size);
}

int kn_conj(void *dst, const void *src, size_t size, size_t n)
{
	if (size != 2 && size != 4 && size != 8)
		return -1;
	return flip(dst, src, size, size, 2 * size, n * 2 * size);
}

size_t kn_mismatch(const void *a, const void *b, size_t nbytes)
{
	return kn_ops_get()->mismatch(a, b, nbytes);
}

/* A copy whose length the compiler knows is one or two moves. */
#define GATHER(bytes)                                                                  \
	for (size_t i = 0; i < nrun; i++, d += dst_pitch, s += src_pitch)              \
	memcpy(d, s, bytes)

void kn_gather(void *dst, ptrdiff_t dst_stride, const void *src, ptrdiff_t src_stride,
	       size_t size, size_t run, size_t nrun)
{
	const ptrdiff_t dst_pitch = dst_stride * (ptrdiff_t)size;
	const ptrdiff_t src_pitch = src_stride * (ptrdiff_t)size;
	const size_t nbytes = run * size;
	uint8_t *d = dst;
	const uint8_t *s = src;

	if (!nbytes || !nrun)
		return;
	if (dst_pitch == (ptrdiff_t)nbytes && src_pitch == (ptrdiff_t)nbytes) {
		memcpy(d, s, nbytes * nrun);
		return;
	}
	switch (nbytes) {
	case 1:
		GATHER(1);
		break;
	case 2:
		GATHER(2);
		break;
	case 4:
		GATHER(4);
		break;
	case 8:
		GATHER(8);
		break;
	case 16:
		GATHER(16);
		break;
	default:
		GATHER(nbytes);
	}
}
