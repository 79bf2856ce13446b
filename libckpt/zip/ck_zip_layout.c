/* ck_zip_layout.c -- see ck_zip_layout.h. */
#include "libckpt/zip/ck_zip_layout.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/zip/ck_zip_priv.h"

#define SIG_DESCRIPTOR 0x08074b50u
#define FLAG_UTF8 0x0800u
#define NAME_MOST 1000
#define ALIGN_MOST 32768u
#define MADE_BY 0x031eu		/* of the zip64 end, as miniz has it */
#define NEEDED 45u

static void put16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

static uint32_t saturated(uint64_t v)
{
	return v < SAT32 ? (uint32_t)v : SAT32;
}

/* The zip64 extra: sizes, then offset, each only if 32 bits do not hold it. */
static uint32_t extra64_bytes(const struct ck_zip_rec *rec)
{
	const uint32_t n = (rec->bytes >= SAT32 ? 16u : 0) + (rec->header >= SAT32 ? 8u : 0);

	return n ? 4 + n : 0;
}

static uint32_t descriptor_bytes(const struct ck_zip_rec *rec)
{
	if (!rec->bytes)
		return 0;
	return extra64_bytes(rec) ? 24 : 16;
}

static size_t name_bytes(const char *prefix, const struct ck_zip_rec *rec)
{
	return strlen(prefix) + 1 + strlen(rec->name);
}

static int check(const char *prefix, uint32_t align, const struct ck_zip_rec *rec, uint64_t n,
		 struct ckpt_err *err)
{
	if (!align || align > ALIGN_MOST || (align & (align - 1)))
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "records cannot be aligned to %u bytes", align);
	for (uint64_t i = 0; i < n; i++)
		if (!prefix[0] || !rec[i].name[0] || name_bytes(prefix, &rec[i]) > NAME_MOST)
			return ck_fail(err, CKPT_E_USAGE, prefix, CKPT_NO_OFFSET,
				       "record %" PRIu64 " has no name, or one of more than %d "
				       "bytes", i, NAME_MOST);
	return 0;
}

int ck_zip_layout(const char *prefix, uint32_t align, struct ck_zip_rec *rec, uint64_t n,
		  struct ck_zip_ends *ends_out, struct ckpt_err *err)
{
	struct ck_zip_ends ends = { .count = n };
	uint64_t at = 0, dir = 0;
	int rc = check(prefix, align, rec, n, err);

	for (uint64_t i = 0; !rc && i < n; i++) {
		struct ck_zip_rec *r = &rec[i];

		r->header = at;
		at += LOCAL_BYTES + name_bytes(prefix, r) + extra64_bytes(r) + 4;
		r->pad = (uint32_t)((align - at % align) % align);
		r->data = at + r->pad;
		if (r->bytes > INT64_MAX || r->data > INT64_MAX ||
		    r->data + r->bytes > (uint64_t)INT64_MAX - 24)
			rc = ck_fail(err, CKPT_E_LIMIT, prefix, CKPT_NO_OFFSET,
				     "the archive would exceed 2^63 bytes");
		r->end = at = r->data + r->bytes + descriptor_bytes(r);
	}
	ends.dir = at;
	for (uint64_t i = 0; !rc && i < n; i++) {
		rec[i].central = at + dir;
		dir += CENTRAL_BYTES + name_bytes(prefix, &rec[i]) + extra64_bytes(&rec[i]);
		if (dir >= SAT32)
			rc = ck_fail(err, CKPT_E_LIMIT, prefix, CKPT_NO_OFFSET,
				     "the directory of %" PRIu64 " records would exceed 4 GiB", n);
	}
	if (rc)
		return rc;
	ends.dir_bytes = dir;
	ends.bytes = at + dir + END64_BYTES + LOCATOR_BYTES + END_BYTES;
	*ends_out = ends;
	return 0;
}

static int put_name(struct ck_buf *buf, const char *prefix, const struct ck_zip_rec *rec,
		    struct ckpt_err *err)
{
	int rc = ck_buf_adds(buf, prefix, err);

	if (!rc)
		rc = ck_buf_add(buf, "/", 1, err);
	return rc ? rc : ck_buf_adds(buf, rec->name, err);
}

/* 'packed' is 0 in a local header, where torch does not know it yet. */
static int put_extra64(struct ck_buf *buf, const struct ck_zip_rec *rec, uint64_t packed,
		       struct ckpt_err *err)
{
	const uint32_t n = extra64_bytes(rec);
	uint8_t p[28], *at = p + 4;

	if (!n)
		return 0;
	put16(p, 1);
	put16(p + 2, n - 4);
	if (rec->bytes >= SAT32) {
		ck_put_le64(at, rec->bytes);
		ck_put_le64(at + 8, packed);
		at += 16;
	}
	if (rec->header >= SAT32)
		ck_put_le64(at, rec->header);
	return ck_buf_add(buf, p, n, err);
}

