/* ck_step_check.c -- see ck_step_check.h. */
#include "libckpt/step/ck_step_check.h"

#include <string.h>

#include <ckpt_zero.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_text.h"

int ck_step_check_world(uint32_t world, struct ckpt_err *err)
{
	if (world && world <= CKPT_ZERO_MAX_WORLD)
		return 0;
	return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
		       "the number of ranks is %u; 1 to %u are possible",
		       world, CKPT_ZERO_MAX_WORLD);
}

/* What readers of 'latest' take off its ends. */
static bool is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
}

int ck_step_check_tag(const char *tag, struct ckpt_err *err)
{
	const size_t n = strlen(tag);

	if (n && !strpbrk(tag, "/[]*?") && strcmp(tag, ".") && strcmp(tag, "..") &&
	    strcmp(tag, "latest") && strcmp(tag, "latest_universal") && !is_space(tag[0]) &&
	    !is_space(tag[n - 1]))
		return ck_ends_with(tag, ".zckpt-partial") || ck_ends_with(tag, ".zckpt-new") ?
		       ck_fail(err, CKPT_E_USAGE, tag, CKPT_NO_OFFSET,
			       "not usable as the name of a step: zckpt uses this ending for "
			       "unfinished output") : 0;
	return ck_fail(err, CKPT_E_USAGE, tag, CKPT_NO_OFFSET,
		       "not usable as the name of a step: expected a plain folder name without "
		       "/, []*? and without spaces at its ends (--new-tag NAME)");
}

/* Digits, at most 255; NULL = there are none. */
static const char *number_at(const char *p, uint32_t *out)
{
	const char *begin = p;

	for (*out = 0; *p >= '0' && *p <= '9' && *out <= 255; p++)
		*out = *out * 10 + (uint32_t)(*p - '0');
	return p == begin || *out > 255 ? NULL : p;
}

int ck_step_torch(const char *version, uint32_t *torch_out, struct ckpt_err *err)
{
	uint32_t part[3] = { 0 };
	const char *p = version;
	int n = 0;

	while (p && n < 3 && (p = number_at(p, &part[n])) != NULL) {
		n++;
		if (*p != '.')
			break;
		p += n < 3;
	}
	if (version && (n < 2 || !p || *p))
		return ck_fail(err, CKPT_E_USAGE, version, CKPT_NO_OFFSET,
			       "not a version of torch; expected a number such as 2.1 or 2.4.1");
	*torch_out = part[0] << 16 | part[1] << 8 | part[2];
	return 0;
}
