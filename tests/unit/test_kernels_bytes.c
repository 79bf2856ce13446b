/*
 * test_kernels_bytes.c -- swap, negate, conjugate, compare, gather.
 *
 * If this is wrong, transposed, conjugated or byte-swapped tensors come out scrambled, or
 * two copies of a shard are called equal though they differ.
 */
#include <complex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/include/kn.h"
#include "kernels/include/kn_ref.h"

#define FOR_ALL_MASKS(mask)                                                            \
	for (unsigned mask = 0; mask <= KN_CPU_ALL; mask++, kn_cpu_mask(mask))

static int unmask(void **state)
{
	(void)state;
	kn_cpu_mask(KN_CPU_ALL);
	return 0;
}

static int mask_all(void **state)
{
	(void)state;
	kn_cpu_mask(0);
	return 0;
}

static void swapping_reverses_the_bytes_of_each_element(void **state)
{
	static const uint8_t in[16] = { 0, 1, 2, 3, 4, 5, 6, 7,
					8, 9, 10, 11, 12, 13, 14, 15 };
	static const uint8_t want[3][16] = {
		{ 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14 },
		{ 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12 },
		{ 7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8 },
	};

	(void)state;
	FOR_ALL_MASKS(mask)
		for (size_t times = 1; times < 10; times++) {
			uint8_t src[160], dst[160];

			for (size_t i = 0; i < times; i++)
				memcpy(src + 16 * i, in, 16);
			for (unsigned k = 0; k < 3; k++) {
				if (k == 0)
					kn_bswap16(dst, src, 8 * times);
				else if (k == 1)
					kn_bswap32(dst, src, 4 * times);
				else
					kn_bswap64(dst, src, 2 * times);
				for (size_t i = 0; i < times; i++)
					assert_memory_equal(dst + 16 * i, want[k], 16);
			}
		}
}

static void negating_flips_signs_and_nothing_else(void **state)
{
	(void)state;
	FOR_ALL_MASKS(mask)
		for (size_t n = 0; n < 40; n++) {
			double d[40], nd[40];
			float f[40], nf[40];
			uint16_t h[40], nh[40];

			for (size_t i = 0; i < n; i++) {
				d[i] = (double)i - 7.5;
				f[i] = (float)i - 7.5f;
				h[i] = (uint16_t)(i * 4099);	/* NaN among them */
			}
			assert_int_equal(kn_negate(nd, d, 8, n), 0);
			assert_int_equal(kn_negate(nf, f, 4, n), 0);
			assert_int_equal(kn_negate(nh, h, 2, n), 0);
			for (size_t i = 0; i < n; i++) {
				assert_true(nd[i] == -d[i] && nf[i] == -f[i]);
				assert_int_equal(nh[i], h[i] ^ 0x8000);
			}
			assert_int_equal(kn_negate(d, d, 8, n), 0);
			if (n)
				assert_memory_equal(d, nd, n * 8);
		}
}

static void conjugating_flips_the_imaginary_part_only(void **state)
{
	(void)state;
	FOR_ALL_MASKS(mask)
		for (size_t n = 1; n < 30; n++) {
			double complex z[30], en_cuda[30];
			float complex c[30], cc[30];
			uint16_t h[60], ch[60];

			for (size_t i = 0; i < n; i++) {
				z[i] = (double)i + 0.5 + (3.5 - (double)i) * I;
				c[i] = (float)i + 0.5f + (3.5f - (float)i) * I;
				h[2 * i] = (uint16_t)(i * 4099);
				h[2 * i + 1] = (uint16_t)(i * 5003);
			}
			assert_int_equal(kn_conj(en_cuda, z, 8, n), 0);
			assert_int_equal(kn_conj(cc, c, 4, n), 0);
			assert_int_equal(kn_conj(ch, h, 2, n), 0);
			for (size_t i = 0; i < n; i++) {
				assert_true(en_cuda[i] == conj(z[i]) && cc[i] == conjf(c[i]));
				assert_int_equal(ch[2 * i], h[2 * i]);
				assert_int_equal(ch[2 * i + 1], h[2 * i + 1] ^ 0x8000);
			}
		}
}

static void sizes_without_a_sign_are_refused(void **state)
{
	static const size_t bad[] = { 0, 1, 3, 16 };
	uint8_t b[32] = { 0 };

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(kn_negate(b, b, bad[i], 1), -1);
		assert_int_equal(kn_conj(b, b, bad[i], 1), -1);
	}
	for (unsigned i = 0; i < sizeof(b); i++)
		assert_int_equal(b[i], 0);
}

