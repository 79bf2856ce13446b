/*
 * ck_folder.h -- the files that belong to an open checkpoint: of a step everything in its
 * folder and below, of a folder of weights what lies in it, or the one file.
 */
#ifndef CK_FOLDER_H
#define CK_FOLDER_H

#include "libckpt/base/ck_map.h"
#include "libckpt/run/ck_ckpt.h"

#define CK_MANIFEST_NAME "zckpt-manifest.json"

struct ck_folder_file {
	const char *name;	/* within the folder, with '/' */
	const char *path;
	uint64_t bytes;
	uint32_t source;	/* of the index, or CK_NONE */
};

struct ck_folder {
	struct ck_arena arena;
	struct ck_folder_file *file;	/* sorted by name */
	uint64_t n, cap;
	const char *manifest;	/* where its manifest lies, or would */
};

#define CK_FOLDER_INIT { .file = NULL }

/*
 * Names that begin with a dot, the manifest and what unfinished runs left are passed over.
 * Several roots are laid over each other; the manifest is that of the first.
 */
int ck_folder_list(struct ck_folder *folder, const struct ckpt *ck, struct ckpt_err *err);
/* By name; NULL if there is none. */
const struct ck_folder_file *ck_folder_find(const struct ck_folder *folder, const char *name);
void ck_folder_release(struct ck_folder *folder);

#endif
