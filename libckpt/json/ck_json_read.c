/*
 * ck_json_read.c -- see ck_json.h.  One pass, no recursion: while an array or object
 * is open, its token's 'next' holds the number of its parent, so the tokens are
 * their own stack and depth costs nothing but the count against the limit.
 */
#include "libckpt/json/ck_json.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/json/ck_json_str.h"

#define NO_TOKEN UINT64_MAX
#define FEW_NAMES 16	/* compared pair by pair; more go through a map */

struct parser {
	struct ck_json *doc;
	bool twice;		/* a name appears twice in one object */
	const char *p, *end;
	uint64_t open;		/* innermost open container, NO_TOKEN = none */
	uint32_t depth, max_depth;
	uint64_t max_nodes;
	bool lenient;
	const char *where;
	struct ckpt_err *err;
};

static uint64_t offset_of(const struct parser *ps, const char *at)
{
	return (uint64_t)(at - ps->doc->text);
}

static int bad(struct parser *ps, const char *at, const char *what)
{
	return ck_fail(ps->err, CKPT_E_CORRUPT, ps->where, offset_of(ps, at), "JSON: %s", what);
}

static int bad_here(struct parser *ps, const char *expected)
{
	const unsigned char c = ps->p < ps->end ? (unsigned char)*ps->p : 0;

	if (ps->p == ps->end)
		return ck_fail(ps->err, CKPT_E_CORRUPT, ps->where, offset_of(ps, ps->p),
			       "JSON: expected %s, but the text ends here (was it cut short?)",
			       expected);
	if (c > 0x20 && c < 0x7f)
		return ck_fail(ps->err, CKPT_E_CORRUPT, ps->where, offset_of(ps, ps->p),
			       "JSON: expected %s, found '%c'", expected, c);
	return ck_fail(ps->err, CKPT_E_CORRUPT, ps->where, offset_of(ps, ps->p),
		       "JSON: expected %s, found byte 0x%02x", expected, c);
}

/* ------------------------------------------------------------ white space */

static int skip_comment(struct parser *ps)
{
	const char *start = ps->p;

	if (ps->p[0] == '#' || ps->p[1] == '/') {
		while (ps->p < ps->end && *ps->p != '\n')
			ps->p++;
		return 0;
	}
	for (ps->p += 2; ps->end - ps->p >= 2; ps->p++)
		if (ps->p[0] == '*' && ps->p[1] == '/') {
			ps->p += 2;
			return 0;
		}
	return bad(ps, start, "a comment that begins here has no end");
}

static bool comment_at(const struct parser *ps, const char *p)
{
	if (!ps->lenient || p == ps->end)
		return false;
	return *p == '#' || (*p == '/' && ps->end - p >= 2 && (p[1] == '/' || p[1] == '*'));
}

static int skip_space(struct parser *ps)
{
	for (;;) {
		while (ps->p < ps->end && (*ps->p == ' ' || *ps->p == '\n' || *ps->p == '\t' ||
					   *ps->p == '\r'))
			ps->p++;
		if (!comment_at(ps, ps->p))
			return 0;
		if (skip_comment(ps))
			return -CKPT_E_CORRUPT;
	}
}

/* ----------------------------------------------------------------- tokens */

static int add_token(struct parser *ps, enum ck_json_type type, const char *at,
		     struct ck_json_tok **tok_out)
{
	struct ck_json *doc = ps->doc;
	struct ck_json_tok *t;
	int rc;

	if (doc->n >= ps->max_nodes)
		return ck_fail_limit(ps->err, ps->where, offset_of(ps, at), "json_nodes",
				     ps->max_nodes, "the JSON text has too many values and names");
	rc = ck_grow(&doc->tok, &doc->cap, doc->n + 1, sizeof(*t), ps->err);
	if (rc)
		return rc;
	t = &doc->tok[doc->n++];
	memset(t, 0, sizeof(*t));
	t->type = (uint8_t)type;
	t->off = offset_of(ps, at);
	t->next = doc->n;
	*tok_out = t;
	return 0;
}

static int no_string_memory(struct parser *ps, uint64_t n)
{
	const struct ck_arena *arena = &ps->doc->arena;

	if (arena->limit && (n > arena->limit || arena->total > arena->limit - n - 16))
		return ck_fail_limit(ps->err, ps->where, offset_of(ps, ps->p), "memory_bytes",
				     arena->limit, "the strings of the JSON text take too much "
					     "memory");
	return ck_fail_nomem(ps->err, "JSON strings", n);
}

