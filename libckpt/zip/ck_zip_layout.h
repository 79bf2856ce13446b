/*
 * ck_zip_layout.h -- where everything of an archive lies that torch would write, and the bytes
 * around its records (docs/formats/torch-zip.md, "Written").  Pure: offsets follow from names and
 * lengths alone, so an archive of any size is laid out before its content exists.
 */
#ifndef CK_ZIP_LAYOUT_H
#define CK_ZIP_LAYOUT_H

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_buf.h"

#define CK_ZIP_ALIGN 64u		/* torch's default */
#define CK_ZIP_CRC_IN_DESCRIPTOR 4u	/* where the CRC stands there */
#define CK_ZIP_CRC_IN_CENTRAL 16u	/* and in the entry of the directory */

struct ck_zip_rec {
	const char *name;	/* without prefix */
	uint64_t bytes;
	uint32_t crc;		/* of the content; 0 until it is known */
	/* filled by ck_zip_layout(): */
	uint32_t pad;		/* filler bytes in the header */
	uint64_t header;	/* of the local header */
	uint64_t data;
	uint64_t end;		/* behind data and descriptor */
	uint64_t central;	/* of the entry in the directory */
};

struct ck_zip_ends {
	uint64_t dir, dir_bytes;
	uint64_t count;
	uint64_t bytes;		/* of the archive */
};

/*
 * Records in the order given, content at multiples of 'align' (a power of two up to 32768).
 * CKPT_E_USAGE for a name that is empty or longer than 1000 bytes with its prefix, or another
 * alignment; CKPT_E_LIMIT for an archive beyond 2^63 bytes or a directory of 4 GiB.
 */
int ck_zip_layout(const char *prefix, uint32_t align, struct ck_zip_rec *rec, uint64_t n,
		  struct ck_zip_ends *ends_out, struct ckpt_err *err);

/* The bytes before the content, behind it (none for an empty record), and in the directory. */
int ck_zip_put_local(struct ck_buf *buf, const char *prefix, const struct ck_zip_rec *rec,
		     struct ckpt_err *err);
int ck_zip_put_descriptor(struct ck_buf *buf, const struct ck_zip_rec *rec,
			  struct ckpt_err *err);
int ck_zip_put_central(struct ck_buf *buf, const char *prefix, const struct ck_zip_rec *rec,
		       struct ckpt_err *err);
/* What follows the directory: zip64 end, locator, end. */
int ck_zip_put_end(struct ck_buf *buf, const struct ck_zip_ends *ends, struct ckpt_err *err);

#endif
