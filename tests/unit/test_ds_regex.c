/*
 * Patterns that say how tensor parallelism cut each tensor, compared with Python's re.match, which
 * DeepSpeed itself uses. If this fails, a tensor is joined by the rule of another one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "formats/ds_pt/ds_regex.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define LIMIT ((uint64_t)64 << 20)

static const struct {
	const char *pattern, *name;
	int python;		/* -1: no such pattern */
} cases[] = {
#include "tests/fixtures/regex.inc"
};

/* Patterns of Python that are refused, and why. */
static const struct {
	const char *pattern, *why;
} refused[] = {
	{ "a{2}", "a count in braces" },
	{ "a{2,}b", "a count in braces" },
	{ "a{b}", "a count in braces" },
	{ "{", "a count in braces" },
	{ "a++", "a repetition of a repetition" },
	{ "a*+", "a repetition of a repetition" },
	{ "(?i)a", "a group that begins with (? and no colon" },
	{ "(?P<n>a)", "a group that begins with (? and no colon" },
	{ "(?=a)", "a group that begins with (? and no colon" },
	{ "(?!a)", "a group that begins with (? and no colon" },
	{ "(?<!a)b", "a group that begins with (? and no colon" },
	{ "(?>a)", "a group that begins with (? and no colon" },
	{ "(?#a)", "a group that begins with (? and no colon" },
	{ "(a)\\1", "this escape" },
	{ "\\D", "this escape" },
	{ "\\W", "this escape" },
	{ "\\S", "this escape" },
	{ "\\b", "this escape" },
	{ "\\A", "this escape" },
	{ "a\\Z", "this escape" },
	{ "\\n", "this escape" },
	{ "\\x41", "this escape" },
	{ "[\\n]", "this escape" },
	{ "[\\W]", "this escape" },
	{ "[a-\\]]", "a range to an escape" },
};

static int make(struct ck_arena *arena, const char *pattern, const struct ds_regex **re,
		struct ckpt_err *err)
{
	*arena = (struct ck_arena){ .limit = LIMIT };
	return ck_ds_regex_make(arena, pattern, "rules.json", re, err);
}

/* What zckpt says; -1 = the pattern is refused, -2 = no verdict of this name. */
static int says(const char *pattern, const char *name)
{
	struct ckpt_err err = { 0 };
	const struct ds_regex *re;
	struct ck_arena arena;
	const char *only;
	int said = -1;

	if (!make(&arena, pattern, &re, &err)) {
		only = ck_ds_regex_literal(re);
		said = !ck_ds_regex_knows(re, name) ? -2 : ck_ds_regex_match(re, name);
		/* and once more: a pattern is used for many names */
		assert_int_equal(said, said == -2 ? -2 : ck_ds_regex_match(re, name));
		if (only && !strchr(name, '\n'))
			assert_int_equal(said, !strcmp(only, name));
	}
	ck_arena_release(&arena);
	return said;
}

static bool is_ascii(const char *name)
{
	while (*name && (uint8_t)*name < 0x80)
		name++;
	return !*name;
}

static void patterns_match_what_python_matches(void **state)
{
	unsigned matched = 0, unknown = 0, bad = 0;

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(cases); i++) {
		const int said = says(cases[i].pattern, cases[i].name);

		if (said == -2 && !is_ascii(cases[i].name)) {
			unknown++;
			continue;
		}
		matched += said == 1;
		if (said == cases[i].python)
			continue;
		print_error("'%s' and '%s': %d, Python says %d\n", cases[i].pattern, cases[i].name,
			    said, cases[i].python);
		bad++;
	}
	assert_int_equal(bad, 0);
	assert_true(matched > 500);
	assert_true(unknown < 100);
}

static void other_constructs_are_refused_by_name(void **state)
{
	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(refused); i++) {
		struct ckpt_err err = { 0 };
		const struct ds_regex *re;
		struct ck_arena arena;
		char want[300];

		assert_int_equal(make(&arena, refused[i].pattern, &re, &err), -CKPT_E_LAYOUT);
		snprintf(want, sizeof(want), "LAYOUT_UNSUPPORTED: pattern '%s' has %s, which zckpt "
			 "does not read; `--tp-rules FILE` gives the rules in other words",
			 refused[i].pattern, refused[i].why);
		assert_string_equal(err.msg, want);
		assert_string_equal(err.where, "rules.json");
		ck_arena_release(&arena);
	}
}

static void sizes_are_bounded(void **state)
{
	static char pattern[5000], name[20001];
	struct ckpt_err err = { 0 };
	const struct ds_regex *re;
	struct ck_arena arena;

	(void)state;
	memset(pattern, '(', 33);
	memset(pattern + 33, ')', 33);
	assert_int_equal(says(pattern, ""), -1);
	pattern[32] = ')';
	pattern[64] = 0;
	assert_int_equal(says(pattern, ""), 1);
	memset(pattern, 'a', 4096);
	pattern[4096] = 0;
	assert_int_equal(says(pattern, pattern), 1);
	memcpy(pattern + 4096, "a", 2);
	assert_int_equal(make(&arena, pattern, &re, &err), -CKPT_E_LAYOUT);
	assert_non_null(strstr(err.msg, "a pattern of 4097 bytes; zckpt reads up to 4096"));
	ck_arena_release(&arena);
	/* classes have the most ranges for their length */
	for (unsigned i = 0; i < 4096; i += 2)
		memcpy(pattern + i, i ? "\\s" : "[a", 2);
	memcpy(pattern + 4094, "]+", 3);
	memset(name, ' ', sizeof(name) - 1);
	assert_int_equal(says(pattern, name), 1);
	/* and these take exponential time where they are tried one after the other */
	memset(name, 'a', sizeof(name) - 1);
	assert_int_equal(says("(a*)*(a|a)*(a?)+b", name), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patterns_match_what_python_matches),
		cmocka_unit_test(other_constructs_are_refused_by_name),
		cmocka_unit_test(sizes_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
