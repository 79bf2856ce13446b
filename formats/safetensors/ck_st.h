/*
 * ck_st.h -- safetensors files (docs/formats/safetensors.md): header in and out.
 */
#ifndef CK_ST_H
#define CK_ST_H

#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_hash.h"
#include "libckpt/format/ck_findings.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/tensor/ck_index.h"

/* Keys of sums in the metadata (docs/formats/safetensors.md, "Sums"). */
#define CK_ST_HEADER_KEY "zckpt.header"
#define CK_ST_SUMS_KEY "zckpt.sums"
#define CK_ST_FILE_KEY "zckpt.file."
#define CK_ST_DIGEST_KEY "zckpt.digest."

/* Keys of torch's HuggingFaceStorageWriter. */
#define CK_ST_PLACES_KEY "DCP_SHARDING_INFO"
#define CK_ST_VERSION_KEY "DCP_VERSION"

struct ck_st_tensor {
	const char *name;	/* decoded, lent by the header; no NUL inside */
	uint64_t name_len;
	enum ckpt_dtype dtype;
	uint32_t ndim;
	const uint64_t *shape;
	uint64_t numel;
	uint64_t off;		/* byte in the file */
	uint64_t bytes;
	const uint64_t *place;	/* with is_piece: where it begins in the full tensor, [ndim] */
};

/* What a header does that the format does not like; ck_st_index() reports it. */
#define CK_ST_SPACE_BEFORE 1u	/* white space before the brace */
#define CK_ST_META_NULL 2u	/* "__metadata__": null */
#define CK_ST_UNKNOWN_FIELD 4u	/* a field beside dtype, shape, data_offsets */
#define CK_ST_NO_FORMAT 8u	/* __metadata__ lacks "format" */
#define CK_ST_HEADER_CHANGED 16u	/* it is not the one that its own hash is of */

struct ck_st {
	struct ck_arena arena;	/* names, shapes, metadata */
	struct ck_st_tensor *tensor;	/* in the order of their data */
	uint64_t ntensors;
	struct ck_fact *meta;		/* __metadata__, in the order of the file */
	uint64_t nmeta;
	uint64_t data;			/* byte where the buffer begins */
	unsigned notes;			/* CK_ST_* */
	bool is_piece;			/* it has DCP_SHARDING_INFO */
	bool at_start;			/* and each tensor begins where the full one does */
	const char *sums;		/* 32 digits per tensor, NULL = none that holds */
	const char *unknown_in;		/* the first tensor with an unknown field */
	const char *name;		/* of the source */
	struct ck_hash128 fingerprint;	/* of the header bytes */
};

/* The format's own bound of the header's length. */
#define CK_ST_MAX_HEADER 100000000u

/* True if the first bytes (at least 9) can be a safetensors file of 'size' bytes. */
bool ck_st_probe(const uint8_t *head, size_t n, uint64_t size);

/*
 * Read and check the header of 'src': every rule of docs/formats/safetensors.md (no
 * hole, no overlap, buffer exactly covered, no duplicate name).  'src' need not stay open
 * behind the call.  Cost: the header is read once; no byte of the buffer is.
 *	CKPT_E_FORMAT       not this format: a git-lfs pointer, a zip, text, a length beyond
 *	                    CK_ST_MAX_HEADER
 *	CKPT_E_TRUNCATED    the header or the buffer ends early
 *	CKPT_E_CORRUPT      JSON, fields, names, shapes or offsets break a rule
 *	CKPT_E_UNSUPPORTED  a dtype that is none of the format
 *	CKPT_E_LIMIT        header, depth, nodes or dimensions beyond 'limits'
 *	CKPT_E_NOMEM, CKPT_E_IO
 */
int ck_st_open(struct ck_src *src, const struct ckpt_limits *limits, struct ck_st **st_out,
	       struct ckpt_err *err);
void ck_st_close(struct ck_st *st);

/*
 * 0 if a tensor name has no control character but the tab (which real files have), else
 * the first of them; NUL inside 'n' bytes counts as 0x100.
 */
unsigned ck_st_name_fault(const char *name, uint64_t n);

/* Of "shard-00001-model-00002-of-00003.safetensors"; of "model-00002-of-00003..." rank is 0. */
struct ck_st_shard {
	uint64_t rank, number, of;
};

/* What a file of torch's HuggingFaceStorageWriter is called; false for any other name. */
bool ck_st_shard_read(const char *name, struct ck_st_shard *out);

