/*
 * ck_text.h -- questions about a string, and a name made of another by a pattern.
 */
#ifndef CK_TEXT_H
#define CK_TEXT_H

#include <stdbool.h>
#include <string.h>

#include "libckpt/base/ck_mem.h"

static inline bool ck_ends_with(const char *s, const char *end)
{
	const size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/*
 * What the '*' of a pattern stands for in 'name', '*n_out' bytes.  NULL: the pattern, of one '*' or
 * none, is not all of the name.
 */
const char *ck_star_match(const char *name, const char *pattern, size_t *n_out);
/* 'name' if it does not match; else 'value', its '*' replaced by that of the pattern.  NULL
 * without memory. */
const char *ck_star_replace(struct ck_arena *arena, const char *name, const char *pattern,
			    const char *value);

#endif
