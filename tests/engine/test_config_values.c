/*
 * Values of the strict blocks, as pydantic and DeepSpeed's own classes take them (1050 of them in
 * tests/fixtures/config-pydantic.inc). If one is coerced otherwise, a file that works there is
 * refused here, or worse, means another number.
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

#include "engine/config/keys/en_coerce.h"

enum kind { IS_BAD, IS_NONE, IS_INT, IS_BIG, IS_FLOAT, IS_TEXT };

struct row {
	const char *path, *json;
	enum kind kind;
	int64_t i;
	double f;
	const char *text;
};

#define BIG INT64_MIN	/* beyond 64 bits; we refuse it, and say that it is ours to do so */
#define BAD(path, json) { path, json, IS_BAD, 0, 0, NULL },
#define NONE(path, json) { path, json, IS_NONE, 0, 0, NULL },
#define INT(path, json, v) { path, json, IS_INT, v, 0, NULL },
#define FLOAT(path, json, v) { path, json, IS_FLOAT, 0, v, NULL },
#define TEXT(path, json, v) { path, json, IS_TEXT, 0, 0, v },
static const struct row rows[] = {
#include "tests/fixtures/config-pydantic.inc"
};

static const struct en_key *key_of(const char *path)
{
	for (int b = 0; b < EN_BLOCKS; b++) {
		const size_t n = strlen(en_block_info[b].path);

		if (!strncmp(path, en_block_info[b].path, n) && path[n] == '.' &&
		    !strchr(path + n + 1, '.'))
			return en_key_find((enum en_block)b, path + n + 1);
	}
	return NULL;
}

/* What DeepSpeed's classes do with "auto" is not coercion: the key is dropped. */
static int read_value(struct ck_arena *arena, const struct row *r, struct en_value *out,
		      bool *theirs, char why[EN_WHY])
{
	const struct en_key *k = key_of(r->path);
	struct en_node *root = NULL;
	const struct en_node *v;
	char text[256];

	assert_non_null(k);
	snprintf(text, sizeof(text), "{\"v\": %s}", r->json);
	assert_int_equal(en_node_json(arena, text, strlen(text), "t", &root, NULL, NULL), 0);
	v = en_node_get(root, "v");
	if (en_node_is_auto(v)) {
		en_default(k, EN_DS_0_19, out);
		return 0;
	}
	return en_coerce(k, true, EN_DS_0_19, v, out, theirs, why);
}

static bool same(const struct row *r, const struct en_value *v, const char *text)
{
	char quoted[EN_VALUE_TEXT];

	switch (r->kind) {
	case IS_NONE:
		return v->type == EN_NULL;
	case IS_INT:
		return (v->type == EN_INT || v->type == EN_BOOL) && v->i == r->i;
	case IS_FLOAT:
		return v->type == EN_FLOAT && v->f == r->f;
	case IS_TEXT:
		snprintf(quoted, sizeof(quoted), "\"%s\"", r->text);
		return !strcmp(quoted, text);
	default:
		return false;
	}
}

/*
 * overlap_comm: null and "auto" end as false there, by the stage; en_check.c does so here.  A path
 * of "" is the folder "." there; we keep what was said.
 */
static bool is_later(const struct row *r)
{
	return (strstr(r->path, "overlap_comm") &&
		(!strcmp(r->json, "null") || !strcmp(r->json, "\"auto\""))) ||
	       (strstr(r->path, "nvme_path") && !strcmp(r->json, "\"\""));
}

static void values_are_coerced_as_there(void **state)
{
	unsigned big = 0;

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(rows); i++) {
		const struct row *r = &rows[i];
		struct ck_arena arena = CK_ARENA_INIT;
		struct en_value got = { .type = EN_NULL };
		char why[EN_WHY] = "", text[EN_VALUE_TEXT] = "";
		bool theirs = false;
		const int rc = read_value(&arena, r, &got, &theirs, why);

		if (!rc)
			en_value_text(key_of(r->path), &got, text);
		if (r->kind == IS_INT && r->i == BIG) {
			big += rc && !theirs;
		} else if (r->kind == IS_BAD) {
			if (!rc || !theirs)
				fail_msg("%s: %s is taken as %s", r->path, r->json, text);
		} else if (!is_later(r) && (rc || !same(r, &got, text))) {
			fail_msg("%s: %s is %s%s; there it is %.17g %s", r->path, r->json, text,
				 why, r->f, r->text ? r->text : "");
		}
		ck_arena_release(&arena);
	}
	assert_int_equal(big, 5);
}

static void keys_are_found_and_guessed(void **state)
{
	static const struct {
		enum en_block block;
		const char *name, *like;
	} typos[] = {
		{ EN_B_ZERO, "reduce_buckets_size", "reduce_bucket_size" },
		{ EN_B_TOP, "zero_optimisation", "zero_optimization" },
		{ EN_B_TOP, "gradient_cliping", "gradient_clipping" },
		{ EN_B_ZERO, "stage3_max_live_parameter", "max_live_parameters" },
		{ EN_B_TOP, "stage", "stage" }, { EN_B_FP16, "opt_level", NULL },
		{ EN_B_TOP, "_comment", NULL }, { EN_B_TOP, "x", NULL },
		{ EN_B_OPTIMIZER_PARAMS, "beta", "betas" },
	};

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(typos); i++) {
		const struct en_key *k = en_key_near(typos[i].block, typos[i].name);

		if (!typos[i].like != !k || (k && strcmp(k->name, typos[i].like) != 0))
			fail_msg("%s: %s", typos[i].name, k ? k->name : "nothing");
	}
	assert_int_equal(en_edit_distance("abc", "abc", 3), 0);
	assert_int_equal(en_edit_distance("abc", "axc", 3), 1);
	assert_int_equal(en_edit_distance("abc", "", 3), 3);
	assert_int_equal(en_edit_distance("abcdef", "", 3), 4);
	assert_int_equal(en_edit_distance("kitten", "sitting", 5), 3);
}

/* A default that its own bounds refuse, or a field given twice, would be ours to blame. */
static void the_table_is_sound(void **state)
{
	(void)state;
	for (size_t i = 0; i < en_n_keys; i++) {
		const struct en_key *k = &en_keys[i];
		struct en_value v;

		assert_ptr_equal(en_key_find(k->block, k->name), k);
		if (k->alias)
			assert_ptr_equal(en_key_find(k->block, k->alias), k);
		assert_int_not_equal(k->type, 0);
		assert_int_not_equal(k->role, 0);
		if (k->role != EN_R_USED && !k->why)
			fail_msg("%s: no reason", k->name);
		for (size_t j = 0; j < i; j++)
			if (k->field != EN_NO_FIELD && en_keys[j].field == k->field)
				fail_msg("%s and %s have one field", k->name, en_keys[j].name);
		en_default(k, EN_DS_0_19, &v);
		if (k->type == EN_K_INT && v.type == EN_INT && v.f < k->min)
			fail_msg("%s: the default is below its bound", k->name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_are_coerced_as_there),
		cmocka_unit_test(keys_are_found_and_guessed),
		cmocka_unit_test(the_table_is_sound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
