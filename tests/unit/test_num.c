/*
 * Element types as numbers, and one element as text: what diff and cat print. If this fails, a
 * complex number is compared as two bytes, or a value is printed that reads back as another.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include <ckpt.h>

#include "libckpt/run/ck_elem_type.h"

/* Every type there is: its numbers fill it, and the kernel's type is the one of its name. */
static void every_type_has_numbers_that_fill_it(void **state)
{
	static const struct {
		enum ckpt_dtype dtype;
		enum kn_num type;
		unsigned parts;
	} rows[] = {
		{ CKPT_F64, KN_NUM_F64, 1 }, { CKPT_F32, KN_NUM_F32, 1 },
		{ CKPT_F16, KN_NUM_F16, 1 }, { CKPT_BF16, KN_NUM_BF16, 1 },
		{ CKPT_C128, KN_NUM_F64, 2 }, { CKPT_C64, KN_NUM_F32, 2 },
		{ CKPT_C32, KN_NUM_F16, 2 }, { CKPT_BC32, KN_NUM_BF16, 2 },
		{ CKPT_F8_E4M3, KN_NUM_F8_E4M3, 1 }, { CKPT_F8_E5M2, KN_NUM_F8_E5M2, 1 },
		{ CKPT_F8_E4M3FNUZ, KN_NUM_F8_E4M3FNUZ, 1 },
		{ CKPT_F8_E5M2FNUZ, KN_NUM_F8_E5M2FNUZ, 1 },
		{ CKPT_F8_E8M0, KN_NUM_F8_E8M0, 1 }, { CKPT_BOOL, KN_NUM_U8, 1 },
		{ CKPT_U8, KN_NUM_U8, 1 }, { CKPT_I8, KN_NUM_I8, 1 },
		{ CKPT_U16, KN_NUM_U16, 1 }, { CKPT_I16, KN_NUM_I16, 1 },
		{ CKPT_U32, KN_NUM_U32, 1 }, { CKPT_I32, KN_NUM_I32, 1 },
		{ CKPT_U64, KN_NUM_U64, 1 }, { CKPT_I64, KN_NUM_I64, 1 },
	};

	(void)state;
	for (int d = 1; ckpt_dtype_bits((enum ckpt_dtype)d); d++) {
		const struct ck_elem_type n = ck_elem_type_of((enum ckpt_dtype)d);
		const uint32_t bits = ckpt_dtype_bits((enum ckpt_dtype)d);

		assert_int_equal(kn_num_size(n.type) * n.parts, bits < 8 ? 1 : bits / 8);
	}
	for (size_t i = 0; i < CK_ARRAY_LEN(rows); i++) {
		const struct ck_elem_type n = ck_elem_type_of(rows[i].dtype);

		assert_int_equal(n.type, rows[i].type);
		assert_int_equal(n.parts, rows[i].parts);
	}
}

static void an_element_is_the_shortest_text_that_reads_back(void **state)
{
	static const struct {
		enum ckpt_dtype dtype;
		uint64_t low, high;	/* its bits */
		const char *text;
	} rows[] = {
		{ CKPT_F64, 0x3fb999999999999a, 0, "0.1" },
		{ CKPT_F64, 0x3fb9999999999999, 0, "0.09999999999999999" },
		{ CKPT_F64, 0x0000000000000001, 0, "5e-324" },
		{ CKPT_F32, 0x3dcccccd, 0, "0.1" }, { CKPT_F32, 0xff800000, 0, "-inf" },
		{ CKPT_F32, 0x7fc00000, 0, "nan" }, { CKPT_F32, 0x80000000, 0, "-0" },
		{ CKPT_F16, 0x2e66, 0, "0.1" }, { CKPT_BF16, 0x3dcd, 0, "0.1" },
		{ CKPT_C64, 0xc00000003fc00000, 0, "1.5-2j" },
		{ CKPT_C128, 0x3ff8000000000000, 0x7ff0000000000000, "1.5+infj" },
		{ CKPT_C32, 0x40003e00, 0, "1.5+2j" }, { CKPT_BC32, 0xc0003fc0, 0, "1.5-2j" },
		{ CKPT_F8_E4M3, 0x7e, 0, "448" }, { CKPT_F8_E5M2, 0x7b, 0, "57344" },
		{ CKPT_F8_E4M3FNUZ, 0x80, 0, "nan" },
		{ CKPT_F8_E5M2FNUZ, 0x01, 0, "7.62939453125e-06" },
		{ CKPT_F8_E8M0, 0x80, 0, "2" }, { CKPT_BOOL, 1, 0, "true" },
		{ CKPT_BOOL, 0, 0, "false" }, { CKPT_BOOL, 7, 0, "7" },
		{ CKPT_U8, 255, 0, "255" }, { CKPT_I8, 255, 0, "-1" },
		{ CKPT_U16, 65535, 0, "65535" }, { CKPT_I16, 0x8000, 0, "-32768" },
		{ CKPT_U32, 0xffffffff, 0, "4294967295" },
		{ CKPT_I32, 0x80000000, 0, "-2147483648" },
		{ CKPT_U64, UINT64_MAX, 0, "18446744073709551615" },
		{ CKPT_I64, (uint64_t)1 << 63, 0, "-9223372036854775808" },
		{ CKPT_F4, 0x3f, 0, "0x3f" },
	};

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(rows); i++) {
		const uint64_t bits[2] = { rows[i].low, rows[i].high };
		char text[CK_ELEM_TYPE_TEXT];

		ck_elem_type_text(rows[i].dtype, bits, text);
		if (strcmp(text, rows[i].text))
			fail_msg("row %zu: '%s', not '%s'", i, text, rows[i].text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_has_numbers_that_fill_it),
		cmocka_unit_test(an_element_is_the_shortest_text_that_reads_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
