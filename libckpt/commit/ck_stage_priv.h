/*
 * ck_stage_priv.h -- a stage from inside: ck_stage.c has its life, ck_stage_file.c its files.
 */
#ifndef CK_STAGE_PRIV_H
#define CK_STAGE_PRIV_H

#include <pthread.h>

#include "libckpt/commit/ck_record.h"
#include "libckpt/commit/ck_stage.h"
#include "libckpt/io/ck_fdpool.h"

#define CK_STAGE_MAX_OPEN 32

struct stage_file {
	struct ck_pooled pooled;
	char *path;
	_Atomic bool touched;	/* by this part */
	bool made;		/* by this part: its name must stay */
	uint8_t *map;		/* of the first 'mapped' bytes; NULL: none, or not yet */
	uint64_t mapped;
	bool no_map;		/* and never */
	pthread_mutex_t lock;	/* of 'writing' */
	pthread_cond_t left;	/* a writer has */
	uint32_t writing;	/* threads that write, without a map */
};

struct ck_stage {
	struct ck_stage_opts opts;	/* opts.dst is ours */
	struct ck_stamp_marks marks;	/* of opts.sources when it began */
	struct ck_commit paths;
	struct ck_record *rec;
	struct ck_fdpool *pool;
	struct stage_file **file;
	uint64_t nfiles, cap;
	bool made;		/* the partial folder is of our making */
	char *made_above;	/* the topmost folder above it that is, too; NULL = none */
	bool done;		/* dst is in place */
	pthread_mutex_t mapping;	/* around the making of maps; with 'maps' */
	bool maps;		/* large writes go through memory: ck_stage_map.c */
};

/* ck_stage_map.c */
void ck_stage_map_init(struct ck_stage *stage);
void ck_stage_map_release(struct ck_stage *stage);
/* True: the bytes are written.  False: write them as usual. */
bool ck_stage_map_write(struct ck_stage *stage, struct stage_file *f, uint64_t off, const void *p,
			size_t n);

#endif
