/*
 * ck_pt_read.c -- opening a torch file: the zip archive of torch >= 1.6, and what both
 * kinds share.  docs/formats/torch-zip.md says what is refused and what is let pass.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/torch_pt/ck_pt_priv.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/zip/ck_zip_check.h"
#include "libckpt/zip/ck_zip_row.h"

#define SMALL_RECORD 4096	/* version, byteorder and such */

bool ck_pt_probe(const uint8_t *head, size_t n)
{
	return (n >= 4 && ck_le32(head) == 0x04034b50u) || ck_pt_is_legacy(head, n);
}

/* ---- records of the archive ---- */

/* A small record as text; *text_out stays NULL if there is none. */
static int record_text(const struct ck_pt *pt, const char *record, uint8_t **text_out,
		       uint64_t *n_out, struct ckpt_err *err)
{
	const struct ck_zip_entry *e = ck_pt_record_find(pt, record);

	*text_out = NULL;
	if (!e)
		return 0;
	*n_out = e->bytes;
	return ck_zip_read(pt->zip, e, SMALL_RECORD, text_out, err);
}

/* The prefix is that of the first entry of the directory. */
static int prefix_find(struct ck_pt *pt, struct ckpt_err *err)
{
	const struct ck_zip_entry *e;
	const char *slash;

	if (!ck_zip_count(pt->zip))
		return ck_fail(err, CKPT_E_CORRUPT, ck_src_name(pt->src), CKPT_NO_OFFSET,
			       "the archive is empty");
	e = ck_zip_entry_get(pt->zip, 0);
	slash = strchr(e->name, '/');
	if (!slash || slash == e->name)
		return ck_fail(
			err, CKPT_E_CORRUPT, ck_src_name(pt->src), CKPT_NO_OFFSET,
			"not a torch archive: '%.80s' is not in a folder (is it a .npz or "
			"another zip?)",
			e->name);
	pt->prefix = ck_strndup(e->name, (size_t)(slash - e->name));
	pt->where = ck_asprintf("%s!%.*s/data.pkl", ck_src_name(pt->src),
				(int)(slash - e->name), e->name);
	if (!pt->prefix || !pt->where)
		return ck_fail_nomem(err, "a name", e->name_len);
	return 0;
}

static int kind_check(const struct ck_pt *pt, struct ckpt_err *err)
{
	const char *where = ck_src_name(pt->src);

	if (ck_pt_record_find(pt, "constants.pkl"))
		return ck_fail(err, CKPT_E_UNSUPPORTED, where, CKPT_NO_OFFSET,
			       "this is a TorchScript archive (torch.jit.save), not a checkpoint; "
			       "save its state_dict() with torch.save");
	if (ck_pt_record_find(pt, "data.pkl"))
		return 0;
	if (ck_pt_record_find(pt, "archive_format") || ck_pt_record_find(pt, "models/model.json"))
		return ck_fail(err, CKPT_E_UNSUPPORTED, where, CKPT_NO_OFFSET,
			       "this is a torch.export archive, not a checkpoint");
	return ck_fail(err, CKPT_E_CORRUPT, where, CKPT_NO_OFFSET,
		       "the archive has no '%.80s/data.pkl': not written by torch.save, or "
		       "damaged",
		       pt->prefix);
}

/* "3\n"; torch's own parser also takes " 3", "+3", "03" and "3junk". */
static int version_check(const struct ck_pt *pt, struct ck_findings *findings,
			 struct ckpt_err *err)
{
	const uint8_t *p;
	uint8_t *text;
	uint64_t n = 0, v = 0, digits = 0;
	bool odd = false;
	int rc = record_text(pt, ".data/version", &text, &n, err);

