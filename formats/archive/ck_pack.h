/*
 * ck_pack.h -- a pack (docs/formats/pack.md): its index, its tar headers, reading by position.
 */
#ifndef CK_PACK_H
#define CK_PACK_H

#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_hash.h"
#include "libckpt/base/ck_mem.h"
#include "libckpt/format/ck_archive.h"
#include "libckpt/io/ck_src.h"

#define CK_PACK_FRAME ((uint64_t)1 << 20)	/* content of a frame that we write */
#define CK_PACK_FRAME_MAX ((uint64_t)16 << 20)	/* that we read */
#define CK_PACK_TRAILER 16u			/* bytes behind a zstd frame */
#define CK_TAR_BLOCK 512u
#define CK_TAR_END 1024u			/* zeros behind the last file */

struct ck_pack_frame {
	uint64_t off;		/* in the pack */
	uint64_t at;		/* its content, in the tar stream */
	uint64_t hash;		/* XXH3-64 of the content */
	uint32_t bytes;		/* with the trailer */
	uint32_t content;
};

struct ck_pack_entry {
	const char *name;
	uint64_t at;		/* in the tar stream */
	uint64_t bytes;
	int64_t mtime_ns;
	struct ck_hash128 hash;
};

struct ck_pack_index {
	struct ck_arena arena;
	struct ck_pack_frame *frame;
	uint64_t nframes;
	struct ck_pack_entry *entry;
	uint64_t n;
	uint64_t content;	/* bytes of the tar stream */
};

/* ---- names and the index ---- */

/* CKPT_E_UNSAFE if a file of that name may not be made below a folder. */
int ck_arc_name_check(const char *name, size_t n, const char *where, struct ckpt_err *err);
/* The same for all of them together: none twice, none as file and as folder. */
int ck_arc_names_check(const char *const *name, uint64_t n, const char *where,
		       struct ckpt_err *err);

/* The two frames at the end of a pack. */
int ck_pack_index_write(const struct ck_pack_index *ix, struct ck_buf *out, struct ckpt_err *err);
/*
 * '*found_out' is false, and nothing else happens, if the last bytes are not those of a pack.
 * CKPT_E_CORRUPT, CKPT_E_TRUNCATED, CKPT_E_LIMIT, CKPT_E_UNSAFE, CKPT_E_UNSUPPORTED.
 */
int ck_pack_index_read(struct ck_src *src, const struct ckpt_limits *limits,
		       struct ck_pack_index *ix, bool *found_out, struct ckpt_err *err);
void ck_pack_index_release(struct ck_pack_index *ix);

/* The trailer of a zstd frame of 'n' bytes, to 'to'. */
void ck_pack_trailer_put(uint8_t *to, const uint8_t *frame, size_t n);
/*
 * '*n_out' of the 'bytes' bytes of a frame are the zstd frame, which the trailer behind it fits.
 * Packs of older versions have none.  NULL, or what is wrong.
 */
const char *ck_pack_trailer_check(const uint8_t *frame, size_t bytes, size_t *n_out);

/* ---- tar ---- */

struct ck_tar_file {
	const char *name;
	uint64_t bytes;
	int64_t mtime_ns;
	bool executable;
};

static inline uint64_t ck_tar_pad(uint64_t bytes)
{
	return (CK_TAR_BLOCK - bytes % CK_TAR_BLOCK) % CK_TAR_BLOCK;
}

/* Append the header of a file. */
int ck_tar_header(const struct ck_tar_file *file, struct ck_buf *out, struct ckpt_err *err);

/* What of the tar stream is no file: what lies before each file, and behind the last one. */
struct ck_tar_gaps {
	uint64_t *at;		/* of gap i in the tar stream, i = 0..n */
	uint64_t *pos;		/* of gap i in 'bytes'; pos[n + 1] = bytes of all */
	uint8_t *bytes;
};

int ck_tar_gaps_init(struct ck_tar_gaps *gaps, const struct ck_pack_index *ix, uint64_t limit,
		     struct ckpt_err *err);
void ck_tar_gaps_release(struct ck_tar_gaps *gaps);
/* Do the headers say what the index says?  CKPT_E_CORRUPT. */
int ck_tar_check(const struct ck_pack_index *ix, const struct ck_tar_gaps *gaps,
		 const char *where, struct ckpt_err *err);

/* For libarchive to read and write names as UTF-8, whatever the process has set. */
struct ck_tar_locale {
	void *ours, *before;
};
void ck_tar_locale_begin(struct ck_tar_locale *l);
void ck_tar_locale_end(struct ck_tar_locale *l);

/* ---- reading ---- */

struct ck_pack;

/* 'src' is lent.  '*pack_out' is NULL if it is no pack.  Codes of the index. */
int ck_pack_open(struct ck_src *src, const struct ckpt_limits *limits, struct ck_pack **pack_out,
		 struct ckpt_err *err);
void ck_pack_close(struct ck_pack *pack);
const struct ck_pack_index *ck_pack_index(const struct ck_pack *pack);
/* Bytes of the tar stream; any threads; a few decoded frames are kept.  'pack' is a ck_pack. */
int ck_pack_read(void *pack, uint64_t at, void *buf, size_t n, struct ckpt_err *err);

/* Decode and check a frame; 'content' has room for it.  Any threads. */
int ck_pack_frame(struct ck_pack *pack, uint64_t frame, uint8_t *content, struct ckpt_err *err);

/*
 * Decode all of it on a few threads, and check the hash of each frame and file and the headers.
 * 'sink' (may be NULL) is given every byte of every file, by any thread.
 */
typedef int (*ck_pack_sink_fn)(void *arg, uint64_t entry, uint64_t off, const void *p, size_t n,
			       struct ckpt_err *err);
int ck_pack_walk(struct ck_pack *pack, const struct ckpt_run_opts *run, uint64_t limit,
		 ck_pack_sink_fn sink, void *arg, struct ckpt_err *err);

/* ---- the verbs ---- */

struct ck_input;

int ck_pack_mount(const struct ck_input *in, struct ckpt_err *err);
int ck_pack_make(const struct ck_pack_want *want, struct ck_pack_done *done_out,
		 struct ckpt_err *err);
int ck_unpack(const struct ck_unpack_want *want, struct ck_pack_done *done_out,
	      struct ckpt_err *err);
int ck_unpack_plain(const struct ck_unpack_want *want, struct ck_src *src,
		    struct ck_pack_done *done_out, struct ckpt_err *err);

#endif
