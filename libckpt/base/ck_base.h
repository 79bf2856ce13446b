/*
 * ck_base.h -- what every file of the library may lean on: attributes, checked
 * arithmetic, min and max.  No allocation, no input or output.
 */
#ifndef CK_BASE_H
#define CK_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/include/ckpt.h"

#define CK_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define CK_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

static inline uint64_t ck_min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t ck_max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* true if a * b (or a + b) does not fit; otherwise the result is stored. */
static inline bool ck_mul_over(uint64_t a, uint64_t b, uint64_t *out)
{
	return __builtin_mul_overflow(a, b, out);
}

static inline bool ck_add_over(uint64_t a, uint64_t b, uint64_t *out)
{
	return __builtin_add_overflow(a, b, out);
}

/* Little-endian loads from any address. */
static inline uint16_t ck_le16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t ck_le32(const uint8_t *p)
{
	return (uint32_t)ck_le16(p) | (uint32_t)ck_le16(p + 2) << 16;
}

static inline uint64_t ck_le64(const uint8_t *p)
{
	return (uint64_t)ck_le32(p) | (uint64_t)ck_le32(p + 4) << 32;
}

static inline void ck_put_le32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static inline void ck_put_le64(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

#endif
