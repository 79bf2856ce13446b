/* ck_hash_reuse.c -- see ck_hash_reuse.h. */
#include "libckpt/sums/ck_hash_reuse.h"

void ck_hash_reuse_forget(struct ck_hash_reuse *h)
{
	h->n = 0;
}

void ck_hash_reuse_note(struct ck_hash_reuse *h, const uint8_t *p, uint64_t n, uint64_t block,
			struct ck_hash128 sum)
{
	if (h->n < CK_HASH_REUSE_MOST)
		h->run[h->n++] = (struct ck_hash_reuse_run){ p, n, block, sum };
}

/* A run that is a stretch of the blocks of [p, p + n), of which 'first' is the first. */
static bool fits(const struct ck_hash_reuse_run *r, const uint8_t *p, uint64_t n, uint64_t first)
{
	const uint64_t at = (uint64_t)(r->p - p);

	return at % CK_DIGEST_BLOCK == 0 && r->block == first + at / CK_DIGEST_BLOCK &&
	       r->n <= n - at && (r->n % CK_DIGEST_BLOCK == 0 || r->n == n - at);
}

/* Of the runs that fit, the first at p[at] or after; NULL = none. */
static const struct ck_hash_reuse_run *next_run(const struct ck_hash_reuse *h, const uint8_t *p,
						uint64_t n, uint64_t first, uint64_t at)
{
	const struct ck_hash_reuse_run *best = NULL;

	for (uint64_t i = 0; i < h->n; i++) {
		const struct ck_hash_reuse_run *r = &h->run[i];

		if (r->p >= p + at && r->p < p + n && (!best || r->p < best->p) &&
		    fits(r, p, n, first))
			best = r;
	}
	return best;
}

struct ck_hash128 ck_hash_reuse_blocks(const struct ck_hash_reuse *h, const uint8_t *p, uint64_t n,
				       uint64_t first)
{
	struct ck_hash128 sum = { 0 };
	uint64_t at = 0;

	while (at < n) {
		const struct ck_hash_reuse_run *r = next_run(h, p, n, first, at);
		const uint64_t to = r ? (uint64_t)(r->p - p) : n;

		if (to > at)
			sum = ck_hash128_add(sum, ck_digest_blocks(p + at, to - at,
								   first + at / CK_DIGEST_BLOCK));
		if (r)
			sum = ck_hash128_add(sum, r->sum);
		at = r ? to + r->n : n;
	}
	return sum;
}
