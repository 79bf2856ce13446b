/*
 * ds_regex.h -- the part of Python's regular expressions that rules of tensor parallelism are
 * written in: characters, '.', classes, groups, '|', '*', '+', '?', '^', '$', \d, \w, \s and
 * characters after a backslash.
 */
#ifndef CK_DS_REGEX_H
#define CK_DS_REGEX_H

#include "libckpt/base/ck_mem.h"

struct ds_regex;

/*
 * Compile; everything is in 'arena'.  CKPT_E_LAYOUT for anything else, at 'where'.  Time and
 * memory are linear in the pattern.
 */
int ck_ds_regex_make(struct ck_arena *arena, const char *pattern, const char *where,
		     const struct ds_regex **out, struct ckpt_err *err);
/* re.match(): does it match at the beginning of 'name'?  Time O(pattern * name).  One thread. */
bool ck_ds_regex_match(const struct ds_regex *re, const char *name);
/* False: the name has characters beyond ASCII, and the pattern \d or \w: no verdict. */
bool ck_ds_regex_knows(const struct ds_regex *re, const char *name);
/*
 * NULL, or the only name without a newline at its end that it can match: the pattern is ^NAME$,
 * which matches NAME and a newline as well.
 */
const char *ck_ds_regex_literal(const struct ds_regex *re);

#endif
