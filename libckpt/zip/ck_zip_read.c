/*
 * ck_zip_read.c -- see ck_zip.h: end record and directory.
 *
 * Which end record.  All places in the last 65,557 bytes that look like one are tried
 * in full: its directory must lie before it and begin with the right signature.  Tensor
 * bytes that look like an end record by chance fail that.  If two places pass, readers
 * could see different archives in one file, and it is refused.  An archive of a .distcp file is
 * cut out by '.metadata', and every reader of it looks from its last byte: an end record there,
 * without a comment, is the one.  Large folders have 100,000 of them, so the search matters.
 *
 * Overlap.  Entries are sorted by their local header.  What belongs to an entry ends where
 * the next header, or the directory, begins; 'limit' keeps that place, so that the
 * length fields of the local header can be checked when they are read.
 */
#include "libckpt/zip/ck_zip_priv.h"
#include "libckpt/zip/ck_zip_row.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_cur.h"
#include "libckpt/base/ck_sys.h"

/* What an end record says. */
struct end {
	uint64_t at;		/* the record itself */
	uint64_t dir_end;	/* where the end records begin */
	uint64_t count, dir_bytes, dir_off;
	unsigned notes;
};

static int fail(const struct ck_zip *zip, struct ckpt_err *err, uint64_t off, const char *what)
{
	return ck_fail(err, CKPT_E_CORRUPT, ck_src_name(zip->src), off, "%s", what);
}

/* ---- end records ---- */

static int end64_read(const struct ck_zip *zip, uint64_t locator, const uint8_t *loc,
		      struct end *end, struct ckpt_err *err)
{
	const uint64_t off = ck_le64(loc + 8), at = zip->begin + off;
	uint8_t b[END64_BYTES];
	int rc;

	if (ck_le32(loc + 4) || ck_le32(loc + 16) > 1)
		return fail(zip, err, locator, "the zip64 locator refers to more than one disk");
	if (off > locator - zip->begin || locator - at < END64_BYTES)
		return fail(zip, err, locator,
			    "the zip64 locator points past the end of the directory");
	rc = ck_src_read(zip->src, at, b, sizeof(b), err);
	if (rc)
		return rc;
	if (ck_le32(b) != SIG_END64 || ck_le64(b + 4) < END64_BYTES - 12)
		return fail(zip, err, at, "the zip64 end record is missing where the locator "
			    "points");
	if (ck_le32(b + 16) || ck_le32(b + 20) || ck_le64(b + 24) != ck_le64(b + 32))
		return fail(zip, err, at, "the zip64 end record refers to more than one disk");
	if ((end->count != SAT16 && end->count != ck_le64(b + 32)) ||
	    (end->dir_bytes != SAT32 && end->dir_bytes != ck_le64(b + 40)) ||
	    (end->dir_off != SAT32 && end->dir_off != ck_le64(b + 48)))
		return fail(zip, err, at, "the end record and the zip64 end record disagree");
	end->count = ck_le64(b + 32);
	end->dir_bytes = ck_le64(b + 40);
	end->dir_off = ck_le64(b + 48);
	end->dir_end = at;
	return 0;
}

/* The end record at 'at', whose bytes are 'b'; everything it says is checked. */
static int end_parse(const struct ck_zip *zip, uint64_t at, const uint8_t *b, struct end *out,
		     struct ckpt_err *err)
{
	const uint64_t behind = zip->end - at - END_BYTES;
	const uint16_t comment = ck_le16(b + 20);
	struct end end = { .at = at, .dir_end = at };
	uint8_t loc[LOCATOR_BYTES], sig[4];
	int rc;