	if (!rc && !text)
		rc = record_text(pt, "version", &text, &n, err);
	if (rc)
		return rc;
	if (!text) {
		ck_pt_note(pt, findings, "the archive has no 'version' record: torch refuses it");
		return 0;
	}
	for (p = text; *p == ' ' || *p == '\t' || *p == '\n'; p++)
		odd = true;
	if (*p == '+') {
		odd = true;
		p++;
	}
	odd |= *p == '0';
	for (; *p >= '0' && *p <= '9' && digits < 18; p++, digits++)
		v = v * 10 + (uint64_t)(*p - '0');
	if (!digits || v < 1 || v > 10)
		rc = ck_fail(err, CKPT_E_CORRUPT, pt->where, CKPT_NO_OFFSET,
			     "the archive has version '%.20s'; torch knows 1 to 10",
			     (const char *)text);
	p += *p == '\n';
	if (!rc && (odd || (uint64_t)(p - text) != n))
		ck_pt_note(pt, findings, "the 'version' record is oddly spelled");
	ck_free(text);
	return rc;
}

static int byteorder_read(struct ck_pt *pt, struct ckpt_err *err)
{
	uint8_t *text;
	uint64_t n;
	int rc = record_text(pt, "byteorder", &text, &n, err);

	if (rc || !text)
		return rc;
	if (n == 3 && !memcmp(text, "big", 3))
		pt->swapped = true;
	else if (n != 6 || memcmp(text, "little", 6))
		rc = ck_fail(err, CKPT_E_CORRUPT, pt->where, CKPT_NO_OFFSET,
			     "the byteorder record is neither 'little' nor 'big'");
	ck_free(text);
	return rc;
}

static int alignment_check(const struct ck_pt *pt, struct ck_findings *findings,
			   struct ckpt_err *err)
{
	uint8_t *text;
	uint64_t n;
	int rc = record_text(pt, ".storage_alignment", &text, &n, err);

	if (rc || !text)
		return rc;
	if (strspn((char *)text, "0123456789") != n || !n || text[0] == '0')
		ck_pt_note(pt, findings, "the .storage_alignment record is not a number above 0");
	ck_free(text);
	return 0;
}

/* 20 digits; false if they are no number of 64 bits. */
static bool digits_of(const uint8_t *p, uint64_t *out)
{
	uint64_t v = 0;

	for (int i = 0; i < 20; i++) {
		const uint64_t digit = (uint64_t)(p[i] - '0');

		if (digit > 9 || v > (UINT64_MAX - digit) / 10)
			return false;
		v = v * 10 + digit;
	}
	*out = v;
	return true;
}

/*
 * The second half of .data/serialization_id is torch's sum of the CRCs: it tells an archive whose
 * records were changed or exchanged with their CRCs.  Other writers put 0 or no number there.
 */
static int sum_check(const struct ck_pt *pt, struct ck_findings *findings, struct ckpt_err *err)
{
	const struct ck_zip_entry *e = ck_pt_record_find(pt, ".data/serialization_id");
	uint64_t said, sum;
	uint8_t *text;
	int rc;

	if (!e || e->bytes != 40 || !findings || !ck_zip_check_sum(pt->zip, e, &sum))
		return 0;
	rc = ck_zip_read(pt->zip, e, SMALL_RECORD, &text, err);
	if (rc == -CKPT_E_CORRUPT || rc == -CKPT_E_TRUNCATED || rc == -CKPT_E_LIMIT) {
		ck_err_clear(err);	/* no value depends on it: verify --full says so */
		return 0;
	}
	if (rc)
		return rc;
	if (digits_of(text + 20, &said) && said && said != sum)
		ck_findings_add(findings, CK_FINDING_CRC_SUM_WRONG, ck_src_name(pt->src),
				"torch saved %" PRIu64 " as the sum of all CRC-32s, but the sum "
				"is %" PRIu64 ": a record and its CRC-32 were changed after "
				"saving", said, sum);
	ck_free(text);
	return 0;
}

/* ---- records that nothing refers to ---- */

static bool is_known_record(const struct ck_pt *pt, const struct ck_zip_entry *e)
{
	static const char *const known[] = {
		"data.pkl", "version", "byteorder", ".format_version", ".storage_alignment",
		".data/version", ".data/serialization_id",
	};
	const size_t n = strlen(pt->prefix) + 1;
	const char *rest = e->name + n;
	uint64_t i;

	if (e->symlink)
		return false;
	if (!e->bytes && e->name[e->name_len - 1] == '/')
		return true;
	for (i = 0; i < CK_ARRAY_LEN(known); i++)
		if (!strcmp(rest, known[i]))
			return true;
	return !strncmp(rest, "data/", 5) &&
	       ck_map_find(&pt->by_key, rest + 5, e->name_len - n - 5, &i);
}

