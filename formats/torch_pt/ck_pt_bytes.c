/* ck_pt_bytes.c -- the bytes of a small storage, plain or deflated. */
#include <inttypes.h>

#include "formats/torch_pt/ck_pt_priv.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/zip/ck_zip.h"

static int inflate(const struct ck_pt *pt, const struct ck_pt_storage *s, uint8_t *out,
		   struct ckpt_err *err)
{
	uint8_t *packed = ck_alloc(s->packed);
	int rc;

	if (!packed)
		return ck_fail_nomem(err, "a packed storage", s->packed);
	rc = ck_src_read(pt->src, s->off, packed, s->packed, err);
	if (!rc)
		rc = ck_zip_inflate(packed, s->packed, out, s->bytes, pt->where, err);
	ck_free(packed);
	return rc;
}

int ck_pt_storage_bytes(const struct ck_pt *pt, uint32_t storage, uint64_t max, uint8_t **out,
			struct ckpt_err *err)
{
	const struct ck_pt_storage *s = &pt->storage[storage];
	uint8_t *p;
	int rc;

	if (s->bytes > max || s->packed > max)
		return ck_fail(err, CKPT_E_LIMIT, pt->where, CKPT_NO_OFFSET,
			       "storage '%s' has %" PRIu64 " bytes, at most %" PRIu64 " are read",
			       s->key, s->bytes, max);
	p = ck_alloc(s->bytes);
	if (!p)
		return ck_fail_nomem(err, "a storage", s->bytes);
	if (s->deflated)
		rc = inflate(pt, s, p, err);
	else
		rc = ck_src_read(pt->src, s->off, p, s->bytes, err);
	if (rc)
		ck_free(p);
	else
		*out = p;
	return rc;
}
