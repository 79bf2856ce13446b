/*
 * Errors, memory, buffers, the cursor and the name map. If this fails, a damaged size is
 * believed, a failure loses its first cause, or two tensors answer to one name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_cur.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_mem.h"
#include "libckpt/base/ck_sys.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/torture/t_fault.h"

static void the_first_failure_is_the_one_that_is_told(void **state)
{
	struct ckpt_err err = { 0 };

	(void)state;
	assert_int_equal(ck_fail(&err, CKPT_E_CORRUPT, "file", 7, "%d is not %d", 1, 2),
			 -CKPT_E_CORRUPT);
	assert_int_equal(ck_fail(&err, CKPT_E_IO, "other", 8, "later"), -CKPT_E_IO);
	assert_int_equal(err.code, CKPT_E_CORRUPT);
	assert_int_equal(err.offset, 7);
	assert_string_equal(err.where, "file");
	assert_string_equal(err.msg, "1 is not 2");
	ck_err_clear(&err);
	assert_int_equal(ck_fail_nomem(&err, "a thing", 12), -CKPT_E_NOMEM);
	assert_non_null(strstr(err.msg, "a thing (12 bytes"));
	assert_int_equal(ck_fail(NULL, CKPT_E_IO, NULL, 0, "x"), -CKPT_E_IO);
}

static void errno_becomes_the_code_a_caller_can_act_on(void **state)
{
	struct ckpt_err err = { 0 };

	(void)state;
	assert_int_equal(ck_fail_sys(&err, ENOENT, "open", "p"), -CKPT_E_NOTFOUND);
	assert_string_equal(err.msg, "no such file or folder");
	assert_int_equal(ck_fail_sys(NULL, ENOSPC, "write", "p"), -CKPT_E_NOSPACE);
	assert_int_equal(ck_fail_sys(NULL, EDQUOT, "write", "p"), -CKPT_E_NOSPACE);
	assert_int_equal(ck_fail_sys(NULL, EEXIST, "mkdir", "p"), -CKPT_E_EXISTS);
	assert_int_equal(ck_fail_sys(NULL, ENOMEM, "x", "p"), -CKPT_E_NOMEM);
	assert_int_equal(ck_fail_sys(NULL, EACCES, "x", "p"), -CKPT_E_IO);
}

static void long_texts_are_cut_and_end(void **state)
{
	struct ckpt_err err = { 0 };
	char text[2000];

	(void)state;
	memset(text, 'x', sizeof(text));
	text[1999] = 0;
	ck_fail(&err, CKPT_E_IO, text, 0, "%s", text);
	assert_int_equal(strlen(err.where), sizeof(err.where) - 1);
	assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
}

static void an_arena_hands_out_aligned_memory_that_does_not_overlap(void **state)
{
	struct ck_arena a = CK_ARENA_INIT;
	unsigned char *p[400];
	size_t n[400];

	(void)state;
	for (size_t i = 0; i < 400; i++) {
		n[i] = i % 50 == 49 ? 100000 : i * 37 % 700;
		p[i] = ck_arena_alloc(&a, n[i]);
		assert_int_equal((uintptr_t)p[i] % 16, 0);
		memset(p[i], (int)(i & 255), n[i]);
	}
	for (size_t i = 0; i < 400; i++)
		for (size_t k = 0; k < n[i]; k++)
			assert_int_equal(p[i][k], i & 255);
	assert_string_equal(ck_arena_printf(&a, "%d-%s", 5, "x"), "5-x");
	assert_string_equal(ck_arena_strndup(&a, "abcdef", 3), "abc");
	assert_string_equal(ck_arena_strndup(&a, NULL, 0), "");
	ck_arena_release(&a);
	assert_int_equal(a.total, 0);
}

static void an_arena_stops_at_its_limit_and_says_so(void **state)
{
	struct ck_arena a = { .limit = 100000 };

	(void)state;
	assert_null(ck_arena_alloc(&a, UINT64_MAX));
	assert_null(ck_arena_alloc(&a, UINT64_MAX - 8));
	assert_non_null(ck_arena_alloc(&a, 90000));
	assert_false(a.limited);
	assert_null(ck_arena_alloc(&a, 10001));
	assert_true(a.limited);
	assert_int_equal(a.total, 90000);
	assert_non_null(ck_arena_zalloc(&a, 10000));
	ck_arena_release(&a);
}

static void arrays_grow_and_refuse_what_no_memory_holds(void **state)
{
	struct ckpt_err err = { 0 };
	uint32_t *v = NULL;
	uint64_t cap = 0;

	(void)state;
	for (uint32_t i = 0; i < 1000; i++) {
		assert_int_equal(ck_grow(&v, &cap, i + 1, sizeof(*v), NULL), 0);
		v[i] = i;
	}
	for (uint32_t i = 0; i < 1000; i++)
		assert_int_equal(v[i], i);
	assert_int_equal(ck_grow(&v, &cap, UINT64_MAX, 4, &err), -CKPT_E_NOMEM);
	assert_int_equal(ck_grow(&v, &cap, (uint64_t)1 << 62, 4, NULL), -CKPT_E_NOMEM);
	assert_int_equal(v[999], 999);
	assert_null(ck_alloc_array((uint64_t)1 << 62, 8));
	ck_free(v);
	t_fault_install();
	v = NULL;
	cap = 0;
	t_fault_arm(T_FAULT_MEMORY, 1, false);
	assert_int_equal(ck_grow(&v, &cap, 1, 4, NULL), -CKPT_E_NOMEM);
	assert_null(v);
	assert_int_equal(cap, 0);
	t_fault_remove();
}

static void a_buffer_keeps_its_limit_and_its_end(void **state)
{
	struct ck_buf b = CK_BUF_INIT(200);
	struct ckpt_err err = { 0 };
	char *s;

	(void)state;
	for (int i = 0; i < 100; i++) {
		assert_int_equal(ck_buf_addf(&b, NULL, "%c", 'a' + i % 26), 0);
		assert_int_equal(strlen(b.p), i + 1);
	}
	assert_int_equal(ck_buf_add(&b, NULL, 0, NULL), 0);
	assert_int_equal(ck_buf_adds(&b, "yy", NULL), 0);
	for (int i = 0; i < 97; i++)
		assert_int_equal(ck_buf_add(&b, "z", 1, NULL), 0);
	assert_int_equal(ck_buf_add(&b, "xx", 2, &err), -CKPT_E_LIMIT);
	assert_int_equal(ck_buf_add(&b, "x", 1, NULL), 0);
	s = ck_buf_take(&b);
	assert_int_equal(strlen(s), 200);
	assert_int_equal(s[99], 'v');
	ck_free(s);
	assert_null(b.p);
	assert_null(ck_buf_take(&b));
	b.limit = SIZE_MAX;
	assert_int_equal(ck_buf_add(&b, "x", SIZE_MAX / 2, NULL), -CKPT_E_LIMIT);
	ck_buf_release(&b);
}

static void json_strings_are_escaped(void **state)
{
	struct ck_buf b = CK_BUF_INIT(1000);

	(void)state;
	assert_int_equal(ck_buf_add_json(&b, "a\"\\\n\t\r\x01\x7f\0\xc3\xa4", 11, NULL), 0);
	assert_string_equal(b.p, "\"a\\\"\\\\\\n\\t\\r\\u0001\\u007f\\u0000\xc3\xa4\"");
	ck_buf_release(&b);
}

static void the_cursor_believes_no_length(void **state)
{
	const uint8_t bytes[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };
	struct ckpt_err err = { 0 };
	const uint8_t *p = NULL;
	struct ck_cur c;
	uint8_t u8;
	uint16_t u16;
	uint32_t u32;
	uint64_t u64 = 77;

	(void)state;
	ck_cur_init(&c, bytes, sizeof(bytes), "w");
	assert_int_equal(ck_cur_u8(&c, &u8, NULL) | ck_cur_u16(&c, &u16, NULL) |
			 ck_cur_u32(&c, &u32, NULL), 0);
	assert_int_equal(u8, 1);
	assert_int_equal(u16, 0x0302);
	assert_int_equal(u32, 0x07060504);
	assert_int_equal(ck_cur_take(&c, UINT64_MAX, &p, &err), -CKPT_E_TRUNCATED);
	assert_null(p);
	assert_int_equal(err.offset, 7);
	assert_int_equal(ck_cur_take(&c, 2, &p, NULL), 0);
	assert_int_equal(p[0], 8);
	assert_int_equal(ck_cur_u64(&c, &u64, NULL), -CKPT_E_TRUNCATED);
	assert_int_equal(u64, 77);
	assert_int_equal(c.left, 7);
}

static void the_map_finds_what_was_added_and_nothing_else(void **state)
{
	struct ck_map map = CK_MAP_INIT;
	char (*key)[16] = t_alloc(5000 * sizeof(*key));
	uint64_t v;

	(void)state;
	assert_false(ck_map_find(&map, "x", 1, &v));
	for (uint64_t i = 0; i < 5000; i++) {
		snprintf(key[i], sizeof(key[i]), "key%d", (int)i);
		assert_int_equal(ck_map_add(&map, key[i], strlen(key[i]), i * 3, NULL, NULL), 0);
	}
	for (uint64_t i = 0; i < 5000; i++) {
		assert_true(ck_map_find(&map, key[i], strlen(key[i]), &v));
		assert_int_equal(v, i * 3);
		assert_string_equal(map.entry[i].key, key[i]);
	}
	assert_int_equal(ck_map_add(&map, "key7", 4, 1, &v, NULL), 1);
	assert_int_equal(v, 21);
	assert_int_equal(map.n, 5000);
	assert_int_equal(ck_map_add(&map, "", 0, 9, NULL, NULL), 0);
	assert_int_equal(ck_map_add(&map, "a\0b", 3, 10, NULL, NULL), 0);
	assert_false(ck_map_find(&map, "a", 1, NULL));
	assert_true(ck_map_find(&map, "a\0b", 3, &v) && v == 10);
	assert_true(ck_map_find(&map, "", 0, &v) && v == 9);
	assert_false(ck_map_find(&map, "key5000", 7, NULL));
	ck_map_release(&map);
	free(key);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_failure_is_the_one_that_is_told),
		cmocka_unit_test(errno_becomes_the_code_a_caller_can_act_on),
		cmocka_unit_test(long_texts_are_cut_and_end),
		cmocka_unit_test(an_arena_hands_out_aligned_memory_that_does_not_overlap),
		cmocka_unit_test(an_arena_stops_at_its_limit_and_says_so),
		cmocka_unit_test(arrays_grow_and_refuse_what_no_memory_holds),
		cmocka_unit_test(a_buffer_keeps_its_limit_and_its_end),
		cmocka_unit_test(json_strings_are_escaped),
		cmocka_unit_test(the_cursor_believes_no_length),
		cmocka_unit_test(the_map_finds_what_was_added_and_nothing_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