static void records_check(const struct ck_pt *pt, struct ck_findings *findings)
{
	const size_t n = strlen(pt->prefix);

	for (uint64_t i = 0; findings && i < ck_zip_count(pt->zip); i++) {
		const struct ck_zip_entry *e = ck_zip_entry_get(pt->zip, i);
		const bool ours = e->name_len > n && e->name[n] == '/' &&
				  !memcmp(e->name, pt->prefix, n);

		if (ours && is_known_record(pt, e))
			continue;
		ck_findings_add(findings,
				ours && !e->symlink ? CK_FINDING_FILE_UNKNOWN
						    : CK_FINDING_FORMAT_NOTE,
				ck_src_name(pt->src),
				"%s '%.80s' (%" PRIu64 " bytes) is not used by any tensor",
				ours ? "a record" : "an entry outside the archive's folder",
				e->name, e->bytes);
	}
}

/* Which of two pickles counts would be a matter of taste. */
static int foreign_check(const struct ck_pt *pt, struct ckpt_err *err)
{
	const size_t n = strlen(pt->prefix);

	for (uint64_t i = 0; i < ck_zip_count(pt->zip); i++) {
		const struct ck_zip_entry *e = ck_zip_entry_get(pt->zip, i);
		const char *slash = strchr(e->name, '/');

		if (slash && !strcmp(slash, "/data.pkl") &&
		    ((size_t)(slash - e->name) != n || memcmp(e->name, pt->prefix, n)))
			return ck_fail(
				err, CKPT_E_CORRUPT, ck_src_name(pt->src), e->header,
				"the archive holds two checkpoints: '%.80s' and '%.80s/data.pkl'",
				e->name, pt->prefix);
	}
	return 0;
}

static void crc_check(const struct ck_pt *pt, struct ck_findings *findings)
{
	uint64_t without = 0;

	for (uint64_t i = 0; i < pt->nstorages; i++)
		without += pt->storage[i].bytes && !pt->storage[i].crc;
	if (!without)
		ck_src_known(pt->src, CK_KNOWN_PRINT);
	if (without && findings)
		ck_findings_add(findings, CK_FINDING_CRC_NOT_COMPUTED, ck_src_name(pt->src),
				"%" PRIu64 " of %" PRIu64 " storages have no checksum", without,
				pt->nstorages);
}

/* ---- storages of an archive ---- */

static void storages_check(const struct ck_pt *pt, struct ck_findings *findings)
{
	for (uint64_t i = 0; findings && i < pt->nstorages; i++) {
		const struct ck_pt_storage *s = &pt->storage[i];

		if (s->deflated)
			ck_findings_add(findings, CK_FINDING_FORMAT_NOTE, ck_src_name(pt->src),
					"storage '%s' is compressed: torch cannot map such a file",
					s->key);
		if (!s->absent && s->bytes % (ckpt_dtype_bits(s->dtype) / 8))
			ck_findings_add(findings, CK_FINDING_FORMAT_NOTE, ck_src_name(pt->src),
					"storage '%s' has %" PRIu64 " bytes, not a multiple of "
					"its %s elements: torch >= 2.10 refuses it",
					s->key, s->bytes, ckpt_dtype_name(s->dtype));
	}
}

static int zip_parse(struct ck_pt *pt, unsigned pkl_flags, struct ck_findings *findings,
		     struct ckpt_err *err)
{
	const struct ck_zip_entry *e = ck_pt_record_find(pt, "data.pkl");
	uint8_t *pickle = NULL;
	int rc;

	rc = ck_zip_read_within(pt->zip, e, pt->limits.pickle_bytes, "pickle_bytes", &pickle, err);
	if (rc)
		return rc;
	rc = ck_pkl_load(&pt->doc, pickle, e->bytes, &pt->limits, pkl_flags, pt->where, err);
	ck_free(pickle);
	if (rc)
		return rc;
	ck_pt_notes_pickle(pt, findings, pt->doc.notes);
	if (pt->doc.used != e->bytes)
		ck_pt_note(pt, findings,
			   "bytes follow the end of the pickle: torch ignores them, a "
			   "second pickle may hide there");
	return ck_pt_bind(pt, findings, err);
}

