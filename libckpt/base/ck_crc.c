/*
 * ck_crc.c -- see ck_crc.h.
 *
 * A CRC is the remainder of a polynomial over two elements; B behind A moves A up by 8 times
 * B's length in bytes, which is a product with a power of x.  Bit 31 of a word is x^0.
 */
#include "libckpt/base/ck_crc.h"

#include <inttypes.h>

#include "libckpt/base/ck_err.h"

#define POLYNOMIAL UINT32_C(0xedb88320)
#define ONE UINT32_C(0x80000000)

static uint32_t times_x(uint32_t a)
{
	return a & 1 ? a >> 1 ^ POLYNOMIAL : a >> 1;
}

static uint32_t product(uint32_t a, uint32_t b)
{
	uint32_t sum = 0;

	for (uint32_t bit = ONE; bit; bit >>= 1) {
		if (a & bit)
			sum ^= b;
		b = times_x(b);
	}
	return sum;
}

/* x to the power of 8n. */
static uint32_t power(uint64_t n)
{
	uint32_t result = ONE, square = ONE >> 8;

	for (; n; n >>= 1) {
		if (n & 1)
			result = product(result, square);
		square = product(square, square);
	}
	return result;
}

uint32_t ck_crc_append(uint32_t a, uint32_t b, uint64_t b_bytes, struct ck_crc_shift *shift)
{
	if (!shift->by || shift->bytes != b_bytes)
		*shift = (struct ck_crc_shift){ b_bytes, power(b_bytes) };
	return product(shift->by, a) ^ b;
}

int ck_crc_order(const void *a, const void *b)
{
	const struct ck_crc_piece *x = a, *y = b;

	if (x->slot != y->slot)
		return x->slot < y->slot ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

int ck_crc_join(const struct ck_crc_piece *piece, uint64_t n, uint64_t bytes, uint32_t *crc_out,
		struct ckpt_err *err)
{
	struct ck_crc_shift shift = { 0 };
	uint64_t at = 0;
	uint32_t crc = 0;

	for (uint64_t i = 0; i < n && piece[i].off == at && piece[i].bytes <= bytes - at; i++) {
		crc = ck_crc_append(crc, piece[i].crc, piece[i].bytes, &shift);
		at += piece[i].bytes;
		if (i + 1 == n && at == bytes) {
			*crc_out = crc;
			return 0;
		}
	}
	if (!n && !bytes) {
		*crc_out = 0;
		return 0;
	}
	return ck_fail(err, CKPT_E_CORRUPT, NULL, CKPT_NO_OFFSET,
		       "the pieces of checksum %u cover %" PRIu64 " of %" PRIu64 " bytes",
		       n ? piece->slot : 0, at, bytes);
}
