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
