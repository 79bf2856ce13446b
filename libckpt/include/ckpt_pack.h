/*
 * ckpt_pack.h -- a step as one file.  Part of <ckpt.h>.
 *
 * A pack is a .tar.zst that tar can extract, with an index at its end, so that one tensor is read
 * without the rest (docs/formats/pack.md).  Every call that opens a checkpoint takes one:
 *
 *	struct ckpt_pack_opts opts = { .size = sizeof(opts) };
 *
 *	ckpt_pack(ck, "step300.tar.zst", &opts, NULL, &err);
 *	...
 *	const char *path = "step300.tar.zst";
 *
 *	ckpt_open(&path, 1, NULL, &packed, &err);
 */
#ifndef CKPT_PACK_H
#define CKPT_PACK_H

#include <ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ckpt_pack_opts {
	size_t size;		/* sizeof(struct ckpt_pack_opts) */
	const struct ckpt_run_opts *run;	/* threads compress */
	int level;		/* zstd's, 1 to 19; 0 = 3 */
	int out_fd;		/* with 'dst' "-": a descriptor to write to, in order */
	unsigned flags;		/* CKPT_WRITE_FORCE, _RESTART, _DRY_RUN, _STRICT */
};

struct ckpt_unpack_opts {
	size_t size;		/* sizeof(struct ckpt_unpack_opts) */
	const struct ckpt_run_opts *run;	/* a pack is read by 'threads', others by one */
	unsigned flags;		/* CKPT_WRITE_FORCE, _RESTART, _DRY_RUN */
	const struct ckpt_limits *limits;	/* NULL = defaults */
};

/* What was packed or unpacked.  It has no pointers and nothing to free. */
struct ckpt_packed {
	char kind[16];		/* "pack", "tar", "tar.gz", "tar.zst", "zip" */
	uint64_t files;		/* in the archive */
	uint64_t bytes;		/* of the files, as they are outside of it */
	uint64_t archive_bytes;	/* 0 in a dry run of packing */
	/* With CKPT_WRITE_DRY_RUN; of a pack the most that it can take (it is compressed). */
	uint64_t would_write_bytes, would_read_bytes;
	uint64_t free_bytes;	/* on the destination's disk; 0 = unknown, or a stream */
	uint32_t threads;
	double seconds;
};

/*
 * 1 if this build reads and writes packs, else 0: it was built without libarchive and libzstd
 * (PACK=0).  Then ckpt_pack() and ckpt_unpack() are CKPT_E_UNSUPPORTED, and ckpt_open() of a pack
 * is CKPT_E_FORMAT.
 */
CKPT_API int ckpt_has_packs(void);

/*
 * Write the files of 'ck' to a pack (docs/formats/pack.md), a .tar.zst with an index: of a step its
 * folder; if it was found in the folder above, also the files beside it and a 'latest' that names
 * it; of a folder of weights that folder; or the one file.  A manifest is included, leftovers of
 * unfinished runs are not.  'dst' is a file, or "-" for opts->out_fd.
 *
 * The pack appears complete or not at all: it grows in "<dst>.zckpt-partial", is read back there
 * with every hash compared, and is then renamed.  To a stream each frame is decoded again before
 * it is written; do not use what was sent before a failure.  The files' own sums (CRC-32s of
 * archives, sums of a native step) are compared with the bytes that were packed.
 *
 * Cost: every file is read once, the pack is written once and read once.  Memory: a few MiB for
 * each thread, since a frame holds 1 MiB of content.  '*packed_out' (may be NULL) is filled on
 * success.
 *
 * Returns 0 or the negative of
 *	CKPT_E_UNSUPPORTED  this build has no packs; a name that is not UTF-8
 *	CKPT_E_USAGE     'dst' is empty or ends in a slash; a level outside 1 to 19
 *	CKPT_E_MISMATCH  a file changed meanwhile; a finding of 'ck' that is an error (its own code)
 *	CKPT_E_EXISTS, CKPT_E_BUSY, CKPT_E_NOTFOUND, CKPT_E_NOSPACE, CKPT_E_CANCELED, CKPT_E_IO, ...
 *	                 as ckpt_convert()
 */
CKPT_API int ckpt_pack(struct ckpt *ck, const char *dst, const struct ckpt_pack_opts *opts,
		       struct ckpt_packed *packed_out, struct ckpt_err *err);

/*
 * Write the files of a pack, or of any .tar, .tar.gz, .tar.zst or .zip, to a folder, completely or
 * not at all.  If the archive holds one folder, 'dst' may exist and lack that folder
 * (CKPT_WRITE_FORCE replaces it if 'dst' has it); 'latest' is changed last.  Hashes of frames and
 * files of a pack are compared.
 *
 * No entry is trusted: all names, kinds and sizes are checked before the first file is made, so an
 * archive that is refused leaves nothing.  A pack has these in its index; any other archive is read
 * twice for it, by one thread.
 *
 * Returns 0 or the negative of
 *	CKPT_E_UNSAFE    a name that leads out of the folder or is not UTF-8, a link, a device, a
 *	                 fifo, a name that occurs twice: nothing is written
 *	CKPT_E_LIMIT     more files, or more bytes for those of the archive, than the limits allow
 *	CKPT_E_FORMAT    the file is none of these
 *	CKPT_E_CORRUPT, CKPT_E_TRUNCATED, CKPT_E_UNSUPPORTED, and those of ckpt_pack()
 */
CKPT_API int ckpt_unpack(const char *path, const char *dst, const struct ckpt_unpack_opts *opts,
			 struct ckpt_packed *packed_out, struct ckpt_err *err);

#ifdef __cplusplus
}
#endif
#endif
