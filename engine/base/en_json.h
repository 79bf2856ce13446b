/*
 * en_json.h -- numbers in JSON texts of the engine: states, logs, rows of data.
 *
 * What is written reads back as the same double; what is read is a JSON number in the range of
 * double, never a text that looks like one.
 */
#ifndef EN_JSON_H
#define EN_JSON_H

#include "libckpt/base/ck_buf.h"
#include "libckpt/json/ck_json.h"

/* Parse with bounds for texts of a line or a small file: 64 levels, 'max_nodes' values. */
int en_json_parse(struct ck_json *doc, const char *text, uint64_t len, uint64_t max_nodes,
		  const char *where, struct ckpt_err *err);

/* True and '*out' for a number that double holds (not beyond its range). */
bool en_json_double(const struct ck_json *doc, uint64_t tok, double *out);
/* True if the number is spelt as a whole one: no fraction, no exponent. */
bool en_json_is_whole(const struct ck_json *doc, uint64_t tok);
/* The token's text, cut to fit: for messages. */
#define EN_JSON_TEXT 48
const char *en_json_text(const struct ck_json *doc, uint64_t tok, char out[EN_JSON_TEXT]);

#define EN_DOUBLE_TEXT 32
/*
 * The shortest of 15, 16 or 17 digits that reads back as the same double, always with a point or an
 * exponent; infinities and NaN as Infinity, -Infinity, NaN (which JSON lacks: quote them).
 */
void en_double_text(double v, char out[EN_DOUBLE_TEXT]);

#endif
