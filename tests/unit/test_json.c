/*
 * The strict JSON front. If it is lenient, two programs read two different models from one
 * header; if it is wrong, sizes above 2^53 are rounded and a hostile file crashes the reader.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/json/ck_json.h"
#include "libckpt/json/ck_json_val.h"
#include "tests/lib/torture/t_fault.h"

static struct ckpt_limits limits;

/* From memory without a byte behind it, so that a sanitizer sees a read too far. */
static int parse(struct ck_json *doc, const char *text, size_t n, unsigned flags,
		 struct ckpt_err *err, char **copy_out)
{
	char *copy = malloc(n ? n : 1);
	int rc;

	memcpy(copy, text, n);
	memset(doc, 0, sizeof(*doc));
	rc = ck_json_parse(doc, copy, n, &limits, flags, "t.json", err);
	if (rc) {
		assert_null(doc->tok);
		free(copy);
		copy = NULL;
	}
	*copy_out = copy;
	return rc;
}

static int check(const char *text, size_t n, unsigned flags, struct ckpt_err *err)
{
	struct ck_json doc;
	char *copy;
	int rc = parse(&doc, text, n, flags, err, &copy);

	if (!rc)
		ck_json_release(&doc);
	free(copy);
	return rc;
}

static void what_json_allows_is_accepted(void **state)
{
	static const char *const good[] = {
		"{}", "[]", " \t\r\n{ } \n", "null", "true", "false", "\"\"", "0", "-0", "-1.5e+10",
		"1E5", "[1,2,[3,{}]]", "{\"a\":1,\"A\":2}", "\"\\u0000\"", "\"\\ud83d\\ude42\"",
		"\"\x7f\"", "\"\xf0\x9f\x99\x82\"", "{\"\":{\"\":[]}}",
		"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
		"123456789012345678901234567890",
	};

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(good); i++)
		if (check(good[i], strlen(good[i]), 0, NULL))
			fail_msg("refused: %s", good[i]);
}

static void what_json_forbids_is_refused_with_its_byte(void **state)
{
	static const struct {
		const char *text;
		uint64_t at;
	} bad[] = {
		{ "", 0 }, { " ", 1 }, { "{", 1 }, { "[", 1 }, { "{\"a\"", 4 }, { "{\"a\":", 5 },
		{ "[1,]", 3 }, { "{\"a\":1,}", 7 }, { "{,}", 1 }, { "[1 2]", 3 }, { "01", 1 },
		{ "+1", 0 }, { "1.", 0 }, { ".5", 0 }, { "1e", 0 }, { "-", 0 }, { "0x7", 1 },
		{ "NaN", 0 }, { "Infinity", 0 }, { "nul", 0 }, { "True", 0 }, { "'a'", 0 },
		{ "{a:1}", 1 }, { "\"a", 0 }, { "\"\\x41\"", 1 }, { "\"\\u12\"", 3 },
		{ "\"\\u12G4\"", 3 }, { "\"\\ud800\"", 1 }, { "\"\\udc00\"", 1 },
		{ "\"\\ud800\\u0041\"", 1 }, { "\"\n\"", 1 }, { "\"\x1f\"", 1 },
		{ "\xef\xbb\xbf{}", 0 }, { "\"\xff\"", 1 }, { "\"\xc0\x80\"", 1 },
		{ "\"\xed\xa0\x80\"", 1 }, { "\"\xf4\x90\x80\x80\"", 1 }, { "\"\xe2\x82\"", 1 },
		{ "{} x", 3 }, { "{}{}", 2 }, { "//\n{}", 0 }, { "{}#", 2 }, { "[}", 1 },
		{ "{]", 1 },
		{ "{\"a\":1,\"a\":2}", 7 }, { "{\"a\":1,\"\\u0061\":2}", 7 }, { "]", 0 },
		{ "\"\\", 0 }, { "{\"a\":1 \"b\":2}", 7 },
	};

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(bad); i++) {
		struct ckpt_err err = { 0 };

		if (check(bad[i].text, strlen(bad[i].text), 0, &err) != -CKPT_E_CORRUPT)
			fail_msg("accepted: %s", bad[i].text);
		if (err.offset != bad[i].at || strcmp(err.where, "t.json"))
			fail_msg("%s: byte %llu, wanted %llu: %s", bad[i].text,
				 (unsigned long long)err.offset, (unsigned long long)bad[i].at,
				 err.msg);
	}
	assert_int_equal(check("{}\0", 3, 0, NULL), -CKPT_E_CORRUPT);
	assert_int_equal(check("\"\0\"", 3, 0, NULL), -CKPT_E_CORRUPT);
}

