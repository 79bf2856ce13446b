/* ck_json_str.c -- see ck_json_str.h; and ck_utf8_valid() of ck_json.h. */
#include "libckpt/json/ck_json_str.h"

#include <string.h>

#include "libckpt/json/ck_json.h"

struct escapes {
	const char *p, *end;
	char *out;
	bool lenient;
	const char *what;	/* what is wrong; then 'p' is where */
};

/* Bytes of the sequence at p, 0 if it is no shortest form of a scalar value. */
static unsigned utf8_sequence(const unsigned char *p, uint64_t left)
{
	const unsigned c = p[0];
	const unsigned n = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 :
			   c < 0xf5 ? 4 : 0;

	if (!n || n > left)
		return 0;
	for (unsigned i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] > 0x9f) ||
	    (c == 0xf0 && p[1] < 0x90) || (c == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

bool ck_utf8_valid(const char *text, uint64_t len, uint64_t *bad_out)
{
	const unsigned char *s = (const unsigned char *)text;
	uint64_t i = 0;

	while (i < len) {
		unsigned n;

		if (len - i >= 8 && !(ck_le64(s + i) & 0x8080808080808080u)) {
			i += 8;
			continue;
		}
		n = utf8_sequence(s + i, len - i);
		if (!n) {
			if (bad_out)
				*bad_out = i;
			return false;
		}
		i += n;
	}
	return true;
}

static char *utf8_put(char *out, uint32_t c)
{
	if (c < 0x80) {
		*out++ = (char)c;
	} else if (c < 0x800) {
		*out++ = (char)(0xc0 | c >> 6);
		*out++ = (char)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		*out++ = (char)(0xe0 | c >> 12);
		*out++ = (char)(0x80 | (c >> 6 & 0x3f));
		*out++ = (char)(0x80 | (c & 0x3f));
	} else {
		*out++ = (char)(0xf0 | c >> 18);
		*out++ = (char)(0x80 | (c >> 12 & 0x3f));
		*out++ = (char)(0x80 | (c >> 6 & 0x3f));
		*out++ = (char)(0x80 | (c & 0x3f));
	}
	return out;
}

static bool fault(struct escapes *e, const char *at, const char *what)
{
	e->p = at;
	e->what = what;
	return false;
}

static bool hex4(struct escapes *e, const char *p, uint32_t *out)
{
	uint32_t v = 0;

	if (e->end - p < 4)
		return fault(e, p, "a \\u escape is cut short");
	for (int i = 0; i < 4; i++) {
		const char c = p[i];
		const int d = c >= '0' && c <= '9' ? c - '0' :
			      c >= 'a' && c <= 'f' ? c - 'a' + 10 :
			      c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;

		if (d < 0)
			return fault(e, p, "a \\u escape needs four hexadecimal digits");
		v = v << 4 | (uint32_t)d;
	}
	*out = v;
	return true;
}

/* \uXXXX and its second half; e->p stands behind the u. */
static bool unescape_u(struct escapes *e)
{
	const char *p = e->p, *start = p - 2;
	uint32_t c = 0, low = 0;

	if (!hex4(e, p, &c))
		return false;
	p += 4;
	if (c >= 0xdc00 && c < 0xe000)
		return fault(e, start, "the second half of a surrogate pair without the first");
	if (c >= 0xd800 && c < 0xdc00) {
		if (e->end - p < 6 || p[0] != '\\' || p[1] != 'u')
			return fault(e, start, "the first half of a surrogate pair without the "
					       "second");
		if (!hex4(e, p + 2, &low))
			return false;
		if (low < 0xdc00 || low >= 0xe000)
			return fault(e, start, "the first half of a surrogate pair without the "
					       "second");
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
		p += 6;
	}
	e->out = utf8_put(e->out, c);
	e->p = p;
	return true;
}

/* e->p stands behind the backslash. */
static bool unescape_one(struct escapes *e)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char c = *e->p;
	const char *hit = c ? strchr(from, c) : NULL;

	if (c == 'u') {
		e->p++;
		return unescape_u(e);
	}
	if (!hit && !(e->lenient && c == '\''))
		return fault(e, e->p - 1, "unknown escape");
	*e->out++ = hit ? to[hit - from] : c;
	e->p++;
	return true;
}

const char *ck_json_unescape(const char *p, const char *end, bool lenient, char *out,
			     uint64_t *len_out, const char **what_out)
{
	struct escapes e = { .p = p, .end = end, .out = out, .lenient = lenient };

	while (e.p < end) {
		if (*e.p != '\\') {
			*e.out++ = *e.p++;
			continue;
		}
		e.p++;
		if (!unescape_one(&e)) {
			*what_out = e.what;
			return e.p;
		}
	}
	*e.out = 0;
	*len_out = (uint64_t)(e.out - out);
	return NULL;
}