	if (ck_le16(b + 4) || ck_le16(b + 6) || ck_le16(b + 8) != ck_le16(b + 10))
		return fail(zip, err, at, "the archive has several volumes, or its end record "
			    "is damaged");
	if (comment > behind)
		return fail(zip, err, at, "the archive comment is longer than the file");
	end.notes = (comment < behind ? CK_ZIP_NOTE_JUNK : 0) |
		    (comment ? CK_ZIP_NOTE_COMMENT : 0);
	end.count = ck_le16(b + 10);
	end.dir_bytes = ck_le32(b + 12);
	end.dir_off = ck_le32(b + 16);
	if (at - zip->begin >= LOCATOR_BYTES) {
		rc = ck_src_read(zip->src, at - LOCATOR_BYTES, loc, sizeof(loc), err);
		if (!rc && ck_le32(loc) == SIG_LOCATOR)
			rc = end64_read(zip, at - LOCATOR_BYTES, loc, &end, err);
		if (rc)
			return rc;
	}
	if (end.dir_off > end.dir_end - zip->begin ||
	    end.dir_bytes > end.dir_end - zip->begin - end.dir_off)
		return ck_fail(err, CKPT_E_CORRUPT, ck_src_name(zip->src), at,
			       "the directory (%" PRIu64 " bytes at %" PRIu64 ") extends past "
			       "its end record at %" PRIu64,
			       end.dir_bytes, end.dir_off, end.dir_end);
	if (end.count > end.dir_bytes / CENTRAL_BYTES)
		return ck_fail(err, CKPT_E_CORRUPT, ck_src_name(zip->src), at,
			       "%" PRIu64 " entries do not fit into a directory of %" PRIu64 " "
			       "bytes", end.count, end.dir_bytes);
	end.dir_off += zip->begin;
	if (end.dir_bytes >= sizeof(sig)) {
		rc = ck_src_read(zip->src, end.dir_off, sig, sizeof(sig), err);
		if (rc)
			return rc;
		if (ck_le32(sig) != SIG_CENTRAL)
			return fail(zip, err, end.dir_off,
				    "the directory is missing where the end record points");
	}
	*out = end;
	return 0;
}

/* The end record that the last bytes of one of a row of archives are; false: look for it. */
static bool end_at_end(const struct ck_zip *zip, struct end *out)
{
	uint8_t b[END_BYTES];
	const uint64_t at = zip->end - END_BYTES;

	return ck_zip_may_be_row(zip->src) && zip->end - zip->begin >= END_BYTES &&
	       !ck_src_read(zip->src, at, b, sizeof(b), NULL) && ck_le32(b) == SIG_END &&
	       !ck_le16(b + 20) && !end_parse(zip, at, b, out, NULL);
}

static int end_search(const struct ck_zip *zip, struct end *out, struct ckpt_err *err)
{
	const uint64_t size = zip->end - zip->begin;
	const uint64_t n = ck_min_u64(size, END_SEARCH);
	struct ckpt_err first = { 0 };
	unsigned found = 0;
	uint8_t *tail;
	int rc;

	tail = ck_alloc((size_t)n);
	if (!tail)
		return ck_fail_nomem(err, "the end of an archive", n);
	rc = ck_src_read(zip->src, zip->end - n, tail, (size_t)n, err);
	for (uint64_t i = n < END_BYTES ? 0 : n - END_BYTES + 1; !rc && i > 0;) {
		const uint8_t *at = memrchr(tail, 'P', i);
		struct end end;

		i = at ? (uint64_t)(at - tail) : 0;
		if (!at || ck_le32(at) != SIG_END ||
		    end_parse(zip, zip->end - n + i, at, &end, &first))
			continue;
		if (found++)
			rc = fail(
				zip, err, end.at,
				"two end records, each with a directory of its own: readers would "
				"disagree about what this file holds");
		else
			*out = end;
	}
	if (!rc && !found && first.code) {
		if (err && !err->code)
			*err = first;
		rc = -(int)first.code;
	} else if (!rc && !found) {
		rc = ck_fail(err, CKPT_E_TRUNCATED, ck_src_name(zip->src), zip->end,
			     "the archive has no end record: the file was cut short");
	}
	ck_free(tail);
	return rc;
}

static int end_find(const struct ck_zip *zip, struct end *out, struct ckpt_err *err)
{
	return end_at_end(zip, out) ? 0 : end_search(zip, out, err);
}

/* ---- directory ---- */

/* Take the values that are saturated from the zip64 extra field, in their order. */
static int zip64_apply(const struct ck_zip *zip, struct ck_zip_entry *e, struct ck_cur *x,
		       struct ckpt_err *err)
{
	uint64_t *const want[3] = { &e->bytes, &e->packed, &e->header };

	for (int i = 0; i < 3; i++)
		if (*want[i] == SAT32 && (x->left < 8 || ck_cur_u64(x, want[i], NULL)))
			return fail(zip, err, x->off, "a zip64 field is too short");
	return 0;
}

