/* ck_hash.c -- see ck_hash.h.  Short inputs go to libxxhash, long ones to the wide code. */
#include "libckpt/base/ck_hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* For the size of XXH3_state_t, which is fixed since version 0.8.0. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "libckpt/base/ck_hash_wide.h"
#include "libckpt/base/ck_sys.h"

#define WIDE_FROM 1024

struct ck_hasher {
	XXH3_state_t state;
	void *memory;	/* where the block that holds this begins */
};

uint64_t ck_hash64(const void *p, size_t n)
{
	return XXH3_64bits(p, n);
}

static struct ck_hash128 from_xxh(XXH128_hash_t h)
{
	return (struct ck_hash128){ .lo = h.low64, .hi = h.high64 };
}

static struct ck_hash128 hash_seeded(const void *p, size_t n, uint64_t seed)
{
	const struct ck_hash_wide *wide = n < WIDE_FROM ? NULL : ck_hash_avx2();

	return wide ? wide->hash(p, n, seed) : from_xxh(XXH3_128bits_withSeed(p, n, seed));
}

static void update(XXH3_state_t *state, const void *p, size_t n)
{
	const struct ck_hash_wide *wide = n < WIDE_FROM ? NULL : ck_hash_avx2();

	if (wide)
		wide->update(state, p, n);
	else
		XXH3_128bits_update(state, p, n);
}

struct ck_hash128 ck_hash128(const void *p, size_t n)
{
	return hash_seeded(p, n, 0);
}

struct ck_hash128 ck_hash128_add(struct ck_hash128 a, struct ck_hash128 b)
{
	struct ck_hash128 s = { .lo = a.lo + b.lo, .hi = a.hi + b.hi };

	s.hi += s.lo < a.lo;
	return s;
}

bool ck_hash128_equal(struct ck_hash128 a, struct ck_hash128 b)
{
	return a.lo == b.lo && a.hi == b.hi;
}

struct ck_hash128 ck_digest_blocks(const void *p, size_t n, uint64_t first)
{
	const uint8_t *b = p;
	struct ck_hash128 sum = { 0 };

	for (size_t at = 0; at < n; at += CK_DIGEST_BLOCK, first++) {
		size_t len = n - at < CK_DIGEST_BLOCK ? n - at : CK_DIGEST_BLOCK;

		sum = ck_hash128_add(sum, hash_seeded(b + at, len, first));
	}
	return sum;
}

struct ck_hash128 ck_digest_close(const char *dtype, const uint64_t *dim, uint32_t ndim,
				  struct ck_hash128 sum)
{
	XXH3_state_t st;
	char text[32];
	uint8_t tail[16];
	int n;

	XXH3_INITSTATE(&st);
	XXH3_128bits_reset(&st);
	XXH3_128bits_update(&st, dtype, strlen(dtype));
	XXH3_128bits_update(&st, " [", 2);
	for (uint32_t i = 0; i < ndim; i++) {
		n = snprintf(text, sizeof(text), "%s%" PRIu64, i ? "," : "", dim[i]);
		XXH3_128bits_update(&st, text, (size_t)n);
	}
	XXH3_128bits_update(&st, "]\n", 2);
	ck_put_le64(tail, sum.lo);
	ck_put_le64(tail + 8, sum.hi);
	XXH3_128bits_update(&st, tail, sizeof(tail));
	return from_xxh(XXH3_128bits_digest(&st));
}

void ck_hash128_print(struct ck_hash128 h, char out[33])
{
	snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, h.hi, h.lo);
}

static bool parse_hex(const char *text, uint64_t *out)
{
	uint64_t v = 0;

	for (int i = 0; i < 16; i++) {
		const char c = text[i];

		if (c >= '0' && c <= '9')
			v = v << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			v = v << 4 | (uint64_t)(c - 'a' + 10);
		else
			return false;
	}
	*out = v;
	return true;
}

bool ck_hash128_parse(const char *text, struct ck_hash128 *out)
{
	struct ck_hash128 h;

	if (!parse_hex(text, &h.hi) || !parse_hex(text + 16, &h.lo) || text[32])
		return false;
	*out = h;
	return true;
}

/* The state wants an address that is a multiple of its alignment. */
struct ck_hasher *ck_hasher_new(void)
{
	const uintptr_t align = _Alignof(struct ck_hasher);
	void *memory = ck_alloc(sizeof(struct ck_hasher) + align - 1);
	struct ck_hasher *h;

	if (!memory)
		return NULL;
	h = (struct ck_hasher *)(((uintptr_t)memory + align - 1) & ~(align - 1));
	h->memory = memory;
	XXH3_INITSTATE(&h->state);
	ck_hasher_reset(h);
	return h;
}

void ck_hasher_reset(struct ck_hasher *h)
{
	XXH3_128bits_reset(&h->state);
}

void ck_hasher_add(struct ck_hasher *h, const void *p, size_t n)
{
	if (n)
		update(&h->state, p, n);
}

struct ck_hash128 ck_hasher_sum(const struct ck_hasher *h)
{
	return from_xxh(XXH3_128bits_digest(&h->state));
}

void ck_hasher_free(struct ck_hasher *h)
{
	if (h)
		ck_free(h->memory);
}
