/* en_json.c -- see en_json.h. */
#include "engine/base/en_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int en_json_parse(struct ck_json *doc, const char *text, uint64_t len, uint64_t max_nodes,
		  const char *where, struct ckpt_err *err)
{
	const struct ckpt_limits limits = {
		.size = sizeof(limits),
		.json_depth = 64,
		.json_nodes = max_nodes,
		.memory_bytes = 32 * len + 65536,	/* of short strings, mostly alignment */
	};

	return ck_json_parse(doc, text, len, &limits, 0, where, err);
}

static bool is_number(const struct ck_json *doc, uint64_t tok)
{
	return tok < doc->n && doc->tok[tok].type == CK_JSON_NUMBER;
}

bool en_json_double(const struct ck_json *doc, uint64_t tok, double *out)
{
	char text[512];
	double v;

	if (!is_number(doc, tok) || doc->tok[tok].len >= sizeof(text))
		return false;
	memcpy(text, doc->text + doc->tok[tok].off, doc->tok[tok].len);
	text[doc->tok[tok].len] = 0;
	v = strtod(text, NULL);
	if (!isfinite(v))
		return false;
	*out = v;
	return true;
}

bool en_json_is_whole(const struct ck_json *doc, uint64_t tok)
{
	if (!is_number(doc, tok))
		return false;
	for (uint64_t i = 0; i < doc->tok[tok].len; i++)
		if (strchr(".eE", doc->text[doc->tok[tok].off + i]))
			return false;
	return true;
}

const char *en_json_text(const struct ck_json *doc, uint64_t tok, char out[EN_JSON_TEXT])
{
	const uint64_t len = tok < doc->n ? doc->tok[tok].len : 0;

	if (len < EN_JSON_TEXT)
		snprintf(out, EN_JSON_TEXT, "%.*s", (int)len,
			 len ? doc->text + doc->tok[tok].off : "nothing");
	else
		snprintf(out, EN_JSON_TEXT, "%.*s...", EN_JSON_TEXT - 4,
			 doc->text + doc->tok[tok].off);
	for (char *p = out; *p; p++)
		if ((unsigned char)*p < 0x20)
			*p = ' ';
	return out;
}

void en_double_text(double v, char out[EN_DOUBLE_TEXT])
{
	if (!isfinite(v)) {
		snprintf(out, EN_DOUBLE_TEXT, "%s",
			 isnan(v) ? "NaN"
			 : v < 0  ? "-Infinity"
				  : "Infinity");
		return;
	}
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(out, EN_DOUBLE_TEXT, "%.*g", digits, v);
		if (strtod(out, NULL) == v)
			break;
	}
	if (!strpbrk(out, ".e"))
		memcpy(out + strlen(out), ".0", 3);
}