static int extra_parse(const struct ck_zip *zip, struct ck_zip_entry *e, const uint8_t *p,
		       uint16_t n, struct ckpt_err *err)
{
	const bool need = e->bytes == SAT32 || e->packed == SAT32 || e->header == SAT32;
	const uint64_t at = zip->dir_off + (uint64_t)(p - zip->dir);
	struct ck_cur c;
	bool have = false;

	ck_cur_init(&c, p, n, ck_src_name(zip->src));
	while (c.left >= 4) {
		const uint16_t id = ck_le16(c.p), len = ck_le16(c.p + 2);
		struct ck_cur x;
		const uint8_t *body = NULL;

		c.p += 4;
		c.left -= 4;
		if (ck_cur_take(&c, len, &body, NULL))
			return fail(zip, err, at, "an extra field extends past the end of its "
				    "area");
		if (id != 1 || have)
			continue;
		ck_cur_init(&x, body, len, c.where);
		x.off = at;
		have = true;
		if (need && zip64_apply(zip, e, &x, err))
			return -CKPT_E_CORRUPT;
	}
	if (need && !have)
		return fail(zip, err, at, "a size of 0xFFFFFFFF has no zip64 field");
	return 0;
}

int ck_zip_flags_check(const struct ck_zip *zip, uint16_t flags, uint64_t at,
		       struct ckpt_err *err)
{
	const char *what = flags & FLAG_ENCRYPTED ? "an entry is encrypted" :
			   flags & FLAG_PATCHED	  ? "an entry has patched data" :
			   flags & FLAG_MASKED	  ? "an entry has masked headers" :
						    NULL;

	if (!what)
		return 0;
	return ck_fail(err, CKPT_E_UNSUPPORTED, ck_src_name(zip->src), at, "%s", what);
}

static int entry_check(const struct ck_zip *zip, const struct ck_zip_entry *e, uint64_t at,
		       struct ckpt_err *err)
{
	const char *where = ck_src_name(zip->src);
	const uint64_t room = zip->dir_off - zip->begin;
	uint64_t end;

	if (!e->name_len || memchr(e->name, 0, e->name_len))
		return fail(zip, err, at, "an entry has no name, or its name has a NUL");
	if (e->method != 0 && e->method != 8)
		return ck_fail(err, CKPT_E_UNSUPPORTED, where, at,
			       "'%s' is packed by method %u; torch writes 0 (stored)", e->name,
			       e->method);
	if (!e->method && e->bytes != e->packed)
		return ck_fail(err, CKPT_E_CORRUPT, where, at,
			       "'%s' is stored, but its two sizes differ (%" PRIu64 ", %" PRIu64
			       ")",
			       e->name, e->packed, e->bytes);
	if (ck_add_over(e->header, LOCAL_BYTES + (uint64_t)e->name_len, &end) ||
	    ck_add_over(end, e->packed, &end) || end > room)
		return ck_fail(err, CKPT_E_CORRUPT, where, at,
			       "'%s' (%" PRIu64 " bytes at %" PRIu64 ") extends into the "
			       "directory at %" PRIu64,
			       e->name, e->packed, e->header, room);
	return 0;
}

/* Parse the directory entry at the cursor; its name goes to *names. */
static int entry_parse(struct ck_zip *zip, struct ck_cur *c, struct ck_zip_entry *e,
		       char **names, struct ckpt_err *err)
{
	const uint64_t at = zip->dir_off + c->off;
	const uint8_t *b = NULL, *name = NULL, *extra = NULL, *comment = NULL;
	int rc;

	if (ck_cur_take(c, CENTRAL_BYTES, &b, NULL) || ck_le32(b) != SIG_CENTRAL)
		return fail(zip, err, at, "the directory holds fewer entries than the end "
			    "record says");
	e->method = ck_le16(b + 10);
	e->crc = ck_le32(b + 16);
	e->packed = ck_le32(b + 20);
	e->bytes = ck_le32(b + 24);
	e->header = ck_le32(b + 42);
	e->central = at;
	e->name_len = ck_le16(b + 28);
	e->symlink = b[5] == 3 && (ck_le32(b + 38) >> 16 & 0170000) == 0120000;
	if (ck_cur_take(c, e->name_len, &name, NULL) ||
	    ck_cur_take(c, ck_le16(b + 30), &extra, NULL) ||
	    ck_cur_take(c, ck_le16(b + 32), &comment, NULL))
		return fail(zip, err, at, "a directory entry extends past the end of the "
			    "directory");
	memcpy(*names, name, e->name_len);
	(*names)[e->name_len] = 0;
	e->name = *names;
	*names += e->name_len + 1;
	if (ck_le16(b + 34) != 0 && ck_le16(b + 34) != SAT16)
		return fail(zip, err, at, "an entry is on another volume");
	rc = ck_zip_flags_check(zip, ck_le16(b + 8), at, err);
	if (!rc)
		rc = extra_parse(zip, e, extra, ck_le16(b + 30), err);
	if (!rc)
		rc = entry_check(zip, e, at, err);
	e->header += zip->begin;
	return rc;
}

