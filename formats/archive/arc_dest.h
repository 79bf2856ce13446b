/*
 * arc_dest.h -- where an archive is unpacked to: a folder that is not there or empty, or, where
 * the archive holds one folder, a folder into which that one goes beside others.
 */
#ifndef ARC_DEST_H
#define ARC_DEST_H

#include "formats/archive/ck_pack.h"
#include "libckpt/commit/ck_stage.h"

struct arc_dest_file {
	const char *name;
	uint64_t bytes;
	const struct ck_hash128 *hash;	/* NULL = not known */
};

struct arc_dest {
	const struct ck_unpack_want *want;
	struct arc_dest_file *file;
	uint64_t n;
	char *step;		/* the only folder at the top, or NULL */
	struct ck_stage *stage;
	uint32_t *number;	/* in the stage, of each file */
	uint64_t free;		/* of a dry run: on the destination's disk, 0 = unknown */
};

/* 'file' is lent. */
int ck_arc_dest_init(struct arc_dest *d, const struct ck_unpack_want *want,
		  struct arc_dest_file *file, uint64_t n, struct ckpt_err *err);
/*
 * Begin the stage and make the files, unless it is a dry run, which only looks.
 * '*done_out': a killed run had put the result into place.
 */
int ck_arc_dest_begin(struct arc_dest *d, bool *done_out, struct ckpt_err *err);
int ck_arc_dest_commit(struct arc_dest *d, struct ckpt_err *err);
/* 'rc' not 0: what was written goes away. */
void ck_arc_dest_release(struct arc_dest *d, int rc);

#endif