static void the_first_difference_is_found_wherever_it_is(void **state)
{
	(void)state;
	FOR_ALL_MASKS(mask)
		for (size_t n = 0; n <= 150; n += n < 70 ? 1 : 11)
			for (size_t shift = 0; shift < 3; shift++) {
				uint8_t *a = malloc(n + shift + !n), *b = malloc(n + !n);

				assert_true(a && b);
				for (size_t i = 0; i < n; i++)
					a[shift + i] = b[i] = (uint8_t)(i * 37);
				assert_int_equal(kn_mismatch(a + shift, b, n), n);
				for (size_t i = n; i-- > 0; ) {
					/* Later differences stand already. */
					b[i] ^= (uint8_t)(1u << i % 8);
					assert_int_equal(kn_mismatch(a + shift, b, n), i);
				}
				free(a);
				free(b);
			}
}

/* Every element size, run length and stride: slot by slot. */
static void gather_takes_the_strided_elements(void **state)
{
	static const size_t sizes[] = { 1, 2, 3, 4, 8, 16 };
	uint8_t src[16 * 200], dst[16 * 200], ref[16 * 200];

	(void)state;
	for (size_t i = 0; i < sizeof(src); i++)
		src[i] = (uint8_t)(i * 7 + i / 256);
	for (unsigned k = 0; k < 6; k++)
	for (size_t run = 1; run <= 5; run++)
	for (ptrdiff_t ss = -6; ss <= 6; ss++)
	for (ptrdiff_t ds = (ptrdiff_t)run; ds <= 7; ds++) {
		const size_t z = sizes[k], nrun = 9;
		const size_t base = ss < 0 ? (size_t)(-ss) * (nrun - 1) : 0;

		memset(dst, 0xee, sizeof(dst));
		memset(ref, 0xee, sizeof(ref));
		kn_gather(dst, ds, src + base * z, ss, z, run, nrun);
		kn_ref_gather(ref, ds, src + base * z, ss, z, run, nrun);
		assert_memory_equal(dst, ref, sizeof(dst));
		for (size_t i = 0; i < nrun; i++)
			for (size_t e = 0; e < run; e++) {
				const ptrdiff_t from = (ptrdiff_t)(base + e) +
						       (ptrdiff_t)i * ss;
				const size_t to = i * (size_t)ds + e;

				assert_memory_equal(dst + to * z,
						    src + (size_t)from * z, z);
			}
	}
}

static void gather_transposes_a_matrix(void **state)
{
	float m[5][7], t[7][5];

	(void)state;
	for (int i = 0; i < 5; i++)
		for (int j = 0; j < 7; j++)
			m[i][j] = (float)(10 * i + j);
	for (int j = 0; j < 7; j++)
		kn_gather(t[j], 1, &m[0][j], 7, sizeof(float), 1, 5);
	for (int i = 0; i < 5; i++)
		for (int j = 0; j < 7; j++)
			assert_true(t[j][i] == m[i][j]);
}

/* Every skew of both ends, short and long; what lies around stays. */
static void copies_are_whole_and_keep_to_their_place(void **state)
{
	static const size_t lengths[] = { 0, 1, 63, 64, 65535, 65536, 65537, 65599, 200003 };
	const size_t room = 200003 + 512;
	uint8_t *src = malloc(room), *dst = malloc(room);

	(void)state;
	assert_true(src && dst);
	for (size_t i = 0; i < room; i++)
		src[i] = (uint8_t)(i * 131 >> 3);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		for (size_t skew = 0; skew < 128; skew += 7) {
			const size_t n = lengths[i], to = 64 + skew, from = skew * 3 % 61;

			memset(dst, 0xa5, room);
			kn_copy_past(dst + to, src + from, n);
			assert_memory_equal(dst + to, src + from, n);
			for (size_t k = 1; k <= 64; k++) {
				assert_int_equal(dst[to - k], 0xa5);
				assert_int_equal(dst[to + n + k - 1], 0xa5);
			}
		}
	}
	kn_copy_past(NULL, NULL, 0);
	free(src);
	free(dst);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_are_whole_and_keep_to_their_place),
#define MASKED(f) cmocka_unit_test_setup_teardown(f, mask_all, unmask)
		MASKED(swapping_reverses_the_bytes_of_each_element),
		MASKED(negating_flips_signs_and_nothing_else),
		MASKED(conjugating_flips_the_imaginary_part_only),
		MASKED(the_first_difference_is_found_wherever_it_is),
#undef MASKED
		cmocka_unit_test(sizes_without_a_sign_are_refused),
		cmocka_unit_test(gather_takes_the_strided_elements),
		cmocka_unit_test(gather_transposes_a_matrix),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
