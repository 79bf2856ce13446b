/*
 * test_hashed.c -- sums of blocks that are used again are those that hashing again gives.  If this
 * fails, a digest is wrong where pieces of a state were compared as they were read.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "libckpt/sums/ck_hash_reuse.h"

#define BLOCKS 12u
#define BYTES (BLOCKS * CK_DIGEST_BLOCK + 100)

static uint8_t buf[BYTES + CK_DIGEST_BLOCK];
static struct ck_hash_reuse h;

static void note(uint64_t at, uint64_t n, uint64_t block)
{
	ck_hash_reuse_note(&h, buf + at, n, block, ck_digest_blocks(buf + at, n, block));
}

/* The sum of [at, at + n), whose first block is 'first', is that of hashing. */
static void same(uint64_t at, uint64_t n, uint64_t first)
{
	assert_true(ck_hash128_equal(ck_hash_reuse_blocks(&h, buf + at, n, first),
				     ck_digest_blocks(buf + at, n, first)));
}

static void fill(uint64_t seed)
{
	for (size_t i = 0; i < sizeof(buf); i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		buf[i] = (uint8_t)(seed >> 56);
	}
	h.buf = buf;
	h.bytes = sizeof(buf);
	ck_hash_reuse_forget(&h);
}

static void hashes_the_rest(void **state)
{
	(void)state;
	fill(1);
	same(0, BYTES, 7);
	note(2 * CK_DIGEST_BLOCK, 3 * CK_DIGEST_BLOCK, 9);
	note(8 * CK_DIGEST_BLOCK, CK_DIGEST_BLOCK, 15);
	note(11 * CK_DIGEST_BLOCK, CK_DIGEST_BLOCK + 100, 18);	/* the end of the state */
	same(0, BYTES, 7);
	same(CK_DIGEST_BLOCK, 5 * CK_DIGEST_BLOCK, 8);
	same(3 * CK_DIGEST_BLOCK, 4 * CK_DIGEST_BLOCK, 10);	/* begins in a noted run */
	same(0, 4 * CK_DIGEST_BLOCK, 7);			/* ends in one */
}

/* Other blocks, or other numbers of them, have other sums. */
static void takes_no_other(void **state)
{
	(void)state;
	fill(2);
	note(2 * CK_DIGEST_BLOCK, 3 * CK_DIGEST_BLOCK, 10);		/* not the ninth */
	note(6 * CK_DIGEST_BLOCK + 8, 2 * CK_DIGEST_BLOCK, 13);	/* not at a block */
	note(9 * CK_DIGEST_BLOCK, 50, 16);				/* part of one */
	same(0, BYTES, 7);
	same(8, 6 * CK_DIGEST_BLOCK, 7);
}

/* What is noted is what counts: the bytes are not hashed again. */
static void takes_what_is_noted(void **state)
{
	const struct ck_hash128 mark = { 5, 6 };
	struct ck_hash128 sum;

	(void)state;
	fill(3);
	ck_hash_reuse_note(&h, buf, 2 * CK_DIGEST_BLOCK, 4, mark);
	ck_hash_reuse_note(&h, buf, 2 * CK_DIGEST_BLOCK, 4, mark);	/* twice: counted once */
	sum = ck_hash128_add(mark, ck_digest_blocks(buf + 2 * CK_DIGEST_BLOCK, 50, 6));
	assert_true(ck_hash128_equal(ck_hash_reuse_blocks(&h, buf, 2 * CK_DIGEST_BLOCK + 50, 4),
				     sum));
	ck_hash_reuse_forget(&h);
	same(0, 2 * CK_DIGEST_BLOCK + 50, 4);
}

static void many(void **state)
{
	(void)state;
	fill(4);
	for (uint64_t i = 0; i < 3 * CK_HASH_REUSE_MOST; i++)
		note(i % BLOCKS * CK_DIGEST_BLOCK, CK_DIGEST_BLOCK, i % BLOCKS);
	same(0, BYTES, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hashes_the_rest),
		cmocka_unit_test(takes_no_other),
		cmocka_unit_test(takes_what_is_noted),
		cmocka_unit_test(many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
