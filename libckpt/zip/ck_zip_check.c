/* ck_zip_check.c -- see ck_zip_check.h. */
#include "libckpt/zip/ck_zip_check.h"

#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/zip/ck_zip_priv.h"

#define SIG_DESCRIPTOR 0x08074b50u
#define ID_FILLER 0x4246u	/* "FB": what torch aligns with */
#define FEW 3			/* entries of which one is no exception */

/* ------------------------------------------------------------------- directory */

/* Two bytes of a directory entry that all entries of one archive have alike. */
static const struct {
	uint8_t at;
	const char *what;
} alike[] = {
	{ 4, "the version in the directory" },
	{ 34, "the volume" },
	{ 36, "the internal attributes" },
	{ 38, "the external attributes" },
	{ 40, "the external attributes" },
};

static const uint8_t *next_entry(const uint8_t *p)
{
	return p + CENTRAL_BYTES + ck_le16(p + 28) + ck_le16(p + 30) + ck_le16(p + 32);
}

/* All entries but one have one value: the one is odd. */
static void look_for_exception(const struct ck_zip *zip, size_t field, ck_zip_odd_fn odd,
			       void *arg)
{
	const uint8_t *p = zip->dir, *lone = NULL;
	const uint16_t a = ck_le16(p + alike[field].at);
	const uint16_t b = ck_le16(next_entry(p) + alike[field].at);
	const uint16_t c = ck_le16(next_entry(next_entry(p)) + alike[field].at);
	const uint16_t usual = a == b || a == c ? a : b;
	uint64_t exceptions = 0;

	for (uint64_t i = 0; i < zip->count; i++, p = next_entry(p))
		if (ck_le16(p + alike[field].at) != usual) {
			lone = p;
			exceptions++;
		}
	if (exceptions == 1)
		odd(arg, zip->dir_off + (uint64_t)(lone - zip->dir) + alike[field].at,
		    alike[field].what);
}

/* The bytes of the end records that no size or offset is made of. */
static int check_end(const struct ck_zip *zip, ck_zip_odd_fn odd, void *arg, struct ckpt_err *err)
{
	const uint64_t at = zip->dir_off + zip->dir_bytes;
	const uint64_t n = zip->end - at;
	uint8_t b[END64_BYTES + LOCATOR_BYTES];
	int rc;

	if (n < sizeof(b) + END_BYTES)
		return 0;
	rc = ck_src_read(zip->src, at, b, sizeof(b), err);
	if (rc)
		return rc;
	if (ck_le32(b) != SIG_END64 || ck_le32(b + END64_BYTES) != SIG_LOCATOR) {
		odd(arg, at, "the zip64 end record does not follow the directory");
		return 0;
	}
	if (ck_le64(b + 4) != END64_BYTES - 12)
		odd(arg, at + 4, "the size of the zip64 end record");
	if (ck_le16(b + 12) != 0x031e)
		odd(arg, at + 12, "the version in the zip64 end record");
	if (ck_le16(b + 14) != 45)
		odd(arg, at + 14, "the version needed in the zip64 end record");
	return 0;
}

int ck_zip_check_directory(const struct ck_zip *zip, ck_zip_odd_fn odd, void *arg,
			   struct ckpt_err *err)
{
	for (size_t i = 0; zip->count > FEW && i < CK_ARRAY_LEN(alike); i++)
		look_for_exception(zip, i, odd, arg);
	return check_end(zip, odd, arg, err);
}

/* ----------------------------------------------------------------- local headers */

/* Version, flags, time and date stand in both headers. */
static void check_twins(const struct ck_zip_entry *e, const uint8_t *b, const uint8_t *dir,
			ck_zip_odd_fn odd, void *arg)
{
	static const struct {
		uint8_t local, central;
		const char *what;
	} twin[] = {
		{ 4, 6, "the version needed in a local header" },
		{ 6, 8, "the flags in a local header" },
		{ 10, 12, "the time in a local header" },
		{ 12, 14, "the date in a local header" },
	};
	const uint32_t crc = ck_le32(b + 14);

	for (size_t i = 0; i < CK_ARRAY_LEN(twin); i++)
		if (ck_le16(b + twin[i].local) != ck_le16(dir + twin[i].central))
			odd(arg, e->header + twin[i].local, twin[i].what);
	if (crc && crc != e->crc)
		odd(arg, e->header + 14, "the checksum in a local header");
}

