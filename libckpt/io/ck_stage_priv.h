/*
 * ck_stage_priv.h -- a stage from inside: ck_stage.c has its life, ck_stage_file.c its files.
 */
#ifndef CK_STAGE_PRIV_H
#define CK_STAGE_PRIV_H

#include "libckpt/io/ck_fdpool.h"
#include "libckpt/io/ck_record.h"
#include "libckpt/io/ck_stage.h"

#define CK_STAGE_MAX_OPEN 32

struct stage_file {
	struct ck_pooled pooled;
	char *path;
	_Atomic bool touched;	/* by this part */
};

struct ck_stage {
	struct ck_stage_opts opts;	/* opts.dst is ours */
	struct ck_commit paths;
	struct ck_record *rec;
	struct ck_fdpool *pool;
	struct stage_file **file;
	uint64_t nfiles, cap;
	bool made;		/* the partial folder is of our making */
	bool done;		/* dst is in place */
};

#endif
