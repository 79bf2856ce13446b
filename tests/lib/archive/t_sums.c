/*
 * See t_sums.h.  Members are looked for by their signatures, since a changed length or offset need
 * not be right: a local header, its data, its descriptor; then the directory, in the same order.
 */
#define _GNU_SOURCE
#include "tests/lib/archive/t_sums.h"

#include <string.h>

#include "libckpt/base/ck_base.h"
#include "libckpt/zip/ck_zip.h"
#include "tests/lib/archive/t_zip.h"

#define MOST 64u
#define LOCAL 0x04034b50u
#define DESCRIPTOR 0x08074b50u
#define CENTRAL 0x02014b50u
#define END 0x06054b50u

static uint8_t *next(uint8_t *p, const uint8_t *end, uint32_t sign)
{
	uint8_t bytes[4];

	t_put32(bytes, sign);
	return p < end ? memmem(p, (size_t)(end - p), bytes, sizeof(bytes)) : NULL;
}

/* The sum of the member that begins at P, where its header and its descriptor have it. */
static uint32_t set_member(uint8_t *p, const uint8_t *end)
{
	const size_t left = (size_t)(end - p);
	const size_t head = left < 30 ? left : 30u + ck_le16(p + 26) + ck_le16(p + 28);
	const bool later = left > 8 && (p[6] & 8);
	size_t n;
	uint32_t sum;
	uint8_t *after;

	if (head >= left)
		return 0;
	after = next(p + head, end, DESCRIPTOR);
	n = later && after ? (size_t)(after - p) - head : ck_le32(p + 18);
	if (n > left - head)
		return 0;
	sum = ck_zip_crc32(0, p + head, n);
	if (!later)
		t_put32(p + 14, sum);
	else if (after && end - after >= 8)
		t_put32(after + 4, sum);
	return sum;
}

void t_sums_set(uint8_t *p, size_t n)
{
	uint8_t *const end = p + n;
	uint32_t sum[MOST];
	size_t count = 0, listed = 0;

	while (end - p >= 22) {
		const uint32_t sign = ck_le32(p);

		if (sign == LOCAL && count < MOST) {
			sum[count++] = set_member(p, end);
		} else if (sign == CENTRAL && listed < count) {
			t_put32(p + 16, sum[listed++]);
		} else if (sign == END) {
			count = listed = 0;
		}
		p++;
	}
}