static int put_padding(struct ck_buf *buf, uint32_t pad, struct ckpt_err *err)
{
	uint8_t p[64] = { 'F', 'B' };
	int rc;

	put16(p + 2, pad);
	rc = ck_buf_add(buf, p, 4, err);
	memset(p, 'Z', sizeof(p));
	while (!rc && pad) {
		const uint32_t n = pad < sizeof(p) ? pad : (uint32_t)sizeof(p);

		rc = ck_buf_add(buf, p, n, err);
		pad -= n;
	}
	return rc;
}

static uint32_t flags_of(const struct ck_zip_rec *rec)
{
	return FLAG_UTF8 | (rec->bytes ? FLAG_DESCRIPTOR : 0);
}

int ck_zip_put_local(struct ck_buf *buf, const char *prefix, const struct ck_zip_rec *rec,
		     struct ckpt_err *err)
{
	uint8_t p[LOCAL_BYTES] = { 0 };
	int rc;

	ck_put_le32(p, SIG_LOCAL);
	put16(p + 6, flags_of(rec));
	put16(p + 26, (uint32_t)name_bytes(prefix, rec));
	put16(p + 28, extra64_bytes(rec) + 4 + rec->pad);
	rc = ck_buf_add(buf, p, sizeof(p), err);
	if (!rc)
		rc = put_name(buf, prefix, rec, err);
	if (!rc)
		rc = put_extra64(buf, rec, 0, err);
	return rc ? rc : put_padding(buf, rec->pad, err);
}

int ck_zip_put_descriptor(struct ck_buf *buf, const struct ck_zip_rec *rec, struct ckpt_err *err)
{
	const uint32_t n = descriptor_bytes(rec);
	uint8_t p[24];

	ck_put_le32(p, SIG_DESCRIPTOR);
	ck_put_le32(p + CK_ZIP_CRC_IN_DESCRIPTOR, rec->crc);
	if (n == 24) {
		ck_put_le64(p + 8, rec->bytes);
		ck_put_le64(p + 16, rec->bytes);
	} else {
		ck_put_le32(p + 8, (uint32_t)rec->bytes);
		ck_put_le32(p + 12, (uint32_t)rec->bytes);
	}
	return n ? ck_buf_add(buf, p, n, err) : 0;
}

int ck_zip_put_central(struct ck_buf *buf, const char *prefix, const struct ck_zip_rec *rec,
		       struct ckpt_err *err)
{
	uint8_t p[CENTRAL_BYTES] = { 0 };
	int rc;

	ck_put_le32(p, SIG_CENTRAL);
	put16(p + 8, flags_of(rec));
	ck_put_le32(p + CK_ZIP_CRC_IN_CENTRAL, rec->crc);
	ck_put_le32(p + 20, saturated(rec->bytes));
	ck_put_le32(p + 24, saturated(rec->bytes));
	put16(p + 28, (uint32_t)name_bytes(prefix, rec));
	put16(p + 30, extra64_bytes(rec));
	ck_put_le32(p + 42, saturated(rec->header));
	rc = ck_buf_add(buf, p, sizeof(p), err);
	if (!rc)
		rc = put_name(buf, prefix, rec, err);
	return rc ? rc : put_extra64(buf, rec, rec->bytes, err);
}

int ck_zip_put_end(struct ck_buf *buf, const struct ck_zip_ends *ends, struct ckpt_err *err)
{
	uint8_t p[END64_BYTES + LOCATOR_BYTES + END_BYTES] = { 0 };
	uint8_t *locator = p + END64_BYTES, *end = locator + LOCATOR_BYTES;
	const uint32_t count = ends->count < SAT16 ? (uint32_t)ends->count : SAT16;

	ck_put_le32(p, SIG_END64);
	ck_put_le64(p + 4, END64_BYTES - 12);
	put16(p + 12, MADE_BY);
	put16(p + 14, NEEDED);
	ck_put_le64(p + 24, ends->count);
	ck_put_le64(p + 32, ends->count);
	ck_put_le64(p + 40, ends->dir_bytes);
	ck_put_le64(p + 48, ends->dir);
	ck_put_le32(locator, SIG_LOCATOR);
	ck_put_le64(locator + 8, ends->dir + ends->dir_bytes);
	ck_put_le32(locator + 16, 1);
	ck_put_le32(end, SIG_END);
	put16(end + 8, count);
	put16(end + 10, count);
	ck_put_le32(end + 12, saturated(ends->dir_bytes));
	ck_put_le32(end + 16, saturated(ends->dir));
	return ck_buf_add(buf, p, sizeof(p), err);
}
