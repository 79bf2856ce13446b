/*
 * ck_pkl_text.c -- the values that protocol 0 writes as lines of text, and UTF-8.
 *
 * Strings of Python are UTF-8 with lone surrogates let through ("surrogatepass"), as
 * Python's own pickles write them.
 */
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/pickle/ck_pkl_vm.h"

#define MAX_DIGITS 4300	/* Python's own bound on text of integers */

/* Length of the character at p, 0 if it is none. */
static unsigned char_len(const uint8_t *p, uint64_t left, bool *surrogate)
{
	unsigned n;
	uint32_t c;

	if (p[0] < 0x80)
		return 1;
	n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
	if (p[0] < 0xc2 || p[0] > 0xf4 || n > left)
		return 0;
	c = p[0] & (0xffu >> (n + 1));
	for (unsigned i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	if ((n == 3 && c < 0x800) || (n == 4 && (c < 0x10000 || c > 0x10ffff)))
		return 0;
	if (c >= 0xd800 && c < 0xe000)
		*surrogate = true;
	return n;
}

bool ck_pkl_is_utf8(const uint8_t *p, uint64_t n, bool *surrogates_out)
{
	*surrogates_out = false;
	while (n) {
		const unsigned k = char_len(p, n, surrogates_out);

		if (!k)
			return false;
		p += k;
		n -= k;
	}
	return true;
}

int ck_pkl_line(struct ck_pkl_vm *vm, const uint8_t **p_out, uint64_t *n_out)
{
	const uint8_t *end = vm->cur.left ? memchr(vm->cur.p, '\n', vm->cur.left) : NULL;

	if (!end)
		return ck_pkl_fail(vm, CKPT_E_TRUNCATED, "a line of text has no end");
	*n_out = (uint64_t)(end - vm->cur.p);
	ck_cur_take(&vm->cur, *n_out + 1, p_out, NULL);
	return 0;
}

/* Decimal text of any length to two's complement, by schoolbook multiplication. */
static int big_decimal(struct ck_pkl_vm *vm, const uint8_t *p, uint64_t n, bool negative,
		       struct ck_val **out)
{
	uint8_t b[MAX_DIGITS / 2 + 2] = { 0 };
	uint64_t len = 1;
	unsigned carry;

	for (uint64_t i = 0; i < n; i++) {
		carry = (unsigned)(p[i] - '0');
		for (uint64_t k = 0; k < len || carry; k++) {
			carry += b[k] * 10u;
			b[k] = (uint8_t)carry;
			carry >>= 8;
			len = k + 1 > len ? k + 1 : len;
		}
	}
	b[len++] = 0;
	carry = 1;
	for (uint64_t k = 0; negative && k < len; k++) {
		carry += (uint8_t)~b[k];
		b[k] = (uint8_t)carry;
		carry >>= 8;
	}
	return ck_pkl_long(vm, b, len, out);
}

int ck_pkl_text_int(struct ck_pkl_vm *vm, bool is_long, struct ck_val **out)
{
	const uint8_t *p;
	bool negative = false;
	uint64_t n;
	int rc = ck_pkl_line(vm, &p, &n);

	if (rc)
		return rc;
	if (!is_long && n == 2 && p[0] == '0' && (p[1] == '0' || p[1] == '1')) {
		*out = p[1] == '1' ? vm->yes : vm->no;
		return 0;
	}
	if (is_long && n && p[n - 1] == 'L')
		n--;
	if (n && (*p == '-' || *p == '+')) {
		negative = *p == '-';
		p++;
		n--;
	}
	if (!n || n > MAX_DIGITS)
		return ck_pkl_fail(vm, CKPT_E_CORRUPT, "an integer has %" PRIu64 " digits, none "
				   "or too many", n);
	for (uint64_t i = 0; i < n; i++)
		if (p[i] < '0' || p[i] > '9')
			return ck_pkl_fail(vm, CKPT_E_CORRUPT, "an integer has characters other "
				"than digits");
	return big_decimal(vm, p, n, negative, out);
}

int ck_pkl_text_float(struct ck_pkl_vm *vm, struct ck_val **out)
{
	const uint8_t *p;
	char text[400], *end = text;
	locale_t c_locale;
	uint64_t n;
	double f = 0;
	int rc = ck_pkl_line(vm, &p, &n);

	if (rc)
		return rc;
	if (n && n < sizeof(text) && !memchr(p, 'x', n) && !memchr(p, 'X', n)) {
		memcpy(text, p, n);
		text[n] = 0;
		c_locale = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
		if (!c_locale)
			return ck_fail_nomem(vm->err, "a number", n);
		f = strtod_l(text, &end, c_locale);
		freelocale(c_locale);
	}
	if (end == text || (uint64_t)(end - text) != n)
		return ck_pkl_fail(vm, CKPT_E_CORRUPT, "the text of a float is not a "
			"floating-point number");
	rc = ck_pkl_node(vm, CK_VAL_FLOAT, out);
	if (!rc)
		(*out)->u.f = f;
	return rc;
}

static int hex(const uint8_t *p, const uint8_t *end, unsigned digits, uint32_t *out)
{
	uint32_t v = 0;

	if ((uint64_t)(end - p) < digits)
		return -1;
	for (unsigned i = 0; i < digits; i++) {
		const uint8_t c = p[i] | 0x20;

		if (c >= '0' && c <= '9')
			v = v << 4 | (uint32_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			v = v << 4 | (uint32_t)(c - 'a' + 10);
		else
			return -1;
	}
	*out = v;
	return 0;
}

/* One escape of a Python 2 string behind its backslash; bytes taken, 0 = none. */
static unsigned escape(const uint8_t *p, const uint8_t *end, uint8_t *out)
{
	static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
	const char *at;
	uint32_t v;

	if (p >= end)
		return 0;
	at = *p ? strchr(from, *p) : NULL;
	if (at) {
		*out = (uint8_t)to[at - from];
		return 1;
	}
	if (*p == 'x') {
		if (hex(p + 1, end, 2, &v))
			return 0;
		*out = (uint8_t)v;
		return 3;
	}
	for (v = 0, at = (const char *)p; p < end && p - (const uint8_t *)at < 3 && *p >= '0' &&
	     *p <= '7'; p++)
		v = v * 8 + (uint32_t)(*p - '0');
	*out = (uint8_t)v;
	return (unsigned)(p - (const uint8_t *)at);
}

/* STRING: the repr of a Python 2 string. */
int ck_pkl_text_string(struct ck_pkl_vm *vm, struct ck_val **out)
{
	const uint8_t *p, *end;
	uint8_t *text, *w;
	uint64_t n;
	int rc = ck_pkl_line(vm, &p, &n);

	if (rc)
		return rc;
	while (n && (p[n - 1] == ' ' || p[n - 1] == '\r' || p[n - 1] == '\t'))
		n--;
	if (n < 2 || p[0] != p[n - 1] || (p[0] != '\'' && p[0] != '"'))
		return ck_pkl_fail(vm, CKPT_E_CORRUPT, "a string has no quotes");
	end = p + n - 1;
	w = text = ck_alloc(n);
	if (!text)
		return ck_fail_nomem(vm->err, "a string", n);
	for (p++; p < end; w++) {
		unsigned k;

		if (*p != '\\') {
			*w = *p++;
			continue;
		}
		k = escape(p + 1, end, w);
		if (!k) {
			*w = '\\';	/* unknown escapes stay as they are */
			p++;
		} else {
			p += 1 + k;
		}
	}
	rc = ck_pkl_str2(vm, text, (uint64_t)(w - text), out);
	ck_free(text);
	return rc;
}

static unsigned utf8_put(uint8_t *w, uint32_t c)
{
	if (c < 0x80) {
		w[0] = (uint8_t)c;
		return 1;
	}
	if (c < 0x800) {
		w[0] = (uint8_t)(0xc0 | c >> 6);
		w[1] = (uint8_t)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		w[0] = (uint8_t)(0xe0 | c >> 12);
		w[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
		w[2] = (uint8_t)(0x80 | (c & 0x3f));
		return 3;
	}
	w[0] = (uint8_t)(0xf0 | c >> 18);
	w[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
	w[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
	w[3] = (uint8_t)(0x80 | (c & 0x3f));
	return 4;
}

/* UNICODE: Latin-1 with \uXXXX and \UXXXXXXXX. */
int ck_pkl_text_unicode(struct ck_pkl_vm *vm, struct ck_val **out)
{
	const uint8_t *p, *end;
	uint8_t *text, *w;
	uint64_t n;
	int rc = ck_pkl_line(vm, &p, &n);

	if (rc)
		return rc;
	w = text = ck_alloc_array(n + 1, 2);
	if (!text)
		return ck_fail_nomem(vm->err, "a string", n);
	for (end = p + n; !rc && p < end;) {
		const bool esc = p[0] == '\\' && end - p > 1 && (p[1] | 0x20) == 'u';
		const unsigned digits = esc && p[1] == 'U' ? 8 : 4;
		uint32_t c = *p;

		if (esc && (hex(p + 2, end, digits, &c) || c > 0x10ffff))
			rc = ck_pkl_fail(vm, CKPT_E_CORRUPT, "a \\u escape in a string is "
					 "damaged");
		p += esc ? 2 + digits : 1;
		if (!rc)
			w += utf8_put(w, c);
	}
	if (!rc)
		rc = ck_pkl_str(vm, CK_VAL_STR, text, (uint64_t)(w - text), out);
	ck_free(text);
	return rc;
}

int ck_pkl_text_index(struct ck_pkl_vm *vm, uint64_t *out)
{
	const uint8_t *p;
	uint64_t n, v = 0;
	int rc = ck_pkl_line(vm, &p, &n);

	if (rc)
		return rc;
	if (!n || n > 18)
		return ck_pkl_fail(vm, CKPT_E_CORRUPT, "a memo index has %" PRIu64 " digits, "
				   "none or too many", n);
	for (uint64_t i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return ck_pkl_fail(vm, CKPT_E_CORRUPT, "a memo index is not a number");
		v = v * 10 + (uint64_t)(p[i] - '0');
	}
	*out = v;
	return 0;
}
