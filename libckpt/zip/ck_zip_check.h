/*
 * ck_zip_check.h -- what a reader of an archive passes over: fields that stand twice, or that
 * all entries have alike.  A flipped bit there changes no value, and nothing else shows it.
 */
#ifndef CK_ZIP_CHECK_H
#define CK_ZIP_CHECK_H

#include "libckpt/zip/ck_zip.h"

/* Called with the byte in the file and a clause. */
typedef void (*ck_zip_odd_fn)(void *arg, uint64_t off, const char *what);

/* Fields of the directory in which one entry differs from all others, and of its end. */
int ck_zip_check_directory(const struct ck_zip *zip, ck_zip_odd_fn odd, void *arg,
			   struct ckpt_err *err);
/*
 * The entry's local header and the descriptor behind its data, against the directory.
 * '*data_out' is where its bytes begin.  Codes of ck_zip_data_offset().
 */
int ck_zip_check_entry(const struct ck_zip *zip, const struct ck_zip_entry *entry,
		       uint64_t *data_out, ck_zip_odd_fn odd, void *arg, struct ckpt_err *err);

/*
 * torch >= 2.1 puts the CRCs of all entries before 'end' together, in the order of writing, as
 * they pass by in descriptors.  False if the archive is not of that make: an entry with bytes and
 * without a descriptor, or an order of its own.
 */
bool ck_zip_check_sum(const struct ck_zip *zip, const struct ck_zip_entry *end,
		      uint64_t *sum_out);

#endif
