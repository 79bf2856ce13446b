/*
 * How the texts of configurations become values. What PyYAML and hjson made of each text is in
 * tests/fixtures/config-*.inc (tests/interop/config_cases.py asks them); if we read one otherwise,
 * a run has other settings than the same file gives elsewhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/tree/en_node.h"

enum kind { VALUE, BAD_TEXT, NAMES };

struct row {
	enum kind kind;
	const char *text;
	enum en_type type;
	int64_t i;
	double f;
};

#define ROW(text, type, i, f) { VALUE, text, type, i, f },
#define BAD(text) { BAD_TEXT, text, 0, 0, 0 },
#define TEXT(text, n) { NAMES, text, EN_DICT, n, 0 },
static const struct row yaml_rows[] = {
#include "tests/fixtures/config-yaml.inc"
};
static const struct row hjson_rows[] = {
#include "tests/fixtures/config-hjson.inc"
};

static bool same(const struct row *r, const struct en_node *v)
{
	if (v->type != r->type)
		return false;
	switch (r->type) {
	case EN_INT:
		return v->i == r->i && v->f == r->f;
	case EN_BOOL:
		return v->i == r->i;
	case EN_FLOAT:
		return v->f == r->f || (isnan(v->f) && isnan(r->f));
	case EN_LIST:
	case EN_DICT:
		return v->n == r->i;
	default:
		return true;
	}
}

static void yaml_scalars_have_pyyamls_types(void **state)
{
	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(yaml_rows); i++) {
		struct en_node v = { .str = yaml_rows[i].text };

		en_yaml_resolve(&v);
		if (!same(&yaml_rows[i], &v))
			fail_msg("%s: type %d, %lld, %g", v.str, v.type, (long long)v.i, v.f);
	}
}

/* The text without a byte after it, so that a sanitizer sees a read too far. */
static int read_json(struct ck_arena *arena, const char *text, struct en_node **out,
		     struct ckpt_err *err)
{
	const size_t n = strlen(text);
	char *copy = malloc(n ? n : 1);
	int rc;

	memcpy(copy, text, n);
	rc = en_node_json(arena, copy, n, "t.json", out, NULL, err);
	free(copy);
	return rc;
}

static void configs_are_read_as_hjson_reads_them(void **state)
{
	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(hjson_rows); i++) {
		const struct row *r = &hjson_rows[i];
		struct ck_arena arena = CK_ARENA_INIT;
		struct ckpt_err err = { 0 };
		struct en_node *root = NULL;
		const int rc = read_json(&arena, r->text, &root, &err);
		const struct en_node *v = r->kind == NAMES ? root : en_node_get(root, "k");

		if (rc && r->kind != BAD_TEXT)
			fail_msg("%s: %s", r->text, err.msg);
		if (!rc && (r->kind == BAD_TEXT || !v || !same(r, v)))
			fail_msg("%s: read as type %d, %lld, %g", r->text, v ? (int)v->type : -1,
				 v ? (long long)v->i : 0, v ? v->f : 0);
		ck_arena_release(&arena);
	}
}

static void values_know_their_lines(void **state)
{
	static const struct {
		const char *text;
		uint32_t line, col;
	} rows[] = {
		{ "{\"a\": 1}", 1, 7 }, { "\xef\xbb\xbf{\"a\": 1}", 1, 7 }, { "a: 1\n", 1, 4 },
		{ "# c\n{\n\ta: 1\n}", 3, 5 }, { "{\"\xc3\xa4\": 0, \"a\": 1}", 1, 15 },
		{ "b: 2\n  a: 1\n", 2, 6 },
	};

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(rows); i++) {
		struct ck_arena arena = CK_ARENA_INIT;
		struct en_node *root = NULL;
		const struct en_node *v;

		assert_int_equal(read_json(&arena, rows[i].text, &root, NULL), 0);
		v = en_node_get(root, "a");
		if (v->at.line != rows[i].line || v->at.col != rows[i].col)
			fail_msg("%s: line %u, column %u", rows[i].text, v->at.line, v->at.col);
		ck_arena_release(&arena);
	}
}

/* The line and byte that are said are those of the file, whatever was put before it to read it. */
static void errors_name_the_line_and_byte_of_the_file(void **state)
{
	static const struct {
		const char *text;
		uint64_t offset;
		const char *place;
	} rows[] = {
		{ "{\"a\": 1, \"a\": 2}", 9, "line 1, column 10: " },
		{ "\xef\xbb\xbf{\"a\": 1, \"a\": 2}", 12, "line 1, column 10: " },
		{ "a: 1\na: 2\n", 5, "line 2, column 1: " },
		{ "a: 1\nb\n", 7, "line 3, column 1: " },
		{ "{\"a\": '''x'''}", 6, "line 1, column 7: " },
		{ "{\n\"a\": 1,, }\n", 9, "line 2, column 8: " },
	};

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(rows); i++) {
		struct ck_arena arena = CK_ARENA_INIT;
		struct ckpt_err err = { 0 };
		struct en_node *root = NULL;

		assert_int_equal(read_json(&arena, rows[i].text, &root, &err), -CKPT_E_CORRUPT);
		if (err.offset != rows[i].offset || strcmp(err.where, "t.json") != 0 ||
		    strncmp(err.msg, rows[i].place, strlen(rows[i].place)) != 0)
			fail_msg("%s: byte %llu of %s: %s", rows[i].text,
				 (unsigned long long)err.offset, err.where, err.msg);
		assert_null(root);
		ck_arena_release(&arena);
	}
}

