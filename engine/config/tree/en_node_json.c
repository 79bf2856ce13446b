/* en_node_json.c -- a tree of a DeepSpeed configuration; see en_node.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/tree/en_node.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/json/ck_json.h"

struct reading {
	const struct ck_json *doc;
	struct ck_arena *arena;
	const char *file, *text;	/* as the file has it */
	uint64_t shift;			/* bytes before it that the file has not */
	uint64_t off;			/* line and column of 'off' are known */
	uint32_t line, col;
	struct ckpt_err *err;
};

/* Tokens come in their order, so that the text is gone through once. */
static struct en_place place(struct reading *r, uint64_t off)
{
	off -= ck_min_u64(off, r->shift);
	for (; r->off < off; r->off++) {
		r->col++;
		if (r->text[r->off] == '\n') {
			r->line++;
			r->col = 1;
		} else if (((unsigned char)r->text[r->off] & 0xc0) == 0x80) {
			r->col--;	/* columns are characters */
		}
	}
	return (struct en_place){ .from = EN_FROM_JSON, .file = r->file,
				  .line = r->line, .col = r->col };
}

/* hjson.load() makes whole floats below 1e10 integers. */
static struct en_node *number(struct reading *r, uint64_t tok, struct en_place at)
{
	const struct ck_json_tok *t = &r->doc->tok[tok];
	char *text = ck_arena_strndup(r->arena, r->doc->text + t->off, t->len);
	struct en_node *v;
	int64_t i;
	double f;

	if (!text)
		return NULL;
	f = strtod(text, NULL);
	if (ck_json_i64(r->doc, tok, &i))
		v = en_node_int(r->arena, i, at);
	else if (strpbrk(text, ".eE") && fabs(f) < 1e10 && f == floor(f))
		v = en_node_int(r->arena, (int64_t)f, at);
	else
		v = en_node_float(r->arena, f, at);
	if (v)
		v->str = text;
	return v;
}

static struct en_node *scalar(struct reading *r, uint64_t tok, struct en_place at)
{
	const struct ck_json_tok *t = &r->doc->tok[tok];
	struct en_node *v;

	switch ((enum ck_json_type)t->type) {
	case CK_JSON_NULL:
		return en_node_new(r->arena, EN_NULL, at);
	case CK_JSON_FALSE:
	case CK_JSON_TRUE:
		return en_node_bool(r->arena, t->type == CK_JSON_TRUE, at);
	case CK_JSON_NUMBER:
		return number(r, tok, at);
	case CK_JSON_STRING:
		v = en_node_new(r->arena, EN_STR, at);
		if (v)
			v->str = ck_arena_strndup(r->arena, t->str, t->str_len);
		return v && v->str ? v : NULL;
	case CK_JSON_ARRAY:
		return en_node_new(r->arena, EN_LIST, at);
	case CK_JSON_OBJECT:
		return en_node_new(r->arena, EN_DICT, at);
	}
	return NULL;
}

static int no_nul(struct reading *r, const struct ck_json_tok *t)
{
	if (!t->str || strlen(t->str) == t->str_len)
		return 0;
	return ck_fail(r->err, CKPT_E_CORRUPT, r->file, t->off - ck_min_u64(t->off, r->shift),
		       "a string of the configuration holds a NUL character");
}

/* Depth is bounded by the parser. */
static int build(struct reading *r, uint64_t tok, struct en_node **out)
{
	const struct ck_json_tok *t = &r->doc->tok[tok];
	struct en_node *v = scalar(r, tok, place(r, t->off)), *child;
	uint64_t at = tok + 1;
	int rc = no_nul(r, t);

	if (rc)
		return rc;
	if (!v)
		return ck_fail_nomem(r->err, "a configuration", sizeof(*v));
	for (uint32_t i = 0; i < t->n; i++) {
		const char *key = NULL;

		if (v->type == EN_DICT) {
			const struct ck_json_tok *name = &r->doc->tok[at];

			rc = no_nul(r, name);
			if (rc)
				return rc;
			key = ck_arena_strndup(r->arena, name->str, name->str_len);
			if (!key)
				return ck_fail_nomem(r->err, "a configuration", name->str_len);
			at = name->next;
		}
		rc = build(r, at, &child);
		if (rc)
			return rc;
		en_node_add(v, key, child);
		at = r->doc->tok[at].next;
	}
	*out = v;
	return 0;
}

