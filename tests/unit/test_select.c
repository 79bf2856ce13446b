/*
 * Choosing and renaming tensors. If this is wrong, a user converts a model without some of
 * its layers, two tensors end up under one name, or a tied weight is lost with its first name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/select/ck_select.h"

static struct ck_index ix;
static struct ck_selection sel;
static struct ckpt_err err;

static uint32_t add(const char *name, enum ckpt_role role)
{
	const uint64_t shape[] = { 2, 3 };
	uint32_t n = 0;

	assert_int_equal(ck_index_add_tensor(&ix, name, shape, 2, role, &n, &err), 0);
	return n;
}

static void add_alias(const char *name, const char *of)
{
	const uint32_t n = add(name, CKPT_ROLE_ALIAS);
	uint32_t to = 0;

	assert_true(ck_index_find(&ix, of, &to));
	ix.tensor[n].alias_of = to;
}

static int begin(void **state)
{
	(void)state;
	memset(&err, 0, sizeof(err));
	memset(&sel, 0, sizeof(sel));
	return ck_index_init(&ix, 1 << 20, NULL);
}

static int end(void **state)
{
	(void)state;
	ck_selection_release(&sel);
	ck_index_release(&ix);
	return 0;
}

/* The picks as "stored>written" words, then aliases as "name=kept". */
static char *shown(void)
{
	static char text[1024];
	size_t n = 0;

	text[0] = 0;
	for (uint64_t i = 0; i < sel.npicks; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s>%s", n ? " " : "",
				      sel.pick[i].stored, sel.pick[i].name);
	for (uint64_t i = 0; i < sel.naliases; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s=%s", n ? " " : "",
				      sel.alias[i].name, sel.alias[i].kept);
	return text;
}

static void chosen(const struct ckpt_select *s, const char *want)
{
	ck_selection_release(&sel);
	assert_int_equal(ck_select(&ix, s, &sel, &err), 0);
	assert_string_equal(shown(), want);
}

static void refused(const struct ckpt_select *s, const char *word)
{
	memset(&err, 0, sizeof(err));
	assert_int_equal(ck_select(&ix, s, &sel, &err), -CKPT_E_USAGE);
	assert_non_null(strstr(err.msg, word));
}

static void without_options_every_tensor_comes_in_its_order(void **state)
{
	(void)state;
	add("b", CKPT_ROLE_PLAIN);
	add("a", CKPT_ROLE_PLAIN);
	chosen(NULL, "b>b a>a");
}

static void include_and_exclude_are_shell_patterns_over_the_whole_stored_name(void **state)
{
	const char *inc[] = { "a.*", "c.[0-4].w", NULL }, *exc[] = { "*.b", NULL };
	const struct ckpt_select s = { .include = inc, .exclude = exc };

	(void)state;
	add("a.w", CKPT_ROLE_PLAIN);
	add("a.b", CKPT_ROLE_PLAIN);
	add("xa.w", CKPT_ROLE_PLAIN);
	add("c.3.w", CKPT_ROLE_PLAIN);
	add("c.5.w", CKPT_ROLE_PLAIN);
	add("a.x/y.w", CKPT_ROLE_PLAIN);	/* a slash is a letter like any other */
	chosen(&s, "a.w>a.w c.3.w>c.3.w a.x/y.w>a.x/y.w");
}

static void roles_are_chosen_and_left_out(void **state)
{
	const struct ckpt_select frozen = { .only = CKPT_ONLY_FROZEN };
	const struct ckpt_select two = { .only = CKPT_ONLY_FROZEN | CKPT_ONLY_BUFFERS };
	const struct ckpt_select skip = { .skip = CKPT_ONLY_FROZEN };

	(void)state;
	add("t", CKPT_ROLE_TRAINABLE);
	add("f", CKPT_ROLE_FROZEN);
	add("b", CKPT_ROLE_BUFFER);
	add("u", CKPT_ROLE_UNTRAINED);
	add_alias("f2", "f");
	chosen(&frozen, "f>f f2=f");
	chosen(&two, "f>f b>b f2=f");
	chosen(&skip, "t>t b>b u>u");
}

