/* ck_sum_check.c -- see ck_sum_check.h. */
#include "libckpt/sums/ck_sum_check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_pool.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/sums/ck_hash_reuse.h"
#include "libckpt/sums/ck_part_sums.h"
#include "libckpt/sums/ck_piece.h"
#include "libckpt/sums/ck_stated_sum.h"

#define WINDOW ((uint64_t)256 << 10)

/* A piece: a head, whole blocks, a tail. */
struct stated {
	const struct ck_stated_sum *says;
	uint64_t off;		/* of the head, in the source */
	uint64_t bytes;		/* of the whole blocks */
	uint64_t block;		/* number of the first in the state */
	uint64_t bit;		/* of the first */
	uint64_t seen;		/* blocks */
	uint64_t owned;		/* of these we answer for so many; the others are marked */
	uint64_t number;	/* among what parts share, or CK_NOT_SHARED */
	uint64_t again;		/* bytes that were read for the sum alone */
	struct ck_hash128 sum;	/* of the blocks that were seen */
	uint64_t ends;		/* where head and tail are kept, one after the other */
	uint32_t source;
	uint16_t head, tail;	/* bytes */
	bool has_head, has_tail;	/* are kept */
	bool others_ends;	/* head and tail are another part's */
	bool witnessed;		/* one byte, the same for all who read the piece, has passed */
};

struct ck_sum_check {
	const struct ck_index *ix;
	struct stated *stated;	/* by source and place */
	uint64_t n;
	_Atomic uint64_t *bits;
	uint8_t *ends;
	bool *state, *source;	/* are wanted */
	struct ck_hash_reuse *hashed;	/* of the threads that bring what passes */
	uint32_t nhashed;
	pthread_mutex_t lock;	/* guards 'ends' and what a piece has of them, 'seen', 'sum' and
				   'witnessed' */
};

static uint64_t bytes_of(const struct stated *s)
{
	return s->head + s->bytes + s->tail;
}

static uint64_t end_of(const struct stated *s)
{
	return s->off + bytes_of(s);
}

static uint64_t blocks_of(const struct stated *s)
{
	return s->bytes / CK_DIGEST_BLOCK + (s->bytes % CK_DIGEST_BLOCK != 0);
}

/* ---------------------------------------------------------------- pieces */

/* Where a piece is; false if it is not in one run, or has nothing to be compared with. */
static bool find(const struct ck_index *ix, const struct ck_stated_sum *says, struct stated *out)
{
	struct ck_piece p;

	if (!ck_piece_find(ix, says, &p))
		return false;
	*out = (struct stated){
		.says = says, .source = p.source, .off = p.off, .bytes = p.bytes,
		.block = p.block, .head = p.head, .tail = p.tail,
	};
	return true;
}

bool ck_sum_check_compares(const struct ck_index *ix, const struct ck_stated_sum *says)
{
	struct stated s;

	return find(ix, says, &s) && (says->has_ends || (!s.head && !s.tail));
}

