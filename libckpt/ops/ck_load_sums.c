/*
 * ck_load_sums.c -- what is read of a native step, held against the sums in its manifest.
 *
 * A sum is over the whole blocks of a piece, in any order, so each block is hashed as it passes by.
 * A bit for each block says that it was: it counts once however often it is read, and a piece is
 * checked if all its bits are set.  What a piece has of blocks that it cuts has a hash of its own,
 * over both ends: they are kept until both were seen.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/ops/ck_load.h"
#include "libckpt/ops/ck_stated.h"

/* A piece: a head, whole blocks, a tail. */
struct stated {
	const struct ck_stated_sum *says;
	uint64_t off;		/* of the head, in the source */
	uint64_t bytes;		/* of the whole blocks */
	uint64_t block;		/* number of the first in the state */
	uint64_t bit;		/* of the first */
	uint64_t seen;		/* blocks */
	struct ck_hash128 sum;	/* of these */
	uint64_t ends;		/* where head and tail are kept, one behind the other */
	uint32_t source;
	uint16_t head, tail;	/* bytes */
	bool has_head, has_tail;	/* are kept */
};

struct ck_load_sums {
	const struct ck_index *ix;
	struct stated *stated;	/* by source and place */
	uint64_t n;
	_Atomic uint64_t *bits;
	uint8_t *ends;
	pthread_mutex_t lock;	/* guards 'ends' and what a piece has of them, 'seen' and 'sum' */
};

static uint64_t end_of(const struct stated *s)
{
	return s->off + s->head + s->bytes + s->tail;
}

static uint64_t blocks_of(const struct stated *s)
{
	return s->bytes / CK_DIGEST_BLOCK + (s->bytes % CK_DIGEST_BLOCK != 0);
}

/* Elements before the first whole block, and behind the last. */
static void cut(const struct ck_index *ix, const struct ck_stated_sum *says, uint64_t es,
		struct stated *out)
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

/* Where a piece lies; false if it is not in one run, or has nothing to be held against. */
static bool find(const struct ck_index *ix, const struct ck_stated_sum *says, struct stated *out)
{
	const struct ck_state *state = &ix->state[says->state];
	const uint64_t es = ckpt_dtype_bits((enum ckpt_dtype)state->dtype) / 8;
	const struct ck_extent *e;
	uint64_t at;

	if (!es || !state->nextents || !says->count)
		return false;
	e = &ix->extent[ck_index_extent_at(ix, state, says->first)];
	at = says->first - e->first;
	if (e->runs != 1 || e->flags || e->dtype != state->dtype || e->first > says->first ||
	    at > e->count || says->count > e->count - at)
		return false;
	*out = (struct stated){
		.says = says, .source = e->source, .off = e->off + at * es,
	};
	cut(ix, says, es, out);
	return out->bytes || says->has_ends;
}