static void files_without_roles_refuse_questions_about_them(void **state)
{
	const struct ckpt_select only = { .only = CKPT_ONLY_BUFFERS };
	const struct ckpt_select skip = { .skip = CKPT_ONLY_FROZEN };

	(void)state;
	add("p", CKPT_ROLE_PLAIN);
	refused(&only, "does not say");
	refused(&skip, "does not say");
}

static void prefix_is_cut_then_renames_apply_in_turn(void **state)
{
	const struct ckpt_rule rules[] = {
		{ "layers", "h" }, { "h.*.w", "block.*.weight" }, { NULL, NULL },
	};
	const struct ckpt_select s = { .strip_prefix = "module.", .rename = rules };

	(void)state;
	add("module.layers.0.w", CKPT_ROLE_PLAIN);
	add("module.layers.10.w", CKPT_ROLE_PLAIN);
	add("other.layers.layers.b", CKPT_ROLE_PLAIN);
	chosen(&s, "module.layers.0.w>block.0.weight module.layers.10.w>block.10.weight "
		   "other.layers.layers.b>other.h.h.b");
}

static void star_may_match_nothing_but_head_and_tail_do_not_share_letters(void **state)
{
	const struct ckpt_rule rules[] = { { "ab*ba", "x*y" }, { NULL, NULL } };
	const struct ckpt_select s = { .rename = rules };

	(void)state;
	add("aba", CKPT_ROLE_PLAIN);
	add("abba", CKPT_ROLE_PLAIN);
	add("ab-ba", CKPT_ROLE_PLAIN);
	chosen(&s, "aba>aba abba>xy ab-ba>x-y");
}

static void two_tensors_renamed_alike_are_refused_and_both_named(void **state)
{
	const struct ckpt_rule rules[] = { { "left", "x" }, { "right", "x" }, { NULL, NULL } };
	const struct ckpt_select s = { .rename = rules };

	(void)state;
	add("left.w", CKPT_ROLE_PLAIN);
	add("right.w", CKPT_ROLE_PLAIN);
	refused(&s, "left.w");
	refused(&s, "right.w");
	assert_string_equal(err.where, "x.w");
}

static void name_of_which_nothing_is_left_is_refused(void **state)
{
	const struct ckpt_select s = { .strip_prefix = "w" };

	(void)state;
	add("w", CKPT_ROLE_PLAIN);
	refused(&s, "leaves an empty name");
}

static void rename_with_two_stars_is_refused(void **state)
{
	const struct ckpt_rule left[] = { { "a*b*", "c*" }, { NULL, NULL } };
	const struct ckpt_rule right[] = { { "a*", "*c*" }, { NULL, NULL } };
	const struct ckpt_select l = { .rename = left }, r = { .rename = right };

	(void)state;
	add("w", CKPT_ROLE_PLAIN);
	refused(&l, "one '*'");
	refused(&r, "one '*'");
}

static void tied_names_are_mentioned_doubled_or_dropped(void **state)
{
	const struct ckpt_select dup = { .tied = CKPT_TIED_DUP };
	const struct ckpt_select drop = { .tied = CKPT_TIED_DROP };

	(void)state;
	add("emb", CKPT_ROLE_TRAINABLE);
	add_alias("head", "emb");
	add_alias("third", "head");	/* an alias of an alias */
	chosen(NULL, "emb>emb head=emb third=emb");
	assert_int_equal(sel.nshared, 2);
	chosen(&dup, "emb>emb head>head third>third");
	assert_int_equal(sel.pick[2].tensor, 0);
	assert_int_equal(sel.nshared, 0);
	chosen(&drop, "emb>emb");
	assert_int_equal(sel.nshared, 2);
}

