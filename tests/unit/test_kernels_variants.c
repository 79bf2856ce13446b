/*
 * test_kernels_variants.c -- wide variants against the plain definitions, bit for bit.
 *
 * If this is wrong, the same checkpoint converts to different bytes on different
 * machines, or a tail of a few elements is skipped, or memory beyond a buffer is touched.
 *
 * Buffers are allocated to the byte and begin at every misalignment, so that a sanitizer
 * build sees each byte too much.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/include/kn.h"
#include "kernels/include/kn_ref.h"

typedef void (*plain_fn)(void *, const void *, size_t);
typedef void (*count_fn)(void *, const void *, size_t, uint64_t *);

struct cast_case {
	const char *name;
	size_t src_size;
	size_t dst_size;
	plain_fn ref;
	plain_fn fn;
	count_fn ref_count;
	count_fn fn_count;
};

#define PLAIN(name, s, d) { #name, s, d, kn_ref_##name, kn_##name, NULL, NULL }
#define COUNT(name, s, d) { #name, s, d, NULL, kn_##name, kn_ref_##name, kn_##name##_count }

static const struct cast_case cases[] = {
	PLAIN(bf16_to_f32, 2, 4),  PLAIN(f16_to_f32, 2, 4),  PLAIN(f32_to_f64, 4, 8),
	PLAIN(f16_to_bf16, 2, 2),  COUNT(f32_to_bf16, 4, 2), COUNT(f32_to_f16, 4, 2),
	COUNT(f64_to_f32, 8, 4),   COUNT(f64_to_bf16, 8, 2), COUNT(f64_to_f16, 8, 2),
	COUNT(bf16_to_f16, 2, 2),  PLAIN(bswap16, 2, 2),     PLAIN(bswap32, 4, 4),
	PLAIN(bswap64, 8, 8),
};

#define NCASE (sizeof(cases) / sizeof(cases[0]))

static const uint32_t low16[] = { 0,	  0x0001, 0x0fff, 0x1000, 0x1001, 0x2fff,
				  0x3000, 0x3001, 0x7fff, 0x8000, 0x8001, 0xefff,
				  0xf000, 0xffff };

#define NLOW (sizeof(low16) / sizeof(low16[0]))
#define NALL ((size_t)65536 * NLOW)

/* Around the f64 from which an f32 is infinite, 0x1.ffffffp127; and the ends of f64. */
static const uint64_t f64_edge[] = {
	0x47efffffefffffff, 0x47effffff0000000, 0x47efffffe0000000, 0xc7efffffefffffff,
	0xc7effffff0000000, 0x7fefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000,
};

/* All upper halves with lower bits around the borders of rounding. */
static uint64_t pattern(size_t src_size, size_t i)
{
	const uint64_t high = i / NLOW;
	const uint64_t low = low16[i % NLOW];

	if (src_size == 2)
		return i & 0xffff;
	if (src_size == 4)
		return high << 16 | low;
	if (i < sizeof(f64_edge) / sizeof(f64_edge[0]))
		return f64_edge[i];
	/* f64: 13 bits of mantissa more than sign and exponent; the rest is near a tie of
	   f32 (29 bits down) or far from one. */
	return high << 48 | low << 32 | (i & 1 ? 0x10000000u + (uint32_t)(i % 3) - 1 : 0);
}

static void fill(uint8_t *p, size_t src_size, size_t n, size_t step)
{
	for (size_t i = 0; i < n; i++) {
		const uint64_t v = pattern(src_size, i * step % NALL);

		memcpy(p + i * src_size, &v, src_size);
	}
}

static uint64_t run_ref(const struct cast_case *c, void *dst, const void *src, size_t n)
{
	uint64_t over = 0;

	if (c->ref)
		c->ref(dst, src, n);
	else
		c->ref_count(dst, src, n, &over);
	return over;
}

/* Under each mask, every pattern. */
static void every_variant_gives_the_bits_of_the_definition(void **state)
{
	uint8_t *src = malloc(8 * NALL), *want = malloc(8 * NALL), *got = malloc(8 * NALL);

	(void)state;
	assert_true(src && want && got);
	for (size_t k = 0; k < NCASE; k++) {
		const struct cast_case *c = &cases[k];
		const size_t n = c->src_size == 2 ? 65536 : NALL;
		uint64_t over;

		fill(src, c->src_size, n, 1);
		over = run_ref(c, want, src, n);
		for (unsigned mask = 1; mask <= KN_CPU_ALL; mask += 2) {
			uint64_t count = 0;
			size_t at;

			kn_cpu_mask(mask);
			memset(got, 0xa5, n * c->dst_size);
			if (c->fn_count)
				c->fn_count(got, src, n, &count);
			else
				c->fn(got, src, n);
			at = kn_ref_mismatch(got, want, n * c->dst_size);
			if (at != n * c->dst_size)
				fail_msg("%s, %s: element %zu differs", c->name,
					 kn_cpu_variant(), at / c->dst_size);
			assert_int_equal(count, over);
		}
	}
	kn_cpu_mask(KN_CPU_ALL);
	free(src);
	free(want);
	free(got);
}