static int by_place(const void *a, const void *b)
{
	const struct stated *x = a, *y = b;

	if (x->source != y->source)
		return x->source < y->source ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

static int fill(struct ck_load_sums *sums, const struct ck_load_plan *plan, struct ckpt_err *err)
{
	const struct ck_index *ix = sums->ix;
	uint64_t bits = 0, ends = 0;

	sums->stated = ck_alloc_array(ix->nstated_sums, sizeof(*sums->stated));
	if (!sums->stated)
		return ck_fail_nomem(err, "sums of pieces", ix->nstated_sums);
	for (uint64_t i = 0; i < ix->nstated_sums; i++) {
		struct stated *s = &sums->stated[sums->n];

		if (!find(ix, &ix->stated_sum[i], s) ||
		    !ck_load_piece_in(plan, s->source, 0, UINT64_MAX))
			continue;
		s->bit = bits;
		bits += blocks_of(s);
		s->ends = ends;
		ends += s->says->has_ends ? (uint64_t)s->head + s->tail : 0;
		sums->n++;
	}
	if (sums->n)
		qsort(sums->stated, sums->n, sizeof(*sums->stated), by_place);
	sums->bits = ck_zalloc((bits / 64 + 1) * sizeof(*sums->bits));
	sums->ends = ck_alloc(ends);
	return sums->bits && sums->ends ? 0 :
	       ck_fail_nomem(err, "marks of blocks", bits / 8 + ends);
}

int ck_load_sums_new(const struct ck_index *ix, const struct ck_load_plan *plan,
		     struct ck_load_sums **out, struct ckpt_err *err)
{
	struct ck_load_sums *sums = ck_zalloc(sizeof(*sums));
	int rc;

	if (!sums)
		return ck_fail_nomem(err, "sums of pieces", sizeof(*sums));
	sums->ix = ix;
	pthread_mutex_init(&sums->lock, NULL);
	rc = fill(sums, plan, err);
	if (rc)
		ck_load_sums_free(sums);
	else
		*out = sums;
	return rc;
}

void ck_load_sums_free(struct ck_load_sums *sums)
{
	if (!sums)
		return;
	ck_free(sums->stated);
	ck_free((void *)sums->bits);
	ck_free(sums->ends);
	pthread_mutex_destroy(&sums->lock);
	ck_free(sums);
}

/* True if nobody had marked it before. */
static bool mark(struct ck_load_sums *sums, uint64_t bit)
{
	const uint64_t one = (uint64_t)1 << bit % 64;

	return !(atomic_fetch_or(&sums->bits[bit / 64], one) & one);
}

/* Bytes [from, to) of a piece's blocks, at 'p': the blocks that lie wholly in there. */
static void add_blocks(struct ck_load_sums *sums, struct stated *s, uint64_t from, uint64_t to,
		       const uint8_t *p)
{
	const uint64_t up = (CK_DIGEST_BLOCK - from % CK_DIGEST_BLOCK) % CK_DIGEST_BLOCK;
	struct ck_hash128 sum = { 0 };
	uint64_t n = 0;

	for (uint64_t at = from + up; at < to; at += CK_DIGEST_BLOCK) {
		const uint64_t len = ck_min_u64(CK_DIGEST_BLOCK, s->bytes - at);
		const uint64_t block = at / CK_DIGEST_BLOCK;

		if (len > to - at || !mark(sums, s->bit + block))
			continue;
		sum = ck_hash128_add(sum, ck_digest_blocks(p + (at - from), len,
							   s->block + block));
		n++;
	}
	pthread_mutex_lock(&sums->lock);
	s->sum = ck_hash128_add(s->sum, sum);
	s->seen += n;
	pthread_mutex_unlock(&sums->lock);
}

/* Bytes [off, off + n) of the source, at 'p': head and tail, if they are whole in there. */
static void keep_ends(struct ck_load_sums *sums, struct stated *s, uint64_t off, uint64_t n,
		      const uint8_t *p)
{
	const uint64_t tail = end_of(s) - s->tail;
	uint8_t *to = sums->ends + s->ends;

	if (!s->says->has_ends)
		return;
	pthread_mutex_lock(&sums->lock);
	if (s->head && !s->has_head && off <= s->off && s->off + s->head <= off + n) {
		memcpy(to, p + (s->off - off), s->head);
		s->has_head = true;
	}
	if (s->tail && !s->has_tail && off <= tail && tail + s->tail <= off + n) {
		memcpy(to + s->head, p + (tail - off), s->tail);
		s->has_tail = true;
	}
	pthread_mutex_unlock(&sums->lock);
}

/* The first that ends behind 'off'. */
static uint64_t stated_at(const struct ck_load_sums *sums, uint32_t source, uint64_t off)
{
	uint64_t lo = 0, hi = sums->n;

	while (lo < hi) {
		const uint64_t mid = lo + (hi - lo) / 2;
		const struct stated *s = &sums->stated[mid];

		if (s->source < source || (s->source == source && end_of(s) <= off))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

void ck_load_sums_add(struct ck_load_sums *sums, uint32_t source, uint64_t off, const void *p,
		      uint64_t n)
{
	for (uint64_t i = stated_at(sums, source, off); i < sums->n; i++) {
		struct stated *s = &sums->stated[i];
		const uint64_t blocks = s->off + s->head;
		const uint64_t from = ck_max_u64(off, blocks);
		const uint64_t to = ck_min_u64(off + n, blocks + s->bytes);

		if (s->source != source || s->off >= off + n)
			break;
		if (to > from)
			add_blocks(sums, s, from - blocks, to - blocks,
				   (const uint8_t *)p + (from - off));
		keep_ends(sums, s, off, n, p);
	}
}

static int fail_sum(const struct ck_index *ix, const struct stated *s, struct ckpt_err *err)
{
	const struct ck_state *state = &ix->state[s->says->state];

	return ck_fail(err, CKPT_E_MISMATCH, ix->source[s->source].path, s->off,
		       "MANIFEST_HASH_WRONG: %s of %.200s, elements %" PRIu64 " to %" PRIu64
		       ": not the bytes that the manifest knows (a file of another step, or "
		       "damage)", state->name, ix->tensor[state->tensor].name, s->says->first,
		       s->says->first + s->says->count - 1);
}

int ck_load_sums_check(const struct ck_load_sums *sums, uint64_t *checked, struct ckpt_err *err)
{
	const struct ck_index *ix = sums->ix;

	for (uint64_t i = 0; i < sums->n; i++) {
		const struct stated *s = &sums->stated[i];
		const uint64_t ends = (uint64_t)s->head + s->tail;

		if (s->bytes && s->seen == blocks_of(s)) {
			if (!ck_hash128_equal(s->sum, s->says->sum))
				return fail_sum(ix, s, err);
			*checked += s->bytes;
		}
		if (s->says->has_ends && ends && s->has_head == (s->head != 0) &&
		    s->has_tail == (s->tail != 0)) {
			const struct ck_hash128 is = ck_hash128(sums->ends + s->ends, ends);

			if (!ck_hash128_equal(is, s->says->ends))
				return fail_sum(ix, s, err);
			*checked += ends;
		}
	}
	return 0;
}