static bool is_filler(const uint8_t *p, uint32_t n)
{
	while (n && *p == 'Z') {
		p++;
		n--;
	}
	return !n;
}

static void check_extra(const uint8_t *p, uint32_t n, uint64_t at, ck_zip_odd_fn odd, void *arg)
{
	while (n >= 4) {
		const uint32_t id = ck_le16(p), len = ck_le16(p + 2);

		if (len > n - 4)
			return;	/* ck_zip_data_offset() refuses it */
		if (id == ID_FILLER && !is_filler(p + 4, len))
			odd(arg, at, "the filler of a local header");
		if (id != ID_FILLER && is_filler(p + 4, len))
			odd(arg, at, "the name of a filler in a local header");
		p += 4 + len;
		at += 4 + len;
		n -= 4 + len;
	}
	if (n)
		odd(arg, at, "bytes after the extra fields of a local header");
}

/* With or without signature, sizes of 32 or 64 bits. */
static bool descriptor_fits(const struct ck_zip_entry *e, const uint8_t *p, uint64_t n)
{
	if (n >= 4 && ck_le32(p) == SIG_DESCRIPTOR) {
		p += 4;
		n -= 4;
	}
	if (n < 12 || ck_le32(p) != e->crc)
		return false;
	if (n >= 20 && ck_le64(p + 4) == e->packed && ck_le64(p + 12) == e->bytes)
		return true;
	return ck_le32(p + 4) == (uint32_t)e->packed && ck_le32(p + 8) == (uint32_t)e->bytes;
}

static int check_descriptor(const struct ck_zip *zip, const struct ck_zip_entry *e, uint64_t at,
			    ck_zip_odd_fn odd, void *arg, struct ckpt_err *err)
{
	const uint64_t room = zip->limit[e - zip->entry] - at;
	uint8_t b[24];
	const size_t n = (size_t)ck_min_u64(room, sizeof(b));
	const int rc = ck_src_read(zip->src, at, b, n, err);

	if (!rc && !descriptor_fits(e, b, n))
		odd(arg, at, "the descriptor after the data");
	return rc;
}

/* The whole local header at 'b', of 'n' bytes. */
static void check_local(const struct ck_zip *zip, const struct ck_zip_entry *e, const uint8_t *b,
			ck_zip_odd_fn odd, void *arg)
{
	const uint32_t name = ck_le16(b + 26), extra = ck_le16(b + 28);

	check_twins(e, b, zip->dir + (e->central - zip->dir_off), odd, arg);
	check_extra(b + LOCAL_BYTES + name, extra, e->header + LOCAL_BYTES + name, odd, arg);
}

int ck_zip_check_entry(const struct ck_zip *zip, const struct ck_zip_entry *e,
		       uint64_t *data_out, ck_zip_odd_fn odd, void *arg, struct ckpt_err *err)
{
	uint64_t data = 0;
	uint8_t *b;
	int rc = ck_zip_data_offset(zip, e, &data, err);

	if (rc)
		return rc;
	b = ck_alloc((size_t)(data - e->header));
	if (!b)
		return ck_fail_nomem(err, "a local header", data - e->header);
	rc = ck_src_read(zip->src, e->header, b, (size_t)(data - e->header), err);
	if (!rc) {
		check_local(zip, e, b, odd, arg);
		if (!e->bytes && e->crc)
			odd(arg, e->central + 16, "the checksum of an empty entry");
		if (ck_le16(b + 6) & FLAG_DESCRIPTOR)
			rc = check_descriptor(zip, e, data + e->packed, odd, arg, err);
	}
	ck_free(b);
	if (!rc)
		*data_out = data;
	return rc;
}

/* ------------------------------------------------------------------- torch's sum */

bool ck_zip_check_sum(const struct ck_zip *zip, const struct ck_zip_entry *end,
		      uint64_t *sum_out)
{
	uint64_t sum = 0, at = 0;

	for (uint64_t i = 0; i < zip->count && &zip->entry[i] != end; i++) {
		const struct ck_zip_entry *e = &zip->entry[i];
		const uint8_t *dir = zip->dir + (e->central - zip->dir_off);
		const bool described = ck_le16(dir + 8) & FLAG_DESCRIPTOR;

		if (e->header < at || (e->bytes && !described))
			return false;
		at = e->header;
		if (described)
			sum ^= (uint64_t)e->crc + 0x9e3779b9u + (sum << 6) + (sum >> 2);
	}
	*sum_out = sum;
	return true;
}
