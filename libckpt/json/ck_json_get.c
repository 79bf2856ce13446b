/* ck_json_get.c -- what a parsed text holds; see ck_json.h. */
#include "libckpt/json/ck_json.h"

#include <string.h>

#include "libckpt/base/ck_sys.h"

void ck_json_release(struct ck_json *doc)
{
	ck_arena_release(&doc->arena);
	ck_free(doc->tok);
	memset(doc, 0, sizeof(*doc));
}

uint64_t ck_json_get(const struct ck_json *doc, uint64_t obj, const char *key)
{
	const size_t len = strlen(key);
	uint64_t at = obj + 1;

	if (obj >= doc->n || doc->tok[obj].type != CK_JSON_OBJECT)
		return UINT64_MAX;
	for (uint32_t i = 0; i < doc->tok[obj].n; i++) {
		if (doc->tok[at].str_len == len && !memcmp(doc->tok[at].str, key, len))
			return at + 1;
		at = doc->tok[at + 1].next;
	}
	return UINT64_MAX;
}

uint64_t ck_json_given(const struct ck_json *doc, uint64_t obj, const char *key)
{
	const uint64_t tok = ck_json_get(doc, obj, key);

	return tok != UINT64_MAX && doc->tok[tok].type == CK_JSON_NULL ? UINT64_MAX : tok;
}

static bool digits_to_u64(const char *p, uint64_t n, uint64_t *out)
{
	uint64_t v = 0;

	if (!n)
		return false;
	for (uint64_t i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9' || ck_mul_over(v, 10, &v) ||
		    ck_add_over(v, (uint64_t)(p[i] - '0'), &v))
			return false;
	}
	*out = v;
	return true;
}

bool ck_json_u64(const struct ck_json *doc, uint64_t tok, uint64_t *out)
{
	if (tok >= doc->n || doc->tok[tok].type != CK_JSON_NUMBER)
		return false;
	return digits_to_u64(doc->text + doc->tok[tok].off, doc->tok[tok].len, out);
}

bool ck_json_i64(const struct ck_json *doc, uint64_t tok, int64_t *out)
{
	const struct ck_json_tok *t = tok < doc->n ? &doc->tok[tok] : NULL;
	uint64_t v;

	if (ck_json_u64(doc, tok, &v)) {
		if (v > INT64_MAX)
			return false;
		*out = (int64_t)v;
		return true;
	}
	if (!t || t->type != CK_JSON_NUMBER || doc->text[t->off] != '-' ||
	    !digits_to_u64(doc->text + t->off + 1, t->len - 1, &v) ||
	    v > (uint64_t)INT64_MAX + 1)
		return false;
	*out = v ? -(int64_t)(v - 1) - 1 : 0;
	return true;
}