static void every_cut_of_a_text_is_refused_or_its_own_text(void **state)
{
	static const char text[] =
		"{\"a\\u00e9\":[1.5e3,null,{\"b\":\"\\ud83d\\ude42\"}],\"c\":true}";

	(void)state;
	for (size_t n = 0; n < sizeof(text) - 1; n++) {
		assert_int_equal(check(text, n, 0, NULL), -CKPT_E_CORRUPT);
		check(text, n, CK_JSON_HJSON, NULL);
	}
	assert_int_equal(check(text, sizeof(text) - 1, 0, NULL), 0);
}

static void duplicates_are_found_among_many_names_too(void **state)
{
	const size_t room = 40000;
	char *text = malloc(room);
	struct ckpt_err err = { 0 };
	size_t n = 0;

	(void)state;
	for (int i = 0; i < 2000; i++)
		n += (size_t)snprintf(text + n, room - n, "%c\"n%d\":0", i ? ',' : '{', i);
	text[n] = '}';
	assert_int_equal(check(text, n + 1, 0, NULL), 0);
	n += (size_t)snprintf(text + n, room - n, ",\"n\\u0037\":0}");	/* "n7" */
	assert_int_equal(check(text, n, 0, &err), -CKPT_E_CORRUPT);
	assert_int_equal(err.offset, n - 12);
	free(text);
}

static void depth_and_nodes_are_bounded(void **state)
{
	char *deep = malloc(200000);

	(void)state;
	memset(deep, '[', 100000);
	memset(deep + 100000, ']', 100000);
	assert_int_equal(check(deep, 200000, 0, NULL), -CKPT_E_LIMIT);
	assert_int_equal(check(deep + 100000 - 64, 128, 0, NULL), 0);
	assert_int_equal(check(deep + 100000 - 65, 130, 0, NULL), -CKPT_E_LIMIT);
	limits.json_depth = 100000;
	assert_int_equal(check(deep, 200000, 0, NULL), 0);
	limits.json_depth = 64;
	limits.json_nodes = 4;
	assert_int_equal(check("[1,2,3]", 7, 0, NULL), 0);
	assert_int_equal(check("[1,2,3,4]", 9, 0, NULL), -CKPT_E_LIMIT);
	ck_limits_fill(NULL, &limits);
	free(deep);
}

static void tokens_say_what_stands_where(void **state)
{
	static const char text[] =
		"{\"a\":[1,{\"b\":\"x\\ny\"}],\"z\\u0000\":18446744073709551615}";
	struct ck_json doc;
	char *copy;
	uint64_t a, b, v;

	(void)state;
	assert_int_equal(parse(&doc, text, sizeof(text) - 1, 0, NULL, &copy), 0);
	assert_int_equal(doc.tok[0].type, CK_JSON_OBJECT);
	assert_int_equal(doc.tok[0].n, 2);
	assert_int_equal(doc.tok[0].next, doc.n);
	assert_int_equal(doc.tok[0].len, sizeof(text) - 1);
	a = ck_json_get(&doc, 0, "a");
	assert_int_equal(doc.tok[a].type, CK_JSON_ARRAY);
	assert_int_equal(doc.tok[a].n, 2);
	assert_int_equal(doc.tok[a].off, 5);
	b = ck_json_get(&doc, a + 2, "b");
	assert_string_equal(doc.tok[b].str, "x\ny");
	assert_int_equal(doc.tok[b].str_len, 3);
	assert_int_equal(doc.tok[a].next, b + 1);
	assert_int_equal(doc.tok[b + 1].str_len, 2);	/* "z" and NUL */
	assert_int_equal(ck_json_get(&doc, 0, "z"), UINT64_MAX);
	assert_int_equal(ck_json_get(&doc, a, "b"), UINT64_MAX);
	assert_true(ck_json_u64(&doc, b + 2, &v));
	assert_true(v == UINT64_MAX);
	ck_json_release(&doc);
	free(copy);
}

