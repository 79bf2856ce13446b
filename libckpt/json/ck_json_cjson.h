/*
 * ck_json_cjson.h -- a cJSON tree, for index and config files.
 *
 * cJSON alone takes "01", text behind the end and bad UTF-8, cuts strings at NUL and
 * keeps numbers as double.  So the strict front reads the text first, and where a
 * number matters it is read from the front's tokens, not from here.
 */
#ifndef CK_JSON_CJSON_H
#define CK_JSON_CJSON_H

#include <cjson/cJSON.h>

#include "libckpt/json/ck_json.h"

/*
 * '*tree_out' is the tree of 'text', which the front accepts without CK_JSON_HJSON and
 * in which no string holds NUL.  The caller frees it with cJSON_Delete(); it does not
 * refer to 'text'.  Look names up with cJSON_GetObjectItemCaseSensitive(): the shorter
 * call ignores case.  The codes of ck_json_parse(); CKPT_E_CORRUPT for NUL in a string;
 * CKPT_E_LIMIT beyond cJSON's own depth.  Takes cJSON's default allocator.
 */
int ck_json_cjson(const char *text, uint64_t len, const struct ckpt_limits *limits,
		  const char *where, cJSON **tree_out, struct ckpt_err *err);

#endif
