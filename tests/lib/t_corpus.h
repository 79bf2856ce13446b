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

/* A row that is not right yet; lists of them end with a file of NULL. */
struct t_corpus_known {
	const char *file, *reason;
};

/* NULL if the row is right, else what is wrong with it, a string that nobody frees. Writes
 * what was read into 'said', at most 'n' bytes with the NUL, for the message. */
typedef const char *t_corpus_judge(const cJSON *row, char *said, size_t n);

/* Reads the manifest, or ends the program. False, with a message, without ZCKPT_FIXTURES:
 * the test is to exit with 77. t_corpus_unload() frees the manifest and all rows. */
bool t_corpus_load(void);
void t_corpus_unload(void);
/* The list of rows; it stays the corpus's. */
const cJSON *t_corpus_rows(void);
/* Where the row's file or folder lies; the caller frees it. */
char *t_corpus_path(const cJSON *row);

/* Judges every row of that kind. The test fails if one is wrong without being in 'known', if
 * one in 'known' is right, or if there are fewer rows than 'at_least'. */
void t_corpus_walk(const char *kind, int at_least, const struct t_corpus_known *known,
		   t_corpus_judge *judge);

/* Fills in 'in' as the library does before it asks drivers, and makes 'ix' empty; all else
 * becomes 0. '*path' must outlive 'o'. t_corpus_close() frees what it and a driver took. */
void t_corpus_look(struct t_corpus_opened *o, const char *const *path);
void t_corpus_close(struct t_corpus_opened *o);
/* False if it was refused without a code, a place or a sentence. */
bool t_corpus_tells_why(const struct t_corpus_opened *o);

/* A string of an object, or NULL; it stays the object's. */
const char *t_corpus_text(const cJSON *row, const char *key);
/* The numbers of 'shape' are doubles: exact up to 2^53, and 2^63. */
bool t_corpus_same_shape(const struct ck_tensor *t, const cJSON *shape);

#endif
