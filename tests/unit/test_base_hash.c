/*
 * Hashes and digests against vectors made by xxhsum and by Python's xxhash. If this fails, a
 * killed run is never continued, and digests differ between machines.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <xxhash.h>

#include "libckpt/base/ck_hash.h"
#include "libckpt/base/ck_hash_wide.h"

#define N 10000

static uint8_t bytes[300000];

static void make_bytes(void)
{
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7 + i / 251);
}

static void is(struct ck_hash128 h, const char *want)
{
	char text[33];

	ck_hash128_print(h, text);
	assert_string_equal(text, want);
}

/* xxhsum -H2 of an empty file, of "abc", and of the first 10,000 bytes of 'bytes'. */
static void hashes_are_those_of_xxhsum(void **state)
{
	(void)state;
	is(ck_hash128("", 0), "99aa06d3014798d86001c324468d497f");
	is(ck_hash128("abc", 3), "06b05ab6733a618578af5f94892f3950");
	is(ck_hash128(bytes, N), "246c24e6c139ef066a0b1490f4d390d4");
	assert_int_equal(ck_hash64("abc", 3), 0x78af5f94892f3950);
}

/* Computed with Python: sum of xxh3_128(block, seed = number), then the whole line. */
static void digests_are_those_of_the_document(void **state)
{
	const uint64_t dim[] = { N };
	const struct ck_hash128 sum = ck_digest_blocks(bytes, N, 0), none = { 0, 0 };

	(void)state;
	is(sum, "bdd891c7521c7902d05342974528a888");
	is(ck_digest_close("U8", dim, 1, sum), "8dc4419bb4f1e54f0e6e146075315345");
	is(ck_digest_close("F32", NULL, 0, none), "6d348205c444522db0c6ebcb45cadf4d");
}

static void blocks_may_be_hashed_in_any_pieces_but_not_in_another_place(void **state)
{
	const struct ck_hash128 all = ck_digest_blocks(bytes, sizeof(bytes), 0);
	struct ck_hash128 sum = ck_digest_blocks(bytes + 81920, sizeof(bytes) - 81920, 20);

	(void)state;
	sum = ck_hash128_add(sum, ck_digest_blocks(bytes + 4096, 77824, 1));
	sum = ck_hash128_add(sum, ck_digest_blocks(bytes, 4096, 0));
	assert_true(ck_hash128_equal(sum, all));
	assert_false(ck_hash128_equal(ck_digest_blocks(bytes, sizeof(bytes), 1), all));
	assert_true(ck_hash128_equal(ck_digest_blocks(bytes, 0, 5), (struct ck_hash128){ 0, 0 }));
}

static void the_wide_code_gives_the_bits_of_the_library(void **state)
{
	const struct ck_hash_wide *wide = ck_hash_avx2();

	(void)state;
	if (!wide)
		skip();
	for (size_t n = 0; n < 5000; n = n * 5 / 4 + 1)
		for (uint64_t seed = 0; seed < 3; seed++)
			for (size_t at = 0; at < 3; at++) {
				const XXH128_hash_t x = XXH3_128bits_withSeed(bytes + at, n, seed);
				const struct ck_hash128 h = wide->hash(bytes + at, n, seed);

				assert_true(h.lo == x.low64 && h.hi == x.high64);
			}
}

static void a_running_hash_does_not_see_the_pieces(void **state)
{
	struct ck_hasher *h = ck_hasher_new();
	const size_t step[] = { 1, 255, 256, 1023, 1024, 1025, 4096, 65536, 262144 };

	(void)state;
	assert_non_null(h);
	for (size_t i = 0; i < sizeof(step) / sizeof(step[0]); i++) {
		ck_hasher_reset(h);
		for (size_t at = 0; at < sizeof(bytes); at += step[i] + (at & 1) * 700) {
			const size_t n = step[i] + (at & 1) * 700;

			ck_hasher_add(h, bytes + at, n < sizeof(bytes) - at ? n :
				      sizeof(bytes) - at);
		}
		ck_hasher_add(h, NULL, 0);
		assert_true(ck_hash128_equal(ck_hasher_sum(h), ck_hash128(bytes, sizeof(bytes))));
	}
	ck_hasher_free(h);
	ck_hasher_free(NULL);
}

static void sums_carry_and_texts_come_back(void **state)
{
	const struct ck_hash128 a = { UINT64_MAX, 1 }, b = { 2, UINT64_MAX };
	struct ck_hash128 h = ck_hash128_add(a, b), back = { 0, 0 };
	char text[33];

	(void)state;
	assert_true(h.lo == 1 && h.hi == 1);
	ck_hash128_print(b, text);
	assert_true(ck_hash128_parse(text, &back));
	assert_true(ck_hash128_equal(b, back));
	assert_false(ck_hash128_parse("", &back));
	text[31] = 'G';
	assert_false(ck_hash128_parse(text, &back));
	assert_false(ck_hash128_parse("000000000000000000000000000000000", &back));
	assert_true(ck_hash128_equal(b, back));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hashes_are_those_of_xxhsum),
		cmocka_unit_test(digests_are_those_of_the_document),
		cmocka_unit_test(blocks_may_be_hashed_in_any_pieces_but_not_in_another_place),
		cmocka_unit_test(the_wide_code_gives_the_bits_of_the_library),
		cmocka_unit_test(a_running_hash_does_not_see_the_pieces),
		cmocka_unit_test(sums_carry_and_texts_come_back),
	};

	make_bytes();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
