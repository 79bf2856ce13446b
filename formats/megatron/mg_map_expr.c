/* mg_map_expr.c -- expressions of a table of names, by recursive descent. */
#include <inttypes.h>
#include <string.h>

#include "formats/megatron/mg_map.h"
#include "libckpt/base/ck_err.h"

#define DEEP 16u	/* brackets in brackets */

struct expr {
	const struct mg_map *map;
	const uint64_t *value;	/* NULL = syntax only */
	const char *text, *p;
	uint32_t line, depth;
	struct ckpt_err *err;
};

static int fail_at(const struct expr *x, enum ckpt_code code, const char *what)
{
	return ck_fail(x->err, code, x->map->where, CKPT_NO_OFFSET, "line %" PRIu32 ": %s in "
		       "\"%.60s\", at \"%.20s\"", x->line, what, x->text, x->p);
}

static void skip_spaces(struct expr *x)
{
	while (*x->p == ' ' || *x->p == '\t')
		x->p++;
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static int read_sum(struct expr *x, uint64_t *out);

static int read_number(struct expr *x, uint64_t *out)
{
	uint64_t n = 0;

	while (is_digit(*x->p)) {
		if (ck_mul_over(n, 10, &n) || ck_add_over(n, (uint64_t)(*x->p - '0'), &n))
			return fail_at(x, CKPT_E_FORMAT, "a number that is too large");
		x->p++;
	}
	*out = n;
	return 0;
}

static int read_name(struct expr *x, uint64_t *out)
{
	const char *end = x->p;
	uint64_t i;

	while (is_letter(*end) || is_digit(*end))
		end++;
	i = ck_mg_map_find_size(x->map, x->p, (size_t)(end - x->p));
	if (i == UINT64_MAX)
		return fail_at(x, CKPT_E_FORMAT, "no size of this name");
	x->p = end;
	*out = x->value ? x->value[i] : 1;
	return 0;
}

static int read_factor(struct expr *x, uint64_t *out)
{
	int rc;

	skip_spaces(x);
	if (is_digit(*x->p))
		return read_number(x, out);
	if (is_letter(*x->p))
		return read_name(x, out);
	if (*x->p != '(')
		return fail_at(x, CKPT_E_FORMAT, "a number, a size or a bracket is missing");
	if (x->depth == DEEP)
		return fail_at(x, CKPT_E_FORMAT, "too many brackets");
	x->depth++;
	x->p++;
	rc = read_sum(x, out);
	x->depth--;
	if (rc)
		return rc;
	if (*x->p != ')')
		return fail_at(x, CKPT_E_FORMAT, "a missing bracket");
	x->p++;
	return 0;
}

static int divide(struct expr *x, uint64_t by, uint64_t *n)
{
	if (!x->value)
		return 0;
	if (!by || *n % by)
		return ck_fail(x->err, CKPT_E_MISMATCH, x->map->where, CKPT_NO_OFFSET,
			       "line %" PRIu32 ": \"%.60s\": %" PRIu64 " is no multiple of %" PRIu64
			       "; is config.json that of this model?", x->line, x->text, *n, by);
	*n /= by;
	return 0;
}

static int read_product(struct expr *x, uint64_t *out)
{
	uint64_t n = 0, m = 0;
	int rc = read_factor(x, &n);

	skip_spaces(x);
	while (!rc && (*x->p == '*' || *x->p == '/')) {
		const bool times = *x->p++ == '*';

		rc = read_factor(x, &m);
		if (!rc && times && ck_mul_over(n, m, &n))
			rc = fail_at(x, CKPT_E_MISMATCH, "a product that is too large");
		else if (!rc && !times)
			rc = divide(x, m, &n);
		skip_spaces(x);
	}
	if (!rc)
		*out = n;
	return rc;
}

static int read_sum(struct expr *x, uint64_t *out)
{
	uint64_t n = 0, m = 0;
	int rc = read_product(x, &n);

	while (!rc && (*x->p == '+' || *x->p == '-')) {
		const bool plus = *x->p++ == '+';

		rc = read_product(x, &m);
		if (!rc && plus && ck_add_over(n, m, &n))
			rc = fail_at(x, CKPT_E_MISMATCH, "a sum that is too large");
		else if (!rc && !plus && x->value && m > n)
			rc = fail_at(x, CKPT_E_MISMATCH, "a difference below 0");
		else if (!rc && !plus)
			n = m > n ? 0 : n - m;
	}
	if (!rc)
		*out = n;
	return rc;
}

int ck_mg_map_value(const struct mg_map *map, const uint64_t *value, const char *text,
		    uint32_t line, uint64_t *out, struct ckpt_err *err)
{
	struct expr x = {
		.map = map, .value = value, .text = text, .p = text, .line = line, .err = err,
	};
	uint64_t n = 0;
	int rc = read_sum(&x, &n);

	if (!rc && *x.p)
		rc = fail_at(&x, CKPT_E_FORMAT, "more than an expression");
	if (!rc)
		*out = n;
	return rc;
}
