/* cli_opt_value.c -- see cli_opt.h: values of options, and what is wrong with a call. */
#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#include "cli_opt.h"
#include "cli_text.h"

int opt_wrong(const struct opt_call *call, const char *fmt, ...)
{
	char what[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return call->wrong(call->arg, what);
}

/* 1 and the factor of a unit: "", B, K/KB, KiB, M, G, T likewise, in any case. */
static int unit_parse(const char *text, uint64_t *factor_out)
{
	static const char letters[] = "kmgt";
	const char *at = *text ? strchr(letters, tolower((unsigned char)*text)) : NULL;
	uint64_t base = 1000, factor = 1;

	if (at)
		text++;
	if (at && tolower((unsigned char)*text) == 'i') {
		base = 1024;
		text++;
		if (tolower((unsigned char)*text) != 'b')
			return 0;
	}
	if (tolower((unsigned char)*text) == 'b')
		text++;
	if (*text)
		return 0;
	for (; at && at >= letters; at--)
		factor *= base;
	*factor_out = factor;
	return 1;
}

/* Steps over "e9", "e-3", if 'text' is at one.  0, or -1: it is none, or beyond all sizes. */
static int exponent_parse(const char **text, int *exponent_out)
{
	const char *at = *text;
	int sign = 1, n = 0;

	*exponent_out = 0;
	if (tolower((unsigned char)*at) != 'e')
		return 0;
	at++;
	if (*at == '+' || *at == '-')
		sign = *at++ == '-' ? -1 : 1;
	if (!isdigit((unsigned char)*at))
		return -1;
	for (; isdigit((unsigned char)*at); at++) {
		n = n * 10 + (*at - '0');
		if (n > 999)
			return -1;
	}
	*exponent_out = sign * n;
	*text = at;
	return 0;
}

/* A decimal number, "1.5e3": its digits, and how many of them are before the point. */
struct decimal {
	const char *text;
	long before, digits, whole;	/* of the text; of both; with the exponent */
};

static uint64_t digit_at(const struct decimal *n, long i)
{
	return i < 0 || i >= n->digits ? 0 : (uint64_t)(n->text[i + (i >= n->before)] - '0');
}

/* n * factor, less what is below 1; 0, or -1 if it does not fit. */
static int decimal_times(const struct decimal *n, uint64_t factor, uint64_t *out)
{
	uint64_t whole = 0, part = 0;

	for (long i = 0; i < n->whole; i++)
		if (__builtin_mul_overflow(whole, UINT64_C(10), &whole) ||
		    __builtin_add_overflow(whole, digit_at(n, i), &whole))
			return -1;
	/* from the last digit on no remainder is lost that could matter; factor <= 2^40 fits */
	for (long i = n->digits - 1; i >= n->whole; i--)
		part = (part + digit_at(n, i) * factor) / 10;
	return __builtin_mul_overflow(whole, factor, &whole) ||
	       __builtin_add_overflow(whole, part, out) ? -1 : 0;
}

int opt_size_parse(const char *text, uint64_t *bytes_out)
{
	struct decimal n = { .text = text };
	uint64_t factor, bytes;
	int exponent;

	n.before = n.digits = (long)strspn(text, "0123456789");
	text += n.before;
	if (*text == '.') {
		n.digits += (long)strspn(text + 1, "0123456789");
		text += 1 + n.digits - n.before;
	}
	if (!n.before || exponent_parse(&text, &exponent))
		return -1;
	n.whole = n.before + exponent;
	while (*text == ' ')
		text++;
	if (!unit_parse(text, &factor) || decimal_times(&n, factor, &bytes))
		return -1;
	*bytes_out = bytes;
	return 0;
}

static int count_parse(const char *text, uint64_t *n_out)
{
	uint64_t n = 0;

	if (!*text)
		return -1;
	for (; *text; text++) {
		if (!isdigit((unsigned char)*text) || n > INT32_MAX / 10)
			return -1;
		n = n * 10 + (uint64_t)(*text - '0');
	}
	*n_out = n;
	return n > INT32_MAX ? -1 : 0;
}

/* The index of 'word', as opt_is_name() compares, in "a|b|c", or -1. */
static int choice_parse(const char *choices, const char *word)
{
	for (int i = 0; *choices; i++) {
		size_t m = strcspn(choices, "|");
		char *choice = cli_format("%.*s", (int)m, choices);
		const int is = opt_is_name(choice, word);

		cli_free(choice);
		if (is)
			return i;
		choices += m + (choices[m] == '|');
	}
	return -1;
}

static int commas_add(struct words *words, const char *value)
{
	char *copy = cli_strdup(value), *comma;

	for (;;) {
		comma = strchr(copy, ',');
		if (comma)
			*comma = 0;
		if (!*copy)
			return -1;
		words_add(words, copy);
		if (!comma)
			return 0;
		copy = comma + 1;
	}
}

int opt_set(const struct opt_call *call, const struct opt *opt, const char *text)
{
	int chosen;

	switch (opt->kind) {
	case OPT_TEXT:
		*(const char **)opt->to = text;
		return 0;
	case OPT_WORDS:
		words_add(opt->to, text);
		return 0;
	case OPT_COMMAS:
		if (!commas_add(opt->to, text))
			return 0;
		return opt_wrong(call, "--%s: the list %s has an empty word",
				 opt->name, out_name(text));
	case OPT_COUNT:
		if (!count_parse(text, opt->to))
			return 0;
		return opt_wrong(call, "--%s: %s is not a number", opt->name, out_name(text));
	case OPT_SIZE:
		if (!opt_size_parse(text, opt->to) && *(uint64_t *)opt->to)
			return 0;
		return opt_wrong(call, "--%s: %s is not a size; sizes are 5GB, 512MiB, 1.5TB",
				 opt->name, out_name(text));
	case OPT_CHOICE:
		chosen = choice_parse(opt->value, text);
		if (chosen < 0)
			return opt_wrong(call, "--%s: %s is not one of %s", opt->name,
					 out_name(text), opt->value);
		*(int *)opt->to = chosen;
		return 0;
	case OPT_OWN:
		return ((const struct opt_own *)opt->to)->set(call, opt, text);
	case OPT_END:
	case OPT_HEADING:
	case OPT_FLAG:
		break;
	}
	return opt_wrong(call, "--%s takes no value", opt->name);
}