static void a_tree_is_read_from_yaml(void **state)
{
	static const char text[] = "a:\n  b: [1, two, 'no', 3.5]\n  c: no\n# x\nd:\n\"e\": \"5\"\n";
	struct ck_arena arena = CK_ARENA_INIT;
	struct en_node *root = NULL;
	const struct en_node *b;

	(void)state;
	if (!en_node_has_yaml())
		skip();
	assert_int_equal(en_node_yaml(&arena, text, sizeof(text) - 1, "t.yaml", &root, NULL), 0);
	b = en_node_path(root, "a.b");
	assert_int_equal(b->n, 4);
	assert_int_equal(b->child->i, 1);
	assert_string_equal(b->child->next->next->str, "no");
	assert_int_equal(b->child->next->next->type, EN_STR);
	assert_int_equal(en_node_path(root, "a.c")->type, EN_BOOL);
	assert_int_equal(en_node_path(root, "a.c")->at.line, 3);
	assert_int_equal(en_node_path(root, "a.c")->at.col, 6);
	assert_int_equal(en_node_get(root, "d")->type, EN_NULL);
	assert_int_equal(en_node_get(root, "e")->type, EN_STR);
	assert_null(en_node_path(root, "a.b.c"));
	ck_arena_release(&arena);
}

static void yaml_that_is_not_read_is_refused(void **state)
{
	static const struct {
		const char *text, *says;
	} rows[] = {
		{ "a: 1\na: 2\n", "first in line 1" }, { "a: &x 1\nb: *x\n", "aliases" },
		{ "a: !!python/object:os.system x\n", "tags" }, { "a: !!str 5\n", "tags" },
		{ "a: 1\n---\nb: 2\n", "second document" }, { "a: {<<: 1}\n", "merge" },
		{ "- 1\n", "mapping" }, { "", "empty" }, { "a: [1\n", "line 2" },
		{ "a: \"\\0\"\n", "NUL" }, { "? [1]\n: 2\n", "a word" }, { "a:\tb: c\n", "line 1" },
		{ "a: \xff\n", "YAML" }, { "4\n", "another value" },
	};

	(void)state;
	if (!en_node_has_yaml())
		skip();
	for (size_t i = 0; i < CK_ARRAY_LEN(rows); i++) {
		struct ck_arena arena = CK_ARENA_INIT;
		struct ckpt_err err = { 0 };
		struct en_node *root = NULL;
		const int rc = en_node_yaml(&arena, rows[i].text, strlen(rows[i].text), "t.yaml",
					    &root, &err);

		if (rc != -CKPT_E_CORRUPT || !strstr(err.msg, rows[i].says))
			fail_msg("%s: %d, %s", rows[i].text, rc, err.msg);
		assert_null(root);
		ck_arena_release(&arena);
	}
}

static void depth_is_bounded(void **state)
{
	struct ck_arena arena = CK_ARENA_INIT;
	struct ckpt_err err = { 0 };
	struct en_node *root = NULL;
	char text[2 * EN_MAX_CONFIG_DEPTH + 8];

	(void)state;
	memset(text, '[', sizeof(text));
	memcpy(text, "a: ", 3);
	assert_int_equal(en_node_json(&arena, text, sizeof(text), "t", &root, NULL, &err),
			 -CKPT_E_LIMIT);
	err.code = 0;
	if (en_node_has_yaml())
		assert_int_equal(en_node_yaml(&arena, text, sizeof(text), "t", &root, &err),
				 -CKPT_E_LIMIT);
	ck_arena_release(&arena);
}

static void values_are_written_for_people(void **state)
{
	static const struct {
		const char *json, *text;
	} rows[] = {
		{ "5e8", "5e8" }, { "\"auto\"", "\"auto\"" }, { "null", "null" }, { "{}", "{}" },
		{ "[0.9, 0.95, {}]", "[0.9, 0.95, ...]" }, { "{\"b\": 1}", "{...}" },
		{ "true", "true" }, { "[]", "[]" },
		{ "\"aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggg\"",
		  "\"aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffff...\"" },
	};
	const struct en_place none = { .from = EN_FROM_DERIVED };
	char out[EN_VALUE_TEXT], text[128];
	struct ck_arena arena = CK_ARENA_INIT;

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(rows); i++) {
		struct en_node *root = NULL;

		snprintf(text, sizeof(text), "{\"a\": %s}", rows[i].json);
		assert_int_equal(read_json(&arena, text, &root, NULL), 0);
		en_node_text(en_node_get(root, "a"), out);
		assert_string_equal(out, rows[i].text);
	}
	en_node_text(en_node_float(&arena, 1, none), out);
	assert_string_equal(out, "1.0");
	en_node_text(en_node_float(&arena, 3e-5, none), out);
	assert_string_equal(out, "3e-05");
	en_node_text(en_node_float(&arena, INFINITY, none), out);
	assert_string_equal(out, "inf");
	ck_arena_release(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(yaml_scalars_have_pyyamls_types),
		cmocka_unit_test(configs_are_read_as_hjson_reads_them),
		cmocka_unit_test(values_know_their_lines),
		cmocka_unit_test(errors_name_the_line_and_byte_of_the_file),
		cmocka_unit_test(a_tree_is_read_from_yaml),
		cmocka_unit_test(yaml_that_is_not_read_is_refused),
		cmocka_unit_test(depth_is_bounded),
		cmocka_unit_test(values_are_written_for_people),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
