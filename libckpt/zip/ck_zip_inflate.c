/* ck_zip_inflate.c -- inflating whole members, by libdeflate. */
#include <inttypes.h>
#include <libdeflate.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/zip/ck_zip.h"

int ck_zip_inflate(const void *in, uint64_t packed, void *out, uint64_t bytes,
		   const char *where, struct ckpt_err *err)
{
	struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
	enum libdeflate_result res;
	size_t used = 0;

	if (!d)
		return ck_fail_nomem(err, "inflating", 0);
	/* No place for the count of bytes made: fewer than 'bytes' is then an error. */
	res = libdeflate_deflate_decompress_ex(d, in, (size_t)packed, out, (size_t)bytes, &used,
					       NULL);
	libdeflate_free_decompressor(d);
	if (res != LIBDEFLATE_SUCCESS)
		return ck_fail(err, CKPT_E_CORRUPT, where, CKPT_NO_OFFSET,
			       "the deflate stream of %" PRIu64
			       " bytes is damaged or does not give %" PRIu64 " bytes",
			       packed, bytes);
	if (used != packed)
		return ck_fail(err, CKPT_E_CORRUPT, where, CKPT_NO_OFFSET,
			       "the deflate stream ends after %zu of %" PRIu64 " bytes", used,
			       packed);
	return 0;
}