/* One length and misalignment; 'shift' moves source and target differently. */
static void check_tail(const struct cast_case *c, size_t n, size_t shift, size_t step)
{
	const size_t sb = n * c->src_size, db = n * c->dst_size, dshift = shift * 5 % 8;
	uint8_t *src = malloc(sb + shift + 1), *got = malloc(db + dshift + 1);
	uint8_t *want = malloc(db + 1);
	uint64_t over = 3, want_over;

	assert_true(src && got && want);
	/* The last byte allocated is the last one used, unless nothing is. */
	src = realloc(src, sb + shift ? sb + shift : 1);
	got = realloc(got, db + dshift ? db + dshift : 1);
	assert_true(src && got);
	fill(src + shift, c->src_size, n, step);
	memset(got, 0x5a, db + dshift ? db + dshift : 1);
	want_over = run_ref(c, want, src + shift, n);
	if (c->fn_count) {
		c->fn_count(got + dshift, src + shift, n, &over);
		assert_int_equal(over, want_over + 3);
		memset(got + dshift, 0, db);
	}
	c->fn(got + dshift, src + shift, n);
	if (db && memcmp(got + dshift, want, db))
		fail_msg("%s, %s, %zu elements, shift %zu", c->name, kn_cpu_variant(), n,
			 shift);
	for (size_t i = 0; i < dshift; i++)
		assert_int_equal(got[i], 0x5a);
	if (c->src_size == c->dst_size) {	/* in place */
		c->fn(src + shift, src + shift, n);
		if (db)
			assert_memory_equal(src + shift, want, db);
	}
	free(src);
	free(got);
	free(want);
}

static void odd_tails_and_misaligned_starts_change_nothing(void **state)
{
	(void)state;
	for (unsigned mask = 0; mask <= KN_CPU_ALL; mask++) {
		kn_cpu_mask(mask);
		for (size_t k = 0; k < NCASE; k++)
			for (size_t n = 0; n <= 67; n++)
				for (size_t shift = 0; shift < 8; shift++)
					check_tail(&cases[k], n, shift,
						   NALL / 61 + 2 * n + shift);
	}
	kn_cpu_mask(KN_CPU_ALL);
}

static void nothing_may_be_converted_from_nowhere(void **state)
{
	(void)state;
	for (unsigned mask = 0; mask <= KN_CPU_ALL; mask++) {
		kn_cpu_mask(mask);
		for (size_t k = 0; k < NCASE; k++) {
			cases[k].fn(NULL, NULL, 0);
			if (cases[k].fn_count)
				cases[k].fn_count(NULL, NULL, 0, NULL);
		}
		assert_int_equal(kn_mismatch(NULL, NULL, 0), 0);
		assert_int_equal(kn_negate(NULL, NULL, 4, 0), 0);
		kn_gather(NULL, 1, NULL, 1, 4, 1, 0);
		kn_gather(NULL, 1, NULL, 1, 4, 0, 3);
	}
	kn_cpu_mask(KN_CPU_ALL);
}

static void the_mask_decides_which_variant_runs(void **state)
{
	static const struct {
		unsigned needs;
		const char *name;
	} best_first[] = {
		{ KN_CPU_ALL, "avx512" },
		{ KN_CPU_AVX2 | KN_CPU_F16C, "avx2+f16c" },
		{ KN_CPU_AVX2, "avx2" },
		{ 0, "ref" },
	};
	unsigned all;

	(void)state;
	kn_cpu_mask(KN_CPU_ALL);
	all = kn_cpu_features();
	for (unsigned mask = 0; mask <= KN_CPU_ALL; mask++) {
		unsigned i = 0;

		kn_cpu_mask(mask);
		assert_int_equal(kn_cpu_features(), all & mask);
		while (best_first[i].needs & ~(all & mask))
			i++;
		assert_string_equal(kn_cpu_variant(), best_first[i].name);
	}
	kn_cpu_mask(KN_CPU_ALL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_variant_gives_the_bits_of_the_definition),
		cmocka_unit_test(odd_tails_and_misaligned_starts_change_nothing),
		cmocka_unit_test(nothing_may_be_converted_from_nowhere),
		cmocka_unit_test(the_mask_decides_which_variant_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
