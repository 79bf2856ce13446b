/*
 * en_coerce.c -- see en_coerce.h.  What pydantic 2 takes for a number or a boolean was asked of it
 * (tests/fixtures/config-pydantic.inc).
 */
#include "engine/config/keys/en_coerce.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const devices[] = { "none", "cpu", "nvme" };

struct asked {
	const struct en_key *key;
	const struct en_node *v;
	bool strict, theirs;
	char *why;
};

static int no(struct asked *a, bool theirs, const char *expected)
{
	a->theirs = theirs;
	snprintf(a->why, EN_WHY, "expected %s", expected);
	return -1;
}

static bool is_one_of(const char *s, size_t n, const char *const *words, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strlen(words[i]) == n && !strncasecmp(words[i], s, n))
			return true;
	return false;
}

/* The text without white space at its ends. */
static const char *trimmed(const char *s, size_t *n)
{
	s += strspn(s, " \t\r\n");
	*n = strlen(s);
	while (*n && strchr(" \t\r\n", s[*n - 1]))
		--*n;
	return s;
}

static int to_bool(struct asked *a, struct en_value *out)
{
	static const char *const yes[] = { "1", "t", "y", "on", "yes", "true" };
	static const char *const never[] = { "0", "f", "n", "no", "off", "false" };
	const struct en_node *v = a->v;

	out->type = EN_BOOL;
	if (v->type == EN_BOOL || (v->type == EN_INT && (v->i == 0 || v->i == 1))) {
		out->i = v->i;
		return 0;
	}
	if (!a->strict)
		return no(a, false, "true or false");
	if (v->type == EN_FLOAT && (v->f == 0 || v->f == 1)) {
		out->i = v->f != 0;
		return 0;
	}
	if (v->type == EN_STR) {
		const size_t n = strlen(v->str);

		if (is_one_of(v->str, n, yes, CK_ARRAY_LEN(yes)))
			return out->i = 1, 0;
		if (is_one_of(v->str, n, never, CK_ARRAY_LEN(never)))
			return out->i = 0, 0;
	}
	return no(a, true, "true or false");
}

/* Digits with single underlines between them, without the underlines; 0 if they are no such. */
static size_t digits_of(const char *s, size_t n, char *out, size_t room)
{
	size_t used = 0;

	for (size_t i = 0; i < n; i++) {
		if (s[i] == '_') {
			if (!i || i + 1 == n || s[i - 1] == '_')
				return 0;
		} else if (s[i] < '0' || s[i] > '9' || used + 1 >= room) {
			return 0;
		} else {
			out[used++] = s[i];
		}
	}
	out[used] = 0;
	return used;
}

/* "2", " +2 ", "1_000", "2.0": pydantic's integers in strings.  -2: it does not fit. */
static int int_text(const char *text, int64_t *out)
{
	char digits[64];
	size_t n, whole;
	const char *s = trimmed(text, &n);
	bool minus = n && *s == '-';
	uint64_t u = 0;

	if (n && (*s == '-' || *s == '+')) {
		s++;
		n--;
	}
	for (whole = 0; whole < n && s[whole] != '.'; whole++)
		;
	for (size_t i = whole + 1; i < n; i++)
		if (s[i] != '0')
			return -1;
	if (whole + 1 == n || !digits_of(s, whole, digits, sizeof(digits)))
		return -1;
	for (const char *p = digits; *p; p++)
		if (ck_mul_over(u, 10, &u) || ck_add_over(u, (uint64_t)(*p - '0'), &u))
			return -2;
	if (u > INT64_MAX)
		return -2;
	*out = minus ? -(int64_t)u : (int64_t)u;
	return 0;
}

/* Python's integers have no end; a float that is beyond 64 bits is refused there too. */
static bool is_big_int(const struct en_node *v)
{
	return v->str && !strpbrk(v->str, ".eE");
}

static int whole(struct asked *a, struct en_value *out, double f)
{
	if (f != floor(f) || isinf(f))
		return no(a, true, "a whole number");
	if (fabs(f) >= 9223372036854775808.0)
		return no(a, a->key->type == EN_K_STAGE || !is_big_int(a->v),
			  "a number below 2^63");
	out->i = (int64_t)f;
	return 0;
}

static int strict_int(struct asked *a, struct en_value *out)
{
	const struct en_node *v = a->v;
	int rc;

	if (v->type == EN_FLOAT)
		return whole(a, out, v->f);
	if (v->type == EN_BOOL) {
		out->i = v->i;
		return 0;
	}
	/* Those keys go through int() first, which takes no point. */
	if (v->type != EN_STR || ((a->key->flags & EN_F_NO_BOOL) && strchr(v->str, '.')))
		return no(a, true, "a whole number");
	rc = int_text(v->str, &out->i);
	if (rc == -2)
		return no(a, false, "a number below 2^63");
	return rc ? no(a, true, "a whole number") : 0;
}

