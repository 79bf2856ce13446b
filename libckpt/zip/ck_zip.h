/*
 * ck_zip.h -- the archive inside .pt, read by position.
 *
 * The central directory is the truth; each local header is looked at only to find
 * where the data begins, and must agree where torch fills it in.  Stored and deflated
 * members, zip64, any prefix, any alignment.  What is refused is listed in
 * docs/formats/torch-zip.md.
 */
#ifndef CK_ZIP_H
#define CK_ZIP_H

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_hash.h"
#include "libckpt/io/ck_src.h"

struct ck_zip_entry {
	const char *name;	/* whole name with prefix; lent by the archive */
	uint32_t name_len;
	uint16_t method;	/* 0 stored, 8 deflated */
	uint32_t crc;		/* 0 in a non-empty member: not computed, usually */
	uint64_t packed;	/* bytes in the archive */
	uint64_t bytes;		/* bytes of content */
	uint64_t header;	/* offset of the local header */
	uint64_t central;	/* of the entry in the directory */
	bool symlink;		/* marked as a link by a Unix tool; its bytes are data */
};

struct ck_zip;

/*
 * Read the directory of 'src' (lent until ck_zip_close).  CKPT_E_FORMAT if it is no zip,
 * CKPT_E_CORRUPT, CKPT_E_TRUNCATED, CKPT_E_UNSUPPORTED (encrypted, other methods, multi-disk),
 * CKPT_E_LIMIT.  Two entries of one name are CKPT_E_CORRUPT.
 */
int ck_zip_open(struct ck_src *src, const struct ckpt_limits *limits, struct ck_zip **zip_out,
		struct ckpt_err *err);
/* The same of the archive at bytes [begin, end) of 'src'; places here are those in 'src'. */
int ck_zip_open_at(struct ck_src *src, uint64_t begin, uint64_t end,
		   const struct ckpt_limits *limits, struct ck_zip **zip_out,
		   struct ckpt_err *err);
void ck_zip_close(struct ck_zip *zip);

uint64_t ck_zip_count(const struct ck_zip *zip);
const struct ck_zip_entry *ck_zip_entry_get(const struct ck_zip *zip, uint64_t i);
/* By whole name; NULL if there is none. */
const struct ck_zip_entry *ck_zip_entry_find(const struct ck_zip *zip, const char *name);
/* What was let pass: CK_ZIP_NOTE_* */
#define CK_ZIP_NOTE_JUNK 1u	/* bytes behind the end record */
#define CK_ZIP_NOTE_COMMENT 2u	/* an archive comment */
#define CK_ZIP_NOTE_GAP 4u	/* the first entry is not at the beginning */
unsigned ck_zip_notes(const struct ck_zip *zip);
/* Hash of the directory bytes. */
struct ck_hash128 ck_zip_fingerprint(const struct ck_zip *zip);

/* Where the entry's bytes begin in the source; reads its local header. */
int ck_zip_data_offset(const struct ck_zip *zip, const struct ck_zip_entry *entry,
		       uint64_t *off_out, struct ckpt_err *err);

/*
 * Read a whole member into new memory (ck_free) of entry->bytes + 1 bytes, the last
 * 0, and check its CRC.  CKPT_E_CORRUPT on a wrong CRC or a bad deflate stream,
 * CKPT_E_LIMIT over 'max_bytes', which is the field called 'limit'.
 */
int ck_zip_read_within(const struct ck_zip *zip, const struct ck_zip_entry *entry,
		       uint64_t max_bytes, const char *limit, uint8_t **data_out,
		       struct ckpt_err *err);
/* The same where 'max_bytes' is no limit that could be raised. */
int ck_zip_read(const struct ck_zip *zip, const struct ck_zip_entry *entry,
		uint64_t max_bytes, uint8_t **data_out, struct ckpt_err *err);

/* Inflate 'packed' bytes into exactly 'bytes'.  'where' for messages. */
int ck_zip_inflate(const void *in, uint64_t packed, void *out, uint64_t bytes,
		   const char *where, struct ckpt_err *err);
uint32_t ck_zip_crc32(uint32_t crc, const void *p, size_t n);

#endif
