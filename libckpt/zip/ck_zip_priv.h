/*
 * ck_zip_priv.h -- private to libckpt/zip: the archive, and the numbers of its records.
 */
#ifndef CK_ZIP_PRIV_H
#define CK_ZIP_PRIV_H

#include "libckpt/base/ck_map.h"
#include "libckpt/zip/ck_zip.h"

#define SIG_LOCAL 0x04034b50u
#define SIG_CENTRAL 0x02014b50u
#define SIG_END 0x06054b50u
#define SIG_END64 0x06064b50u
#define SIG_LOCATOR 0x07064b50u

#define LOCAL_BYTES 30
#define CENTRAL_BYTES 46
#define END_BYTES 22
#define END64_BYTES 56
#define LOCATOR_BYTES 20
#define END_SEARCH (END_BYTES + 65535)
#define NAME_MAX_FIND 1024

#define FLAG_ENCRYPTED 0x0001u
#define FLAG_DESCRIPTOR 0x0008u
#define FLAG_PATCHED 0x0020u
#define FLAG_MASKED 0x2000u

#define SAT16 0xffffu
#define SAT32 0xffffffffu

struct ck_zip {
	struct ck_src *src;
	uint64_t begin, end;		/* the archive in it; places here are those in 'src' */
	uint8_t *dir;			/* the directory */
	uint64_t dir_off, dir_bytes;
	char *names;			/* NUL-terminated, one after the other */
	char *folded;			/* the same in lower case: keys of by_name */
	struct ck_zip_entry *entry;
	uint64_t *limit;		/* by entry: where its bytes end at the latest */
	uint64_t count;
	struct ck_map by_name;
	struct ck_hash128 fingerprint;
	uint32_t inflate_ratio;
	unsigned notes;
};

/* An encrypted, patched or masked entry is CKPT_E_UNSUPPORTED. */
int ck_zip_flags_check(const struct ck_zip *zip, uint16_t flags, uint64_t at,
		       struct ckpt_err *err);

#endif
