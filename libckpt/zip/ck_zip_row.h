/*
 * ck_zip_row.h -- archives one after the other in one file, as the data files (.distcp) of
 * torch.distributed.checkpoint are: each value is a stream of torch.save.
 */
#ifndef CK_ZIP_ROW_H
#define CK_ZIP_ROW_H

#include "libckpt/zip/ck_zip.h"

/*
 * Where each archive begins if 'src' is nothing but two or more of them, in new memory (ck_free);
 * *n_out is 0 and *begin_out NULL if it is not.  Each ends with its end record, without a comment,
 * where the next begins.  A few reads for each archive.  CKPT_E_LIMIT over 'limit' archives;
 * codes of reading.
 */
int ck_zip_row(struct ck_src *src, uint64_t limit, uint64_t **begin_out, uint64_t *n_out,
	       struct ckpt_err *err);

/* Does the name of 'src' say that it may be such a file? */
bool ck_zip_may_be_row(const struct ck_src *src);

/*
 * Call 'fn' with the archive that 'src' is, or by its name (.distcp) with each archive of the row
 * that it is.  Fails with what 'fn' returns, and codes of ck_zip_row() and ck_zip_open().
 */
typedef int (*ck_zip_each_fn)(void *arg, const struct ck_zip *zip, struct ckpt_err *err);
int ck_zip_each(struct ck_src *src, const struct ckpt_limits *limits, ck_zip_each_fn fn,
		void *arg, struct ckpt_err *err);

/* Bytes [begin, end) of 'src' as a source of its own; lent until that is closed. */
struct ck_zip_part {
	struct ck_src *src;
	uint64_t begin, end;
};

int ck_zip_part(struct ck_zip_part *part, struct ck_src **src_out, struct ckpt_err *err);

#endif
