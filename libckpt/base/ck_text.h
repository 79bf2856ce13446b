/*
 * ck_text.h -- questions about a string.
 */
#ifndef CK_TEXT_H
#define CK_TEXT_H

#include <stdbool.h>
#include <string.h>

static inline bool ck_ends_with(const char *s, const char *end)
{
	const size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

#endif
