/* ck_piece.c -- see ck_piece.h. */
#include "libckpt/sums/ck_piece.h"

#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/sums/ck_stated_sum.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_extents.h"

/* Elements before the first whole block, and after the last. */
static void cut(const struct ck_index *ix, const struct ck_stated_sum *says, uint64_t es,
		struct ck_piece *out)
{
	const uint64_t end = says->first + says->count, grain = CK_DIGEST_BLOCK / es;
	const uint64_t up = ck_min_u64(end, (says->first + grain - 1) / grain * grain);
	uint64_t first, count = 0;

	if (!ck_stated_blocks(ix, says, &first, &count))
		first = up;
	out->head = (uint16_t)((first - says->first) * es);
	out->bytes = count * es;
	out->tail = (uint16_t)((end - first - count) * es);
	out->block = first / grain;
}

/* Types under 8 bits: whole tensors only. */
static bool find_packed(const struct ck_index *ix, const struct ck_stated_sum *says,
			struct ck_piece *out)
{
	const struct ck_state *state = &ix->state[says->state];
	const struct ck_extent *e = ck_extent_stored(ix, state, 0);
	const uint64_t numel = ix->tensor[state->tensor].numel;

	if (state->nextents != 1 || e->runs != 1 || e->flags || e->dtype != state->dtype ||
	    says->first || says->count != numel ||
	    ck_dtype_bytes((enum ckpt_dtype)state->dtype, numel, &out->bytes, NULL))
		return false;
	out->source = e->source;
	out->off = e->off;
	return out->bytes != 0;
}

bool ck_piece_find(const struct ck_index *ix, const struct ck_stated_sum *says,
		   struct ck_piece *out)
{
	const struct ck_state *state = &ix->state[says->state];
	const uint64_t es = ckpt_dtype_bits((enum ckpt_dtype)state->dtype) / 8;
	struct ck_extent e;
	uint64_t at;

	*out = (struct ck_piece){ .off = 0 };
	if (!state->nextents || !says->count)
		return false;
	if (!es)
		return find_packed(ix, says, out);
	e = ck_extent_at(ix, state, says->first);
	at = says->first - e.first;
	if (e.runs != 1 || e.flags || e.dtype != state->dtype || e.first > says->first ||
	    at > e.count || says->count > e.count - at)
		return false;
	out->source = e.source;
	out->off = e.off + at * es;
	cut(ix, says, es, out);
	return out->bytes || says->has_ends;
}

/* The whole blocks. */
static int sum_blocks(struct ck_src *src, const struct ck_piece *p, uint8_t *buf,
		      struct ck_hash128 *sum_out, struct ckpt_err *err)
{
	struct ck_hash128 sum = { 0 };

	for (uint64_t at = 0, n; at < p->bytes; at += n) {
		int rc;

		n = ck_min_u64(p->bytes - at, CK_PIECE_BUFFER);
		rc = ck_src_read(src, p->off + p->head + at, buf, n, err);
		if (rc)
			return rc;
		sum = ck_hash128_add(sum, ck_digest_blocks(buf, n, p->block +
							   at / CK_DIGEST_BLOCK));
	}
	*sum_out = sum;
	return 0;
}

int ck_piece_check(const struct ck_index *ix, const struct ck_stated_sum *says,
		   const struct ck_piece *p, uint8_t *buf, bool *good_out, struct ckpt_err *err)
{
	struct ck_src *src = ix->source[p->source].src;
	struct ck_hash128 sum = { 0 };
	bool good = true;
	int rc = sum_blocks(src, p, buf, &sum, err);

	if (!rc && p->bytes)
		good = ck_stated_is(ix, says, sum);
	if (!rc && says->has_ends && (p->head || p->tail)) {
		rc = ck_src_read(src, p->off, buf, p->head, err);
		if (!rc)
			rc = ck_src_read(src, p->off + p->head + p->bytes, buf + p->head, p->tail,
					 err);
		if (!rc)
			good = good && ck_hash128_equal(ck_hash128(buf, (size_t)p->head + p->tail),
							says->ends);
	}
	if (!rc)
		*good_out = good;
	return rc;
}