static void alias_stands_in_for_a_tensor_that_is_filtered_out(void **state)
{
	const char *exc[] = { "emb", NULL };
	const struct ckpt_select s = { .exclude = exc };
	const struct ckpt_select d = { .exclude = exc, .tied = CKPT_TIED_DROP };

	(void)state;
	add("emb", CKPT_ROLE_TRAINABLE);
	add_alias("head", "emb");
	add_alias("third", "emb");
	chosen(&s, "head>head third=head");
	assert_int_equal(sel.pick[0].tensor, 0);
	chosen(&d, "head>head");
}

static void alias_before_its_tensor_does_not_take_its_place(void **state)
{
	(void)state;
	add("head", CKPT_ROLE_ALIAS);
	add("emb", CKPT_ROLE_TRAINABLE);
	ix.tensor[0].alias_of = 1;
	chosen(NULL, "emb>emb head=emb");
}

static void alias_names_follow_the_renames_of_what_they_point_to(void **state)
{
	const struct ckpt_select s = { .strip_prefix = "m." };
	const struct ckpt_rule rules[] = { { "head", "emb" }, { NULL, NULL } };
	const struct ckpt_select clash = { .rename = rules };

	(void)state;
	add("m.emb", CKPT_ROLE_TRAINABLE);
	add_alias("m.head", "m.emb");
	chosen(&s, "m.emb>emb head=emb");
	refused(&clash, "two tensors");
}

static void hint_is(const char *want)
{
	ck_selection_release(&sel);
	assert_int_equal(ck_select(&ix, NULL, &sel, &err), 0);
	if (!want)
		assert_null(sel.strip_hint);
	else
		assert_string_equal(sel.strip_hint, want);
}

static void prefix_of_wrappers_is_suggested_when_every_name_has_it(void **state)
{
	(void)state;
	add("module._orig_mod.a.w", CKPT_ROLE_TRAINABLE);
	add("module._orig_mod.b.w", CKPT_ROLE_TRAINABLE);
	hint_is("module._orig_mod.");
	add_alias("module.c", "module._orig_mod.a.w");
	hint_is("module.");
	add("plain", CKPT_ROLE_TRAINABLE);
	hint_is(NULL);
}

static void names_as_transformers_saves_them_are_not_to_be_cut(void **state)
{
	(void)state;
	add("model.embed_tokens.weight", CKPT_ROLE_TRAINABLE);
	add("model.layers.0.mlp.weight", CKPT_ROLE_TRAINABLE);
	hint_is(NULL);
}

static void model_dot_of_a_plain_wrapper_is_suggested(void **state)
{
	(void)state;
	add("model.model.layers.0.w", CKPT_ROLE_TRAINABLE);
	add("model.fc.w", CKPT_ROLE_TRAINABLE);
	hint_is("model.");
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(without_options_every_tensor_comes_in_its_order),
		T(include_and_exclude_are_shell_patterns_over_the_whole_stored_name),
		T(roles_are_chosen_and_left_out),
		T(files_without_roles_refuse_questions_about_them),
		T(prefix_is_cut_then_renames_apply_in_turn),
		T(star_may_match_nothing_but_head_and_tail_do_not_share_letters),
		T(two_tensors_renamed_alike_are_refused_and_both_named),
		T(name_of_which_nothing_is_left_is_refused),
		T(rename_with_two_stars_is_refused),
		T(tied_names_are_mentioned_doubled_or_dropped),
		T(alias_stands_in_for_a_tensor_that_is_filtered_out),
		T(alias_before_its_tensor_does_not_take_its_place),
		T(alias_names_follow_the_renames_of_what_they_point_to),
		T(prefix_of_wrappers_is_suggested_when_every_name_has_it),
		T(names_as_transformers_saves_them_are_not_to_be_cut),
		T(model_dot_of_a_plain_wrapper_is_suggested),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
