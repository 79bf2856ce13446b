/*
 * ck_blob.h -- things that must be made in memory as a whole before a part of them can be
 * read: inflated archive members, strided views.  A few are kept.
 */
#ifndef CK_BLOB_H
#define CK_BLOB_H

#include "libckpt/base/ck_base.h"
#include "libckpt/tensor/ck_index.h"

struct ck_blobs;
struct ck_read_counts;

struct ck_blob {
	const uint8_t *p;
	uint64_t n;
};

int ck_blobs_new(const struct ck_index *ix, const struct ckpt_limits *limits, uint64_t keep_bytes,
		 struct ck_blobs **out, struct ckpt_err *err);
void ck_blobs_free(struct ck_blobs *b);

/* Pin the inflated member, or the row-major elements of a GATHER extent; then drop it. */
int ck_blobs_member(struct ck_blobs *b, uint32_t member, struct ck_blob *out,
		    struct ckpt_err *err);
int ck_blobs_view(struct ck_blobs *b, const struct ck_extent *e, struct ck_blob *out,
		  struct ckpt_err *err);
void ck_blobs_drop(struct ck_blobs *b, const struct ck_blob *blob);
/* What was read to make them (ck_read.h). */
void ck_blobs_counts(struct ck_blobs *b, struct ck_read_counts *out);

#endif