/* The quote that ends the string whose first byte is p. */
static int find_quote(struct parser *ps, const char *p, char quote, const char **end_out,
		      bool *escaped_out)
{
	const char *start = p - 1;

	*escaped_out = false;
	for (; p < ps->end; p++) {
		if (*p == quote) {
			*end_out = p;
			return 0;
		}
		if ((unsigned char)*p < 0x20)
			return bad(ps, p, "a control character in a string must be escaped");
		if (*p == '\\') {
			*escaped_out = true;
			p++;
			if (p < ps->end && (unsigned char)*p < 0x20)
				return bad(ps, p, "unknown escape");
		}
	}
	return bad(ps, start, "a string that begins here has no end");
}

static int store_string(struct parser *ps, struct ck_json_tok *t, const char *p, uint64_t n,
			bool escaped)
{
	char *s = ck_arena_alloc(&ps->doc->arena, n + 1);

	if (!s)
		return no_string_memory(ps, n + 1);
	t->str = s;
	t->str_len = n;
	if (escaped) {
		const char *what, *at = ck_json_unescape(p, p + n, ps->lenient, s,
							 &t->str_len, &what);

		return at ? bad(ps, at, what) : 0;
	}
	memcpy(s, p, n);
	s[n] = 0;
	return 0;
}

static int read_string(struct parser *ps)
{
	const char *start = ps->p, *end = NULL;
	struct ck_json_tok *t;
	bool escaped = false;
	int rc;

	if (ps->lenient && ps->end - start >= 3 && !memcmp(start, "'''", 3))
		return bad(ps, start, "strings over several lines (''') are not supported");
	rc = find_quote(ps, start + 1, *start, &end, &escaped);
	if (!rc)
		rc = add_token(ps, CK_JSON_STRING, start, &t);
	if (!rc)
		rc = store_string(ps, t, start + 1, (uint64_t)(end - start - 1), escaped);
	if (rc)
		return rc;
	t->len = (uint64_t)(end + 1 - start);
	ps->p = end + 1;
	return 0;
}

static bool digit_at(const struct parser *ps, const char *p)
{
	return p < ps->end && *p >= '0' && *p <= '9';
}

/* End of the number at p, or NULL. */
static const char *scan_number(const struct parser *ps, const char *p)
{
	if (p < ps->end && *p == '-')
		p++;
	if (!digit_at(ps, p))
		return NULL;
	if (*p == '0')
		p++;
	else
		while (digit_at(ps, p))
			p++;
	if (p < ps->end && *p == '.') {
		if (!digit_at(ps, ++p))
			return NULL;
		while (digit_at(ps, p))
			p++;
	}
	if (p < ps->end && (*p == 'e' || *p == 'E')) {
		p++;
		if (p < ps->end && (*p == '+' || *p == '-'))
			p++;
		if (!digit_at(ps, p))
			return NULL;
		while (digit_at(ps, p))
			p++;
	}
	return p;
}

/* The end of true, false, null or a number at p and its type; NULL if it is neither. */
static const char *scan_literal(const struct parser *ps, const char *p, enum ck_json_type *type_out)
{
	static const struct {
		const char *word;
		enum ck_json_type type;
	} words[] = {
		{ "true", CK_JSON_TRUE }, { "false", CK_JSON_FALSE }, { "null", CK_JSON_NULL },
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(words); i++) {
		const size_t n = strlen(words[i].word);

		if ((size_t)(ps->end - p) >= n && !memcmp(p, words[i].word, n)) {
			*type_out = words[i].type;
			return p + n;
		}
	}
	*type_out = CK_JSON_NUMBER;
	return scan_number(ps, p);
}

/* HJSON: what stands unquoted is a literal only if nothing else follows it. */
static bool literal_ends(const struct parser *ps, const char *p)
{
	while (p < ps->end && (*p == ' ' || *p == '\t'))
		p++;
	return p == ps->end || strchr(",]}\r\n", *p) || comment_at(ps, p);
}

