/* ck_json_cjson.c -- see ck_json_cjson.h. */
#include "libckpt/json/ck_json_cjson.h"

#include <string.h>

#include "libckpt/base/ck_err.h"

static int refuse_nul(const struct ck_json *doc, const char *where, struct ckpt_err *err)
{
	for (uint64_t i = 0; i < doc->n; i++)
		if (doc->tok[i].str && memchr(doc->tok[i].str, 0, doc->tok[i].str_len))
			return ck_fail(err, CKPT_E_CORRUPT, where, doc->tok[i].off,
				       "JSON: a string holds NUL");
	return 0;
}

int ck_json_cjson(const char *text, uint64_t len, const struct ckpt_limits *limits,
		  const char *where, cJSON **tree_out, struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	cJSON *tree;
	int rc = ck_json_parse(&doc, text, len, limits, 0, where, err);

	if (!rc)
		rc = refuse_nul(&doc, where, err);
	ck_json_release(&doc);
	if (rc)
		return rc;
	tree = cJSON_ParseWithLength(text, len);
	if (!tree)	/* nothing else is left: cJSON goes deeper than json_depth can */
		return ck_fail_nomem(err, "a JSON tree", len);
	*tree_out = tree;
	return 0;
}
