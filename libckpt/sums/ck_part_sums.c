/* ck_part_sums.c -- see ck_part_sums.h. */
#include "libckpt/sums/ck_part_sums.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_stage.h"
#include "libckpt/sums/ck_crc_check.h"
#include "libckpt/tensor/ck_extents.h"

#define FEW_BYTES ((uint64_t)1 << 20)

int ck_part_sums_init(struct ck_part_sums *share, uint32_t part, uint32_t nparts,
		      struct ckpt_err *err)
{
	*share = (struct ck_part_sums){ .part = part, .nparts = nparts };
	share->load = ck_zalloc(nparts * sizeof(*share->load));
	return share->load ? 0 : ck_fail_nomem(err, "parts", nparts);
}

void ck_part_sums_release(struct ck_part_sums *share)
{
	ck_free(share->load);
	ck_free(share->note);
	*share = (struct ck_part_sums){ .load = NULL };
}

void ck_claims_release(struct ck_claims *claims)
{
	ck_free(claims->claim);
	*claims = (struct ck_claims){ .claim = NULL };
}

/* ---------------------------------------------------------------- claims */

struct claiming {
	struct ck_claims *claims;
	struct ck_part_sums *share;
	const struct ck_index *ix;
	const struct ck_crc_check *seen;
	bool own;		/* the index is the plan's own */
	const char *path;	/* of the last file, and its source */
	uint32_t source;
};

static int claim(struct claiming *c, uint32_t part, uint32_t source, uint64_t from, uint64_t to,
		 struct ckpt_err *err)
{
	struct ck_claims *all = c->claims;
	int rc;

	if (to <= from)
		return 0;
	c->share->load[part] += to - from;
	rc = ck_grow(&all->claim, &all->cap, all->n + 1, sizeof(*all->claim), err);
	if (!rc)
		all->claim[all->n++] = (struct ck_claim){ from, to, source, part };
	return rc;
}

/* From the first run that is read to the end of the last. */
static int claim_span(struct claiming *c, uint32_t part, const struct ck_span *s,
		      struct ckpt_err *err)
{
	uint64_t from, to;

	if (s->e->flags & (CKPT_EXTENT_DEFLATED | CKPT_EXTENT_GATHER))
		return 0;
	ck_span_bytes(s, &from, &to);
	return claim(c, part, s->e->source, from, to, err);
}

static int claim_state(struct claiming *c, uint32_t part, const struct ck_seg *s, uint64_t skip,
		       uint64_t bytes, struct ckpt_err *err)
{
	const struct ck_index *ix = c->ix;
	const struct ck_state *state = &ix->state[s->state];
	const uint32_t bits = ckpt_dtype_bits((enum ckpt_dtype)s->dtype);
	const uint64_t es = bits < 8 ? 1 : bits / 8;
	const uint64_t first = s->first + skip / es, n = bytes / es;
	struct ck_spans spans;
	struct ck_span span;
	int rc = 0;

	if (!state->nextents || !n)
		return 0;
	if (bits < 8) {		/* one extent, counted in bytes */
		const struct ck_extent *e = ck_extent_stored(ix, state, 0);

		return e->flags & CKPT_EXTENT_DEFLATED ? 0 :
		       claim(c, part, e->source, e->off + first, e->off + first + n, err);
	}
	ck_spans_begin(&spans, ix, state, first, n);
	while (!rc && ck_spans_next(&spans, &span))
		rc = claim_span(c, part, &span, err);
	return rc;
}

static int claim_file(struct claiming *c, uint32_t part, const struct ck_seg *s, uint64_t skip,
		      uint64_t bytes, struct ckpt_err *err)
{
	if (c->path != s->text) {
		c->path = s->text;
		if (!ck_crc_check_source(c->seen, s->text, &c->source))
			c->source = CK_NONE;
	}
	return c->source == CK_NONE ? 0 :
	       claim(c, part, c->source, s->first + skip, s->first + skip + bytes, err);
}

static int claim_unit(struct claiming *c, const struct ck_plan *plan, uint64_t unit,
		      struct ckpt_err *err)
{
	const struct ck_unit *u = &plan->unit[unit];
	const uint32_t part = (uint32_t)(unit % c->share->nparts);
	uint64_t skip = u->skip, n;
	int rc = 0;

	for (uint64_t seg = u->seg, at = 0; !rc && at < u->bytes; seg++, at += n) {
		const struct ck_seg *s = &plan->seg[seg];

		n = ck_min_u64(s->bytes - skip, u->bytes - at);
		if (s->kind == (c->own ? CK_SEG_OWN : CK_SEG_STATE))
			rc = claim_state(c, part, s, skip, n, err);
		else if (s->kind == CK_SEG_FILE && !c->own)
			rc = claim_file(c, part, s, skip, n, err);
		skip = 0;
	}
	return rc;
}

static int by_place(const void *a, const void *b)
{
	const struct ck_claim *x = a, *y = b;

	if (x->source != y->source)
		return x->source < y->source ? -1 : 1;
	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	if (x->to != y->to)
		return x->to > y->to ? -1 : 1;
	return (x->part > y->part) - (x->part < y->part);
}

/* What begins in another one begins where that ends; neighbours of one part become one. */
static void make_disjoint(struct ck_claims *all)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < all->n; i++) {
		struct ck_claim c = all->claim[i];
		struct ck_claim *last = n ? &all->claim[n - 1] : NULL;

		if (last && last->source == c.source && c.from < last->to)
			c.from = last->to;
		if (c.from >= c.to)
			continue;
		if (last && last->source == c.source && last->to == c.from &&
		    last->part == c.part)
			last->to = c.to;
		else
			all->claim[n++] = c;
	}
	all->n = n;
}

