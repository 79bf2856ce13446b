/* srv_range.c -- see srv.h: the grammar of ranges, lists of tags and paths (RFC 9110, 3986). */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "srv.h"

/* Digits at '*text'; what is beyond 64 bits is beyond every file.  False if there is none. */
static int number(const char **text, uint64_t *out)
{
	const char *s = *text;
	uint64_t n = 0;

	while (*s >= '0' && *s <= '9') {
		const uint64_t digit = (uint64_t)(*s++ - '0');

		n = n > (UINT64_MAX - digit) / 10 ? UINT64_MAX : n * 10 + digit;
	}
	*out = n;
	if (s == *text)
		return 0;
	*text = s;
	return 1;
}

/* "A-B", "A-" or "-N"; 1: it can be served, 0: it is outside of the file, -1: it is none. */
static int one_range(const char **text, uint64_t size, struct srv_range *out)
{
	uint64_t a, b;

	if (**text == '-') {
		++*text;
		if (!number(text, &b))
			return -1;
		out->n = b < size ? b : size;
		out->off = size - out->n;
		return out->n != 0;
	}
	if (!number(text, &a) || *(*text)++ != '-')
		return -1;
	if (!number(text, &b))
		b = UINT64_MAX;
	if (b < a)
		return -1;
	if (a >= size)
		return 0;
	out->off = a;
	out->n = (b < size ? b : size - 1) - a + 1;
	return 1;
}

static const char *skip_blanks(const char *s)
{
	return s + strspn(s, " \t");
}

int srv_ranges(const char *text, uint64_t size, struct srv_range out[SRV_RANGES])
{
	int n = 0, met = 0;

	if (strncasecmp(text, "bytes=", 6))
		return -1;
	for (text = skip_blanks(text + 6); *text; text = skip_blanks(text)) {
		struct srv_range range;
		int good;

		if (*text == ',') {
			text++;
			continue;
		}
		good = one_range(&text, size, &range);
		text = skip_blanks(text);
		if (good < 0 || (*text && *text != ',') || ++met > SRV_RANGES)
			return -1;
		if (good)
			out[n++] = range;
	}
	return met ? n : -1;
}

int srv_has_tag(const char *list, const char *tag, int weak)
{
	const size_t len = strlen(tag);

	for (const char *s = list; *s;) {
		const int is_weak = !strncmp(s, "W/", 2);
		const char *end;

		if (*s == '*')
			return 1;
		s += is_weak ? 2 : 0;
		end = *s == '"' ? strchr(s + 1, '"') : NULL;
		if (end && (weak || !is_weak) && (size_t)(end - s - 1) == len &&
		    !memcmp(s + 1, tag, len))
			return 1;
		s = end ? end + 1 : s + 1;
	}
	return 0;
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : isxdigit((unsigned char)c) ? (c | 32) - 'a' + 10 :
	       -1;
}

int srv_decode(const char *path, char *out)
{
	for (; *path; path++) {
		int c = (unsigned char)*path;

		if (c == '%') {
			if (hex(path[1]) < 0 || hex(path[2]) < 0)
				return -1;
			c = hex(path[1]) * 16 + hex(path[2]);
			path += 2;
		}
		if (!c)
			return -1;
		*out++ = (char)c;
	}
	*out = 0;
	return 0;
}
