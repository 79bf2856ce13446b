/* ck_text.c -- see ck_text.h. */
#include "libckpt/base/ck_text.h"

const char *ck_star_match(const char *name, const char *pattern, size_t *n_out)
{
	const char *star = strchr(pattern, '*');
	const size_t n = strlen(name), head = star ? (size_t)(star - pattern) : n;
	const size_t tail = star ? strlen(star + 1) : 0;

	*n_out = 0;
	if (!star)
		return strcmp(name, pattern) ? NULL : name;
	if (n < head + tail || strncmp(name, pattern, head) || strcmp(name + n - tail, star + 1))
		return NULL;
	*n_out = n - head - tail;
	return name + head;
}

const char *ck_star_replace(struct ck_arena *arena, const char *name, const char *pattern,
			    const char *value)
{
	const char *star = strchr(value, '*');
	size_t n;
	const char *part = ck_star_match(name, pattern, &n);

	if (!part)
		return name;
	if (!star)
		return ck_arena_strdup(arena, value);
	return ck_arena_printf(arena, "%.*s%.*s%s", (int)(star - value), value, (int)n, part,
			       star + 1);
}
