/*
 * ck_record.h -- a part's record: which units of a result are written, with their
 * hashes (docs/formats/partial.md, "The record").
 */
#ifndef CK_RECORD_H
#define CK_RECORD_H

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_hash.h"

#define CK_RECORD_DIR 1u	/* the result is a folder */
#define CK_RECORD_FORCE 2u	/* it may replace what is there */
#define CK_RECORD_INTO 4u	/* it goes into the folder that is there; 'step' is set */
#define CK_RECORD_SESSION 8u	/* of a save session, whose number is in 'nunits' */

struct ck_record_head {
	uint32_t flags;		/* CK_RECORD_* */
	uint32_t part, nparts;
	uint64_t nunits;
	struct ck_hash128 plan, fingerprint;
	uint64_t pid;
	uint64_t step;		/* XXH3-64 of the name of its folder that goes as one, or 0 */
	struct ck_hash128 exact, inodes;	/* of the source's files: ck_stamp.h */
};

/* Neither has been written to nor replaced between the two, as far as their files tell. */
bool ck_record_same_files(const struct ck_record_head *a, const struct ck_record_head *b);

struct ck_record;

/*
 * What a part adds to the sum 'sum' of the result (a CRC-32 that goes into the result itself when
 * every part is there): the CRC of its bytes [off, off + bytes); or, with 'place', where the sum
 * goes: byte 'off' of the file whose name has the XXH3-64 'bytes'.  bytes = 0: 'off' is the length.
 */
struct ck_record_sum {
	uint64_t sum, off, bytes;
	uint32_t crc;
	bool place;
	uint8_t kind;		/* enum ck_record_kind */
};

/*
 * Another sum is of 128 bits, to which each part adds a term: its low half is in 'off', its high
 * one in 'bytes'; its place is as above, and takes 32 hex digits.  The last kind has places only:
 * where the hash of the file's first 'sum' bytes goes, in which these digits count as zeros.
 */
enum ck_record_kind {
	CK_RECORD_CRC, CK_RECORD_SUM128, CK_RECORD_HEAD,
	/*
	 * Not of the result but of what was read ("Sums of the source"): a CRC of bytes of a
	 * member; a sum of 'crc' blocks of a piece; what these must be in all, of 'off' bytes or
	 * 'crc' blocks; and 16 bytes, the 'crc'-th, of the message if they are not.
	 */
	CK_RECORD_READ_CRC, CK_RECORD_READ_SUM, CK_RECORD_WANT_CRC, CK_RECORD_WANT_SUM,
	CK_RECORD_TEXT,
};

/*
 * That message: five strings, each with its NUL, in this order; 16 bytes an entry, the low 8 in
 * 'off'.  CODE 0: it is a warning.  SHAPE is that of a digest to be closed, "F32 4 128", or "".
 */
enum ck_record_text {
	CK_RECORD_SHAPE, CK_RECORD_CODE, CK_RECORD_ID, CK_RECORD_WHERE, CK_RECORD_CLAUSE,
	CK_RECORD_TEXTS,
};
#define CK_RECORD_TEXT_ENTRY 16u
#define CK_RECORD_TEXT_MOST 4096u	/* bytes of all five */

/* What a record says of its part. */
struct ck_record_seen {
	struct ck_record_head head;
	bool ended;
	uint64_t placing;	/* inode of the folder that is being put into place, 0 = none */
};

/*
 * Open or make the record at 'path', lock it, and read which units an earlier process noted;
 * its end entry is taken back.  Units of a source whose files have changed since then are none.
 * CKPT_E_BUSY if a living process holds it; CKPT_E_EXISTS if it
 * belongs to another plan or source; CKPT_E_UNSUPPORTED if a newer version wrote it; a damaged
 * record counts as empty.
 */
int ck_record_open(const char *path, const struct ck_record_head *head,
		   struct ck_record **rec_out, struct ckpt_err *err);
/*
 * Lock the record that is there and leave it as it is.  CKPT_E_NOTFOUND, CKPT_E_BUSY,
 * CKPT_E_CORRUPT.
 */
int ck_record_claim(const char *path, struct ck_record **rec_out,
		    struct ck_record_seen *seen_out, struct ckpt_err *err);
/* Unlocks.  NULL is fine. */
void ck_record_close(struct ck_record *rec);
/* There was none, or a damaged one: nothing is known of the data beside it. */
bool ck_record_is_new(const struct ck_record *rec);

/* Append; one thread at a time is let in, any may call. */
int ck_record_note(struct ck_record *rec, uint64_t unit, struct ck_hash128 hash,
		   struct ckpt_err *err);
/* Behind all units, before the end. */
int ck_record_sum(struct ck_record *rec, const struct ck_record_sum *sum, struct ckpt_err *err);
int ck_record_end(struct ck_record *rec, struct ckpt_err *err);
/* The folder of that inode is about to be put into place; on the disk if 'sync'. */
int ck_record_place(struct ck_record *rec, uint64_t inode, bool sync, struct ckpt_err *err);
/* What an earlier process noted. */
bool ck_record_find(const struct ck_record *rec, uint64_t unit, struct ck_hash128 *hash_out);

/* Read a record without locking it.  CKPT_E_NOTFOUND, CKPT_E_CORRUPT. */
int ck_record_peek(const char *path, struct ck_record_seen *seen_out, struct ckpt_err *err);
/* The same for its sums, in new memory (ck_free). */
int ck_record_sums(const char *path, struct ck_record_sum **sums_out, uint64_t *n_out,
		   struct ckpt_err *err);

#endif
