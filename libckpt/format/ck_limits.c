/* ck_limits.c -- see ck_limits.h. */
#include "libckpt/format/ck_limits.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"

static const struct ckpt_limit_info info[] = {
#define X(field, value, most, is_bytes, text) { #field, text, value, most, is_bytes },
	CK_LIMITS(X)
#undef X
};

void ck_limits_fill(const struct ckpt_limits *in, struct ckpt_limits *out)
{
	memset(out, 0, sizeof(*out));
	if (in)
		memcpy(out, in, in->size < sizeof(*out) ? in->size : sizeof(*out));
	out->size = sizeof(*out);
#define X(field, value, most, is_bytes, text) \
	if (!out->field)                      \
		out->field = (value);         \
	if (out->field > (most))              \
		out->field = (most);
	CK_LIMITS(X)
#undef X
}

int ckpt_limit_get(uint32_t limit, struct ckpt_limit_info *out, struct ckpt_err *err)
{
	if (limit >= CK_ARRAY_LEN(info))
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "limit number %" PRIu32 " does not exist: there are %zu", limit,
			       CK_ARRAY_LEN(info));
	*out = info[limit];
	return 0;
}

static void put(struct ckpt_limits *limits, const char *name, uint64_t n)
{
	limits->size = sizeof(*limits);
#define X(field, value, most, is_bytes, text) \
	if (!strcmp(name, #field))            \
		limits->field = n;
	CK_LIMITS(X)
#undef X
}

int ckpt_limits_set(struct ckpt_limits *limits, const char *name, uint64_t value,
		    struct ckpt_err *err)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(info); i++) {
		if (strcmp(name, info[i].name))
			continue;
		if (!value || value > info[i].most)
			return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
				       "%s can be 1 to %" PRIu64 ", not %" PRIu64, name,
				       info[i].most, value);
		put(limits, name, value);
		return 0;
	}
	return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "%.100s is not the name of a "
		       "limit", name);
}
