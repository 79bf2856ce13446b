/* ck_json_sum.c -- the last member of a manifest, "sum": see ck_json_out.h. */
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/json/ck_json_out.h"

#define SUM "\n\"sum\":"

bool ck_json_hash(const struct ck_json *doc, uint64_t tok, struct ck_hash128 *out)
{
	return tok != UINT64_MAX && doc->tok[tok].type == CK_JSON_STRING &&
	       doc->tok[tok].str_len == 32 && ck_hash128_parse(doc->tok[tok].str, out);
}

int ck_json_check_sum(const struct ck_json *doc, const char *where, struct ckpt_err *err)
{
	const char *at = NULL;
	struct ck_hash128 said;

	for (uint64_t i = doc->len; !at && i-- > 0;)
		if (doc->len - i >= strlen(SUM) && !memcmp(doc->text + i, SUM, strlen(SUM)))
			at = doc->text + i;
	if (!at || !ck_json_hash(doc, ck_json_get(doc, 0, "sum"), &said))
		return ck_fail(err, CKPT_E_CORRUPT, where, CKPT_NO_OFFSET,
			       "it has no \"sum\": it was cut short or edited");
	if (ck_hash128_equal(said, ck_hash128(doc->text, (size_t)(at + 1 - doc->text))))
		return 0;
	return ck_fail(err, CKPT_E_CORRUPT, where, CKPT_NO_OFFSET,
		       "its bytes do not match its \"sum\": it is damaged or was edited");
}