static int to_int(struct asked *a, struct en_value *out)
{
	const struct en_node *v = a->v;
	int rc = 0;

	out->type = EN_INT;
	if (v->type == EN_INT)
		out->i = v->i;
	else if (v->type == EN_BOOL && (!a->strict || (a->key->flags & EN_F_NO_BOOL)))
		rc = no(a, a->strict, "a whole number");
	else if (a->strict)
		rc = strict_int(a, out);
	else if (v->type == EN_FLOAT && !isnan(v->f))
		rc = whole(a, out, v->f);
	else
		rc = no(a, true, "a whole number");
	out->f = (double)out->i;
	return rc;
}

/* A float as Python's float() reads it. */
static bool float_text(const char *text, double *out)
{
	char plain[64];
	size_t n, used = 0;
	const char *s = trimmed(text, &n);
	char *end;

	if (!n || n >= sizeof(plain))
		return false;
	for (size_t i = 0; i < n; i++) {
		if (s[i] == '_') {
			if (!i || i + 1 == n || s[i - 1] < '0' || s[i - 1] > '9' ||
			    s[i + 1] < '0' || s[i + 1] > '9')
				return false;
		} else if (s[i] == 'x' || s[i] == 'X' || s[i] == '(') {
			return false;	/* strtod() takes them */
		} else {
			plain[used++] = s[i];
		}
	}
	plain[used] = 0;
	*out = strtod(plain, &end);
	return !*end;
}

static int to_float(struct asked *a, struct en_value *out)
{
	const struct en_node *v = a->v;
	bool ok = v->type == EN_INT || v->type == EN_FLOAT;

	out->type = EN_FLOAT;
	out->f = v->f;
	if (a->strict && v->type == EN_BOOL && !(a->key->flags & EN_F_NO_BOOL)) {
		out->f = (double)v->i;
		ok = true;
	} else if (a->strict && v->type == EN_STR) {
		ok = float_text(v->str, &out->f);
	}
	if (!ok)
		return no(a, a->strict || v->type != EN_BOOL, "a number");
	return isfinite(out->f) ? 0 : no(a, true, "a finite number");
}

static int to_device(struct asked *a, struct en_value *out)
{
	out->type = EN_INT;
	for (size_t i = 0; i < CK_ARRAY_LEN(devices); i++)
		if (en_node_is_str(a->v, devices[i])) {
			out->i = (int64_t)i;
			return 0;
		}
	return no(a, true, "\"none\", \"cpu\" or \"nvme\" in lower case");
}

static int to_dtype(struct asked *a, struct en_value *out)
{
	static const struct {
		const char *name;
		enum ckpt_dtype dtype;
	} names[] = {
		{ "fp32", CKPT_F32 }, { "bf16", CKPT_BF16 }, { "fp16", CKPT_F16 },
		/* grad_accum_dtype only */
		{ "float32", CKPT_F32 }, { "float", CKPT_F32 }, { "torch.float32", CKPT_F32 },
		{ "bfloat16", CKPT_BF16 }, { "torch.bfloat16", CKPT_BF16 },
		{ "float16", CKPT_F16 }, { "half", CKPT_F16 }, { "torch.float16", CKPT_F16 },
	};
	const bool top = a->key->block == EN_B_TOP;

	out->type = EN_INT;
	for (size_t i = 0; a->v->type == EN_STR && i < (top ? 3 : CK_ARRAY_LEN(names)); i++)
		if (!(top ? strcasecmp : strcmp)(a->v->str, names[i].name)) {
			out->i = names[i].dtype;
			return 0;
		}
	return no(a, true, "\"fp32\", \"bf16\" or \"fp16\"");
}

static int to_pair(struct asked *a, struct en_value *out)
{
	const struct en_node *v = a->v, *one = v->child, *two = one ? one->next : NULL;

	out->type = EN_LIST;
	if (v->type != EN_LIST || v->n != 2 || one->type == EN_BOOL || two->type == EN_BOOL ||
	    (one->type != EN_INT && one->type != EN_FLOAT) ||
	    (two->type != EN_INT && two->type != EN_FLOAT))
		return no(a, true, "a list of two numbers");
	out->f = one->f;
	out->f2 = two->f;
	return 0;
}

static int to_text(struct asked *a, struct en_value *out)
{
	if (a->v->type != EN_STR)
		return no(a, a->strict, "a string");
	out->type = EN_STR;
	out->str = a->v->str;
	return 0;
}

static int by_type(struct asked *a, struct en_value *out)
{
	switch (a->key->type) {
	case EN_K_BOOL:
		return to_bool(a, out);
	case EN_K_INT:
	case EN_K_STAGE:
		return to_int(a, out);
	case EN_K_FLOAT:
		return to_float(a, out);
	case EN_K_DEVICE:
		return to_device(a, out);
	case EN_K_DTYPE:
		return to_dtype(a, out);
	case EN_K_NUMBER_PAIR:
		return to_pair(a, out);
	case EN_K_STR:
		return to_text(a, out);
	default:
		out->type = EN_NULL;
		return 0;
	}
}