static void integers_are_exact_or_refused(void **state)
{
	static const struct {
		const char *text;
		int u, i;
		uint64_t uv;
		int64_t iv;
	} t[] = {
		{ "0", 1, 1, 0, 0 },
		{ "9007199254740993", 1, 1, 9007199254740993, 9007199254740993 },
		{ "18446744073709551616", 0, 0, 0, 0 },
		{ "9223372036854775808", 1, 0, 1ull << 63, 0 },
		{ "-9223372036854775808", 0, 1, 0, INT64_MIN },
		{ "-9223372036854775809", 0, 0, 0, 0 },
		{ "-1", 0, 1, 0, -1 }, { "-0", 0, 1, 0, 0 }, { "1.0", 0, 0, 0, 0 },
		{ "1e2", 0, 0, 0, 0 }, { "\"1\"", 0, 0, 0, 0 }, { "true", 0, 0, 0, 0 },
	};

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(t); i++) {
		struct ck_json doc;
		char *copy;
		uint64_t u = 77;
		int64_t s = 77;

		assert_int_equal(parse(&doc, t[i].text, strlen(t[i].text), 0, NULL, &copy), 0);
		assert_int_equal(ck_json_u64(&doc, 0, &u), t[i].u);
		assert_int_equal(ck_json_i64(&doc, 0, &s), t[i].i);
		assert_true(u == (t[i].u ? t[i].uv : 77));
		assert_true(s == (t[i].i ? t[i].iv : 77));
		ck_json_release(&doc);
		free(copy);
	}
}

static void hjson_takes_what_deepspeed_configs_have(void **state)
{
	static const char text[] =
		"# a config\n{\n  train_batch_size: 8 // the whole\n  'lr': 1e-4,\n"
		"  /* on */ \"fp16\": { enabled: true, },\n  note: all the rest, of it # too\n"
		"  list: [1\n 2, 'it\\'s',]\n}\n";
	struct ck_json doc;
	char *copy;
	uint64_t v = 0, list;

	(void)state;
	assert_int_equal(check(text, sizeof(text) - 1, 0, NULL), -CKPT_E_CORRUPT);
	assert_int_equal(parse(&doc, text, sizeof(text) - 1, CK_JSON_HJSON, NULL, &copy), 0);
	assert_int_equal(doc.tok[0].n, 5);
	assert_true(ck_json_u64(&doc, ck_json_get(&doc, 0, "train_batch_size"), &v));
	assert_int_equal(v, 8);
	assert_int_equal(doc.tok[ck_json_get(&doc, 0, "lr")].type, CK_JSON_NUMBER);
	assert_int_equal(doc.tok[ck_json_get(&doc, ck_json_get(&doc, 0, "fp16"), "enabled")].type,
			 CK_JSON_TRUE);
	assert_string_equal(doc.tok[ck_json_get(&doc, 0, "note")].str, "all the rest, of it # too");
	list = ck_json_get(&doc, 0, "list");
	assert_int_equal(doc.tok[list].n, 3);
	assert_string_equal(doc.tok[list + 3].str, "it's");
	ck_json_release(&doc);
	free(copy);
	assert_int_equal(check("{a:'''x\ny'''}", 13, CK_JSON_HJSON, NULL), -CKPT_E_CORRUPT);
	assert_int_equal(check("{a:1,a:2}", 9, CK_JSON_HJSON, NULL), -CKPT_E_CORRUPT);
	assert_int_equal(check("/* x", 4, CK_JSON_HJSON, NULL), -CKPT_E_CORRUPT);
}

