/*
 * ck_fs.h -- small things done to files and folders, with sentences for errors.
 */
#ifndef CK_FS_H
#define CK_FS_H

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_sys.h"

enum ck_fs_kind { CK_FS_NOTHING, CK_FS_FILE, CK_FS_DIR, CK_FS_OTHER };

/* What is at 'path' (links are followed; a broken link is CK_FS_OTHER). */
int ck_fs_kind(const char *path, enum ck_fs_kind *kind_out, struct ckpt_err *err);
/*
 * Call fn for every entry of a folder but "." and ".."; what it returns ends the walk.
 * A folder that cannot be listed to its end is a failure.
 */
typedef int (*ck_fs_each_fn)(void *arg, const char *dir, const char *name,
			     struct ckpt_err *err);
int ck_fs_each(const char *path, ck_fs_each_fn fn, void *arg, struct ckpt_err *err);
/* true in '*out' if the folder has no entries. */
int ck_fs_dir_is_empty(const char *path, bool *out, struct ckpt_err *err);
/* "X.zckpt-partial", ".X.zckpt-removed": what no reader takes for what X is. */
bool ck_fs_is_aside(const char *name);
/* The folder that holds 'path', as new memory (ck_free): "." for a bare name. */
char *ck_fs_parent(const char *path);
/* The nearest of 'path' and the folders above it that exists, as new memory; NULL: no memory. */
char *ck_fs_nearest(const char *path);
/*
 * Make the missing folders of a path.  '*top_out': the first that was made, new memory; left as it
 * is if none was.  On failure none stays.
 */
int ck_fs_make_folders(const char *path, bool sync, char **top_out, struct ckpt_err *err);
/* Remove 'path' and the folders above it down from 'top' (NULL: none), as far as they are empty. */
void ck_fs_remove_made(const char *path, const char *top);
/* CKPT_E_EXISTS if a folder cannot be made because a file is where it, or one above, belongs. */
int ck_fs_check_above(const char *path, struct ckpt_err *err);
/* mkdir() of 'path' failed: why nothing can be created in the folder above. */
int ck_fs_fail_make(struct ckpt_err *err, int errnum, const char *path);
/* Last component; lent from 'path'. */
const char *ck_fs_base(const char *path);
/* Remove a folder and the files in it; folders in it likewise, links are not followed.
 * What is not there is no error. */
int ck_fs_remove_tree(const char *path, struct ckpt_err *err);
/* Flags of ck_sys.rename(). */
#define CK_RENAME_NOREPLACE 1u
#define CK_RENAME_EXCHANGE 2u

/* Rename to where nothing is; 0 or -1 and errno, which is EEXIST if something is there. */
int ck_fs_move_new(const char *from, const char *to);
/* fsync the folder. */
int ck_fs_sync_dir(const char *path, enum ck_synced what, struct ckpt_err *err);
/* The same for it and every folder below. */
int ck_fs_sync_tree(const char *path, enum ck_synced what, struct ckpt_err *err);
/*
 * CKPT_E_NOSPACE if the file system of 'path' has less than 'bytes' left for us.  What the files
 * below the folder 'have' take, which may be missing, is some of them.  'path' may be missing too;
 * CKPT_E_EXISTS if it cannot be made because a file is in the way.
 */
uint64_t ck_fs_free(const char *path);	/* 0 = unknown; a missing folder: where it would be */
int ck_fs_need(const char *path, uint64_t bytes, const char *have, struct ckpt_err *err);
/* "a/b" + "c" -> "a/b/c", new memory. */
char *ck_fs_join(const char *dir, const char *name);

#endif
