/*
 * kn_copy.c -- a copy that passes by the caches.
 *
 * An ordinary store first reads the line it writes; a streaming store does not, so a copy to
 * memory that is not read soon moves two bytes for each instead of three.  memcpy() knows it, but
 * takes to it from some MiB on only, in one call.
 */
#include <string.h>

#include "kernels/include/kn.h"

#ifdef __SSE2__
#include <emmintrin.h>

#define LEAST ((size_t)64 << 10)
#define LINE 64u

static void stream_line(__m128i *to, const __m128i *from)
{
	const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
	const __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);

	_mm_stream_si128(to, a);
	_mm_stream_si128(to + 1, b);
	_mm_stream_si128(to + 2, c);
	_mm_stream_si128(to + 3, d);
}

void kn_copy_past(void *dst, const void *src, size_t n)
{
	const size_t skew = (size_t)(-(uintptr_t)dst % LINE);
	uint8_t *to = dst;
	const uint8_t *from = src;

	if (n < LEAST) {
		if (n)
			memcpy(dst, src, n);
		return;
	}
	memcpy(to, from, skew);
	for (to += skew, from += skew, n -= skew; n >= LINE; to += LINE, from += LINE, n -= LINE)
		stream_line((__m128i *)(void *)to, (const __m128i *)(const void *)from);
	/* what streams is seen by others in no order */
	_mm_sfence();
	memcpy(to, from, n);
}

#else

void kn_copy_past(void *dst, const void *src, size_t n)
{
	if (n)
		memcpy(dst, src, n);
}

#endif
