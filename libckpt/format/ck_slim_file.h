/*
 * ck_slim_file.h -- a file of tensors made smaller: what a driver is given, and what it says.
 */
#ifndef CK_SLIM_FILE_H
#define CK_SLIM_FILE_H

#include "libckpt/io/ck_fdpool.h"

struct ck_slim_want {
	const char *path;	/* of the file */
	const char *name;	/* in the plan */
	unsigned what;		/* CKPT_SLIM_* */
	const struct ckpt_limits *limits;
	struct ck_fdpool *pool;	/* to read through */
};

/* Bytes of tensors that are not written, each counted for one reason. */
struct ck_slim_saved {
	uint64_t views, frozen, moments;
	/* Why a file is left as it is though it may hold what is asked for; NULL, or a constant. */
	const char *why;
};

#endif
