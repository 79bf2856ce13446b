/*
 * en_source.h -- rows of tokens: files of tokens, JSON lines, safetensors, or made up.
 *
 * Every row comes as 'tokens' ids and as many labels.  labels[t + 1] is the target of position t
 * and -100 counts as nothing, as in transformers; without labels in the data they are the ids.  A
 * row of fewer tokens is filled at its end with pad_id, labelled -100, which changes no other
 * position of a causal model.  The formats, and what of them is refused: docs/ztrain/data.md.
 *
 * Packed rows hold documents one after the other.  starts[t] is where the document of token t
 * begins in the row; padding at the end is a document of its own.
 *
 * Reading is by position, so nothing is held in memory but, of JSON lines, 24 bytes a line; a
 * file that changes or shrinks while it is read is an error, not a crash.  One thread at a time.
 */
#ifndef EN_SOURCE_H
#define EN_SOURCE_H

#include "libckpt/base/ck_base.h"

#define EN_NO_LABEL (-100)
#define EN_MAX_ROW (1u << 24)	/* tokens of a row */
#define EN_MAX_LINE ((uint64_t)64 << 20)	/* bytes of a line */

enum en_source_kind {
	EN_SOURCE_U16 = 1, EN_SOURCE_U32,	/* tokens of 2 or 4 bytes, little endian */
	EN_SOURCE_JSONL, EN_SOURCE_SAFETENSORS,
	EN_SOURCE_SYNTHETIC,		/* random tokens, uniform over the vocabulary */
};

struct en_source_opts {
	/* 0 = by the name: .jsonl .ndjson .json, .safetensors, .u32, .u16 .bin .tok */
	enum en_source_kind kind;
	uint32_t vocab;		/* ids are 0 to vocab - 1; at least 1, below 2^31 */
	/* Of a row, 2 to EN_MAX_ROW; 0 = as long as the longest (JSON lines, safetensors). */
	uint32_t tokens;
	/*
	 * Token files and packed lines: rows begin tokens - 1 apart instead of tokens, so that the
	 * last token of a row is the first of the next and every token but the first is a target
	 * once.
	 */
	bool overlap;
	bool pack;		/* JSON lines: one after the other without gaps, cut into rows */
	/* JSON lines: as many whole lines in a row as fit, each a document of its own */
	bool pack_documents;
	bool cut; /* rows that are longer lose their end; otherwise they are refused */
	int32_t pad_id;		/* below vocab */
	const char *ids_name, *labels_name;	/* safetensors; NULL = input_ids, labels */
	uint64_t rows, seed;	/* synthetic */
};

struct en_source_info {
	enum en_source_kind kind;
	const char *path;	/* lent; "synthetic" */
	uint64_t rows;
	uint32_t tokens;	/* of each row */
	uint64_t unused;	/* tokens at the end that fill no row */
	uint64_t padded, cut;	/* rows, of JSON lines and safetensors */
	bool has_labels;	/* the data says them */
	bool packed;		/* rows may hold more than one document */
	char fingerprint[33];	/* hexadecimal: of what, docs/ztrain/data.md */
};

struct en_source;

/*
 * Cost: of JSON lines the whole file is read and checked; of the others a few rows.
 *
 *	CKPT_E_USAGE        options that contradict each other; a name of no known kind
 *	CKPT_E_NOTFOUND, CKPT_E_IO, CKPT_E_NOMEM
 *	CKPT_E_TRUNCATED    an empty file, or fewer tokens than a row; bytes that are no whole token
 *	CKPT_E_CORRUPT      no JSON; a label, mask or tensor that does not fit its row
 *	CKPT_E_MISMATCH     an id that the vocabulary does not have (with row and position), a row
 *	                    longer than 'tokens', tokens of another size than stated
 *	CKPT_E_UNSUPPORTED  a mask with gaps or padding in front, positions that skip
 *	CKPT_E_LIMIT        a line above EN_MAX_LINE, a row above EN_MAX_ROW
 */
int en_source_open(struct en_source **src_out, const char *path,
		   const struct en_source_opts *opts, struct ckpt_err *err);
/* NULL is fine. */
void en_source_close(struct en_source *src);

void en_source_info_get(const struct en_source *src, struct en_source_info *out);

/*
 * Row number 'row' into ids[tokens], labels[tokens] and, unless it is NULL, starts[tokens].  On
 * failure they are of no use; the errors above, CKPT_E_USAGE past the last row, and CKPT_E_MISMATCH
 * for a file that has changed.
 */
int en_source_row(struct en_source *src, uint64_t row, int32_t *ids, int32_t *labels,
		  int32_t *starts, struct ckpt_err *err);

#endif
