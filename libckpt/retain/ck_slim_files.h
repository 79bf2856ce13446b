/* ck_slim_files.h -- the files that a smaller copy of a checkpoint is made of. */
#ifndef CK_SLIM_FILES_H
#define CK_SLIM_FILES_H

#include "libckpt/run/ck_ckpt.h"

struct ck_slim_file {
	const char *name;	/* in the result */
	const char *path;
	uint64_t bytes;
	bool inside;		/* of the step or the weights, not beside them */
};

struct ck_slim_files {
	struct ck_arena arena;
	struct ck_slim_file *file;
	uint64_t n, cap;
	const char *tag;	/* folder of the step in the result, NULL = it has none */
	bool is_dir;
	bool manifest;		/* a zckpt-manifest.json is there, which is not listed */
};

/*
 * 'bare': everything in the step's folder, not under its name: the copy takes its place.
 * Other steps beside the step, 'latest', and what unfinished runs left are passed over.
 */
int ck_slim_files_list(struct ck_slim_files *files, const struct ckpt *ck, bool bare,
		       struct ckpt_err *err);
void ck_slim_files_release(struct ck_slim_files *files);

/* Is 'ck' a step, in one of the three forms? */
bool ck_slim_is_step(const struct ckpt *ck);

#endif
