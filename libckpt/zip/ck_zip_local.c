/* ck_zip_local.c -- local headers, which say where data begins, and whole members. */
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/zip/ck_zip_priv.h"

/*
 * torch leaves CRC and sizes of the local header 0 and puts them into a descriptor;
 * other tools fill them in.  What is there must agree with the directory.
 */
static bool local_agrees(const struct ck_zip_entry *e, const uint8_t *b)
{
	const uint32_t crc = ck_le32(b + 14), packed = ck_le32(b + 18), bytes = ck_le32(b + 22);

	if (ck_le16(b + 8) != e->method)
		return false;
	if (crc && e->crc && crc != e->crc)
		return false;
	if (packed && packed != SAT32 && packed != e->packed)
		return false;
	return !bytes || bytes == SAT32 || bytes == e->bytes;
}

static bool extra_fits(const uint8_t *p, uint32_t n)
{
	while (n >= 4) {
		const uint32_t len = 4u + ck_le16(p + 2);

		if (len > n)
			return false;
		p += len;
		n -= len;
	}
	return true;
}

/* The local header at 'b', of which 'n' bytes were read. */
static int local_check(const struct ck_zip *zip, const struct ck_zip_entry *e, const uint8_t *b,
		       uint64_t n, uint64_t *size_out, struct ckpt_err *err)
{
	const uint64_t limit = zip->limit[e - zip->entry];
	const uint32_t name_len = ck_le16(b + 26), extra_len = ck_le16(b + 28);
	const uint64_t size = LOCAL_BYTES + (uint64_t)name_len + extra_len;
	const char *where = ck_src_name(zip->src);
	int rc;

	if (ck_le32(b) != SIG_LOCAL)
		return ck_fail(err, CKPT_E_CORRUPT, where, e->header,
			       "overwritten inside: the zip entry '%s' has lost its header",
			       e->name);
	rc = ck_zip_flags_check(zip, ck_le16(b + 6), e->header, err);
	if (rc)
		return rc;
	if (name_len != e->name_len || memcmp(b + LOCAL_BYTES, e->name, name_len))
		return ck_fail(err, CKPT_E_CORRUPT, where, e->header,
			       "the local header has another name than the directory ('%s')",
			       e->name);
	if (!local_agrees(e, b))
		return ck_fail(err, CKPT_E_CORRUPT, where, e->header,
			       "local header and directory disagree about '%s'", e->name);
	if (size > limit - e->header || e->packed > limit - e->header - size)
		return ck_fail(err, CKPT_E_CORRUPT, where, e->header,
			       "'%s', with a header of %" PRIu64 " bytes, overlaps the entry "
			       "after it", e->name, size);
	if (size <= n && !extra_fits(b + LOCAL_BYTES + name_len, extra_len))
		return ck_fail(err, CKPT_E_CORRUPT, where, e->header,
			       "an extra field of '%s' extends past the end of its area", e->name);
	*size_out = size;
	return 0;
}

int ck_zip_data_offset(const struct ck_zip *zip, const struct ck_zip_entry *entry,
		       uint64_t *off_out, struct ckpt_err *err)
{
	const uint64_t room = zip->limit[entry - zip->entry] - entry->header;
	uint64_t n = ck_min_u64(room, LOCAL_BYTES + entry->name_len + 256);
	uint64_t size = 0;
	uint8_t small[1024], *b = small;
	int rc;

	if (n > sizeof(small))
		b = ck_alloc((size_t)n);
	if (!b)
		return ck_fail_nomem(err, "a local header", n);
	rc = ck_src_read(zip->src, entry->header, b, (size_t)n, err);
	if (!rc)
		rc = local_check(zip, entry, b, n, &size, err);
	if (!rc)
		*off_out = entry->header + size;
	if (b != small)
		ck_free(b);
	return rc;
}

/* ---- members ---- */

static int inflate_member(const struct ck_zip *zip, const struct ck_zip_entry *e, uint64_t off,
			  uint8_t *out, struct ckpt_err *err)
{
	uint8_t *packed = ck_alloc((size_t)e->packed);
	int rc;

	if (!packed)
		return ck_fail_nomem(err, "a packed member", e->packed);
	rc = ck_src_read(zip->src, off, packed, (size_t)e->packed, err);
	if (!rc)
		rc = ck_zip_inflate(packed, e->packed, out, e->bytes, e->name, err);
	ck_free(packed);
	return rc;
}

static int too_big(const struct ck_zip *zip, const struct ck_zip_entry *entry, uint64_t max_bytes,
		   const char *limit, struct ckpt_err *err)
{
	uint64_t most;

	if (entry->method && (ck_mul_over(entry->packed, zip->inflate_ratio, &most) ||
			      entry->bytes > most))
		return ck_fail_limit(err, entry->name, CKPT_NO_OFFSET, "inflate_ratio",
				     zip->inflate_ratio, "%" PRIu64 " bytes are compressed to "
					     "only %" PRIu64,
				     entry->bytes, entry->packed);
	if (limit)
		return ck_fail_limit(err, entry->name, CKPT_NO_OFFSET, limit, max_bytes,
				     "the member has %" PRIu64 " bytes", entry->bytes);
	return ck_fail(err, CKPT_E_LIMIT, entry->name, CKPT_NO_OFFSET,
		       "the member has %" PRIu64 " bytes, but at most %" PRIu64 " are possible "
		       "here", entry->bytes, max_bytes);
}

int ck_zip_read(const struct ck_zip *zip, const struct ck_zip_entry *entry,
		uint64_t max_bytes, uint8_t **data_out, struct ckpt_err *err)
{
	return ck_zip_read_within(zip, entry, max_bytes, NULL, data_out, err);
}

int ck_zip_read_within(const struct ck_zip *zip, const struct ck_zip_entry *entry,
		       uint64_t max_bytes, const char *limit, uint8_t **data_out,
		       struct ckpt_err *err)
{
	uint64_t off, most;
	uint8_t *p = NULL;
	int rc;

	if (entry->bytes > max_bytes || (entry->method &&
	    (ck_mul_over(entry->packed, zip->inflate_ratio, &most) || entry->bytes > most)))
		return too_big(zip, entry, max_bytes, limit, err);
	rc = ck_zip_data_offset(zip, entry, &off, err);
	if (rc)
		return rc;
	p = ck_alloc((size_t)entry->bytes + 1);
	if (!p)
		return ck_fail_nomem(err, entry->name, entry->bytes);
	p[entry->bytes] = 0;
	rc = entry->method ? inflate_member(zip, entry, off, p, err) :
			     ck_src_read(zip->src, off, p, (size_t)entry->bytes, err);
	if (!rc && entry->crc && ck_zip_crc32(0, p, (size_t)entry->bytes) != entry->crc)
		rc = ck_fail(err, CKPT_E_CORRUPT, entry->name, CKPT_NO_OFFSET,
			     "the bytes do not match their CRC-32: the file is damaged");
	if (rc)
		ck_free(p);
	else
		*data_out = p;
	return rc;
}