static void fold(char *out, const char *in, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = in[i] >= 'A' && in[i] <= 'Z' ? (char)(in[i] + 32) : in[i];
}

/* Names that differ by ASCII case only count as equal: torch looks them up so. */
static int names_index(struct ck_zip *zip, struct ckpt_err *err)
{
	for (uint64_t i = 0; i < zip->count; i++) {
		const struct ck_zip_entry *e = &zip->entry[i];
		char *key = zip->folded + (e->name - zip->names);
		int rc;

		fold(key, e->name, e->name_len);
		rc = ck_map_add(&zip->by_name, key, e->name_len, i, NULL, err);
		if (rc < 0)
			return rc;
		if (rc)
			return ck_fail(err, CKPT_E_CORRUPT, ck_src_name(zip->src), zip->dir_off,
				       "two entries are named '%s': readers may take either",
				       e->name);
	}
	return 0;
}

static int by_header(const void *a, const void *b)
{
	const struct ck_zip_entry *x = *(const struct ck_zip_entry *const *)a;
	const struct ck_zip_entry *y = *(const struct ck_zip_entry *const *)b;

	return x->header < y->header ? -1 : x->header > y->header;
}

static int limits_set(struct ck_zip *zip, struct ckpt_err *err)
{
	struct ck_zip_entry **order = ck_alloc_array(zip->count, sizeof(struct ck_zip_entry *));
	int rc = 0;

	if (!order)
		return ck_fail_nomem(err, "a directory", zip->count);
	for (uint64_t i = 0; i < zip->count; i++)
		order[i] = &zip->entry[i];
	qsort(order, zip->count, sizeof(*order), by_header);
	for (uint64_t i = 0; !rc && i < zip->count; i++) {
		const struct ck_zip_entry *e = order[i];
		const uint64_t next = i + 1 < zip->count ? order[i + 1]->header : zip->dir_off;

		zip->limit[e - zip->entry] = next;
		if (e->header + LOCAL_BYTES + e->name_len + e->packed > next)
			rc = ck_fail(err, CKPT_E_CORRUPT, ck_src_name(zip->src), e->header,
				     "'%s' overlaps the next entry, which begins at %" PRIu64,
				     e->name, next);
	}
	if (!rc && zip->count && order[0]->header != zip->begin)
		zip->notes |= CK_ZIP_NOTE_GAP;
	ck_free(order);
	return rc;
}

static int dir_parse(struct ck_zip *zip, struct ckpt_err *err)
{
	char *names = zip->names;
	struct ck_cur c;
	int rc;

	ck_cur_init(&c, zip->dir, zip->dir_bytes, ck_src_name(zip->src));
	for (uint64_t i = 0; i < zip->count; i++) {
		rc = entry_parse(zip, &c, &zip->entry[i], &names, err);
		if (rc)
			return rc;
	}
	if (c.left)
		return fail(zip, err, zip->dir_off + c.off,
			    "the directory holds more than the entries that the end record "
			    "counts");
	rc = names_index(zip, err);
	return rc ? rc : limits_set(zip, err);
}

static int dir_read(struct ck_zip *zip, const struct end *end, const struct ckpt_limits *limits,
		    struct ckpt_err *err)
{
	const char *where = ck_src_name(zip->src);
	int rc;