/* No byte of a text that was given up is left. */
static void a_text_without_memory_is_refused_and_leaves_nothing(void **state)
{
	static const char text[] = "{\"a\":[1,{\"b\":\"c\"},null],\"d\":{\"e\":2.5}}";
	long n = 0, failed = 0;

	(void)state;
	t_fault_install();
	for (bool fired = true; fired && n < 1000; failed += fired) {
		struct ckpt_err err = { 0 };
		struct ck_json doc = CK_JSON_INIT;
		int rc;

		t_fault_arm(T_FAULT_MEMORY, ++n, false);
		rc = ck_json_parse(&doc, text, sizeof(text) - 1, &limits, 0, "x", &err);
		fired = t_fault_fired();
		assert_int_equal(rc, fired ? -CKPT_E_NOMEM : 0);
		assert_true(fired ? err.msg[0] && !doc.n : doc.n > 0);
		ck_json_release(&doc);
		assert_int_equal(t_fault_blocks(), 0);
	}
	t_fault_remove();
	assert_in_range(failed, 2, 999);	/* tokens and strings at least */
}

/* A configuration goes into a checkpoint as Python's json would have read it. */
static void a_tree_has_the_values_that_python_would_have(void **state)
{
	char text[400];
	struct ck_arena arena = CK_ARENA_INIT;
	struct ck_json doc = CK_JSON_INIT;
	struct ck_val *const *item, *root;
	uint64_t n;
	const char *s;
	bool yes;
	int64_t i;
	double f;

	(void)state;
	/* 3 and 0.5 in more digits than any buffer that someone thought enough */
	snprintf(text, sizeof(text), "{\"a\":[1,-9223372036854775808,null,true,false,\"x\",{},"
		 "3.%0100d,0.5%0200de0,18446744073709551616,1e-3]}", 0, 0);
	assert_int_equal(ck_json_parse(&doc, text, strlen(text), &limits, 0, "t", NULL), 0);
	root = ck_json_val(&doc, 0, &arena);
	assert_true(ck_val_seq(ck_val_get(root, "a"), &item, &n));
	assert_int_equal(n, 11);
	assert_true(ck_val_int(item[0], &i) && i == 1);
	assert_true(ck_val_int(item[1], &i) && i == INT64_MIN);
	assert_true(ck_val_is_none(item[2]));
	yes = item[3]->kind == CK_VAL_BOOL && item[3]->u.b && !item[4]->u.b;
	assert_true(yes && item[4]->kind == CK_VAL_BOOL);
	s = ck_val_str(item[5]);
	assert_string_equal(s, "x");
	assert_int_equal(item[6]->kind, CK_VAL_DICT);
	for (int k = 7; k < 11; k++)
		assert_int_equal(item[k]->kind, CK_VAL_FLOAT);
	assert_true(ck_val_num(item[7], &f) && f == 3);
	assert_true(ck_val_num(item[8], &f) && f == 0.5);
	assert_true(ck_val_num(item[9], &f) && f == 18446744073709551616.0);
	assert_true(ck_val_num(item[10], &f) && f == 1e-3);
	ck_json_release(&doc);
	ck_arena_release(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_json_allows_is_accepted),
		cmocka_unit_test(a_tree_has_the_values_that_python_would_have),
		cmocka_unit_test(what_json_forbids_is_refused_with_its_byte),
		cmocka_unit_test(every_cut_of_a_text_is_refused_or_its_own_text),
		cmocka_unit_test(duplicates_are_found_among_many_names_too),
		cmocka_unit_test(depth_and_nodes_are_bounded),
		cmocka_unit_test(tokens_say_what_stands_where),
		cmocka_unit_test(integers_are_exact_or_refused),
		cmocka_unit_test(hjson_takes_what_deepspeed_configs_have),
		cmocka_unit_test(a_text_without_memory_is_refused_and_leaves_nothing),
	};

	ck_limits_fill(NULL, &limits);
	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