/* HJSON: an unquoted string runs to the end of its line. */
static int read_unquoted(struct parser *ps)
{
	const char *start = ps->p, *end = start;
	struct ck_json_tok *t;
	int rc;

	while (end < ps->end && *end != '\n' && *end != '\r') {
		if ((unsigned char)*end < 0x20 && *end != '\t')
			return bad(ps, end, "a control character in a string");
		end++;
	}
	ps->p = end;
	while (end > start && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	if (end == start || strchr("{}[],:", *start))
		return ps->p = start, bad_here(ps, "a value");
	rc = add_token(ps, CK_JSON_STRING, start, &t);
	if (!rc)
		rc = store_string(ps, t, start, (uint64_t)(end - start), false);
	if (!rc)
		t->len = (uint64_t)(end - start);
	return rc;
}

static int read_scalar(struct parser *ps)
{
	struct ck_json_tok *t;
	enum ck_json_type type;
	const char *end;
	int rc;

	if (*ps->p == '"' || (ps->lenient && *ps->p == '\''))
		return read_string(ps);
	end = scan_literal(ps, ps->p, &type);
	if (ps->lenient && (!end || !literal_ends(ps, end)))
		return read_unquoted(ps);
	if (!end)
		return bad_here(ps, *ps->p == '-' || digit_at(ps, ps->p) ? "a whole number"
									 : "a value");
	rc = add_token(ps, type, ps->p, &t);
	if (rc)
		return rc;
	t->len = (uint64_t)(end - ps->p);
	ps->p = end;
	return 0;
}

/* HJSON: a name without quotes ends at white space, a colon or punctuation. */
static int read_bare_name(struct parser *ps)
{
	const char *start = ps->p, *end = start;
	struct ck_json_tok *t;
	int rc;

	while (end < ps->end && (unsigned char)*end > 0x20 && !strchr("{}[],:", *end))
		end++;
	if (end == start)
		return bad_here(ps, "a name");
	rc = add_token(ps, CK_JSON_STRING, start, &t);
	if (!rc)
		rc = store_string(ps, t, start, (uint64_t)(end - start), false);
	if (rc)
		return rc;
	t->len = (uint64_t)(end - start);
	ps->p = end;
	return 0;
}

/* The name of a pair and its colon; ps->p then stands before the value. */
static int read_name(struct parser *ps)
{
	int rc;

	if (ps->p < ps->end && (*ps->p == '"' || (ps->lenient && *ps->p == '\'')))
		rc = read_string(ps);
	else
		rc = ps->lenient ? read_bare_name(ps) : bad_here(ps, "a name in quotes");
	if (!rc)
		rc = skip_space(ps);
	if (rc)
		return rc;
	if (ps->p == ps->end || *ps->p != ':')
		return bad_here(ps, "':'");
	ps->p++;
	return skip_space(ps);
}

/* ------------------------------------------------- one name, one meaning */

static int duplicate(struct parser *ps, const struct ck_json_tok *name)
{
	ps->twice = true;
	return ck_fail(ps->err, CKPT_E_CORRUPT, ps->where, name->off,
		       "JSON: the name \"%.80s\" appears twice in one object", name->str);
}

static int check_few_names(struct parser *ps, uint64_t obj)
{
	const struct ck_json_tok *tok = ps->doc->tok, *seen[FEW_NAMES];
	uint64_t at = obj + 1;

	for (uint32_t i = 0; i < tok[obj].n; i++) {
		for (uint32_t j = 0; j < i; j++)
			if (seen[j]->str_len == tok[at].str_len &&
			    !memcmp(seen[j]->str, tok[at].str, tok[at].str_len))
				return duplicate(ps, &tok[at]);
		seen[i] = &tok[at];
		at = tok[at + 1].next;
	}
	return 0;
}

static int check_many_names(struct parser *ps, uint64_t obj)
{
	const struct ck_json_tok *tok = ps->doc->tok;
	struct ck_map map = CK_MAP_INIT;
	uint64_t at = obj + 1;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < tok[obj].n; i++) {
		rc = ck_map_add(&map, tok[at].str, tok[at].str_len, at, NULL, ps->err);
		if (rc > 0)
			rc = duplicate(ps, &tok[at]);
		at = tok[at + 1].next;
	}
	ck_map_release(&map);
	return rc;
}

/* -------------------------------------------------------------- structure */

