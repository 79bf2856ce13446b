/*
 * arc_trailer.c -- the hash of a frame's bytes as stored, in a skippable frame behind it: of what
 * is compressed one bit in some hundreds decodes to the same bytes whether it is set or not.
 */
#include <zstd.h>

#include "formats/archive/ck_pack.h"

#define MAGIC 0x184D2A5Cu
#define LENGTH 8u

void ck_pack_trailer_put(uint8_t *to, const uint8_t *frame, size_t n)
{
	ck_put_le32(to, MAGIC);
	ck_put_le32(to + 4, LENGTH);
	ck_put_le64(to + 8, ck_hash64(frame, n));
}

const char *ck_pack_trailer_check(const uint8_t *frame, size_t bytes, size_t *n_out)
{
	const size_t n = ZSTD_findFrameCompressedSize(frame, bytes);
	const uint8_t *p;

	if (ZSTD_isError(n))
		return ZSTD_getErrorName(n);
	*n_out = n;
	if (n == bytes)
		return NULL;
	if (n > bytes || bytes - n != CK_PACK_TRAILER)
		return "it does not end where the index says";
	p = frame + n;
	if (ck_le32(p) != MAGIC || ck_le32(p + 4) != LENGTH)
		return "the bytes after it are not a trailer";
	return ck_le64(p + 8) == ck_hash64(frame, n) ? NULL :
	       "its bytes differ from those written";
}
