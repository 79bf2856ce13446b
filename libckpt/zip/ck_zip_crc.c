/*
 * ck_zip_crc.c -- see ck_zip_crc.h.
 *
 * libdeflate 1.14, which systems ship, multiplies 128 bits at a time; registers of 256 and
 * 512 bits are two and three times as fast.  What is folded: a lane of 128 bits, D bytes before
 * another one, counts there as its low half times x^(8D + 32) plus its high half times
 * x^(8D - 32), modulo the CRC's polynomial.  The last block goes to libdeflate like any bytes.
 */
#include "libckpt/zip/ck_zip_crc.h"

#include <libdeflate.h>

#include "libckpt/zip/ck_zip.h"

/* Below it the folding's beginning and end cost more than they save. */
#define WIDE_FROM 1024

#if defined(__x86_64__)

#include <immintrin.h>

/* The two powers for D = CK_CRC_BLOCK, bits reversed and moved up by one. */
#define FOLD_LOW 0x11542778a
#define FOLD_HIGH 0x1322d1430

__attribute__((target("avx2,vpclmulqdq")))
static void fold_avx2(uint32_t crc, const uint8_t *p, size_t n, uint8_t block[CK_CRC_BLOCK])
{
	const __m256i by = _mm256_set_epi64x(FOLD_HIGH, FOLD_LOW, FOLD_HIGH, FOLD_LOW);
	const __m256i start = _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)~crc));
	__m256i x[CK_CRC_BLOCK / 32];

	for (int i = 0; i < CK_CRC_BLOCK / 32; i++)
		x[i] = _mm256_loadu_si256((const void *)(p + 32 * i));
	x[0] = _mm256_xor_si256(x[0], start);
	for (size_t at = CK_CRC_BLOCK; at < n; at += CK_CRC_BLOCK) {
		for (int i = 0; i < CK_CRC_BLOCK / 32; i++) {
			const __m256i low = _mm256_clmulepi64_epi128(x[i], by, 0x00);
			const __m256i high = _mm256_clmulepi64_epi128(x[i], by, 0x11);

			x[i] = _mm256_loadu_si256((const void *)(p + at + 32 * i));
			x[i] = _mm256_xor_si256(x[i], _mm256_xor_si256(low, high));
		}
	}
	for (int i = 0; i < CK_CRC_BLOCK / 32; i++)
		_mm256_storeu_si256((void *)(block + 32 * i), x[i]);
}

__attribute__((target("avx512f,vpclmulqdq")))
static void fold_avx512(uint32_t crc, const uint8_t *p, size_t n, uint8_t block[CK_CRC_BLOCK])
{
	const __m512i by = _mm512_set4_epi64(FOLD_HIGH, FOLD_LOW, FOLD_HIGH, FOLD_LOW);
	const __m512i start = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc));
	__m512i x[CK_CRC_BLOCK / 64];

	for (int i = 0; i < CK_CRC_BLOCK / 64; i++)
		x[i] = _mm512_loadu_si512(p + 64 * i);
	x[0] = _mm512_xor_si512(x[0], start);
	for (size_t at = CK_CRC_BLOCK; at < n; at += CK_CRC_BLOCK) {
		for (int i = 0; i < CK_CRC_BLOCK / 64; i++) {
			const __m512i low = _mm512_clmulepi64_epi128(x[i], by, 0x00);
			const __m512i high = _mm512_clmulepi64_epi128(x[i], by, 0x11);

			x[i] = _mm512_loadu_si512(p + at + 64 * i);
			x[i] = _mm512_ternarylogic_epi64(x[i], low, high, 0x96);
		}
	}
	for (int i = 0; i < CK_CRC_BLOCK / 64; i++)
		_mm512_storeu_si512(block + 64 * i, x[i]);
}

ck_crc_fold_fn ck_crc_fold_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq") ?
	       fold_avx2 : NULL;
}

ck_crc_fold_fn ck_crc_fold_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") ?
	       fold_avx512 : NULL;
}

#else

ck_crc_fold_fn ck_crc_fold_avx2(void)
{
	return NULL;
}

ck_crc_fold_fn ck_crc_fold_avx512(void)
{
	return NULL;
}

#endif

uint32_t ck_crc_with(ck_crc_fold_fn fold, uint32_t crc, const void *p, size_t n)
{
	uint8_t block[CK_CRC_BLOCK];
	const size_t whole = n - n % CK_CRC_BLOCK;

	if (!fold || !whole)
		return libdeflate_crc32(crc, p, n);
	fold(crc, p, whole, block);
	crc = libdeflate_crc32(UINT32_MAX, block, sizeof(block));
	return libdeflate_crc32(crc, (const uint8_t *)p + whole, n - whole);
}

uint32_t ck_zip_crc32(uint32_t crc, const void *p, size_t n)
{
	ck_crc_fold_fn fold = NULL;

	if (n >= WIDE_FROM)
		fold = ck_crc_fold_avx512();
	if (n >= WIDE_FROM && !fold)
		fold = ck_crc_fold_avx2();
	return ck_crc_with(fold, crc, p, n);
}