static int in_range(struct asked *a, enum en_ds_version version, const struct en_value *v)
{
	const struct en_key *k = a->key;
	double min = k->min;
	char expected[64];

	if (k->type == EN_K_STAGE)
		return v->i >= 0 && v->i <= 3 ? 0 : no(a, true, "a stage of 0, 1, 2 or 3");
	if ((k->flags & EN_F_UNIT) && !(v->f >= 0 && v->f <= 1))
		return no(a, true, "a number from 0 to 1");
	if ((k->flags & EN_F_MIN_0_19) && version < EN_DS_0_19)
		min = 0;
	if ((k->type != EN_K_INT && !(k->flags & EN_F_NO_SIGN)) || v->f >= min)
		return 0;
	snprintf(expected, sizeof(expected), "a number of at least %g", min);
	return no(a, true, expected);
}

int en_coerce(const struct en_key *key, bool strict, enum en_ds_version version,
	      const struct en_node *v, struct en_value *out, bool *theirs_out, char why[EN_WHY])
{
	struct asked a = { .key = key, .v = v, .strict = strict, .why = why };
	struct en_value got = { .type = EN_NULL };
	int rc = 0;

	if (key->type == EN_K_ANY)
		rc = 0;
	else if (v->type == EN_NULL && (key->flags & EN_F_NULL))
		en_default(key, version, &got);
	else if (v->type == EN_NULL)
		rc = no(&a, true, "a value");
	else
		rc = by_type(&a, &got);
	if (!rc && got.type != EN_NULL)
		rc = in_range(&a, version, &got);
	*theirs_out = a.theirs;
	if (!rc)
		*out = got;
	return rc;
}

void en_default(const struct en_key *key, enum en_ds_version version, struct en_value *out)
{
	const char *text = version < EN_DS_0_19 && key->dflt_old ? key->dflt_old : key->dflt;
	struct en_value v = { .type = EN_NULL };
	char *end;

	if (text && key->type == EN_K_BOOL) {
		v.type = EN_BOOL;
		v.i = !strcmp(text, "true");
	} else if (text && (key->type == EN_K_INT || key->type == EN_K_STAGE)) {
		v.type = EN_INT;
		v.i = strtoll(text, NULL, 10);
		v.f = (double)v.i;
	} else if (text && key->type == EN_K_FLOAT) {
		v.type = EN_FLOAT;
		v.f = strtod(text, NULL);
	} else if (text && key->type == EN_K_NUMBER_PAIR) {
		v.type = EN_LIST;
		v.f = strtod(text, &end);
		v.f2 = strtod(end + 1, NULL);
	} else if (text && key->type == EN_K_STR) {
		v.type = EN_STR;
		v.str = text;
	} else if (key->type == EN_K_DEVICE) {
		v.type = EN_INT;	/* "none" is number 0 */
	}
	*out = v;
}

bool en_value_same(const struct en_value *a, const struct en_value *b)
{
	if (a->type != b->type)
		return false;
	switch (a->type) {
	case EN_BOOL:
	case EN_INT:
		return a->i == b->i;
	case EN_FLOAT:
		return a->f == b->f;
	case EN_LIST:
		return a->f == b->f && a->f2 == b->f2;
	case EN_STR:
		return !strcasecmp(a->str, b->str);
	default:
		return true;
	}
}

void en_value_text(const struct en_key *key, const struct en_value *v, char out[EN_VALUE_TEXT])
{
	struct en_node n = { .type = v->type, .i = v->i, .f = v->f, .str = v->str };
	struct en_node two = { .type = EN_FLOAT, .f = v->f2 };
	struct en_node one = { .type = EN_FLOAT, .f = v->f, .next = &two };

	if (v->type == EN_INT && key->type == EN_K_DEVICE) {
		snprintf(out, EN_VALUE_TEXT, "\"%s\"", devices[v->i]);
		return;
	}
	if (v->type == EN_INT && key->type == EN_K_DTYPE) {
		snprintf(out, EN_VALUE_TEXT, "\"%s\"", v->i == CKPT_F32    ? "fp32"
						       : v->i == CKPT_BF16 ? "bf16"
									   : "fp16");
		return;
	}
	if (v->type == EN_INT)
		n.str = NULL;
	if (v->type == EN_LIST) {
		n.child = &one;
		n.n = 2;
	}
	if (v->type == EN_FLOAT)
		n.str = NULL;
	en_node_text(&n, out);
}

void en_value_put(const struct en_key *key, const struct en_value *v, struct en_settings *set)
{
	char *at;
	double pair[2];

	if (key->field == EN_NO_FIELD)
		return;
	at = (char *)set + key->field;
	switch (key->type) {
	case EN_K_BOOL:
		memcpy(at, &(bool){ v->i != 0 }, sizeof(bool));
		break;
	case EN_K_INT:
	case EN_K_STAGE:
		memcpy(at, &v->i, sizeof(v->i));
		break;
	case EN_K_DEVICE:
	case EN_K_DTYPE:
		memcpy(at, &(int){ (int)v->i }, sizeof(int));
		break;
	case EN_K_FLOAT:
		memcpy(at, &v->f, sizeof(v->f));
		break;
	case EN_K_NUMBER_PAIR:
		pair[0] = v->f;
		pair[1] = v->f2;
		memcpy(at, pair, sizeof(pair));
		break;
	case EN_K_STR:
		memcpy(at, &v->str, sizeof(v->str));
		break;
	default:
		break;
	}
}