/* The first byte that is neither white space nor in a comment. */
static char first_byte(const char *p, const char *end)
{
	while (p < end) {
		if (strchr(" \t\r\n", *p)) {
			p++;
		} else if (*p == '#' || (end - p > 1 && p[0] == '/' && p[1] == '/')) {
			while (p < end && *p != '\n')
				p++;
		} else if (end - p > 1 && p[0] == '/' && p[1] == '*') {
			for (p += 2; end - p > 1 && (p[0] != '*' || p[1] != '/'); p++)
				;
			p += end - p > 1 ? 2 : end - p;
		} else {
			return *p;
		}
	}
	return 0;
}

/* HJSON takes a root without braces: the text gets them, and places are shifted back. */
static int with_braces(struct ck_arena *arena, const char **text, uint64_t *len,
		       struct ckpt_err *err)
{
	char *copy = ck_arena_alloc(arena, *len + 4);

	if (!copy)
		return ck_fail_nomem(err, "a configuration", *len + 4);
	copy[0] = '{';
	memcpy(copy + 1, *text, *len);
	memcpy(copy + 1 + *len, "\n}", 3);
	*text = copy;
	*len += 3;
	return 0;
}

static bool is_strict(const char *text, uint64_t len, const struct ckpt_limits *limits,
		      const char *file)
{
	struct ck_json doc = CK_JSON_INIT;

	if (ck_json_parse(&doc, text, len, limits, 0, file, NULL))
		return false;
	ck_json_release(&doc);
	return true;
}

/* Why the text cannot be read, and the line at which that was seen. */
static int fail_at(struct reading *r, uint64_t off, uint64_t end, const struct ckpt_err *why)
{
	struct en_place at;

	if (why->offset == CKPT_NO_OFFSET)
		return ck_fail(r->err, why->code, why->where, why->offset, "%s", why->msg);
	at = place(r, ck_min_u64(off, end));
	return ck_fail(r->err, why->code, why->where, why->offset, "line %u, column %u: %.400s%s",
		       at.line, at.col, why->msg,
		       off < end ? "" : "; or a comma is missing: a value without quotes ends at "
					"the end of its line");
}

int en_node_json(struct ck_arena *arena, const char *text, uint64_t len, const char *file,
		 struct en_node **root_out, bool *strict_out, struct ckpt_err *err)
{
	const struct ckpt_limits limits = {
		.size = sizeof(limits),
		.json_depth = EN_MAX_CONFIG_DEPTH,
		.json_nodes = EN_MAX_CONFIG_NODES,
		.memory_bytes = 4 * EN_MAX_CONFIG_BYTES,
	};
	const uint64_t bom = len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
	const char *body = text + bom;
	uint64_t n = len - bom;
	struct ckpt_err local = { 0 };
	struct ck_json doc = CK_JSON_INIT;
	struct reading r = { .doc = &doc, .arena = arena, .file = file, .text = body,
			     .line = 1, .col = 1, .err = err };
	struct en_node *root = NULL;
	const char first = first_byte(body, body + n);
	uint64_t at;
	int rc = 0;

	if (first != '{' && first != '[') {
		rc = with_braces(arena, &body, &n, err);
		r.shift = 1;
	}
	if (rc)
		return rc;
	rc = ck_json_parse(&doc, body, n, &limits, CK_JSON_HJSON, file, &local);
	at = local.offset;
	if (rc && at != CKPT_NO_OFFSET)
		local.offset = ck_min_u64(at - ck_min_u64(at, r.shift) + bom, len);
	if (rc)
		rc = fail_at(&r, at, len - bom + r.shift, &local);
	if (!rc && doc.tok[0].type != CK_JSON_OBJECT)
		rc = ck_fail(err, CKPT_E_CORRUPT, file, 0,
			     "a DeepSpeed configuration is an object; found a list");
	if (!rc)
		rc = build(&r, 0, &root);
	if (!rc) {
		*root_out = root;
		if (strict_out)
			*strict_out = !bom && !r.shift && is_strict(text, len, &limits, file);
	}
	ck_json_release(&doc);
	return rc;
}