static int by_place(const void *a, const void *b)
{
	const struct stated *x = a, *y = b;

	if (x->source != y->source)
		return x->source < y->source ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

static int fill(struct ck_sum_check *passed, const bool *only, struct ckpt_err *err)
{
	const struct ck_index *ix = passed->ix;
	uint64_t bits = 0, ends = 0;

	passed->stated = ck_alloc_array(ix->nstated_sums, sizeof(*passed->stated));
	if (!passed->stated)
		return ck_fail_nomem(err, "sums of pieces", ix->nstated_sums);
	for (uint64_t i = 0; i < ix->nstated_sums; i++) {
		struct stated *s = &passed->stated[passed->n];

		if (!find(ix, &ix->stated_sum[i], s) || (only && !only[s->source]))
			continue;
		s->owned = blocks_of(s);
		s->number = CK_NOT_SHARED;
		s->bit = bits;
		bits += blocks_of(s);
		s->ends = ends;
		ends += s->says->has_ends ? (uint64_t)s->head + s->tail : 0;
		passed->n++;
	}
	if (passed->n)
		qsort(passed->stated, passed->n, sizeof(*passed->stated), by_place);
	passed->bits = ck_zalloc((bits / 64 + 1) * sizeof(*passed->bits));
	passed->ends = ck_alloc(ends);
	passed->state = ck_zalloc(ix->nstates + 1);
	passed->source = ck_zalloc(ix->nsources + 1);
	return passed->bits && passed->ends && passed->state && passed->source ? 0 :
	       ck_fail_nomem(err, "marks of blocks", bits / 8 + ends);
}

int ck_sum_check_new(const struct ck_index *ix, const bool *only, struct ck_sum_check **out,
		     struct ckpt_err *err)
{
	struct ck_sum_check *passed = ck_zalloc(sizeof(*passed));
	int rc;

	if (!passed)
		return ck_fail_nomem(err, "sums of pieces", sizeof(*passed));
	passed->ix = ix;
	pthread_mutex_init(&passed->lock, NULL);
	rc = fill(passed, only, err);
	if (rc)
		ck_sum_check_free(passed);
	else
		*out = passed;
	return rc;
}

void ck_sum_check_free(struct ck_sum_check *passed)
{
	if (!passed)
		return;
	ck_free(passed->stated);
	ck_free((void *)passed->bits);
	ck_free(passed->ends);
	ck_free(passed->state);
	ck_free(passed->source);
	pthread_mutex_destroy(&passed->lock);
	ck_free(passed);
}

void ck_sum_check_note(struct ck_sum_check *passed, struct ck_hash_reuse *hashed, uint32_t n)
{
	passed->hashed = hashed;
	passed->nhashed = n;
}

void ck_sum_check_want_state(struct ck_sum_check *passed, uint32_t state)
{
	passed->state[state] = true;
}

void ck_sum_check_want_source(struct ck_sum_check *passed, uint32_t source)
{
	passed->source[source] = true;
}

/* ---------------------------------------------------------------- parts */

static bool is_wanted(const struct ck_sum_check *passed, const struct stated *s)
{
	return passed->state[s->says->state] || passed->source[s->source];
}

/* Blocks [from, to) are another part's: they count as seen, and add nothing. */
static void disown(struct ck_sum_check *passed, struct stated *s, uint64_t from, uint64_t to)
{
	uint64_t bit = s->bit + from;
	const uint64_t end = s->bit + to;

	while (bit < end) {
		const uint64_t n = ck_min_u64(end - bit, 64 - bit % 64);
		const uint64_t ones = n == 64 ? UINT64_MAX : (((uint64_t)1 << n) - 1) << bit % 64;

		atomic_fetch_or_explicit(&passed->bits[bit / 64], ones, memory_order_relaxed);
		bit += n;
	}
	s->owned -= to - from;
}

/* Blocks from 'k' on whose first byte is one part's, or none's: where they end. */
static uint64_t stretch(const struct stated *s, const struct ck_claims *claims, uint64_t k,
			uint32_t *part_out)
{
	const uint64_t blocks = s->off + s->head;
	const uint64_t to = ck_claims_stretch(claims, s->source, blocks + k * CK_DIGEST_BLOCK,
					      blocks + s->bytes, part_out);

	return (to - blocks + CK_DIGEST_BLOCK - 1) / CK_DIGEST_BLOCK;
}

static void share_piece(struct ck_sum_check *passed, struct stated *s, struct ck_part_sums *share,
			const struct ck_claims *claims)
{
	const uint64_t n = blocks_of(s);
	uint32_t part, first;
	bool many = false;

	ck_claims_stretch(claims, s->source, s->off, end_of(s), &first);
	if (first == CK_NONE && n)
		stretch(s, claims, 0, &first);
	if (first == CK_NONE)
		first = ck_part_sums_rest(share, s->head + s->tail, CK_NONE);
	for (uint64_t k = 0, to; k < n; k = to) {
		to = stretch(s, claims, k, &part);
		if (part == CK_NONE)
			part = ck_part_sums_rest(share, (to - k) * CK_DIGEST_BLOCK, first);
		many |= part != first;
		if (part != share->part)
			disown(passed, s, k, to);
	}
	s->others_ends = first != share->part;
	if (many)
		s->number = share->next++;
}

void ck_sum_check_share(struct ck_sum_check *passed, struct ck_part_sums *share,
			const struct ck_claims *claims)
{
	for (uint64_t i = 0; i < passed->n; i++)
		if (is_wanted(passed, &passed->stated[i]))
			share_piece(passed, &passed->stated[i], share, claims);
}

/* ---------------------------------------------------------------- what passes */

static bool is_marked(const struct ck_sum_check *passed, uint64_t bit)
{
	return atomic_load_explicit(&passed->bits[bit / 64], memory_order_relaxed) >> bit % 64 & 1;
}

/* True if it was not marked before. */
static bool mark(struct ck_sum_check *passed, uint64_t bit)
{
	const uint64_t one = (uint64_t)1 << bit % 64;

	return !(atomic_fetch_or(&passed->bits[bit / 64], one) & one);
}

/* Blocks from 'block' on that are new, and then are marked. */
static uint64_t mark_run(struct ck_sum_check *passed, const struct stated *s, uint64_t block,
			 uint64_t end)
{
	uint64_t k = block;

	while (k < end && mark(passed, s->bit + k))
		k++;
	return k - block;
}

/* The sum, which is noted if 'p' is in the buffer of a thread. */
static struct ck_hash128 sum_blocks(const struct ck_sum_check *passed, const uint8_t *p, uint64_t n,
				    uint64_t block)
{
	const struct ck_hash128 sum = ck_digest_blocks(p, n, block);

	for (uint32_t i = 0; i < passed->nhashed; i++) {
		struct ck_hash_reuse *h = &passed->hashed[i];

		if (p >= h->buf && p < h->buf + h->bytes) {
			ck_hash_reuse_note(h, p, n, block, sum);
			break;
		}
	}
	return sum;
}

/* Bytes [from, to) of a piece's blocks, at 'p': the blocks that are wholly in there. */
static void add_blocks(struct ck_sum_check *passed, struct stated *s, uint64_t from, uint64_t to,
		       const uint8_t *p)
{
	const uint64_t first = (from + CK_DIGEST_BLOCK - 1) / CK_DIGEST_BLOCK;
	const uint64_t end = to == s->bytes ? blocks_of(s) : to / CK_DIGEST_BLOCK;
	struct ck_hash128 sum = { 0 };
	uint64_t n = 0, run;

	for (uint64_t k = first; k < end; k += run + 1) {	/* the one after a run is known */
		const uint64_t at = k * CK_DIGEST_BLOCK;

		run = mark_run(passed, s, k, end);
		if (run)
			sum = ck_hash128_add(sum, sum_blocks(
				passed, p + (at - from),
				ck_min_u64(run * CK_DIGEST_BLOCK, s->bytes - at), s->block + k));
		n += run;
	}
	if (!n)
		return;
	pthread_mutex_lock(&passed->lock);
	s->sum = ck_hash128_add(s->sum, sum);
	s->seen += n;
	pthread_mutex_unlock(&passed->lock);
}

/* Bytes [off, off + n) of the source, at 'p': head and tail, if they are whole in there. */
static void keep_ends(struct ck_sum_check *passed, struct stated *s, uint64_t off, uint64_t n,
		      const uint8_t *p)
{
	const uint64_t tail = end_of(s) - s->tail;
	uint8_t *to = passed->ends + s->ends;

	if (s->head && !s->has_head && off <= s->off && s->off + s->head <= off + n) {
		memcpy(to, p + (s->off - off), s->head);
		s->has_head = true;
	}
	if (s->tail && !s->has_tail && off <= tail && tail + s->tail <= off + n) {
		memcpy(to + s->head, p + (tail - off), s->tail);
		s->has_tail = true;
	}
}

/* Where in the source the byte is that says who reads the rest of the piece. */
static uint64_t witness_of(const struct ck_sum_check *passed, const struct stated *s)
{
	const uint64_t number = (uint64_t)(s->says - passed->ix->stated_sum);

	return s->off + ck_hash64(&number, sizeof(number)) % bytes_of(s);
}

static void add_to(struct ck_sum_check *passed, struct stated *s, uint64_t off, const uint8_t *p,
		   uint64_t n)
{
	const uint64_t blocks = s->off + s->head;
	const uint64_t from = ck_max_u64(off, blocks);
	const uint64_t to = ck_min_u64(off + n, blocks + s->bytes);
	const uint64_t witness = witness_of(passed, s);

	if (to > from)
		add_blocks(passed, s, from - blocks, to - blocks, p + (from - off));
	pthread_mutex_lock(&passed->lock);
	if (s->says->has_ends && (s->head || s->tail))
		keep_ends(passed, s, off, n, p);
	s->witnessed |= off <= witness && witness < off + n;
	pthread_mutex_unlock(&passed->lock);
}

/* The first that ends after 'off'. */
static uint64_t stated_at(const struct ck_sum_check *passed, uint32_t source, uint64_t off)
{
	const struct stated *s = passed->stated;
	uint64_t i;

	CK_LOWER_BOUND(i, passed->n, s[i].source < source ||
				     (s[i].source == source && end_of(&s[i]) <= off));
	return i;
}

void ck_sum_check_add(struct ck_sum_check *passed, uint32_t source, uint64_t off, const void *p,
		      uint64_t n)
{
	for (uint64_t i = stated_at(passed, source, off); i < passed->n; i++) {
		struct stated *s = &passed->stated[i];

		if (s->source != source || s->off >= off + n)
			break;
		add_to(passed, s, off, p, n);
	}
}

/* ---------------------------------------------------------------- the rest */

struct resting {
	struct ck_sum_check *passed;
	const struct ck_sum_check_ask *ask;
	uint8_t **buf;		/* per thread, made when it is needed */
};

/* Heads and tails that no hash is known of need not be seen. */
static bool has_ends(const struct stated *s)
{
	return !s->says->has_ends || s->others_ends ||
	       (s->has_head == (s->head != 0) && s->has_tail == (s->tail != 0));
}

static bool is_complete(const struct stated *s)
{
	return s->seen == s->owned && has_ends(s);
}

static bool is_ours(const struct resting *r, uint64_t i)
{
	const struct stated *s = &r->passed->stated[i];

	if (r->ask->rest == CK_REST_WITNESS)
		return s->witnessed;
	return r->ask->rest == CK_REST_WANTED && is_wanted(r->passed, s);
}

static int read_run(struct resting *r, struct stated *s, uint64_t off, uint64_t n, uint8_t *buf,
		    struct ckpt_err *err)
{
	struct ck_src *src = r->passed->ix->source[s->source].src;
	int rc = 0;

	for (uint64_t k; !rc && n; off += k, n -= k) {
		k = ck_min_u64(n, WINDOW);
		if (r->ask->cancel && __atomic_load_n(r->ask->cancel, __ATOMIC_RELAXED))
			return ck_fail(err, CKPT_E_CANCELED, NULL, CKPT_NO_OFFSET,
				       "the run was canceled");
		rc = ck_src_read(src, off, buf, k, err);
		if (!rc)
			add_to(r->passed, s, off, buf, k);
		s->again += k;
	}
	return rc;
}

static bool wants_ends(const struct stated *s)
{
	return s->says->has_ends && !s->others_ends;
}

static int read_rest(struct resting *r, struct stated *s, uint8_t *buf, struct ckpt_err *err)
{
	const uint64_t n = blocks_of(s), blocks = s->off + s->head;
	uint64_t end;
	int rc = 0;

	if (wants_ends(s) && s->head && !s->has_head)
		rc = read_run(r, s, s->off, s->head, buf, err);
	for (uint64_t k = 0; !rc && k < n; k = end) {
		uint64_t first = k;

		while (first < n && is_marked(r->passed, s->bit + first))
			first++;
		for (end = first; end < n && !is_marked(r->passed, s->bit + end); )
			end++;
		if (end > first)
			rc = read_run(r, s, blocks + first * CK_DIGEST_BLOCK,
				      ck_min_u64(end * CK_DIGEST_BLOCK, s->bytes) -
				      first * CK_DIGEST_BLOCK, buf, err);
	}
	if (!rc && wants_ends(s) && s->tail && !s->has_tail)
		rc = read_run(r, s, end_of(s) - s->tail, s->tail, buf, err);
	return rc;
}

static int run_rest(void *arg, uint64_t i, uint32_t worker, struct ckpt_err *err)
{
	struct resting *r = arg;
	struct stated *s = &r->passed->stated[i];

	if (is_complete(s) || !is_ours(r, i))
		return 0;
	if (!r->buf[worker])
		r->buf[worker] = ck_alloc(WINDOW);
	return r->buf[worker] ? read_rest(r, s, r->buf[worker], err) :
	       ck_fail_nomem(err, "a buffer", WINDOW);
}

static int read_all(struct ck_sum_check *passed, const struct ck_sum_check_ask *ask,
		    struct ckpt_err *err)
{
	const uint32_t threads = ask->threads ? ask->threads : 1;
	struct resting r = { .passed = passed, .ask = ask };
	int rc;

	if (ask->rest == CK_REST_NONE)
		return 0;
	r.buf = ck_zalloc(threads * sizeof(*r.buf));
	rc = r.buf ? ck_pool_run(threads, passed->n, run_rest, &r, err) :
	     ck_fail_nomem(err, "buffers", threads);
	for (uint32_t i = 0; r.buf && i < threads; i++)
		ck_free(r.buf[i]);
	ck_free(r.buf);
	return rc;
}

/* ---------------------------------------------------------------- comparing */

/* '*bytes_out': of what could be compared. */
static bool compare(const struct ck_sum_check *passed, const struct stated *s, uint64_t *bytes_out)
{
	const uint64_t ends = (uint64_t)s->head + s->tail;
	bool good = true;

	*bytes_out = 0;
	if (s->owned && s->seen == s->owned && s->number == CK_NOT_SHARED) {
		*bytes_out = s->bytes;
		good = ck_stated_is(passed->ix, s->says, s->sum);
	}
	if (wants_ends(s) && ends && has_ends(s)) {
		*bytes_out += ends;
		good = good && ck_hash128_equal(ck_hash128(passed->ends + s->ends, ends),
						s->says->ends);
	}
	return good;
}

int ck_sum_check_each(struct ck_sum_check *passed, const struct ck_sum_check_ask *ask,
		      ck_sum_check_fn fn, void *arg, struct ckpt_err *err)
{
	int rc = read_all(passed, ask, err);

	for (uint64_t i = 0; !rc && i < passed->n; i++) {
		const struct stated *s = &passed->stated[i];
		struct ck_sum_check_piece piece = {
			.says = s->says, .source = s->source, .off = s->off, .again = s->again,
			.number = s->number, .blocks = s->owned, .all = blocks_of(s), .sum = s->sum,
		};

		piece.good = compare(passed, s, &piece.bytes);
		if (piece.bytes || s->number != CK_NOT_SHARED)
			rc = fn(arg, &piece, err);
	}
	return rc;
}
