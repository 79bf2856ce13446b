/*
 * en_yaml_types.c -- what PyYAML 6 makes of a plain scalar (its resolver follows YAML 1.1).
 *
 * This is why 5e8 in an accelerate file is a string (a float needs a point, and a sign in its
 * exponent), "no" is false, 010 is eight and 1:30 is ninety.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/tree/en_node.h"

static size_t run(const char *p, const char *of)
{
	return strspn(p, of);
}

static const char *skip_sign(const char *p)
{
	return *p == '-' || *p == '+' ? p + 1 : p;
}

static bool is_word(const char *p, const char *lower)
{
	const size_t n = strlen(lower);
	bool all_lower = true, all_upper = true, first_upper;

	if (strlen(p) != n)
		return false;
	for (size_t i = 0; i < n; i++) {
		const char up = lower[i] >= 'a' ? (char)(lower[i] - 32) : lower[i];

		if (p[i] != lower[i] && p[i] != up)
			return false;
		if (i) {
			all_lower = all_lower && p[i] == lower[i];
			all_upper = all_upper && p[i] == up;
		}
	}
	first_upper = p[0] != lower[0];
	return all_lower || (first_upper && all_upper);
}

static bool is_bool(const char *p, bool *out)
{
	static const struct {
		const char *word;
		bool value;
	} words[] = {
		{ "yes", true }, { "no", false }, { "true", true }, { "false", false },
		{ "on", true }, { "off", false },
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(words); i++)
		if (is_word(p, words[i].word)) {
			*out = words[i].value;
			return true;
		}
	return false;
}

/* ":NN" after digits, each below 60. */
static size_t sixties(const char *p)
{
	size_t n = 0;

	while (p[n] == ':' && run(p + n + 1, "0123456789")) {
		const size_t digits = run(p + n + 1, "0123456789");

		if (digits > 2 || (digits == 2 && p[n + 1] > '5'))
			return 0;
		n += 1 + digits;
	}
	return n;
}

/* 0 = none; else the base, 60 for "1:30". */
static int int_base(const char *p)
{
	size_t n;

	p = skip_sign(p);
	if (p[0] == '0' && p[1] == 'b' && p[2])
		return p[2 + run(p + 2, "01_")] ? 0 : 2;
	if (p[0] == '0' && p[1] == 'x' && p[2])
		return p[2 + run(p + 2, "0123456789abcdefABCDEF_")] ? 0 : 16;
	if (p[0] == '0' && p[1])
		return p[1 + run(p + 1, "01234567_")] ? 0 : 8;
	if (p[0] == '0')
		return 10;
	n = *p >= '1' && *p <= '9' ? run(p, "0123456789_") : 0;
	if (!n)
		return 0;
	if (!p[n])
		return 10;
	return sixties(p + n) && !p[n + sixties(p + n)] ? 60 : 0;
}

static bool is_exponent(const char *p)
{
	if (!*p)
		return true;
	if ((*p != 'e' && *p != 'E') || (p[1] != '-' && p[1] != '+'))
		return false;
	return run(p + 2, "0123456789") && !p[2 + run(p + 2, "0123456789")];
}

static bool is_float(const char *text)
{
	const char *p = skip_sign(text);
	size_t n = run(p, "0123456789_");

	if (!strcmp(text, ".nan") || !strcmp(text, ".NaN") || !strcmp(text, ".NAN"))
		return true;
	if (*p == '.' && (!strcmp(p, ".inf") || !strcmp(p, ".Inf") || !strcmp(p, ".INF")))
		return true;
	if (*text == '.')	/* no sign before a bare point */
		return text[1] >= '0' && text[1] <= '9' &&
		       is_exponent(text + 1 + run(text + 1, "0123456789_"));
	if (!n || *p == '_')
		return false;
	if (p[n] == ':') {
		n += sixties(p + n);
		return p[n] == '.' && !p[n + 1 + run(p + n + 1, "0123456789_")];
	}
	return p[n] == '.' && is_exponent(p + n + 1 + run(p + n + 1, "0123456789_"));
}

/* Without sign and underlines. */
static void plain_digits(const char *p, char *out, size_t n)
{
	size_t used = 0;

	for (p = skip_sign(p); *p && used + 1 < n; p++)
		if (*p != '_')
			out[used++] = *p;
	out[used] = 0;
}

static double sixty_value(const char *p)
{
	double v = 0;

	for (; *p; p += *p == ':') {
		char *end;

		v = v * 60 + strtod(p, &end);
		p = end;
	}
	return v;
}

/* False if it does not fit. */
static bool int_value(const char *digits, int base, uint64_t *out)
{
	uint64_t v = 0;

	for (const char *p = digits + (base == 16 || base == 2 ? 2 : 0); *p; p++) {
		const int digit = *p <= '9' ? *p - '0' : (*p | 32) - 'a' + 10;

		if (ck_mul_over(v, (uint64_t)base, &v) || ck_add_over(v, (uint64_t)digit, &v))
			return false;
	}
	if (v > INT64_MAX)
		return false;
	*out = v;
	return true;
}

static bool resolve_int(struct en_node *v)
{
	const int base = int_base(v->str);
	const bool minus = v->str[0] == '-';
	char digits[128];
	uint64_t u = 0;

	if (!base)
		return false;
	plain_digits(v->str, digits, sizeof(digits));
	if ((base == 2 || base == 16) && !digits[2])
		return false;	/* "0x_": PyYAML fails on it, a string says more */
	v->type = EN_INT;
	if (base == 60)
		u = (uint64_t)fmin(sixty_value(digits), 9e18);
	else if (!int_value(digits, base, &u))
		v->type = EN_FLOAT;	/* Python's integers have no end; nothing here needs one */
	v->f = v->type == EN_INT ? (double)u : strtod(digits, NULL);
	v->i = (int64_t)u;
	if (minus) {
		v->i = -v->i;
		v->f = -v->f;
	}
	return true;
}

static bool resolve_float(struct en_node *v)
{
	char digits[128];

	if (!is_float(v->str))
		return false;
	plain_digits(v->str, digits, sizeof(digits));
	v->type = EN_FLOAT;
	if (digits[0] == '.' && (digits[1] | 32) == 'i')
		v->f = INFINITY;
	else if (digits[0] == '.' && (digits[1] | 32) == 'n')
		v->f = NAN;
	else
		v->f = strchr(digits, ':') ? sixty_value(digits) : strtod(digits, NULL);
	if (v->str[0] == '-')
		v->f = -v->f;
	return true;
}

void en_yaml_resolve(struct en_node *v)
{
	const char *p = v->str;
	bool b;

	v->type = EN_STR;
	if (!*p || !strcmp(p, "~") || is_word(p, "null")) {
		v->type = EN_NULL;
	} else if (is_bool(p, &b)) {
		v->type = EN_BOOL;
		v->i = b;
	} else if (strlen(p) < 100 && !resolve_float(v)) {
		resolve_int(v);
	}
}
