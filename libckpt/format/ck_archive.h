/*
 * ck_archive.h -- the table of a driver of archives, and what it is given to pack and to unpack.
 */
#ifndef CK_ARCHIVE_H
#define CK_ARCHIVE_H

#include "libckpt/base/ck_hash.h"
#include "libckpt/io/ck_fdpool.h"

/* A file of the pack to be, in its order. */
struct ck_pack_file {
	const char *name;	/* in the archive */
	const char *path;	/* where it is; NULL = its bytes are 'text' */
	const char *text;
};

struct ck_pack_want {
	const struct ck_pack_file *file;
	uint64_t n;
	struct ck_fdpool *pool;		/* to read through */
	const char *dst;		/* without slashes at its end; NULL = to 'fd', in order */
	int fd;
	unsigned flags;			/* CKPT_WRITE_FORCE, _RESTART, _DRY_RUN */
	int level;			/* zstd's */
	const struct ckpt_run_opts *run;	/* complete */
	const struct ckpt_limits *limits;
	/* Bytes of file[i] as read, by any thread; then, before the pack is whole, once. */
	int (*saw)(void *arg, uint64_t file, uint64_t off, const void *p, size_t n,
		   struct ckpt_err *err);
	int (*check)(void *arg, struct ckpt_err *err);
	void *arg;
};

struct ck_unpack_want {
	const char *path;		/* of the archive */
	struct ck_fdpool *pool;
	const char *dst;
	unsigned flags;
	const struct ckpt_run_opts *run;
	const struct ckpt_limits *limits;
};

struct ck_pack_done {
	uint64_t files;
	uint64_t bytes;		/* of the files */
	uint64_t archive;	/* of the archive */
	uint64_t to_write, to_read, free;	/* of a dry run, as in struct ckpt_packed */
	uint32_t threads;
	const char *kind;	/* "pack", "tar", "tar.gz", "tar.zst", "zip" */
};

struct ck_input;

/* Files in one file.  It reads no tensors: the drivers of formats see what is in there. */
struct ck_archive_format {
	/* Bits of evidence, as struct ck_format has it; 0 = not ours. */
	int (*probe)(const struct ck_input *in);
	/* The table of files goes to in->pool (ck_mount.h). */
	int (*mount)(const struct ck_input *in, struct ckpt_err *err);
	int (*pack)(const struct ck_pack_want *want, struct ck_pack_done *done_out,
		    struct ckpt_err *err);
	int (*unpack)(const struct ck_unpack_want *want, struct ck_pack_done *done_out,
		      struct ckpt_err *err);
};

#endif
