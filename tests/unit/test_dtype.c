/*
 * Element types. If this fails, a file's type is taken for another one, or a size in it overflows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "libckpt/tensor/ck_dtype.h"

static void every_type_has_one_name_that_finds_it_again(void **state)
{
	int in_safetensors = 0, n = 0;

	(void)state;
	for (int i = -3; i < 300; i++) {
		const enum ckpt_dtype t = (enum ckpt_dtype)i;
		const struct ck_dtype_info *info = ck_dtype_info(t);

		if (!info) {
			assert_int_equal(ckpt_dtype_bits(t), 0);
			assert_string_equal(ckpt_dtype_name(t), "?");
			continue;
		}
		n++;
		assert_int_equal(ckpt_dtype_parse(info->name), t);
		assert_int_equal(ck_dtype_by_name(info->name, strlen(info->name)),
				 info->in_safetensors ? t : 0);
		in_safetensors += info->in_safetensors;
		if (info->torch) {
			assert_int_equal(ck_dtype_by_torch_name(info->torch), t);
			assert_int_equal(ckpt_dtype_parse(info->torch), t);
		}
		assert_true(info->bits > 0 && info->bits <= 128);
	}
	assert_int_equal(in_safetensors, 22);
	assert_int_equal(n, 36);
}

static void names_that_are_none_are_refused(void **state)
{
	(void)state;
	assert_int_equal(ck_dtype_by_name("F32x", 3), CKPT_F32);
	assert_int_equal(ck_dtype_by_name("F32", 2), 0);
	assert_int_equal(ck_dtype_by_name("f32", 3), 0);
	assert_int_equal(ckpt_dtype_parse(""), 0);
	assert_int_equal(ckpt_dtype_parse("fp32"), CKPT_F32);
	assert_int_equal(ckpt_dtype_parse("half"), CKPT_F16);
	assert_int_equal(ckpt_dtype_parse("bf16"), CKPT_BF16);
}

static void bytes_are_exact_or_refused(void **state)
{
	uint64_t n = 7;

	(void)state;
	assert_int_equal(ck_dtype_bytes(CKPT_BF16, 5, &n, NULL), 0);
	assert_int_equal(n, 10);
	assert_int_equal(ck_dtype_bytes(CKPT_F4, 6, &n, NULL), 0);
	assert_int_equal(n, 3);
	assert_int_equal(ck_dtype_bytes(CKPT_F6_E2M3, 4, &n, NULL), 0);
	assert_int_equal(n, 3);
	assert_int_equal(ck_dtype_bytes(CKPT_F4, 5, &n, NULL), -CKPT_E_CORRUPT);
	assert_int_equal(ck_dtype_bytes(CKPT_F64, (uint64_t)1 << 60, &n, NULL), -CKPT_E_LIMIT);
	assert_int_equal(ck_dtype_bytes(CKPT_C128, (uint64_t)1 << 60, &n, NULL), -CKPT_E_LIMIT);
	assert_int_equal(ck_dtype_bytes(CKPT_F4, UINT64_MAX, &n, NULL), -CKPT_E_LIMIT);
	assert_int_equal(ck_dtype_bytes((enum ckpt_dtype)0, 1, &n, NULL), -CKPT_E_CORRUPT);
	assert_int_equal(n, 3);		/* failures write nothing */
}

static void shapes_multiply_to_63_bits_at_most(void **state)
{
	const uint64_t big[] = { (uint64_t)1 << 31, (uint64_t)1 << 31, 2 }, zero[] = { 5, 0, 7 };
	uint64_t n;

	(void)state;
	assert_int_equal(ck_shape_numel(NULL, 0, &n, NULL), 0);
	assert_int_equal(n, 1);
	assert_int_equal(ck_shape_numel(zero, 3, &n, NULL), 0);
	assert_int_equal(n, 0);
	assert_int_equal(ck_shape_numel(big, 2, &n, NULL), 0);
	assert_int_equal(n, (uint64_t)1 << 62);
	assert_int_equal(ck_shape_numel(big, 3, &n, NULL), -CKPT_E_LIMIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_has_one_name_that_finds_it_again),
		cmocka_unit_test(names_that_are_none_are_refused),
		cmocka_unit_test(bytes_are_exact_or_refused),
		cmocka_unit_test(shapes_multiply_to_63_bits_at_most),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
