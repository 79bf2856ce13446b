/*
 * ck_json_str.h -- escapes of JSON strings, for the reader of this folder.
 */
#ifndef CK_JSON_STR_H
#define CK_JSON_STR_H

#include "libckpt/base/ck_base.h"

/*
 * Decode the inside [p, end) of a string into 'out', which has room for end - p + 1
 * bytes (what comes out is never longer); NUL behind.  'lenient' permits \' too.
 * NULL = done and '*len_out' is the length; else the place of the fault, '*what_out'
 * says which.
 */
const char *ck_json_unescape(const char *p, const char *end, bool lenient, char *out,
			     uint64_t *len_out, const char **what_out);

#endif
