/*
 * en_source_priv.h -- between the kinds of sources.
 */
#ifndef EN_SOURCE_PRIV_H
#define EN_SOURCE_PRIV_H

#include "engine/data/en_source.h"

/*
 * A row before it is filled: n ids, labels, and where the document of each begins; what the data
 * says of the latter (en_raw_seams()).
 */
struct en_raw {
	int32_t *ids, *labels, *starts;
	int32_t *positions, *mask;
	uint64_t n, cap;	/* cap of all */
	bool has_labels, has_positions, has_mask;
};

struct en_source_ops {
	/* opts and path are set; fills info and 'own' */
	int (*open)(struct en_source *src, struct ckpt_err *err);
	void (*close)(struct en_source *src);
	/* ids[tokens], labels[tokens], starts[tokens]; starts are 0 before the call */
	int (*row)(struct en_source *src, uint64_t row, int32_t *ids, int32_t *labels,
		   int32_t *starts, struct ckpt_err *err);
};

struct en_source {
	struct en_source_opts opts;
	struct en_source_info info;
	const struct en_source_ops *ops;
	char *path;
	bool guessed;		/* a name that leaves the size of a token open */
	int32_t *starts;	/* [tokens], of callers that do not ask for them */
	void *own;		/* of the kind */
};

extern const struct en_source_ops en_source_bin, en_source_jsonl, en_source_st;

/* Room for n values in both arrays. */
int en_raw_room(struct en_raw *raw, uint64_t n, struct ckpt_err *err);
void en_raw_release(struct en_raw *raw);

/*
 * Ids and labels of 'n' values are in the vocabulary: CKPT_E_MISMATCH with 'row' (its number) and
 * the position.  'what' is "row" or "line".
 */
int en_raw_check(const struct en_source *src, const int32_t *ids, const int32_t *labels,
		 uint64_t n, const char *what, uint64_t row, struct ckpt_err *err);
/* The row of src->info.tokens, cut or filled. */
void en_raw_fit(const struct en_source *src, const struct en_raw *raw, int32_t *ids,
		int32_t *labels, int32_t *starts);

/*
 * Fills raw->starts from what the data says of a row's documents, and takes padding off its end
 * (raw->n).  Where the data has no labels, the first token of a document is no target.
 *
 *	positions	0, 1, 2, ..., from 0 again where a document begins
 *	mask		1 for text, then 0 for padding; or 1 for the first document, 2 for the
 *			second, ..., then 0
 *
 * '*documents_out' is how many there are, at least 1.
 *	CKPT_E_UNSUPPORTED  padding that is not at the end; positions that skip
 *	CKPT_E_CORRUPT      no token is left; mask and positions disagree
 * 'what' and 'row' as in en_raw_check().
 */
int en_raw_seams(const struct en_source *src, struct en_raw *raw, const char *what, uint64_t row,
		 uint64_t *documents_out, struct ckpt_err *err);

/*
 * Rows of 'total' tokens that follow each other: sets info.rows and info.unused.  CKPT_E_TRUNCATED
 * if there are fewer than one row.
 */
int en_source_cut(struct en_source *src, uint64_t total, struct ckpt_err *err);
/* The first token of a row of such. */
uint64_t en_source_first(const struct en_source *src, uint64_t row);

#endif
