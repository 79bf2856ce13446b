/*
 * en_source_priv.h -- between the kinds of sources.
 */
#ifndef EN_SOURCE_PRIV_H
#define EN_SOURCE_PRIV_H

#include "engine/data/en_source.h"

/* A row before it is filled: n ids, and labels. */
struct en_raw {
	int32_t *ids, *labels;
	uint64_t n, cap;	/* cap of both */
	bool has_labels;
};

struct en_source_ops {
	/* opts and path are set; fills info and 'own' */
	int (*open)(struct en_source *src, struct ckpt_err *err);
	void (*close)(struct en_source *src);
	/* ids[tokens], labels[tokens] */
	int (*row)(struct en_source *src, uint64_t row, int32_t *ids, int32_t *labels,
		   struct ckpt_err *err);
};

struct en_source {
	struct en_source_opts opts;
	struct en_source_info info;
	const struct en_source_ops *ops;
	char *path;
	bool guessed;		/* a name that leaves the size of a token open */
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
		int32_t *labels);

/*
 * Rows of 'total' tokens that follow each other: sets info.rows and info.unused.  CKPT_E_TRUNCATED
 * if there are fewer than one row.
 */
int en_source_cut(struct en_source *src, uint64_t total, struct ckpt_err *err);
/* The first token of a row of such. */
uint64_t en_source_first(const struct en_source *src, uint64_t row);

#endif