int ck_claims_make(struct ck_claims *claims, struct ck_part_sums *share, const struct ck_index *ix,
		   const struct ck_plan *plan, const struct ck_crc_check *seen,
		   struct ckpt_err *err)
{
	struct claiming c = {
		.claims = claims, .share = share, .ix = ix, .seen = seen, .own = ix == plan->own,
	};
	int rc = 0;

	for (uint64_t u = 0; !rc && u < plan->nunits; u++)
		rc = claim_unit(&c, plan, u, err);
	if (!rc && claims->n)
		qsort(claims->claim, claims->n, sizeof(*claims->claim), by_place);
	make_disjoint(claims);
	return rc;
}

uint64_t ck_claims_stretch(const struct ck_claims *claims, uint32_t source, uint64_t at,
			   uint64_t end, uint32_t *part_out)
{
	const struct ck_claim *c = claims->claim;
	uint64_t i;

	/* the first that ends after 'at' */
	CK_LOWER_BOUND(i, claims->n, c[i].source < source ||
				     (c[i].source == source && c[i].to <= at));
	*part_out = CK_NONE;
	if (i == claims->n || c[i].source != source)
		return end;
	c += i;
	if (c->from > at)
		return ck_min_u64(c->from, end);
	*part_out = c->part;
	return ck_min_u64(c->to, end);
}

uint32_t ck_part_sums_rest(struct ck_part_sums *share, uint64_t bytes, uint32_t near)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < share->nparts; i++)
		if (share->load[i] < share->load[best])
			best = i;
	if (bytes < FEW_BYTES && near != CK_NONE)
		best = near;
	share->load[best] += bytes;
	return best;
}

/* ---------------------------------------------------------------- notes */

static int note(struct ck_part_sums *share, const struct ck_record_sum *sum, struct ckpt_err *err)
{
	int rc = ck_grow(&share->note, &share->cap, share->n + 1, sizeof(*share->note), err);

	if (!rc)
		share->note[share->n++] = *sum;
	return rc;
}

int ck_part_sums_crc(struct ck_part_sums *share, uint64_t number, uint64_t off, uint64_t bytes,
		     uint32_t crc, struct ckpt_err *err)
{
	return note(share, &(struct ck_record_sum){
		.sum = number, .off = off, .bytes = bytes, .crc = crc, .kind = CK_RECORD_READ_CRC,
	}, err);
}

int ck_part_sums_term(struct ck_part_sums *share, uint64_t number, uint64_t blocks,
		      struct ck_hash128 sum, struct ckpt_err *err)
{
	return note(share, &(struct ck_record_sum){
		.sum = number, .off = sum.lo, .bytes = sum.hi, .crc = (uint32_t)blocks,
		.kind = CK_RECORD_READ_SUM,
	}, err);
}

/* The strings of enum ck_record_text. */
static int note_text(struct ck_part_sums *share, uint64_t number, const char *shape,
		     const struct ck_findings *finding, struct ckpt_err *err)
{
	const struct ckpt_finding *f = ck_findings_worst(finding, CKPT_INFO);
	const bool fails = f && f->severity == CKPT_ERROR;
	char text[CK_RECORD_TEXT_MOST + CK_RECORD_TEXT_ENTRY] = { 0 };
	size_t n;

	if (!f || !f->text)
		return ck_fail_nomem(err, "a message", 0);
	n = (size_t)snprintf(text, CK_RECORD_TEXT_MOST, "%.700s%c%d%c%.100s%c%.1500s%c%.1500s",
			     shape, 0, fails ? f->code ? (int)f->code : CKPT_E_MISMATCH : 0, 0,
			     f->id, 0, f->where, 0, f->text) + 1;
	for (size_t at = 0; at < n; at += CK_RECORD_TEXT_ENTRY) {
		const uint8_t *p = (const uint8_t *)text + at;
		int rc = note(share, &(struct ck_record_sum){
			.sum = number, .off = ck_le64(p), .bytes = ck_le64(p + 8),
			.crc = (uint32_t)(at / CK_RECORD_TEXT_ENTRY), .kind = CK_RECORD_TEXT,
		}, err);

		if (rc)
			return rc;
	}
	return 0;
}

int ck_part_sums_want_crc(struct ck_part_sums *share, uint64_t number, uint64_t bytes, uint32_t crc,
			  const struct ck_findings *finding, struct ckpt_err *err)
{
	int rc = note(share, &(struct ck_record_sum){
		.sum = number, .off = bytes, .crc = crc, .kind = CK_RECORD_WANT_CRC,
	}, err);

	return rc ? rc : note_text(share, number, "", finding, err);
}

int ck_part_sums_want_sum(struct ck_part_sums *share, uint64_t number, uint64_t blocks,
			  struct ck_hash128 sum, const char *shape,
			  const struct ck_findings *finding, struct ckpt_err *err)
{
	int rc = note(share, &(struct ck_record_sum){
		.sum = number, .off = sum.lo, .bytes = sum.hi, .crc = (uint32_t)blocks,
		.kind = CK_RECORD_WANT_SUM,
	}, err);

	return rc ? rc : note_text(share, number, shape, finding, err);
}

int ck_part_sums_settle(const struct ck_part_sums *share, struct ck_stage *stage,
			struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < share->n; i++)
		rc = ck_stage_read_sum(stage, &share->note[i], err);
	return rc;
}
