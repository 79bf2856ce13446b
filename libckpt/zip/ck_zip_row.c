/*
 * ck_zip_row.c -- see ck_zip_row.h: archives one after the other, found from the last to the first.
 */
#include "libckpt/zip/ck_zip_row.h"

#include "libckpt/base/ck_cur.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/zip/ck_zip_priv.h"

/* Where the directory begins that the records before 'end' name: in the file, in the archive. */
struct dir {
	uint64_t at, off;
};

/* The zip64 record, where there is one, is directly before its locator: torch writes it there. */
static bool dir_of_end64(struct ck_src *src, uint64_t locator, struct dir *dir,
			 struct ckpt_err *err)
{
	uint8_t b[END64_BYTES];
	uint64_t bytes;

	if (locator < END64_BYTES || ck_src_read(src, locator - END64_BYTES, b, sizeof(b), err) ||
	    ck_le32(b) != SIG_END64)
		return false;
	bytes = ck_le64(b + 40);
	if (bytes > locator - END64_BYTES)
		return false;
	*dir = (struct dir){ locator - END64_BYTES - bytes, ck_le64(b + 48) };
	return true;
}

static bool dir_before(struct ck_src *src, uint64_t end, struct dir *dir, struct ckpt_err *err)
{
	uint8_t b[END_BYTES], loc[LOCATOR_BYTES];
	uint64_t at, bytes;

	if (end < END_BYTES || ck_src_read(src, end - END_BYTES, b, sizeof(b), err) ||
	    ck_le32(b) != SIG_END || ck_le16(b + 20))
		return false;
	at = end - END_BYTES;
	bytes = ck_le32(b + 12);
	if (at >= LOCATOR_BYTES) {
		if (ck_src_read(src, at - LOCATOR_BYTES, loc, sizeof(loc), err))
			return false;
		if (ck_le32(loc) == SIG_LOCATOR)
			return dir_of_end64(src, at - LOCATOR_BYTES, dir, err);
	}
	if (bytes > at)
		return false;
	*dir = (struct dir){ at - bytes, ck_le32(b + 16) };
	return true;
}

static bool has_sig(struct ck_src *src, uint64_t at, uint32_t sig, struct ckpt_err *err)
{
	uint8_t b[4];

	return !ck_src_read(src, at, b, sizeof(b), err) && ck_le32(b) == sig;
}

/* The archive that ends at 'end', without a comment. */
static bool begin_of(struct ck_src *src, uint64_t end, uint64_t *begin_out, struct ckpt_err *err)
{
	struct dir dir;

	if (!dir_before(src, end, &dir, err) || dir.off > dir.at || !dir.off ||
	    !has_sig(src, dir.at, SIG_CENTRAL, err) ||
	    !has_sig(src, dir.at - dir.off, SIG_LOCAL, err))
		return false;
	*begin_out = dir.at - dir.off;
	return true;
}

int ck_zip_row(struct ck_src *src, uint64_t limit, uint64_t **begin_out, uint64_t *n_out,
	       struct ckpt_err *err)
{
	struct ckpt_err why = { 0 };
	uint64_t *begin = NULL, n = 0, cap = 0, end = ck_src_size(src);
	int rc = 0;

	while (!rc && end && begin_of(src, end, &end, &why)) {
		if (n == limit)
			rc = ck_fail_limit(err, ck_src_name(src), end, "zip_entries", limit,
					   "the file has too many archives, one after the other");
		if (!rc)
			rc = ck_grow(&begin, &cap, n + 1, sizeof(*begin), err);
		if (!rc)
			begin[n++] = end;
	}
	if (!rc && why.code && why.code != CKPT_E_TRUNCATED) {
		if (err && !err->code)
			*err = why;
		rc = -(int)why.code;
	}
	if (rc || end || n < 2) {
		ck_free(begin);
		begin = NULL;
		n = 0;
	}
	for (uint64_t i = 0; i < n / 2; i++) {
		const uint64_t at = begin[i];

		begin[i] = begin[n - 1 - i];
		begin[n - 1 - i] = at;
	}
	if (!rc) {
		*begin_out = begin;
		*n_out = n;
	}
	return rc;
}

/* By its name: any other file of two archives is read in two ways by two readers. */
bool ck_zip_may_be_row(const struct ck_src *src)
{
	return ck_ends_with(ck_src_name(src), ".distcp");
}

int ck_zip_each(struct ck_src *src, const struct ckpt_limits *limits, ck_zip_each_fn fn,
		void *arg, struct ckpt_err *err)
{
	uint64_t *begin = NULL, n = 0;
	int rc = 0;

	if (ck_zip_may_be_row(src))
		rc = ck_zip_row(src, limits->zip_entries, &begin, &n, err);
	for (uint64_t i = 0; !rc && i < (n ? n : 1); i++) {
		const uint64_t from = n ? begin[i] : 0;
		const uint64_t to = n && i + 1 < n ? begin[i + 1] : ck_src_size(src);
		struct ck_zip *zip;

		rc = ck_zip_open_at(src, from, to, limits, &zip, err);
		if (rc)
			break;
		rc = fn(arg, zip, err);
		ck_zip_close(zip);
	}
	ck_free(begin);
	return rc;
}

static int read_part(void *arg, uint64_t off, void *buf, size_t n, struct ckpt_err *err)
{
	const struct ck_zip_part *part = arg;

	return ck_src_read(part->src, part->begin + off, buf, n, err);
}

int ck_zip_part(struct ck_zip_part *part, struct ck_src **src_out, struct ckpt_err *err)
{
	return ck_src_made(read_part, part, part->end - part->begin, ck_src_name(part->src),
			   src_out, err);
}
