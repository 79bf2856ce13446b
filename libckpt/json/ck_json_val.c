/* ck_json_val.c -- see ck_json_val.h. */
#include <stdlib.h>

#include "libckpt/json/ck_json_val.h"

/* What fits 64 bits and has no fraction is a whole number, anything else a float. */
static struct ck_val *number(const struct ck_json *doc, uint64_t tok, struct ck_arena *arena)
{
	const struct ck_json_tok *t = &doc->tok[tok];
	char *text;
	int64_t i;

	if (ck_json_i64(doc, tok, &i))
		return ck_val_new_int(arena, i);
	text = ck_arena_strndup(arena, doc->text + t->off, t->len);	/* of any length */
	return text ? ck_val_new_float(arena, strtod(text, NULL)) : NULL;
}

static struct ck_val *array(const struct ck_json *doc, uint64_t tok, struct ck_arena *arena)
{
	struct ck_val *list = ck_val_new_list(arena);
	uint64_t at = tok + 1;

	for (uint32_t i = 0; list && i < doc->tok[tok].n; i++, at = doc->tok[at].next)
		list = ck_val_list_add(arena, list, ck_json_val(doc, at, arena));
	return list;
}

static struct ck_val *object(const struct ck_json *doc, uint64_t tok, struct ck_arena *arena)
{
	struct ck_val *dict = ck_val_new_dict(arena);
	uint64_t at = tok + 1;

	for (uint32_t i = 0; dict && i < doc->tok[tok].n; i++) {
		const struct ck_json_tok *name = &doc->tok[at];

		dict = ck_val_dict_add(arena, dict,
				       ck_val_new_strn(arena, name->str, name->str_len),
				       ck_json_val(doc, name->next, arena));
		at = doc->tok[name->next].next;
	}
	return dict;
}

struct ck_val *ck_json_val(const struct ck_json *doc, uint64_t tok, struct ck_arena *arena)
{
	const struct ck_json_tok *t = &doc->tok[tok];

	switch ((enum ck_json_type)t->type) {
	case CK_JSON_NULL:
		return ck_val_new_none(arena);
	case CK_JSON_FALSE:
	case CK_JSON_TRUE:
		return ck_val_new_bool(arena, t->type == CK_JSON_TRUE);
	case CK_JSON_NUMBER:
		return number(doc, tok, arena);
	case CK_JSON_STRING:
		return ck_val_new_strn(arena, t->str, t->str_len);
	case CK_JSON_ARRAY:
		return array(doc, tok, arena);
	case CK_JSON_OBJECT:
		return object(doc, tok, arena);
	}
	return NULL;
}