static int open_container(struct parser *ps)
{
	struct ck_json_tok *t;
	int rc;

	if (ps->depth >= ps->max_depth)
		return ck_fail_limit(ps->err, ps->where, offset_of(ps, ps->p), "json_depth",
				     ps->max_depth, "the JSON text is nested too deeply");
	rc = add_token(ps, *ps->p == '{' ? CK_JSON_OBJECT : CK_JSON_ARRAY, ps->p, &t);
	if (rc)
		return rc;
	t->next = ps->open;
	ps->open = ps->doc->n - 1;
	ps->depth++;
	ps->p++;
	return 0;
}

static int close_container(struct parser *ps)
{
	const uint64_t number = ps->open;
	struct ck_json_tok *t = &ps->doc->tok[number];
	int rc = 0;

	ps->p++;
	ps->open = t->next;
	ps->depth--;
	t->next = ps->doc->n;
	t->len = offset_of(ps, ps->p) - t->off;
	if (t->type == CK_JSON_OBJECT && t->n > 1)
		rc = t->n <= FEW_NAMES ? check_few_names(ps, number)
				       : check_many_names(ps, number);
	return rc;
}

static char closer(const struct parser *ps)
{
	return ps->doc->tok[ps->open].type == CK_JSON_OBJECT ? '}' : ']';
}

static bool closes_here(const struct parser *ps)
{
	return ps->p < ps->end && *ps->p == closer(ps);
}

/*
 * Behind '{', '[' or a comma: stop before the next value (0), or at the closing
 * bracket (1), which behind a comma is for HJSON only.
 */
static int next_item(struct parser *ps, bool may_close)
{
	int rc = skip_space(ps);

	if (rc)
		return rc;
	if (may_close && closes_here(ps))
		return 1;
	return closer(ps) == '}' ? read_name(ps) : 0;
}

/* Behind a value: close what ends here, step over the comma.  1 = all is read. */
static int after_value(struct parser *ps)
{
	for (;;) {
		struct ck_json_tok *t;
		int rc;

		if (ps->open == NO_TOKEN)
			return 1;
		t = &ps->doc->tok[ps->open];
		t->n++;		/* below 2^32, as json_nodes is */
		rc = skip_space(ps);
		if (rc)
			return rc;
		if (!closes_here(ps)) {
			if (ps->p < ps->end && *ps->p == ',')
				ps->p++;
			else if (!ps->lenient || ps->p == ps->end)
				return bad_here(ps, closer(ps) == '}' ? "',' or '}'"
								      : "',' or ']'");
			rc = next_item(ps, ps->lenient);
			if (rc <= 0)
				return rc;
		}
		rc = close_container(ps);
		if (rc)
			return rc;
	}
}

static int parse(struct parser *ps)
{
	int rc = skip_space(ps);

	while (!rc) {
		if (ps->p == ps->end)
			return bad_here(ps, "a value");
		if (*ps->p == '{' || *ps->p == '[') {
			rc = open_container(ps);
			if (!rc)
				rc = next_item(ps, true);
			if (rc <= 0)
				continue;	/* failed, or a value comes */
			rc = close_container(ps);
		} else {
			rc = read_scalar(ps);
		}
		if (!rc)
			rc = after_value(ps);
	}
	if (rc > 0)
		rc = skip_space(ps);
	if (!rc && ps->p != ps->end)
		rc = bad_here(ps, "the end of the text");
	return rc;
}

int ck_json_parse(struct ck_json *doc, const char *text, uint64_t len,
		  const struct ckpt_limits *limits, unsigned flags, const char *where,
		  struct ckpt_err *err)
{
	struct parser ps = {
		.doc = doc,
		.p = text,
		.end = text + len,
		.open = NO_TOKEN,
		.max_depth = limits->json_depth,
		.max_nodes = limits->json_nodes,
		.lenient = flags & CK_JSON_HJSON,
		.where = where,
		.err = err,
	};
	uint64_t at;
	int rc;

	doc->text = text;
	doc->len = len;
	doc->arena.limit = limits->memory_bytes;
	if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
		rc = bad(&ps, text, "the text begins with a byte order mark");
	else if (!ck_utf8_valid(text, len, &at))
		rc = bad(&ps, text + at, "this byte is not UTF-8");
	else
		rc = parse(&ps);
	if (rc)
		ck_json_release(doc);
	doc->twice = ps.twice;
	return rc;
}
