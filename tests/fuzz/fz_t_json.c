/* Fuzz targets: the JSON front, strict and as DeepSpeed's configs need it. Tokens make a tree
 * within the text; written plainly they are the same tokens again, and both readings agree. */
#include "tests/fuzz/fz.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/json/ck_json.h"

static bool parse(struct ck_json *doc, const void *p, uint64_t n, unsigned flags)
{
	struct ckpt_err err = { 0 };

	*doc = (struct ck_json)CK_JSON_INIT;
	return fz_ok(ck_json_parse(doc, p, n, fz_limits(), flags, "in.json", &err), &err,
		     "ck_json_parse");
}

/* Whole numbers are read as libc reads them, or not at all. */
static void check_number(const struct ck_json *doc, uint64_t i)
{
	const struct ck_json_tok *t = &doc->tok[i];
	uint64_t u = 0;
	int64_t s = 0;
	char text[32] = "";

	if (t->len < sizeof(text))
		memcpy(text, doc->text + t->off, t->len);
	if (ck_json_u64(doc, i, &u) && (t->type != CK_JSON_NUMBER || u != strtoull(text, NULL, 10)))
		fz_die("\"%s\" is read as %llu", text, (unsigned long long)u);
	if (ck_json_i64(doc, i, &s) && (t->type != CK_JSON_NUMBER || s != strtoll(text, NULL, 10)))
		fz_die("\"%s\" is read as %lld", text, (long long)s);
}

/* A name leads to the value behind it. */
static void check_names(const struct ck_json *doc, uint64_t i)
{
	uint64_t at = i + 1;

	for (uint32_t k = 0; k < doc->tok[i].n; k++) {
		const struct ck_json_tok *name = &doc->tok[at];

		if (name->type != CK_JSON_STRING)
			fz_die("token %llu is no name", (unsigned long long)at);
		at = name->next;
		if (strlen(name->str) == name->str_len && ck_json_get(doc, i, name->str) != at)
			fz_die("\"%s\" is not found", name->str);
		at = doc->tok[at].next;
	}
}

static void check_token(const struct ck_json *doc, uint64_t i)
{
	const struct ck_json_tok *t = &doc->tok[i];
	const bool is_text = t->type == CK_JSON_STRING;

	if (t->off > doc->len || t->len > doc->len - t->off)
		fz_die("token %llu lies outside of the text", (unsigned long long)i);
	if (t->next <= i || t->next > doc->n)
		fz_die("token %llu ends at %llu", (unsigned long long)i,
		       (unsigned long long)t->next);
	if ((t->str != NULL) != is_text || (is_text && !ck_utf8_valid(t->str, t->str_len, NULL)))
		fz_die("token %llu has no sound text", (unsigned long long)i);
	if (is_text && t->str[t->str_len])
		fz_die("token %llu has no NUL behind it", (unsigned long long)i);
	check_number(doc, i);
	if (t->type == CK_JSON_OBJECT && t->n <= 64)
		check_names(doc, i);
}

static void put(struct ck_buf *b, const void *p, size_t n)
{
	if (ck_buf_add(b, p, n, NULL))
		fz_die("no memory");
}

static uint64_t write_value(struct ck_buf *b, const struct ck_json *doc, uint64_t i)
{
	const struct ck_json_tok *t = &doc->tok[i];
	const bool object = t->type == CK_JSON_OBJECT;
	uint64_t at = i + 1;

	if (t->type == CK_JSON_STRING) {
		if (ck_buf_add_json(b, t->str, t->str_len, NULL))
			fz_die("no memory");
	} else if (t->type == CK_JSON_ARRAY || object) {
		put(b, object ? "{" : "[", 1);
		for (uint32_t k = 0; k < t->n; k++) {
			if (k)
				put(b, ",", 1);
			if (object) {
				at = write_value(b, doc, at);
				put(b, ":", 1);
			}
			at = write_value(b, doc, at);
		}
		put(b, object ? "}" : "]", 1);
	} else {
		put(b, doc->text + t->off, t->len);
	}
	if (at != t->next)
		fz_die("token %llu does not end where it says", (unsigned long long)i);
	return at;
}

static void expect_same(const struct ck_json *a, const struct ck_json *b)
{
	if (a->n != b->n)
		fz_die("written plainly there are %llu tokens, not %llu",
		       (unsigned long long)b->n, (unsigned long long)a->n);
	for (uint64_t i = 0; i < a->n; i++) {
		const struct ck_json_tok *x = &a->tok[i], *y = &b->tok[i];

		if (x->type != y->type || x->n != y->n || x->next != y->next ||
		    x->str_len != y->str_len || (x->str && memcmp(x->str, y->str, x->str_len)) ||
		    (x->type == CK_JSON_NUMBER &&
		     (x->len != y->len || memcmp(a->text + x->off, b->text + y->off, x->len))))
			fz_die("token %llu is another one", (unsigned long long)i);
	}
}

static void run(const uint8_t *p, size_t n, unsigned flags)
{
	struct ck_json doc, plain;
	struct ck_buf b = CK_BUF_INIT(FZ_MEMORY);

	if (!parse(&doc, p, n, flags))
		return;
	for (uint64_t i = 0; i < doc.n; i++)
		check_token(&doc, i);
	if (write_value(&b, &doc, 0) != doc.n)
		fz_die("tokens are left");
	if (!parse(&plain, b.p, b.len, 0))
		fz_die("written plainly it is refused");
	expect_same(&doc, &plain);
	ck_json_release(&plain);
	if (doc.tok[0].type == CK_JSON_OBJECT) {
		if (!parse(&plain, b.p, b.len, CK_JSON_HJSON))
			fz_die("the lenient reading refuses what the strict one takes");
		expect_same(&doc, &plain);
		ck_json_release(&plain);
	}
	ck_buf_release(&b);
	ck_json_release(&doc);
}

void fz_json(const uint8_t *p, size_t n)
{
	run(p, n, 0);
}

void fz_hjson(const uint8_t *p, size_t n)
{
	run(p, n, CK_JSON_HJSON);
}
