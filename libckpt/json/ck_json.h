/*
 * ck_json.h -- a strict front for JSON: tokens with their places.
 *
 * Refused: duplicate names in one object (after decoding escapes), control
 * characters, lone surrogates, bad UTF-8, a byte order mark, text after the end, depth and
 * node counts beyond the limits.  Numbers are kept as text and never go through double.
 * CK_JSON_HJSON adds the leniency of DeepSpeed's configs: comments (#, //, slash-star),
 * trailing commas, line ends in place of commas, unquoted names, unquoted strings (to the
 * end of their line), single quotes.  Strings over several lines (three quotes) and a root
 * without braces stay refused.  docs/formats/json.md.
 */
#ifndef CK_JSON_H
#define CK_JSON_H

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_mem.h"

enum ck_json_type {
	CK_JSON_NULL = 1, CK_JSON_FALSE, CK_JSON_TRUE, CK_JSON_NUMBER, CK_JSON_STRING,
	CK_JSON_ARRAY, CK_JSON_OBJECT,
};

/* Children of an array or object follow their parent; in an object names and values
 * alternate.  'next' is the number of the token behind the whole value. */
struct ck_json_tok {
	uint8_t type;		/* enum ck_json_type */
	uint32_t n;		/* items of an array, pairs of an object */
	uint64_t next;
	uint64_t off, len;	/* in the text; a string with its quotes */
	const char *str;	/* strings and names: decoded, NUL behind; else NULL */
	uint64_t str_len;	/* it may hold NUL */
};

struct ck_json {
	struct ck_arena arena;
	const char *text;	/* lent */
	uint64_t len;
	struct ck_json_tok *tok;	/* tok[0] is the root */
	uint64_t n, cap;
	bool twice;		/* refused for a name twice in one object: the one at err->offset */
};

#define CK_JSON_INIT { .text = NULL }
#define CK_JSON_HJSON 1u

/* 'text' is lent until release.  CKPT_E_CORRUPT with the byte, CKPT_E_LIMIT, CKPT_E_NOMEM. */
int ck_json_parse(struct ck_json *doc, const char *text, uint64_t len,
		  const struct ckpt_limits *limits, unsigned flags, const char *where,
		  struct ckpt_err *err);
void ck_json_release(struct ck_json *doc);

/* Token number of the value under 'key' of object token 'obj', or UINT64_MAX. */
uint64_t ck_json_get(const struct ck_json *doc, uint64_t obj, const char *key);
/* The same; null is as if the key were absent, as in config.json of Hugging Face. */
uint64_t ck_json_given(const struct ck_json *doc, uint64_t obj, const char *key);
/* A plain unsigned integer (no sign, fraction, exponent, leading zero); else false. */
bool ck_json_u64(const struct ck_json *doc, uint64_t tok, uint64_t *out);
/* The same with a minus sign allowed, if it fits; "-0" is 0. */
bool ck_json_i64(const struct ck_json *doc, uint64_t tok, int64_t *out);

/* True if the bytes are UTF-8: shortest forms only, no surrogates.  '*bad_out' (may be
 * NULL) is the place of the first that is not. */
bool ck_utf8_valid(const char *text, uint64_t len, uint64_t *bad_out);

#endif