int ck_pt_is_row(struct ck_src *src, const struct ckpt_limits *limits, uint64_t **begin_out,
		 uint64_t *n_out, struct ckpt_err *err)
{
	*begin_out = NULL;
	*n_out = 0;
	return ck_zip_may_be_row(src) ?
	       ck_zip_row(src, limits->zip_entries, begin_out, n_out, err) : 0;
}

static int row_check(const struct ck_pt *pt, struct ckpt_err *err)
{
	uint64_t *begin, n;
	int rc = ck_pt_is_row(pt->src, &pt->limits, &begin, &n, err);

	if (!rc && n)
		rc = ck_fail(err, CKPT_E_UNSUPPORTED, ck_src_name(pt->src), CKPT_NO_OFFSET,
			     "this is a data file of torch.distributed.checkpoint: %" PRIu64
			     " archives of torch.save, one after the other; give its folder, "
			     "whose '.metadata' says what is in it", n);
	ck_free(begin);
	return rc;
}

static int zip_open(struct ck_pt *pt, unsigned pkl_flags, struct ck_findings *findings,
		    struct ckpt_err *err)
{
	unsigned notes;
	int rc = row_check(pt, err);

	if (!rc)
		rc = ck_zip_open(pt->src, &pt->limits, &pt->zip, err);
	if (!rc)
		rc = prefix_find(pt, err);
	if (!rc)
		rc = foreign_check(pt, err);
	if (!rc)
		rc = kind_check(pt, err);
	if (!rc)
		rc = version_check(pt, findings, err);
	if (!rc)
		rc = byteorder_read(pt, err);
	if (!rc)
		rc = alignment_check(pt, findings, err);
	if (!rc)
		rc = sum_check(pt, findings, err);
	if (!rc)
		rc = zip_parse(pt, pkl_flags, findings, err);
	if (rc)
		return rc;
	notes = ck_zip_notes(pt->zip);
	if (notes & CK_ZIP_NOTE_JUNK)
		ck_pt_note(pt, findings, "bytes follow the end of the archive");
	if (notes & CK_ZIP_NOTE_COMMENT)
		ck_pt_note(pt, findings, "the archive has a comment, which torch never writes");
	if (notes & CK_ZIP_NOTE_GAP)
		ck_pt_note(pt, findings, "the directory does not list the archive's first entry");
	records_check(pt, findings);
	storages_check(pt, findings);
	crc_check(pt, findings);
	pt->fingerprint = ck_zip_fingerprint(pt->zip);
	return 0;
}

int ck_pt_open(struct ck_src *src, const struct ckpt_limits *limits, unsigned pkl_flags,
	       struct ck_findings *findings, struct ck_pt **pt_out, struct ckpt_err *err)
{
	struct ck_pt *pt = ck_zalloc(sizeof(*pt));
	uint8_t sig[4] = { 0 };
	int rc;

	if (!pt)
		return ck_fail_nomem(err, "a torch file", sizeof(*pt));
	pt->src = src;
	pt->limits = *limits;
	rc = ck_src_read(src, 0, sig, (size_t)ck_min_u64(sizeof(sig), ck_src_size(src)), err);
	if (!rc && ck_le32(sig) == 0x04034b50u)
		rc = zip_open(pt, pkl_flags, findings, err);
	else if (!rc)
		rc = ck_pt_legacy_open(pt, pkl_flags, findings, err);
	/* The archive was read as far as it is needed. */
	ck_zip_close(pt->zip);
	pt->zip = NULL;
	rc = ck_arena_why(&pt->doc.arena, rc, ck_src_name(src), err);
	if (rc)
		ck_pt_close(pt);
	else
		*pt_out = pt;
	return rc;
}

void ck_pt_close(struct ck_pt *pt)
{
	if (!pt)
		return;
	ck_zip_close(pt->zip);
	ck_pkl_release(&pt->doc);
	ck_map_release(&pt->by_key);
	ck_free(pt->storage);
	ck_free(pt->prefix);
	ck_free(pt->where);
	ck_free(pt);
}
