/* The format corpus: one walk over its manifest, and what judging a row of it needs whatever
 * the format. The corpus is $ZCKPT_FIXTURES/formats, a row an object of its manifest.json. */
#ifndef T_CORPUS_H
#define T_CORPUS_H

#include <stdbool.h>
#include <stddef.h>

#include <cjson/cJSON.h>

#include "libckpt/format/ck_findings.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/tensor/ck_index.h"

/* One file or folder, and what a driver made of it. */
struct t_corpus_opened {
	struct ck_input in;
	struct ck_index ix;
	struct ck_findings f;
	struct ckpt_err err;	/* with rc: what the driver said, set by the test */
	int rc;
};

/* For a row of a format that the library refuses by name. */
#define T_CORPUS_SKIPPED "skipped"

/* What the library has made of a row. */
struct t_corpus_verdict {
	/* A class of the manifest: "valid", "must-warn", "must-refuse"; or T_CORPUS_SKIPPED. */
	const char *got;
	char said[1400];	/* what was read, for the message */
};

/*
 * A row for which the library has not the manifest's class, but the other one that is acceptable
 * ('alt'), and why; lists of them end with a file of NULL.
 */
struct t_corpus_other {
	const char *file, *reason;
};

/* NULL if the row is right, else what is wrong with it, a string that nobody frees. */
typedef const char *t_corpus_judge(const cJSON *row, struct t_corpus_verdict *v);

/* What a row may take: bytes asked of the library's table at a time, and seconds. */
#define T_CORPUS_BYTES ((size_t)64 << 20)
#define T_CORPUS_SECONDS 10

/* Reads the manifest, or ends the program. False, with a message, without ZCKPT_FIXTURES:
 * the test is to exit with 77. t_corpus_unload() frees the manifest and all rows. */
bool t_corpus_load(void);
void t_corpus_unload(void);
/* The list of rows; it stays the corpus's. */
const cJSON *t_corpus_rows(void);
/* Where the row's file or folder lies; the caller frees it. */
char *t_corpus_path(const cJSON *row);

/*
 * Judges every row of that kind, as it is read under the bounds above: a row that asks for more
 * memory is wrong, one that takes longer ends the program with its name. The test fails if a row is
 * wrong, if one has another class than the manifest's without being in 'others', if one in 'others'
 * has not, if the library holds memory afterwards, or if there are fewer rows than 'at_least'.
 */
void t_corpus_walk(const char *kind, int at_least, const struct t_corpus_other *others,
		   t_corpus_judge *judge);

/* Fills in 'in' as the library does before it asks drivers, and makes 'ix' empty; all else
 * becomes 0. '*path' must outlive 'o'. t_corpus_close() frees what it and a driver took. */
void t_corpus_look(struct t_corpus_opened *o, const char *const *path);
void t_corpus_close(struct t_corpus_opened *o);
/* False if it was refused without a code, a place or a sentence. */
bool t_corpus_tells_why(const struct t_corpus_opened *o);

/* Makes the sparse file of a recipe: all bytes are 0 but for its segments. */
void t_corpus_recipe(const cJSON *row, const char *path);
/* Asserts that the tensors of such a file are as the row says, at their places and with the bytes
 * that it has at a few of them. 'name_of' makes the name of a path, which is freed here. */
void t_corpus_probe(const struct t_corpus_opened *o, const cJSON *row,
		    char *(*name_of)(const cJSON *path));

/* A string of an object, or NULL; it stays the object's. */
const char *t_corpus_text(const cJSON *row, const char *key);
/* The numbers of 'shape' are doubles: exact up to 2^53, and 2^63. */
bool t_corpus_same_shape(const struct ck_tensor *t, const cJSON *shape);

#endif
