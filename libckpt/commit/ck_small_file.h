/*
 * ck_small_file.h -- one small file that is whole or not there: it grows under another name
 * beside its own and is renamed.  For what is written by one process in one go; results of runs
 * grow in a partial folder (ck_stage.h).
 *
 *	begin -> write ... -> place
 *	                   or drop at any time
 */
#ifndef CK_SMALL_FILE_H
#define CK_SMALL_FILE_H

#include "libckpt/base/ck_base.h"

struct ck_small_file {
	char *path;	/* where it goes */
	char *half;	/* where it grows: path + suffix; NULL = nothing was begun */
	int fd;
};

/* What a killed run left under the other name is removed. */
int ck_small_file_begin(struct ck_small_file *h, const char *path, const char *suffix,
			struct ckpt_err *err);
int ck_small_file_write(struct ck_small_file *h, const void *p, size_t n, struct ckpt_err *err);
/*
 * Sync, rename, sync the folder.  Without 'force' what has come to stand there is CKPT_E_EXISTS.
 * After a failure the file is not there, or as it was, save after one to sync the folder.
 */
int ck_small_file_place(struct ck_small_file *h, bool force, enum ckpt_sync sync,
			struct ckpt_err *err);
/* Removes what was begun and not placed; releases. */
void ck_small_file_drop(struct ck_small_file *h);

#endif
