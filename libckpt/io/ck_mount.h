/*
 * ck_mount.h -- an archive as a folder: its members are listed and opened under paths that begin
 * with the archive's own ("run.tar.zst/global_step5/...").
 *
 * A driver of archives fills a table of files and mounts it on a pool of files; then the
 * functions ck_look_* here and ck_src_open() find them there.  With a pool that has no mount, or
 * NULL, they are what ck_fs.h and ck_tree.h have.  So whoever reads a checkpoint looks through
 * its pool.
 */
#ifndef CK_MOUNT_H
#define CK_MOUNT_H

#include "libckpt/io/ck_fs.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/io/ck_tree.h"

struct ck_mount;

struct ck_mount_file {
	const char *name;		/* within the archive: "a/b", never "/a", "..", "a//b" */
	uint64_t bytes;
	uint64_t at;			/* where it begins, as read() knows it */
	int64_t mtime_ns;
	const struct ck_mount *mount;
};

/* All lent, kept until free() is called. */
struct ck_mount {
	const char *at;			/* path of the archive */
	const char *root;		/* path in it that is meant when it is given */
	const struct ck_mount_file *file;	/* sorted by strcmp() */
	uint64_t n;
	void *arg;
	/* Bytes [at, at + n) of the archive's contents.  Any threads. */
	int (*read)(void *arg, uint64_t at, void *buf, size_t n, struct ckpt_err *err);
	/* Whether the archive itself is in order, every byte of it.  Codes as of reading. */
	int (*check)(void *arg, uint32_t threads, struct ckpt_err *err);
	void (*free)(struct ck_mount *mount);
};

/* 'path' is the archive or lies in it; false without a mount. */
bool ck_mount_holds(const struct ck_mount *mount, const char *path);
/* A file in it.  CKPT_E_NOTFOUND; CKPT_E_FORMAT for a folder. */
int ck_mount_open(const struct ck_mount *mount, const char *path, struct ck_src **src_out,
		  struct ckpt_err *err);
/* "at" or "at/NAME" of the only entry at the top, in new memory. */
char *ck_mount_root(const char *at, const struct ck_mount_file *file, uint64_t n);

/* As ck_fs_kind(); '*bytes_out' (may be NULL) is a file's size. */
int ck_look_kind(const struct ck_fdpool *pool, const char *path, enum ck_fs_kind *kind_out,
		 uint64_t *bytes_out, struct ckpt_err *err);
/* As ck_tree_list(). */
int ck_look_list(const struct ck_fdpool *pool, struct ck_tree *tree, const char *const *root,
		 size_t nroots, const char *sub, uint64_t max_entries, struct ckpt_err *err);
/* As ck_fs_each(). */
int ck_look_each(const struct ck_fdpool *pool, const char *path, ck_fs_each_fn fn, void *arg,
		 struct ckpt_err *err);
/* As ck_file_read(). */
int ck_look_read(const struct ck_fdpool *pool, const char *path, uint64_t max, char **data_out,
		 uint64_t *len_out, struct ckpt_err *err);

#endif
