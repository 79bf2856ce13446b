/*
 * test_zip_crc.c - the wide forms of CRC-32 against its definition, bit by bit. If they differ
 * on some length, torch and unzip call our files damaged.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "libckpt/zip/ck_zip.h"
#include "libckpt/zip/ck_zip_crc.h"

#define LONGEST 6000

static uint8_t bytes[LONGEST + 64];

static uint32_t by_definition(uint32_t crc, const uint8_t *p, size_t n)
{
	crc = ~crc;
	for (size_t i = 0; i < n; i++) {
		crc ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
	}
	return ~crc;
}

static uint32_t next(uint32_t *seed)
{
	*seed = *seed * 1103515245u + 12345u;
	return *seed >> 8;
}

/* Every length around the blocks' ends, every misalignment, many beginnings. */
static void compare(ck_crc_fold_fn fold)
{
	uint32_t seed = 11;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)next(&seed);
	for (size_t n = 0; n < 3 * CK_CRC_BLOCK + 40; n++)
		assert_int_equal(ck_crc_with(fold, 0, bytes + n % 64, n),
				 by_definition(0, bytes + n % 64, n));
	for (int round = 0; round < 1000; round++) {
		const size_t n = next(&seed) % LONGEST, off = next(&seed) % 64;
		const uint32_t crc = next(&seed) * 257u;

		assert_int_equal(ck_crc_with(fold, crc, bytes + off, n),
				 by_definition(crc, bytes + off, n));
	}
}

static void without_folding(void **state)
{
	(void)state;
	compare(NULL);
}

static void folding_256_bits(void **state)
{
	(void)state;
	if (!ck_crc_fold_avx2())
		skip();
	compare(ck_crc_fold_avx2());
}

static void folding_512_bits(void **state)
{
	(void)state;
	if (!ck_crc_fold_avx512())
		skip();
	compare(ck_crc_fold_avx512());
}

static void what_all_call(void **state)
{
	uint32_t seed = 3;

	(void)state;
	assert_int_equal(ck_zip_crc32(0, "123456789", 9), 0xcbf43926u);
	assert_int_equal(ck_zip_crc32(7, bytes, 0), 7);
	for (int round = 0; round < 200; round++) {
		const size_t n = next(&seed) % LONGEST, cut = n ? next(&seed) % n : 0;
		const uint32_t begun = ck_zip_crc32(0, bytes, cut);

		assert_int_equal(ck_zip_crc32(begun, bytes + cut, n - cut),
				 by_definition(0, bytes, n));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_folding),
		cmocka_unit_test(folding_256_bits),
		cmocka_unit_test(folding_512_bits),
		cmocka_unit_test(what_all_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