	if (end->count > limits->zip_entries)
		return ck_fail_limit(err, where, end->at, "zip_entries", limits->zip_entries,
				     "the archive has %" PRIu64 " entries", end->count);
	if (end->dir_bytes > limits->zip_dir_bytes)
		return ck_fail_limit(err, where, end->at, "zip_dir_bytes", limits->zip_dir_bytes,
				     "the archive's directory has %" PRIu64 " bytes",
				     end->dir_bytes);
	zip->count = end->count;
	zip->dir_off = end->dir_off;
	zip->dir_bytes = end->dir_bytes;
	zip->notes = end->notes;
	/* A name takes at least 46 bytes less than its entry: this is room enough. */
	zip->dir = ck_alloc((size_t)end->dir_bytes + 1);
	zip->names = ck_alloc((size_t)end->dir_bytes + 1);
	zip->folded = ck_alloc((size_t)end->dir_bytes + 1);
	zip->entry = ck_alloc_array(end->count, sizeof(*zip->entry));
	zip->limit = ck_alloc_array(end->count, sizeof(*zip->limit));
	if (!zip->dir || !zip->names || !zip->folded || !zip->entry || !zip->limit)
		return ck_fail_nomem(err, "an archive's directory", end->dir_bytes);
	rc = ck_src_read(zip->src, end->dir_off, zip->dir, (size_t)end->dir_bytes, err);
	if (rc)
		return rc;
	zip->fingerprint = ck_hash128(zip->dir, (size_t)end->dir_bytes);
	return dir_parse(zip, err);
}

int ck_zip_open_at(struct ck_src *src, uint64_t begin, uint64_t end,
		   const struct ckpt_limits *limits, struct ck_zip **zip_out,
		   struct ckpt_err *err)
{
	struct ck_zip *zip;
	struct end records;
	uint8_t sig[4];
	int rc;

	if (end - begin < sizeof(sig))
		return ck_fail(err, CKPT_E_FORMAT, ck_src_name(src), begin,
			       "the file is too short for an archive");
	rc = ck_src_read(src, begin, sig, sizeof(sig), err);
	if (rc)
		return rc;
	if (ck_le32(sig) != SIG_LOCAL)
		return ck_fail(err, CKPT_E_FORMAT, ck_src_name(src), begin,
			       "not a torch archive: it does not begin with a zip header");
	zip = ck_zalloc(sizeof(*zip));
	if (!zip)
		return ck_fail_nomem(err, "an archive", sizeof(*zip));
	zip->src = src;
	zip->begin = begin;
	zip->end = end;
	zip->inflate_ratio = limits->inflate_ratio;
	rc = end_find(zip, &records, err);
	if (!rc)
		rc = dir_read(zip, &records, limits, err);
	if (rc)
		ck_zip_close(zip);
	else
		*zip_out = zip;
	return rc;
}

int ck_zip_open(struct ck_src *src, const struct ckpt_limits *limits, struct ck_zip **zip_out,
		struct ckpt_err *err)
{
	return ck_zip_open_at(src, 0, ck_src_size(src), limits, zip_out, err);
}

void ck_zip_close(struct ck_zip *zip)
{
	if (!zip)
		return;
	ck_map_release(&zip->by_name);
	ck_free(zip->dir);
	ck_free(zip->names);
	ck_free(zip->folded);
	ck_free(zip->entry);
	ck_free(zip->limit);
	ck_free(zip);
}

uint64_t ck_zip_count(const struct ck_zip *zip)
{
	return zip->count;
}

const struct ck_zip_entry *ck_zip_entry_get(const struct ck_zip *zip, uint64_t i)
{
	return &zip->entry[i];
}

const struct ck_zip_entry *ck_zip_entry_find(const struct ck_zip *zip, const char *name)
{
	const size_t n = strlen(name);
	char key[NAME_MAX_FIND] = "";
	uint64_t i;

	if (n > sizeof(key))
		return NULL;
	fold(key, name, n);
	if (!ck_map_find(&zip->by_name, key, n, &i) || memcmp(zip->entry[i].name, name, n))
		return NULL;
	return &zip->entry[i];
}

unsigned ck_zip_notes(const struct ck_zip *zip)
{
	return zip->notes;
}

struct ck_hash128 ck_zip_fingerprint(const struct ck_zip *zip)
{
	return zip->fingerprint;
}