/*
 * ck_st_open()'s: fill 'place' of all tensors.  CKPT_E_CORRUPT if DCP_SHARDING_INFO and the
 * tensors contradict each other, CKPT_E_UNSUPPORTED for another DCP_VERSION, codes of the JSON.
 */
int ck_st_read_places(struct ck_st *st, const struct ckpt_limits *limits, struct ckpt_err *err);

/* Findings of odd names and CK_ST_* notes, as ck_st_index() gives them. */
void ck_st_note(const struct ck_st *st, struct ck_findings *findings);

/*
 * All tensors as CKPT_ROLE_PLAIN with state 'state'; metadata as facts "metadata.KEY" (a key
 * that an earlier file gave keeps its value); the fingerprint goes into the index's.  A name
 * that is there already gives the finding TENSOR_DUPLICATE and stays as it was.  Odd names
 * and CK_ST_* (but NO_FORMAT, which matters in model folders only) become findings.  Facts
 * are cut where ck_index_add_fact() cuts; st->meta is whole.  Keys of sums are no facts: sums of
 * tensors are stated ones of the index, and a header that its hash does not fit is the finding
 * HEADER_SUM_WRONG; then no sum of the file counts.
 * CKPT_E_UNSUPPORTED for a piece of a distributed checkpoint (DCP_SHARDING_INFO), unless the file's
 * name and all places say that its tensors are whole; CKPT_E_LIMIT, CKPT_E_NOMEM.
 */
int ck_st_index(const struct ck_st *st, uint32_t source, const char *state,
		struct ck_index *ix, struct ck_findings *findings, struct ckpt_err *err);

/* What 'st' says of files beside it, to the index. */
int ck_st_index_beside(const struct ck_st *st, uint32_t source, struct ck_index *ix,
		       struct ckpt_err *err);

/*
 * Write a header.  Add tensors in the order in which their bytes follow each other,
 * then finish: offsets are assigned without gaps, __metadata__ comes first with its keys
 * sorted, the text is padded with spaces so that the buffer begins at a multiple of 8 (of
 * 'align' if larger: a power of two up to 4096).  The result is the 8 length bytes and the
 * text.  Use the reference order (widest dtype first, then name): ck_st_order().
 */
struct ck_st_writer;
int ck_st_writer_new(struct ck_st_writer **w_out, struct ckpt_err *err);
/* A string for __metadata__, both copied.  CKPT_E_USAGE if the key was given before or a text
 * is not UTF-8. */
int ck_st_writer_meta(struct ck_st_writer *w, const char *key, const char *value,
		      struct ckpt_err *err);
/* '*off_out' is the tensor's offset in the buffer.  CKPT_E_UNSUPPORTED for a dtype that
 * safetensors lacks, a 0-dim CKPT_F4X2 (any other is written as F4 with its last dimension
 * doubled) and a name that this library's reader refuses; CKPT_E_USAGE for a name given
 * before. */
int ck_st_writer_tensor(struct ck_st_writer *w, const char *name, enum ckpt_dtype dtype,
			const uint64_t *shape, uint32_t ndim, uint64_t *off_out,
			struct ckpt_err *err);
/*
 * '*header_out' (ck_free) and its length.  If 'fill_key' is not NULL a metadata value
 * of that key was added before; '*fill_off_out' becomes the byte in the header where the
 * value's text begins, so that it can be overwritten later (the value must need no escapes).
 * CKPT_E_LIMIT if the text exceeds CK_ST_MAX_HEADER, CKPT_E_USAGE for 'align' or 'fill_key',
 * CKPT_E_NOMEM.
 */
int ck_st_writer_finish(struct ck_st_writer *w, uint32_t align, char **header_out,
			uint64_t *len_out, const char *fill_key, uint64_t *fill_off_out,
			struct ckpt_err *err);
/* After finish: the byte in the header where the value of a metadata key begins, to be
 * overwritten later.  false if there is no such key or its value needs escapes. */
bool ck_st_writer_value_at(const struct ck_st_writer *w, const char *key, uint64_t *off_out);
void ck_st_writer_free(struct ck_st_writer *w);
/* <0, 0, >0: order of (dtype, name) as the reference writer sorts. */
int ck_st_order(enum ckpt_dtype a, const char *a_name, enum ckpt_dtype b, const char *b_name);

#endif
